r"""The sum over neighbours and inputs of a kernel of the offset and the lag together.

    y(x_i, t) = sum_{j, s} xi_ij(t - t_s) v_s(x_j),
    xi_ij(l) = reshape(W2 h_ijl + b2),    h_ijl = gelu(A e_ij + c + p_l)

As in kernel.py the outer products h (x) v are summed first. Lags stand in such an order that every
output time reads a slice of them: regular times share most of their hidden layers, and any others
have their own, all by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from stonet.graph.neighbours import Block, Neighbours
from stonet.operators.graph_kernel import Scratch
from stonet.system.devices import in_float32

WORKSPACE = 2**20  # floats of the largest temporary
TOGETHER = 24  # lags whose hidden layers are held at once, or twice the past


@dataclass(frozen=True)
class Lags:
    """Lags in an order in which those of each output time are neighbours."""

    value: Float[Tensor, " lag"]
    past: int
    start: tuple[int, ...]  # of each output time's slice, which is as long as the past
    chunks: tuple[tuple[int, ...], ...]  # output times that are worked on together


def order_lags(lags: Float[Tensor, "future past"]) -> Lags:
    """Where one time's lags continue those of the last, what they share is stored once.

    Lags on a GPU would be waited for: give them as they are in the host's memory.
    """
    rows = lags.detach().cpu().numpy()
    past = rows.shape[1]
    step = (rows[0, 0] - rows[0, -1]) / max(past - 1, 1) or 1.0
    phase = np.round((rows[:, 0] - rows[0, 0]) / step, 6) % 1  # times between others go apart
    values: list[float] = []
    start = [0] * len(rows)
    chunks: list[list[int]] = []
    for t in np.lexsort((-rows[:, 0], phase)).tolist():
        row, length = rows[t].tolist(), len(values)
        tails = range(max(0, length - past), length + 1)
        start[t] = next(p for p in tails if values[p:] == row[: length - p])
        values += row[length - start[t] :]
        if not chunks or len(values) - start[chunks[-1][0]] > max(TOGETHER, 2 * past):
            chunks.append([])
        chunks[-1].append(t)
    ordered = torch.tensor(values, dtype=lags.dtype, device=lags.device)
    return Lags(ordered, past, tuple(start), tuple(map(tuple, chunks)))


class JointSum(torch.autograd.Function):
    """y(x_i, t), keeping nothing but its arguments for the way back.

    Values are (source, past, wide) with `wide` the samples' latents side by side; the result is
    (future, target, wide), the samples' ranks side by side. `by_lag` is p at the ordered lags.
    """

    @staticmethod
    @in_float32
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        values, place, offset, by_lag, weight, bias, lags, neighbours = arguments
        ctx.save_for_backward(*arguments[:6])
        ctx.lags, ctx.neighbours = lags, neighbours
        latent, rank = bias.shape
        result = values.new_zeros(
            len(lags.start), len(neighbours.count), values.shape[2] // latent * rank
        )
        scratch = Scratch(values)
        for piece in _pieces(values, len(offset), neighbours):
            gathered, seen = _gather(values, place, offset, piece, scratch)
            plain = gathered.sum(1).view(-1, latent) @ bias
            for chunk in lags.chunks:
                _, active = _hidden(seen, _part(by_lag, chunk, lags), scratch)
                for t, part in _slices(active, chunk, lags):
                    outer = _outer(gathered, part, scratch)
                    summed = scratch("summed", *plain.shape)
                    torch.addmm(plain, outer.view(len(plain), -1), weight, out=summed)
                    result[t].index_copy_(0, piece.rows, summed.view(len(piece.rows), -1))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        values, place, offset, by_lag, weight, bias = ctx.saved_tensors
        lags, gradient, (latent, rank) = ctx.lags, upstream[0], bias.shape
        d_values, d_place, d_offset, d_by_lag, d_weight, d_bias = (
            torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for tensor in (values, place, offset, by_lag, weight.T, bias)
        )
        scratch = Scratch(values)
        for piece in _pieces(values, len(offset), ctx.neighbours):
            gathered, seen = _gather(values, place, offset, piece, scratch)
            d_gathered = scratch("d_gathered", *gathered.shape).zero_()
            d_seen = scratch("d_seen", *seen.shape).zero_()
            d_plain = gradient.new_zeros(len(piece.rows), gradient.shape[2])
            for chunk in lags.chunks:
                before, active = _hidden(seen, _part(by_lag, chunk, lags), scratch)
                d_active = scratch("d_active", *active.shape).zero_()
                for (t, part), (_, d_part) in zip(
                    _slices(active, chunk, lags), _slices(d_active, chunk, lags), strict=True
                ):
                    d_out = scratch.gather("d_out", gradient[t], piece.rows)
                    d_plain += d_out
                    d_out = d_out.view(-1, rank)
                    outer = _outer(gathered, part, scratch)
                    d_weight.addmm_(d_out.T, outer.view(len(d_out), -1))
                    d_outer = scratch("d_outer", len(d_out), len(weight))
                    d_outer = torch.mm(d_out, weight.T, out=d_outer).view_as(outer)
                    d_gathered.baddbmm_(part, d_outer.transpose(1, 2))
                    d_part.baddbmm_(gathered, d_outer)
                torch.ops.aten.gelu_backward.grad_input(d_active, before, grad_input=d_active)
                _part(d_by_lag, chunk, lags).add_(d_active.sum((0, 2)))
                d_seen += d_active.sum(1)
            d_plain = d_plain.view(-1, rank)
            d_bias.addmm_(gathered.sum(1).view(-1, latent).T, d_plain)
            d_gathered += (d_plain @ bias.T).view(len(gathered), 1, -1)
            d_values.flatten(0, 1).index_add_(
                0, _sources(piece, lags.past), d_gathered.flatten(0, 1)
            )
            d_place.addmm_(d_seen.flatten(0, 1).T, piece.features.flatten(0, 1))
            d_offset += d_seen.sum((0, 1))
        return d_values, d_place, d_offset, d_by_lag, d_weight.T, d_bias, None, None


def _pieces(values: Tensor, hidden: int, neighbours: Neighbours) -> Iterator[Block]:
    """The targets, cut so that temporaries stay small."""
    _, past, wide = values.shape
    for block in neighbours.blocks:
        largest = block.index.shape[1] * max(past * wide, max(TOGETHER, 2 * past) * hidden)
        rows = max(1, WORKSPACE // max(1, largest))
        for r in range(0, len(block.rows), rows):
            cut = slice(r, r + rows)
            yield Block(block.rows[cut], block.index[cut], block.features[cut])


def _sources(piece: Block, past: int) -> Int[Tensor, " edge"]:
    """Rows of the (source past) table, by target, past and neighbour: the order of the lags."""
    inputs = torch.arange(past, device=piece.index.device)[:, None]
    return (piece.index[:, None] * past + inputs).flatten()


def _gather(
    values: Tensor, place: Tensor, offset: Tensor, piece: Block, scratch: Scratch
) -> tuple[Float[Tensor, "row edge wide"], Float[Tensor, "row degree hidden"]]:
    """The neighbours' values, and what the hidden layer sees of the offsets."""
    index = _sources(piece, values.shape[1])
    gathered = scratch.gather("gathered", values.flatten(0, 1), index)
    seen = torch.addmm(offset, piece.features.flatten(0, 1), place.T)
    return gathered.view(len(piece.rows), -1, values.shape[2]), seen.view(*piece.index.shape, -1)


def _part(by_lag: Tensor, chunk: tuple[int, ...], lags: Lags) -> Tensor:
    """The lags of a chunk's times."""
    return by_lag[lags.start[chunk[0]] : lags.start[chunk[-1]] + lags.past]


def _hidden(
    seen: Float[Tensor, "row degree hidden"], by_lag: Float[Tensor, "lag hidden"], scratch: Scratch
) -> tuple[Float[Tensor, "row lag degree hidden"], Float[Tensor, "row lag degree hidden"]]:
    """The hidden layer of every edge and lag, before and after its activation."""
    shape = len(seen), len(by_lag), *seen.shape[1:]
    before = torch.add(seen[:, None], by_lag[:, None], out=scratch("before", *shape))
    return before, torch.ops.aten.gelu.out(before, out=scratch("active", *shape))


def _slices(
    hidden: Float[Tensor, "row lag degree hidden"], chunk: tuple[int, ...], lags: Lags
) -> Iterator[tuple[int, Float[Tensor, "row edge hidden"]]]:
    """Each time of a chunk with the hidden layers that it reads, in place."""
    first, degree = lags.start[chunk[0]], hidden.shape[2]
    for t in chunk:
        yield (
            t,
            hidden.flatten(1, 2).narrow(1, (lags.start[t] - first) * degree, lags.past * degree),
        )


def _outer(gathered: Tensor, part: Tensor, scratch: Scratch) -> Float[Tensor, "row wide hidden"]:
    """sum_{j, s} v (x) h."""
    result = scratch("outer", len(gathered), gathered.shape[2], part.shape[2])
    return torch.bmm(gathered.transpose(1, 2), part, out=result)
