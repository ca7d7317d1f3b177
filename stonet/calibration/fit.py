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
from stonet.calibration.conformal import Calibration, score_quantiles
from stonet.calibration.feedback import Feedback, choose_feedback
from stonet.calibration.online import replay
from stonet.calibration.past_forecasts import Errors
from stonet.calibration.samples import Collector, Sample, Samples
from stonet.calibration.scale import MONTHS, Places, Scale, month_factors
from stonet.calibration.series import independent_windows
from stonet.data.time_spec import TimeSpec
from stonet.models.forecaster import Forecaster
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

SECONDS = 30.0  # that the forecasts of a calibration may take, about
MONTH_WINDOWS = 96  # of the training part, which tell the months apart
ROUNDS = 2  # of fitting scale and quantiles in turn
MAX_ROWS = 2**21  # errors of a channel that are used


def calibrate(
    trained: TrainedModel,
    task: Task,
    model: Forecaster | None = None,
    seconds: float = SECONDS,
) -> Calibration | None:
    """Fit the feedback and the intervals of a model to the validation part.

    Args:
        trained: gives scaler and times.
        task: the data it was trained on.
        model: another model of the same task, such as a baseline (None: the trained one).
        seconds: time that the forecasts may take, about.

    Returns:
        the calibration; None if no error is known in the validation part.

    Example:
        >>> calibrate(trained, task).score_at(0.9)
    """
    collector = Collector(trained.model if model is None else model, trained, task, seconds)
    samples = collector.collect()
    if samples is None or not np.isfinite(samples.validation.errors).any():
        return None
    history = samples.history
    scored = np.flatnonzero(history.weight)
    feedback = choose_feedback(history.errors, samples.earlier[scored], scored)
    month = np.ones((MONTHS, len(trained.channels)))
    if task.time_spec.calendar and task.time_spec.yearly:
        month = month_factors(*collector.monthly_errors(min(MONTH_WINDOWS, collector.windows)))
    issued = samples.validation.times[:, 0] - task.time_spec.step
    return _fit(samples, feedback, month, independent_windows(task, issued), task.time_spec)


def _fit(
    samples: Samples,
    feedback: Feedback,
    month: Float64[np.ndarray, "12 channel"],
    windows: int,
    time_spec: TimeSpec,
) -> Calibration:
    """Scale and quantiles, in turn with the width factors, which depend on both."""
    bins = Bins()
    if samples.without:
        distances = np.concatenate([part.distance for part in samples.without])
        bins = Bins.fit(distances, np.concatenate([part.target for part in samples.without]))
    used = (samples.validation, *(samples.without if bins.points else ()))
    places = [part.places(bins, time_spec) for part in used]
    count = np.array([windows, *bins.points], dtype=np.float64)
    calibration = None
    for _ in range(ROUNDS):
        errors = _relative_errors(samples, used, feedback, calibration, time_spec)
        table = _Table.of(errors, used, places)
        scale = Scale.fit(
            table.error, table.weight, count, errors[0].shape[1], table.lead, table.places, month
        )
        expected = scale.at(table.places, table.lead)
        scores = np.where(expected > 0, table.error / np.where(expected > 0, expected, 1), np.nan)
        quantiles = score_quantiles(scores, table.weight, table.places.bin, bins.points)
        calibration = Calibration(feedback, bins, scale, quantiles, tuple((count - 1).tolist()))
    assert calibration is not None  # ROUNDS > 0
    return calibration


def _relative_errors(
    samples: Samples,
    used: Sequence[Sample],
    feedback: Feedback,
    calibration: Calibration | None,
    time_spec: TimeSpec,
) -> list[Errors]:
    """Absolute errors after feedback, over the width factor."""
    history, bound, scale = samples.history, None, None
    if calibration is not None:
        bound = calibration.bound
        places = history.places(calibration.bins, time_spec)
        leads = np.arange(history.errors.shape[1])[:, None]
        scale = positive(calibration.scale.at(places, leads))
    scored = used[0].row
    known = replay(history.errors, samples.earlier[scored], feedback, scale, bound)
    result = []
    for number, part in enumerate(used):
        row = np.searchsorted(scored, part.row)
        correction = (known.region[:, :, None] if number else known.correction)[row]
        result.append(np.abs(part.errors - correction) / known.factor[row][:, :, None])
    return result


def positive(
    scale: Float64[np.ndarray, "... channel"],
) -> Float32[np.ndarray, "... channel"]:
    """A scale to divide by: NaN where no error is expected, so that such scores are left out."""
    return np.where(scale > 0, scale, np.nan).astype(np.float32)


@dataclass(frozen=True)
class _Table:
    """Errors of all samples, one in a row."""

    error: Float64[np.ndarray, "row channel"]
    weight: Float64[np.ndarray, " row"]
    lead: Int64[np.ndarray, " row"]
    places: Places

    @staticmethod
    def of(errors: Sequence[Errors], used: Sequence[Sample], places: Sequence[Places]) -> _Table:
        """The rows; each forecast has the weight of its sample, whatever the number of points."""
        leads, channels = errors[0].shape[1], errors[0].shape[3]
        weights = [
            np.broadcast_to(part.weight[:, None, None] / error.shape[2], error.shape[:3])
            for part, error in zip(used, errors, strict=True)
        ]
        lead = [np.broadcast_to(np.arange(leads)[:, None], error.shape[:3]) for error in errors]
        total = sum(weight.size for weight in weights)
        chosen = slice(None, None, -(-total // MAX_ROWS))
        columns = (weights, lead, *([getattr(p, name) for p in places] for name in PLACE_NAMES))
        weight, lead_of, *rest = (np.concatenate([a.ravel() for a in c])[chosen] for c in columns)
        error = np.concatenate([e.reshape(-1, channels) for e in errors])[chosen]
        return _Table(error.astype(np.float64), weight, lead_of, Places(*rest))


PLACE_NAMES = ("bin", "hour", "month")
