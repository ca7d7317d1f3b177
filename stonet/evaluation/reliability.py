"""Reliability: how often intervals hold the truth, by lead, by distance and by month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float64

from stonet.calibration.bins import distance_to_observed
from stonet.calibration.conformal import Calibration
from stonet.calibration.scale import months
from stonet.evaluation.calibrated import Index, PartCorrector
from stonet.evaluation.probabilistic import QUANTILES, covered, pit
from stonet.evaluation.scoring import scored_batches
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
    result = Reliability()
    seen, unseen = task.dataset.seen, np.asarray(task.dataset.unseen, dtype=np.int64)
    for queries in (seen, unseen) if len(unseen) and trained.model.inductive else (seen,):
        for hits, probability, groups in _hits(trained, task, calibration, part, seen, queries):
            result.pit += np.histogram(probability, np.linspace(0, 1, PIT_BINS + 1))[0]
            for by, values in groups.items():
                _count(result, by, hits, values)
    return result


def _hits(
    trained: TrainedModel,
    task: Task,
    calibration: Calibration,
    part: str,
    nodes: Index,
    queries: Index,
) -> Iterator[tuple[dict[float, np.ndarray], np.ndarray, dict[By, np.ndarray]]]:
    """Hits at each level, probabilities of the truth, and lead, distance and month of each."""
    points = task.dataset.points
    given, asked = points.take(nodes), points.take(queries)
    inputs = task.windows(part, task.scoring_stride, nodes)
    truth = task.windows(part, task.scoring_stride, queries, raw=True)
    corrector = PartCorrector(calibration, trained.model, trained, task, part, nodes, queries)
    everything = np.ones((1, len(given)), dtype=bool)
    distance = calibration.bins.of(distance_to_observed(given, asked, everything)[0])
    graphs = trained.model.graphs(given, asked)
    for batch in scored_batches(trained.model, trained, graphs, inputs, truth):
        _, quantiles = corrector.apply(inputs, batch.chosen, batch.forecast.cpu().numpy())
        observed = np.where(batch.observed.numpy(), batch.truth.numpy().astype(np.float64), np.nan)
        by_tau = dict(zip(QUANTILES, quantiles, strict=True))
        hits = {
            0.5: covered(by_tau[0.25], by_tau[0.75], observed),
            0.9: covered(by_tau[0.05], by_tau[0.95], observed),
        }
        first = inputs.starts[batch.chosen][:, None] + task.time_spec.past
        month = months(task.time_spec, inputs.times[first + np.arange(task.time_spec.horizon)])
        groups: dict[By, np.ndarray] = {
            "lead": np.arange(1, task.time_spec.horizon + 1)[:, None, None],
            "distance": distance[:, None],
            "month": month[:, :, None, None] + 1,
        }
        known = ~np.isnan(hits[0.9])
        yield hits, pit(quantiles, QUANTILES, observed)[known], groups


def _count(result: Reliability, by: By, hits: dict[float, np.ndarray], values: np.ndarray) -> None:
    """Add hits to the counts of a grouping."""
    for level, inside in hits.items():
        known = np.isfinite(inside)
        group = np.broadcast_to(values, inside.shape)
        for value in np.unique(group).tolist():
            member = known & (group == value)
            result.counts[by, value, level] += member.sum(), inside[member].sum()
