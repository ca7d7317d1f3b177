"""Comparison: STONet, its rivals and four reference forecasts.

The paper's Table 3, with reference forecasts, significance, and errors by lead, hour of the day and
point. `stonet-operator` is the paper's architecture, well conditioned, `stonet-paper` the paper's
network. The rivals are the paper's eight baselines and what practitioners would try. The forecasts
of every trained model are scored a second time, corrected by its own recent errors (feedback).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import unknown_name
from stonet.evaluation.ranks import Ranking, rank
from stonet.evaluation.significance import paired_block_bootstrap
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.error_summary import summarise_errors
from stonet.experiments.figures import draw_curves, draw_maps, draw_models, draw_ranks
from stonet.experiments.tables import (
    Line,
    mean,
    measured,
    stale_commits,
    standard_deviation,
    unique,
)
from stonet.models.registry import (
    BASELINES,
    MODELS,
    PAPER_BASELINES,
    REFERENCE_FORECASTS,
)
from stonet.training.budget import Budget, train

NAME = "comparison"
OURS, OPERATOR, PAPER = "stonet", "stonet-operator", "stonet-paper"
LABELS = (OURS, OPERATOR, PAPER, *BASELINES, *REFERENCE_FORECASTS)
GROUPS = {"all": LABELS, "baselines": BASELINES, "references": REFERENCE_FORECASTS}
KINDS = {
    **dict.fromkeys(BASELINES, "other model"),
    **dict.fromkeys(PAPER_BASELINES, "baseline of the paper"),
    **dict.fromkeys(REFERENCE_FORECASTS, "reference forecast"),
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
    """Every model on every data set; reference forecasts do not depend on the seed."""
    labels = expand_labels(models or budget.models, MINIMAL if budget.minimal else LABELS)
    return [
        budget.cell(NAME, dataset, label, seed, **variant(label))
        for dataset in datasets
        for label in labels
        for seed in range(1 if label in REFERENCE_FORECASTS else budget.seeds_of_row(label, seeds))
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
    return {"model": label}


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors on the test part."""
    training = train(dataset, config, budget)
    scores = summarise_errors(training, feedback=cell.label not in REFERENCE_FORECASTS)
    scores["choices"] = [str(choice) for choice in training.trained.choices]
    if cell.budget == "hour":
        scores["history"] = training.history
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
    fed = [r.scores.get("feedback") or r.scores for r in rows]
    line["feedback_mae"] = mean([scores["mae"] for scores in fed])
    covered = [scores["coverage_90"] for scores in fed if scores.get("coverage_90") is not None]
    line["coverage_90"] = mean(covered)
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


def ranks(lines: Sequence[Line]) -> Ranking | None:
    """Mean ranks by MAE of the models that were measured on every data set; None: too few.

    Args:
        lines: of the table.
    """
    datasets = unique(line["dataset"] for line in lines)
    errors = {
        model: np.array([line["mae"] for line in lines if line["model"] == model])
        for model in unique(line["model"] for line in lines)
    }
    complete = {model: row for model, row in errors.items() if len(row) == len(datasets)}
    return rank(complete) if len(complete) > 1 and len(datasets) > 1 else None


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
    """Five figures: all models, their ranks, errors by lead and by hour, and maps of errors."""
    lines = table(results)
    if not lines:
        return
    draw_models(lines, KINDS, path)
    ranking = ranks(lines)
    if ranking is not None:
        draw_ranks(ranking, KINDS, path.with_stem(f"{path.stem}-ranks"))
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
