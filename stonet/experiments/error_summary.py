"""Errors of a trained model by lead, channel, hour of the day, point and window.

A mean hides where errors are large, so they are also kept by everything that can make them differ.
All in the data's own units, on the test part; every target is scored once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float64, Int64

from stonet.calibration.fit import calibrate
from stonet.data.durations import DAY, SECOND
from stonet.data.windows import Windows
from stonet.evaluation.calibrated import PartCorrector
from stonet.evaluation.metrics import METRICS, Statistics
from stonet.evaluation.probabilistic import INTERVAL_METRICS, IntervalStatistics
from stonet.evaluation.scoring import ScoredBatch, empty_statistics, scored_batches
from stonet.experiments.cell import Scores
from stonet.training.budget import TrainingResult
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

HOURS_PER_DAY = 24
HOUR = 3600 * SECOND
NUM_WORST = 5  # points that are named
MAX_POINTS = 300  # up to which the error of each point is kept
DETAILS = ("by_point", "by_hour", "by_window", "worst")


def summarise_errors(
    training: TrainingResult,
    part: str = "test",
    max_windows: int | None = None,
    feedback: bool = False,
) -> Scores:
    """All that is kept of a model's errors at its training points.

    Args:
        training: a trained model with its task.
        part: of the data.
        max_windows: score at most so many windows, evenly spread.
        feedback: also score the forecasts that are corrected by recent errors, and intervals.
    """
    task = training.task
    given, truth = (task.windows(part, scoring_stride(task), raw=raw) for raw in (False, True))
    if max_windows is not None:
        given, truth = given.thin(max_windows), truth.thin(max_windows)
    statistics = empty_statistics(training.trained)
    errors = ErrorAccumulator(truth, len(task.nodes))
    corrected = CorrectedScores.of(training, part) if feedback else None
    for batch in _score(training, given, truth):
        statistics.add(batch.forecast, batch.truth, batch.observed)
        errors.add(batch)
        if corrected is not None:
            corrected.add(given, batch)
    return {
        **metrics_by_lead(statistics, training.trained.channels),
        "units": list(training.trained.units),
        "by_window": errors.by_window(),
        "by_hour": errors.by_hour() if task.time_spec.daily else None,
        "feedback": None if corrected is None else corrected.scores(),
        **_errors_by_point(errors, task),
        "training": vars(training.cost),
    }


def scoring_stride(task: Task) -> int:
    """Frames between scored windows: every target about once, windows at every hour of the day.

    A stride that divides a day would start all windows at a few hours, and each hour of the day
    would always have the same lead.

    Args:
        task: the data.
    """
    stride = task.scoring_stride
    if task.time_spec.daily and task.stride == 1:
        steps_per_day = round(DAY / task.time_spec.step)
        while math.gcd(stride, steps_per_day) > 1:
            stride += 1
    return stride


class CorrectedScores:
    """Scores of forecasts corrected by recent errors, and of their intervals.

    Args:
        corrector: of the model and part.
        trained: gives leads and channels.
    """

    def __init__(self, corrector: PartCorrector, trained: TrainedModel) -> None:
        self.corrector, self.statistics = corrector, empty_statistics(trained)
        self.intervals = IntervalStatistics(trained.time_spec.horizon, len(trained.channels))

    @staticmethod
    def of(training: TrainingResult, part: str) -> CorrectedScores | None:
        """For a trained model; None where nothing can be calibrated.

        Args:
            training: the model and its task.
            part: that is scored.
        """
        trained, task = training.trained, training.task
        calibration = calibrate(trained, task)
        if calibration is None:
            return None
        seen = task.dataset.seen
        corrector = PartCorrector(calibration, trained.model, trained, task, part, seen, seen)
        return CorrectedScores(corrector, trained)

    def add(self, given: Windows, batch: ScoredBatch) -> None:
        """Correct and score some forecasts.

        Args:
            given: windows of the part.
            batch: their forecasts.
        """
        made = batch.forecast.cpu().numpy()
        corrected, quantiles = self.corrector.apply(given, batch.chosen, made)
        self.statistics.add(torch.from_numpy(corrected), batch.truth, batch.observed)
        self.intervals.add(quantiles, batch.truth.numpy(), batch.observed.numpy())

    def scores(self) -> Scores:
        """MAE, RMSE and bias, and the scores of intervals over all leads and channels."""
        scores: Scores = {m: self.statistics.value(m) for m in ("mae", "rmse", "bias")}
        return scores | {m: self.intervals.value(m) for m in INTERVAL_METRICS}


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
