r"""The graph kernel integral, exact and without a matrix per edge.

    y(x_i) = 1/|N(x_i)| sum_{x_j in N(x_i)} kappa_ij v(x_j),
    kappa_ij = reshape(W2 h_ij + b2),    h_ij = gelu(P_i + Q_j + R_ij)

The last layer of kappa is linear, so the sum over neighbours comes before the d x d contraction:
sum_j kappa_ij v_j = W2 : (sum_j h_ij (x) v_j) + b2^T (sum_j v_j). The first layer splits into parts
of the target and of the source (each computed once per node) and of the edge.

Values carry two leading axes: `kernel` (frames with a kernel of their own) and `group` (frames that
share one). A missing source is a row of zeros, and it leaves the mean.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.utils.checkpoint
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, pad

from stonet.neighbours import Block, Neighbours

WORKSPACE = 2**20  # floats of the largest temporary within a block


class GraphKernel(nn.Module):
    """Mean over neighbours of kappa(.) v, kappa a network with one hidden layer.

    Args:
        inputs: width of what kappa sees of each end (a_t(x) and, in the paper's form, x).
        edge: width of what kappa sees of the edge itself.
        latent: width d of the values and of the result.
        hidden: width m of kappa's hidden layer.
        kind: "full" for a d x d matrix, "diag" for its diagonal (an element-wise product).
    """

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
        """`kernel` is 1 (one kernel for all frames) or the number of frames."""
        if present is not None:
            values = values.masked_fill(~present[..., None], 0.0)
        shared = target.shape[0] == 1
        stacked = values.transpose(0, 1)[None] if shared else values[:, :, None]
        arguments = (
            pad(stacked, (0, 0, 0, 0, 0, 1)),  # the empty row that padding points at
            self.target(target),
            pad(self.source(source), (0, 0, 0, 1)),
            self.edge,
            self.weight,
            self.bias,
        )
        if self.kind == "full":
            summed = _FullSum.apply(*arguments, neighbours)  # type: ignore[no-untyped-call]
        else:
            summed = _diagonal_sum(*arguments, neighbours)
        summed = summed[0].transpose(0, 1) if shared else summed[:, :, 0]
        return summed / neighbour_count(neighbours, present)[..., None]


def neighbour_count(
    neighbours: Neighbours, present: Bool[Tensor, "frame source"] | None
) -> Float[Tensor, "frame_or_1 target"]:
    """How many neighbours have a value; 1 where none has, so that an empty sum stays zero."""
    if present is None:
        return neighbours.count.clamp(min=1)[None]
    counted = neighbour_sum(present.to(neighbours.count.dtype), neighbours)
    return counted.clamp(min=1)


def neighbour_sum(
    values: Float[Tensor, "frame source"], neighbours: Neighbours
) -> Float[Tensor, "frame target"]:
    """The plain sum over each target's neighbours."""
    padded = pad(values, (0, 1))
    result = values.new_zeros(len(values), len(neighbours.count))
    for block in neighbours.blocks:
        gathered = padded.index_select(1, block.index.flatten())
        result[:, block.rows] = gathered.view(len(values), *block.index.shape).sum(-1)
    return result


def _pieces(block: Block, kernels: int, width: int) -> list[tuple[Block, slice]]:
    """Cut a block's rows, and if need be its kernels, so that temporaries stay small."""
    rows = max(1, min(len(block.rows), WORKSPACE // max(1, width)))
    frames = max(1, min(kernels, WORKSPACE // max(1, width * rows)))
    return [
        (
            Block(
                block.rows[r : r + rows], block.index[r : r + rows], block.features[r : r + rows]
            ),
            slice(k, min(k + frames, kernels)),
        )
        for r in range(0, len(block.rows), rows)
        for k in range(0, kernels, frames)
    ]


class _FullSum(torch.autograd.Function):
    """sum_j reshape(W2 h_ij + b2) v_j, keeping nothing but its arguments for the way back."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        values, target, source, edge, weight, bias, neighbours = arguments
        ctx.save_for_backward(values, target, source, edge, weight, bias)
        ctx.neighbours = neighbours
        kernels, _, group, latent = values.shape
        result = values.new_zeros(kernels, target.shape[1], group, weight.shape[1])
        for block in neighbours.blocks:
            width = group * latent * (weight.shape[0] // latent + block.index.shape[1])
            for piece, part in _pieces(block, kernels, width):
                _, _, outer, plain = _outer(values[part], target[part], source[part], edge, piece)
                summed = (
                    outer.reshape(-1, weight.shape[0]) @ weight + plain.reshape(-1, latent) @ bias
                )
                result[part, piece.rows] = summed.view(-1, len(piece.rows), group, weight.shape[1])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        values, target, source, edge, weight, bias = ctx.saved_tensors
        gradient = upstream[0].contiguous()
        kernels, _, group, latent = values.shape
        hidden = target.shape[-1]
        d_values, d_target, d_source = map(torch.zeros_like, (values, target, source))
        d_edge, d_weight, d_bias = map(torch.zeros_like, (edge, weight, bias))
        for block in ctx.neighbours.blocks:
            width = group * latent * (hidden + block.index.shape[1])
            for piece, part in _pieces(block, kernels, width):
                gathered, before, outer, plain = _outer(
                    values[part], target[part], source[part], edge, piece
                )
                count, degree = gathered.shape[0] // len(piece.rows), piece.index.shape[1]
                d_out = gradient[part][:, piece.rows].reshape(-1, weight.shape[1])
                d_weight += outer.reshape(-1, weight.shape[0]).T @ d_out
                d_bias += plain.reshape(-1, latent).T @ d_out
                d_outer = (d_out @ weight.T).view(-1, group * latent, hidden)
                d_plain = (d_out @ bias.T).view(-1, 1, group * latent)
                d_hidden = gathered @ d_outer  # (kernel row) degree hidden
                d_gathered = torch.baddbmm(d_plain, gelu(before), d_outer.transpose(1, 2))
                d_before = torch.ops.aten.gelu_backward(d_hidden, before)
                flat = piece.index.flatten()
                d_values[part].view(count, -1, group * latent).index_add_(
                    1, flat, d_gathered.view(count, -1, group * latent)
                )
                d_before = d_before.view(count, len(piece.rows), degree, hidden)
                d_source[part].index_add_(1, flat, d_before.view(count, -1, hidden))
                d_target[part].index_add_(1, piece.rows, d_before.sum(2))
                if len(edge):
                    d_edge += piece.features.flatten(0, 1).T @ d_before.sum(0).flatten(0, 1)
        return d_values, d_target, d_source, d_edge, d_weight, d_bias, None


def _outer(
    values: Float[Tensor, "kernel source group latent"],
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    block: Block,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A block's gathered values, kappa's hidden layer before activation, sum h (x) v, sum v."""
    kernels, _, group, latent = values.shape
    rows, degree = block.index.shape
    gathered = values.index_select(1, block.index.flatten())
    gathered = gathered.view(kernels * rows, degree, group * latent)
    before = _before(target, source, edge, block).view(kernels * rows, degree, -1)
    outer = gathered.transpose(1, 2) @ gelu(before)  # (kernel row) (group latent) hidden
    return gathered, before, outer, gathered.sum(1)


def _before(
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    block: Block,
) -> Float[Tensor, "kernel row degree hidden"]:
    """P_i + Q_j + R_ij of a block's edges; a kernel without edge features does not look at them."""
    before = source.index_select(1, block.index.flatten()).unflatten(1, block.index.shape)
    before = before + target.index_select(1, block.rows)[:, :, None]
    return before + block.features @ edge if len(edge) else before


def _diagonal_sum(
    values: Float[Tensor, "kernel source group latent"],
    target: Float[Tensor, "kernel target hidden"],
    source: Float[Tensor, "kernel source hidden"],
    edge: Float[Tensor, "feature hidden"],
    weight: Float[Tensor, "hidden latent"],
    bias: Float[Tensor, " latent"],
    neighbours: Neighbours,
) -> Float[Tensor, "kernel target group latent"]:
    """sum_j (W2 h_ij + b2) * v_j, block by block, recomputed on the way back."""

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
