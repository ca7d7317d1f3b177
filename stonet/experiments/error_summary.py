"""What is kept of a model's errors: by lead, channel, hour of the day, point and window.

A mean hides things: errors are also kept apart by everything that can make them differ. All in the
data's own units, on the test part, every target once.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data.durations import DAY, SECOND
from stonet.data.windows import Windows
from stonet.evaluation.metrics import METRICS, Statistics
from stonet.evaluation.scoring import ScoredBatch, empty_statistics, scored_batches
from stonet.experiments.cell import Scores
from stonet.training.budget import TrainingResult
from stonet.training.task import Task

HOURS = 24
WORST = 5  # points that are named
MANY = 300  # points up to which each one's error is kept


def errors_of(trained: TrainingResult, part: str = "test", most: int | None = None) -> Scores:
    """All that is kept of a trained model's errors at the points that it was trained on.

    With `most`, at most so many windows are scored, evenly spread.
    """
    run, task = trained.trained, trained.task
    given, truth = (task.windows(part, task.scoring_stride, raw=raw) for raw in (False, True))
    if most is not None:
        given, truth = given.thin(most), truth.thin(most)
    statistics, tally = empty_statistics(run), ErrorAccumulator(truth, len(task.nodes))
    for answer in scored_batches(
        run.model, run, run.model.graphs(task.nodes, task.nodes), given, truth
    ):
        statistics.add(answer.forecast, answer.truth, answer.observed)
        tally.add(answer)
    return {
        **by_lead(statistics, run.channels),
        "units": list(run.units),
        "by_window": tally.by_window(),
        **_by_point(tally, task),
        "training": vars(trained.cost),
    }


def hourly(trained: TrainingResult, part: str = "test") -> Scores | None:
    """MAE and bias by the hour (UTC) of the target; None where there are no hours.

    Windows start at all hours in turn. Those of the other scores start at the same ones every day,
    so that an hour would always be the same lead.
    """
    run, task = trained.trained, trained.task
    if not task.time_spec.daily:
        return None
    a_day, stride = round(DAY / task.time_spec.step), task.scoring_stride
    while task.stride == 1 and math.gcd(stride, a_day) > 1:
        stride += 1
    given, truth = (task.windows(part, stride, raw=raw) for raw in (False, True))
    tally = ErrorAccumulator(truth, len(task.nodes))
    for answer in scored_batches(
        run.model, run, run.model.graphs(task.nodes, task.nodes), given, truth
    ):
        tally.add(answer)
    return tally.by_hour()


def by_lead(statistics: Statistics, channels: tuple[str, ...]) -> Scores:
    """Every metric over all leads, at each lead, and of each channel where there are several."""
    leads = range(statistics.sums.shape[1])
    found: Scores = {metric: statistics.value(metric) for metric in METRICS}
    found["by_lead"] = {m: [statistics.value(m, lead) for lead in leads] for m in METRICS}
    if len(channels) > 1:
        found["by_channel"] = {
            name: {m: statistics.value(m, channel=number) for m in METRICS}
            for number, name in enumerate(channels)
        }
    return found


def in_short(scores: Scores) -> Scores:
    """Without what is only needed where models are compared point by point."""
    return {
        k: v for k, v in scores.items() if k not in ("by_point", "by_hour", "by_window", "worst")
    }


class ErrorAccumulator:
    """Sums and counts of absolute errors, apart by point, window and hour of the target."""

    def __init__(self, truth: Windows, nodes: int) -> None:
        self.truth = truth
        self.point, self.window, self.hour = (
            np.zeros((2, size)) for size in (nodes, len(truth), HOURS)
        )
        self.signed = np.zeros(HOURS)  # errors with their sign, for the bias

    def add(self, answer: ScoredBatch) -> None:
        """Count in some windows."""
        error = (answer.forecast - answer.truth.double()) * answer.observed
        known = answer.observed.double().sum(-1).numpy()  # window future node
        size, signed = (e.sum(-1).numpy() for e in (error.abs(), error))
        hour = self._hours(answer.chosen)
        for place, part in enumerate((size, known)):
            self.point[place] += part.sum((0, 1))
            self.window[place, answer.chosen] += part.sum((1, 2))
            np.add.at(self.hour[place], hour, part.sum(2))
        np.add.at(self.signed, hour, signed.sum(2))

    def by_hour(self) -> Scores:
        """MAE and bias by the target's hour; NaN where there was none."""
        return {
            "mae": _ratio(self.hour[0], self.hour[1]).tolist(),
            "bias": _ratio(self.signed, self.hour[1]).tolist(),
        }

    def by_window(self) -> list[float]:
        """MAE of each window, in the order of time: what a test of significance needs."""
        return _ratio(self.window[0], self.window[1]).tolist()

    def by_point(self) -> Float64[np.ndarray, " node"]:
        """MAE of each point."""
        return _ratio(self.point[0], self.point[1])

    def _hours(self, chosen: Int64[np.ndarray, " batch"]) -> Int64[np.ndarray, "batch future"]:
        windows, time_spec = self.truth, self.truth.time_spec
        ahead = time_spec.past + np.arange(time_spec.horizon)
        times = windows.times[windows.starts[chosen][:, None] + ahead]
        return times % DAY // (3600 * SECOND)


def _by_point(tally: ErrorAccumulator, task: Task) -> Scores:
    """The error of each point where there are not too many, and the worst of them by name."""
    error, nodes = tally.by_point(), task.nodes
    worst = np.argsort(np.where(np.isfinite(error), -error, np.inf))[:WORST]
    return {
        "points": len(error),
        "by_point": [float(f"{e:.4g}") for e in error] if len(error) <= MANY else None,
        "spread": dict(zip(("median", "p90", "most"), _quantiles(error), strict=True)),
        "worst": [
            {"name": nodes.names[i], "at": nodes.coordinates[i].tolist(), "mae": float(error[i])}
            for i in worst.tolist()
        ],
    }


def _ratio(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """NaN where nothing was observed."""
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _quantiles(error: Float64[np.ndarray, " node"]) -> list[float]:
    known = error[np.isfinite(error)]
    return np.quantile(known, [0.5, 0.9, 1.0]).tolist() if len(known) else [float("nan")] * 3
