"""Comparison: STONet, eight baselines, four reference forecasts, and corrected linear forecasts.

The paper's Table 3, with reference forecasts, significance, and errors by lead, hour of the day and
point. `stonet-operator` is the paper's architecture, well conditioned, `stonet-paper` the paper's
network. A row such as `stgcn+base` is a baseline that corrects the linear forecast (its base).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import unknown_name
from stonet.evaluation.significance import paired_block_bootstrap
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.error_summary import errors_by_hour, summarise_errors
from stonet.experiments.figures import draw_curves, draw_maps, draw_models
from stonet.experiments.tables import (
    Line,
    mean,
    measured,
    stale_commits,
    standard_deviation,
    unique,
)
from stonet.models.registry import BASELINES, MODELS, REFERENCE_FORECASTS
from stonet.training.budget import Budget, train

NAME = "comparison"
OURS, OPERATOR, PAPER = "stonet", "stonet-operator", "stonet-paper"
ON_BASE = tuple(f"{name}+base" for name in BASELINES)
LABELS = (OURS, OPERATOR, PAPER, *BASELINES, *ON_BASE, *REFERENCE_FORECASTS)
GROUPS = {"all": LABELS, "baselines": BASELINES, "base": ON_BASE, "references": REFERENCE_FORECASTS}
KINDS = {
    **dict.fromkeys(BASELINES, "baseline"),
    **dict.fromkeys(REFERENCE_FORECASTS, "reference forecast"),
    **dict.fromkeys(ON_BASE, "baseline on the linear forecast"),
    **dict.fromkeys((OURS, OPERATOR, PAPER), "STONet"),
}
MINIMAL = (OURS, "stgcn", "linear", "persistence")
METRICS = ("mae", "rmse", "mape", "bias")
COSTS = ("parameters", "steps", "cpu_seconds", "best_validation")
COLUMNS = {
    "dataset": "data set",
    "model": "model",
    "mae": "MAE",
    "rmse": "RMSE",
    "mape": "MAPE (%)",
    "bias": "bias",
    "skill": "skill",
    "steps": "steps",
    "cpu_seconds": "training (CPU s)",
    "second": "best other",
    "improvement": "improvement (%)",
    "p": "p",
    "stale": "stale",
}
MIN_WINDOWS = 64  # test windows needed for a test of significance: eight blocks


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Every model on every data set with every seed.

    Reference forecasts do not depend on the seed; baselines on the base have the first seed only.
    """
    labels = expand_labels(models, MINIMAL if budget.minimal else LABELS)
    return [
        budget.cell(NAME, dataset, label, seed, **variant(label))
        for dataset in datasets
        for label in labels
        for seed in range(1 if label in REFERENCE_FORECASTS or label in ON_BASE else seeds)
    ]


def expand_labels(models: Sequence[str], default: Sequence[str]) -> list[str]:
    """Row labels of models and groups of models, each once.

    Args:
        models: labels, names of GROUPS or registered models; none: `default`.
        default: labels.

    Raises:
        UsageError: a name is unknown.
    """
    labels = unique(label for name in models for label in GROUPS.get(name, (name,)))
    for label in labels:
        if label not in LABELS and label not in MODELS:
            raise unknown_name("model", label, {*LABELS, *GROUPS, *MODELS})
    return labels or list(default)


def variant(label: str) -> dict[str, Any]:
    """The model, preset and settings that a label stands for.

    Args:
        label: a row of the table.
    """
    if label == PAPER:
        return {"model": PAPER, "preset": "paper"}
    model, _, base = label.partition("+")
    return {"model": model, "settings": ("baseline.base=ridge",) if base else ()}


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors on the test part."""
    training = train(dataset, config, budget)
    scores = summarise_errors(training) | {"by_hour": errors_by_hour(training)}
    if cell.label == OURS:  # positions of the errors by point, once per data set
        nodes = training.task.nodes
        scores["kind"], scores["coordinates"] = nodes.kind, nodes.coordinates.round(4).tolist()
    return scores


def table(results: Sequence[Result]) -> list[Line]:
    """One line per data set and model, best first: mean and spread over seeds, skill, costs."""
    table_lines = []
    for dataset in unique(result.cell.dataset for result in results):
        here = [result for result in measured(results) if result.cell.dataset == dataset]
        lines = [_line(dataset, label, rows) for label, rows in by_label(here).items()]
        reference = next((line["mae"] for line in lines if line["model"] == "persistence"), None)
        for line in lines:
            line["skill"] = 1 - line["mae"] / reference if reference else None
        for line in lines:
            if line["model"] in (OURS, OPERATOR, PAPER):
                line |= _improvement(line, lines, here, (*BASELINES, *REFERENCE_FORECASTS))
                on_base = _improvement(line, lines, here, ON_BASE)
                line |= {f"{key}_on_base": value for key, value in on_base.items()}
        table_lines += sorted(lines, key=lambda line: float(line["mae"]))
    return table_lines


def by_label(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each label, in their order.

    Args:
        results: of any cells.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.cell.label, []).append(result)
    return groups


def _line(dataset: str, label: str, rows: Sequence[Result]) -> Line:
    """Means over the seeds of one model."""
    line: Line = {"dataset": dataset, "model": label, "seeds": len(rows)}
    for metric in METRICS:
        values = [r.scores[metric] for r in rows if r.scores[metric] is not None]
        line[metric], line[f"{metric}_std"] = mean(values), standard_deviation(values)
    for cost in COSTS:
        spent = [r.scores["training"][cost] for r in rows]
        line[cost] = mean([each for each in spent if each is not None])
    line["windows"] = len(rows[0].scores["by_window"])
    line["stale"] = stale_commits(rows)
    return line


def _improvement(
    ours: Line, lines: Sequence[Line], results: Sequence[Result], models: Sequence[str]
) -> Line:
    """Percent by which our errors are below those of the best of `models`, with significance."""
    others = [line for line in lines if line["model"] in models]
    if not others:
        return {}
    best = min(others, key=lambda line: float(line["mae"]))
    gain = {
        "second": best["model"],
        "improvement": 100 * (1 - ours["mae"] / best["mae"]),
        "improvement_rmse": 100 * (1 - ours["rmse"] / best["rmse"]),
    }
    rows = [
        np.array(
            [r.scores["by_window"] for r in results if r.cell.label == label], dtype=np.float64
        )
        for label in (ours["model"], best["model"])
    ]
    return gain | significance(rows[0].mean(0), rows[1].mean(0))


def significance(mine: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Confidence interval and p-value of the difference of two models' errors by window.

    Nothing where there are fewer than MIN_WINDOWS windows, or where the windows differ: the paper's
    preset has a shorter past and so other windows.

    Args:
        mine: errors of one model by window.
        theirs: errors of the other model.
    """
    if mine.shape != theirs.shape or len(mine) < MIN_WINDOWS:
        return {}
    difference = paired_block_bootstrap(mine, theirs)
    return {"low": difference.low, "high": difference.high, "p": difference.p}


def figure(results: Sequence[Result], path: Path) -> None:
    """Four figures: all models, errors by lead, by hour of the day, and maps of errors."""
    lines = table(results)
    if not lines:
        return
    draw_models(lines, KINDS, path)
    baselines = {
        name: next(
            (x["model"] for x in lines if x["dataset"] == name and x["model"] in BASELINES), ""
        )
        for name in unique(line["dataset"] for line in lines)
    }
    curves = {name: (OURS, best, "linear", "persistence") for name, best in baselines.items()}
    draw_curves(results, curves, "by_lead", path.with_stem(f"{path.stem}-leads"))
    draw_curves(results, curves, "by_hour", path.with_stem(f"{path.stem}-hours"))
    pairs = {name: (OURS, best) for name, best in baselines.items()}
    draw_maps(results, pairs, path.with_stem(f"{path.stem}-maps"))
