"""How a budget is spent: pretraining first, as far as time and data allow, then training steps."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.contracts import small_field, small_task
from helpers.small import quick, small_dataset

from stonet.config import Config
from stonet.training import budget
from stonet.training.budget import Budget, PretrainingPlan, train
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer


@pytest.fixture(scope="module")
def task() -> Task:
    return small_task(small_field("sphere"))


def planned(
    task: Task, seconds: float, least: float, max_steps: int, members: int | None = None
) -> PretrainingPlan:
    """The plan if pretraining takes 1 s, and 0.06 s for sampling and 0.04 s for training a step."""
    clock, trainer = [0.0], Trainer(TrainedModel.untrained(task), task)

    def pretrainer(steps: int) -> SimpleNamespace:
        taken = min(steps, max_steps)
        clock.append(clock[-1] + 0.5 + 0.06 * taken)
        return SimpleNamespace(steps=taken, max_steps=max_steps, fit=lambda validation: fit(taken))

    def fit(taken: int) -> None:
        clock.append(clock[-1] + 0.5 + 0.04 * taken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "pretrainer", pretrainer)
        patch.setattr(budget.time, "perf_counter", lambda: clock[-1])
        return budget._plan_pretraining(trainer, with_members(task, members), seconds, least)


def with_members(task: Task, members: int | None) -> Config:
    """The task's configuration with 1600 pretraining steps and that many members."""
    pretraining = task.config.pretraining.model_copy(update={"steps": 1600})
    network = task.config.network.model_copy(update={"residual_members": members})
    return task.config.model_copy(update={"pretraining": pretraining, "network": network})


@pytest.mark.parametrize(
    ("seconds", "least", "max_steps", "expected"),
    [
        (20.0, 2.9, 5000, (230, 1, 17.0)),  # what fits, beside the 60 timed steps
        (20.0, 3.1, 5000, (260, 1, 20.0)),  # the remaining 15 % would be too short
        (250.0, 0.0, 5000, (1600, 1, 154.0)),  # all configured steps
        (260.0, 0.0, 5000, (1600, 2, 218.5)),  # and a second member, which reuses the samples
        (1e3, 0.0, 5000, (1600, 4, 347.5)),  # four members at most
        (60.0, 0.0, 400, (400, 2, 50.5)),  # all steps that the data allow, and a second member
        (1e3, 0.0, 30, (30, 4, 5.1)),
        (1e3, 0.0, 0, (0, 1, 0.0)),  # without steps there is no second member
        (-5.0, 0.0, 5000, (60, 1, 0.0)),
    ],
)
def test_pretraining_takes_what_time_and_data_allow(
    task: Task, seconds: float, least: float, max_steps: int, expected: tuple[int, int, float]
) -> None:
    plan = planned(task, seconds, least, max_steps)
    assert plan.steps == pytest.approx(expected[0], abs=1)
    assert plan.residual_members == expected[1]
    assert plan.seconds == pytest.approx(expected[2], abs=0.11)


@pytest.mark.parametrize("members", [1, 3])
def test_a_configured_number_of_members_is_kept(task: Task, members: int) -> None:
    """Whatever the time: the timed steps included all members."""
    for seconds in (20.0, 1e3):
        default, chosen = (planned(task, seconds, 0.0, 5000, count) for count in (None, members))
        assert chosen.residual_members == members and chosen.steps == default.steps


def test_a_model_without_residual_network_is_not_pretrained(task: Task) -> None:
    baseline = Task.of(task.dataset, task.config.model_copy(update={"model": "gcgru"}))
    trainer = Trainer(TrainedModel.untrained(baseline), baseline)
    plan = budget._plan_pretraining(trainer, baseline.config, 1e3, 0.0)
    assert plan == PretrainingPlan(baseline.config.pretraining.steps, None, 0.0)


@pytest.mark.parametrize("steps_per_pass", [5, 1000])
def test_epochs_fill_the_time_with_at_most_twenty_validations(steps_per_pass: int) -> None:
    """Short epochs are an exception: each is validated, however many there are."""
    for seconds, validation, step in itertools.product(
        (1.0, 7.0, 60.0), (0.01, 0.5, 4.0), (0.01, 0.3, 5.0)
    ):
        epochs, each = budget._plan_epochs(seconds, validation, step, steps_per_pass)
        taken = epochs * (each * step + validation)
        assert each <= steps_per_pass and taken <= seconds
        assert epochs <= budget.MAX_VALIDATIONS or each == steps_per_pass
        if not epochs:
            assert seconds < budget.MIN_VALIDATIONS * (validation + step)
        elif each < steps_per_pass:  # less than a tenth of the steps is left over
            unused = seconds - taken
            assert unused <= 0.2 * seconds + validation + step * (1 + 0.1 * epochs * each)


@pytest.mark.parametrize(("model", "trains"), [("stonet", False), ("gcgru", True)])
def test_in_a_short_time_pretraining_comes_before_training_steps(
    task: Task, model: str, trains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A baseline, which is not pretrained, takes the smallest number of steps."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = Task.of(task.dataset, task.config.model_copy(update={"model": model}))
    config = budget._fit_into_minutes(chosen, 1e-6)
    if trains:
        assert config.train.epochs * config.train.steps == budget.MIN_VALIDATIONS
        assert config.network.residual_members is None
    else:
        assert config.train.epochs == 0
        assert 0 < config.pretraining.steps <= budget.SHORT_PRETRAINING
        assert config.network.residual_members is not None
    assert budget._fit_into_minutes(chosen, 1e-6) == config  # from the cache


def test_a_training_with_several_members_is_repeated_bit_by_bit() -> None:
    """The cost tells their number, whatever the configuration says."""
    two_members = Budget(epochs=1, steps=2, pretraining_steps=4, residual_members=2)
    first = train(small_dataset(), quick(), two_members)
    assert first.cost.budget == two_members
    model: Any = first.trained.model
    assert len(model.residuals.members) == 2
    again = train(small_dataset(), quick("network.residual_members=3"), first.cost.budget)
    one, two = (result.trained.model.state_dict() for result in (first, again))
    assert {n: v.tolist() for n, v in one.items()} == {n: v.tolist() for n, v in two.items()}
