"""Places that training never saw: asked of a model, or interpolated from what it says elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float64, Int64

from stonet.data.windows import in_batches
from stonet.evaluation.interpolation import FRAMES, Method, fit_inverse_distance, fit_kriging
from stonet.evaluation.scoring import ScoredBatch, empty_statistics, scored_batches
from stonet.experiments.cell import Scores
from stonet.experiments.error_summary import ErrorAccumulator
from stonet.training.budget import TrainingResult
from stonet.training.task import Task

RATIOS = (0.125, 0.25, 0.5, 0.75, 1.0)  # unseen/seen after one and the same training
Index = Int64[np.ndarray, "_"]  # positions of points


def asked(trained: TrainingResult, nodes: Index, queries: Index) -> Iterable[ScoredBatch]:
    """The model's scored_batches on the test part at `queries`, given the past at `nodes`."""
    run, task = trained.trained, trained.task
    points, stride = task.dataset.points, task.scoring_stride
    graphs = run.model.graphs(points.take(nodes), points.take(queries))
    given, truth = task.windows("test", stride, nodes), task.windows("test", stride, queries, True)
    return scored_batches(run.model, run, graphs, given, truth)


def beside(
    task: Task, guess: Float64[np.ndarray, "window future query channel"], queries: Index
) -> Iterable[ScoredBatch]:
    """Forecasts that were made elsewhere, beside what came."""
    truth = task.windows("test", task.scoring_stride, queries, raw=True)
    for chosen in in_batches(truth, 64):
        values, observed = truth.targets(chosen)
        found = torch.from_numpy(guess[chosen])  # NaN where nothing at all was known at a time
        yield ScoredBatch(chosen, found.nan_to_num(), values, observed & found.isfinite())


def what_came(found: Iterable[ScoredBatch]) -> Float64[np.ndarray, "window future node channel"]:
    """The truth, NaN where it is missing, in some of the windows if there are many of them.

    With gaps, kriging solves its systems anew at every time.
    """
    known = np.concatenate([np.where(a.observed, a.truth.double(), np.nan) for a in found])
    every = -(-known.shape[0] * known.shape[1] // FRAMES)
    known[np.arange(len(known)) % every > 0] = np.nan
    return known


def errors(trained: TrainingResult, found: Iterable[ScoredBatch], queries: int) -> Scores:
    """What is kept of the errors at some points, in the data's own units."""
    task, statistics = trained.task, empty_statistics(trained.trained)
    tally = ErrorAccumulator(task.windows("test", task.scoring_stride, raw=True), queries)
    for answer in found:
        statistics.add(answer.forecast, answer.truth, answer.observed)
        tally.add(answer)
    told: Scores = {metric: statistics.value(metric) for metric in ("mae", "rmse", "bias")}
    leads = range(task.time_spec.horizon)
    told["by_lead"] = [statistics.value("mae", lead) for lead in leads]
    return told | {"by_window": [float(f"{mae:.4g}") for mae in tally.by_window()]}


def fitted(task: Task) -> dict[str, list[Method]]:
    """For each way to interpolate its settings, by channel, from the training part."""
    windows = task.windows("train", raw=True)
    last = len(windows.times) - 1
    frames = np.unique(np.linspace(0, last, FRAMES).round().astype(np.int64))
    values, observed = (part.numpy() for part in windows.at(frames))
    known = np.where(observed, values, np.nan).astype(np.float64)
    channels = [known[..., number] for number in range(known.shape[-1])]
    return {
        "idw": [fit_inverse_distance(one, task.nodes) for one in channels],
        "kriging": [fit_kriging(one, task.nodes) for one in channels],
    }


def by_ratio(trained: TrainingResult, seen: Index, unseen: Index) -> list[Scores]:
    """Only some of the unseen points join, drawn once: the paper's sweep, after one training."""
    found, order = [], np.random.default_rng(0).permutation(unseen)
    for ratio in RATIOS:
        some = np.sort(order[: round(ratio * len(seen))])
        if len(some) != round(ratio * len(seen)) or not len(some):
            continue
        line: Scores = {"ratio": ratio, "points": len(some)}
        for name, nodes in (("unseen", np.concatenate([seen, some])), ("no_history", seen)):
            told = errors(trained, asked(trained, nodes, some), len(some))
            line[name] = {metric: told[metric] for metric in ("mae", "rmse")}
        found.append(line)
    return found
