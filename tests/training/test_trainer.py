"""The seed decides a training, it keeps what was best, and an interruption is no event.

What real processes do (SIGKILL, torchrun) is in test_training_processes.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.small import quick, small_dataset, small_field

from stonet.config import Config, TrainConfig
from stonet.data.field import Dataset
from stonet.errors import DataError, ModelFileError, StonetError, UsageError
from stonet.training import pretraining as school
from stonet.training import trainer as training
from stonet.training.batches import hide_sensors
from stonet.training.fit import fit_run
from stonet.training.loss import Sums, error_sums, masked_loss
from stonet.training.pretraining import PointPretrainer
from stonet.training.run_folder import RunFolder, unpack
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer, learning_rate


def fit(
    config: Config,
    folder: Path | None = None,
    resume: bool = False,
    watch: Callable[[Progress], None] = lambda progress: None,
    dataset: Dataset | None = None,
) -> tuple[TrainedModel, State]:
    return fit_run(Task.of(dataset or small_dataset(), config), folder, resume, watch)


def weights(run: TrainedModel) -> dict[str, list]:
    return {name: value.tolist() for name, value in run.model.state_dict().items()}


def saved(folder: Path) -> bytes:
    """Weights, best weights, optimiser, history: all of the newest state, bit for bit."""
    return next(RunFolder(folder).states())[1]


class Stop:
    """A watcher that presses Ctrl-C at its nth call."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, progress: Progress) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    fit(quick(), folder)
    return folder


# What decides a training


def test_the_seed_decides_everything_and_the_global_generator_nothing(whole: Path) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    run, state = fit(quick())
    assert torch.equal(torch.get_rng_state(), before)
    tensors, document = unpack(saved(whole), "state")
    best = {k.removeprefix("best."): v for k, v in tensors.items() if k.startswith("best.")}
    assert weights(run) == {k: v.tolist() for k, v in best.items()}
    assert state.history == document["state"]["history"]
    assert weights(fit(quick("train.seed=1"))[0]) != weights(run)


def test_batches_are_a_pure_function_of_seed_epoch_and_step() -> None:
    windows = Task.of(small_dataset(), quick()).windows("train")
    forwards = {epoch: windows.order(4, 2, 7, epoch) for epoch in range(4)}
    np.random.default_rng().random()
    for epoch in reversed(range(4)):
        np.testing.assert_equal(windows.order(4, 2, 7, epoch), forwards[epoch])
        drawn = np.concatenate(forwards[epoch])
        assert len(set(drawn)) == len(drawn) and len(drawn) >= len(windows) - 4
    orders = [forwards[0], forwards[1], windows.order(4, 2, 8, 0)]
    assert len({tuple(np.concatenate(order)) for order in orders}) == 3


def test_a_step_trains_on_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = Task.of(small_dataset(), quick()), []
    trainer = Trainer(TrainedModel.untrained(task), task)

    def sums(*arguments: Any) -> Sums:
        seen.append(arguments[2])
        return error_sums(*arguments)

    monkeypatch.setattr(training, "error_sums", sums)
    trainer.fit()
    windows = trainer.windows
    expected = [batch for epoch in range(2) for batch in windows.order(4, 2, 0, epoch)[:3]]
    assert len(seen) == 6
    for target, batch in zip(seen, expected, strict=True):
        assert torch.equal(target, windows.targets(batch)[0])


def test_every_epoch_has_all_its_batches_whatever_their_size() -> None:
    task = Task.of(small_dataset(), quick("train.steps=none"))
    run = TrainedModel.untrained(task)
    for batch in (1, 3, 5, 8, 25, 37, 74, 75, 200):
        for length in (1, 2, 4, 7):
            train = run.config.train.model_copy(update={"batch": batch, "consecutive": length})
            config = run.config.model_copy(update={"train": train})
            trainer = Trainer(replace(run, config=config), task)
            for epoch in range(6):
                assert len(trainer.windows.order(batch, length, 0, epoch)) >= trainer.per_epoch > 0


def test_what_has_been_to_school_is_not_changed_by_steps_and_all_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(school, "CLEARLY", 2.0)  # whatever is learned there is kept
    task, trail = Task.of(small_dataset(), quick("network.residual_members=2")), []
    run = TrainedModel.untrained(task)
    untaught = {name: p.tolist() for name, p in run.model.named_parameters()}

    def watch(progress: Progress) -> None:
        trail.append({name: p.tolist() for name, p in run.model.named_parameters()})

    trainer = Trainer(run, task)
    trainer.fit(None, False, watch)
    still = {name for name, value in trail[0].items() if value == trail[-1][name]}
    assert still == {name for name in untaught if name.startswith("residuals.")}
    assert all(trail[0][name] != untaught[name] for name in still)  # where they did learn
    assert all(p.requires_grad != (n in still) for n, p in run.model.named_parameters())
    assert trainer.optimiser is not None
    (group,) = trainer.optimiser.param_groups
    assert len(group["params"]) == len(untaught) - len(still)


def test_hidden_sensors_are_keyed_by_seed_and_step() -> None:
    batch = Task.of(small_dataset(), quick()).windows("train").inputs(np.arange(4))
    assert batch.observed is not None
    hidden = {}
    for key in ((0, 1), (0, 2), (1, 1)):
        got = hide_sensors(batch, 0.5, key)
        torch.rand(3)
        assert torch.equal(got.frames, hide_sensors(batch, 0.5, key).frames)
        gone = ~got.observed.any(0).squeeze(-1)
        hidden[key] = tuple(gone.tolist())
        assert 3 < int(gone.sum()) < 17
        assert torch.equal(got.observed, batch.observed & ~gone[None, :, None])
        assert torch.equal(got.frames, torch.where(got.observed, batch.frames, 0.0))
    assert len(set(hidden.values())) == 3
    assert hide_sensors(batch, 0.0, (0, 1)) is batch


def test_schedules() -> None:
    cosine = TrainConfig(schedule="cosine", warmup=0)
    factors = [learning_rate(cosine, step, 10, 100) for step in (0, 50, 100)]
    assert factors == pytest.approx([1.0, 0.505, 0.01])
    halves = TrainConfig(schedule="step", warmup=0)
    assert [learning_rate(halves, s, 10, 999) for s in (0, 199, 200, 400)] == [1, 1, 0.5, 0.25]
    warm = TrainConfig(schedule="constant", warmup=4)
    factors = [learning_rate(warm, step, 10, 100) for step in range(6)]
    assert factors == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


@pytest.fixture
def steps_taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """The learning rate and the norm of the gradient in every step of Adam."""
    taken: list[tuple[float, float]] = []
    real = torch.optim.Adam.step

    def step(self: torch.optim.Adam, closure: None = None) -> None:
        if type(self) is torch.optim.Adam:  # the school has its own, which is derived
            (group,) = self.param_groups
            norms = [float(p.grad.norm()) for p in group["params"] if p.grad is not None]
            taken.append((group["lr"], math.hypot(*norms)))
        real(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    return taken


def test_schedule_and_clipping_are_in_force(steps_taken: list[tuple[float, float]]) -> None:
    fit(config := quick("train.clip=1e6", "train.epochs=1", "train.lr=3e-3"))
    free = [norm for _, norm in steps_taken]
    rates = [3e-3 * learning_rate(config.train, step, 3, 3) for step in range(3)]
    assert [rate for rate, _ in steps_taken] == rates
    steps_taken.clear()
    fit(quick("train.clip=0.01", "train.epochs=1"))
    clipped = [norm for _, norm in steps_taken]
    assert min(free) > 0.01 and max(clipped) <= 0.01 * (1 + 1e-4)


# When it ends


def test_the_best_weights_are_kept() -> None:
    task = Task.of(small_dataset(), quick("train.lr=0.3", "train.warmup=0", "train.epochs=4"))
    run = TrainedModel.untrained(task)
    trainer = Trainer(run, task)
    state = trainer.fit()
    errors = [entry["validation"] for entry in state.history]
    assert state.best == min(errors) < max(errors)
    assert state.history[errors.index(min(errors))]["step"] == state.best_step
    assert trainer._validate() == state.best


def test_training_stops_when_validation_has_not_improved_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = iter([5.0, 4.0, 4.5, 4.2, 1.0])
    monkeypatch.setattr(Trainer, "_validate", lambda self: next(errors))
    seen: dict[int, dict] = {}
    task = Task.of(small_dataset(), quick("train.patience=2", "train.epochs=9"))
    run = TrainedModel.untrained(task)

    def watch(progress: Progress) -> None:
        seen[progress.step] = weights(run)

    state = Trainer(run, task).fit(None, False, watch)
    assert (state.step, state.best, state.best_step, state.stale) == (9, 4.0, 3, 2)
    assert weights(run) == seen[3] != seen[9]


def spoil(monkeypatch: pytest.MonkeyPatch, bad: set[int]) -> None:
    """Make the loss NaN at some steps (counted in calls)."""
    calls = iter(range(10**6))

    def loss(*arguments: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
        honest, value = masked_loss(*arguments)
        wrong = math.nan if next(calls) in bad else 1.0
        return [part * wrong for part in honest], value * wrong

    monkeypatch.setattr(training, "masked_loss", loss)


def test_a_step_that_is_not_finite_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, {0, 3, 4})
    task = Task.of(small_dataset(), quick())
    run, trail = TrainedModel.untrained(task), []
    state = Trainer(run, task).fit(None, False, lambda progress: trail.append(weights(run)))
    unchanged = [n for n in range(1, len(trail)) if trail[n] == trail[n - 1]]
    assert unchanged == [1, 4, 5, 6, 8]  # 4 and 8 tell of a validation, not of a step
    assert (state.skipped, state.bad, state.step) == (3, 0, 6)


def test_three_of_them_in_a_row_end_training_and_what_is_saved_stays_sound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil(monkeypatch, {3, 4, 5})
    with pytest.raises(StonetError, match=r"3 steps in a row.*step 5.*Lower\s+train\.lr"):
        fit(quick("train.save_every=1"), tmp_path / "run")
    tensors, document = unpack(saved(tmp_path / "run"), "state")
    assert document["state"]["step"] == 5 and len(tensors) > 10  # unpack refuses NaN
    assert not RunFolder(tmp_path / "run").files


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_a_validation_error_that_is_not_finite_is_told(
    monkeypatch: pytest.MonkeyPatch, error: float
) -> None:
    monkeypatch.setattr(Trainer, "_validate", lambda self: error)
    with pytest.raises(StonetError, match=r"validation error at step 0 is (nan|inf)"):
        fit(quick())


def test_what_cannot_be_trained_is_refused_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = small_field()
    mask = field.observed.copy()
    mask[84:96] = False
    with pytest.raises(
        DataError, match=r"No value was observed in the validation part.*data\.split"
    ):
        fit(quick(), tmp_path / "run", dataset=Dataset((replace(field, mask=mask),)))
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(UsageError, match=r"5 processes cannot share batches of 4"):
        fit(quick(), tmp_path / "run")
    assert not list(tmp_path.iterdir())


# Interrupted and resumed is uninterrupted, bit for bit


@pytest.mark.parametrize("nth", [0, 2, 3, 4, 5, 8])
def test_ctrl_c_and_resume_is_as_if_nothing_had_happened(
    nth: int, tmp_path: Path, whole: Path
) -> None:
    """0: before the first step; 3, 4: at the end of an epoch, before and after its validation."""
    with pytest.raises(KeyboardInterrupt):
        fit(quick(), tmp_path / "run", watch=Stop(nth))
    assert not RunFolder(tmp_path / "run").files
    if nth < 8:
        assert saved(tmp_path / "run") != saved(whole)
    with pytest.raises(UsageError, match=r"holds a run already, finished or interrupted.*resume"):
        fit(quick(), tmp_path / "run")
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(whole)
    for name in ("model.safetensors", "metrics.json"):
        assert RunFolder(tmp_path / "run").read(name) == RunFolder(whole).read(name)


@pytest.mark.parametrize("place", ["in the middle of a step", "while validating"])
def test_ctrl_c_where_nothing_whole_could_be_saved_goes_back_to_the_last_state(
    place: str, tmp_path: Path, whole: Path
) -> None:
    owner, name = (torch.optim.Adam, "step") if "step" in place else (Trainer, "_validate")
    real, calls = getattr(owner, name), iter(range(100))

    def interrupted(*arguments: object) -> object:
        result = real(*arguments)  # weights have changed, the counter has not
        if isinstance(arguments[0], torch.optim.AdamW):  # the school's
            return result
        if next(calls) == (2 if "step" in place else 1):
            raise KeyboardInterrupt
        return result

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, interrupted)
        fit(quick(), tmp_path / "run")
    _, document = unpack(saved(tmp_path / "run"), "state")
    assert document["state"]["step"] == (2 if "step" in place else 3)
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(whole)


def test_ctrl_c_in_school_is_no_event_either(tmp_path: Path, whole: Path) -> None:
    """Nothing is saved, so resuming is starting again."""

    def interrupted(self: PointPretrainer, step: int, member: int) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PointPretrainer, "batch", interrupted)
        fit(quick(), tmp_path / "run")
    assert not list(RunFolder(tmp_path / "run").states())
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(whole)


def test_several_interruptions_and_a_longer_training_are_no_event_either(tmp_path: Path) -> None:
    short, long = (quick("train.schedule=constant", f"train.epochs={n}") for n in (1, 2))
    for nth in (1, 0, 1):
        with pytest.raises(KeyboardInterrupt):
            fit(short, tmp_path / "parts", True, Stop(nth))
    fit(short, tmp_path / "parts", True)
    fit(long, tmp_path / "parts", True)
    fit(long, tmp_path / "whole")
    assert saved(tmp_path / "parts") == saved(tmp_path / "whole")


def test_the_state_before_stands_in_for_a_damaged_one(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(quick(), tmp_path / "run", watch=Stop(6))
    last, previous = (
        tmp_path / "run" / "trainer" / f"{n}.safetensors" for n in ("last", "previous")
    )
    last.write_bytes(last.read_bytes()[:-1])
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(whole)
    for file in (last, previous):
        file.write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match=r"last\.safetensors is not sound"):
        fit(quick(), tmp_path / "run", resume=True)


def test_other_settings_or_other_data_cannot_resume(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(quick(), tmp_path / "run", watch=Stop(2))
    before = saved(tmp_path / "run")
    told = r"Cannot resume: config\.train\.lr was 0\.01 and is now 0\.02\. Resume with the same"
    with pytest.raises(UsageError, match=told):
        fit(quick("train.lr=0.02"), tmp_path / "run", resume=True)
    other = Dataset((replace(small_field(), values=small_field().values * 1.001),), "small")
    with pytest.raises(UsageError, match=r"data\.scaler\.mean was .* and is now "):
        fit(quick(), tmp_path / "run", resume=True, dataset=other)
    assert saved(tmp_path / "run") == before
