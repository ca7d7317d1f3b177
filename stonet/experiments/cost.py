"""Cost: time and memory of each decoder, and its error.

The paper's Table 6 compares its decoder with one that integrates an ODE. Here all decoders of
`stonet-paper` have the paper's sizes, and the default network stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import unknown_name
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.error_summary import summarise_errors, without_details
from stonet.experiments.figures import panels, save
from stonet.experiments.tables import Line, measured, stale_commits, unique
from stonet.plotting.figures import PALETTE
from stonet.system.resources import reset_peak, resident_mb
from stonet.training.budget import Budget, train

NAME = "cost"
DECODERS = {  # label -> settings of the section `paper`
    "revised": (),
    "merged": ("paper.indices=merged",),
    "fixed": ("paper.decoder=fixed",),
    "ode": ("paper.decoder=ode",),
}
DEFAULT = "default"
LABELS = (*DECODERS, DEFAULT)
MINIMAL = ("revised", "ode")
# One term, since an ODE has one state; few validation windows, since an ODE is slow on them.
SHARED_SETTINGS = ("paper.terms=1", "train.validation_windows=8")
MAX_WINDOWS = 64  # scored of each part: an ODE is slow
COLUMNS = {
    "dataset": "data set",
    "decoder": "decoder",
    "seconds_per_epoch": "s/epoch",
    "times": "time over revised",
    "memory_mb": "memory (MB)",
    "mae": "test MAE",
    "train_mae": "training MAE",
    "steps": "steps",
}
PANELS = {"seconds_per_epoch": "time per epoch", "memory_mb": "peak memory", "mae": "test MAE"}


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Each decoder at the paper's sizes, and the default network; `models` selects some."""
    for name in models:
        if name not in LABELS:
            raise unknown_name("decoder", name, LABELS)
    labels = tuple(models) or (MINIMAL if budget.minimal else LABELS)
    return [
        budget.cell(NAME, dataset, label, seed, **_variant(label, budget))
        for dataset in datasets
        for label in labels
        for seed in range(seeds)
    ]


def _variant(label: str, budget: ExperimentBudget) -> dict[str, Any]:
    """The model, preset and settings that a label stands for."""
    if label == DEFAULT:
        return {}
    return {
        "model": "stonet-paper",
        "preset": "default" if budget.minimal else "paper",
        "settings": (*DECODERS[label], *SHARED_SETTINGS),
    }


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Time and memory of the training, errors on the training and the test part."""
    train(dataset, config, Budget(epochs=1, steps=1))  # loads what is loaded once
    reset_peak()
    before = resident_mb()
    training = train(dataset, config, budget)
    scores = without_details(summarise_errors(training, "test", MAX_WINDOWS))
    scores["train_mae"] = summarise_errors(training, "train", MAX_WINDOWS)["mae"]
    scores["memory_mb"] = training.cost.peak_mb - before  # beyond program and data
    return scores


def table(results: Sequence[Result]) -> list[Line]:
    """One line per data set and decoder; `times` is its epoch over that of the revised decoder."""
    lines = []
    for dataset in unique(result.cell.dataset for result in measured(results)):
        here = {
            r.cell.label: r
            for r in measured(results)
            if r.cell.dataset == dataset and r.cell.seed == 0
        }
        revised = _seconds_per_epoch(here["revised"]) if "revised" in here else None
        for label, row in sorted(here.items(), key=lambda pair: LABELS.index(pair[0])):
            seconds = _seconds_per_epoch(row)
            lines.append(
                {
                    "dataset": dataset,
                    "decoder": label,
                    "seconds_per_epoch": seconds,
                    "times": seconds / revised if revised else None,
                    **{key: row.scores[key] for key in ("memory_mb", "mae", "rmse", "train_mae")},
                    **{key: row.scores["training"][key] for key in ("steps", "parameters")},
                    "stale": stale_commits([row]),
                }
            )
    return lines


def _seconds_per_epoch(result: Result) -> float:
    """NaN where the budget was too short for a step."""
    seconds = result.scores["training"]["seconds_per_epoch"]
    return math.nan if seconds is None else float(seconds)


def figure(results: Sequence[Result], path: Path) -> None:
    """Bars of time, memory and error of each decoder, relative to the revised one."""
    lines = [line for line in table(results) if line["times"] is not None]
    datasets = unique(line["dataset"] for line in lines)
    if not datasets:
        return
    drawn, grid = panels(list(PANELS.values()))
    labels = [label for label in LABELS if any(line["decoder"] == label for line in lines)]
    for axes, key in zip(grid, PANELS, strict=True):
        for rank, dataset in enumerate(datasets):
            values = {line["decoder"]: line[key] for line in lines if line["dataset"] == dataset}
            height = [values.get(label, np.nan) / values["revised"] for label in labels]
            x = np.arange(len(labels)) + (rank - (len(datasets) - 1) / 2) * 0.8 / len(datasets)
            colour = PALETTE[rank % len(PALETTE)]
            axes.bar(x, height, 0.8 / len(datasets), color=colour, label=dataset)
        axes.axhline(1.0, color="0.4", linewidth=0.8)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_ylabel("relative to the revised decoder", fontsize=9)
    grid[0].set_yscale("log")
    grid[0].legend(frameon=False, fontsize=9)
    save(drawn, path)
