r"""The point-wise residual network: a correction of the linear forecast at a single point.

    u = base + scale (a - g base),   a, g = MLP(whitened regressors, base, time, place, site)

a is an additive correction, g damps the base. Both are given at the trained leads of the base and
interpolated between them. The base itself is an input: it has hourly coefficients and more
regressors than the whitened ones. A sample is one point in one window, so that a step of the
pretraining contains more varied weather than a step of the network, which uses whole frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from stonet.data.time_spec import TimeSpec

FAR = 3.0  # standard deviations of the training points: positions beyond are clamped


@dataclass(frozen=True)
class PointFeatures:
    """The inputs of the residual network at each point."""

    white: Float[Tensor, "*row white"]  # whitened regressors
    has_past: Bool[Tensor, "*row"]
    base: Float[Tensor, "*row knot channel"]  # the linear forecast, after lead 0
    time: Float[Tensor, "*row feature"]  # calendar and solar elevation
    place: Float[Tensor, "*row m"]
    site: Float[Tensor, "*row statistic"]  # site climatology, or its interpolation


@dataclass(frozen=True)
class Augmentation:
    """Changes of training samples, as they occur at unseen points and with missing inputs."""

    without_history: Bool[Tensor, "window point"]
    as_unseen: Bool[Tensor, "window point"]  # with site statistics interpolated from neighbours
    gaps: float = 0.0  # share of missing inputs


class ResidualMLP(nn.Module):
    """Two hidden layers; without a history, the kriged history is the input.

    Args:
        white: whitened regressors.
        features: of the time.
        hidden: width.
        time_spec: of the data; outputs are at its leads.
        channels: of the field.
        places: of the training points.
        statistics: of a site.
    """

    far_share: Tensor
    middle: Tensor
    per_extent: Tensor

    def __init__(
        self,
        white: int,
        features: int,
        hidden: int,
        time_spec: TimeSpec,
        channels: int,
        places: Float[Tensor, "node m"],
        statistics: int,
    ) -> None:
        super().__init__()
        self.shape = (time_spec.horizon, 2 * channels)
        seen = white + time_spec.horizon * channels + features + places.shape[1] + statistics
        self.first = nn.Linear(seen, hidden)
        self.hidden = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, math.prod(self.shape))
        nn.init.zeros_(self.out.weight)  # starts without a correction
        nn.init.zeros_(self.out.bias)
        self.register_buffer("far_share", torch.ones(()))  # of the correction without history
        extent = places.std(0, correction=0)
        self.register_buffer("middle", places.mean(0))
        known = extent > 1e-6  # directions in which the training points do not vary are ignored
        self.register_buffer("per_extent", torch.where(known, 1 / extent, 0.0))

    def forward(self, features: PointFeatures) -> Float[Tensor, "*row knot two_channels"]:
        """A and g at the leads 0, 1, ..., horizon; zero at lead 0."""
        place = (features.place - self.middle) * self.per_extent
        here = torch.cat([place, features.site], dim=-1).clamp(-FAR, FAR)
        seen = torch.cat([features.white, features.base.flatten(-2), features.time, here], dim=-1)
        state = gelu(self.first(seen))
        state = state + gelu(self.hidden(state))
        out = self.out(state) * torch.where(features.has_past, 1.0, self.far_share)[..., None]
        return pad(out.unflatten(-1, self.shape), (0, 0, 1, 0))


class ResidualEnsemble(nn.Module):
    """The mean of several residual networks.

    They are not trained with the operator.
    """

    def __init__(self, members: Sequence[ResidualMLP]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members).requires_grad_(False)

    def forward(self, features: PointFeatures) -> Float[Tensor, "*row knot two_channels"]:
        """The mean of the members' outputs."""
        return sum(member(features) for member in self.members) / len(self.members)


def corrected(
    base: Float[Tensor, "*row channel"], residual: Float[Tensor, "*row two_channels"]
) -> Float[Tensor, "*row channel"]:
    """The correction a - g * base, in units of the RMSE of the base."""
    add, share = residual.chunk(2, dim=-1)
    return add - share * base


@dataclass(frozen=True)
class PointSamples:
    """Training samples at single points: features, base forecast, its scale, and target."""

    features: PointFeatures
    base: Float[Tensor, "row future channel"]
    scale: Float[Tensor, "row future channel"]
    target: Float[Tensor, "row future channel"]
    mask: Bool[Tensor, "row future channel"]

    def __len__(self) -> int:
        return len(self.base)

    def part(self, index: Tensor | slice) -> PointSamples:
        """Some of the samples."""
        return self._each(lambda part: part[index])

    def _each(self, change: Callable[[Tensor], Tensor]) -> PointSamples:
        seen = len(vars(self.features))
        parts = [change(part) for part in self._parts]
        return PointSamples(PointFeatures(*parts[:seen]), *parts[seen:])

    def allocate(self, count: int) -> PointSamples:
        """Uninitialised memory for `count` samples of this kind, to be filled by `put`."""
        return self._each(lambda part: part.new_empty(count, *part.shape[1:]))

    def put(self, index: Tensor, rows: PointSamples) -> None:
        """Store samples at these positions."""
        for mine, other in zip(self._parts, rows._parts, strict=True):
            mine[index] = other

    @property
    def _parts(self) -> list[Tensor]:
        return [*vars(self.features).values(), self.base, self.scale, self.target, self.mask]

    def error(self, residual: nn.Module) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The sum of |error| of the corrected forecast, and the number of values."""
        output = residual(self.features)[..., 1:, :]
        forecast = self.base + self.scale * corrected(self.base, output)
        error = torch.where(self.mask, forecast - self.target, 0.0).abs()
        return error.sum(), self.mask.sum().to(error.dtype)
