r"""The expert of one point: what its surroundings say beyond the linear base, learned from rows.

    u = base + scale (a - g base),   a, g = MLP(whitened regressors, base, time, place, portrait)

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

from stonet.data.time_spec import Clock

FAR = 3.0  # standard deviations of the training points: nothing is known of how it goes on there


@dataclass(frozen=True)
class Sight:
    """What the expert knows of each point: its own and its neighbours' past, where, and when."""

    white: Float[Tensor, "*row white"]  # whitened regressors
    has_past: Bool[Tensor, "*row"]
    base: Float[Tensor, "*row knot channel"]  # the linear forecast, after lead 0
    time: Float[Tensor, "*row feature"]  # the clock and the sun
    place: Float[Tensor, "*row m"]
    portrait: Float[Tensor, "*row trait"]  # what training has seen there, or expects


@dataclass(frozen=True)
class Guise:
    """As what rows are shown: some without a past, some as if never seen before, some with gaps."""

    silent: Bool[Tensor, "window point"]
    strange: Bool[Tensor, "window point"]
    gaps: float = 0.0  # share of all inputs


class Expert(nn.Module):
    """Two hidden layers. Without an own past, it is shown what stands in for one.

    Args:
        white: whitened regressors.
        features: of the time.
        hidden: width.
        clock: of the data; answers are given at its leads.
        channels: of the field.
        places: of the training points.
        traits: of a portrait.
    """

    far_share: Tensor
    middle: Tensor
    per_extent: Tensor

    def __init__(
        self,
        white: int,
        features: int,
        hidden: int,
        clock: Clock,
        channels: int,
        places: Float[Tensor, "node m"],
        traits: int,
    ) -> None:
        super().__init__()
        self.shape = (clock.horizon, 2 * channels)
        seen = white + clock.horizon * channels + features + places.shape[1] + traits
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

    def forward(self, sight: Sight) -> Float[Tensor, "*row knot two_channels"]:
        """What it adds, and how far the base is turned down, at the leads 0, 1, ..., horizon.

        At lead 0 there is nothing to correct.
        """
        place = (sight.place - self.middle) * self.per_extent
        here = torch.cat([place, sight.portrait], dim=-1).clamp(-FAR, FAR)
        seen = torch.cat([sight.white, sight.base.flatten(-2), sight.time, here], dim=-1)
        state = gelu(self.first(seen))
        state = state + gelu(self.hidden(state))
        out = self.out(state) * torch.where(sight.has_past, 1.0, self.far_share)[..., None]
        return pad(out.unflatten(-1, self.shape), (0, 0, 1, 0))


class Experts(nn.Module):
    """Several experts, each with a mind of its own; their advice is the mean of what they say.

    They learn at school (school.py) and not from the network's steps.
    """

    def __init__(self, members: Sequence[Expert]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members).requires_grad_(False)

    def forward(self, sight: Sight) -> Float[Tensor, "*row knot two_channels"]:
        """As each of them."""
        return sum(member(sight) for member in self.members) / len(self.members)


def corrected(
    base: Float[Tensor, "*row channel"], advice: Float[Tensor, "*row two_channels"]
) -> Float[Tensor, "*row channel"]:
    """The correction a - g * base, in units of the base's usual error."""
    add, share = advice.chunk(2, dim=-1)
    return add - share * base


@dataclass(frozen=True)
class Rows:
    """Lessons of single points: what is seen, what the base says, what came."""

    sight: Sight
    base: Float[Tensor, "row future channel"]
    scale: Float[Tensor, "row future channel"]
    target: Float[Tensor, "row future channel"]
    mask: Bool[Tensor, "row future channel"]

    def __len__(self) -> int:
        return len(self.base)

    def part(self, index: Tensor | slice) -> Rows:
        return self._each(lambda part: part[index])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        seen = len(vars(self.sight))
        parts = [change(part) for part in self._parts]
        return Rows(Sight(*parts[:seen]), *parts[seen:])

    def room(self, count: int) -> Rows:
        """For so many of the kind, to be `put` there: no row is ever held twice."""
        return self._each(lambda part: part.new_empty(count, *part.shape[1:]))

    def put(self, index: Tensor, rows: Rows) -> None:
        for mine, other in zip(self._parts, rows._parts, strict=True):
            mine[index] = other

    @property
    def _parts(self) -> list[Tensor]:
        return [*vars(self.sight).values(), self.base, self.scale, self.target, self.mask]

    def error(self, expert: nn.Module) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The sum of |error| with an expert's advice, or several's, and of how many values."""
        advice = expert(self.sight)[..., 1:, :]
        forecast = self.base + self.scale * corrected(self.base, advice)
        error = torch.where(self.mask, forecast - self.target, 0.0).abs()
        return error.sum(), self.mask.sum().to(error.dtype)
