"""Budgets of the experiments: smoke (CI), published, long and hour, and full (the paper's)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stonet.config import load_config
from stonet.errors import unknown_name
from stonet.experiments.cell import Cell
from stonet.experiments.datasets import PUBLISHED, SHORT_WAVE, experiment_data
from stonet.training.budget import Budget

SINGLE_SEED = {"ablation", "cost", "inductive", "irregular"}
STONET = ("stonet", "stonet-operator")  # rows of the comparison with all seeds


@dataclass(frozen=True)
class ExperimentBudget:
    """Which data, how many seeds, and how long each model trains.

    Args:
        name: as --budget takes it.
        datasets: of most experiments.
        ablation_datasets: of the ablation.
        cost_datasets: of the cost of decoders.
        seeds: number of seeds of STONet's rows in the comparison.
        other_seeds: of all other rows there.
        training: epochs, steps or minutes of each training.
        threads: None: PyTorch's default.
        settings: of every cell, such as a number of points.
        preset: used in place of the default preset.
        models: rows of the comparison; none: all.
        minimal: a few models and variants, to see that all runs.
        own_points: unseen points are those of the data sets themselves, as in the paper.
    """

    name: str
    datasets: tuple[str, ...]
    ablation_datasets: tuple[str, ...]
    cost_datasets: tuple[str, ...]
    seeds: int
    training: Budget
    other_seeds: int = 1
    threads: int | None = 1
    settings: tuple[str, ...] = ()
    preset: str = "default"
    models: tuple[str, ...] = ()
    minimal: bool = False
    own_points: bool = False

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
        few = {"ablation": self.ablation_datasets, "cost": self.cost_datasets}
        return few.get(experiment, self.datasets)

    def seeds_of(self, experiment: str) -> int:
        """The default number of seeds of an experiment.

        Args:
            experiment: its name.
        """
        single = experiment in SINGLE_SEED and not self.own_points
        return 1 if single else self.seeds

    def seeds_of_row(self, label: str, seeds: int) -> int:
        """The number of seeds of a row of the comparison.

        Args:
            label: of the row.
            seeds: of STONet's rows.
        """
        return seeds if label in STONET else min(seeds, self.other_seeds)

    def with_changes(
        self, minutes: float | None = None, settings: tuple[str, ...] = ()
    ) -> ExperimentBudget:
        """The budget with other minutes or settings; where results differ, under another name.

        Args:
            minutes: of training, in place of the budget's.
            settings: of every cell.
        """
        training = self.training if minutes is None else Budget(minutes=minutes)
        unchanged = training == self.training and not settings
        return replace(
            self,
            name=self.name if unchanged else f"{self.name.removesuffix('-changed')}-changed",
            training=training,
            settings=(*self.settings, *settings),
        )


_PUBLISHED = ExperimentBudget(
    name="published",
    datasets=PUBLISHED,
    ablation_datasets=("wave", "temperature-uk", "humidity-bhutan", "temperature-brazil"),
    cost_datasets=("solar-pv", "humidity-bhutan"),
    seeds=3,
    training=Budget(minutes=2.0),
    settings=("read.points=512",),
)
EXPERIMENT_BUDGETS = {
    "smoke": ExperimentBudget(
        name="smoke",
        datasets=(SHORT_WAVE, "temperature-uk"),
        ablation_datasets=(SHORT_WAVE,),
        cost_datasets=(SHORT_WAVE,),
        seeds=1,
        training=Budget(epochs=1, steps=4),
        settings=("read.points=24",),
        preset="tiny",
        minimal=True,
    ),
    "published": _PUBLISHED,
    "long": replace(  # five times as long, for STONet and the rivals that came closest
        _PUBLISHED,
        name="long",
        seeds=1,
        training=Budget(minutes=10.0),
        models=("stonet", "lightgbm", "nhits", "patchtst", "dlinear", "references"),
    ),
    "hour": replace(  # for the paper's own network, which learns slowly
        _PUBLISHED,
        name="hour",
        datasets=("wave", "humidity-bhutan"),
        seeds=1,
        training=Budget(minutes=60.0),
        models=("stonet-paper",),
    ),
    "full": ExperimentBudget(  # the protocol of the paper
        name="full",
        datasets=("wave", "solar", "temperature", "humidity", "cloud", "wind"),
        ablation_datasets=("solar", "temperature"),
        cost_datasets=("solar", "humidity"),
        seeds=5,
        other_seeds=5,
        training=Budget(epochs=100),
        threads=None,
        preset="paper",
        own_points=True,
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
