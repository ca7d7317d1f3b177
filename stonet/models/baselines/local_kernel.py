"""A point's surroundings as CLCRN sees them, and sums over them with weights that are learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from scipy.sparse import csr_array
from torch import Tensor

from stonet.data.geometry import Points
from stonet.graph.neighbours import same_place
from stonet.models.baselines.graph_filters import Operator, nearest
from stonet.system.devices import in_float32

TURN = 2**40  # directions are told apart to so small a part of a full turn


@dataclass(frozen=True)
class Frame:
    """Where the training points lie and how far their surroundings reach: the units of lengths."""

    origin: Float64[np.ndarray, " 2"]
    extent: Float64[np.ndarray, " 2"]
    reach: float

    @staticmethod
    def of(nodes: Points, count: int) -> Frame:
        if nodes.kind == "sphere":  # the cut of longitudes lies opposite the points' middle
            x, y, _ = nodes.embedded.mean(0)
            middle = np.rad2deg(np.arctan2(y, x)) if np.hypot(x, y) > 1e-6 else 0.0
        else:
            middle = 0.0
        whole = Frame(np.array([0.0, middle]), np.ones(2), 1.0)
        place = whole.position(nodes)
        index = nearest(nodes, count)
        distance = nodes.geometry.distance(nodes.embedded[:, None], nodes.embedded[index])
        origin = place.mean(0) + whole.origin
        extent = np.maximum(place.std(0), 1e-9)
        return Frame(origin, extent, max(float(distance.max(1).mean()), 1e-9))

    def position(self, points: Points) -> Float64[np.ndarray, "node 2"]:
        """The coordinates, centred and scaled."""
        away = points.coordinates - self.origin
        if points.kind == "sphere":
            away[:, 1] = (away[:, 1] + 180.0) % 360.0 - 180.0
        return away / self.extent


@dataclass(frozen=True)
class Surroundings:
    """Each point's nearest ones, itself among them, and how they lie around it."""

    near: Int[Tensor, "node near"]
    position: Float[Tensor, "node 2"]
    offset: Float[Tensor, "node near 2"]  # local coordinates, in reaches
    distance: Float[Tensor, "node near"]  # in reaches
    share: Float[Tensor, "node near"]  # of the full turn, psi; 1 for the point itself
    pattern: Operator  # zeros where the weights will be
    turned: Int[Tensor, " edge"]  # positions of the transposed matrix's weights among them

    @staticmethod
    def of(
        points: Points, count: int, frame: Frame, device: torch.device, dtype: torch.dtype
    ) -> Surroundings:
        near = np.sort(nearest(points, count), axis=1)
        x = np.broadcast_to(points.embedded[:, None], (*near.shape, points.embedded.shape[1]))
        y = points.embedded[near]
        distance = points.geometry.distance(x, y)
        offset = horizon(x, y, distance) if points.kind == "sphere" else y - x
        share = shares(offset, distance)
        number = np.arange(near.size, dtype=np.float64)
        start = np.arange(0, near.size + 1, near.shape[1])
        matrix = csr_array((number, near.ravel(), start), shape=(len(points), len(points)))
        turned = csr_array(matrix.T)
        turned.sort_indices()
        order = torch.from_numpy(turned.data.astype(np.int64)).to(device)
        zero = csr_array((np.zeros(near.size), near.ravel(), start), shape=matrix.shape)
        lengths = np.concatenate([offset, distance[..., None]], axis=-1) / frame.reach
        way, place, part = (
            torch.from_numpy(a).to(device, dtype) for a in (lengths, frame.position(points), share)
        )
        return Surroundings(
            near=torch.from_numpy(near).to(device),
            position=place,
            offset=way[..., :2],
            distance=way[..., 2],
            share=part,
            pattern=Operator.of(zero, device, dtype),
            turned=order,
        )


def horizon(
    x: Float64[np.ndarray, "node near 3"],
    y: Float64[np.ndarray, "node near 3"],
    distance: Float64[np.ndarray, "node near"],
) -> Float64[np.ndarray, "node near 2"]:
    """The way from x to y in the tangent space of the cylinder: along the parallel, and upwards.

    Its length is the distance on the sphere. Straight across a pole it points to the pole.
    """
    ring = np.hypot(x[..., 0], x[..., 1])
    safe = np.where(ring > 0, ring, 1.0)
    along = np.where(ring > 0, (x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]) / safe, y[..., 1])
    up = y[..., 2] - x[..., 2]
    across = np.hypot(along, up) < 1e-12
    up = np.where(across, np.where(x[..., 2] < 0, -1.0, 1.0), up)
    scale = distance / np.hypot(along, up)
    return np.stack([along * scale, up * scale], axis=-1)


def shares(
    offset: Float64[np.ndarray, "node near 2"], distance: Float64[np.ndarray, "node near"]
) -> Float64[np.ndarray, "node near"]:
    r"""How much of the full turn around its centre a neighbour stands for.

        psi = (gap to the next direction + gap to the previous one) / 4 pi

    shared by all neighbours in one direction; together 1. A neighbour in the same place, delta,
    stands for no direction and has 1 instead.
    """
    here = same_place(distance) > 0
    angle = np.arctan2(offset[..., 1], offset[..., 0]) / (2 * np.pi)
    part = np.rint(angle * TURN).astype(np.int64) % TURN
    row = np.broadcast_to(np.arange(len(part))[:, None], part.shape)
    ways, which, alike = np.unique(
        (row * TURN + part)[~here], return_inverse=True, return_counts=True
    )
    owner = ways // TURN
    first, last = (np.searchsorted(owner, owner, side) for side in ("left", "right"))
    number = np.arange(len(ways))
    following = np.where(number + 1 < last, number + 1, first)
    gap = (ways[following] - ways).astype(np.float64) / TURN  # rows of one way: a whole turn
    gap = np.where(following <= number, gap + 1.0, gap)
    before = np.where(number > first, number - 1, last - 1)
    result = np.ones(distance.shape)
    result[~here] = ((gap + gap[before]) / 2 / alike)[which]
    return result


@dataclass(frozen=True)
class WeightedSum:
    """x -> sum_j K_ij x_j over the surroundings, along the first axis."""

    surroundings: Surroundings
    weight: Float[Tensor, "node near"]

    def __call__(self, x: Float[Tensor, "node ..."]) -> Float[Tensor, "node ..."]:
        flat, weight = x.reshape(len(x), -1), self.weight.flatten()
        flat = _Sum.apply(flat, weight, self.surroundings)  # type: ignore[no-untyped-call]
        return flat.view(x.shape)


class _Sum(torch.autograd.Function):
    """K x forward; backward K' g for x, and g_i . x_j for K_ij, at the neighbours only."""

    @staticmethod
    @in_float32
    def forward(ctx: Any, x: Tensor, weight: Tensor, surroundings: Surroundings) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.surroundings = surroundings
        return _filled(surroundings.pattern.matrix, weight) @ x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        pattern, turned = ctx.surroundings.pattern, ctx.surroundings.turned
        gradient = gradient.contiguous()
        to_x = _filled(pattern.transposed, weight[turned]) @ gradient
        to_weight = torch.sparse.sampled_addmm(pattern.matrix, gradient, x.T, beta=0.0)
        return to_x, to_weight.values(), None


def _filled(pattern: Tensor, weight: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        pattern.crow_indices(), pattern.col_indices(), weight, size=pattern.shape
    )
