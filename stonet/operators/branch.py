r"""The branch of the decoder: what the past, near a query point, says of a future time.

    AGG(x, t) = 1/|N(x)| sum_{x_j in N(x), t_s} xi(x - x_j, t - t_s) v_enc_{t_s}(x_j) + theta

xi is a `rank` x d matrix from a network of the offset and the lag, in one of two forms: joint, one
hidden layer over both, or separable, xi = diag(h(x - x_j)) u(t - t_s), where the sum over time is
one matrix product per node and the sum over space touches `rank` numbers per edge. The mean is over
neighbours, the sum over times; what is missing leaves both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from stonet.config import ModelConfig
from stonet.graph.neighbours import Block, Neighbours
from stonet.operators.encoder import mlp
from stonet.operators.graph_kernel import Scratch, neighbour_sum
from stonet.operators.spacetime_kernel import JointSum, order_lags
from stonet.system.devices import in_float32, to_device

WORKSPACE = 2**20  # floats of the largest temporary


@dataclass(frozen=True)
class Links:
    """Query points and the nodes around them."""

    position: Float[Tensor, "query m"]
    neighbours: Neighbours
    own: Int[Tensor, " query"]  # the node that is the query point; number of nodes where none is
    among_nodes: Links | None = None  # the same for the nodes themselves, where a decoder needs it

    def to(self, device: torch.device, dtype: torch.dtype) -> Links:
        return Links(
            self.position.to(device, dtype),
            self.neighbours.to(device, dtype),
            self.own.to(device),
            None if self.among_nodes is None else self.among_nodes.to(device, dtype),
        )


class TimeKernel(nn.Module):
    """u(dt): a matrix for every lag; per sample only where samples have times of their own."""

    def __init__(self, latent: int, rank: int, hidden: int, horizon: int) -> None:
        super().__init__()
        self.horizon, self.shape = horizon, (latent, rank)
        self.network = mlp(3, hidden, latent * rank)

    def forward(
        self,
        latent: Float[Tensor, "batch past node latent"],
        lags: Float[Tensor, "rows future past"],
    ) -> Float[Tensor, "batch node future rank"]:
        """Sum over the past of u(t - t_s) v(x, t_s), by one product for all nodes and times."""
        batch, past, nodes, width = latent.shape
        lags = to_device(lags, latent.device)
        scaled = lags / self.horizon
        near = torch.exp(-lags.clamp(min=0) / 2)  # resolves the most recent steps
        seen = torch.stack([scaled, near, near.square()], dim=-1)
        matrices = self.network(seen) / math.sqrt(past * width)
        matrices = matrices.unflatten(-1, self.shape)  # rows future past latent rank
        folded = matrices.permute(0, 2, 3, 1, 4).reshape(len(lags), past * width, -1)
        by_node = latent.permute(0, 2, 1, 3).reshape(batch, nodes, past * width)
        result = by_node @ (folded[0] if len(folded) == 1 else folded)
        return result.view(batch, nodes, lags.shape[1], self.shape[1])


class RevisedBranch(nn.Module):
    """AGG before its activation."""

    def __init__(self, edge: int, rank: int, horizon: int, config: ModelConfig) -> None:
        super().__init__()
        size = (config.latent, rank, config.hidden)
        self.rank, self.horizon = rank, horizon
        self.threshold = nn.Parameter(torch.zeros(rank))  # theta
        if config.separable:
            self.time: TimeKernel | None = TimeKernel(*size, horizon)
            self.space = mlp(edge, config.hidden, rank)
        else:
            self.time = None
            self.place = nn.Linear(edge, config.hidden)
            self.lag = nn.Linear(1, config.hidden, bias=False)
            self.weight = nn.Parameter(
                torch.randn(config.latent * config.hidden, rank)
                / math.sqrt(config.latent * config.hidden)
            )
            self.bias = nn.Parameter(torch.zeros(config.latent, rank))

    def forward(
        self,
        latent: Float[Tensor, "batch past node latent"],
        present: Bool[Tensor, "batch past node"] | None,
        lags: Float[Tensor, "rows future past"],
        links: Links,
    ) -> Float[Tensor, "batch future query rank"]:
        if present is not None:
            latent = latent.masked_fill(~present[..., None], 0.0)
        summed = (
            self._separable(latent, lags, links) if self.time else self._joint(latent, lags, links)
        )
        return summed / _mean_count(links.neighbours, present)[:, None, :, None] + self.threshold

    def _separable(
        self,
        latent: Float[Tensor, "batch past node latent"],
        lags: Float[Tensor, "rows future past"],
        links: Links,
    ) -> Float[Tensor, "batch future query rank"]:
        assert self.time is not None
        messages = self.time(latent, lags)  # batch node future rank
        batch, nodes, future, rank = messages.shape
        stacked = pad(
            messages.transpose(0, 1).reshape(nodes, batch * future, rank), (0, 0, 0, 0, 0, 1)
        )
        weights = [self.space(block.features) for block in links.neighbours.blocks]
        arguments = (stacked, links.neighbours, *weights)
        summed = _WeightedSum.apply(*arguments)  # type: ignore[no-untyped-call]
        return summed.view(-1, batch, future, rank).permute(1, 2, 0, 3)

    def _joint(
        self,
        latent: Float[Tensor, "batch past node latent"],
        lags: Float[Tensor, "rows future past"],
        links: Links,
    ) -> Float[Tensor, "batch future query rank"]:
        values = pad(latent.permute(2, 1, 0, 3), (0, 0, 0, 0, 0, 0, 0, 1))  # node past batch latent
        parts = [values] if len(lags) == 1 else values.split(1, dim=2)
        sums = []
        for part, row in zip(parts, lags, strict=True):  # samples with times of their own go alone
            ordered = order_lags(row)
            by_lag = self.lag(to_device(ordered.value, latent.device)[:, None] / self.horizon)
            arguments = (
                *(part.flatten(2), self.place.weight, self.place.bias, by_lag),
                *(self.weight, self.bias, ordered, links.neighbours),
            )
            summed = JointSum.apply(*arguments)  # type: ignore[no-untyped-call]
            sums.append(summed.unflatten(2, (-1, self.rank)))
        return torch.cat(sums, dim=2).permute(2, 0, 1, 3)


class FixedBranch(nn.Module):
    """The paper's first branch: one weight for each node and input; it cannot take other points."""

    def __init__(self, nodes: int, past: int, rank: int, latent: int) -> None:
        super().__init__()
        self.map = nn.Linear(past * nodes * latent, rank)

    def forward(
        self,
        latent: Float[Tensor, "batch past node latent"],
        present: Bool[Tensor, "batch past node"] | None,
        lags: Float[Tensor, "rows future past"],
        links: Links,
    ) -> Float[Tensor, "batch 1 1 rank"]:
        if present is not None:
            latent = latent.masked_fill(~present[..., None], 0.0)
        return self.map(latent.flatten(1))[:, None, None]


class _WeightedSum(torch.autograd.Function):
    """sum_j h_ij * p_j for rank-wise weights h; gathers again on the way back, keeps nothing."""

    @staticmethod
    @in_float32
    def forward(ctx: Any, values: Tensor, neighbours: Neighbours, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(values, *weights)
        ctx.neighbours = neighbours
        result = values.new_zeros(len(neighbours.count), *values.shape[1:])
        scratch = Scratch(values)
        for piece, cut, weight in _pieces(values, neighbours, weights):
            gathered = _gathered(values, piece, scratch)
            gathered *= weight[cut, :, None]
            result.index_copy_(0, piece.rows, gathered.sum(1))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        values, *weights = ctx.saved_tensors
        d_values = torch.zeros_like(values, memory_format=torch.contiguous_format)
        d_weights = [torch.empty_like(weight) for weight in weights]
        scratch, pairs = Scratch(values), zip(weights, d_weights, strict=True)
        for piece, cut, (weight, d_weight) in _pieces(values, ctx.neighbours, list(pairs)):
            gradient = upstream[0].index_select(0, piece.rows)[:, None]
            gathered = _gathered(values, piece, scratch)
            torch.sum(gathered.mul_(gradient), 2, out=d_weight[cut])
            spread = torch.mul(gradient, weight[cut, :, None], out=gathered)
            d_values.flatten(1).index_add_(
                0, piece.index.flatten(), spread.flatten(2).flatten(0, 1)
            )
        return d_values, None, *d_weights


def _gathered(values: Tensor, piece: Block, scratch: Scratch) -> Tensor:
    gathered = scratch.gather("gathered", values.flatten(1), piece.index.flatten())
    return gathered.view(*piece.index.shape, *values.shape[1:])


def _pieces(
    values: Tensor, neighbours: Neighbours, weights: Sequence[Any]
) -> Iterator[tuple[Block, slice, Any]]:
    """Pieces of every block small enough for the workspace: which rows, and the block's weights."""
    for block, weight in zip(neighbours.blocks, weights, strict=True):
        rows = max(1, WORKSPACE // max(1, values[0].numel() * block.index.shape[1]))
        for r in range(0, len(block.rows), rows):
            cut = slice(r, r + rows)
            yield Block(block.rows[cut], block.index[cut], block.features[cut]), cut, weight


def _mean_count(
    neighbours: Neighbours, present: Bool[Tensor, "batch past node"] | None
) -> Float[Tensor, "batch_or_1 query"]:
    """|N(x)|, each neighbour counted by the share of its inputs that are there."""
    if present is None:
        return neighbours.count.clamp(min=1)[None]
    count = neighbour_sum(present.to(neighbours.count.dtype).mean(1), neighbours)
    return torch.where(count > 0, count, 1.0)
