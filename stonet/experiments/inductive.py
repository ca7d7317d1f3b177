"""Inductive: points that training never saw, with a past of their own and without one.

The paper's Table 4 and its sweep of the ratio unseen/seen, and whole regions without a sensor. For
points that join with their past,

    Deviation = 100 (MAE_unseen - MAE_seen) / MAE_seen.

Points without a past are harder. The alternative there is to forecast at the sensors, with any
model, and to interpolate the forecasts by inverse distances (IDW) or kriging, each with the
settings that fit the training part best.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, Int64
from matplotlib.axes import Axes

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.data.windows import in_batches
from stonet.errors import UsageError
from stonet.evaluation.interpolation import (
    FRAMES,
    Method,
    fit_inverse_distance,
    fit_kriging,
    interpolate,
)
from stonet.evaluation.metrics import deviation
from stonet.evaluation.scoring import ScoredBatch, empty_statistics, scored_batches
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.comparison import OURS, expand_labels, significance, variant
from stonet.experiments.error_summary import ErrorAccumulator
from stonet.experiments.figures import line_style, panels, save
from stonet.experiments.tables import (
    Line,
    mean,
    measured,
    stale_commits,
    standard_deviation,
    unique,
)
from stonet.models.registry import REFERENCE_FORECASTS
from stonet.plotting.figures import PALETTE
from stonet.training.budget import Budget, TrainingResult, train
from stonet.training.task import Task

NAME = "inductive"
GOALS = {"deviation": 4.0, "gain": 10.0}  # percent: at most, at least
MAIN_SHARE = 0.2  # of all points, held out from every model
HALF = 0.5  # held out from STONet, for the sweep of ratios
RATIOS = (0.125, 0.25, 0.5, 0.75, 1.0)  # unseen/seen points, with one and the same model
MODELS = (OURS, "nhits", "linear", "persistence", "daily")
MINIMAL = (OURS, "stgcn", "persistence")
INTERPOLATIONS = ("idw", "kriging")
BATCH = 64  # windows of interpolated forecasts that are scored at a time
COLUMNS = {
    "dataset": "data set",
    "share": "held out",
    "model": "model",
    "seen": "MAE, seen",
    "unseen": "MAE, unseen with past",
    "deviation": "Deviation (%)",
    "no_history": "MAE, unseen without past",
    "idw": "MAE, IDW",
    "kriging": "MAE, kriging",
    "alternative": "best alternative",
    "gain": "gain (%)",
    "p": "p",
    "stale": "stale",
}
Index = Int64[np.ndarray, "_"]  # positions of points


@dataclass(frozen=True)
class Layout:
    """Which points are held out.

    Args:
        share: of all points (None: the data set's own).
        regions: whether whole regions are.
    """

    share: float | None
    regions: bool = False

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that hold these points out."""
        share = () if self.share is None else (f"data.unseen={self.share}",)
        return (*share, "data.unseen_regions=true") if self.regions else share

    @property
    def suffix(self) -> str:
        """What is added to the label of a model; nothing for the main layout."""
        if self.regions:
            return " regions"
        return "" if self.share in (None, MAIN_SHARE) else f" {self.share:.0%} unseen"


Key = tuple[str, Layout, str]  # data set, layout, model


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Every model with a fifth of the points unseen, between others or in whole regions.

    STONet also with half of them, for the ratios. With `own_points`, the paper's protocol, unseen
    points are those that the data sets hold out themselves.
    """
    labels = expand_labels(models, MINIMAL if budget.minimal else MODELS)
    own = budget.own_points
    layouts = [Layout(None if own else MAIN_SHARE)]
    if not (own or budget.minimal):
        layouts += [Layout(MAIN_SHARE, regions=True), Layout(HALF)]
    cells = []
    for dataset in datasets:
        for label in labels:
            for layout in layouts if label == OURS else layouts[:2]:
                what = variant(label)
                what["settings"] = (*what.get("settings", ()), *layout.settings)
                extra = {
                    "share": layout.share,
                    "region": layout.regions,
                    "ratios": label == OURS and layout.share in (None, HALF),
                }
                count = seeds if layout is layouts[0] and label not in REFERENCE_FORECASTS else 1
                cells += [
                    budget.cell(
                        *(NAME, dataset, label + layout.suffix, seed),
                        extra=extra,
                        inductive=own,
                        **what,
                    )
                    for seed in range(count)
                ]
    return cells


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors at seen and unseen points, and of the same forecasts interpolated.

    "ideal" is kriging of the observations at the seen points: a lower bound for any interpolated
    forecast.
    """
    training = train(dataset, config, budget)
    task, seen = training.task, training.task.dataset.seen
    unseen = np.asarray(task.dataset.unseen, dtype=np.int64)
    if not len(unseen):
        raise UsageError(f"'{dataset.name}' holds no points out. Set data.unseen.")
    at_seen = list(forecasts_at(training, seen, seen))
    groups = {"seen": point_errors(training, at_seen, len(seen))}
    if training.trained.model.inductive:
        both = np.concatenate([seen, unseen])
        for name, nodes in (("unseen", both), ("no_history", seen)):
            batches = forecasts_at(training, nodes, unseen)
            groups[name] = point_errors(training, batches, len(unseen))
    methods = fit_interpolation(task)
    forecast = np.concatenate([batch.forecast.numpy() for batch in at_seen])
    sources = {method: (forecast, method) for method in INTERPOLATIONS}
    if cell.label.startswith(OURS):
        sources["ideal"] = _observations(at_seen), "kriging"
    for name, (values, method) in sources.items():
        queries = task.dataset.points.take(unseen)
        interpolated = interpolate(values, task.nodes, queries, methods[method])
        interpolated = training.trained.scaler.within(interpolated)  # bounded, as all forecasts are
        groups[name] = point_errors(training, _scored(task, interpolated, unseen), len(unseen))
    for name in {*groups} - {"no_history", *INTERPOLATIONS}:  # only these are tested
        del groups[name]["by_window"]
    return {
        "points": {"seen": len(seen), "unseen": len(unseen)},
        "groups": groups,
        "deviation": _deviations(groups),
        "methods": {name: [asdict(method) for method in methods[name]] for name in INTERPOLATIONS},
        "ratios": _by_ratio(training, seen, unseen) if cell.options["ratios"] else [],
        "units": list(training.trained.units),
        "training": vars(training.cost),
    }


def forecasts_at(training: TrainingResult, nodes: Index, queries: Index) -> Iterable[ScoredBatch]:
    """Forecasts of the test part at `queries`, from the past at `nodes`.

    Args:
        training: the trained model.
        nodes: positions with a past.
        queries: positions to forecast.
    """
    model, task = training.trained.model, training.task
    points, stride = task.dataset.points, task.scoring_stride
    graphs = model.graphs(points.take(nodes), points.take(queries))
    given, truth = task.windows("test", stride, nodes), task.windows("test", stride, queries, True)
    return scored_batches(model, training.trained, graphs, given, truth)


def _scored(
    task: Task, values: Float64[np.ndarray, "window future query channel"], queries: Index
) -> Iterable[ScoredBatch]:
    """Interpolated forecasts with the truth; NaN (no source value at a time) is not scored."""
    truth = task.windows("test", task.scoring_stride, queries, raw=True)
    for chosen in in_batches(truth, BATCH):
        target, observed = truth.targets(chosen)
        forecast = torch.from_numpy(values[chosen])
        yield ScoredBatch(chosen, forecast.nan_to_num(), target, observed & forecast.isfinite())


def _observations(
    batches: Iterable[ScoredBatch],
) -> Float64[np.ndarray, "window future node channel"]:
    """The truth, NaN where missing; of many windows only some.

    With gaps, kriging solves another system at every time.
    """
    values = np.concatenate([np.where(b.observed, b.truth.double(), np.nan) for b in batches])
    every = -(-values.shape[0] * values.shape[1] // FRAMES)
    values[np.arange(len(values)) % every > 0] = np.nan
    return values


def point_errors(training: TrainingResult, batches: Iterable[ScoredBatch], points: int) -> Scores:
    """MAE, RMSE and bias, and the MAE by lead and by window, in the data's own units.

    Args:
        training: the trained model, for its windows and scales.
        batches: scored forecasts.
        points: number of points in them.
    """
    task, statistics = training.task, empty_statistics(training.trained)
    errors = ErrorAccumulator(task.windows("test", task.scoring_stride, raw=True), points)
    for batch in batches:
        statistics.add(batch.forecast, batch.truth, batch.observed)
        errors.add(batch)
    scores: Scores = {metric: statistics.value(metric) for metric in ("mae", "rmse", "bias")}
    leads = range(task.time_spec.horizon)
    scores["by_lead"] = [statistics.value("mae", lead) for lead in leads]
    return scores | {"by_window": [float(f"{mae:.4g}") for mae in errors.by_window()]}


def fit_interpolation(task: Task) -> dict[str, list[Method]]:
    """The settings of IDW and kriging for each channel, fitted to the training part.

    Args:
        task: the data.
    """
    windows = task.windows("train", raw=True)
    last = len(windows.times) - 1
    frames = np.unique(np.linspace(0, last, FRAMES).round().astype(np.int64))
    values, observed = (part.numpy() for part in windows.at(frames))
    values = np.where(observed, values, np.nan).astype(np.float64)
    channels = [values[..., number] for number in range(values.shape[-1])]
    return {
        "idw": [fit_inverse_distance(channel, task.nodes) for channel in channels],
        "kriging": [fit_kriging(channel, task.nodes) for channel in channels],
    }


def _by_ratio(training: TrainingResult, seen: Index, unseen: Index) -> list[Scores]:
    """Errors when only some unseen points join, drawn at random: the paper's sweep."""
    lines, order = [], np.random.default_rng(0).permutation(unseen)
    for ratio in RATIOS:
        count = round(ratio * len(seen))
        joined = np.sort(order[:count])
        if len(joined) != count or not count:
            continue
        line: Scores = {"ratio": ratio, "points": count}
        for name, nodes in (("unseen", np.concatenate([seen, joined])), ("no_history", seen)):
            errors = point_errors(training, forecasts_at(training, nodes, joined), count)
            line[name] = {metric: errors[metric] for metric in ("mae", "rmse")}
        lines.append(line)
    return lines


def _deviations(groups: Scores) -> Scores | None:
    """Percent by which errors at unseen points exceed those at seen ones."""
    if "unseen" not in groups:
        return None
    return {
        name: {m: deviation(groups["seen"][m], groups[name][m]) for m in ("mae", "rmse")}
        for name in ("unseen", "no_history")
    }


def table(results: Sequence[Result]) -> list[Line]:
    """One line per data set, layout and model: errors by kind of points, means over the seeds.

    Where persistence deviates too (`persistence_deviation`), the unseen points themselves are
    harder or easier to forecast.
    """
    rows: dict[Key, list[Result]] = {}
    for result in measured(results):
        cell, label = result.cell, result.cell.label.split(" ")[0]
        layout = Layout(cell.options["share"], cell.options.get("region", False))
        rows.setdefault((cell.dataset, layout, label), []).append(result)
    lines = {key: _line(*key, group) for key, group in rows.items()}
    for (dataset, layout, model), line in lines.items():
        if model == OURS and line["no_history"] is not None:
            line |= _gain((dataset, layout), lines, rows)
            reference = lines.get((dataset, layout, "persistence"), {})
            line["persistence_deviation"] = reference.get("deviation")
    return sorted(
        lines.values(), key=lambda x: (x["dataset"], x["region"], x["share"] or 0.0, x["seen"])
    )


def _line(dataset: str, layout: Layout, label: str, rows: Sequence[Result]) -> Line:
    """Means over the seeds of one model."""
    line: Line = {"dataset": dataset, "share": layout.share, "region": layout.regions}
    line |= {"model": label, "seeds": len(rows)}
    points = rows[0].scores["points"]
    line["ratio"] = points["unseen"] / points["seen"]
    for group in ("seen", "unseen", "no_history", *INTERPOLATIONS, "ideal"):
        errors = [r.scores["groups"][group] for r in rows if group in r.scores["groups"]]
        maes = [error["mae"] for error in errors]
        line[group], line[f"{group}_std"] = mean(maes), standard_deviation(maes)
        line[f"{group}_rmse"] = mean([error["rmse"] for error in errors])
    for group, name in (("unseen", "deviation"), ("no_history", "deviation_no_history")):
        line[name] = None if line[group] is None else deviation(line["seen"], line[group])
    line["stale"] = stale_commits(rows)
    return line


def _gain(
    where: tuple[str, Layout], lines: Mapping[Key, Line], rows: Mapping[Key, list[Result]]
) -> Line:
    """Percent by which our error without a past is below the best interpolated forecast."""
    ours = lines[*where, OURS]
    here = [line for (dataset, layout, _), line in lines.items() if (dataset, layout) == where]
    candidates = ((line, method) for line in here for method in INTERPOLATIONS)
    best, method = min(candidates, key=lambda pair: pair[0][pair[1]])
    gain = {
        "alternative": f"{best['model']}, {method}",
        "alternative_mae": best[method],
        "gain": 100 * (1 - ours["no_history"] / best[method]),
        "gain_rmse": 100 * (1 - ours["no_history_rmse"] / best[f"{method}_rmse"]),
    }
    windows = [
        np.array([r.scores["groups"][group]["by_window"] for r in rows[*where, model]], np.float64)
        for model, group in ((OURS, "no_history"), (best["model"], method))
    ]
    return gain | significance(windows[0].mean(0), windows[1].mean(0))


def figure(results: Sequence[Result], path: Path) -> None:
    """Deviation by share of unseen points; errors without a past against the alternatives."""
    lines = table(results)
    datasets = unique(line["dataset"] for line in lines)
    if not datasets:
        return
    titles = ["unseen points with a past", "unseen points without a past"]
    drawn, (left, right) = panels(titles, (5.2, max(3.4, 1.2 + 0.5 * len(datasets))))
    _draw_deviations(left, datasets, lines)
    _draw_alternatives(right, datasets, lines)
    save(drawn, path)


def _draw_deviations(axes: Axes, datasets: Sequence[str], lines: Sequence[Line]) -> None:
    """A line per data set."""
    for rank, dataset in enumerate(datasets):
        ours = [
            x for x in lines if (x["dataset"], x["model"], x["region"]) == (dataset, OURS, False)
        ]
        share = [100 * line["ratio"] / (1 + line["ratio"]) for line in ours]
        deviations = [line["deviation"] for line in ours]
        axes.plot(share, deviations, markersize=5, label=dataset, **line_style(rank))
    axes.axhline(GOALS["deviation"], color="0.4", linewidth=0.8, linestyle="--")
    axes.axhline(0.0, color="0.4", linewidth=0.8)
    axes.set_xlabel("points held out (%)", fontsize=9)
    axes.set_ylabel("Deviation of the MAE (%)", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _draw_alternatives(axes: Axes, datasets: Sequence[str], lines: Sequence[Line]) -> None:
    """A row per data set, a colour per model, a marker per method."""
    models = unique(line["model"] for line in lines)
    colours = {model: PALETTE[rank % len(PALETTE)] for rank, model in enumerate(models)}
    markers = {"no_history": ("*", 11), "idw": ("s", 4), "kriging": ("o", 4)}
    names = {"no_history": "direct forecast", "idw": "interpolated, IDW", "kriging": "kriging"}
    for row, dataset in enumerate(datasets):
        here = [
            x
            for x in lines
            if x["dataset"] == dataset and x["share"] in (MAIN_SHARE, None) and not x["region"]
        ]
        best = next((line["alternative_mae"] for line in here if "gain" in line), None)
        for line, method in ((line, method) for line in here for method in markers):
            if best and line[method] is not None:
                marker, size = markers[method]
                colour = colours[line["model"]]
                axes.plot(line[method] / best, row, marker, color=colour, markersize=size)
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.axvline(1 - GOALS["gain"] / 100, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(datasets)), datasets)
    axes.set_xlabel("MAE over that of the best interpolated forecast", fontsize=9)
    for method, (marker, size) in markers.items():
        axes.plot([], [], marker, color="0.4", markersize=size, label=names[method])
    for model, colour in colours.items():
        axes.plot([], [], "-", color=colour, linewidth=3, label=model)
    axes.legend(frameon=False, fontsize=7)
