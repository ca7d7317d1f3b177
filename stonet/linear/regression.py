r"""LinearForecast: a closed-form linear operator, a reference forecast and a possible anchor.

    u(x, t0 + lead) = sum_{lag, g} beta_{lead, hour}(lag, g) U_g(x, t0 - lag) + intercept

U_0 is the history of the point; U_g for g > 0 are kriged values, and values, gradients and
Laplacians of local polynomial fits, all from the history of the other points
(`local_polynomials.py`). beta solves a ridge regression, pooled over all hours and again for each
hour of the day, drawn towards the pooled solution (`ridge.py`). It is interpolated between the
trained leads. A point without history uses the kriged history of its neighbours and another beta;
so does a history with more gaps than usual. Gaps are filled and irregular times are resampled first
(`imputation.py`). `fit.py` estimates all coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.data.batch import Batch, MissingPattern
from stonet.data.resampling import between_leads
from stonet.data.time_spec import TimeSpec
from stonet.linear.history import History
from stonet.linear.kriging import Covariance
from stonet.linear.local_polynomials import NUM_FITS, Stencil, Weights
from stonet.linear.ridge import Penalty
from stonet.system.devices import in_float32

RECENT_LAGS = 12  # newest lags with all fits; older lags have kriging and the narrowest fit only
WIDE_FITS = NUM_FITS - 2  # fits beside kriging and the narrowest one
MAX_HOURLY_COLUMNS = 600  # regressors up to which every hour of the day has its coefficients
UNBOUNDED = 1e30  # a bound beyond all values
IMPUTED_SHARES = (0.0, 0.2)  # share of imputed inputs that beta assumes: as in training, more gaps
NUM_KINDS = 4 * len(IMPUTED_SHARES)  # kinds of history, see `Regressors.kind`


@dataclass(frozen=True)
class Regressors:
    """The regressors of the linear forecast at every query, and its kind of history.

    A kind is 4 [more gaps than usual] + 2 [newest value missing] + 1 [no history].

    Args:
        values: the kriged history, then the regressors.
        own_columns: length of a history.
        kind: of history.
        num_kinds: kinds that may occur.
    """

    values: Float64[Tensor, "batch query value"]
    own_columns: int
    kind: Int[Tensor, "batch query"]
    num_kinds: int = NUM_KINDS

    @property
    def columns(self) -> Float64[Tensor, "batch query column"]:
        """The regressors; the history comes first."""
        return self.values[..., self.own_columns :]

    @property
    def kriged_history(self) -> Float64[Tensor, "batch query own"]:
        """The history as interpolated from other points."""
        return self.values[..., : self.own_columns]

    @property
    def has_history(self) -> Bool[Tensor, "batch query"]:
        """Whether a query has a history of its own."""
        return self.kind % 2 == 0

    @property
    def kind_with_history(self) -> Int[Tensor, "batch query"]:
        """2 [more gaps than usual] + 1 [newest value missing]; a kriged history misses nothing."""
        return torch.where(self.has_history, self.kind, self.kind // 4 * 4) // 2

    def without_history(self, hidden: Bool[Tensor, "batch query"]) -> Regressors:
        """The regressors if these queries had no history.

        Args:
            hidden: queries whose history is replaced by the kriged one.
        """
        values, first = self.values.clone(), slice(self.own_columns, 2 * self.own_columns)
        values[..., first] = torch.where(hidden[..., None], self.kriged_history, values[..., first])
        kind = torch.where(hidden, self.kind | 1, self.kind)
        return replace(self, values=values, kind=kind)

    def multiply(
        self, table: Float64[Tensor, "kind hour column out"], hour: Int[Tensor, " batch"]
    ) -> Float64[Tensor, "batch query out"]:
        """The regressors of each query times the matrix of its kind of history and its hour.

        Args:
            table: coefficients.
            hour: of the day, at the issue time.
        """
        if self.kind.device.type == "cpu":  # one product for each kind and hour that occurs
            rows, hours = self.columns.flatten(0, 1), table.shape[1]
            group = (self.kind * hours + hour[:, None]).flatten()
            result = rows.new_empty(len(rows), table.shape[-1])
            for number in torch.unique(group).tolist():
                members = torch.nonzero(group == number)[:, 0]
                result[members] = rows[members] @ table[number // hours, number % hours]
            return result.unflatten(0, self.kind.shape)
        result = self.columns @ table[0, hour]  # all kinds: finding those that occur needs a sync
        for kind in range(1, self.num_kinds):
            members = (self.kind == kind)[..., None]
            result = torch.where(members, self.columns @ table[kind, hour], result)
        return result


class Settled(NamedTuple):
    """What validation has decided for a fitted regression; a refit on more data keeps it.

    Args:
        with_history: penalty of the coefficients at points with history.
        without: at points without history.
        rmse: of the forecast in the validation part, as `LinearForecast.rmse`.
    """

    with_history: Penalty
    without: Penalty
    rmse: Tensor


class LinearForecast(nn.Module):
    """The fitted linear operator. Its numbers are buffers: none is trained by gradients.

    Args:
        time_spec: step, past and horizon of the data.
        channels: of the field.
        kind: "ridge", to be fitted, or "persistence": the newest value of the point, or the
            kriged newest value of its neighbours.
    """

    beta: Tensor
    rmse: Tensor
    spacing: Tensor
    range: Tensor
    nugget: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(self, time_spec: TimeSpec, channels: int, kind: str = "ridge") -> None:
        super().__init__()
        self.time_spec, self.channels, self.kind = time_spec, channels, kind
        self.recent_lags = min(RECENT_LAGS, time_spec.past)
        self.solar_columns = 2 * time_spec.horizon + 1 if time_spec.sunny else 0
        self.own_columns = time_spec.past * channels  # the history, which comes first
        wide = WIDE_FITS * self.recent_lags * channels
        self.num_columns = 2 * self.own_columns + wide + self.solar_columns + 1
        hourly = time_spec.daily and kind == "ridge" and self.num_columns <= MAX_HOURLY_COLUMNS
        self.num_hours = 24 if hourly else 1
        size = (NUM_KINDS, self.num_hours, self.num_columns, time_spec.horizon + 1, channels)
        self.register_buffer("beta", torch.zeros(size, dtype=torch.float64))
        rmse = torch.ones(NUM_KINDS // 2, time_spec.horizon + 1, channels)
        self.register_buffer("rmse", rmse)  # of the forecast at points with history
        for name, value in zip(("spacing", "range", "nugget"), Covariance(1.0), strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.settled: Settled | None = None  # after a fit; before it: a refit, which keeps this
        self.history = History(time_spec, channels)
        self.register_buffer("lower", torch.full((channels,), -UNBOUNDED, dtype=torch.float64))
        self.register_buffer("upper", torch.full((channels,), UNBOUNDED, dtype=torch.float64))
        for channel in range(channels):  # starts as persistence: lag 0 of the history
            self.beta[:, :, channel, :, channel] = 1.0

    @property
    def covariance(self) -> Covariance:
        """The spatial covariance of the field."""
        return Covariance(float(self.spacing), float(self.range), float(self.nugget))

    def set_covariance(self, covariance: Covariance) -> None:
        """Store the spatial covariance of the field.

        Args:
            covariance: as fitted.
        """
        for name, value in covariance._asdict().items():
            getattr(self, name).fill_(value)

    def forward(
        self, batch: Batch, stencil: Stencil
    ) -> Float[Tensor, "batch future query channel"]:
        """The linear forecast at the leads of the batch and the queries of the stencil.

        Args:
            batch: inputs.
            stencil: from nodes to queries.
        """
        return self.forecast(self.regressors(batch, stencil), batch)

    def forecast(
        self, regressors: Regressors, batch: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """The linear forecast at the leads of the batch.

        Args:
            regressors: of the batch.
            batch: inputs.
        """
        return self.interpolate_leads(self.at_trained_leads(regressors, batch), batch)

    def at_trained_leads(
        self, regressors: Regressors, batch: Batch
    ) -> Float64[Tensor, "batch query lead channel"]:
        """The linear forecast at the leads 0, 1, ..., horizon.

        Args:
            regressors: of the batch.
            batch: inputs.
        """
        result = regressors.multiply(self.beta.flatten(3), batch.hour % self.num_hours)
        return result.unflatten(-1, self.beta.shape[3:])

    def interpolate_leads(
        self, at_trained_leads: Float64[Tensor, "batch query lead channel"], batch: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast at the leads of the batch, within the bounds of the data.

        Args:
            at_trained_leads: forecasts.
            batch: gives the leads.
        """
        share = between_leads(batch.lead.double(), self.time_spec.horizon)
        share = share.expand(len(at_trained_leads), -1, -1)
        forecast = torch.einsum("btl,bqld->btqd", share, at_trained_leads)
        return forecast.clamp(self.lower, self.upper).to(batch.frames.dtype)

    @in_float32
    def residual_scale(
        self, regressors: Regressors, batch: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """The RMSE of the linear forecast, by kind of history and lead: the unit of residuals.

        Args:
            regressors: of the batch.
            batch: gives the leads.
        """
        rmse = self.rmse[regressors.kind_with_history]  # batch query lead channel
        share = between_leads(batch.lead, self.time_spec.horizon).expand(len(rmse), -1, -1)
        return torch.einsum("btl,bqld->btqd", share, rmse.to(share.dtype)).clamp(min=1e-6)

    @in_float32
    def solar_elevation(
        self, batch: Batch, stencil: Stencil
    ) -> Float[Tensor, "batch query lead"] | None:
        """The sine of the solar elevation, 0 at night, at the steps around the issue time.

        Args:
            batch: gives the directions of the sun.
            stencil: gives the places of the queries.
        """
        if not self.solar_columns:
            return None
        assert batch.sun is not None and stencil.place is not None  # implied by time_spec.sunny
        return (stencil.place @ batch.sun.transpose(1, 2)).clamp(min=0)

    @in_float32
    def regressors(self, batch: Batch, stencil: Stencil) -> Regressors:
        """[U_g(x, t0 - lag), 1] and the kind of history at every query of the stencil.

        Args:
            batch: inputs.
            stencil: from nodes to queries.
        """
        values, present = self.history(batch)
        weights = stencil_weights(present, stencil, batch.missing_pattern)
        fits = apply_stencil(values[:, : self.recent_lags], weights, stencil)
        first = fits[:, :, :, :2]  # batch query lag fit channel: kriging, narrowest fit
        if self.recent_lags < self.time_spec.past:
            older = apply_stencil(values[:, self.recent_lags :], weights, stencil, 2)
            first = torch.cat([first, older], dim=2)
        kriged, narrow = first[:, :, :, 0], first[:, :, :, 1]
        if present is None:
            present = values.new_ones(len(values), *values.shape[2:], dtype=torch.bool)
        own = pad(present, (0, 0, 0, 1))[:, stencil.own]  # batch query channel
        history = pad(values, (0, 0, 0, 1))[:, :, stencil.own].transpose(1, 2)
        history = torch.where(own[:, :, None], history, kriged)
        shape = (*kriged.shape[:2], self.own_columns + self.num_columns)
        table = torch.ones(shape, dtype=torch.float64, device=kriged.device)  # intercept: 1
        start = 0
        sun = self.solar_elevation(batch, stencil)
        for part in (kriged, history, narrow, fits[:, :, :, 2:], sun):
            if part is not None:  # written in place: these arrays are large
                place = table[..., start : start + part[0, 0].numel()]
                place.unflatten(-1, part.shape[2:]).copy_(part)
                start += place.shape[-1]
        imputed = self._imputed_kind(batch, stencil)
        kind = (~own.any(-1)).long() + (0 if imputed is None else imputed)
        return Regressors(table, self.own_columns, kind, 2 if imputed is None else NUM_KINDS)

    def _imputed_kind(self, batch: Batch, stencil: Stencil) -> Int[Tensor, "batch query"] | None:
        """4 [over twice the usual share of gaps around] + 2 [newest value missing]; None: none."""
        gaps = batch.gaps(self.time_spec.past)
        if gaps is None:
            return None
        many = gaps[:, stencil.index].mean(-1) > 2 * self.history.usual_gaps
        late = pad(batch.late, (0, 1))[:, stencil.own]
        return 4 * many.long() + 2 * late.long()


def stencil_weights(
    present: Bool[Tensor, "batch node channel"] | None,
    stencil: Stencil,
    missing_pattern: MissingPattern,
) -> list[Weights]:
    """The weights of the stencil for all channels; or for each, if different nodes are missing.

    Args:
        present: whether a node has any value; None: every node has.
        stencil: from nodes to queries.
        missing_pattern: of the batch.
    """
    if present is None or missing_pattern.same_channels:
        same = missing_pattern.same_windows[0]
        return [stencil.weights(None if present is None else present[..., 0], same)]
    return [
        stencil.weights(present[..., c].contiguous(), same)
        for c, same in enumerate(missing_pattern.same_windows)
    ]


def apply_stencil(
    values: Float[Tensor, "batch lag node channel"],
    weights: list[Weights],
    stencil: Stencil,
    fits: int = NUM_FITS,
) -> Float[Tensor, "batch query lag fit channel"]:
    """The first fits of the stencil, with the weights of `stencil_weights`.

    Args:
        values: at all nodes, 0 where missing.
        weights: one for all channels, or one for each.
        stencil: from nodes to queries.
        fits: number of fits.
    """
    if len(weights) == 1:
        return stencil.apply(values, weights[0], fits)
    parts = [stencil.apply(values[..., c : c + 1], own, fits) for c, own in enumerate(weights)]
    return torch.cat(parts, dim=-1)
