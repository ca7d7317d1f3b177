"""Budgets of the experiments: smoke (CI), small and long (published), full (the paper's)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stonet.config import load_config
from stonet.errors import unknown_name
from stonet.experiments.cell import Cell
from stonet.experiments.datasets import PUBLISHED, SHORT_WAVE, experiment_data
from stonet.training.budget import Budget

ABLATION_LIKE = {"ablation", "cost"}  # many settings, on `ablation_datasets` only
SINGLE_SEED = {"ablation", "cost", "inductive", "irregular"}


@dataclass(frozen=True)
class ExperimentBudget:
    """Which data, how many seeds, and how long each model trains.

    Args:
        name: as --budget takes it.
        datasets: of most experiments.
        ablation_datasets: of experiments with many settings.
        seeds: number of seeds.
        training: epochs, steps or minutes of each training.
        threads: None: PyTorch's default.
        settings: of every cell, such as a number of points.
        preset: used in place of the default preset.
        ablation_training: by ablated model: steps instead of minutes, which would vary with the
            variant.
        minimal: a few models and variants, to see that all runs.
    """

    name: str
    datasets: tuple[str, ...]
    ablation_datasets: tuple[str, ...]
    seeds: int
    training: Budget
    threads: int | None = 1
    settings: tuple[str, ...] = ()
    preset: str = "default"
    ablation_training: Mapping[str, Budget] = field(default_factory=dict)
    minimal: bool = False

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
        """A cell within this budget.

        Args:
            experiment: name of the experiment.
            dataset: name of the data.
            label: row of the experiment's table.
            seed: random seed.
            model: name in the model registry.
            preset: of the configuration.
            settings: of this cell; they override those of the data and the budget.
            extra: further choices of the experiment.
            inductive: use the data's own unseen points.
            training: in place of the budget's.

        Raises:
            UsageError: a setting is wrong; nothing has been computed yet.
        """
        cell = Cell(
            experiment=experiment,
            dataset=dataset,
            label=label,
            seed=seed,
            model=model,
            preset=self.preset if preset == "default" else preset,
            settings=(*experiment_data(dataset).settings, *self.settings, *settings),
            budget=self.name,
            training=training or self.training,
            threads=self.threads,
            inductive=inductive,
            extra=tuple(sorted((extra or {}).items())),
        )
        load_config(cell.preset, None, cell.settings)
        return cell

    def datasets_of(self, experiment: str) -> tuple[str, ...]:
        """The default data of an experiment.

        Args:
            experiment: its name.
        """
        return self.ablation_datasets if experiment in ABLATION_LIKE else self.datasets

    def seeds_of(self, experiment: str) -> int:
        """The default number of seeds of an experiment.

        Args:
            experiment: its name.
        """
        return 1 if experiment in SINGLE_SEED else self.seeds

    def with_changes(
        self, minutes: float | None = None, settings: tuple[str, ...] = ()
    ) -> ExperimentBudget:
        """The budget with other minutes or settings; where results differ, under another name.

        Args:
            minutes: of training, in place of the budget's.
            settings: of every cell.
        """
        training = self.training if minutes is None else Budget(minutes=minutes)
        same_training = training == self.training
        unchanged = same_training and not settings
        return replace(
            self,
            name=self.name if unchanged else f"{self.name.removesuffix('-changed')}-changed",
            training=training,
            ablation_training=self.ablation_training if same_training else {},
            settings=(*self.settings, *settings),
        )


EXPERIMENT_BUDGETS = {
    "smoke": ExperimentBudget(
        name="smoke",
        datasets=(SHORT_WAVE, "temperature-uk"),
        ablation_datasets=(SHORT_WAVE,),
        seeds=1,
        training=Budget(epochs=1, steps=4),
        settings=("read.points=24",),
        preset="tiny",
        minimal=True,
    ),
    "small": ExperimentBudget(
        name="small",
        datasets=PUBLISHED,
        ablation_datasets=("temperature-uk", "wave"),
        seeds=2,
        training=Budget(minutes=0.5),
        ablation_training={
            "paper": Budget(epochs=4, steps=25),  # whose steps take ten times as long
            "operator": Budget(epochs=10, steps=40),
            "default": Budget(epochs=10, steps=40),
        },
        settings=("read.points=120",),
    ),
    "long": ExperimentBudget(  # four times `small`, for models that train slowly
        name="long",
        datasets=PUBLISHED,
        ablation_datasets=("temperature-uk", "wave"),
        seeds=1,
        training=Budget(minutes=2.0),
        settings=("read.points=120",),
    ),
    "full": ExperimentBudget(
        name="full",
        datasets=("wave", "solar", "temperature", "humidity", "cloud", "wind"),
        ablation_datasets=("solar", "temperature"),
        seeds=5,
        training=Budget(epochs=100),
        threads=None,
    ),
}


def experiment_budget(name: str) -> ExperimentBudget:
    """The budget of this name.

    Args:
        name: as --budget takes it.

    Raises:
        UsageError: there is none.
    """
    if name not in EXPERIMENT_BUDGETS:
        raise unknown_name("budget", name, EXPERIMENT_BUDGETS)
    return EXPERIMENT_BUDGETS[name]
