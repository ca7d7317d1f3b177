"""Scores of a model and of its reference forecasts, at seen and at unseen points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from stonet.calibration.conformal import Calibration
from stonet.data.field import Dataset
from stonet.data.windows import Windows, in_batches
from stonet.errors import DataError
from stonet.evaluation.calibrated import PartCorrector
from stonet.evaluation.metrics import Record, Statistics, deviation, find
from stonet.evaluation.probabilistic import IntervalStatistics
from stonet.models.forecaster import Forecaster, Graphs
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.training.references import references_of
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

MAX_WINDOWS, MAX_POINTS = 8, 2**16  # forecast together; points are those of all windows
ZERO_TARGET = 1e-6  # in standard deviations: smaller targets are left out of the MAPE
STEP_TOLERANCE = 0.01  # relative difference of two steps that count as equal
Group = Literal["seen", "unseen", "unseen-no-history"]
Index = Int64[np.ndarray, " point"]


@dataclass(frozen=True)
class ScoredBatch:
    """Forecasts of some windows and the observed values, in the data's units.

    Args:
        chosen: positions of the windows.
        forecast: of the model or of a reference.
        truth: 0 where it was not observed.
        observed: the mask of the truth.
        quantiles: of calibrated forecasts.
    """

    chosen: Int64[np.ndarray, " batch"]
    forecast: Float64[Tensor, "batch future query channel"]
    truth: Float[Tensor, "batch future query channel"]
    observed: Bool[Tensor, "batch future query channel"]
    quantiles: Float64[np.ndarray, "quantile batch future query channel"] | None = None


# (name of the model, group of points, positions of these points, windows, what was scored)
Observer = Callable[[str, Group, Index, Windows, ScoredBatch], None]


def evaluate(
    trained: TrainedModel,
    task: Task,
    part: str = "test",
    models: Mapping[str, Forecaster] | None = None,
    on_progress: ProgressCallback = ignore_progress,
    calibrations: Mapping[str, Calibration] | None = None,
    feedback: bool = True,
    observe: Observer | None = None,
) -> list[Record]:
    """Tidy records of every model at seen points and, where the data set has them, unseen ones.

    Unseen points are scored twice: with their history, as nodes of the graph ("unseen"), and
    without ("unseen-no-history").

    Args:
        trained: gives scaler, time specification and seed.
        task: the data to score on.
        part: "test", "validation", "train" or "all".
        models: by name (None: the trained model and its reference forecasts).
        on_progress: called with the number of scored groups and their total.
        calibrations: by name of the model, as from `calibrate_models`; these models are scored
            with feedback, and their intervals are scored too (None: neither).
        feedback: whether forecasts with a calibration are corrected by recent errors.
        observe: called with every batch that is scored (None: nothing).

    Example:
        >>> records = evaluate(trained, task)
        >>> find(records, model="stonet", points="seen", channel="t2m", metric="mae", lead="all")
    """
    if models is None:
        models = reference_forecasts(trained, task, fitted=part != "all")
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
        on_progress(number, len(jobs), name)
        calibration = (calibrations or {}).get(name)
        corrector = None
        if calibration is not None:
            arguments = calibration, model, trained, task, part, nodes, queries, feedback
            corrector = PartCorrector(*arguments)
        watch = None if observe is None else partial(observe, name, label, queries)
        statistics, intervals = score(model, trained, task, part, nodes, queries, corrector, watch)
        about = task.dataset.name, name, label, trained.channels, trained.config.train.seed
        records += statistics.records(*about, common_scale(trained))
        records += [] if corrector is None else intervals.records(*about)
    on_progress(len(jobs), len(jobs), "")
    return records


def reference_forecasts(
    trained: TrainedModel, task: Task, fitted: bool = True
) -> dict[str, Forecaster]:
    """The trained model and its reference forecasts (`stonet.training.references`), by name.

    Args:
        trained: the trained model.
        task: the data.
        fitted: whether references are fitted to the training part; if not, only those remain that
            need no fit.
    """
    named = {trained.config.model: trained.model}
    return named | references_of(trained, task, fitted)


def score(
    model: Forecaster,
    trained: TrainedModel,
    task: Task,
    part: str,
    nodes: Int64[np.ndarray, " node"],
    queries: Int64[np.ndarray, " query"],
    corrector: PartCorrector | None = None,
    observe: Callable[[Windows, ScoredBatch], None] | None = None,
) -> tuple[Statistics, IntervalStatistics]:
    """Error statistics at `queries`, given the history at `nodes`, in the data's units.

    Args:
        model: whose forecasts are scored.
        trained: gives the scaler.
        task: the data.
        part: "test", "validation", "train" or "all".
        nodes: positions of the points whose history is given.
        queries: positions of the points that are scored.
        corrector: of the model for these points (None: forecasts are scored as they are).
        observe: called with every batch that is scored (None: nothing).

    Returns:
        statistics of errors, and of intervals (empty without a corrector).
    """
    statistics = empty_statistics(trained)
    intervals = IntervalStatistics(trained.time_spec.horizon, len(trained.channels))
    points = task.dataset.points
    graphs = model.graphs(points.take(nodes), points.take(queries))
    inputs = task.windows(part, task.scoring_stride, nodes)
    truth = task.windows(part, task.scoring_stride, queries, raw=True)
    for batch in scored_batches(model, trained, graphs, inputs, truth):
        if corrector is not None:
            made = batch.forecast.cpu().numpy()
            corrected, quantiles = corrector.apply(inputs, batch.chosen, made)
            intervals.add(quantiles, batch.truth.numpy(), batch.observed.numpy())
            batch = replace(batch, forecast=torch.from_numpy(corrected), quantiles=quantiles)
        statistics.add(batch.forecast, batch.truth, batch.observed)
        if observe is not None:
            observe(inputs, batch)
    return statistics, intervals


def scored_batches(
    model: Forecaster,
    trained: TrainedModel,
    graphs: Graphs,
    inputs: Windows,
    truth: Windows,
    max_points: int = MAX_POINTS,
) -> Iterator[ScoredBatch]:
    """Forecasts of all windows beside the truth, batch by batch.

    Args:
        model: whose forecasts these are.
        trained: gives the scaler.
        graphs: of the model, for the nodes of `inputs` and the queries of `truth`.
        inputs: normalised windows.
        truth: the same windows in the data's units (`raw`).
        max_points: of all windows of a batch, which bounds its memory.
    """
    model.eval()
    points = max(
        w.fields[0].values.shape[1] if w.nodes is None else len(w.nodes) for w in (inputs, truth)
    )
    size = max(1, min(MAX_WINDOWS, max_points // points))
    for chosen in in_batches(inputs, size):
        with torch.inference_mode():
            forecast = model(inputs.inputs(chosen), graphs).forecast
        yield ScoredBatch(chosen, trained.scaler.in_units(forecast), *truth.targets(chosen))


def empty_statistics(trained: TrainedModel) -> Statistics:
    """Statistics for the model's leads and channels; the scaler sets what is a zero target.

    Args:
        trained: gives leads, channels and scaler.
    """
    zero = ZERO_TARGET * torch.tensor(trained.scaler.std, dtype=torch.float64)
    return Statistics(trained.time_spec.horizon, len(trained.channels), zero)


def common_scale(trained: TrainedModel) -> tuple[float, ...] | None:
    """What errors are divided by before they are averaged over channels; None: one unit.

    Args:
        trained: gives units and scaler.
    """
    return trained.scaler.std if len(set(trained.units)) > 1 else None


def check_scorable(trained: TrainedModel, dataset: Dataset) -> None:
    """Refuse to score a model on data of another kind or with another step.

    Args:
        trained: the model.
        dataset: the data.

    Raises:
        DataError: naming the difference.
    """
    first, step = dataset.episodes[0], trained.time_spec.step
    trained.check_compatible(first)
    if abs(first.step - step) > STEP_TOLERANCE * step:
        raise DataError(
            f"The data have a step of {first.step / 1e9:g} s; this model was trained with "
            f"{step / 1e9:g} s. Resample the data to that step."
        )


def deviation_percent(records: list[Record], model: str) -> float | None:
    """The paper's Deviation: MAE at unseen points with history, relative to that at seen ones.

    In percent; None if there are no unseen points.

    Args:
        records: tidy scores of one data set.
        model: its name.
    """
    mine = [r for r in records if r["model"] == model and r["lead"] == "all"]
    channel = "all" if any(r["channel"] == "all" for r in mine) else str(mine[0]["channel"])
    if all(r["points"] != "unseen" for r in mine):
        return None
    seen, unseen = (
        find(mine, points=points, channel=channel, metric="mae") for points in ("seen", "unseen")
    )
    return deviation(seen, unseen)
