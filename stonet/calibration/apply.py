"""Apply a calibration: correct forecasts by the errors known at their issue time; their quantiles.

Both depend on the observations up to the issue time only, so that a forecast is the same in
`predict`, in a hindcast, in a stream and in an evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from stonet.calibration.bins import distance_to_observed
from stonet.calibration.conformal import Calibration, Intervals, interval_levels
from stonet.calibration.feedback import Feedback
from stonet.calibration.online import KnownErrors, replay
from stonet.calibration.past_forecasts import Issues, PastForecasts
from stonet.calibration.scale import Places, day_phases, months
from stonet.data.geometry import Points
from stonet.graph.neighbours import own_nodes

MAX_AGE = 1.5  # of inputs, in trained past lengths, as in `stonet.inference.forecast`
MAX_ERRORS = 2**22  # of all points and issue times, replayed together

Values = Float64[np.ndarray, "issue lead query channel"]  # in the data's units
Quantiles = Float64[np.ndarray, "quantile issue lead query channel"]


@dataclass(frozen=True)
class Request:
    """What is forecast: from which frames, where and when.

    Args:
        issues: positions of the newest frames, in the field of the past forecasts.
        queries: points of the forecast.
        times: of the forecast, in nanoseconds.
    """

    issues: Issues
    queries: Points
    times: Int64[np.ndarray, "issue lead"]

    def part(self, chosen: slice) -> Request:
        """Some of the issue times.

        Args:
            chosen: of the issue times.
        """
        return Request(self.issues[chosen], self.queries, self.times[chosen])


class Corrector:
    """Corrections and intervals of one model's forecasts among given nodes.

    Args:
        calibration: of the model.
        past: its forecasts at the nodes, from the history of these nodes.
        feedback: whether forecasts are corrected by recent errors.

    Example:
        >>> corrector = Corrector(calibration, PastForecasts(model, trained, field))
        >>> corrected, quantiles = corrector.apply(values, request, [0.05, 0.95])
    """

    def __init__(
        self, calibration: Calibration, past: PastForecasts, feedback: bool = True
    ) -> None:
        self.calibration, self.past = calibration, past
        self.trained, self.nodes = past.trained, past.field.points.take(past.nodes)
        none = Feedback.none(len(self.trained.channels))
        self.feedback = calibration.feedback if feedback else none
        self.intervals = calibration.corrected if feedback else calibration.uncorrected
        self._last: tuple[Issues, KnownErrors, Bool[np.ndarray, " issue"]] | None = None

    def apply(
        self, values: Values, request: Request, quantiles: Sequence[float] = ()
    ) -> tuple[Values, Quantiles | None]:
        """Corrected forecasts and their quantiles, within the physical range.

        Args:
            values: forecasts of the model, in the data's units.
            request: what they are forecasts of.
            quantiles: increasing numbers such as 0.05, 0.5, 0.95; quantile 0.5 is the forecast.

        Returns:
            the corrected forecasts; the quantiles (None without any), NaN where no interval can
            be given.
        """
        levels = interval_levels(quantiles) if len(quantiles) else np.zeros(0)
        size = self.past.trained.time_spec.horizon * len(self.nodes) * values.shape[-1]
        rows = max(1, MAX_ERRORS // size)
        corrected, ends = [], []
        for start in range(0, len(values), rows):
            part = slice(start, start + rows)
            known, any_known = self._known(request.part(part))
            shown = self._correct(values[part], request.part(part), known)
            corrected.append(shown)
            if len(quantiles):
                radius = self._radius(levels, request.part(part), known, any_known)
                sign = np.sign(np.asarray(quantiles) - 0.5)[:, None, None, None, None]
                moved = np.where(sign == 0, 0.0, sign * radius)  # the median is the forecast
                ends.append(self._within(shown + moved))
        together = np.concatenate(corrected) if corrected else values
        return together, np.concatenate(ends, axis=1) if ends else None

    def _known(self, request: Request) -> tuple[KnownErrors, Bool[np.ndarray, " issue"]]:
        """What the earlier forecasts tell, and whether there are any; the last answer is kept."""
        if self._last is None or not np.array_equal(self._last[0], request.issues):
            self._last = request.issues, *self._replayed(request)
        return self._last[1:]

    def _replayed(self, request: Request) -> tuple[KnownErrors, Bool[np.ndarray, " issue"]]:
        """The same, computed."""
        past, horizon = self.past, self.trained.time_spec.horizon
        earlier = past.earlier(request.issues)
        everything = np.unique(earlier[earlier >= 0])
        rows = np.where(earlier >= 0, np.searchsorted(everything, earlier), -1)
        any_known = np.asarray((earlier >= 0).any(axis=1))
        errors = past.errors(everything)
        times = past.field.times[everything][:, None]
        times = times + self.trained.time_spec.step * np.arange(1, horizon + 1)
        hour = day_phases(self.trained.time_spec, times, past.points)
        month = months(self.trained.time_spec, times)[:, :, None]
        places = Places(np.zeros(1, dtype=np.int64), hour, month)
        scale = self.intervals.scale.at(places, np.arange(horizon)[:, None])
        scale = np.where(scale > 0, scale, np.nan).astype(np.float32)
        bounds = self.intervals.bounds
        if not np.isfinite(bounds).all():  # no intervals, hence no adaptation
            return replay(errors, rows, self.feedback), any_known
        return replay(errors, rows, self.feedback, scale, bounds), any_known

    def _correct(self, values: Values, request: Request, known: KnownErrors) -> Values:
        """The forecasts with their corrections."""
        own = own_nodes(request.queries, self.nodes)
        everywhere = np.concatenate([known.correction, known.region[:, :, None]], axis=2)
        correction = self._at_leads(everywhere[:, :, own], request)
        return self._within(values + correction)

    def _radius(
        self,
        levels: Float64[np.ndarray, " level"],
        request: Request,
        known: KnownErrors,
        any_known: Bool[np.ndarray, " issue"],
    ) -> Quantiles:
        """Half the widths of central intervals."""
        observed = self._observed(request.issues)
        distance = distance_to_observed(self.nodes, request.queries, observed)
        weights = self.calibration.bins.weights(distance)
        hour = day_phases(self.trained.time_spec, request.times, request.queries)
        month = months(self.trained.time_spec, request.times)
        steps = self._steps(request)[0]
        factors = [self._at_leads(known.factor(level)[:, :, None], request) for level in levels]
        result = np.empty((len(levels), *hour.shape, len(self.trained.channels)))
        for chosen, intervals in (
            (any_known, self.intervals),
            (~any_known, self.calibration.uncorrected),
        ):
            if not chosen.any():
                continue
            part = weights[chosen]
            scale = intervals.scale.between(part, steps, hour[chosen], month[chosen])
            for number, level in enumerate(levels):
                score = np.einsum("iqb,bc->iqc", part, _filled(intervals, level))
                missing = np.einsum("iqb,bc->iqc", part, _missing(intervals, level)) > 0
                score = np.where(missing, np.nan, score)[:, None]
                result[number][chosen] = score * scale * factors[number][chosen]
        return _increasing(result, levels)

    def _observed(self, issues: Issues) -> Bool[np.ndarray, "issue node"]:
        """Whether a node has any value in the window of an issue time."""
        field, time_spec = self.past.field, self.trained.time_spec
        age = int(MAX_AGE * time_spec.past * time_spec.step)
        rows = []
        for issue in issues.tolist():
            first = int(np.searchsorted(field.times, field.times[issue] - age, side="right"))
            window = slice(max(first, issue + 1 - time_spec.past), issue + 1)
            rows.append(np.asarray(field.observed[window].any(axis=(0, 2)))[self.past.nodes])
        return np.stack(rows)

    def _at_leads(
        self, trained: Float32[np.ndarray, "issue lead any channel"], request: Request
    ) -> Float64[np.ndarray, "issue future any channel"]:
        """Values at the trained leads, at those of the request; constant beyond the ends."""
        steps, leads = self._steps(request), trained.shape[1]
        if steps.shape[1] == leads and np.abs(steps - np.arange(1, leads + 1)).max() < 1e-3:
            return trained.astype(np.float64)
        place = np.interp(steps[0], np.arange(1, leads + 1), np.arange(leads))
        lower = np.floor(place).astype(np.int64)
        share = (place - lower)[:, None, None]
        upper = np.minimum(lower + 1, leads - 1)
        return (1 - share) * trained[:, lower] + share * trained[:, upper]

    def _steps(self, request: Request) -> Float64[np.ndarray, "issue lead"]:
        """The leads in steps; all issue times have the same."""
        issued = self.past.field.times[request.issues][:, None]
        return (request.times - issued) / self.trained.time_spec.step

    def _within(self, values: np.ndarray) -> np.ndarray:
        """The values within the physical range."""
        return self.trained.scaler.within(values)


def _increasing(radius: Quantiles, levels: Float64[np.ndarray, " level"]) -> Quantiles:
    """The same, where no interval is wider than one of a higher level."""
    order = np.argsort(levels, kind="stable")
    radius[order] = np.maximum.accumulate(radius[order], axis=0)
    return radius


def _filled(intervals: Intervals, level: float) -> Float64[np.ndarray, "bin channel"]:
    """The scores at a level, 0 in bins without intervals."""
    return np.nan_to_num(intervals.score_at(level))


def _missing(intervals: Intervals, level: float) -> Float64[np.ndarray, "bin channel"]:
    """1 in bins without intervals."""
    return (~np.isfinite(intervals.score_at(level))).astype(np.float64)
