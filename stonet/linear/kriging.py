r"""Kriging: the spatial covariance of a field, and the interpolation weights that follow from it.

Ordinary kriging weights sum to 1 and minimise the variance of the error. With C the covariances
among the nearest nodes of x, and c their covariances with x,

    w = C^-1 (c + mu 1),    mu = (1 - 1' C^-1 c) / (1' C^-1 1)

The linear forecast uses a Matern covariance of smoothness 3/2:

    C_ij = (1 + h/r) exp(-h/r) + nugget [i = j],    h = |x_i - x_j|

References:
    N. Cressie, Statistics for Spatial Data, 1993, section 3.2.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes, same_place

KRIGING_NODES = 16  # nearest nodes with a weight; more change the weights little
RANGES = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0, 16.0)  # candidates, in mean spacings
NUGGETS = (1e-6, 0.01, 0.03, 0.1, 0.3)  # candidates, as shares of the variance
FIT_NODES = 512  # nodes predicted from their neighbours to choose range and nugget
FIT_NODES_WITH_GAPS = 128  # the same with gaps, where every time has different weights
FIT_TIMES_WITH_GAPS = 24  # times and channels used to choose range and nugget with gaps


class Covariance(NamedTuple):
    """A Matern covariance of unit variance.

    Args:
        spacing: mean distance to the nearest other node, the unit of length.
        range: r, in spacings.
        nugget: variance that no two nodes share.
    """

    spacing: float
    range: float = 2.0
    nugget: float = 0.01


def neighbour_offsets(
    queries: Points, nodes: Points, spacing: float, index: Int64[np.ndarray, "query near"]
) -> tuple[Float64[Tensor, "query near 2"], Bool[Tensor, "query near"]]:
    """Positions of the given nodes relative to each query.

    Args:
        queries: points to interpolate to.
        nodes: points with values.
        spacing: the unit of the offsets.
        index: nodes of each query.

    Returns:
        The offsets in local coordinates, in spacings, and whether a node differs from the query.
    """
    x, y = queries.embedded[:, None], nodes.embedded[index]
    itself = same_place(queries.geometry.distance(x, y)) > 0
    offset = queries.geometry.offset(np.broadcast_to(x, y.shape), y) / spacing
    return torch.from_numpy(offset), torch.from_numpy(~itself)


def mean_spacing(nodes: Points) -> float:
    """The mean distance to the nearest other node; nodes that coincide count once.

    Args:
        nodes: at least one.
    """
    if len(nodes) < 2:
        return 1.0
    distance = nearest_nodes(nodes, nodes, 2)[0][:, 1]  # the first is the node itself
    if not np.all(distance):
        _, first = np.unique(nodes.embedded, axis=0, return_index=True)
        if len(first) > 1:
            distinct = nodes.take(first)
            distance = nearest_nodes(distinct, distinct, 2)[0][:, 1]
    return max(float(np.mean(distance)), 1e-9)


def kriging_weights(
    offset: Float64[Tensor, "query near 2"],
    usable: Bool[Tensor, "rows query near"],
    covariance: Covariance,
) -> Float64[Tensor, "rows query near"]:
    """Ordinary kriging weights of the nearest usable nodes, for a Matern covariance.

    Args:
        offset: positions of the nodes relative to each query, nearest first.
        usable: nodes that may have a weight, in every row.
        covariance: range and nugget.

    Returns:
        The weights; zero for all other nodes, and for queries without any usable node.
    """
    usable, _ = torch.broadcast_tensors(usable, offset[..., 0])
    chosen = torch.argsort((~usable).byte(), dim=-1, stable=True)[..., :KRIGING_NODES]
    present = usable.gather(-1, chosen).to(offset.dtype)
    place = offset.expand(*usable.shape, 2).gather(-2, chosen[..., None].expand(*chosen.shape, 2))
    with_query = _matern(place.norm(dim=-1) / covariance.range)
    among = (place[..., :, None, :] - place[..., None, :, :]).norm(dim=-1)
    among = _matern(among / covariance.range)
    one = torch.eye(chosen.shape[-1], dtype=offset.dtype, device=offset.device)
    weight = solve_kriging(among + covariance.nugget * one, with_query, present)
    return offset.new_zeros(usable.shape).scatter(-1, chosen, weight)


def solve_kriging(
    among: Float64[Tensor, "*query near near"],
    with_query: Float64[Tensor, "*query near"],
    present: Float64[Tensor, "*query near"],
) -> Float64[Tensor, "*query near"]:
    """The ordinary kriging weights w = C^-1 (c + mu 1).

    Args:
        among: C, of order one, positive definite.
        with_query: c.
        present: 1 for nodes that take part, 0 for others, whose weight is zero.
    """
    with_query = with_query * present
    among = among * present[..., :, None] * present[..., None, :] + torch.diag_embed(1 - present)
    root = torch.linalg.cholesky_ex(among).L  # `cholesky` checks for errors: a GPU sync
    right = torch.stack([with_query, present], dim=-1)
    simple, even = torch.cholesky_solve(right, root).unbind(-1)
    rest = (1 - simple.sum(-1, keepdim=True)) / even.sum(-1, keepdim=True).clamp(min=1e-9)
    return (simple + rest * even) * present


def fit_covariance(
    values: Float64[Tensor, "time node channel"],
    observed: Bool[Tensor, "time node channel"] | None,
    nodes: Points,
    max_nodes: int = FIT_NODES,
) -> Covariance:
    """The covariance that best predicts each node from its neighbours.

    With gaps, every time and channel has different weights, and fewer of them are used.

    Args:
        values: of the field.
        observed: which values exist; None: all.
        nodes: points of the field.
        max_nodes: nodes that are predicted, without gaps.

    Returns:
        The best range and nugget of `RANGES` and `NUGGETS`, by squared error; the defaults if
        there are fewer than three nodes, or none with an observed neighbour.
    """
    default = Covariance(mean_spacing(nodes))
    if len(nodes) < 3 or not (observed is None or observed.any()):
        return default
    chosen = evenly_spaced(len(nodes), max_nodes)
    if observed is not None:
        times = evenly_spaced(len(values), max(1, FIT_TIMES_WITH_GAPS // values.shape[-1]))
        chosen = evenly_spaced(len(nodes), FIT_NODES_WITH_GAPS)
        values, observed = (
            part[times].transpose(1, 2).flatten(0, 1) for part in (values, observed)
        )
        values = values[..., None]  # each channel is a time of its own
    predicted = nodes.take(chosen)
    _, index = nearest_nodes(predicted, nodes, KRIGING_NODES + 1)  # and the node itself
    offset, usable = neighbour_offsets(predicted, nodes, default.spacing, index)
    usable = usable[None] if observed is None else usable & observed[:, index]
    near, truth = values[:, index], values[:, chosen]
    if observed is not None:  # a missing value has no influence, whatever is stored
        near = near.where(usable[..., None], 0.0)
        truth = truth.where((observed[:, chosen] & usable.any(-1))[..., None], torch.nan)
    if not truth.isfinite().any():
        return default

    def error(covariance: Covariance) -> float:
        weight = kriging_weights(offset, usable, covariance).expand(len(values), -1, -1)
        estimate = torch.einsum("tqn,tqnc->tqc", weight, near)
        return float((estimate - truth).square().nanmean())

    candidates = itertools.product((default.spacing,), RANGES, NUGGETS)
    return min((Covariance(*candidate) for candidate in candidates), key=error)


def evenly_spaced(count: int, max_count: int) -> Int64[np.ndarray, " chosen"]:
    """At most `max_count` of the positions 0 .. count - 1, evenly spaced.

    Args:
        count: number of positions.
        max_count: number to keep.
    """
    return np.unique(np.linspace(0, count - 1, min(count, max_count)).round().astype(np.int64))


def _matern(h: Float64[Tensor, "..."]) -> Float64[Tensor, "..."]:
    """(1 + h) exp(-h)."""
    return (1 + h) * torch.exp(-h)
