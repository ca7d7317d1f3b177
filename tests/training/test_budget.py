"""Budgets: a number of epochs is repeated bit by bit; minutes of CPU time are kept to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.small import quick, small_dataset

from stonet.errors import UsageError
from stonet.training import trainer as trainer_module
from stonet.training.budget import Budget, train
from stonet.training.fit import fit_run
from stonet.training.run_folder import RunFolder
from stonet.training.schedule import MAX_VALIDATION_SHARE, VALIDATIONS, Schedule
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer

STEP, VALIDATION = 1.0, 2.0  # seconds of the made-up clock


def simulate(schedule: Schedule, before: float, step: Callable[[], float], validation: float):
    """The state at the end of a training with such costs, and the progress at each step."""
    state, progress = State(spent=before), []
    while True:
        if schedule.validates(state):
            state.spent += validation
            state.history.append({"step": state.step})
            state.validating += validation
            state.validated = state.spent
            state.begun = state.begun if state.step else state.spent
        if schedule.ended(state):
            return state, progress
        progress.append(schedule.progress(state))
        state.spent += step()
        state.step += 1


@pytest.mark.parametrize("before", [0.0, 20.0])
@pytest.mark.parametrize("validation", [0.01, 0.4, 5.0])
@pytest.mark.parametrize("usual", [0.02, 1.0, 9.0])
def test_minutes_are_kept_to_whatever_steps_and_validations_take(
    before: float, validation: float, usual: float
) -> None:
    draw, taken = random.Random(0), []

    def step() -> float:
        taken.append(usual * draw.uniform(0.5, 2.0))
        return taken[-1]

    state, progress = simulate(Schedule(None, 10, 60.0), before, step, validation)
    assert 60 - max(taken) - validation <= state.spent <= 60 + max(taken) + validation
    assert progress == sorted(progress) and progress[0] == 0 and progress[-1] < 1
    validated = [entry["step"] for entry in state.history]
    assert validated[0] == 0 and validated[-1] == state.step == len(taken)
    assert len(set(validated)) == len(validated) <= VALIDATIONS + 2
    between = state.validating - 2 * validation  # the first and the last come in any case
    assert between <= MAX_VALIDATION_SHARE * 60
    if usual == 0.02 and validation == 0.01:
        assert len(validated) >= VALIDATIONS


def test_no_step_is_taken_when_the_closed_forms_have_used_the_budget() -> None:
    state, progress = simulate(Schedule(None, 10, 60.0), 61.0, lambda: 1.0, 0.5)
    assert state.step == 0 and not progress and len(state.history) == 1


def test_epochs_are_validated_at_their_ends() -> None:
    state, progress = simulate(Schedule(12, 4), 0.0, lambda: 1.0, 0.5)
    assert [entry["step"] for entry in state.history] == [0, 4, 8, 12]
    assert progress == [step / 12 for step in range(12)]


def test_cpu_time_of_a_training_ends_with_its_budget() -> None:
    started = time.process_time()
    result = train(small_dataset(), quick(), Budget(minutes=0.02))
    assert 0.6 < result.cost.cpu_seconds < time.process_time() - started < 4.0
    cost, state = result.cost, result.cost.budget
    assert cost.steps > 6 and state == Budget(minutes=0.02)  # more than the configured epochs
    assert (cost.epochs, cost.per_epoch) == (None, None)


def test_a_training_of_epochs_is_repeated_bit_by_bit_by_its_cost() -> None:
    first = train(small_dataset(), quick(), Budget(epochs=2, steps=2))
    assert first.cost.budget == Budget(epochs=2, steps=2) and first.cost.steps == 4
    again = train(small_dataset(), quick("train.minutes=1"), first.cost.budget)
    one, two = (result.trained.model.state_dict() for result in (first, again))
    assert {n: v.tolist() for n, v in one.items()} == {n: v.tolist() for n, v in two.items()}


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_is_no_positive_number_is_refused(minutes: float) -> None:
    with pytest.raises(UsageError, match="above 0"):
        Budget(minutes=minutes)
    with pytest.raises(UsageError, match=r"train\.minutes"):
        quick(f"train.minutes={minutes}")
    with pytest.raises(UsageError, match="either"):
        Budget(epochs=1, minutes=1.0)


# A resumed training of minutes


@pytest.fixture
def made_up_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only while steps and validations run."""
    now = [0.0]

    def taking(seconds: float, real: Callable) -> Callable:
        def timed(*arguments: object) -> object:
            result = real(*arguments)
            now[0] += seconds
            return result

        return timed

    monkeypatch.setattr(Trainer, "step", taking(STEP, Trainer.step))
    monkeypatch.setattr(Trainer, "_validate", taking(VALIDATION, Trainer._validate))
    monkeypatch.setattr(trainer_module, "clock", lambda device: lambda: now[0])


def run(folder: Path, stop: int = 10**6, resume: bool = False, minutes: float = 0.5) -> State:
    """A training of half a made-up minute, interrupted at an event."""
    events = iter(range(10**6))

    def watch(progress: Progress) -> None:
        if next(events) == stop:
            raise KeyboardInterrupt

    task = Task.of(small_dataset(), quick(f"train.minutes={minutes}", "train.race=0"))
    return fit_run(task, folder, resume, watch)[1]


def test_a_resumed_training_continues_its_budget(tmp_path: Path, made_up_clock: None) -> None:
    """If a step takes as long again, it equals an uninterrupted one bit by bit."""
    whole = run(tmp_path / "whole")
    assert 30 - STEP <= whole.spent <= 30 + STEP and whole.begun == VALIDATION
    assert whole.step == whole.spent - VALIDATION * len(whole.history)
    for stop in (0, 3, 10, 17):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / f"{stop}", stop)
        run(tmp_path / f"{stop}", resume=True)
        runs = [RunFolder(tmp_path / name) for name in ("whole", f"{stop}")]
        one, two = (next(folder.states())[1] for folder in runs)
        assert one == two
    longer = run(tmp_path / "whole", resume=True, minutes=1.0)
    assert 60 - STEP <= longer.spent <= 60 + STEP and longer.history[: len(whole.history)]


def test_the_share_that_is_reported_grows_to_one(made_up_clock: None) -> None:
    task, shares = Task.of(small_dataset(), quick("train.minutes=0.5")), []
    trainer = Trainer(TrainedModel.untrained(task), task)

    def record(progress: Progress) -> None:
        assert progress.steps is None
        shares.append(progress.share)

    trainer.fit(on_progress=record)
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
