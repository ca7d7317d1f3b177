"""Irregular: labels missing in training, inputs missing later, inputs and questions at odd times.

Each is asked of the test part:

- *labels*, the paper's: in every training window only n_t' of the n_t target times are known.
- *random*, *outage*: a share of the inputs is lost, single values or sensors for a whole window.
- *thinned*: a share of the input frames is lost; the others keep their own times.
- *between*: the model is trained on every 4th frame and asked for those between, and gets inputs
  that are not in step. The alternative is to interpolate its forecasts in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.data.time_spec import HORIZON
from stonet.data.windows import in_batches
from stonet.errors import UsageError, unknown_name
from stonet.evaluation.scoring import MAX_WINDOWS, empty_statistics
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.comparison import GROUPS, LABELS, OURS, variant
from stonet.experiments.corruption import (
    Between,
    Change,
    answer,
    coarser,
    outage,
    random_loss,
    thinned,
    unchanged,
)
from stonet.experiments.datasets import task_of
from stonet.experiments.drawing import panels, save
from stonet.models.registry import MODELS, REFERENCE_FORECASTS
from stonet.plotting.figures import PALETTE
from stonet.training.budget import Budget, TrainingResult, train

NAME = "irregular"
GOALS = {"labels": 5.0, "random": 10.0, "outage": 10.0}  # percent at most: half, a quarter lost
KEPT = (2, 4, 6, 8, 10)  # labels of a window, where all are 12
SHARES = (0.1, 0.25, 0.5, 0.75)  # of the inputs that are lost
LOSSES: dict[str, Callable[[float], Change]] = {
    "random": random_loss,
    "outage": outage,
    "thinned": thinned,
}
MOST = 128  # test windows, evenly spread: they are asked over and over
EVERY = 4  # frames that make a step of the coarser data
CHOSEN = (OURS, "linear", "stgcn")
METRICS = ("mae", "rmse", "bias")
COLUMNS = ("dataset", "model", "ask", "level", "mae", "rmse", "change", "seeds", "stale")
ACROSS = {
    "labels": "labels kept in a training window",
    "random": "single inputs missing, %",
    "outage": "sensors silent, %",
    "thinned": "input frames missing, %",
}
STYLES = ("-", "--", ":", "-.")
Line = dict[str, Any]
Level = float | int | str


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Every model with all labels; STONet with half of them too, and on some tasks with any number.

    Times between the steps are asked for on Wave, which is known at all of them.
    """
    labels = [label for name in models for label in GROUPS.get(name, (name,))]
    for label in labels:
        if label not in LABELS and label not in MODELS:
            raise unknown_name("model", label, [*LABELS, *GROUPS])
    chosen = tuple(dict.fromkeys(labels)) or (CHOSEN[:2] if budget.few else CHOSEN)
    found = []
    for dataset in datasets:
        for label in chosen:
            extra = {"ask": "missing", "labels": None}
            whole = budget.cell(NAME, dataset, label, extra=extra, **variant(label))
            found += [
                replace(whole, seed=s) for s in range(1 if label in REFERENCE_FORECASTS else seeds)
            ]
            if label == OURS:
                found += _fewer_labels(whole, seeds, dataset in budget.ablated, budget.few)
            if task_of(dataset).dataset == "wave":
                asked = (("ask", "between"), ("labels", None))
                found.append(replace(whole, label=f"{label} between", extra=asked))
    return found


def _fewer_labels(whole: Cell, seeds: int, sweep: bool, few: bool) -> list[Cell]:
    """Half of the labels with every seed; with `sweep`, other numbers of them with one."""
    horizon = whole.config.data.horizon or HORIZON
    if isinstance(horizon, str):  # a duration; how many steps it has is not known yet
        return []
    half = horizon // 2
    kept = [n for n in KEPT if n < horizon and (n == half or (sweep and not few))]
    return [
        replace(
            whole,
            label=f"{whole.label} {n} labels",
            seed=seed,
            settings=(*whole.settings, f"data.labels={n}"),
            extra=(("ask", "labels"), ("labels", n)),
        )
        for n in kept
        for seed in range(seeds if n == half else 1)
    ]


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Train once, and ask in all the ways that the cell stands for."""
    between = cell.options["ask"] == "between"
    try:
        trained = train(coarser(dataset, EVERY) if between else dataset, config, budget)
    except UsageError as error:  # daily persistence without days
        return {"skipped": str(error)}
    found: Scores = {"units": list(trained.trained.units), "training": vars(trained.cost)}
    if between:
        return found | between_steps(Between(trained, dataset, EVERY))
    found |= {"horizon": trained.trained.time_spec.horizon, "whole": errors(trained, unchanged)}
    if cell.options["ask"] == "missing":
        for name, loss in LOSSES.items():
            found[name] = [{"share": s} | errors(trained, loss(s)) for s in SHARES]
    return found


def errors(trained: TrainingResult, change: Change) -> Scores:
    """At the training points, on the test part, with the inputs changed."""
    run, task = trained.trained, trained.task
    given = task.windows("test", task.scoring_stride).thin(MOST)
    truth = task.windows("test", task.scoring_stride, raw=True).thin(MOST)
    graphs, statistics = run.model.eval().graphs(task.nodes, task.nodes), empty_statistics(run)
    for chosen in in_batches(given, MAX_WINDOWS):
        forecast = answer(trained, change(given.inputs(chosen), chosen), graphs)
        statistics.add(forecast, *truth.targets(chosen))
    return {metric: statistics.value(metric) for metric in METRICS}


def between_steps(asked: Between) -> Scores:
    """Errors between the model's steps, where others would interpolate its forecasts in time.

    *Ideal* interpolates the truth itself: what interpolation costs even a perfect forecast. And
    errors at its steps from inputs that are not in step, whether it is told their times or not.
    """
    truth, observed = asked.truth()
    at = np.arange(1, truth.shape[1] + 1) % asked.every == 0

    def told(forecast: np.ndarray, steps: bool) -> Scores:
        chosen = at if steps else ~at
        error = (forecast - truth)[:, chosen][observed[:, chosen]]
        return {"mae": _mean(np.abs(error)), "rmse": _mean(error**2) ** 0.5, "bias": _mean(error)}

    forecast = asked.forecast()
    return {
        "every": asked.every,
        "between": {
            "itself": told(forecast, False),
            "linear": told(asked.filled(forecast, "linear"), False),
            "cubic": told(asked.filled(forecast, "cubic"), False),
            "ideal linear": told(asked.filled(truth, "linear"), False),
            "ideal cubic": told(asked.filled(truth, "cubic"), False),
        },
        "odd inputs": {
            "in step": told(forecast, True),
            "told": told(asked.forecast(jitter=True), True),
            "untold": told(asked.forecast(jitter=True, told=False), True),
        },
    }


def _mean(values: Float64[np.ndarray, " value"]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def table(results: Sequence[Result]) -> list[Line]:
    """One line for each task, model, question and level: means over seeds, and what it costs.

    `change` is in percent: of the same model's error, with the same seed, where nothing is missing,
    inputs are in step, or the model itself scored_batches between its steps.
    """
    known = [result for result in results if "skipped" not in result.scores]
    whole = {
        (r.cell.dataset, _model(r), r.cell.seed): r.scores["whole"]["mae"]
        for r in known
        if r.cell.options["ask"] == "missing"
    }
    found: dict[tuple[str, str, str, Level], list[tuple[Scores, float | None, Result]]] = {}
    for result in known:
        base = whole.get((result.cell.dataset, _model(result), result.cell.seed))
        for ask, level, scores, own in _asked(result):
            key = result.cell.dataset, _model(result), ask, level
            found.setdefault(key, []).append((scores, own or base, result))
    return [_line(*key, rows) for key, rows in found.items()]


def _asked(result: Result) -> list[tuple[str, Level, Scores, float | None]]:
    """(question, level, errors, what they are compared with) of all that a cell holds."""
    scores, ask = result.scores, result.cell.options["ask"]
    if ask == "between":
        return [
            (name, level, part, next(iter(scores[name].values()))["mae"])
            for name in ("between", "odd inputs")
            for level, part in scores[name].items()
        ]
    if ask == "labels":
        return [(ask, result.cell.options["labels"], scores["whole"], None)]
    found: list[tuple[str, Level, Scores, float | None]] = []
    for name in LOSSES:
        found.append((name, 0.0, scores["whole"], None))
        found += [(name, line["share"], line, None) for line in scores[name]]
    return [("labels", scores["horizon"], scores["whole"], None), *found]


def _line(
    dataset: str,
    model: str,
    ask: str,
    level: Level,
    rows: Sequence[tuple[Scores, float | None, Result]],
) -> Line:
    line: Line = {"dataset": dataset, "model": model, "ask": ask, "level": level}
    for metric in METRICS:
        line[metric] = float(np.mean([scores[metric] for scores, _, _ in rows]))
    maes = [scores["mae"] for scores, _, _ in rows]
    line["mae_std"] = float(np.std(maes)) if len(rows) > 1 else None
    changes = [100 * (scores["mae"] / base - 1) for scores, base, _ in rows if base]
    line["change"] = float(np.mean(changes)) if changes else None
    line["seeds"] = len(rows)
    line["stale"] = sorted({result.commit for _, _, result in rows if result.stale})
    return line


def _model(result: Result) -> str:
    return result.cell.label.split(" ")[0]


def figure(results: Sequence[Result], path: Path) -> None:
    """What each loss costs, by how much is lost: a colour for each task, a style for each model."""
    lines = [line for line in table(results) if line["change"] is not None]
    if not lines:
        return
    drawn, every = panels(list(ACROSS.values()), (4.2, 3.4))
    for axes, ask in zip(every, ACROSS, strict=True):
        _panel(axes, lines, ask)
    every[0].legend(frameon=False, fontsize=7)
    save(drawn, path)


def _panel(axes: Axes, lines: Sequence[Line], ask: str) -> None:
    tasks, models = (list(dict.fromkeys(one[k] for one in lines)) for k in ("dataset", "model"))
    here, unit = [one for one in lines if one["ask"] == ask], 1 if ask == "labels" else 100
    for row in dict.fromkeys((one["dataset"], one["model"]) for one in here):
        mine = [one for one in here if (one["dataset"], one["model"]) == row]
        mine = sorted(mine, key=lambda one: float(one["level"]))
        place = [unit * one["level"] for one in mine], [one["change"] for one in mine]
        colour = PALETTE[tasks.index(row[0]) % len(PALETTE)]
        style = STYLES[models.index(row[1]) % len(STYLES)]
        axes.plot(*place, style, color=colour, marker="o", markersize=3, label=", ".join(row))
    axes.axhline(GOALS.get(ask, 0.0), color="0.4", linewidth=0.8, linestyle="--")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=min([-10.0, *(1.2 * one["change"] for one in here)]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("change of the MAE (%)", fontsize=9)
