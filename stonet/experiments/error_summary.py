"""Errors of a trained model by lead, channel, hour of the day, point and window.

A mean hides where errors are large, so they are also kept by everything that can make them differ.
All in the data's own units, on the test part; every target is scored once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data.durations import DAY, SECOND
from stonet.data.windows import Windows
from stonet.evaluation.metrics import METRICS, Statistics
from stonet.evaluation.scoring import ScoredBatch, empty_statistics, scored_batches
from stonet.experiments.cell import Scores
from stonet.training.budget import TrainingResult
from stonet.training.task import Task

HOURS_PER_DAY = 24
HOUR = 3600 * SECOND
NUM_WORST = 5  # points that are named
MAX_POINTS = 300  # up to which the error of each point is kept
DETAILS = ("by_point", "by_hour", "by_window", "worst")


def summarise_errors(
    training: TrainingResult, part: str = "test", max_windows: int | None = None
) -> Scores:
    """All that is kept of a model's errors at its training points.

    Args:
        training: a trained model with its task.
        part: of the data.
        max_windows: score at most so many windows, evenly spread.
    """
    task = training.task
    given, truth = (task.windows(part, task.scoring_stride, raw=raw) for raw in (False, True))
    if max_windows is not None:
        given, truth = given.thin(max_windows), truth.thin(max_windows)
    statistics = empty_statistics(training.trained)
    errors = ErrorAccumulator(truth, len(task.nodes))
    for batch in _score(training, given, truth):
        statistics.add(batch.forecast, batch.truth, batch.observed)
        errors.add(batch)
    return {
        **metrics_by_lead(statistics, training.trained.channels),
        "units": list(training.trained.units),
        "by_window": errors.by_window(),
        **_errors_by_point(errors, task),
        "training": vars(training.cost),
    }


def errors_by_hour(training: TrainingResult, part: str = "test") -> Scores | None:
    """MAE and bias by the hour (UTC) of the target; None for data without a daily cycle.

    Windows start at all hours in turn: with the stride of the other scores, which may divide a day,
    each hour would always have the same lead.

    Args:
        training: a trained model and its task.
        part: "test", "validation" or "train".
    """
    task = training.task
    if not task.time_spec.daily:
        return None
    steps_per_day, stride = round(DAY / task.time_spec.step), task.scoring_stride
    while task.stride == 1 and math.gcd(stride, steps_per_day) > 1:
        stride += 1
    given, truth = (task.windows(part, stride, raw=raw) for raw in (False, True))
    errors = ErrorAccumulator(truth, len(task.nodes))
    for batch in _score(training, given, truth):
        errors.add(batch)
    return errors.by_hour()


def _score(training: TrainingResult, given: Windows, truth: Windows) -> Iterator[ScoredBatch]:
    """Forecasts for all windows at the training points."""
    model, nodes = training.trained.model, training.task.nodes
    return scored_batches(model, training.trained, model.graphs(nodes, nodes), given, truth)


def metrics_by_lead(statistics: Statistics, channels: tuple[str, ...]) -> Scores:
    """Every metric over all leads, at each lead, and of each channel where there are several.

    Args:
        statistics: of one model.
        channels: names.
    """
    leads = range(statistics.sums.shape[1])
    scores: Scores = {metric: statistics.value(metric) for metric in METRICS}
    scores["by_lead"] = {m: [statistics.value(m, lead) for lead in leads] for m in METRICS}
    if len(channels) > 1:
        scores["by_channel"] = {
            name: {m: statistics.value(m, channel=number) for m in METRICS}
            for number, name in enumerate(channels)
        }
    return scores


def without_details(scores: Scores) -> Scores:
    """The scores without those that only a comparison point by point needs.

    Args:
        scores: as `summarise_errors` returns them.
    """
    return {key: value for key, value in scores.items() if key not in DETAILS}


class ErrorAccumulator:
    """Sums and counts of absolute errors by point, window and hour of the target.

    Args:
        truth: windows in the data's units.
        nodes: number of points.
    """

    def __init__(self, truth: Windows, nodes: int) -> None:
        self.truth = truth
        self.point, self.window, self.hour = (
            np.zeros((2, size)) for size in (nodes, len(truth), HOURS_PER_DAY)
        )  # sums, counts
        self.signed = np.zeros(HOURS_PER_DAY)  # sums of errors with their sign, for the bias

    def add(self, batch: ScoredBatch) -> None:
        """Add the errors of some windows.

        Args:
            batch: forecasts of windows of `truth`.
        """
        error = (batch.forecast - batch.truth.double()) * batch.observed
        count = batch.observed.double().sum(-1).numpy()  # window future node
        absolute, signed = (e.sum(-1).numpy() for e in (error.abs(), error))
        hour = self._hours(batch.chosen)
        for row, part in enumerate((absolute, count)):
            self.point[row] += part.sum((0, 1))
            self.window[row, batch.chosen] += part.sum((1, 2))
            np.add.at(self.hour[row], hour, part.sum(2))
        np.add.at(self.signed, hour, signed.sum(2))

    def by_hour(self) -> Scores:
        """MAE and bias by hour of the target; NaN where nothing was observed."""
        return {
            "mae": _ratio(self.hour[0], self.hour[1]).tolist(),
            "bias": _ratio(self.signed, self.hour[1]).tolist(),
        }

    def by_window(self) -> list[float]:
        """MAE of each window in time order, as tests of significance need it."""
        return _ratio(self.window[0], self.window[1]).tolist()

    def by_point(self) -> Float64[np.ndarray, " node"]:
        """MAE of each point."""
        return _ratio(self.point[0], self.point[1])

    def _hours(self, chosen: Int64[np.ndarray, " batch"]) -> Int64[np.ndarray, "batch future"]:
        """Hour of the day of each target."""
        windows, time_spec = self.truth, self.truth.time_spec
        ahead = time_spec.past + np.arange(time_spec.horizon)
        times = windows.times[windows.starts[chosen][:, None] + ahead]
        return times % DAY // HOUR


def _errors_by_point(errors: ErrorAccumulator, task: Task) -> Scores:
    """The MAE of each point (where there are few enough), its quantiles, and the worst points."""
    mae, nodes = errors.by_point(), task.nodes
    worst = np.argsort(np.where(np.isfinite(mae), -mae, np.inf))[:NUM_WORST]
    return {
        "points": len(mae),
        "by_point": [float(f"{e:.4g}") for e in mae] if len(mae) <= MAX_POINTS else None,
        "spread": dict(zip(("median", "p90", "max"), _quantiles(mae), strict=True)),
        "worst": [
            {"name": nodes.names[i], "at": nodes.coordinates[i].tolist(), "mae": float(mae[i])}
            for i in worst.tolist()
        ],
    }


def _ratio(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sums over counts; NaN where nothing was observed."""
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _quantiles(mae: Float64[np.ndarray, " node"]) -> list[float]:
    """Median, 90 % quantile and maximum over the points."""
    finite = mae[np.isfinite(mae)]
    return np.quantile(finite, [0.5, 0.9, 1.0]).tolist() if len(finite) else [float("nan")] * 3
