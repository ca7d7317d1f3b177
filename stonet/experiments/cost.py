"""Cost: what each decoder takes, in time and memory, and what it gives.

The paper's Table 6 sets its decoder against one that integrates an ODE. Here the four are built at
the paper's sizes, and the default preset stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import UsageError, unknown_name
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.drawing import panels, save
from stonet.experiments.error_summary import errors_of, in_short
from stonet.plotting.figures import PALETTE
from stonet.system.resources import forget_peak, resident_mb
from stonet.training.budget import Budget, train

NAME = "cost"
DECODERS = ("revised", "literal", "fixed", "ode")
DEFAULT = "default"
LABELS = (*DECODERS, DEFAULT)
FEW = ("revised", "ode")
# an ODE carries one state through the whole horizon; and looks at the validation part are dear
SAME = ("network.terms=1", "train.validation_windows=8")
WINDOWS = 64  # that are scored of each part: an ODE takes long
COLUMNS = (
    "dataset",
    "decoder",
    "seconds_per_epoch",
    "times",
    "memory_mb",
    "mae",
    "train_mae",
    "steps",
)


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Each decoder at the paper's sizes, and the default preset."""
    for name in models:
        if name not in LABELS:
            raise unknown_name("decoder", name, LABELS)
    wanted = tuple(models) or (FEW if budget.few else LABELS)
    sizes = "default" if budget.few else "paper"
    return [
        budget.cell(
            NAME,
            dataset,
            label,
            seed,
            preset=DEFAULT if label == DEFAULT else sizes,
            settings=() if label == DEFAULT else (f"network.decoder={label}", *SAME),
        )
        for dataset in datasets
        for label in wanted
        for seed in range(seeds)
    ]


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Time and memory of the training, errors on both the training and the test part."""
    try:
        train(dataset, config, Budget(epochs=1, steps=1))  # what is loaded once is there by then
        forget_peak()
        before = resident_mb()
        trained = train(dataset, config, budget)
    except UsageError as error:  # a package that is not installed
        return {"skipped": str(error)}
    scores = in_short(errors_of(trained, "test", WINDOWS))
    scores["train_mae"] = errors_of(trained, "train", WINDOWS)["mae"]
    scores["memory_mb"] = trained.cost.peak_mb - before  # beyond the program and the data
    return scores


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One line for each task and decoder; `times` is the epoch's, over that of the revised one."""
    lines = []
    known = [result for result in results if "skipped" not in result.scores]
    for dataset in dict.fromkeys(result.cell.dataset for result in known):
        here = {r.cell.label: r for r in known if r.cell.dataset == dataset and r.cell.seed == 0}
        usual = _seconds(here["revised"]) if "revised" in here else None
        for label, row in sorted(here.items(), key=lambda pair: LABELS.index(pair[0])):
            lines.append(
                {
                    "dataset": dataset,
                    "decoder": label,
                    "seconds_per_epoch": _seconds(row),
                    "times": _seconds(row) / usual if usual else None,
                    "memory_mb": row.scores["memory_mb"],
                    "mae": row.scores["mae"],
                    "rmse": row.scores["rmse"],
                    "train_mae": row.scores["train_mae"],
                    "steps": row.scores["training"]["steps"],
                    "parameters": row.scores["training"]["parameters"],
                    "stale": [row.commit] if row.stale else [],
                }
            )
    return lines


def _seconds(result: Result) -> float:
    seconds = result.scores["training"]["seconds_per_epoch"]
    return math.nan if seconds is None else float(seconds)  # no time for a step


def figure(results: Sequence[Result], path: Path) -> None:
    """Bars: seconds of an epoch, memory and error of each decoder, over the revised one's."""
    lines = [line for line in table(results) if line["times"] is not None]
    tasks = list(dict.fromkeys(line["dataset"] for line in lines))
    if not tasks:
        return
    shown = {"seconds_per_epoch": "time of an epoch", "memory_mb": "peak memory", "mae": "test MAE"}
    drawn, every = panels([f"{title} / revised" for title in shown.values()])
    labels = [label for label in LABELS if any(line["decoder"] == label for line in lines)]
    for axes, key in zip(every, shown, strict=True):
        for rank, task in enumerate(tasks):
            mine = {line["decoder"]: line[key] for line in lines if line["dataset"] == task}
            height = [mine.get(label, np.nan) / mine["revised"] for label in labels]
            across = np.arange(len(labels)) + (rank - (len(tasks) - 1) / 2) * 0.8 / len(tasks)
            colour = PALETTE[rank % len(PALETTE)]
            axes.bar(across, height, 0.8 / len(tasks), color=colour, label=task)
        axes.axhline(1.0, color="0.4", linewidth=0.8)
        axes.set_xticks(range(len(labels)), labels)
    every[0].set_yscale("log")
    every[0].legend(frameon=False, fontsize=9)
    save(drawn, path)
