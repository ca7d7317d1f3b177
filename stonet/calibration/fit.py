"""Fit a Calibration to a model's forecasts of the validation part.

The validation part has also chosen the weights of the best step, so that errors there are slightly
too small; no other part is left. Recent windows count more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.calibration.bins import Bins
from stonet.calibration.conformal import LEVELS, Calibration, Intervals, score_quantiles
from stonet.calibration.feedback import Feedback, choose_feedback
from stonet.calibration.online import TRACKED, replay
from stonet.calibration.samples import Collector, Sample, Samples
from stonet.calibration.scale import MONTHS, Places, Scale, month_factors
from stonet.models.forecaster import Forecaster
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

MONTH_WINDOWS = 96  # of the training part, which tell the months apart
MIDDLE = TRACKED.index(0.9)  # of the levels, whose factors scales are fitted with
ROUNDS = 2  # of fitting scale and quantiles in turn
MAX_ROWS = 2**21  # errors of a channel that are used

SampleErrors = Float32[np.ndarray, "_ lead _ channel"]  # (issue, lead, point, channel)


def calibrate(
    trained: TrainedModel, task: Task, model: Forecaster | None = None
) -> Calibration | None:
    """Fit the feedback and the intervals of a model to the validation part.

    Args:
        trained: gives scaler and times.
        task: the data it was trained on.
        model: another model of the same task, such as a baseline (None: the trained one).

    Returns:
        the calibration; None if no error is known in the validation part.

    Example:
        >>> calibrate(trained, task).corrected.score_at(0.9)
    """
    collector = Collector(trained.model if model is None else model, trained, task)
    samples = collector.collect()
    if samples is None or not np.isfinite(samples.validation.errors).any():
        return None
    history = samples.history
    scored = np.flatnonzero(history.weight)
    feedback = choose_feedback(history.errors, samples.earlier[scored], scored)
    month = np.ones((MONTHS, len(trained.channels)))
    if task.time_spec.calendar and task.time_spec.yearly:
        month = month_factors(*collector.monthly_errors(min(MONTH_WINDOWS, collector.windows)))
    fitter = _Fitter(samples, month, task)
    uncorrected = fitter.fit(Feedback.none(len(trained.channels)))
    corrected = fitter.fit(feedback) if feedback.active else uncorrected
    return Calibration(feedback, fitter.bins, corrected, uncorrected)


class _Fitter:
    """Fits intervals to samples, with feedback or without."""

    def __init__(
        self, samples: Samples, month: Float64[np.ndarray, "12 channel"], task: Task
    ) -> None:
        self.samples, self.month, self.time_spec = samples, month, task.time_spec
        self.bins = Bins()
        if samples.without:
            distances = np.concatenate([part.distance for part in samples.without])
            targets = np.concatenate([part.target for part in samples.without])
            self.bins = Bins.fit(distances, targets)
        self.used = (samples.validation, *(samples.without if self.bins.points else ()))
        self.places = [part.places(self.bins, task.time_spec) for part in self.used]
        # One window has one weather, however many points lie in it.
        sizes = [samples.windows, *(min(n, samples.windows) for n in self.bins.points)]
        self.count = np.array(sizes, dtype=np.float64)

    def fit(self, feedback: Feedback) -> Intervals:
        """Scale and quantiles, in turn with the width factors, which depend on both."""
        intervals = None
        for _ in range(ROUNDS):
            by_level = self._relative_errors(feedback, intervals)
            errors = by_level[min(MIDDLE, len(by_level) - 1)][0]
            table = _Table.of(errors, self.used, self.places)
            leads, places = errors[0].shape[1], table.places
            scale = Scale.fit(
                table.error, table.weight, self.count, leads, table.lead, places, self.month
            )
            expected = scale.at(places, table.lead)
            expected = np.where(expected > 0, expected, np.nan)
            parts = [
                score_quantiles(
                    table.stacked(errors) / expected,
                    table.weight,
                    places.bin,
                    self.bins.points,
                    levels,
                )
                for errors, levels in by_level
            ]
            quantiles = np.maximum.accumulate(np.concatenate(parts, axis=1), axis=1)
            intervals = Intervals(scale, quantiles, tuple((self.count - 1).tolist()))
        assert intervals is not None  # ROUNDS > 0
        return intervals

    def _relative_errors(
        self, feedback: Feedback, intervals: Intervals | None
    ) -> list[tuple[list[SampleErrors], Float64[np.ndarray, " level"]]]:
        """Absolute errors after feedback, over the width factor of the level; and these levels."""
        history, bounds, scale = self.samples.history, None, None
        if intervals is not None:
            bounds = intervals.bounds
            places = history.places(self.bins, self.time_spec)
            leads = np.arange(history.errors.shape[1])[:, None]
            scale = positive(intervals.scale.at(places, leads))
        scored = self.used[0].row
        earlier = self.samples.earlier[scored]
        known = replay(history.errors, earlier, feedback, scale, bounds)
        corrected, rows = [], []
        for number, part in enumerate(self.used):
            row = np.searchsorted(scored, part.row)
            correction = (known.region[:, :, None] if number else known.correction)[row]
            corrected.append(np.abs(part.errors - correction))
            rows.append(row)
        if intervals is None:
            return [(corrected, LEVELS)]
        nearest = np.abs(LEVELS[:, None] - np.array(TRACKED)).argmin(1)
        return [
            (
                [e / factor[row][:, :, None] for e, row in zip(corrected, rows, strict=True)],
                LEVELS[nearest == number],
            )
            for number, factor in enumerate(known.factors)
        ]


def positive(
    scale: Float64[np.ndarray, "... channel"],
) -> Float32[np.ndarray, "... channel"]:
    """A scale to divide by: NaN where no error is expected, so that such scores are left out.

    Args:
        scale: expected absolute errors.
    """
    return np.where(scale > 0, scale, np.nan).astype(np.float32)


@dataclass(frozen=True)
class _Table:
    """Errors of all samples, one in a row.

    Args:
        error: absolute.
        weight: of each.
        lead: of each, from 0.
        places: of each.
        every: only one of so many errors has a row.
    """

    error: Float64[np.ndarray, "row channel"]
    weight: Float64[np.ndarray, " row"]
    lead: Int64[np.ndarray, " row"]
    places: Places
    every: int

    @staticmethod
    def of(
        errors: Sequence[SampleErrors], used: Sequence[Sample], places: Sequence[Places]
    ) -> _Table:
        """The rows; each forecast has the weight of its sample, whatever the number of points."""
        leads = errors[0].shape[1]
        weights = [
            np.broadcast_to(part.weight[:, None, None] / error.shape[2], error.shape[:3])
            for part, error in zip(used, errors, strict=True)
        ]
        lead = [np.broadcast_to(np.arange(leads)[:, None], error.shape[:3]) for error in errors]
        every = -(-sum(weight.size for weight in weights) // MAX_ROWS)
        columns = (weights, lead, *([getattr(p, name) for p in places] for name in PLACE_NAMES))
        weight, lead_of, *rest = (np.concatenate([a.ravel() for a in c])[::every] for c in columns)
        return _Table(_stacked(errors, every), weight, lead_of, Places(*rest), every)

    def stacked(self, errors: Sequence[SampleErrors]) -> Float64[np.ndarray, "row channel"]:
        """Other errors of the same samples, in the order of the rows."""
        return _stacked(errors, self.every)


def _stacked(errors: Sequence[SampleErrors], every: int) -> Float64[np.ndarray, "row channel"]:
    """One error in each row, of every so many."""
    flat = [error.reshape(-1, error.shape[3]) for error in errors]
    return np.concatenate(flat)[::every].astype(np.float64)


PLACE_NAMES = ("bin", "hour", "month")
