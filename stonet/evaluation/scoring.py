"""Honest scores: a model beside its references, at points it was trained on and at others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from stonet.data.field import Dataset
from stonet.data.windows import Windows, in_batches
from stonet.errors import DataError
from stonet.evaluation.metrics import Record, Statistics, deviation, find
from stonet.models.baselines.persistence import LinearForecaster, no_daily
from stonet.models.forecaster import Forecaster, Graphs
from stonet.models.registry import REFERENCE_FORECASTS, build_model
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

BATCH, AT_ONCE = 8, 2**16  # windows that are answered at a time; points of them all
ZERO = 1e-6  # in standard deviations: smaller targets count as zero, where the MAPE has no meaning
Group = Literal["seen", "unseen", "unseen-no-history"]
Index = Int64[np.ndarray, " point"]


def reference_forecasts(run: TrainedModel, task: Task) -> dict[str, Forecaster]:
    """The run's model and the reference forecasts it must be compared with, fitted to the task's training part.

    Daily persistence is left out where the inputs are shorter than a day, or know no hours. A
    linear base that the run's model stands on is the linear reference itself.
    """
    models: dict[str, Forecaster] = {run.config.model: run.model}
    base = getattr(run.model, "base", None)
    train, judges = (task.windows(part, task.stride) for part in ("train", "validation"))
    judges = judges.thin(run.config.train.validation_windows)  # as in training
    for name in REFERENCE_FORECASTS:
        if name in models or (name == "daily" and no_daily(run.time_spec) is not None):
            continue
        if name == "linear" and base is not None and base.kind == "ridge":
            models[name] = LinearForecaster(base)
            continue
        config = run.config.model_copy(update={"model": name})
        models[name] = build_model(config, run.time_spec, len(run.channels), task.nodes)
        models[name].fit_closed_form(train, judges, task.nodes)
    return models


def evaluate(
    run: TrainedModel,
    task: Task,
    part: str = "test",
    models: Mapping[str, Forecaster] | None = None,
    watch: ProgressCallback = ignore_progress,
) -> list[Record]:
    """Tidy records of every model on seen points and, where the data set has them, unseen ones.

    Unseen points join the graph with their past ("unseen"), or are asked for without any
    ("unseen-no-history").
    """
    models = reference_forecasts(run, task) if models is None else models
    seen, unseen = task.dataset.seen, np.asarray(task.dataset.unseen, dtype=np.int64)
    groups: list[tuple[Group, Index, Index]] = [("seen", seen, seen)]
    if len(unseen):
        groups += [
            ("unseen", np.concatenate([seen, unseen]), unseen),
            ("unseen-no-history", seen, unseen),
        ]
    jobs = [
        (name, model, group)
        for name, model in models.items()
        for group in groups
        if group[0] == "seen" or model.inductive
    ]
    records: list[Record] = []
    for number, (name, model, (label, nodes, queries)) in enumerate(jobs):
        watch(number, len(jobs), "")
        statistics = score(model, run, task, part, nodes, queries)
        records += statistics.records(
            task.dataset.name, name, label, run.channels, run.config.train.seed
        )
    watch(len(jobs), len(jobs), "")
    return records


def score(
    model: Forecaster,
    run: TrainedModel,
    task: Task,
    part: str,
    nodes: Int64[np.ndarray, " node"],
    queries: Int64[np.ndarray, " query"],
) -> Statistics:
    """Errors at `queries`, given the past at `nodes`, in the data's own units."""
    statistics = empty_statistics(run)
    points = task.dataset.points
    graphs = model.graphs(points.take(nodes), points.take(queries))
    given = task.windows(part, task.scoring_stride, nodes)
    truth = task.windows(part, task.scoring_stride, queries, raw=True)
    for answer in scored_batches(model, run, graphs, given, truth):
        statistics.add(answer.forecast, answer.truth, answer.observed)
    return statistics


@dataclass(frozen=True)
class ScoredBatch:
    """Forecasts of some windows beside what came, in the data's own units."""

    chosen: Int64[np.ndarray, " batch"]  # which windows
    forecast: Float64[Tensor, "batch future query channel"]
    truth: Float[Tensor, "batch future query channel"]
    observed: Bool[Tensor, "batch future query channel"]


def scored_batches(
    model: Forecaster, run: TrainedModel, graphs: Graphs, given: Windows, truth: Windows
) -> Iterator[ScoredBatch]:
    """The model's scored_batches to all windows, some at a time; `truth` is raw, `given` normalised."""
    model.eval()
    for chosen in in_batches(given, _together(given, truth)):
        with torch.inference_mode():
            forecast = model(given.inputs(chosen), graphs).forecast
        yield ScoredBatch(chosen, run.scaler.in_units(forecast), *truth.targets(chosen))


def _together(*windows: Windows) -> int:
    """How many windows are answered at a time: fewer where there are many points."""
    points = max(w.fields[0].values.shape[1] if w.nodes is None else len(w.nodes) for w in windows)
    return max(1, min(BATCH, AT_ONCE // points))


def empty_statistics(run: TrainedModel) -> Statistics:
    """Where a run's errors are counted; what counts as zero follows its scaler."""
    zero = ZERO * torch.tensor(run.scaler.std, dtype=torch.float64)
    return Statistics(run.time_spec.horizon, len(run.channels), zero)


def check_same_kind(run: TrainedModel, dataset: Dataset) -> None:
    """Refuse to score a run on data of another kind."""
    first = dataset.episodes[0]
    if first.channels != run.channels or first.units != run.units:
        raise DataError(
            f"The data hold {first.channels} in {first.units}; the run forecasts {run.channels} "
            f"in {run.units}."
        )
    if first.points.kind != run.nodes.kind or first.calendar != run.time_spec.calendar:
        raise DataError(
            f"The data lie on a {first.points.kind}, {_dated(first.calendar)} dates; the run was "
            f"trained on a {run.nodes.kind}, {_dated(run.time_spec.calendar)} dates."
        )
    if abs(first.step - run.time_spec.step) > 0.01 * run.time_spec.step:
        raise DataError(
            f"The data have a step of {first.step / 1e9:g} s; the run was trained with "
            f"{run.time_spec.step / 1e9:g} s. Resample the data to that step."
        )


def _dated(calendar: bool) -> str:
    return "with" if calendar else "without"


def deviation_percent(records: list[Record], model: str) -> float | None:
    """The paper's Deviation of the MAE at unseen points, with a past, from that at seen ones.

    In percent; None where there are no unseen points.
    """
    mine = [r for r in records if r["model"] == model and r["lead"] == "all"]
    channel = "all" if any(r["channel"] == "all" for r in mine) else str(mine[0]["channel"])
    if all(r["points"] != "unseen" for r in mine):
        return None
    seen, unseen = (
        find(mine, points=points, channel=channel, metric="mae") for points in ("seen", "unseen")
    )
    return deviation(seen, unseen)
