r"""The graph kernel integral, exact and without storing a matrix per edge.

    y(x_i) = 1/|N(x_i)| sum_{x_j in N(x_i)} kappa_ij v(x_j),
    kappa_ij = reshape(W2 h_ij + b2),    h_ij = gelu(P_i + Q_j + R_ij)

The last layer of kappa is linear, so the sum over neighbours comes before the d x d contraction:
sum_j kappa_ij v_j = W2 : (sum_j h_ij (x) v_j) + b2^T (sum_j v_j). The first layer splits into a
part of the target P_i and of the source Q_j (each computed once per node) and of the edge R_ij.

Values have two leading axes: `kernel` (frames with different kernels) and `group` (frames that
share one kernel). A missing source is a row of zeros and does not count in the mean.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.utils.checkpoint
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, pad

from stonet.graph.neighbours import Block, Neighbours
from stonet.system.devices import in_float32

WORKSPACE_FLOATS = 2**20  # size limit of temporary arrays; more would leave the CPU cache


class GraphKernel(nn.Module):
    """Mean over neighbours of kappa(.) v, where kappa is a network with one hidden layer.

    Args:
        inputs: features of a target or source node (a_t(x) and, in the paper's form, x).
        edge: features of an edge.
        latent: width d of the values and of the result.
        hidden: width m of the hidden layer of kappa.
        kind: "full" for a d x d matrix, "diag" for its diagonal (an element-wise product).
    """

    workspace = WORKSPACE_FLOATS

    def __init__(
        self, inputs: int, edge: int, latent: int, hidden: int, kind: Literal["full", "diag"]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.target = nn.Linear(inputs, hidden)
        self.source = nn.Linear(inputs, hidden, bias=False)
        self.edge = nn.Parameter(torch.randn(edge, hidden) / math.sqrt(max(edge, 1)))
        rows = latent * hidden if kind == "full" else hidden
        self.weight = nn.Parameter(torch.randn(rows, latent) / math.sqrt(rows))
        shape = (latent, latent) if kind == "full" else (latent,)
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(
        self,
        values: Float[Tensor, "frame source latent"],
        target: Float[Tensor, "kernel target input"],
        source: Float[Tensor, "kernel source input"],
        neighbours: Neighbours,
        present: Bool[Tensor, "frame source"] | None = None,
    ) -> Float[Tensor, "frame target latent"]:
        """The kernel integral at every target.

        Args:
            values: v at the sources.
            target: features of the targets; `kernel` is 1 (one for all frames) or one per frame.
            source: features of the sources.
            neighbours: the edges.
            present: which sources have a value; None: all.
        """
        if present is not None:
            values = values.masked_fill(~present[..., None], 0.0)
        shared = target.shape[0] == 1
        stacked = values.transpose(0, 1)[None] if shared else values[:, :, None]
        arguments = (
            pad(stacked, (0, 0, 0, 0, 0, 1)),  # the zero row that padded entries refer to
            self.target(target),
            self.source(pad(source, (0, 0, 0, 1))),
            self.edge,
            self.weight,
            self.bias,
        )
        if self.kind == "full":
            summed = full_sum(*arguments, neighbours, self.workspace)
        else:
            summed = _diagonal_sum(*arguments, neighbours)
        summed = summed[0].transpose(0, 1) if shared else summed[:, :, 0]
        return summed / neighbour_count(neighbours, present)[..., None]


def full_sum(
    values: Float[Tensor, "kernel source group latent"],
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    weight: Float[Tensor, "rows out"],
    bias: Float[Tensor, "latent out"],
    neighbours: Neighbours,
    workspace: int = WORKSPACE_FLOATS,
) -> Float[Tensor, "kernel target group out"]:
    """sum_j reshape(W2 gelu(P_i + Q_j + R_ij) + b2) v_j, for matrices of `out` by `latent`.

    Args:
        values: v at the sources, and a last row of zeros that padded entries refer to.
        target: P at the targets.
        source: Q at the sources and at the last row.
        edge: R of the features of an edge.
        weight: W2, by latent and hidden unit.
        bias: b2.
        neighbours: the edges.
        workspace: limit of temporary arrays, in numbers.
    """
    arguments = values, target, source, edge, weight, bias, neighbours, workspace
    summed: Tensor = _FullSum.apply(*arguments)  # type: ignore[no-untyped-call]
    return summed


def neighbour_count(
    neighbours: Neighbours, present: Bool[Tensor, "frame source"] | None
) -> Float[Tensor, "frame_or_1 target"]:
    """Number of neighbours with a value; 1 where there is none, so that an empty mean is zero.

    Args:
        neighbours: of the targets.
        present: whether a source has a value; None: all have.
    """
    if present is None:
        return neighbours.count.clamp(min=1)[None]
    return neighbour_sum(present.to(neighbours.count.dtype), neighbours).clamp(min=1)


def neighbour_sum(
    values: Float[Tensor, "frame source"], neighbours: Neighbours
) -> Float[Tensor, "frame target"]:
    """The sum over the neighbours of each target.

    Args:
        values: at the sources.
        neighbours: of the targets.
    """
    padded = pad(values, (0, 1))
    result = values.new_zeros(len(values), len(neighbours.count))
    for block in neighbours.blocks:
        gathered = padded.index_select(1, block.index.flatten())
        result[:, block.rows] = gathered.view(len(values), *block.index.shape).sum(-1)
    return result


class Scratch:
    """Named temporary arrays, reused by later calls: allocating costs more than the arithmetic.

    Args:
        like: a tensor of the wanted device and dtype.
        limit: elements of the largest array that is kept.
    """

    buffers = threading.local()

    def __init__(self, like: Tensor, limit: int = WORKSPACE_FLOATS) -> None:
        self.limit, self.like = limit, like
        kind = f"{type(like).__name__} {like.device} {like.dtype}"
        self.by_name: dict[str, Tensor] = self.buffers.__dict__.setdefault(kind, {})

    def __call__(self, name: str, *shape: int) -> Tensor:
        """An uninitialised array; it shares memory with earlier ones of the same name."""
        size = math.prod(shape)
        if size > self.limit:
            return self.like.new_empty(shape)
        if name not in self.by_name or len(self.by_name[name]) < size:
            with torch.inference_mode(False):  # the next use may be a training step
                self.by_name[name] = self.like.new_empty(size)
        return self.by_name[name][:size].view(shape)

    def gather(self, name: str, table: Tensor, index: Tensor) -> Tensor:
        """The rows `index` of a table.

        Args:
            name: of the array.
            table: from which rows are taken.
            index: of the rows.
        """
        result = self(name, len(index), table.shape[1])
        return torch.index_select(table, 0, index, out=result)


def split_block(block: Block, rows: int) -> Iterator[tuple[slice, Block]]:
    """Parts of a block with at most `rows` targets each, and their position in the block.

    Args:
        block: targets of similar degree.
        rows: most targets in a part.
    """
    rows = max(1, rows)
    for start in range(0, len(block.rows), rows):
        part = slice(start, start + rows)
        yield part, Block(block.rows[part], block.index[part], block.features[part])


@dataclass(frozen=True)
class Piece:
    """Some targets of a block for some kernels, as rows of tables over all kernels and nodes.

    Args:
        target: row of each target in the tables.
        source: `degree` entries for each row.
        features: of the edges.
        degree: number of sources of each target.
    """

    target: Int[Tensor, " row"]
    source: Int[Tensor, " edge"]
    features: Float[Tensor, "edge_of_one_kernel feature"]
    degree: int


def _pieces(
    values: Tensor, target: Tensor, hidden: int, neighbours: Neighbours, workspace: int
) -> Iterator[Piece]:
    """All targets and kernels, in pieces whose temporary arrays fit the workspace."""
    kernels, sources, wide = values.shape
    for block in neighbours.blocks:
        degree = block.index.shape[1]
        capacity = workspace // max(1, wide * hidden, degree * max(wide, hidden))
        rows = max(1, min(len(block.rows), capacity))
        frames = max(1, min(kernels, capacity // rows))
        first = torch.arange(kernels, device=block.rows.device)[:, None]
        for _, part in split_block(block, rows):
            for k in range(0, kernels, frames):
                kernel = first[k : k + frames]
                yield Piece(
                    (part.rows + kernel * target.shape[1]).flatten(),
                    (part.index.flatten() + kernel * sources).flatten(),
                    part.features.flatten(0, 1),
                    degree,
                )


class _FullSum(torch.autograd.Function):
    """sum_j reshape(W2 h_ij + b2) v_j; the backward pass recomputes all but the arguments."""

    @staticmethod
    @in_float32
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        values, target, source, edge, weight, bias, neighbours, workspace = arguments
        ctx.save_for_backward(values, target, source, edge, weight, bias)
        ctx.neighbours, ctx.workspace = neighbours, workspace
        kernels, _, group, latent = values.shape
        result = values.new_zeros(kernels, target.shape[1], group, weight.shape[1])
        table, stacked = result.flatten(0, 1).flatten(1), values.flatten(2)
        scratch = Scratch(values, workspace)
        for piece in _pieces(stacked, target, target.shape[2], neighbours, workspace):
            _, _, _, outer, plain = _outer(stacked, target, source, edge, piece, scratch)
            summed = scratch("summed", len(piece.target) * group, weight.shape[1])
            torch.mm(plain.view(-1, latent), bias, out=summed)
            summed.addmm_(outer.view(-1, len(weight)), weight)
            table.index_copy_(0, piece.target, summed.view(len(piece.target), -1))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        values, target, source, edge, weight, bias = ctx.saved_tensors
        gradient, hidden, latent = upstream[0].flatten(0, 1).flatten(1), target.shape[2], len(bias)
        d_values, d_target, d_source, d_edge, d_weight, d_bias = (
            torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for tensor in (values, target, source, edge, weight.T, bias)
        )
        by_value = d_values.flatten(0, 1).flatten(1)
        by_target, by_source = d_target.flatten(0, 1), d_source.flatten(0, 1)
        stacked, scratch = values.flatten(2), Scratch(values, ctx.workspace)
        for piece in _pieces(stacked, target, hidden, ctx.neighbours, ctx.workspace):
            gathered, before, active, outer, plain = _outer(
                stacked, target, source, edge, piece, scratch
            )
            d_out = scratch.gather("d_out", gradient, piece.target).view(-1, weight.shape[1])
            d_weight.addmm_(d_out.T, outer.view(len(d_out), -1))
            d_bias.addmm_(plain.view(-1, latent).T, d_out)
            d_outer = scratch("d_outer", len(d_out), len(weight))
            d_outer = torch.mm(d_out, weight.T, out=d_outer).view_as(outer)
            d_gathered = torch.bmm(
                active, d_outer.transpose(1, 2), out=scratch("d_gathered", *gathered.shape)
            )
            d_gathered += (d_out @ bias.T).view_as(plain)[:, None]
            by_value.index_add_(0, piece.source, d_gathered.flatten(0, 1))
            d_before = torch.bmm(gathered, d_outer, out=active)
            torch.ops.aten.gelu_backward.grad_input(d_before, before, grad_input=d_before)
            by_source.index_add_(0, piece.source, d_before.flatten(0, 1))
            by_target.index_copy_(0, piece.target, d_before.sum(1))
            if len(edge):
                d_edge.addmm_(
                    piece.features.T, d_before.view(-1, len(piece.features), hidden).sum(0)
                )
        return d_values, d_target, d_source, d_edge, d_weight.T, d_bias, None, None


def _outer(
    values: Float[Tensor, "kernel source wide"],
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    piece: Piece,
    scratch: Scratch,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gathered values, the hidden layer before and after activation, sum h (x) v, sum v."""
    shape = len(piece.target), piece.degree, -1
    gathered = scratch.gather("gathered", values.flatten(0, 1), piece.source).view(shape)
    before = scratch.gather("before", source.flatten(0, 1), piece.source).view(shape)
    before += target.flatten(0, 1).index_select(0, piece.target)[:, None]
    if len(edge):
        by_kernel = before.view(-1, len(piece.features), len(edge.T))
        by_kernel.baddbmm_(
            piece.features.expand(len(by_kernel), -1, -1), edge.expand(len(by_kernel), -1, -1)
        )
    active = torch.ops.aten.gelu.out(before, out=scratch("active", *before.shape))
    outer = scratch("outer", len(before), gathered.shape[2], before.shape[2])
    torch.bmm(gathered.transpose(1, 2), active, out=outer)
    return gathered, before, active, outer, gathered.sum(1)


def _before(
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    block: Block,
) -> Float[Tensor, "kernel row degree hidden"]:
    """P_i + Q_j + R_ij for the edges of a block; no R_ij if the kernel has no edge features."""
    before = source.index_select(1, block.index.flatten()).unflatten(1, block.index.shape)
    before = before + target.index_select(1, block.rows)[:, :, None]
    return before + block.features @ edge if len(edge) else before


@in_float32
def _diagonal_sum(
    values: Float[Tensor, "kernel source group latent"],
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    weight: Float[Tensor, "hidden latent"],
    bias: Float[Tensor, " latent"],
    neighbours: Neighbours,
) -> Float[Tensor, "kernel target group latent"]:
    """sum_j (W2 h_ij + b2) * v_j, block by block, recomputed in the backward pass."""

    def block_sum(
        v: Tensor, p: Tensor, q: Tensor, e: Tensor, w: Tensor, b: Tensor, block: Block
    ) -> Tensor:
        kernels, _, group, latent = v.shape
        rows, degree = block.index.shape
        gathered = v.index_select(1, block.index.flatten())
        gathered = gathered.view(kernels, rows, degree, group, latent)
        kappa = gelu(_before(p, q, e, block)) @ w + b
        return torch.einsum("fnkgd,fnkd->fngd", gathered, kappa)

    parameters = (target, source, edge, weight, bias)
    sums = [
        torch.utils.checkpoint.checkpoint(
            block_sum, values, *parameters, block, use_reentrant=False
        )
        for block in neighbours.blocks
    ]
    kernels, _, group, latent = values.shape
    result = values.new_zeros(kernels, target.shape[1], group, latent)
    if not sums:
        return result
    rows = torch.cat([block.rows for block in neighbours.blocks])
    return result.index_copy(1, rows, torch.cat(sums, dim=1))
