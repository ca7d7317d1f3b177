"""Floors, which a forecaster must beat to be worth its training: they know a point's past only.

Persistence: the last value. Daily persistence: yesterday's, from the same time of day. Linear: the
regression in closed form that STONet starts from. The fourth one is in climatology.py.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from stonet.config import Config
from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.data.resampling import on_regular_lags
from stonet.data.time_spec import Clock
from stonet.data.windows import Batch, Windows
from stonet.errors import UsageError
from stonet.linear.fit import fit_linear
from stonet.linear.kriging import Texture, mean_spacing
from stonet.linear.local_polynomials import Stencil, make_stencil
from stonet.linear.regression import LinearBase, fitted_around, weights_around
from stonet.models.forecaster import Forecaster, Scene


class LinearForecaster(Forecaster):
    """A LinearBase alone, with nothing on top."""

    def __init__(self, base: LinearBase) -> None:
        super().__init__()
        self.base = base

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> Stencil:
        stencil = make_stencil(queries, nodes, self.base.texture)
        return stencil.to(self.base.usual.device, self.base.usual.dtype)

    def encode(self, batch: Batch, scene: Scene) -> None:
        return None

    @torch.no_grad()
    def decode(
        self, encoded: None, batch: Batch, scene: Scene
    ) -> Float[Tensor, "batch future query channel"]:
        return self.base(batch, scene.links)

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        if self.base.kind == "ridge":  # persistence has nothing to solve
            fit_linear(self.base, train, validation, nodes)


def persistence(config: Config, clock: Clock, channels: int, nodes: Points) -> Forecaster:
    """The last observed value; at a point without a past, its neighbours', kriged."""
    base = LinearBase(clock, channels, "persistence")
    base.hold(Texture(mean_spacing(nodes)))
    return LinearForecaster(base)


def linear(config: Config, clock: Clock, channels: int, nodes: Points) -> Forecaster:
    """The ridge regression that STONet starts from."""
    return LinearForecaster(LinearBase(clock, channels, "ridge"))


class Daily(Forecaster):
    r"""Daily persistence: the newest value from the target's time of day.

        u(x, t0 + lead) = u(x, t0 + lead - n days),  the smallest n that does not look ahead

    Between observed times it is interpolated linearly; where the inputs do not reach back that far
    (leads under one step), the oldest counts. A point without a past takes its neighbours'.
    """

    spacing: Tensor

    def __init__(self, config: Config, clock: Clock, channels: int, nodes: Points) -> None:
        super().__init__()
        reason = no_daily(clock)
        if reason is not None:
            raise UsageError(f"Daily persistence {reason}.")
        self.clock = clock
        self.register_buffer("spacing", torch.tensor(mean_spacing(nodes)))

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> Stencil:
        stencil = make_stencil(queries, nodes, Texture(float(self.spacing)))
        return stencil.to(self.spacing.device, self.spacing.dtype)

    def encode(
        self, batch: Batch, scene: Scene
    ) -> tuple[Float[Tensor, "batch lag node channel"], Tensor | None]:
        return on_regular_lags(batch, self.clock)

    @torch.no_grad()
    def decode(
        self, encoded: tuple[Tensor, Tensor | None], batch: Batch, scene: Scene
    ) -> Float[Tensor, "batch future query channel"]:
        past, known = encoded
        stencil: Stencil = scene.links
        between = self._between(batch.lead).to(past.dtype).expand(len(past), -1, -1)
        values = torch.einsum("btl,blnc->btnc", between, past)
        weights = weights_around(known, stencil, batch.silence)
        around = fitted_around(values, weights, stencil, 1)[:, :, :, 0]
        around = around.transpose(1, 2)
        if known is None:
            known = past.new_ones(len(past), *past.shape[2:], dtype=torch.bool)
        mine = pad(known, (0, 0, 0, 1))[:, None, stencil.own]
        return torch.where(mine, pad(values, (0, 0, 0, 1))[:, :, stencil.own], around)

    def _between(self, lead: Float[Tensor, "rows future"]) -> Float64[Tensor, "rows future lag"]:
        """Weights of the regular lags 0, 1, ... at each lead."""
        day = DAY / self.clock.step
        steps = lead.double()
        back = day * torch.ceil(steps / day - 1e-6) - steps  # how far back the value lies, in steps
        back = back.clamp(0, self.clock.past - 1)
        lags = torch.arange(self.clock.past, device=lead.device, dtype=back.dtype)
        return (1 - (back[..., None] - lags).abs()).clamp(min=0)


def no_daily(clock: Clock) -> str | None:
    """Why there is no daily persistence with this clock; None where there is."""
    if not clock.daily:
        return "needs dates and a step of at most 6 h"
    if clock.past * clock.step < DAY:
        steps = -(-DAY // clock.step)
        return f"needs data.past of at least a day, {steps} steps; it is {clock.past}"
    return None
