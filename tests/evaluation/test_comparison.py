"""How a budget is spent: schooling first, as far as time and data allow, then the network."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.contracts import small_field, small_task
from helpers.small import quick, small_dataset

from stonet.config import Config
from stonet.evaluation import comparison
from stonet.evaluation.comparison import Budget, Lessons, train
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer


@pytest.fixture(scope="module")
def task() -> Task:
    return small_task(small_field("sphere"))


def booked(
    task: Task, seconds: float, least: float, limit: int, experts: int | None = None
) -> Lessons:
    """If it takes a second, and of each step's tenth 0.06 for reading, 0.04 for teaching."""
    time_spec, trainer = [0.0], Trainer(TrainedModel.untrained(task), task)

    def school(steps: int) -> SimpleNamespace:
        taken = min(steps, limit)
        time_spec.append(time_spec[-1] + 0.5 + 0.06 * taken)
        return SimpleNamespace(steps=taken, limit=limit, fit=lambda validation: teach(taken))

    def teach(taken: int) -> None:
        time_spec.append(time_spec[-1] + 0.5 + 0.04 * taken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "school", school)
        patch.setattr(comparison.time, "perf_counter", lambda: time_spec[-1])
        return comparison._schooling(trainer, asking(task, experts), seconds, least)


def asking(task: Task, experts: int | None) -> Config:
    """The task's configuration, for 1600 steps of so many experts."""
    pretraining = task.config.pretraining.model_copy(update={"steps": 1600})
    network = task.config.network.model_copy(update={"residual_members": experts})
    return task.config.model_copy(update={"pretraining": pretraining, "network": network})


@pytest.mark.parametrize(
    ("seconds", "least", "limit", "wanted"),
    [
        (20.0, 2.9, 5000, (230, 1, 17.0)),  # what fits, beside the sixty that are counted before
        (20.0, 3.1, 5000, (260, 1, 20.0)),  # a seventh would not do for anything else
        (250.0, 0.0, 5000, (1600, 1, 154.0)),  # as many as are wanted
        (260.0, 0.0, 5000, (1600, 2, 218.5)),  # and time for another, who reads nothing new
        (1e3, 0.0, 5000, (1600, 4, 347.5)),  # and for the others, who are four at most
        (60.0, 0.0, 400, (400, 2, 50.5)),  # as many as the data give, and then another
        (1e3, 0.0, 30, (30, 4, 5.1)),
        (1e3, 0.0, 0, (0, 1, 0.0)),  # who learns nothing needs no company
        (-5.0, 0.0, 5000, (60, 1, 0.0)),
    ],
)
def test_schooling_is_booked_as_far_as_time_and_data_allow(
    task: Task, seconds: float, least: float, limit: int, wanted: tuple[int, int, float]
) -> None:
    lessons = booked(task, seconds, least, limit)
    assert (
        lessons.steps == pytest.approx(wanted[0], abs=1) and lessons.residual_members == wanted[1]
    )
    assert lessons.seconds == pytest.approx(wanted[2], abs=0.11)


@pytest.mark.parametrize("experts", [1, 3])
def test_as_many_experts_are_sent_to_school_as_were_asked_for(task: Task, experts: int) -> None:
    """Whatever the time: what a step takes was measured with all of them."""
    for seconds in (20.0, 1e3):
        plain, asked = (booked(task, seconds, 0.0, 5000, count) for count in (None, experts))
        assert asked.residual_members == experts and asked.steps == plain.steps


def test_a_model_without_experts_books_none(task: Task) -> None:
    baseline = Task.of(task.dataset, task.config.model_copy(update={"model": "gcgru"}))
    trainer = Trainer(TrainedModel.untrained(baseline), baseline)
    found = comparison._schooling(trainer, baseline.config, 1e3, 0.0)
    assert found == Lessons(baseline.config.pretraining.steps, None, 0.0)


@pytest.mark.parametrize("whole", [5, 1000])
def test_epochs_fill_the_seconds_and_looks_are_twenty_at_most(whole: int) -> None:
    """But for epochs of few steps, which are looked at after each all the same."""
    for seconds, look, step in itertools.product(
        (1.0, 7.0, 60.0), (0.01, 0.5, 4.0), (0.01, 0.3, 5.0)
    ):
        epochs, each = comparison._epochs(seconds, look, step, whole)
        taken = epochs * (each * step + look)
        assert each <= whole and taken <= seconds
        assert epochs <= comparison.JUDGED or each == whole
        if not epochs:
            assert seconds < comparison.FEWEST * (look + step)
        elif each < whole:  # with one look less than a tenth of the steps were left over
            assert seconds - taken <= 0.2 * seconds + look + step * (1 + 0.1 * epochs * each)


@pytest.mark.parametrize(("model", "trains"), [("stonet", False), ("gcgru", True)])
def test_where_time_is_short_the_expert_comes_before_the_operator(
    task: Task, model: str, trains: bool, tmp_path, monkeypatch
) -> None:
    """A baseline has nothing else than its steps, and takes the fewest that can be judged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = Task.of(task.dataset, task.config.model_copy(update={"model": model}))
    found = comparison._for_minutes(asked, 1e-6)
    if trains:
        assert found.train.epochs * found.train.steps == comparison.FEWEST
        assert found.network.residual_members is None
    else:
        assert found.train.epochs == 0 and 0 < found.pretraining.steps <= comparison.TAUGHT
        assert found.network.residual_members is not None
    assert comparison._for_minutes(asked, 1e-6) == found  # as it was noted


def test_a_training_with_several_experts_is_repeated_to_the_bit() -> None:
    """The row tells how many there were, whatever the configuration says."""
    budget = Budget(epochs=1, steps=2, pretraining_steps=4, residual_members=2)
    first = train(small_dataset(), quick(), budget)
    assert first.row.repeated == budget
    model: Any = first.run.model
    assert len(model.residuals.members) == 2
    again = train(small_dataset(), quick("network.residual_members=3"), first.row.repeated)
    one, two = (found.run.model.state_dict() for found in (first, again))
    assert {n: v.tolist() for n, v in one.items()} == {n: v.tolist() for n, v in two.items()}
