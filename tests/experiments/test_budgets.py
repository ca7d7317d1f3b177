"""Budgets of the experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from stonet.errors import UsageError
from stonet.experiments import EXPERIMENTS
from stonet.experiments.budgets import EXPERIMENT_BUDGETS, ExperimentBudget, experiment_budget
from stonet.experiments.store import Store


def test_changes_are_named_in_the_budget() -> None:
    usual = experiment_budget("published")
    assert usual.with_changes() == usual and usual.name == "published"
    assert usual.with_changes(minutes=usual.training.minutes) == usual
    assert usual.with_changes(minutes=3.0).name == "published-changed"
    assert usual.with_changes(settings=("train.lr=1",)).name == "published-changed"
    with pytest.raises(UsageError, match="Choose one of: full, hour, long, published, smoke"):
        experiment_budget("tiny")
    with pytest.raises(UsageError, match="train"):
        usual.with_changes(settings=("train.rate=1",)).cell("comparison", "wave", "stonet")


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


def test_the_full_budget_is_the_protocol_of_the_paper() -> None:
    full = experiment_budget("full")
    cells = {name: EXPERIMENTS[name].cells(full.datasets_of(name), (), full.seeds_of(name), full)
             for name in EXPERIMENTS}  # fmt: skip
    comparison = cells["comparison"]
    assert {c.dataset for c in comparison} == {
        "wave", "solar", "temperature", "humidity", "cloud", "wind"
    }  # fmt: skip
    rows = ("stonet-paper", "agcrn", "clcrn")
    for label in rows:
        mine = [c for c in comparison if (c.label, c.dataset) == (label, "humidity")]
        assert [c.seed for c in mine] == [0, 1, 2, 3, 4]
        assert all(c.preset == "paper" and c.training.epochs == 100 for c in mine)
        assert all(c.config.read.points is None and c.config.data.past == 12 for c in mine)
    assert {c.dataset for c in cells["cost"]} == {"solar", "humidity"}
    assert all(c.inductive for c in cells["inductive"])
