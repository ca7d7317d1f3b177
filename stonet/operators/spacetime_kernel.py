r"""The sum over neighbours and past times of a joint kernel of offset and lag.

    y(x_i, t) = sum_{j, s} xi_ij(t - t_s) v_s(x_j),
    xi_ij(l) = reshape(W2 h_ijl + b2),    h_ijl = gelu(A e_ij + c + p_l)

As in `graph_kernel.py` the outer products h (x) v are summed first. The lags are ordered such that
each output time reads a contiguous slice: regular output times share most of their hidden layers,
irregular ones use their own, with the same code.
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
from stonet.operators.graph_kernel import Scratch, split_block
from stonet.system.devices import in_float32

MAX_CHUNK_LAGS = 24  # lags whose hidden layers are in memory together; at least twice the past


@dataclass(frozen=True)
class Lags:
    """All lags, ordered such that those of one output time are contiguous.

    Args:
        value: t - t_s, in steps.
        past: number of inputs.
        start: first lag of each output time; its slice has `past` lags.
        chunks: output times that are computed together.
        max_chunk: limit of the lags in a chunk.
    """

    value: Float[Tensor, " lag"]
    past: int
    start: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]
    max_chunk: int


def order_lags(lags: Float[Tensor, "future past"], max_chunk: int = MAX_CHUNK_LAGS) -> Lags:
    """Order the lags and store those that consecutive output times share once.

    Args:
        lags: output time minus input time, in steps; in host memory, to avoid a device sync.
        max_chunk: lags computed together, or twice the past if that is more.
    """
    rows = lags.detach().cpu().numpy()
    past = rows.shape[1]
    max_chunk = max(max_chunk, 2 * past)
    step = (rows[0, 0] - rows[0, -1]) / max(past - 1, 1) or 1.0
    phase = np.round((rows[:, 0] - rows[0, 0]) / step, 6) % 1  # regular series apart
    values: list[float] = []
    start = [0] * len(rows)
    chunks: list[list[int]] = []
    for t in np.lexsort((-rows[:, 0], phase)).tolist():
        row, length = rows[t].tolist(), len(values)
        tails = range(max(0, length - past), length + 1)
        start[t] = next(p for p in tails if values[p:] == row[: length - p])
        values += row[length - start[t] :]
        if not chunks or len(values) - start[chunks[-1][0]] > max_chunk:
            chunks.append([])
        chunks[-1].append(t)
    ordered = torch.tensor(values, dtype=lags.dtype, device=lags.device)
    return Lags(ordered, past, tuple(start), tuple(map(tuple, chunks)), max_chunk)


class JointSum(torch.autograd.Function):
    """y(x_i, t); the backward pass recomputes all but the arguments.

    Values are (source, past, wide), where `wide` stacks the latents of all samples; the result is
    (future, target, wide), where `wide` stacks their ranks. `by_lag` is p at the ordered lags.
    """

    @staticmethod
    @in_float32
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """The sum over neighbours and past times.

        Args:
            ctx: keeps what the backward pass needs.
            *arguments: six tensors; then lags, neighbours and the size of temporary arrays.
        """
        values, place, offset, by_lag, weight, bias, lags, neighbours, workspace = arguments
        ctx.save_for_backward(*arguments[:6])
        ctx.lags, ctx.neighbours, ctx.workspace = lags, neighbours, workspace
        latent, rank = bias.shape
        result = values.new_zeros(
            len(lags.start), len(neighbours.count), values.shape[2] // latent * rank
        )
        scratch = Scratch(values, workspace)
        for piece in _pieces(values, len(offset), neighbours, lags, workspace):
            gathered, by_edge = _gather(values, place, offset, piece, scratch)
            plain = gathered.sum(1).view(-1, latent) @ bias
            for chunk in lags.chunks:
                _, active = _hidden(by_edge, _part(by_lag, chunk, lags), scratch)
                for t, part in _slices(active, chunk, lags):
                    outer = _outer(gathered, part, scratch)
                    summed = scratch("summed", *plain.shape)
                    torch.addmm(plain, outer.view(len(plain), -1), weight, out=summed)
                    result[t].index_copy_(0, piece.rows, summed.view(len(piece.rows), -1))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        """The gradients of the six tensors.

        Args:
            ctx: as `forward` left it.
            *upstream: the gradient of the result.
        """
        values, place, offset, by_lag, weight, bias = ctx.saved_tensors
        lags, gradient, (latent, rank) = ctx.lags, upstream[0], bias.shape
        d_values, d_place, d_offset, d_by_lag, d_weight, d_bias = (
            torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for tensor in (values, place, offset, by_lag, weight.T, bias)
        )
        scratch = Scratch(values, ctx.workspace)
        for piece in _pieces(values, len(offset), ctx.neighbours, lags, ctx.workspace):
            gathered, by_edge = _gather(values, place, offset, piece, scratch)
            d_gathered = scratch("d_gathered", *gathered.shape).zero_()
            d_by_edge = scratch("d_by_edge", *by_edge.shape).zero_()
            d_plain = gradient.new_zeros(len(piece.rows), gradient.shape[2])
            for chunk in lags.chunks:
                before, active = _hidden(by_edge, _part(by_lag, chunk, lags), scratch)
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
                d_by_edge += d_active.sum(1)
            d_plain = d_plain.view(-1, rank)
            d_bias.addmm_(gathered.sum(1).view(-1, latent).T, d_plain)
            d_gathered += (d_plain @ bias.T).view(len(gathered), 1, -1)
            d_values.flatten(0, 1).index_add_(
                0, _sources(piece, lags.past), d_gathered.flatten(0, 1)
            )
            d_place.addmm_(d_by_edge.flatten(0, 1).T, piece.features.flatten(0, 1))
            d_offset += d_by_edge.sum((0, 1))
        return d_values, d_place, d_offset, d_by_lag, d_weight.T, d_bias, None, None, None


def _pieces(
    values: Tensor, hidden: int, neighbours: Neighbours, lags: Lags, workspace: int
) -> Iterator[Block]:
    """All targets, in pieces whose temporary arrays fit the workspace."""
    _, past, wide = values.shape
    for block in neighbours.blocks:
        largest = block.index.shape[1] * max(past * wide, lags.max_chunk * hidden)
        for _, part in split_block(block, workspace // max(1, largest)):
            yield part


def _sources(piece: Block, past: int) -> Int[Tensor, " edge"]:
    """Rows of the (source past) table, by target, past and neighbour: the order of the lags."""
    inputs = torch.arange(past, device=piece.index.device)[:, None]
    return (piece.index[:, None] * past + inputs).flatten()


def _gather(
    values: Tensor, place: Tensor, offset: Tensor, piece: Block, scratch: Scratch
) -> tuple[Float[Tensor, "row edge wide"], Float[Tensor, "row degree hidden"]]:
    """The values of the neighbours, and A e_ij + c."""
    index = _sources(piece, values.shape[1])
    gathered = scratch.gather("gathered", values.flatten(0, 1), index)
    by_edge = torch.addmm(offset, piece.features.flatten(0, 1), place.T)
    gathered = gathered.view(len(piece.rows), -1, values.shape[2])
    return gathered, by_edge.view(*piece.index.shape, -1)


def _part(by_lag: Tensor, chunk: tuple[int, ...], lags: Lags) -> Tensor:
    """The rows of the lags in a chunk."""
    return by_lag[lags.start[chunk[0]] : lags.start[chunk[-1]] + lags.past]


def _hidden(
    by_edge: Float[Tensor, "row degree hidden"],
    by_lag: Float[Tensor, "lag hidden"],
    scratch: Scratch,
) -> tuple[Float[Tensor, "row lag degree hidden"], Float[Tensor, "row lag degree hidden"]]:
    """The hidden layer of every edge and lag, before and after activation."""
    shape = len(by_edge), len(by_lag), *by_edge.shape[1:]
    before = torch.add(by_edge[:, None], by_lag[:, None], out=scratch("before", *shape))
    return before, torch.ops.aten.gelu.out(before, out=scratch("active", *shape))


def _slices(
    hidden: Float[Tensor, "row lag degree hidden"], chunk: tuple[int, ...], lags: Lags
) -> Iterator[tuple[int, Float[Tensor, "row edge hidden"]]]:
    """Each output time of a chunk with a view of its hidden layers."""
    first, degree = lags.start[chunk[0]], hidden.shape[2]
    for t in chunk:
        start = (lags.start[t] - first) * degree
        yield t, hidden.flatten(1, 2).narrow(1, start, lags.past * degree)


def _outer(gathered: Tensor, part: Tensor, scratch: Scratch) -> Float[Tensor, "row wide hidden"]:
    """sum_{j, s} v (x) h."""
    result = scratch("outer", len(gathered), gathered.shape[2], part.shape[2])
    return torch.bmm(gathered.transpose(1, 2), part, out=result)
