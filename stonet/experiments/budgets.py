"""How much work an experiment may be: smoke (CI), small, long (published), full (the paper's)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stonet.config import load_config
from stonet.errors import unknown_name
from stonet.experiments.cell import Cell
from stonet.experiments.datasets import PUBLISHED, SHORT, task_of
from stonet.training.budget import Budget

ON_FEW = {"ablation", "cost"}  # experiments with many settings, on the tasks `ablated`
ONE_SEED = {"ablation", "cost", "inductive", "irregular"}


@dataclass(frozen=True)
class ExperimentBudget:
    """Which data, how many seeds, how long each model trains."""

    name: str
    tasks: tuple[str, ...]
    ablated: tuple[str, ...]  # tasks of the experiments with many settings
    seeds: int
    training: Budget
    threads: int | None = 1  # None: as many as torch likes
    settings: tuple[str, ...] = ()  # for every cell, such as a number of points
    preset: str = "default"  # what stands in for the default preset
    fixed: Mapping[str, Budget] = field(default_factory=dict)  # of ablations, by what is taken
    # apart: time would decide the steps, and chance the time
    few: bool = False  # only what shows that it runs: few models, few variants

    def cell(
        self,
        experiment: str,
        dataset: str,
        label: str,
        seed: int = 0,
        *,
        model: str = "stonet",
        preset: str = "default",
        settings: tuple[str, ...] = (),
        extra: Mapping[str, Any] | None = None,
        inductive: bool = False,
        training: Budget | None = None,
    ) -> Cell:
        """A cell of this effort: its own settings come last, and win."""
        cell = Cell(
            experiment=experiment,
            dataset=dataset,
            label=label,
            seed=seed,
            model=model,
            preset=self.preset if preset == "default" else preset,
            settings=(*task_of(dataset).settings, *self.settings, *settings),
            budget=self.name,
            training=training or self.training,
            threads=self.threads,
            inductive=inductive,
            extra=tuple(sorted((extra or {}).items())),
        )
        load_config(cell.preset, None, cell.settings)  # refused before any work
        return cell

    def datasets_of(self, experiment: str) -> tuple[str, ...]:
        """The tasks of an experiment, unless others are asked for."""
        return self.ablated if experiment in ON_FEW else self.tasks

    def seeds_of(self, experiment: str) -> int:
        """How many seeds, unless asked otherwise."""
        return 1 if experiment in ONE_SEED else self.seeds

    def changed(
        self, minutes: float | None = None, settings: tuple[str, ...] = ()
    ) -> ExperimentBudget:
        """The same with other wishes; where these change results, it goes by another name."""
        training = self.training if minutes is None else Budget(minutes=minutes)
        fixed = self.fixed if training == self.training else {}
        same = training == self.training and not settings
        return replace(
            self,
            name=self.name if same else f"{self.name.removesuffix('-changed')}-changed",
            training=training,
            fixed=fixed,
            settings=(*self.settings, *settings),
        )


EXPERIMENT_BUDGETS = {
    "smoke": ExperimentBudget(
        name="smoke",
        tasks=(SHORT, "temperature-uk"),
        ablated=(SHORT,),
        seeds=1,
        training=Budget(epochs=1, steps=4),
        settings=("read.points=24",),
        preset="tiny",
        few=True,
    ),
    "small": ExperimentBudget(
        name="small",
        tasks=PUBLISHED,
        ablated=("temperature-uk", "wave"),
        seeds=2,
        training=Budget(minutes=0.5),
        fixed={
            "operator": Budget(epochs=20, steps=40),
            "default": Budget(epochs=4, steps=25, pretraining_steps=500),
        },
        settings=("read.points=120",),
    ),
    "long": ExperimentBudget(  # what becomes of the comparison when slow models are given time
        name="long",
        tasks=PUBLISHED,
        ablated=("temperature-uk", "wave"),
        seeds=1,
        training=Budget(minutes=2.0),
        settings=("read.points=120",),
    ),
    "full": ExperimentBudget(
        name="full",
        tasks=("wave", "solar", "temperature", "humidity", "cloud", "wind"),
        ablated=("solar", "temperature"),
        seeds=5,
        training=Budget(epochs=100),
        threads=None,
    ),
}


def experiment_budget(name: str) -> ExperimentBudget:
    """The effort of this name."""
    if name not in EXPERIMENT_BUDGETS:
        raise unknown_name("budget", name, EXPERIMENT_BUDGETS)
    return EXPERIMENT_BUDGETS[name]
