"""The paper's experiments and further ones, one file each, with the same functions.

Comes in: names of data sets and models, and a budget. Goes out: result files, tables, figures and
docs/results.md. Start reading at `comparison.py`; `runner.py` computes cells, `report.py` writes
the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.experiments import ablation, comparison, cost, inductive, irregular
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.training.budget import Budget


class Experiment(Protocol):
    """The interface of an experiment's module.

    NAME is its name, COLUMNS the keys of its table with their headings.
    """

    NAME: str
    COLUMNS: dict[str, str]

    def cells(
        self, datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
    ) -> list[Cell]:
        """The cells to compute.

        Args:
            datasets: names of the data.
            models: rows of the table; none: the experiment's own choice.
            seeds: number of seeds, from 0 on.
            budget: of each cell.
            datasets: names.
            models: labels that are wanted; empty: all.
            seeds: number of seeds.
            budget: of the experiments.

        Raises:
            UsageError: a model is unknown.
        """

    def measure(self, cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
        """Train and score one cell.

        Args:
            cell: which model and which variant.
            dataset: its data.
            config: its settings.
            budget: of the training.

        Returns:
            What JSON can hold: scores with `vars(training.cost)` under "training", which tells the
            budget of the training.

        Raises:
            UsageError: the model cannot be run on these data, such as daily persistence on data
                without a daily cycle; the result then holds the reason as "skipped".
        """

    def table(self, results: Sequence[Result]) -> list[dict[str, Any]]:
        """Tidy lines: one value per key.

        Args:
            results: of all cells, measured or skipped.
        """

    def figure(self, results: Sequence[Result], path: Path) -> None:
        """Write one or more PNG files, `path` and variants of its stem; none without results.

        Args:
            results: of all cells, measured or skipped.
            path: of a PNG file.
        """


EXPERIMENTS: dict[str, Experiment] = {
    "comparison": comparison,
    "inductive": inductive,
    "irregular": irregular,
    "ablation": ablation,
    "cost": cost,
}
