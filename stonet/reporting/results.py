"""Results: everything that a report shows, computed once: scores, breakdowns, cases, influence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from stonet.calibration.conformal import Calibration
from stonet.data.field import Dataset, Field
from stonet.data.windows import PARTS, Windows
from stonet.errors import StonetError, unknown_name
from stonet.evaluation import scoring
from stonet.evaluation.calibrated import calibrate_models
from stonet.evaluation.metrics import Record
from stonet.evaluation.reliability import Reliability, ReliabilityCounter
from stonet.evaluation.scoring import Group, Index, Observer, ScoredBatch
from stonet.evaluation.task import ALL, scored_task
from stonet.inference.influence import Influence, influence
from stonet.inference.inputs import check_inputs
from stonet.reporting.breakdown import Breakdown, Breakdowns
from stonet.reporting.cases import CaseKeeper, Cases
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

GROUPS: dict[Group, str] = {
    "seen": "seen in training",
    "unseen": "unseen, with history",
    "unseen-no-history": "unseen, without history",
}


@dataclass(frozen=True)
class Origin:
    """A trained model and where it is from.

    Args:
        trained: the model.
        calibration: of its intervals (None: it has none).
        metrics: the course of the training, as in metrics.json.
        run: the run folder; empty for a model in memory.
        files: SHA-256 of the run's files.
    """

    trained: TrainedModel
    calibration: Calibration | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """What is known of a model on some data.

    Args:
        origin: of the model.
        task: the data.
        part: that was scored.
        feedback: whether forecasts were corrected by recent errors.
        records: as from `stonet.evaluation.scoring.evaluate`.
        breakdowns: errors of every model and group of points.
        cases: forecasts of the model beside the truth.
        reliability: of its intervals (None: it has none).
        influences: on forecasts at typical points.
        notes: sentences on the data, and on what could not be computed.
        own_data: whether the data are those of the training.
        seconds: that all of this took.
    """

    origin: Origin
    task: Task
    part: str
    feedback: bool
    records: list[Record]
    breakdowns: Mapping[tuple[str, Group], Breakdown]
    cases: Cases
    reliability: Reliability | None
    influences: tuple[Influence, ...]
    notes: tuple[str, ...]
    own_data: bool
    seconds: float

    @property
    def trained(self) -> TrainedModel:
        """The model."""
        return self.origin.trained

    @property
    def model(self) -> str:
        """Its name."""
        return self.trained.config.model

    @property
    def models(self) -> list[str]:
        """Names of all models that were scored; the trained one first."""
        return list(dict.fromkeys(name for name, _ in self.breakdowns))

    @property
    def groups(self) -> list[Group]:
        """The groups of points at which the model was scored."""
        return [group for name, group in self.breakdowns if name == self.model]

    def breakdown(self, group: Group, model: str | None = None) -> Breakdown:
        """The errors of a model at a group of points.

        Args:
            group: of the points.
            model: its name (None: the trained one).
        """
        return self.breakdowns[self.model if model is None else model, group]

    def score(
        self, model: str, group: Group, channel: str, metric: str = "mae", lead: str | int = "all"
    ) -> float | None:
        """A score; None if nothing was observed, or there is no such score.

        Args:
            model: its name.
            group: of the points.
            channel: its name, or "all".
            metric: as in the records.
            lead: number of the lead from 1, or "all".
        """
        return self._by_key.get((model, group, channel, metric, lead))

    @cached_property
    def _by_key(self) -> dict[tuple[Any, ...], float | None]:
        keys = ("model", "points", "channel", "metric", "lead")
        return {tuple(record[key] for key in keys): record["value"] for record in self.records}

    @property
    def windows(self) -> Windows:
        """The scored windows at the points of the cases, in the data's units."""
        task = self.task
        return task.windows(self.part, task.scoring_stride, self.cases.points, raw=True)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The episodes that were scored."""
        return self.task.parts[self.part]


def gather(
    origin: Origin,
    dataset: Dataset,
    part: str = "test",
    feedback: bool = True,
    own_data: bool = True,
    on_progress: ProgressCallback = ignore_progress,
) -> Results:
    """Score a model beside its reference forecasts, and keep what a report shows.

    The records are those of `stonet evaluate`.

    Args:
        origin: the model.
        dataset: on which it is scored.
        part: "test", "validation", "train" or "all".
        feedback: whether forecasts are corrected by recent errors.
        own_data: whether the data are those of the training.
        on_progress: called with the number of scored groups and their total.

    Raises:
        UsageError: there is no such part.
        DataError: the data do not fit the model.
    """
    started, trained, calibration = time.monotonic(), origin.trained, origin.calibration
    if part not in (*PARTS, ALL):
        raise unknown_name("part", part, (*PARTS, ALL))
    task = scored_task(trained, dataset, part)
    notes = dict.fromkeys(n for f in task.parts[part] for n in check_inputs(trained, f))
    models = scoring.reference_forecasts(trained, task, fitted=part != ALL)
    calibrations, counter = None, None
    if calibration is not None:
        calibrations = calibrate_models(models, trained, task, calibration)
        feedback = feedback and part != ALL  # references have no part to fit a correction to
        counter = ReliabilityCounter(trained.config.model, task, calibration)
    breakdowns = Breakdowns(trained.time_spec.calendar)
    sizes = trained.time_spec.horizon, len(task.dataset.points), len(trained.channels)
    keeper = CaseKeeper(trained.config.model, *sizes)

    observers: list[Observer] = [breakdowns, keeper, *([counter] if counter else [])]

    def observe(
        model: str, group: Group, queries: Index, windows: Windows, batch: ScoredBatch
    ) -> None:
        for observer in observers:
            observer(model, group, queries, windows, batch)

    records = scoring.evaluate(
        trained, task, part, models, on_progress, calibrations, feedback, observe
    )
    cases = keeper.cases()
    influences, problem = _influences(trained, task, part, breakdowns.found)
    return Results(
        origin,
        task,
        part,
        feedback and calibration is not None,
        records,
        breakdowns.found,
        cases,
        counter.result if counter else None,
        influences,
        (*notes, *problem),
        own_data,
        time.monotonic() - started,
    )


def _influences(
    trained: TrainedModel,
    task: Task,
    part: str,
    breakdowns: Mapping[tuple[str, Group], Breakdown],
) -> tuple[tuple[Influence, ...], tuple[str, ...]]:
    """The influence on the last forecast at typical points, or why there is none."""
    field = task.parts[part][-1].take(task.dataset.seen)  # points held out stay held out
    found: list[Influence] = []
    for (model, group), breakdown in breakdowns.items():
        if model != trained.config.model or group == "unseen":
            continue
        order = by_error(breakdown, 0)
        if not len(order):
            continue
        index = task.dataset.seen if group == "seen" else np.asarray(task.dataset.unseen)
        place = task.dataset.points.take(index[order[len(order) // 2 : len(order) // 2 + 1]])
        try:
            found.append(influence(trained, field, place))
        except StonetError as error:
            return tuple(found), (f"No influence could be computed: {error}",)
    return tuple(found), ()


def by_error(breakdown: Breakdown, channel: int) -> np.ndarray:
    """Positions of the points of a group that have an error, least error first.

    Args:
        breakdown: of a model at a group.
        channel: its position.
    """
    error = breakdown.mean("station")[:, channel]
    order = np.argsort(error, kind="stable")
    return order[: int(np.isfinite(error).sum())]
