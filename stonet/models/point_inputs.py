"""What the network knows of a point beside its past: place, local time, sun and gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.system.devices import in_float32

MIN_AXIS_SHARE = 0.1  # spread of an axis, relative to the widest, below which it is left out
HARMONICS = 4  # sines and cosines of each calendar cycle


class PlaceAxes(nn.Module):
    """Coordinates along the principal axes of the training points, each of unit variance.

    Unit vectors hardly vary over a region; these coordinates do. Beyond the training points they
    are held at the nearest trained value.

    Args:
        nodes: the training points.
    """

    centre: Tensor
    axes: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, nodes: Points) -> None:
        super().__init__()
        centre = nodes.embedded.mean(0)
        _, _, axes = np.linalg.svd(nodes.embedded - centre, full_matrices=False)
        axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
        spread = ((nodes.embedded - centre) @ axes.T).std(0)
        kept = spread > MIN_AXIS_SHARE * max(float(spread.max()), 1e-12)
        kept[0] = True
        axes = axes[kept] / np.maximum(spread[kept], 1e-12)[:, None]
        along = (nodes.embedded - centre) @ axes.T
        self.width = len(axes)
        numbers = {"centre": centre, "axes": axes, "low": along.min(0), "high": along.max(0)}
        for name, value in numbers.items():  # stored: the axes' order may differ elsewhere
            self.register_buffer(name, torch.from_numpy(value))

    def forward(self, points: Points) -> Float[Tensor, "point axis"]:
        """Coordinates of order one.

        Args:
            points: any points.
        """
        along = (torch.tensor(points.embedded).to(self.axes) - self.centre) @ self.axes.T
        return along.clamp(self.low, self.high)


@dataclass(frozen=True)
class Sites:
    """What is fixed for some points.

    Args:
        place: coordinates along the axes.
        longitude: in turns; None on a plane.
        direction: unit vectors; None on a plane.
    """

    place: Float[Tensor, "point axis"]
    longitude: Float[Tensor, " point"] | None
    direction: Float[Tensor, "point 3"] | None

    def to(self, device: torch.device, dtype: torch.dtype) -> Sites:
        """The same on a device.

        Args:
            device: a processor or a GPU.
            dtype: of all parts.
        """
        parts = (self.place, self.longitude, self.direction)
        return Sites(*(None if p is None else p.to(device, dtype) for p in parts))  # type: ignore[arg-type]


def make_sites(points: Points, axes: PlaceAxes) -> Sites:
    """Place, longitude and direction of points.

    Args:
        points: any points.
        axes: of the training points.
    """
    if points.kind != "sphere":
        return Sites(axes(points), None, None)
    direction = torch.tensor(points.embedded)
    longitude = torch.atan2(direction[:, 1], direction[:, 0]) / (2 * math.pi)
    return Sites(axes(points), longitude, direction)


def harmonics(phase: Float[Tensor, "*shape cycle"]) -> Float[Tensor, "*shape feature"]:
    """Sines and cosines of calendar phases, in turns.

    Args:
        phase: in turns.
    """
    order = torch.arange(1, HARMONICS + 1, device=phase.device, dtype=phase.dtype)
    angle = (2 * math.pi * phase[..., None] * order).flatten(-2)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def harmonics_width(time_spec: TimeSpec) -> int:
    """Number of features that `harmonics` makes of a time.

    Args:
        time_spec: of the model.
    """
    return 2 * HARMONICS * time_spec.features


@in_float32
def local_time(
    batch: Batch, sites: Sites, time_spec: TimeSpec
) -> Float[Tensor, "point batch feature"]:
    """Harmonics of the calendar at the issue time; hours in local mean solar time on a sphere.

    Args:
        batch: gives the issue times.
        sites: the points.
        time_spec: of the model.
    """
    phase = batch.issue_time.expand(len(sites.place), -1, -1)
    if sites.longitude is not None and time_spec.daily:
        shift = torch.zeros_like(phase)
        shift[..., -1] = sites.longitude[:, None]  # the day comes last
        phase = phase + shift
    return harmonics(phase).to(sites.place.dtype)


@in_float32
def sun_at_leads(
    batch: Batch, sites: Sites, time_spec: TimeSpec
) -> Float[Tensor, "point batch lead"] | None:
    """The sine of the solar elevation, 0 at night, at the leads 0, 1, ..., horizon.

    Args:
        batch: gives the directions of the sun.
        sites: the points.
        time_spec: of the model.
    """
    if batch.sun is None or sites.direction is None:
        return None
    ahead = batch.sun[:, time_spec.horizon :].to(sites.direction.dtype)  # batch lead 3
    return torch.einsum("pm,blm->pbl", sites.direction, ahead).clamp(min=0)


def sun_width(time_spec: TimeSpec) -> int:
    """Number of features that `sun_at_leads` gives.

    Args:
        time_spec: of the model.
    """
    return time_spec.horizon + 1 if time_spec.sunny else 0


def gaps(batch: Batch) -> Float[Tensor, "node batch gap"]:
    """The age of the newest value and the share of missing values, by channel.

    Args:
        batch: inputs.
    """
    past, channels = batch.past.shape[1], batch.frames.shape[2]
    if batch.observed is None:
        return batch.frames.new_zeros(batch.frames.shape[1], len(batch.past), 2 * channels)
    observed = batch.observed[batch.past].to(batch.frames.dtype)
    step = torch.arange(past, 0, -1, device=observed.device)
    newest = torch.where(observed > 0, step[:, None, None].to(observed), torch.inf).amin(1)
    age = (newest.clamp(max=past + 1) - 1) / past
    return torch.cat([age, 1 - observed.mean(1)], dim=-1).transpose(0, 1)
