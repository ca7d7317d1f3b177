r"""MIGN: "Mesh Interpolation Graph Network for Dynamic and Spatially Irregular Global Weather ...".

The values of the stations pass to a regular HEALPix mesh, which no longer depends on where stations
are, are processed there over time, and pass back to the stations:

    m_t = act(A_sm [x_t; w_s Y] W)                           stations to mesh, at each past step
    M   = act(A_mm m_t W') + m_t                             between neighbouring pixels
    M_k = ReLU(L M) + ReLU(L' attention over t (M))          past steps to leads
    p_k = act(A_ms [M_k; w_m Y] V),   q_k = V' [x; w_s Y]    mesh to stations; the station's own
    y_k = W_o (alpha p_k + (1 - alpha) q_k)                  alpha by attention

Y are spherical harmonics of the degrees 0 to 2, w their learned weights (the parametric embedding
of locations). A connect nearest neighbours, with D^-1/2 A D^-1/2.

References:
    Z. Zheng, Y. Liu, J. Li, NeurIPS 2025, arXiv 2509.20911; sizes as in the authors' repository
    (compasszzn/MIGN): ten neighbours, 64 features, four heads.

Deviations:
    - The paper's mesh has 768 pixels on the globe, 7 degrees each; a region would have one. Here
      a region is stretched to a hemisphere, around its centre, as is a plane; then the mesh has
      about as many pixels as there are training stations, at most those of the paper.
    - All leads at once; a station's own part sees its complete past, and what is known of a lead.
    - One message passing between pixels.
    - Gaps are filled beforehand, as for every baseline; the paper leaves such stations out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from scipy.sparse import csr_array, diags_array
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, scaled_dot_product_attention

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.graph.healpix import HARMONICS, healpix_centres, spherical_harmonics
from stonet.graph.neighbours import nearest_nodes
from stonet.models.baselines.base import GraphBaseline, Inputs, dense
from stonet.models.baselines.graph_filters import Operator
from stonet.models.forecaster import Supervision

NEIGHBOURS, HEADS = 10, 4
MAX_SIDES = 8  # of the paper's mesh


@dataclass(frozen=True)
class RegionMap:
    """The azimuthal equidistant map of a region to a hemisphere; of the globe, a rotation.

    Args:
        centre: of the region.
        stretch: factor by which distances from the centre grow.
        share: of the sphere that the mapped region covers.
    """

    centre: Float64[np.ndarray, " m"]
    stretch: float
    share: float

    @staticmethod
    def of(nodes: Points) -> RegionMap:
        """The map for these nodes.

        Args:
            nodes: of the training.
        """
        centre = nodes.embedded.mean(0)
        if nodes.kind == "sphere":
            length = float(np.linalg.norm(centre))
            centre = centre / length if length > 1e-6 else np.array([0.0, 0.0, 1.0])
        away = nodes.geometry.distance(
            np.broadcast_to(centre, nodes.embedded.shape), nodes.embedded
        )
        widest = max(float(away.max()), 1e-12)
        whole = nodes.kind == "sphere" and widest >= math.pi / 2
        stretch = 1.0 if whole else math.pi / 2 / widest
        return RegionMap(centre, stretch, (1 - math.cos(min(stretch * widest, math.pi))) / 2)

    def __call__(self, points: Points) -> Points:
        """The mapped points; those far outside of the region meet at the opposite pole."""
        here = np.broadcast_to(self.centre, points.embedded.shape)
        offset = points.geometry.offset(here, points.embedded)
        distance = points.geometry.distance(here, points.embedded)
        angle = np.minimum(distance * self.stretch, math.pi)
        azimuth = np.where(distance > 0, np.arctan2(offset[:, 1], offset[:, 0]), 0.0)
        return Points(np.stack([90 - np.rad2deg(angle), np.rad2deg(azimuth)], axis=1), "sphere")


@dataclass(frozen=True)
class MeshGraph:
    """The edges among stations and pixels, and the harmonics at both.

    Args:
        to_mesh: from stations to pixels.
        on_mesh: among pixels.
        from_mesh: from pixels to stations.
        at_stations: spherical harmonics at the stations.
        at_pixels: the same at the pixels.
    """

    to_mesh: Operator
    on_mesh: Operator
    from_mesh: Operator
    at_stations: Float[Tensor, "node harmonic"]
    at_pixels: Float[Tensor, "pixel harmonic"]


class MIGN(GraphBaseline[MeshGraph]):
    """Mesh interpolation with learned harmonics; 64 features."""

    lr = 1e-3
    raced = ((64, 1e-3), (32, 3e-3), (16, 1e-2))

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        self.near, hidden = self.baseline.neighbours or NEIGHBOURS, self.baseline.hidden or 64
        past, horizon = self.time_spec.past, self.time_spec.horizon
        self.region = RegionMap.of(nodes)
        self.pixels = mesh_of(self.region(nodes), self.region.share, self.near)
        self.heads = max(h for h in range(1, HEADS + 1) if hidden % h == 0)
        self.station_weights = nn.Parameter(torch.randn(HARMONICS))
        self.pixel_weights = nn.Parameter(torch.randn(HARMONICS))
        self.enter = dense(self.input_width + HARMONICS, hidden)
        self.exchange = dense(hidden, hidden)
        self.project, self.merge = dense(hidden, hidden, maps=3), dense(hidden, hidden)
        self.steps, self.attended_steps = dense(past, horizon), dense(past, horizon)
        self.leave = dense(hidden + HARMONICS, hidden)
        own = past * channels + self.ahead_width + HARMONICS
        self.own = dense(own, hidden)
        self.score, self.weigh = dense(hidden, 2 * hidden), nn.Linear(2 * hidden, 1, bias=False)
        self.readout = dense(hidden, channels)
        if self.base is not None:
            nn.init.zeros_(self.readout.weight)  # training starts from the base

    def operators(self, nodes: Points) -> MeshGraph:
        """The nearest stations of each pixel, and the nearest pixels of each pixel and station."""
        placed, pixels = self.region(nodes), self.pixels
        to_mesh, on_mesh, from_mesh = (
            Operator.of(edges(targets, sources, self.near), *self._device_dtype)
            for targets, sources in ((pixels, placed), (pixels, pixels), (placed, pixels))
        )
        at_stations, at_pixels = (
            torch.from_numpy(spherical_harmonics(points)).to(*self._device_dtype)
            for points in (placed, pixels)
        )
        return MeshGraph(to_mesh, on_mesh, from_mesh, at_stations, at_pixels)

    def forecast_nodes(
        self, inputs: Inputs, operators: MeshGraph, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """Stations to mesh, past to leads, mesh to stations."""
        places = operators.at_stations * self.station_weights
        pixels = operators.at_pixels * self.pixel_weights
        past = inputs.past.permute(2, 0, 1, 3)  # node batch past feature
        stations = with_place(past, places)
        mesh = leaky_relu(self.enter(operators.to_mesh(stations)))
        mesh = mesh + leaky_relu(self.exchange(operators.on_mesh(mesh)))
        leads = self._over_time(mesh).transpose(-1, -2)  # pixel batch future hidden
        message = leaky_relu(operators.from_mesh(self.leave(with_place(leads, pixels))))
        series = past[..., : self.channels].flatten(2)[:, :, None]
        ahead = inputs.ahead().permute(2, 0, 1, 3)  # node batch future feature
        series = series.expand(-1, -1, ahead.shape[2], -1)
        own = self.own(with_place(torch.cat([series, ahead], dim=-1), places))
        both = torch.stack([message, own])
        alpha = torch.softmax(self.weigh(torch.tanh(self.score(both))), dim=0)
        return self.readout((alpha * both).sum(0)).permute(1, 2, 0, 3)

    def _over_time(
        self, mesh: Float[Tensor, "pixel batch past hidden"]
    ) -> Float[Tensor, "pixel batch hidden future"]:
        """From past steps to leads, directly and after attention among the steps."""
        split = self.project(mesh).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        mixed = scaled_dot_product_attention(*split)  # pixel batch head past feature
        attended = self.merge(mixed.transpose(2, 3).flatten(3))
        direct = torch.relu(self.steps(mesh.transpose(-1, -2)))
        return direct + torch.relu(self.attended_steps(attended.transpose(-1, -2)))


def mesh_of(placed: Points, share: float, near: int) -> Points:
    """The pixels that any station uses: about as many in all as there are stations.

    Args:
        placed: the mapped training stations.
        share: of the sphere that they cover.
        near: pixels that a station uses.
    """
    sides = round(math.sqrt(len(placed) / (12 * max(share, 1e-3))))
    pixels = healpix_centres(min(max(sides, 1), MAX_SIDES))
    return pixels.take(np.unique(nearest_nodes(placed, pixels, near)[1]))


def edges(targets: Points, sources: Points, near: int) -> csr_array:
    """D^-1/2 A D^-1/2 with 1 from the nearest sources of each target.

    Args:
        targets: points that receive.
        sources: points that send.
        near: sources of each target.
    """
    index = nearest_nodes(targets, sources, near)[1]
    rows = np.repeat(np.arange(len(targets)), index.shape[1])
    shape = (len(targets), len(sources))
    a = csr_array((np.ones(index.size), (rows, index.ravel())), shape=shape)
    left, right = (np.maximum(np.asarray(a.sum(axis)).ravel(), 1.0) ** -0.5 for axis in (1, 0))
    return csr_array(diags_array(left) @ a @ diags_array(right))


def with_place(
    x: Float[Tensor, "node batch time feature"], place: Float[Tensor, "node harmonic"]
) -> Float[Tensor, "node batch time wider"]:
    """The features, then those of the place.

    Args:
        x: features of every node, window and time.
        place: features of every node.
    """
    return torch.cat([x, place[:, None, None].expand(-1, *x.shape[1:3], -1)], dim=-1)
