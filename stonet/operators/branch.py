r"""The branch of the decoder: the encoded past near a query, aggregated for a future time.

    AGG(x, t) = 1/|N(x)| sum_{x_j in N(x), t_s} xi(x - x_j, t - t_s) v_enc_{t_s}(x_j) + theta

xi is a `rank` x d matrix given by a network of offset and lag, in one of two forms. Joint: one
hidden layer over both. Separable: xi = diag(h(x - x_j)) u(t - t_s); then the sum over time is one
matrix product per node, and the sum over space involves only `rank` numbers per edge. The mean is
over neighbours, the sum over past times; missing values are left out of both.
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

from stonet.config import PaperConfig
from stonet.graph.neighbours import Block, Neighbours
from stonet.operators.encoder import mlp
from stonet.operators.graph_kernel import WORKSPACE_FLOATS, Scratch, neighbour_sum, split_block
from stonet.operators.spacetime_kernel import MAX_CHUNK_LAGS, JointSum, order_lags
from stonet.system.devices import in_float32, to_device


@dataclass(frozen=True)
class Nearest:
    """The nodes next to each query, nearest first, with weights that add up to 1.

    Args:
        index: positions of the nodes.
        weight: of each node.
        own: the node at each query; None: some query is no node.
    """

    index: Int[Tensor, "query near"]
    weight: Float[Tensor, "query near"]
    own: Int[Tensor, " query"] | None

    def to(self, device: torch.device, dtype: torch.dtype) -> Nearest:
        """The same on a device, with weights of this type.

        Args:
            device: a processor or a GPU.
            dtype: of the weights.
        """
        own = None if self.own is None else self.own.to(device)
        return Nearest(self.index.to(device), self.weight.to(device, dtype), own)


@dataclass(frozen=True)
class DecoderGraph:
    """Query points and their neighbouring nodes.

    Args:
        position: embedded coordinates.
        neighbours: nodes around each query.
        own: the node at the query's position; number of nodes if none.
        among_nodes: the nodes as queries, for the ODE decoder.
        nearest: for queries without a past, where it is interpolated.
    """

    position: Float[Tensor, "query m"]
    neighbours: Neighbours
    own: Int[Tensor, " query"]
    among_nodes: DecoderGraph | None = None
    nearest: Nearest | None = None

    def to(self, device: torch.device, dtype: torch.dtype) -> DecoderGraph:
        """The graph on a device, in this precision.

        Args:
            device: a processor or a GPU.
            dtype: of positions, features and weights.
        """
        return DecoderGraph(
            self.position.to(device, dtype),
            self.neighbours.to(device, dtype),
            self.own.to(device),
            None if self.among_nodes is None else self.among_nodes.to(device, dtype),
            None if self.nearest is None else self.nearest.to(device, dtype),
        )


class TimeKernel(nn.Module):
    """u(dt): a matrix for every lag, shared by all samples with the same times.

    Args:
        latent: width of v.
        rank: width of the result.
        hidden: hidden units.
        horizon: the unit of the lags.
    """

    def __init__(self, latent: int, rank: int, hidden: int, horizon: int) -> None:
        super().__init__()
        self.horizon, self.shape = horizon, (latent, rank)
        self.network = mlp(3, hidden, latent * rank)

    def forward(
        self,
        latent: Float[Tensor, "batch past node latent"],
        lags: Float[Tensor, "rows future past"],
    ) -> Float[Tensor, "batch node future rank"]:
        """Sum over the past of u(t - t_s) v(x, t_s), as one product for all nodes and times.

        Args:
            latent: v at all inputs.
            lags: t - t_s, in steps.
        """
        batch, past, nodes, width = latent.shape
        lags = to_device(lags, latent.device)
        decay = torch.exp(-lags.clamp(min=0) / 2)  # resolves the most recent steps
        features = torch.stack([lags / self.horizon, decay, decay.square()], dim=-1)
        matrices = self.network(features) / math.sqrt(past * width)
        matrices = matrices.unflatten(-1, self.shape)  # rows future past latent rank
        folded = matrices.permute(0, 2, 3, 1, 4).reshape(len(lags), past * width, -1)
        by_node = latent.permute(0, 2, 1, 3).reshape(batch, nodes, past * width)
        result = by_node @ (folded[0] if len(folded) == 1 else folded)
        return result.view(batch, nodes, lags.shape[1], self.shape[1])


class RevisedBranch(nn.Module):
    """AGG before its activation, at any query (the paper's revised branch net).

    Args:
        edge: features of an edge.
        rank: outputs.
        horizon: trained leads, the unit of the lags.
        config: sizes; `separable` chooses the form of xi.
    """

    workspace = WORKSPACE_FLOATS
    max_chunk_lags = MAX_CHUNK_LAGS

    def __init__(self, edge: int, rank: int, horizon: int, config: PaperConfig) -> None:
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
        graph: DecoderGraph,
    ) -> Float[Tensor, "batch future query rank"]:
        """The aggregate at every query and future time.

        Args:
            latent: the encoded past, v_enc.
            present: which of it has a value; None: all.
            lags: future time minus past time, in steps; one row for all samples or one each.
            graph: the queries and their neighbours.
        """
        if present is not None:
            latent = latent.masked_fill(~present[..., None], 0.0)
        summed = (
            self._separable(latent, lags, graph) if self.time else self._joint(latent, lags, graph)
        )
        return summed / _mean_count(graph.neighbours, present)[:, None, :, None] + self.threshold

    def _separable(
        self,
        latent: Float[Tensor, "batch past node latent"],
        lags: Float[Tensor, "rows future past"],
        graph: DecoderGraph,
    ) -> Float[Tensor, "batch future query rank"]:
        """The sum with xi = diag(h) u: over time first, then over neighbours."""
        assert self.time is not None
        messages = self.time(latent, lags)  # batch node future rank
        batch, nodes, future, rank = messages.shape
        stacked = pad(
            messages.transpose(0, 1).reshape(nodes, batch * future, rank), (0, 0, 0, 0, 0, 1)
        )
        weights = [self.space(block.features) for block in graph.neighbours.blocks]
        arguments = (stacked, graph.neighbours, self.workspace, *weights)
        summed = _WeightedSum.apply(*arguments)  # type: ignore[no-untyped-call]
        return summed.view(-1, batch, future, rank).permute(1, 2, 0, 3)

    def _joint(
        self,
        latent: Float[Tensor, "batch past node latent"],
        lags: Float[Tensor, "rows future past"],
        graph: DecoderGraph,
    ) -> Float[Tensor, "batch future query rank"]:
        """The sum with one network of offset and lag; samples with different times one by one."""
        values = pad(latent.permute(2, 1, 0, 3), (0, 0, 0, 0, 0, 0, 0, 1))  # node past batch latent
        parts = [values] if len(lags) == 1 else values.split(1, dim=2)
        sums = []
        for part, row in zip(parts, lags, strict=True):
            ordered = order_lags(row, self.max_chunk_lags)
            by_lag = self.lag(to_device(ordered.value, latent.device)[:, None] / self.horizon)
            arguments = (
                *(part.flatten(2), self.place.weight, self.place.bias, by_lag),
                *(self.weight, self.bias, ordered, graph.neighbours, self.workspace),
            )
            summed = JointSum.apply(*arguments)  # type: ignore[no-untyped-call]
            sums.append(summed.unflatten(2, (-1, self.rank)))
        return torch.cat(sums, dim=2).permute(2, 0, 1, 3)


class _WeightedSum(torch.autograd.Function):
    """sum_j h_ij * p_j for rank-wise weights h; the backward pass gathers p_j again."""

    @staticmethod
    @in_float32
    def forward(
        ctx: Any, values: Tensor, neighbours: Neighbours, workspace: int, *weights: Tensor
    ) -> Tensor:
        ctx.save_for_backward(values, *weights)
        ctx.neighbours, ctx.workspace = neighbours, workspace
        result = values.new_zeros(len(neighbours.count), *values.shape[1:])
        scratch = Scratch(values, workspace)
        for piece, rows, weight in _pieces(values, neighbours, weights, workspace):
            gathered = _gathered(values, piece, scratch)
            gathered *= weight[rows, :, None]
            result.index_copy_(0, piece.rows, gathered.sum(1))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        values, *weights = ctx.saved_tensors
        d_values = torch.zeros_like(values, memory_format=torch.contiguous_format)
        d_weights = [torch.empty_like(weight) for weight in weights]
        scratch = Scratch(values, ctx.workspace)
        pairs = list(zip(weights, d_weights, strict=True))
        for piece, rows, pair in _pieces(values, ctx.neighbours, pairs, ctx.workspace):
            weight, d_weight = pair
            gradient = upstream[0].index_select(0, piece.rows)[:, None]
            gathered = _gathered(values, piece, scratch)
            torch.sum(gathered.mul_(gradient), 2, out=d_weight[rows])
            spread = torch.mul(gradient, weight[rows, :, None], out=gathered)
            d_values.flatten(1).index_add_(
                0, piece.index.flatten(), spread.flatten(2).flatten(0, 1)
            )
        return d_values, None, None, *d_weights


def _gathered(values: Tensor, piece: Block, scratch: Scratch) -> Tensor:
    """The values of the neighbours of a piece."""
    gathered = scratch.gather("gathered", values.flatten(1), piece.index.flatten())
    return gathered.view(*piece.index.shape, *values.shape[1:])


def _pieces(
    values: Tensor, neighbours: Neighbours, weights: Sequence[Any], workspace: int
) -> Iterator[tuple[Block, slice, Any]]:
    """Pieces of every block that fit the workspace, their rows, and the weights of the block."""
    for block, weight in zip(neighbours.blocks, weights, strict=True):
        capacity = workspace // max(1, values[0].numel() * block.index.shape[1])
        for rows, piece in split_block(block, capacity):
            yield piece, rows, weight


def _mean_count(
    neighbours: Neighbours, present: Bool[Tensor, "batch past node"] | None
) -> Float[Tensor, "batch_or_1 query"]:
    """|N(x)|, where each neighbour counts by its share of past times with a value."""
    if present is None:
        return neighbours.count.clamp(min=1)[None]
    count = neighbour_sum(present.to(neighbours.count.dtype).mean(1), neighbours)
    return torch.where(count > 0, count, 1.0)
