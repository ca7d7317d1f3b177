"""Reference forecasts, which a model must beat to be worth its training.

Persistence: the newest value. Daily persistence: the value at the same time of day before. Linear:
the closed-form regression that STONet corrects. `climatology.py` has the fourth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
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
from stonet.linear.regression import LinearForecast, apply_stencil, stencil_weights
from stonet.models.forecaster import (
    Encoding,
    Forecaster,
    Graphs,
    NodeGraph,
    QueryGraph,
    narrow,
)


@dataclass(frozen=True)
class StencilQueries(QueryGraph):
    """The nearest nodes of each query, and the weights of local fits.

    Args:
        stencil: from nodes to queries.
    """

    stencil: Stencil


@dataclass(frozen=True)
class RegularPast(Encoding):
    """The past at regular lags, newest first, and which nodes have one (None: all).

    Args:
        values: 0 where missing.
        present: whether a node has a past.
    """

    values: Float[Tensor, "batch lag node channel"]
    present: Bool[Tensor, "batch node channel"] | None


class LinearForecaster(Forecaster):
    """A LinearForecast as a model of its own.

    Args:
        base: fitted, or to be fitted by `fit_closed_form`.
    """

    def __init__(self, base: LinearForecast) -> None:
        super().__init__()
        self.base = base

    def query_graph(self, nodes: Points, queries: Points) -> StencilQueries:
        """The stencil of each query."""
        stencil = make_stencil(queries, nodes, self.base.covariance)
        gaps = self.base.history.usual_gaps
        device, dtype = gaps.device, gaps.dtype
        return StencilQueries(stencil.to(device, dtype))

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The linear forecast."""
        return self.base(batch, narrow(graphs.queries, StencilQueries).stencil)

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Fit the regression; persistence has nothing to fit."""
        if self.base.kind == "ridge":
            fit_linear(self.base, train, validation, nodes)


def persistence(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
    """The newest observed value; at a point without history, kriged from its neighbours.

    Args:
        config: not used.
        time_spec: step, past and horizon of the data.
        channels: number of channels.
        nodes: the training points.
    """
    base = LinearForecast(time_spec, channels, "persistence")
    base.set_covariance(Covariance(mean_spacing(nodes)))
    return LinearForecaster(base)


def linear(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
    """The ridge regression that STONet corrects.

    Args:
        config: not used.
        time_spec: step, past and horizon of the data.
        channels: number of channels.
        nodes: not used.
    """
    return LinearForecaster(LinearForecast(time_spec, channels, "ridge"))


class Daily(Forecaster):
    r"""Daily persistence: the newest value at the target's time of day.

        u(x, t0 + lead) = u(x, t0 + lead - n days),  with the smallest n that needs no future value

    It is linear between observed times. If the past does not reach back far enough (leads under one
    step), its oldest value is used. At a point without history it is kriged from the neighbours.

    Args:
        config: not used.
        time_spec: step, past and horizon of the data.
        channels: number of channels.
        nodes: the training points.

    Raises:
        UsageError: if the data have no hours, or the past is shorter than a day.
    """

    spacing: Tensor

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        reason = no_daily(time_spec)
        if reason is not None:
            raise UsageError(f"Daily persistence {reason}.")
        self.time_spec = time_spec
        self.register_buffer("spacing", torch.tensor(mean_spacing(nodes)))

    def query_graph(self, nodes: Points, queries: Points) -> StencilQueries:
        """The stencil of each query."""
        stencil = make_stencil(queries, nodes, Covariance(float(self.spacing)))
        return StencilQueries(stencil.to(self.spacing.device, self.spacing.dtype))

    def encode(self, batch: Batch, graph: NodeGraph) -> RegularPast:
        """The past at regular lags."""
        return RegularPast(*on_regular_lags(batch, self.time_spec))

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The values at the time of day of each lead."""
        regular = narrow(encoding, RegularPast)
        past, present = regular.values, regular.present
        stencil = narrow(graphs.queries, StencilQueries).stencil
        share = self._lag_weights(batch.lead).to(past.dtype).expand(len(past), -1, -1)
        values = torch.einsum("btl,blnc->btnc", share, past)
        weights = stencil_weights(present, stencil, batch.missing_pattern)
        kriged = apply_stencil(values, weights, stencil, 1)[:, :, :, 0].transpose(1, 2)
        if present is None:
            present = past.new_ones(len(past), *past.shape[2:], dtype=torch.bool)
        own = pad(present, (0, 0, 0, 1))[:, None, stencil.own]
        return torch.where(own, pad(values, (0, 0, 0, 1))[:, :, stencil.own], kriged)

    def _lag_weights(
        self, lead: Float[Tensor, "rows future"]
    ) -> Float64[Tensor, "rows future lag"]:
        """Weights of the regular lags 0, 1, ... for each lead."""
        day = DAY / self.time_spec.step
        steps = lead.double()
        back = day * torch.ceil(steps / day - 1e-6) - steps  # age of the value, in steps
        back = back.clamp(0, self.time_spec.past - 1)
        lags = torch.arange(self.time_spec.past, device=lead.device, dtype=back.dtype)
        return (1 - (back[..., None] - lags).abs()).clamp(min=0)


def no_daily(time_spec: TimeSpec) -> str | None:
    """The reason why daily persistence is impossible with this TimeSpec; None if it is possible.

    Args:
        time_spec: of the data.
    """
    if not time_spec.daily:
        return "needs dates and a step of at most 6 h"
    if time_spec.past * time_spec.step < DAY:
        steps = -(-DAY // time_spec.step)
        return f"needs data.past of at least a day, {steps} steps; it is {time_spec.past}"
    return None
