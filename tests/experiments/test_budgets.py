"""Budgets of the experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from stonet.errors import UsageError
from stonet.experiments import EXPERIMENTS
from stonet.experiments.budgets import EXPERIMENT_BUDGETS, ExperimentBudget, experiment_budget
from stonet.experiments.store import Store


def test_changes_are_named_in_the_budget() -> None:
    small = experiment_budget("small")
    assert small.with_changes() == small and small.name == "small"
    assert small.with_changes(minutes=small.training.minutes) == small
    assert small.with_changes(minutes=2.0).name == "small-changed"
    assert small.with_changes(settings=("train.lr=1",)).name == "small-changed"
    with pytest.raises(UsageError, match="Choose one of: full, long, small, smoke"):
        experiment_budget("tiny")
    with pytest.raises(UsageError, match="train"):
        small.with_changes(settings=("train.rate=1",)).cell("comparison", "wave", "stonet")


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("budget", EXPERIMENT_BUDGETS.values(), ids=EXPERIMENT_BUDGETS)
def test_every_cell_of_an_experiment_has_a_file_of_its_own(
    name: str, budget: ExperimentBudget
) -> None:
    datasets, seeds = budget.datasets_of(name), budget.seeds_of(name)
    cells = EXPERIMENTS[name].cells(datasets, (), seeds, budget)
    assert len({Store(Path()).path(one) for one in cells}) == len(cells)
    assert {one.dataset for one in cells} == set(datasets)
    drawn = {one.seed for one in cells if "seed=" not in one.label}
    assert drawn <= set(range(seeds))
    assert all(one.experiment == EXPERIMENTS[name].NAME == name for one in cells)
    with pytest.raises(UsageError, match="Unknown"):
        EXPERIMENTS[name].cells(datasets, ("nothing",), 1, budget)
