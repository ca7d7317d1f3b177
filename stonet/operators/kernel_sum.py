r"""The kernel sum: a graph kernel integral whose kernel is a sum of K products.

    y(x) = sum_k A_k  1/|N(x)| sum_{x_j in N(x)} h_k(x, x_j) v(x_j),
    kappa(x, x_j) = sum_k h_k(x, x_j) A_k

h is a network of the offset with K outputs, A_k are matrices. The sums over neighbours of all k
are taken first, in blocks of targets, so that no matrix per edge is stored; the backward pass
gathers the neighbours again. Values are (node, batch, width): one row of memory for each node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from stonet.graph.neighbours import Block, Neighbours
from stonet.operators.graph_kernel import WORKSPACE_FLOATS, Scratch, split_block
from stonet.system.devices import in_float32


class KernelSum(nn.Module):
    """sum_k A_k mean_j h_k(x, x_j) v_j.

    Args:
        edge: features of an edge.
        inputs: width of the values.
        outputs: width of the result.
        kernels: K, the number of products.
        hidden: hidden units of h.
        gain: standard deviation of the result at the start, if that of the values is 1.
    """

    workspace = WORKSPACE_FLOATS

    def __init__(
        self, edge: int, inputs: int, outputs: int, kernels: int, hidden: int, gain: float
    ) -> None:
        super().__init__()
        self.kernels = kernels
        self.weights = nn.Sequential(
            nn.Linear(edge, hidden), nn.GELU(), nn.Linear(hidden, kernels)
        )  # h
        self.map = nn.Linear(kernels * inputs, outputs, bias=False)  # A
        nn.init.normal_(self.map.weight, std=gain / math.sqrt(kernels * inputs))

    def forward(
        self,
        values: Float[Tensor, "source batch input"],
        neighbours: Neighbours,
        present: Bool[Tensor, "source batch"] | None = None,
    ) -> Float[Tensor, "target batch output"]:
        """The kernel sum at every target.

        Args:
            values: v at the sources.
            neighbours: the edges.
            present: which sources have a value; None: all. Others do not count in the mean.
        """
        if present is not None:
            values = values.masked_fill(~present[..., None], 0.0)
        weights = [self.weights(block.features) for block in neighbours.blocks]
        sizes = self.kernels, self.workspace
        arguments = (pad(values, (0, 0, 0, 0, 0, 1)), neighbours, *sizes, *weights)
        sums = _EdgeSums.apply(*arguments)  # type: ignore[no-untyped-call]
        count = present_neighbours(neighbours, present)
        return self.map((sums / count[..., None, None]).flatten(2))


def present_neighbours(
    neighbours: Neighbours, present: Bool[Tensor, "source batch"] | None
) -> Float[Tensor, "target batch_or_1"]:
    """Number of neighbours with a value; 1 where there is none, so that an empty mean is zero.

    Args:
        neighbours: of the targets.
        present: whether a source has a value; None: all have.
    """
    if present is None:
        return neighbours.count.clamp(min=1)[:, None]
    there = pad(present.to(neighbours.count.dtype), (0, 0, 0, 1))
    result = there.new_zeros(len(neighbours.count), there.shape[1])
    for block in neighbours.blocks:
        gathered = there.index_select(0, block.index.flatten())
        result[block.rows] = gathered.view(*block.index.shape, -1).sum(1)
    return result.clamp(min=1)


class _EdgeSums(torch.autograd.Function):
    """sum_j h_k(x, x_j) v_j for all k: (target, batch, k, input)."""

    @staticmethod
    @in_float32
    def forward(
        ctx: Any,
        values: Tensor,
        neighbours: Neighbours,
        kernels: int,
        workspace: int,
        *weights: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(values, *weights)
        ctx.neighbours, ctx.workspace = neighbours, workspace
        _, batch, width = values.shape
        result = values.new_zeros(len(neighbours.count), batch, kernels, width)
        scratch = Scratch(values, workspace)
        for piece, rows, number in _pieces(values, neighbours, workspace):
            gathered = _gather(values, piece, scratch)
            sums = torch.bmm(weights[number][rows].transpose(1, 2), gathered)
            sums = sums.view(len(piece.rows), kernels, batch, width).transpose(1, 2)
            result.index_copy_(0, piece.rows, sums)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        values, *weights = ctx.saved_tensors
        d_values = torch.zeros_like(values, memory_format=torch.contiguous_format)
        d_weights = [torch.empty_like(weight) for weight in weights]
        scratch = Scratch(values, ctx.workspace)
        for piece, rows, number in _pieces(values, ctx.neighbours, ctx.workspace):
            gradient = upstream[0].index_select(0, piece.rows).transpose(1, 2).flatten(2)
            gathered = _gather(values, piece, scratch)
            torch.bmm(gathered, gradient.transpose(1, 2), out=d_weights[number][rows])
            spread = torch.bmm(weights[number][rows], gradient, out=gathered)
            d_values.flatten(1).index_add_(0, piece.index.flatten(), spread.flatten(0, 1))
        return d_values, None, None, None, *d_weights


def _gather(values: Tensor, piece: Block, scratch: Scratch) -> Float[Tensor, "row degree wide"]:
    """The values of the neighbours of a piece."""
    gathered = scratch.gather("gathered", values.flatten(1), piece.index.flatten())
    return gathered.view(*piece.index.shape, -1)


def _pieces(
    values: Tensor, neighbours: Neighbours, workspace: int
) -> Iterator[tuple[Block, slice, int]]:
    """Parts of every block that fit the workspace, their rows in it, and its number."""
    for number, block in enumerate(neighbours.blocks):
        capacity = workspace // max(1, values[0].numel() * block.index.shape[1])
        for rows, piece in split_block(block, capacity):
            yield piece, rows, number
