r"""LinearForecast: the closed-form linear operator that the network corrects.

    u(x, t0 + lead) = sum_{lag, g} beta_{lead, hour}(lag, g) U_g(x, t0 - lag) + intercept

U_0 is the point's own past; U_g for g > 0 are values, gradients and Laplacians of local polynomial
fits to the other points' past (stencil.py). beta solves a ridge regression, once pooled and once
for each hour of the day, drawn towards the pooled one; between the fitted leads it is interpolated,
so that any time can be asked. At a point without a past U_0 is kriged from the others'
(covariance.py), and beta is another; so it is for pasts with more gaps than usual, which are filled
first, as odd times are moved (filling.py). linear_fit.py finds all of them.

The same regressors, whitened, are what the expert sees of a point's surroundings: directions in
which they hardly vary (second differences, say) often tell most, and would drown otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.data.batch import Batch, MissingPattern
from stonet.data.resampling import between_leads
from stonet.data.time_spec import TimeSpec
from stonet.linear.imputation import fill_gaps, random_walk, resample
from stonet.linear.kriging import Covariance
from stonet.linear.local_polynomials import NUM_REGRESSORS, Stencil, Weights
from stonet.system.devices import in_float32

WHITENED = 128  # directions kept, those of largest variance
CLOSE = 12  # newest lags at which all fits are seen; before them the narrowest alone
WIDE = NUM_REGRESSORS - 2  # fits beside kriging and the narrowest
HOURLY = 600  # columns up to which every hour has coefficients of its own
BOUNDLESS = 1e30  # a bound that none reaches
TORN = (0.0, 0.2)  # share of the inputs that count as filled: as in training, in torn pasts
KINDS = 4 * len(TORN)  # of pasts: all there, no own one, newest value missing, no own one either


@dataclass(frozen=True)
class Regressors:
    """What the base sees at every query: its regressors, and what kind of past the query has."""

    seen: Float64[Tensor, "batch query seen"]  # what stands in for an own past; the regressors
    block: int  # so many stand in for the first regressors
    kind: Int[Tensor, "batch query"]  # 4 torn + 2 newest missing + no own past
    kinds: int = KINDS  # that there may be

    @property
    def columns(self) -> Float64[Tensor, "batch query column"]:
        """The regressors."""
        return self.seen[..., self.block :]

    @property
    def stand_in(self) -> Float64[Tensor, "batch query block"]:
        """What the first of them are without an own past."""
        return self.seen[..., : self.block]

    @property
    def own(self) -> Bool[Tensor, "batch query"]:
        """Whether a query has a past."""
        return self.kind % 2 == 0

    @property
    def as_own(self) -> Int[Tensor, "batch query"]:
        """2 torn + newest missing, which nothing is where others stand in for a past."""
        return torch.where(self.own, self.kind, self.kind // 4 * 4) // 2

    def without_history(self, silent: Bool[Tensor, "batch query"]) -> Regressors:
        """As if these queries had no past of their own."""
        seen, first = self.seen.clone(), slice(self.block, 2 * self.block)
        seen[..., first] = torch.where(silent[..., None], self.stand_in, seen[..., first])
        kind = torch.where(silent, self.kind | 1, self.kind)
        return replace(self, seen=seen, kind=kind)

    def times(
        self, table: Float64[Tensor, "kind hour column out"], hour: Int[Tensor, " batch"]
    ) -> Float64[Tensor, "batch query out"]:
        """Every query's regressors by the matrix of its own kind of past and hour."""
        if self.kind.device.type == "cpu":  # the rows of a kind and hour at once
            rows, hours = self.columns.flatten(0, 1), table.shape[1]
            group = (self.kind * hours + hour[:, None]).flatten()
            result = rows.new_empty(len(rows), table.shape[-1])
            for one in torch.unique(group).tolist():
                mine = torch.nonzero(group == one)[:, 0]
                result[mine] = rows[mine] @ table[one // hours, one % hours]
            return result.unflatten(0, self.kind.shape)
        result = self.columns @ table[0, hour]  # a GPU is not asked which occur
        for kind in range(1, self.kinds):
            mine = (self.kind == kind)[..., None]
            result = torch.where(mine, self.columns @ table[kind, hour], result)
        return result


class LinearForecast(nn.Module):
    """The fitted operator. Its numbers are buffers: nothing here is trained by gradients.

    Args:
        time_spec: the data's step, past and horizon.
        channels: of the field.
        kind: "ridge" to be fitted, or "persistence": the last value, or the neighbours' one.
    """

    beta: Tensor
    white: Tensor
    spread: Tensor
    spacing: Tensor
    range: Tensor
    nugget: Tensor
    past_mean: Tensor
    past_covariance: Tensor
    usual: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, time_spec: TimeSpec, channels: int, kind: str = "ridge") -> None:
        super().__init__()
        self.time_spec, self.channels, self.kind = time_spec, channels, kind
        self.close = min(CLOSE, time_spec.past)
        self.suns = 2 * time_spec.horizon + 1 if time_spec.sunny else 0
        self.block = time_spec.past * channels  # own past, which comes first
        self.columns = 2 * self.block + WIDE * self.close * channels + self.suns + 1
        self.width = min(WHITENED, self.columns - 1)  # of what `whitened` gives
        hourly = time_spec.daily and kind == "ridge" and self.columns <= HOURLY
        self.hours = 24 if hourly else 1  # that have coefficients of their own
        size = (KINDS, self.hours, self.columns, time_spec.horizon + 1, channels)
        self.register_buffer("beta", torch.zeros(size, dtype=torch.float64))
        white = torch.zeros(KINDS // 2, self.columns, self.width, dtype=torch.float64)
        self.register_buffer("white", white)  # the last row takes the mean away
        spread = torch.ones(KINDS // 2, time_spec.horizon + 1, channels)
        self.register_buffer("spread", spread)  # of what the base leaves over, given a past
        for name, value in zip(("spacing", "range", "nugget"), Covariance(1.0), strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.register_buffer("past_mean", torch.zeros(self.block, dtype=torch.float64))
        self.register_buffer("past_covariance", random_walk(time_spec.past, channels))
        self.register_buffer("usual", torch.zeros(()))  # share of inputs that training had to fill
        self.register_buffer("low", torch.full((channels,), -BOUNDLESS, dtype=torch.float64))
        self.register_buffer("high", torch.full((channels,), BOUNDLESS, dtype=torch.float64))
        for channel in range(channels):  # persistence: lag 0 of the past, or what stands in for it
            self.beta[:, :, channel, :, channel] = 1.0

    @property
    def covariance(self) -> Covariance:
        """How the field varies over the points."""
        return Covariance(float(self.spacing), float(self.range), float(self.nugget))

    def set_covariance(self, covariance: Covariance) -> None:
        """Remember it."""
        for name, value in covariance._asdict().items():
            getattr(self, name).fill_(value)

    def forward(
        self, batch: Batch, stencil: Stencil
    ) -> Float[Tensor, "batch future query channel"]:
        """The linear forecast at the asked leads."""
        return self.forecast(self.regressors(batch, stencil), batch)

    def forecast(
        self, regressors: Regressors, batch: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """Beta applied to what was seen, at the asked leads."""
        return self.between(self.at_trained_leads(regressors, batch), batch)

    def at_trained_leads(
        self, regressors: Regressors, batch: Batch
    ) -> Float64[Tensor, "batch query knot channel"]:
        """Beta applied to what was seen, at the leads 0, 1, ..., horizon."""
        told = regressors.times(self.beta.flatten(3), batch.hour % self.hours)
        return told.unflatten(-1, self.beta.shape[3:])

    def between(
        self, at_trained_leads: Float64[Tensor, "batch query knot channel"], batch: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """Interpolated to the asked leads, within the data's bounds."""
        share = between_leads(batch.lead.double(), self.time_spec.horizon).expand(
            len(at_trained_leads), -1, -1
        )
        asked = torch.einsum("btl,bqld->btqd", share, at_trained_leads)
        return asked.clamp(self.low, self.high).to(batch.frames.dtype)

    def whitened(self, regressors: Regressors) -> Float64[Tensor, "batch query white"]:
        """The regressors, decorrelated and of order one; what stands in for a past as one."""
        regressors = replace(regressors, kind=regressors.as_own, kinds=(regressors.kinds + 1) // 2)
        return regressors.times(
            self.white[:, None], regressors.kind.new_zeros(len(regressors.kind))
        )

    @in_float32
    def scale(
        self, regressors: Regressors, batch: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """How large what is left over usually is, at these queries and leads."""
        usual = self.spread[regressors.as_own]  # batch query knot channel
        between = between_leads(batch.lead, self.time_spec.horizon).expand(len(usual), -1, -1)
        return torch.einsum("btl,bqld->btqd", between, usual.to(between.dtype)).clamp(min=1e-6)

    @in_float32
    def sun(self, batch: Batch, stencil: Stencil) -> Float[Tensor, "batch query knot"] | None:
        """The sine of the sun's elevation, 0 at night, at whole steps around the issue time."""
        if not self.suns:
            return None
        assert batch.sun is not None and stencil.place is not None  # the time_spec saw to that
        return (stencil.place @ batch.sun.transpose(1, 2)).clamp(min=0)

    @torch.no_grad()
    @in_float32
    def regressors(self, batch: Batch, stencil: Stencil) -> Regressors:
        """[U_g(x, t0 - lag), 1] for every query, and which kind of past it has."""
        values, known = self.pasts(batch)
        weights = weights_around(known, stencil, batch.missing_pattern)
        around = fitted_around(values[:, : self.close], weights, stencil)
        first = around[:, :, :, :2]  # batch query lag group channel: kriged, narrowest fit
        if self.close < self.time_spec.past:
            older = fitted_around(values[:, self.close :], weights, stencil, 2)
            first = torch.cat([first, older], dim=2)
        kriged, narrow = first[:, :, :, 0], first[:, :, :, 1]
        if known is None:
            known = values.new_ones(len(values), *values.shape[2:], dtype=torch.bool)
        mine = pad(known, (0, 0, 0, 1))[:, stencil.own]  # batch query channel
        own_past = pad(values, (0, 0, 0, 1))[:, :, stencil.own].transpose(1, 2)
        own_past = torch.where(mine[:, :, None], own_past, kriged)
        shape = (*kriged.shape[:2], self.block + self.columns)
        seen = torch.ones(shape, dtype=torch.float64, device=kriged.device)  # the last one stays 1
        start = 0
        for part in (kriged, own_past, narrow, around[:, :, :, 2:], self.sun(batch, stencil)):
            if part is not None:  # written once, where it belongs: these are large
                place = seen[..., start : start + part[0, 0].numel()]
                place.unflatten(-1, part.shape[2:]).copy_(part)
                start += place.shape[-1]
        torn = self._torn(batch, stencil)
        kind = (~mine.any(-1)).long() + (0 if torn is None else torn)
        return Regressors(seen, self.block, kind, 2 if torn is None else KINDS)

    def pasts(
        self, batch: Batch
    ) -> tuple[Float[Tensor, "batch lag node channel"], Bool[Tensor, "batch node channel"] | None]:
        """Every node's past at whole steps, the newest first; and who has one (None: all)."""
        values, told = batch.frames[batch.past], (self.past_mean, self.past_covariance)
        known = batch.known if batch.missing_pattern.some else None
        odd = batch.odd(self.time_spec.past).expand(len(values))
        if not odd.any() and not batch.missing_pattern.gaps:
            return values.flip(1), known
        seen = batch.seen[batch.past]
        if odd.all() or (odd.any() and values.device.type != "cpu"):
            result = resample(values, seen, batch.lag, *told)
        else:
            result, lag = fill_gaps(values.flip(1), seen.flip(1), *told), batch.lag
            if odd.any():  # moving takes longer
                result[odd] = resample(values[odd], seen[odd], lag[odd], *told)
        return result if known is None else result * known[:, None], known

    def _torn(self, batch: Batch, stencil: Stencil) -> Int[Tensor, "batch query"] | None:
        """4 where clearly more of what is seen was filled than in training, 2 where the newest."""
        gaps = batch.gaps(self.time_spec.past)
        if gaps is None:
            return None
        torn = gaps[:, stencil.index].mean(-1) > 2 * self.usual
        late = pad(batch.late, (0, 1))[:, stencil.own]
        return 4 * torn.long() + 2 * late.long()


def weights_around(
    known: Bool[Tensor, "batch node channel"] | None,
    stencil: Stencil,
    missing_pattern: MissingPattern,
) -> list[Weights]:
    """One for all channels; one for each where they are not known at the same nodes."""
    if known is None or missing_pattern.same_channels:
        alike = missing_pattern.same_windows[0]
        return [stencil.weights(None if known is None else known[..., 0], alike)]
    return [
        stencil.weights(known[..., c].contiguous(), alike)
        for c, alike in enumerate(missing_pattern.same_windows)
    ]


def fitted_around(
    values: Float[Tensor, "batch lag node channel"],
    weights: list[Weights],
    stencil: Stencil,
    groups: int = NUM_REGRESSORS,
) -> Float[Tensor, "batch query lag group channel"]:
    """The stencil's first fits; channel by channel where each has weights of its own."""
    if len(weights) == 1:
        return stencil.apply(values, weights[0], groups)
    fits = [stencil.apply(values[..., c : c + 1], mine, groups) for c, mine in enumerate(weights)]
    return torch.cat(fits, dim=-1)
