r"""Covariance: how a field varies over its points, and what they say of a place between them.

Ordinary kriging with a Matern covariance: for the nearest nodes of x, C and c being their
covariances among each other and with x, weights whose sum is 1:

    w = C^-1 (c + mu 1),    C_ij = (1 + h/r) exp(-h/r) + nugget [i = j],    h = |x_i - x_j|
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

KRIGED = 16  # nearest nodes that are used
RANGES = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0, 16.0)  # in mean spacings
NUGGETS = (1e-6, 0.01, 0.03, 0.1, 0.3)  # share of the variance that no two points have in common
ASKED = 512  # nodes at most at which textures are judged
FEW_TIMES, FEW_ASKED = 24, 128  # the same where there are gaps


class Covariance(NamedTuple):
    """The mean distance to the nearest other point; the covariance's range, in such; its nugget."""

    spacing: float
    range: float = 2.0
    nugget: float = 0.01


def look_around(
    queries: Points, nodes: Points, spacing: float, index: Int64[np.ndarray, "query near"]
) -> tuple[Float64[Tensor, "query near 2"], Bool[Tensor, "query near"]]:
    """Where these nodes lie, seen from each query, in spacings; which are not the query itself."""
    x, y = queries.embedded[:, None], nodes.embedded[index]
    itself = same_place(queries.geometry.distance(x, y)) > 0
    offset = queries.geometry.offset(np.broadcast_to(x, y.shape), y) / spacing
    return torch.from_numpy(offset), torch.from_numpy(~itself)


def mean_spacing(nodes: Points) -> float:
    """The mean distance to the nearest other point: the scale of the fits."""
    if len(nodes) < 2:
        return 1.0
    distance = nearest_nodes(nodes, nodes, 2)[0][:, 1]  # the first is the point itself
    if not np.all(distance):  # some points coincide
        _, first = np.unique(nodes.embedded, axis=0, return_index=True)
        if len(first) > 1:
            distinct = nodes.take(first)
            distance = nearest_nodes(distinct, distinct, 2)[0][:, 1]
    return max(float(np.mean(distance)), 1e-9)


def krige(
    offset: Float64[Tensor, "query near 2"],
    usable: Bool[Tensor, "rows query near"],
    range: float,
    nugget: float,
) -> Float64[Tensor, "rows query near"]:
    """The weights of the nearest usable nodes; zero for others, and where none is usable."""
    usable, _ = torch.broadcast_tensors(usable, offset[..., 0])
    seat = torch.argsort((~usable).byte(), dim=-1, stable=True)[..., :KRIGED]
    there = usable.gather(-1, seat).to(offset.dtype)
    place = offset.expand(*usable.shape, 2).gather(-2, seat[..., None].expand(*seat.shape, 2))
    with_query = _matern(place.norm(dim=-1) / range) * there
    among = _matern((place[..., :, None, :] - place[..., None, :, :]).norm(dim=-1) / range)
    among = among + nugget * torch.eye(seat.shape[-1], dtype=offset.dtype, device=offset.device)
    among = among * there[..., :, None] * there[..., None, :] + torch.diag_embed(1 - there)
    root = torch.linalg.cholesky_ex(among).L  # plain `cholesky` would ask a GPU whether it went
    right = torch.stack([with_query, there], dim=-1)
    simple, even = torch.cholesky_solve(right, root).unbind(-1)
    rest = (1 - simple.sum(-1, keepdim=True)) / even.sum(-1, keepdim=True).clamp(min=1e-9)
    weight = (simple + rest * even) * there
    return offset.new_zeros(usable.shape).scatter(-1, seat, weight)


def fit_covariance(
    values: Float64[Tensor, "time node channel"],
    known: Bool[Tensor, "time node channel"] | None,
    nodes: Points,
) -> Covariance:
    """The one that tells each node best from those around it.

    With gaps every time and channel has weights of its own: then fewer times and nodes are looked
    at.
    """
    found = Covariance(mean_spacing(nodes))
    if len(nodes) < 3 or not (known is None or known.any()):
        return found
    times, chosen = evenly(len(values), len(values)), evenly(len(nodes), ASKED)
    if known is not None:
        few = max(1, FEW_TIMES // values.shape[-1])
        times, chosen = evenly(len(values), few), evenly(len(nodes), FEW_ASKED)
        values, known = (part[times].transpose(1, 2).flatten(0, 1) for part in (values, known))
        values, times = values[..., None], evenly(len(values), len(values))
    asked = nodes.take(chosen)
    _, index = nearest_nodes(asked, nodes, KRIGED + 1)  # and itself
    offset, usable = look_around(asked, nodes, found.spacing, index)
    usable = usable[None] if known is None else usable & known[:, index]
    near, here = values[times][:, index], values[times][:, chosen]
    if known is not None:  # a value that is missing has no influence, whatever stands there
        near = near.where(usable[..., None], 0.0)
        here = here.where((known[:, chosen] & usable.any(-1))[..., None], torch.nan)

    if not here.isfinite().any():  # nobody knows what anybody else does
        return found

    def error(range: float, nugget: float) -> float:
        weight = krige(offset, usable, range, nugget).expand(len(times), -1, -1)
        guess = torch.einsum("tqn,tqnc->tqc", weight, near)
        return float((guess - here).square().nanmean())

    range, nugget = min(itertools.product(RANGES, NUGGETS), key=lambda pair: error(*pair))
    return Covariance(found.spacing, range, nugget)


def evenly(count: int, most: int) -> Int64[np.ndarray, " chosen"]:
    """At most so many positions, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _matern(h: Float64[Tensor, "..."]) -> Float64[Tensor, "..."]:
    return (1 + h) * torch.exp(-h)
