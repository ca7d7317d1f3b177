"""Reliability: how often intervals hold the truth, by lead, by distance and by month."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from stonet.calibration.bins import distance_to_observed
from stonet.calibration.conformal import Calibration
from stonet.calibration.scale import months
from stonet.data.windows import Windows
from stonet.evaluation.calibrated import Index, PartCorrector
from stonet.evaluation.probabilistic import QUANTILES, covered, pit
from stonet.evaluation.scoring import Group, ScoredBatch, scored_batches
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

LEVELS = (0.5, 0.9)
PIT_BINS = 10
By = Literal["lead", "distance", "month"]


@dataclass
class Reliability:
    """Counts of intervals, and of those that hold the truth.

    `counts` has, for (by, value, level), the number of intervals and of hits. Distances are bins:
    0 with history, then 1, 2, ... as in `stonet.calibration.bins`. Months count from 1.

    Args:
        counts: intervals and hits, as above.
        pit: counts of the probability integral transform, in equal bins from 0 to 1.
    """

    counts: defaultdict[tuple[By, int, float], Float64[np.ndarray, " 2"]] = field(
        default_factory=lambda: defaultdict(lambda: np.zeros(2))
    )
    pit: Float64[np.ndarray, " bin"] = field(default_factory=lambda: np.zeros(PIT_BINS))

    def coverage(self, by: By, level: float) -> dict[int, float]:
        """Share of hits for each lead, bin of distance or month.

        Args:
            by: "lead", "distance" or "month".
            level: 0.5 or 0.9.
        """
        chosen = {key[1]: count for key, count in self.counts.items() if key[::2] == (by, level)}
        return {value: hits / size for value, (size, hits) in sorted(chosen.items()) if size}


def reliability(
    trained: TrainedModel, task: Task, calibration: Calibration, part: str = "test"
) -> Reliability:
    """The reliability of all intervals of a part: seen points, and unseen ones without history.

    Args:
        trained: the model.
        task: the data.
        calibration: of the model.
        part: "test", "validation" or "train".

    Example:
        >>> reliability(trained, task, calibration).coverage("distance", 0.9)
    """
    counter = ReliabilityCounter(trained.config.model, task, calibration)
    seen, unseen = task.dataset.seen, np.asarray(task.dataset.unseen, dtype=np.int64)
    groups: list[tuple[Group, Index]] = [("seen", seen)]
    groups += [("unseen-no-history", unseen)] * bool(len(unseen) and trained.model.inductive)
    points, model = task.dataset.points, trained.model
    for group, queries in groups:
        inputs = task.windows(part, task.scoring_stride, seen)
        truth = task.windows(part, task.scoring_stride, queries, raw=True)
        corrector = PartCorrector(calibration, model, trained, task, part, seen, queries)
        graphs = model.graphs(points.take(seen), points.take(queries))
        for batch in scored_batches(model, trained, graphs, inputs, truth):
            made = batch.forecast.cpu().numpy()
            _, quantiles = corrector.apply(inputs, batch.chosen, made)
            batch = replace(batch, quantiles=quantiles)
            counter(trained.config.model, group, queries, inputs, batch)
    return counter.result


class ReliabilityCounter:
    """Counts the intervals of one model while it is scored; an observer of `scoring.evaluate`.

    Unseen points with history are left out: intervals at points without any are harder to give.

    Args:
        model: its name.
        task: the data.
        calibration: of the model.
    """

    def __init__(self, model: str, task: Task, calibration: Calibration) -> None:
        self.model, self.task, self.calibration = model, task, calibration
        self.result = Reliability()
        self._bins: dict[Group, Int64[np.ndarray, " query"]] = {}

    def __call__(
        self, model: str, group: Group, queries: Index, windows: Windows, batch: ScoredBatch
    ) -> None:
        """Add a batch; nothing where it has no intervals.

        Args:
            model: whose forecasts these are.
            group: of the points.
            queries: positions of the points.
            windows: of the inputs.
            batch: forecasts and truth.
        """
        if model != self.model or group == "unseen" or batch.quantiles is None:
            return
        if group not in self._bins:
            points = self.task.dataset.points
            given, asked = points.take(self.task.dataset.seen), points.take(queries)
            everything = np.ones((1, len(given)), dtype=bool)
            distance = distance_to_observed(given, asked, everything)[0]
            self._bins[group] = self.calibration.bins.of(distance)
        self._add(windows, batch, batch.quantiles, self._bins[group])

    def _add(
        self,
        windows: Windows,
        batch: ScoredBatch,
        quantiles: Float64[np.ndarray, "quantile batch future query channel"],
        bins: Int64[np.ndarray, " query"],
    ) -> None:
        """Count hits at each level, and probabilities of the truth."""
        observed = np.where(batch.observed.numpy(), batch.truth.numpy().astype(np.float64), np.nan)
        by_tau = dict(zip(QUANTILES, quantiles, strict=True))
        hits = {
            0.5: covered(by_tau[0.25], by_tau[0.75], observed),
            0.9: covered(by_tau[0.05], by_tau[0.95], observed),
        }
        spec = self.task.time_spec
        first = windows.starts[batch.chosen][:, None] + spec.past
        month = months(spec, windows.times[first + np.arange(spec.horizon)])
        groups: dict[By, np.ndarray] = {
            "lead": np.arange(1, spec.horizon + 1)[:, None, None],
            "distance": bins[:, None],
            "month": month[:, :, None, None] + 1,
        }
        probability = pit(quantiles, QUANTILES, observed)[~np.isnan(hits[0.9])]
        self.result.pit += np.histogram(probability, np.linspace(0, 1, PIT_BINS + 1))[0]
        for by, values in groups.items():
            _count(self.result, by, hits, values)


def _count(result: Reliability, by: By, hits: dict[float, np.ndarray], values: np.ndarray) -> None:
    """Add hits to the counts of a grouping."""
    for level, inside in hits.items():
        known = np.isfinite(inside)
        group = np.broadcast_to(values, inside.shape)
        for value in np.unique(group).tolist():
            member = known & (group == value)
            result.counts[by, value, level] += member.sum(), inside[member].sum()
