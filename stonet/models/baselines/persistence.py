"""Reference forecasts, which a forecaster must beat to be worth its training: they know a point's past only.

Persistence: the last value. Daily persistence: yesterday's, from the same time of day. Linear: the
regression in closed form that STONet starts from. The fourth one is in climatology.py.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.data.resampling import on_regular_lags
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.errors import UsageError
from stonet.linear.fit import fit_linear
from stonet.linear.kriging import Covariance, mean_spacing
from stonet.linear.local_polynomials import Stencil, make_stencil
from stonet.linear.regression import LinearForecast, fitted_around, weights_around
from stonet.models.forecaster import Forecaster, Graphs


class LinearForecaster(Forecaster):
    """A LinearForecast alone, with nothing on top."""

    def __init__(self, base: LinearForecast) -> None:
        super().__init__()
        self.base = base

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> Stencil:
        stencil = make_stencil(queries, nodes, self.base.covariance)
        return stencil.to(self.base.usual.device, self.base.usual.dtype)

    def encode(self, batch: Batch, graphs: Graphs) -> None:
        return None

    @torch.no_grad()
    def decode(
        self, encoded: None, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        return self.base(batch, graphs.links)

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        if self.base.kind == "ridge":  # persistence has nothing to solve
            fit_linear(self.base, train, validation, nodes)


def persistence(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
    """The last observed value; at a point without a past, its neighbours', kriged."""
    base = LinearForecast(time_spec, channels, "persistence")
    base.set_covariance(Covariance(mean_spacing(nodes)))
    return LinearForecaster(base)


def linear(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
    """The ridge regression that STONet starts from."""
    return LinearForecaster(LinearForecast(time_spec, channels, "ridge"))


class Daily(Forecaster):
    r"""Daily persistence: the newest value from the target's time of day.

        u(x, t0 + lead) = u(x, t0 + lead - n days),  the smallest n that does not regressors ahead

    Between observed times it is interpolated linearly; where the inputs do not reach back that far
    (leads under one step), the oldest counts. A point without a past takes its neighbours'.
    """

    spacing: Tensor

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        reason = no_daily(time_spec)
        if reason is not None:
            raise UsageError(f"Daily persistence {reason}.")
        self.time_spec = time_spec
        self.register_buffer("spacing", torch.tensor(mean_spacing(nodes)))

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> Stencil:
        stencil = make_stencil(queries, nodes, Covariance(float(self.spacing)))
        return stencil.to(self.spacing.device, self.spacing.dtype)

    def encode(
        self, batch: Batch, graphs: Graphs
    ) -> tuple[Float[Tensor, "batch lag node channel"], Tensor | None]:
        return on_regular_lags(batch, self.time_spec)

    @torch.no_grad()
    def decode(
        self, encoded: tuple[Tensor, Tensor | None], batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        past, known = encoded
        stencil: Stencil = graphs.links
        between = self._between(batch.lead).to(past.dtype).expand(len(past), -1, -1)
        values = torch.einsum("btl,blnc->btnc", between, past)
        weights = weights_around(known, stencil, batch.missing_pattern)
        around = fitted_around(values, weights, stencil, 1)[:, :, :, 0]
        around = around.transpose(1, 2)
        if known is None:
            known = past.new_ones(len(past), *past.shape[2:], dtype=torch.bool)
        mine = pad(known, (0, 0, 0, 1))[:, None, stencil.own]
        return torch.where(mine, pad(values, (0, 0, 0, 1))[:, :, stencil.own], around)

    def _between(self, lead: Float[Tensor, "rows future"]) -> Float64[Tensor, "rows future lag"]:
        """Weights of the regular lags 0, 1, ... at each lead."""
        day = DAY / self.time_spec.step
        steps = lead.double()
        back = day * torch.ceil(steps / day - 1e-6) - steps  # how far back the value lies, in steps
        back = back.clamp(0, self.time_spec.past - 1)
        lags = torch.arange(self.time_spec.past, device=lead.device, dtype=back.dtype)
        return (1 - (back[..., None] - lags).abs()).clamp(min=0)


def no_daily(time_spec: TimeSpec) -> str | None:
    """Why there is no daily persistence with this time_spec; None where there is."""
    if not time_spec.daily:
        return "needs dates and a step of at most 6 h"
    if time_spec.past * time_spec.step < DAY:
        steps = -(-DAY // time_spec.step)
        return f"needs data.past of at least a day, {steps} steps; it is {time_spec.past}"
    return None
