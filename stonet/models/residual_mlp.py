r"""The residual of one point: what its surroundings say beyond the linear base, learned from rows.

    u = base + scale (a - g base),   a, g = MLP(whitened regressors, base, time, place, site)

a corrects the base, g turns it down where it cannot be trusted. Both are given at the base's leads
and interpolated between them. What the base says is worth hearing: its coefficients are the hour's,
and its regressors more than the whitened ones. A row is one point of one window, so that a step of
its schooling sees more different weather than one of the whole network, whose points are alike.
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

FAR = 3.0  # standard deviations of the training points: nothing is known of how it goes on there


@dataclass(frozen=True)
class PointFeatures:
    """What the residual knows of each point: its own and its neighbours' past, where, and when."""

    white: Float[Tensor, "*row white"]  # whitened regressors
    has_past: Bool[Tensor, "*row"]
    base: Float[Tensor, "*row knot channel"]  # the linear forecast, after lead 0
    time: Float[Tensor, "*row feature"]  # the time_spec and the sun
    place: Float[Tensor, "*row m"]
    site: Float[Tensor, "*row statistic"]  # what training has seen there, or expects


@dataclass(frozen=True)
class Augmentation:
    """As what rows are shown: some without a past, some as if never seen before, some with gaps."""

    silent: Bool[Tensor, "window point"]
    as_unseen: Bool[Tensor, "window point"]
    gaps: float = 0.0  # share of all inputs


class ResidualMLP(nn.Module):
    """Two hidden layers. Without an own past, it is shown what stands in for one.

    Args:
        white: whitened regressors.
        features: of the time.
        hidden: width.
        time_spec: of the data; answers are given at its leads.
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
        nn.init.zeros_(self.out.weight)  # starts as "trust the base"
        nn.init.zeros_(self.out.bias)
        self.register_buffer("far_share", torch.ones(()))  # of its advice without a past
        extent = places.std(0, correction=0)
        self.register_buffer("middle", places.mean(0))
        known = extent > 1e-6  # beside a line of points nothing is known: it is as on the line
        self.register_buffer("per_extent", torch.where(known, 1 / extent, 0.0))

    def forward(self, features: PointFeatures) -> Float[Tensor, "*row knot two_channels"]:
        """What it adds, and how far the base is turned down, at the leads 0, 1, ..., horizon.

        At lead 0 there is nothing to correct.
        """
        place = (features.place - self.middle) * self.per_extent
        here = torch.cat([place, features.site], dim=-1).clamp(-FAR, FAR)
        seen = torch.cat([features.white, features.base.flatten(-2), features.time, here], dim=-1)
        state = gelu(self.first(seen))
        state = state + gelu(self.hidden(state))
        out = self.out(state) * torch.where(features.has_past, 1.0, self.far_share)[..., None]
        return pad(out.unflatten(-1, self.shape), (0, 0, 1, 0))


class ResidualEnsemble(nn.Module):
    """Several residuals, each with a mind of its own; their advice is the mean of what they say.

    They learn at school (school.py) and not from the network's steps.
    """

    def __init__(self, members: Sequence[ResidualMLP]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members).requires_grad_(False)

    def forward(self, features: PointFeatures) -> Float[Tensor, "*row knot two_channels"]:
        """As each of them."""
        return sum(member(features) for member in self.members) / len(self.members)


def corrected(
    base: Float[Tensor, "*row channel"], advice: Float[Tensor, "*row two_channels"]
) -> Float[Tensor, "*row channel"]:
    """The correction a - g * base, in units of the base's usual error."""
    add, share = advice.chunk(2, dim=-1)
    return add - share * base


@dataclass(frozen=True)
class PointSamples:
    """Lessons of single points: what is seen, what the base says, what came."""

    features: PointFeatures
    base: Float[Tensor, "row future channel"]
    scale: Float[Tensor, "row future channel"]
    target: Float[Tensor, "row future channel"]
    mask: Bool[Tensor, "row future channel"]

    def __len__(self) -> int:
        return len(self.base)

    def part(self, index: Tensor | slice) -> PointSamples:
        return self._each(lambda part: part[index])

    def _each(self, change: Callable[[Tensor], Tensor]) -> PointSamples:
        seen = len(vars(self.features))
        parts = [change(part) for part in self._parts]
        return PointSamples(PointFeatures(*parts[:seen]), *parts[seen:])

    def room(self, count: int) -> PointSamples:
        """For so many of the kind, to be `put` there: no row is ever held twice."""
        return self._each(lambda part: part.new_empty(count, *part.shape[1:]))

    def put(self, index: Tensor, rows: PointSamples) -> None:
        for mine, other in zip(self._parts, rows._parts, strict=True):
            mine[index] = other

    @property
    def _parts(self) -> list[Tensor]:
        return [*vars(self.features).values(), self.base, self.scale, self.target, self.mask]

    def error(self, residual: nn.Module) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The sum of |error| with an residual's advice, or several's, and of how many values."""
        advice = residual(self.features)[..., 1:, :]
        forecast = self.base + self.scale * corrected(self.base, advice)
        error = torch.where(self.mask, forecast - self.target, 0.0).abs()
        return error.sum(), self.mask.sum().to(error.dtype)
