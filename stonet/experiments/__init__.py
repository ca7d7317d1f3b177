"""The paper's experiments, and ours: one file each, all with the same five names.

NAME                                            what it is called
cells(datasets, models, seeds, budget)          what must be computed
measure(cell, dataset, config, budget)          one cell: train, score
table(results)                                  tidy lines
figure(results, path)                           a picture
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
    """What a file in this folder offers.

    `models` are the rows that are wanted, none for the experiment's own choice; an unknown one is
    refused. What `measure` returns goes into a JSON file; its "training" is `vars(trained.cost)`,
    from which the cell can be repeated to the step, or "skipped" says why there is nothing.
    """

    NAME: str

    def cells(
        self, datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
    ) -> list[Cell]: ...

    def measure(self, cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores: ...

    def table(self, results: Sequence[Result]) -> list[dict[str, Any]]: ...

    def figure(self, results: Sequence[Result], path: Path) -> None: ...


EXPERIMENTS: dict[str, Experiment] = {
    "comparison": comparison,
    "inductive": inductive,
    "irregular": irregular,
    "ablation": ablation,
    "cost": cost,
}
