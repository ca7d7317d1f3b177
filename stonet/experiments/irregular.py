"""Irregular: missing labels in training, missing inputs, and irregular times of inputs and targets.

Scenarios, all scored on the test part:

- *labels* (the paper's): in every training window only n_t' of the n_t target times are labelled.
- *random*, *outage*: a share of the inputs is lost, as single values or as sensors throughout a
  window.
- *thinned*: a share of the input frames is lost; the others keep their times.
- *between*: the model is trained on every 4th frame and forecasts the times between. The
  alternative is to interpolate its forecasts in time.
- *irregular inputs*: the same model, with inputs at irregular times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.data.time_spec import HORIZON
from stonet.data.windows import in_batches
from stonet.evaluation.scoring import empty_statistics
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.comparison import OURS, expand_labels, variant
from stonet.experiments.corruption import (
    BetweenSteps,
    Corruption,
    drop_frames,
    drop_sensors,
    drop_values,
    forecast_in_units,
    no_corruption,
    subsample,
)
from stonet.experiments.datasets import experiment_data
from stonet.experiments.figures import panels, save
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

NAME = "irregular"
GOALS = {"labels": 3.0, "random": 8.0, "outage": 8.0}  # percent at most: half, a quarter lost
KEPT_LABELS = (2, 4, 6, 8, 10)  # of 12 in a window
SHARES = (0.1, 0.25, 0.5, 0.75)  # of the inputs, lost
LOSSES: dict[str, Callable[[float], Corruption]] = {
    "random": drop_values,
    "outage": drop_sensors,
    "thinned": drop_frames,
}
BATCH = 8  # windows that are forecast at a time
MAX_WINDOWS = 128  # test windows, evenly spread: each is forecast once per loss and share
EVERY = 4  # frames of the data in a step of the subsampled data
MODELS = (OURS, "linear", "stgcn")
METRICS = ("mae", "rmse", "bias")
COLUMNS = {
    "dataset": "data set",
    "model": "model",
    "scenario": "scenario",
    "level": "level",
    "mae": "MAE",
    "rmse": "RMSE",
    "change": "change of the MAE (%)",
    "seeds": "seeds",
    "stale": "stale",
}
PANELS = {  # scenario -> title, x label
    "labels": ("Missing labels", "labels per training window"),
    "random": ("Missing values", "single inputs missing (%)"),
    "outage": ("Missing sensors", "sensors missing (%)"),
    "thinned": ("Missing frames", "input frames missing (%)"),
}
LINE_STYLES = ("-", "--", ":", "-.")
Level = float | int | str


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Every model with all labels; STONet also with half of them and with other numbers.

    Times between the steps are forecast on Wave, whose fine time steps are all known.
    """
    cells = []
    for dataset in datasets:
        for label in expand_labels(models, MODELS[:2] if budget.minimal else MODELS):
            extra = {"scenario": "missing", "labels": None}
            base = budget.cell(NAME, dataset, label, extra=extra, **variant(label))
            count = 1 if label in REFERENCE_FORECASTS else seeds
            cells += [replace(base, seed=seed) for seed in range(count)]
            if label == OURS:
                cells += _fewer_labels(base, seeds, sweep=not budget.minimal)
            if experiment_data(dataset).dataset == "wave":
                extra = {"labels": None, "scenario": "between"}
                cells.append(replace(base, label=f"{label} between", extra=tuple(extra.items())))
    return cells


def _fewer_labels(base: Cell, seeds: int, sweep: bool) -> list[Cell]:
    """Half of the labels with every seed; with `sweep`, other numbers of them with one."""
    horizon = base.config.data.horizon or HORIZON
    if isinstance(horizon, str):  # a duration: the number of steps depends on the data
        return []
    half = horizon // 2
    return [
        replace(
            base,
            label=f"{base.label} {count} labels",
            seed=seed,
            settings=(*base.settings, f"data.labels={count}"),
            extra=(("labels", count), ("scenario", "labels")),
        )
        for count in KEPT_LABELS
        if count < horizon and (count == half or sweep)
        for seed in range(seeds if count == half else 1)
    ]


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Train once, and score in every scenario of the cell."""
    scenario = cell.options["scenario"]
    between = scenario == "between"
    training = train(subsample(dataset, EVERY) if between else dataset, config, budget)
    scores: Scores = {"units": list(training.trained.units), "training": vars(training.cost)}
    if between:
        return scores | between_steps(BetweenSteps(training, dataset, EVERY))
    complete = errors(training, no_corruption)
    scores |= {"horizon": training.trained.time_spec.horizon, "complete": complete}
    if scenario == "missing":
        for name, loss in LOSSES.items():
            scores[name] = [{"share": s} | errors(training, loss(s)) for s in SHARES]
    return scores


def errors(training: TrainingResult, corrupt: Corruption) -> Scores:
    """Errors at the training points on the test part, from corrupted inputs.

    Args:
        training: a trained model and its task.
        corrupt: changes the inputs.
    """
    model, task = training.trained.model.eval(), training.task
    given = task.windows("test", task.scoring_stride).thin(MAX_WINDOWS)
    truth = task.windows("test", task.scoring_stride, raw=True).thin(MAX_WINDOWS)
    graphs, statistics = model.graphs(task.nodes, task.nodes), empty_statistics(training.trained)
    for chosen in in_batches(given, BATCH):
        batch = corrupt(given.inputs(chosen), chosen)
        forecast = forecast_in_units(training, batch, graphs)
        statistics.add(forecast, *truth.targets(chosen))
    return {metric: statistics.value(metric) for metric in METRICS}


def between_steps(fine: BetweenSteps) -> Scores:
    """Errors between the model's steps, and at its steps from inputs at irregular times.

    Between the steps, the model is compared with its own forecasts interpolated in time; "ideal"
    interpolates the truth, the error of interpolation with a perfect forecast. Inputs at irregular
    times come with their true times, or the model assumes regular ones.

    Args:
        fine: windows between the model's steps.
    """
    truth, observed = fine.truth()
    at_steps = np.arange(1, truth.shape[1] + 1) % fine.every == 0

    def errors_of(forecast: np.ndarray, chosen: np.ndarray) -> Scores:
        error = (forecast - truth)[:, chosen][observed[:, chosen]]
        return {"mae": _mean(np.abs(error)), "rmse": _mean(error**2) ** 0.5, "bias": _mean(error)}

    forecast = fine.forecast()
    between = {
        "model": forecast,
        "linear": fine.interpolated(forecast, "linear"),
        "cubic": fine.interpolated(forecast, "cubic"),
        "ideal linear": fine.interpolated(truth, "linear"),
        "ideal cubic": fine.interpolated(truth, "cubic"),
    }
    irregular = {
        "regular": forecast,
        "true times": fine.forecast(jitter=True),
        "assumed regular": fine.forecast(jitter=True, true_times=False),
    }
    return {
        "every": fine.every,
        "between": {name: errors_of(series, ~at_steps) for name, series in between.items()},
        "irregular inputs": {name: errors_of(s, at_steps) for name, s in irregular.items()},
    }


def _mean(values: Float64[np.ndarray, " value"]) -> float:
    """The mean; NaN of nothing."""
    return float(values.mean()) if len(values) else float("nan")


def table(results: Sequence[Result]) -> list[Line]:
    """One line per data set, model, scenario and level: means over seeds, and the change.

    `change` is in percent of the same model's MAE, with the same seed, from complete inputs, from
    regular inputs, or of the model's own forecast between its steps.
    """
    complete = {
        (r.cell.dataset, _model(r), r.cell.seed): r.scores["complete"]["mae"]
        for r in measured(results)
        if r.cell.options["scenario"] == "missing"
    }
    groups: dict[tuple[str, str, str, Level], list[tuple[Scores, float | None, Result]]] = {}
    for result in measured(results):
        reference = complete.get((result.cell.dataset, _model(result), result.cell.seed))
        for scenario, level, scores, own_reference in _levels(result):
            key = result.cell.dataset, _model(result), scenario, level
            groups.setdefault(key, []).append((scores, own_reference or reference, result))
    return [_line(*key, rows) for key, rows in groups.items()]


def _levels(result: Result) -> list[tuple[str, Level, Scores, float | None]]:
    """(scenario, level, errors, reference MAE) of all that a cell holds."""
    scores, scenario = result.scores, result.cell.options["scenario"]
    if scenario == "between":
        return [
            (name, level, part, next(iter(scores[name].values()))["mae"])
            for name in ("between", "irregular inputs")
            for level, part in scores[name].items()
        ]
    complete = scores["complete"]
    if scenario == "labels":
        return [("labels", result.cell.options["labels"], complete, None)]
    levels: list[tuple[str, Level, Scores, float | None]] = [
        ("labels", scores["horizon"], complete, None)
    ]
    for name in LOSSES:
        levels.append((name, 0.0, complete, None))
        levels += [(name, line["share"], line, None) for line in scores[name]]
    return levels


def _line(
    dataset: str,
    model: str,
    scenario: str,
    level: Level,
    rows: Sequence[tuple[Scores, float | None, Result]],
) -> Line:
    """Means over the seeds."""
    line: Line = {"dataset": dataset, "model": model, "scenario": scenario, "level": level}
    for metric in METRICS:
        line[metric] = mean([scores[metric] for scores, _, _ in rows])
    line["mae_std"] = standard_deviation([scores["mae"] for scores, _, _ in rows])
    line["change"] = mean([100 * (scores["mae"] / base - 1) for scores, base, _ in rows if base])
    line["seeds"] = len(rows)
    line["stale"] = stale_commits(result for _, _, result in rows)
    return line


def _model(result: Result) -> str:
    """The model in a label such as "stonet 6 labels"."""
    return result.cell.label.split(" ")[0]


def figure(results: Sequence[Result], path: Path) -> None:
    """Change of the MAE by level, one panel per scenario."""
    lines = [line for line in table(results) if line["change"] is not None]
    if not lines:
        return
    drawn, grid = panels([title for title, _ in PANELS.values()], (4.2, 3.4))
    for axes, scenario in zip(grid, PANELS, strict=True):
        _draw_scenario(axes, lines, scenario)
    for rank, dataset in enumerate(unique(line["dataset"] for line in lines)):
        grid[0].plot([], [], "o", color=PALETTE[rank % len(PALETTE)], ms=3, label=dataset)
    for rank, model in enumerate(unique(line["model"] for line in lines)):
        grid[0].plot([], [], LINE_STYLES[rank % len(LINE_STYLES)], color="0.4", label=model)
    grid[0].legend(frameon=False, fontsize=7)
    save(drawn, path)


def _draw_scenario(axes: Axes, lines: Sequence[Line], scenario: str) -> None:
    """A colour per data set, a line style per model."""
    datasets, models = (unique(line[key] for line in lines) for key in ("dataset", "model"))
    here = [line for line in lines if line["scenario"] == scenario]
    scale = 1 if scenario == "labels" else 100
    for dataset, model in unique((line["dataset"], line["model"]) for line in here):
        curve = [line for line in here if (line["dataset"], line["model"]) == (dataset, model)]
        curve = sorted(curve, key=lambda line: float(line["level"]))
        x, y = [scale * line["level"] for line in curve], [line["change"] for line in curve]
        colour = PALETTE[datasets.index(dataset) % len(PALETTE)]
        style = LINE_STYLES[models.index(model) % len(LINE_STYLES)]
        axes.plot(x, y, style, color=colour, marker="o", markersize=3)
    if scenario in GOALS:
        axes.axhline(GOALS[scenario], color="0.4", linewidth=0.8, linestyle="--")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=min([-10.0, *(1.2 * line["change"] for line in here)]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(PANELS[scenario][1], fontsize=9)
    axes.set_ylabel("change of the MAE (%)", fontsize=9)
