"""Comparison: STONet, eight baselines, four references, and the baselines on STONet's linear base.

The paper's Table 3, with what it leaves out: references, significance, and errors apart by lead, hour
of the day and point. A row `stgcn+base` asks whether a gain is the operator's or the base's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import UsageError, unknown_name
from stonet.evaluation.comparison import Budget, train
from stonet.evaluation.significance import paired_block_bootstrap
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.error_summary import errors_of, hourly
from stonet.experiments.figures import draw_all, draw_curves, draw_maps
from stonet.models.registry import BASELINES, MODELS, REFERENCE_FORECASTS

NAME = "comparison"
OURS, PAPER = "stonet", "stonet-paper"
BASED = tuple(f"{name}+base" for name in BASELINES)
LABELS = (OURS, PAPER, *BASELINES, *BASED, *REFERENCE_FORECASTS)
GROUPS = {"all": LABELS, "baselines": BASELINES, "base": BASED, "references": REFERENCE_FORECASTS}
FEW = (OURS, "stgcn", "linear", "persistence")
METRICS = ("mae", "rmse", "mape", "bias")
COLUMNS = (
    "dataset",
    "model",
    "mae",
    "rmse",
    "mape",
    "bias",
    "skill",
    "steps",
    "seconds",
    "second",
    "improvement",
    "p",
    "stale",
)
ENOUGH = 64  # test windows from which on a difference is tested: eight blocks
COSTS = ("parameters", "steps", "seconds", "best_validation")


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Every model on every task with every seed.

    Reference forecasts are the same with each; baselines on the base, asked whose the gain is, have the first.
    """
    labels = [label for name in models for label in GROUPS.get(name, (name,))]
    for label in labels:
        if label not in LABELS and label not in MODELS:
            raise unknown_name("model", label, [*LABELS, *GROUPS])
    chosen = tuple(dict.fromkeys(labels)) or (FEW if budget.few else LABELS)
    return [
        budget.cell(NAME, dataset, label, seed, **variant(label))
        for dataset in datasets
        for label in chosen
        for seed in range(1 if label in REFERENCE_FORECASTS or label in BASED else seeds)
    ]


def variant(label: str) -> dict[str, Any]:
    """What a row's label means: the model, the preset, settings."""
    if label == PAPER:
        return {"model": "stonet", "preset": "paper"}
    model, _, base = label.partition("+")
    return {"model": model, "settings": ("baseline.base=ridge",) if base else ()}


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors on the test part; or why the model cannot be asked for this."""
    try:
        trained = train(dataset, config, budget)
    except UsageError as error:  # daily persistence without days
        return {"skipped": str(error)}
    scores = errors_of(trained) | {"by_hour": hourly(trained)}
    if cell.label == OURS:  # where the errors by point are, once for each task
        nodes = trained.task.nodes
        scores["kind"], scores["coordinates"] = nodes.kind, nodes.coordinates.round(4).tolist()
    return scores


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One line for each task and model, best first: mean and spread over seeds, skill, costs."""
    lines = []
    for dataset in dict.fromkeys(result.cell.dataset for result in results):
        here = [r for r in results if r.cell.dataset == dataset and "skipped" not in r.scores]
        found = [_line(dataset, label, rows) for label, rows in by_label(here).items()]
        reference = next((line["mae"] for line in found if line["model"] == "persistence"), None)
        for line in found:
            line["skill"] = 1 - line["mae"] / reference if reference else None
        for line in found:
            if line["model"] in (OURS, PAPER):
                line |= against_best(line, found, here, (*BASELINES, *REFERENCE_FORECASTS))
                based = against_best(line, found, here, BASED)
                line |= {f"{key}_based": value for key, value in based.items()}
        lines += sorted(found, key=lambda line: float(line["mae"]))
    return lines


def by_label(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each row, in the order in which they come."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.cell.label, []).append(result)
    return found


def _line(dataset: str, label: str, rows: Sequence[Result]) -> dict[str, Any]:
    line: dict[str, Any] = {"dataset": dataset, "model": label, "seeds": len(rows)}
    for metric in METRICS:
        values = [r.scores[metric] for r in rows if r.scores[metric] is not None]
        line[metric] = float(np.mean(values)) if values else None
        line[f"{metric}_std"] = float(np.std(values)) if len(values) > 1 else None
    for cost in COSTS:
        line[cost] = float(np.mean([r.scores["training"][cost] for r in rows]))
    line["windows"] = len(rows[0].scores["by_window"])
    line["stale"] = sorted({r.commit for r in rows if r.stale})
    return line


def against_best(
    ours: dict[str, Any],
    lines: Sequence[dict[str, Any]],
    results: Sequence[Result],
    models: Sequence[str],
) -> dict[str, Any]:
    """How far ours lies below the best of these models, and whether that is luck."""
    others = [line for line in lines if line["model"] in models]
    if not others:
        return {}
    best = min(others, key=lambda line: float(line["mae"]))
    found = {
        "second": best["model"],
        "improvement": 100 * (1 - ours["mae"] / best["mae"]),
        "improvement_rmse": 100 * (1 - ours["rmse"] / best["rmse"]),
    }
    mine, theirs = (windows_of(results, name) for name in (ours["model"], best["model"]))
    return found | tested(mine, theirs)


def tested(mine: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Interval and p of a difference; nothing where windows are few, or not the same.

    The paper's preset looks back less far, and so has other windows.
    """
    if mine.shape != theirs.shape or len(mine) < ENOUGH:
        return {}
    difference = paired_block_bootstrap(mine, theirs)
    return {"low": difference.low, "high": difference.high, "p": difference.p}


def windows_of(results: Sequence[Result], label: str) -> np.ndarray:
    """MAE of each test window, the mean over seeds; NaN where nothing was observed."""
    rows = [r.scores["by_window"] for r in results if r.cell.label == label]
    return np.array(rows, dtype=np.float64).mean(0)


def figure(results: Sequence[Result], path: Path) -> None:
    """Four pictures: all models, errors by lead, by hour of the day, and maps of errors."""
    lines = table(results)
    if not lines:
        return
    kinds = dict.fromkeys(BASELINES, "baseline") | dict.fromkeys(
        REFERENCE_FORECASTS, "reference forecast"
    )
    kinds |= dict.fromkeys(BASED, "baseline on the base") | dict.fromkeys((OURS, PAPER), "STONet")
    draw_all(lines, kinds, path)
    baselines = {
        task: next(
            (x["model"] for x in lines if x["dataset"] == task and x["model"] in BASELINES), ""
        )
        for task in dict.fromkeys(line["dataset"] for line in lines)
    }
    shown = {
        task: (OURS, baseline, "linear", "persistence") for task, baseline in baselines.items()
    }
    draw_curves(results, shown, "by_lead", path.with_stem(f"{path.stem}-leads"))
    draw_curves(results, shown, "by_hour", path.with_stem(f"{path.stem}-hours"))
    draw_maps(
        results, {t: (OURS, r) for t, r in baselines.items()}, path.with_stem(f"{path.stem}-maps")
    )
