r"""LinearBase: the closed-form linear operator that the network corrects.

    u(x, t0 + lead) = sum_{lag, g} beta_{lead, hour}(lag, g) U_g(x, t0 - lag) + intercept

U_0 is the point's own past; U_g for g > 0 are values, gradients and Laplacians of local polynomial
fits to the other points' past (stencil.py). beta solves a ridge regression, once pooled and once
for each hour of the day, drawn towards the pooled one; between the fitted leads it is interpolated,
so that any time can be asked. A point without a past uses a second beta, fitted as if points did
not see their own.

The same regressors, whitened, are what the network sees of a point's surroundings: directions in
which they hardly vary (second differences, say) often tell most, and would drown otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.clock import Clock
from stonet.devices import in_float32
from stonet.geometry import Points
from stonet.progress import tell
from stonet.regular import between_leads, interpolate, on_regular_lags
from stonet.ridge import Moments, best_ridge
from stonet.stencil import GROUPS, Stencil, make_stencil, mean_spacing
from stonet.windows import Batch, Silence, Windows, in_batches

MAX_ROWS = 400_000  # of the regression; more windows than that are thinned
ENOUGH = 0.5  # share of rows without a gap from which on the others are left out
FILLS = 4  # rounds of filling gaps and fitting again
WHITENED = 128  # directions kept, those of largest variance
CLOSE = 12  # newest lags at which all fits are seen; before them the narrowest alone
WIDE = GROUPS - 1  # fits beside the narrowest
BOUNDLESS = 1e30  # a bound that none reaches
TORN = 0.25  # share of the inputs that are thought of as filled where pasts are torn
WORK = 4e10  # multiplications that X'X may take; many columns are fitted to fewer rows


@dataclass(frozen=True)
class Look:
    """What the base sees at every query: its regressors, and whether the query has a past."""

    columns: Float64[Tensor, "batch query column"]
    own: Bool[Tensor, "batch query"]
    torn: Bool[Tensor, "batch query"] | None = None  # more gaps were filled than usual; None: none

    def choose(self, own: Sequence[Tensor], far: Sequence[Tensor]) -> Tensor:
        """Of what holds for whole and for torn pasts, with and without an own one, each its own."""
        mine = self.own.view(*self.own.shape, *(1,) * (own[0].dim() - 2))
        picked = torch.where(mine, own[0], far[0])
        if self.torn is None:
            return picked
        return torch.where(self.torn.view(mine.shape), torch.where(mine, own[1], far[1]), picked)

    @property
    def cases(self) -> int:
        """Whether torn pasts are to be thought of."""
        return 1 if self.torn is None else 2


class LinearBase(nn.Module):
    """The fitted operator. Its numbers are buffers: nothing here is trained by gradients.

    Args:
        clock: the data's step, past and horizon.
        channels: of the field.
        kind: "ridge" to be fitted, or "persistence": the last value, or the neighbours' one.
    """

    own_weight: Tensor
    far_weight: Tensor
    own_white: Tensor
    far_white: Tensor
    own_spread: Tensor
    far_spread: Tensor
    spacing: Tensor
    usual: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, clock: Clock, channels: int, kind: str = "ridge") -> None:
        super().__init__()
        self.clock, self.channels, self.kind = clock, channels, kind
        self.hours = 24 if clock.daily and kind == "ridge" else 1
        self.close = min(CLOSE, clock.past)
        self.suns = 2 * clock.horizon + 1 if clock.sunny else 0
        seen = 2 * clock.past + WIDE * self.close
        self.columns = seen * channels + self.suns + 1
        self.width = min(WHITENED, self.columns - 1)  # of what `whitened` gives
        size = (self.hours, clock.horizon + 1, self.columns, channels)
        table = torch.zeros(2, *size, dtype=torch.float64)  # for whole and for torn pasts
        white = torch.zeros(2, self.columns, self.width, dtype=torch.float64)
        self.register_buffer("own_weight", table.clone())  # for points with a past
        self.register_buffer("far_weight", table.clone())  # for points without
        self.register_buffer("own_white", white.clone())  # the last row takes the mean away
        self.register_buffer("far_white", white.clone())
        spread = torch.ones(2, clock.horizon + 1, channels)  # of what the base leaves over
        self.register_buffer("own_spread", spread.clone())
        self.register_buffer("far_spread", spread.clone())
        self.register_buffer("spacing", torch.ones(()))
        self.register_buffer("usual", torch.zeros(()))  # share of inputs that training had to fill
        self.register_buffer("low", torch.full((channels,), -BOUNDLESS, dtype=torch.float64))
        self.register_buffer("high", torch.full((channels,), BOUNDLESS, dtype=torch.float64))
        # persistence: lag 0 of the own past, or of the narrowest fit
        for channel in range(channels):
            self.own_weight[..., channel, channel] = 1.0
            self.far_weight[..., channels + channel, channel] = 1.0

    def forward(
        self, batch: Batch, stencil: Stencil
    ) -> Float[Tensor, "batch future query channel"]:
        """The linear forecast at the asked leads."""
        return self.forecast(self.look(batch, stencil), batch)

    def forecast(self, look: Look, batch: Batch) -> Float[Tensor, "batch future query channel"]:
        """Beta applied to what was seen."""
        between = between_leads(batch.lead.double(), self.clock.horizon)  # rows future knot
        hour = batch.hour % self.hours
        between = between.expand(len(hour), -1, -1)
        own, far = (
            [
                torch.einsum("btl,blcd,bqc->bqtd", between, table[case, hour], look.columns)
                for case in range(look.cases)
            ]
            for table in (self.own_weight, self.far_weight)
        )
        chosen = look.choose(own, far).transpose(1, 2)
        return chosen.clamp(self.low, self.high).to(batch.frames.dtype)

    def whitened(self, look: Look) -> Float64[Tensor, "batch query white"]:
        """The regressors, decorrelated and of order one; without an own past, the neighbours'."""
        own, far = (
            [look.columns @ white[case] for case in range(look.cases)]
            for white in (self.own_white, self.far_white)
        )
        return look.choose(own, far)

    @in_float32
    def scale(self, look: Look, batch: Batch) -> Float[Tensor, "batch future query channel"]:
        """How large what is left over usually is, at these queries and leads."""
        between = between_leads(batch.lead, self.clock.horizon)
        own, far = (
            [(between @ spread[case].to(between.dtype))[:, None] for case in range(look.cases)]
            for spread in (self.own_spread, self.far_spread)
        )
        return look.choose(own, far).clamp(min=1e-6).transpose(1, 2)

    def sun(self, batch: Batch, stencil: Stencil) -> Float[Tensor, "batch query knot"] | None:
        """The sine of the sun's elevation, 0 at night, at whole steps around the issue time."""
        if not self.suns:
            return None
        assert batch.sun is not None and stencil.place is not None  # the clock saw to that
        return (stencil.place @ batch.sun.transpose(1, 2)).clamp(min=0)

    @torch.no_grad()
    @in_float32
    def look(self, batch: Batch, stencil: Stencil) -> Look:
        """[U_g(x, t0 - lag), 1] for every query, and which queries have a past of their own."""
        values, known = on_regular_lags(batch, self.clock)
        around = fitted_around(values[:, : self.close], known, stencil, batch.silence)
        narrow = around[:, :, :, :1]  # batch query lag group channel
        if self.close < self.clock.past:
            older = fitted_around(values[:, self.close :], known, stencil, batch.silence, 1)
            narrow = torch.cat([narrow, older], dim=2)
        own_past = pad(values, (0, 0, 0, 1))[:, :, stencil.own].transpose(1, 2)
        if known is None:
            nodes = values.shape[2]
            own = (stencil.own < nodes).expand(len(values), -1)
        else:  # a channel that a point never observed is what its neighbours make of it
            mine = pad(known, (0, 0, 0, 1))[:, stencil.own]
            own_past = torch.where(mine[:, :, None], own_past, narrow[:, :, :, 0])
            own = mine.any(-1)
        first = torch.cat([own_past[:, :, :, None], narrow], dim=3).flatten(2)
        parts = [first, around[:, :, :, 1:].flatten(2)]
        sun = self.sun(batch, stencil)
        if sun is not None:
            parts.append(sun)
        columns = torch.cat(parts, dim=2)
        return Look(pad(columns, (0, 1), value=1.0).double(), own, self._torn(batch, stencil))

    def _torn(self, batch: Batch, stencil: Stencil) -> Bool[Tensor, "batch query"] | None:
        """Where clearly more of what a query sees had to be filled than in training."""
        gaps = batch.gaps(self.clock.past)
        return None if gaps is None else gaps[:, stencil.index].mean(-1) > 2 * self.usual

    @torch.no_grad()
    def fit(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Solve for the coefficients; ridge and pull are chosen on the validation windows.

        Where most targets have gaps, these are filled with the current forecast and its error at
        the observed leads around them, a few times over. Where nothing was observed, the base
        stays persistence.
        """
        self.spacing.fill_(mean_spacing(nodes))
        self.low.copy_(train.scaler.clip(torch.full_like(self.low, -BOUNDLESS)))
        self.high.copy_(train.scaler.clip(torch.full_like(self.high, BOUNDLESS)))
        stencil = make_stencil(nodes, nodes, float(self.spacing))
        stencil = stencil.to(self.spacing.device, torch.float32)
        few = train.draw(64)
        filled = [few.inputs(i).gaps(self.clock.past) for i in in_batches(few, 8)]
        self.usual.fill_(float(np.mean([0.0 if g is None else float(g.mean()) for g in filled])))
        rounds = FILLS if self._has_gaps(train) else 1
        for _ in range(rounds):
            moments = [
                self._moments(part, stencil, len(nodes), fill=rounds > 1)
                for part in (train, validation)
            ]
            if moments[0].count.sum():
                noise = self._noise(moments[0], stencil)
                self._solve(0, *moments)
                self._solve(1, *(part.blurred(noise) for part in moments))

    def _noise(self, train: Moments, stencil: Stencil) -> Float64[np.ndarray, " column"]:
        """The variance that filled gaps would add to each column, if TORN of all inputs had some.

        A value that is filled from its neighbours in time is wrong by half its second difference,
        the latest one by its last; a fit mixes the errors of its nodes. Gaps often touch: twice it.
        """
        past, channels = self.clock.past, self.channels
        own = np.arange(past)[:, None] * 2 * channels + np.arange(channels)  # columns: lag channel
        before, after = own[np.minimum(np.arange(past) + 1, past - 1)], own[[0, *range(past - 1)]]
        xx = train.xx.sum(0) / max(train.count.sum(), 1.0)
        step = np.zeros((past, channels, len(xx)))
        for columns, weight in ((own, 1.0), (before, -0.5), (after, -0.5)):
            np.add.at(step, (*np.indices(own.shape), columns), weight)
        step[[0, -1]] *= 2  # one neighbour only
        error = 2 * TORN * np.einsum("lca,ab,lcb->lc", step, xx, step)
        mixed = stencil.weight[0].double().square().sum(-1).mean(0).numpy()  # of each group
        noise = np.zeros(len(xx))
        shares = np.array([1.0, mixed[0]])
        noise[: 2 * past * channels] = (error[:, None] * shares[:, None]).ravel()
        wide = error[: self.close, None] * mixed[1:, None]
        noise[2 * past * channels :][: wide.size] = wide.ravel()
        return noise

    def _solve(self, case: int, train: Moments, validation: Moments) -> None:
        """Both sets of coefficients, their errors and the whitening."""
        column = np.arange(self.columns)
        pasts = column < 2 * self.clock.past * self.channels
        from_neighbours = ~pasts | ((column // self.channels) % 2 > 0)
        for table, white, spread, keep in (
            (self.own_weight, self.own_white, self.own_spread, column),
            (self.far_weight, self.far_white, self.far_spread, column[from_neighbours]),
        ):
            kept = [part.take(keep) for part in (train, validation)]
            beta, error, ridge = best_ridge(*kept)
            white[case, keep] = torch.from_numpy(kept[0].whitening(ridge, self.width))
            if self.kind == "ridge":
                table[case].zero_()
                table[case, :, :, keep] = torch.from_numpy(beta).transpose(1, 2)
                spread[case].copy_(torch.from_numpy(np.sqrt(np.maximum(error, 1e-12))))

    def _has_gaps(self, windows: Windows) -> bool:
        """Whether so few rows have all their targets that the others are needed too."""
        some, whole = 0, 0
        few = windows.thin(64)
        for index in np.array_split(np.arange(len(few)), max(1, len(few) // 8)):
            mask = few.targets(index)[1]
            some += int(mask.flatten(3).any(-1).any(1).sum())
            whole += int(mask.all(-1).all(1).sum())
        return whole < ENOUGH * some

    def _moments(self, windows: Windows, stencil: Stencil, nodes: int, fill: bool) -> Moments:
        """X'X, X'Y and Y'Y for every hour of the day."""
        result = Moments.zeros(self.hours, self.columns, self.clock.horizon + 1, self.channels)
        rows = min(MAX_ROWS, int(max(WORK / self.columns**2, 50 * self.columns)))
        for batch, now, target, mask in _regression_batches(windows, nodes, rows):
            look = self.look(batch, stencil)
            y = torch.cat([now[0][:, None], target], dim=1).transpose(1, 2).double()
            seen = torch.cat([now[1][:, None], mask], dim=1).transpose(1, 2)
            if fill:
                usable = look.own & seen[:, :, 1:].flatten(2).any(-1)
                y = self._filled(look, batch, y, seen)
            else:  # whole rows only: one X'X serves every lead
                usable = look.own & seen.flatten(2).all(-1)
            for hour in torch.unique(batch.hour % self.hours).tolist():
                rows = usable & (batch.hour % self.hours == hour)[:, None]
                result.add(hour, look.columns[rows].numpy(), y[rows].numpy())
        return result

    def _filled(
        self,
        look: Look,
        batch: Batch,
        y: Float64[Tensor, "batch query knot channel"],
        seen: Bool[Tensor, "batch query knot channel"],
    ) -> Float64[Tensor, "batch query knot channel"]:
        """Targets with their gaps filled: the forecast plus its error at the leads around."""
        expected = torch.einsum(
            "blcd,bqc->bqld", self.own_weight[0, batch.hour % self.hours], look.columns
        )
        knots = torch.arange(y.shape[2], dtype=y.dtype)
        error = interpolate(
            (y - expected).transpose(1, 2), seen.transpose(1, 2), knots.expand(len(y), -1), knots
        ).transpose(1, 2)
        error = torch.where(seen.any(2, keepdim=True), error, 0.0)
        return torch.where(seen, y, expected + error)


def fitted_around(
    values: Float[Tensor, "batch lag node channel"],
    known: Bool[Tensor, "batch node channel"] | None,
    stencil: Stencil,
    silence: Silence,
    groups: int = GROUPS,
) -> Float[Tensor, "batch query lag group channel"]:
    """The stencil's first fits; channel by channel where they are not known at the same nodes."""
    if known is None or silence.same_channels:
        alike = silence.same_windows[0]
        return stencil.apply(values, None if known is None else known[..., 0], alike, groups)
    fits = [
        stencil.apply(values[..., c : c + 1], known[..., c].contiguous(), alike, groups)
        for c, alike in enumerate(silence.same_windows)
    ]
    return torch.cat(fits, dim=-1)


def _regression_batches(
    windows: Windows, nodes: int, rows: int
) -> Iterator[tuple[Batch, tuple[Tensor, Tensor], Tensor, Tensor]]:
    """Windows by the dozen, with the values at the issue time and after it."""
    chosen = windows.draw(max(64, rows // nodes))
    size = max(1, 16_384 // nodes)
    for start in range(0, len(chosen), size):
        tell(start, len(chosen))
        index = np.arange(start, min(start + size, len(chosen)))
        yield (
            chosen.inputs(index),
            chosen.at(chosen.starts[index] + chosen.clock.past - 1),
            *chosen.targets(index),
        )
