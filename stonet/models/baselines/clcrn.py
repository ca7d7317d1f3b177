r"""CLCRN: "Conditional Local Convolution for Spatio-Temporal Meteorological Forecasting".

Gated recurrent units whose matrices act on a convolution with a kernel that is learned as a
function of place and direction,

    (K * h)_i = sum_{j near i} chi_ij exp(-|alpha_ij| d_ij) (psi_ij + delta_ij) h_j
    chi_ij = ReLU(MLP(p_i, v_ij)),    alpha_ij = (Q p_i) . (R p_j)
    z, r = sig(W K*[x, h] + b),  c = tanh(V K*[x, r h] + d),  h' = z h + (1 - z) c

p is the position of a point, v_ij the offset from i to j in the local tangent space, d_ij its
length and psi_ij the share of the full circle that j represents.

References:
    H. Lin, Z. Gao, Y. Xu, L. Wu, L. Li, S. Z. Li, AAAI 2022.

Deviations:
    - The kernel is that of the paper. In the authors' code distance and orientation are swapped,
      and the last direction does not border the first.
    - On a plane, which the paper does not treat, v = (dx, dy).
    - The unit of length is the mean radius of the neighbourhoods of the training points, so that
      regions of any size are alike.
    - Layer norm instead of batch norm over pairs, and no saturation of the inputs of the MLP.
    - No node embeddings, so that points can be added; the authors' code never trains them.
      baseline.embedding=n gives trained embeddings of size n.
    - Those of `recurrent.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from scipy.sparse import csr_array
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.graph.neighbours import same_place
from stonet.models.baselines.base import Inputs, dense
from stonet.models.baselines.graph_filters import Operator, nearest
from stonet.models.baselines.recurrent import GraphGRU, Recurrent
from stonet.models.forecaster import Supervision
from stonet.system.devices import in_float32

LIFTED_FEATURES = 8  # of the lifted inputs, and of positions in alpha
DIRECTIONS = 2**40  # resolution of the full circle, within which directions count as equal


@dataclass(frozen=True)
class LengthScale:
    """The origin and units of coordinates, from the training points.

    Args:
        origin: the centre of the coordinates.
        extent: standard deviations of the coordinates.
        radius: mean radius of a neighbourhood.
    """

    origin: Float64[np.ndarray, " 2"]
    extent: Float64[np.ndarray, " 2"]
    radius: float

    @staticmethod
    def of(nodes: Points, count: int) -> LengthScale:
        """The units for these nodes with `count` neighbours each.

        Args:
            nodes: the training points.
            count: neighbours of each.
        """
        if nodes.kind == "sphere":  # longitudes are cut opposite to the centre of the nodes
            x, y, _ = nodes.embedded.mean(0)
            middle = np.rad2deg(np.arctan2(y, x)) if np.hypot(x, y) > 1e-6 else 0.0
        else:
            middle = 0.0
        unit = LengthScale(np.array([0.0, middle]), np.ones(2), 1.0)
        place = unit.position(nodes)
        index = nearest(nodes, count)
        distance = nodes.geometry.distance(nodes.embedded[:, None], nodes.embedded[index])
        origin = place.mean(0) + unit.origin
        extent = np.maximum(place.std(0), 1e-9)
        return LengthScale(origin, extent, max(float(distance.max(1).mean()), 1e-9))

    def position(self, points: Points) -> Float64[np.ndarray, "node 2"]:
        """The coordinates, centred and scaled.

        Args:
            points: any points.
        """
        away = points.coordinates - self.origin
        if points.kind == "sphere":
            away[:, 1] = (away[:, 1] + 180.0) % 360.0 - 180.0
        return away / self.extent


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest points of each point, itself included, and their relative positions.

    Args:
        near: neighbours of each point.
        position: in units of `LengthScale`.
        offset: local coordinates, in radii.
        distance: in radii.
        share: psi, of the full circle; 1 for the point itself.
        pattern: a sparse matrix with zeros where the kernel will be.
        transposed: positions of the entries of the transposed matrix.
    """

    near: Int[Tensor, "node near"]
    position: Float[Tensor, "node 2"]
    offset: Float[Tensor, "node near 2"]
    distance: Float[Tensor, "node near"]
    share: Float[Tensor, "node near"]
    pattern: Operator
    transposed: Int[Tensor, " edge"]

    @staticmethod
    def of(
        points: Points, count: int, scale: LengthScale, device: torch.device, dtype: torch.dtype
    ) -> Neighbourhood:
        """The neighbourhoods of `count` points each.

        Args:
            points: nodes of the graph.
            count: neighbours of each, itself included.
            scale: of the training points.
            device: a processor or a GPU.
            dtype: of positions and shares.
        """
        near = np.sort(nearest(points, count), axis=1)
        x = np.broadcast_to(points.embedded[:, None], (*near.shape, points.embedded.shape[1]))
        y = points.embedded[near]
        distance = points.geometry.distance(x, y)
        offset = cylinder_offset(x, y, distance) if points.kind == "sphere" else y - x
        share = circle_shares(offset, distance)
        number = np.arange(near.size, dtype=np.float64)
        start = np.arange(0, near.size + 1, near.shape[1])
        matrix = csr_array((number, near.ravel(), start), shape=(len(points), len(points)))
        turned = csr_array(matrix.T)
        turned.sort_indices()
        order = torch.from_numpy(turned.data.astype(np.int64)).to(device)
        zero = csr_array((np.zeros(near.size), near.ravel(), start), shape=matrix.shape)
        lengths = np.concatenate([offset, distance[..., None]], axis=-1) / scale.radius
        scaled, position, shares = (
            torch.from_numpy(a).to(device, dtype) for a in (lengths, scale.position(points), share)
        )
        return Neighbourhood(
            near=torch.from_numpy(near).to(device),
            position=position,
            offset=scaled[..., :2],
            distance=scaled[..., 2],
            share=shares,
            pattern=Operator.of(zero, device, dtype),
            transposed=order,
        )


def cylinder_offset(
    x: Float64[np.ndarray, "node near 3"],
    y: Float64[np.ndarray, "node near 3"],
    distance: Float64[np.ndarray, "node near"],
) -> Float64[np.ndarray, "node near 2"]:
    """The offset from x to y in the tangent space of the cylinder: along the parallel, and up.

    Its length is the distance on the sphere. Across a pole it points to the pole.

    Args:
        x: embedded centres.
        y: embedded neighbours.
        distance: between them.
    """
    ring = np.hypot(x[..., 0], x[..., 1])
    safe = np.where(ring > 0, ring, 1.0)
    along = np.where(ring > 0, (x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]) / safe, y[..., 1])
    up = y[..., 2] - x[..., 2]
    across = np.hypot(along, up) < 1e-12
    up = np.where(across, np.where(x[..., 2] < 0, -1.0, 1.0), up)
    scale = distance / np.hypot(along, up)
    return np.stack([along * scale, up * scale], axis=-1)


def circle_shares(
    offset: Float64[np.ndarray, "node near 2"], distance: Float64[np.ndarray, "node near"]
) -> Float64[np.ndarray, "node near"]:
    r"""The share of the full circle around its centre that each neighbour represents.

        psi = (angle to the next direction + angle to the previous one) / 4 pi

    divided among the neighbours in the same direction; the sum is 1. A neighbour at the centre
    itself, delta, has no direction and the value 1.

    Args:
        offset: of each neighbour from its centre.
        distance: of each neighbour from its centre.
    """
    here = same_place(distance) > 0
    angle = np.arctan2(offset[..., 1], offset[..., 0]) / (2 * np.pi)
    part = np.rint(angle * DIRECTIONS).astype(np.int64) % DIRECTIONS
    row = np.broadcast_to(np.arange(len(part))[:, None], part.shape)
    directions, which, multiplicity = np.unique(
        (row * DIRECTIONS + part)[~here], return_inverse=True, return_counts=True
    )
    owner = directions // DIRECTIONS
    first, last = (np.searchsorted(owner, owner, side) for side in ("left", "right"))
    number = np.arange(len(directions))
    following = np.where(number + 1 < last, number + 1, first)
    gap = (directions[following] - directions).astype(np.float64) / DIRECTIONS
    gap = np.where(following <= number, gap + 1.0, gap)  # a single direction has the full circle
    before = np.where(number > first, number - 1, last - 1)
    result = np.ones(distance.shape)
    result[~here] = ((gap + gap[before]) / 2 / multiplicity)[which]
    return result


@dataclass(frozen=True)
class LocalConvolution:
    """x -> sum_j K_ij x_j over the neighbourhoods, along the first axis.

    Args:
        neighbourhood: the neighbours.
        weight: K_ij.
    """

    neighbourhood: Neighbourhood
    weight: Float[Tensor, "node near"]

    def __call__(self, x: Float[Tensor, "node ..."]) -> Float[Tensor, "node ..."]:
        """K x."""
        flat, weight = x.reshape(len(x), -1), self.weight.flatten()
        flat = _LocalSum.apply(flat, weight, self.neighbourhood)  # type: ignore[no-untyped-call]
        return flat.view(x.shape)


class _LocalSum(torch.autograd.Function):
    """K x forward; backward K' g for x, and g_i . x_j for K_ij, at the neighbours only."""

    @staticmethod
    @in_float32
    def forward(ctx: Any, x: Tensor, weight: Tensor, neighbourhood: Neighbourhood) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.neighbourhood = neighbourhood
        return _with_values(neighbourhood.pattern.matrix, weight) @ x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        pattern, transposed = ctx.neighbourhood.pattern, ctx.neighbourhood.transposed
        gradient = gradient.contiguous()
        to_x = _with_values(pattern.transposed, weight[transposed]) @ gradient
        to_weight = torch.sparse.sampled_addmm(pattern.matrix, gradient, x.T, beta=0.0)
        return to_x, to_weight.values(), None


def _with_values(pattern: Tensor, values: Tensor) -> Tensor:
    """A sparse matrix with the pattern of another."""
    return torch.sparse_csr_tensor(
        pattern.crow_indices(), pattern.col_indices(), values, size=pattern.shape
    )


class Kernel(nn.Module):
    """K_ij for all neighbours; the same in all layers of encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = dense(4, 4), dense(4, 8), dense(8, 1)
        self.norm = nn.LayerNorm(8)
        self.query, self.key = dense(2, LIFTED_FEATURES), dense(2, LIFTED_FEATURES)
        nn.init.ones_(self.last.bias)  # chi starts above zero, where ReLU has a gradient

    def forward(self, neighbourhood: Neighbourhood) -> Float[Tensor, "node near"]:
        """Chi exp(-|alpha| d) (psi + delta).

        Args:
            neighbourhood: the neighbours.
        """
        near, place = neighbourhood.near, neighbourhood.position
        here = place[:, None].expand(-1, near.shape[1], -1)
        hidden = torch.tanh(self.first(torch.cat([here, neighbourhood.offset], dim=-1)))
        hidden = torch.tanh(self.norm(torch.tanh(self.second(hidden))))
        chi = torch.relu(self.last(hidden))[..., 0]
        alpha = (self.query(place)[:, None] * self.key(place)[near]).sum(-1)
        return chi * torch.exp(-alpha.abs() * neighbourhood.distance) * neighbourhood.share


class CLCRN(Recurrent[Neighbourhood]):
    """The learned kernel in gated recurrent units; 32 hidden features, two layers."""

    lr = 1e-2
    raced = ((32, 1e-2), (16, 1e-2))
    supported_settings = frozenset({"embedding"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        def cell(inputs: int, hidden: int) -> GraphGRU[LocalConvolution]:
            return GraphGRU(inputs, hidden, 1, lambda x, convolution: convolution(x))

        hidden, embedding = config.baseline.hidden or 32, config.baseline.embedding or 0
        super().__init__(
            config, time_spec, channels, nodes, cell, hidden, layers=2, encoder_inputs=hidden
        )
        features = self.input_width
        self.scale = LengthScale.of(nodes, self.num_neighbours)
        self.kernel = Kernel()
        self.lift = dense(features, LIFTED_FEATURES)
        self.enter = dense(LIFTED_FEATURES + embedding + features, hidden)
        self.inductive = not embedding
        self.embedding = nn.Parameter(torch.randn(len(nodes), embedding)) if embedding else None

    def operators(self, nodes: Points) -> Neighbourhood:
        """The neighbours of each node and their relative positions."""
        return Neighbourhood.of(nodes, self.num_neighbours, self.scale, *self._device_dtype)

    def forecast_nodes(
        self, inputs: Inputs, operators: Neighbourhood, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """As every recurrent model, with lifted inputs and the learned kernel."""
        x = inputs.past
        parts = [self.lift(x), x]
        if self.embedding is not None:
            parts.append(self.embedding.expand(*x.shape[:2], -1, -1))
        lifted = replace(inputs, past=self.enter(torch.cat(parts, dim=-1)))
        convolution = LocalConvolution(operators, self.kernel(operators))
        return self._unroll(lifted, convolution, supervision)
