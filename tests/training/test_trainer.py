"""Training is reproducible, keeps the best weights, and resumes exactly after an interruption.

Tests with real processes (SIGKILL, torchrun) are in test_processes.py.
"""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.small import quick, small_dataset, small_field

from stonet.config import Config, TrainConfig
from stonet.data.field import Dataset
from stonet.errors import DataError, ModelFileError, StonetError, UsageError
from stonet.models.stonet import STONetwork
from stonet.training import trainer as trainer_module
from stonet.training.fit import fit_run
from stonet.training.loss import Sums, error_sums, masked_loss
from stonet.training.run_folder import RunFolder, unpack
from stonet.training.schedule import learning_rate_factor
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, StepCallback, Trainer


def fit(
    config: Config,
    folder: Path | None = None,
    resume: bool = False,
    on_progress: StepCallback = lambda progress: None,
    dataset: Dataset | None = None,
) -> tuple[TrainedModel, State]:
    return fit_run(Task.of(dataset or small_dataset(), config), folder, resume, on_progress)


def weights(trained: TrainedModel) -> dict[str, list]:
    return {name: value.tolist() for name, value in trained.model.state_dict().items()}


def saved(folder: Path) -> bytes:
    """The newest state, bit by bit: weights, best weights, optimiser, history."""
    return next(RunFolder(folder).states())[1]


class Stop:
    """A progress callback that interrupts at its nth call."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, progress: Progress) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted training."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    fit(quick(), folder)
    return folder


# Reproducibility


def test_a_training_depends_on_its_seed_and_not_on_the_global_generator(
    uninterrupted: Path,
) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    trained, state = fit(quick())
    assert torch.equal(torch.get_rng_state(), before)
    tensors, document = unpack(saved(uninterrupted), "state")
    best = {k.removeprefix("best."): v for k, v in tensors.items() if k.startswith("best.")}
    assert weights(trained) == {k: v.tolist() for k, v in best.items()}
    assert state.history == document["state"]["history"]
    assert weights(fit(quick("train.seed=1"))[0]) != weights(trained)


def test_a_step_trains_on_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    task, targets = Task.of(small_dataset(), quick()), []
    trainer = Trainer(TrainedModel.untrained(task), task)

    def sums(*arguments: Any) -> Sums:
        targets.append(arguments[2])
        return error_sums(*arguments)

    monkeypatch.setattr(trainer_module, "error_sums", sums)
    trainer.fit()
    windows = trainer.windows
    each = trainer.config.consecutive or 1
    expected = [b for epoch in range(2) for b in windows.order(4, each, 0, epoch)[:3]]
    assert len(targets) == 6
    for target, batch in zip(targets, expected, strict=True):
        assert torch.equal(target, windows.targets(batch)[0])


def test_every_epoch_has_enough_batches_of_any_size() -> None:
    task = Task.of(small_dataset(), quick("train.steps=none"))
    trained = TrainedModel.untrained(task)
    for batch in (1, 3, 5, 8, 25, 37, 74, 75, 200):
        for length in (1, 2, 4, 7):
            train = trained.config.train.model_copy(update={"batch": batch, "consecutive": length})
            config = trained.config.model_copy(update={"train": train})
            trainer = Trainer(replace(trained, config=config), task)
            for epoch in range(6):
                batches = len(trainer.windows.order(batch, length, 0, epoch))
                assert batches >= trainer.steps_per_epoch > 0


def test_steps_change_all_parameters_that_require_a_gradient() -> None:
    task, trail = Task.of(small_dataset(), quick()), []
    trained = TrainedModel.untrained(task)

    def record(progress: Progress) -> None:
        trail.append({name: p.tolist() for name, p in trained.model.named_parameters()})

    trainer = Trainer(trained, task)
    trainer.fit(None, False, record)
    constant = {name for name, value in trail[0].items() if value == trail[-1][name]}
    assert all(p.requires_grad != (n in constant) for n, p in trained.model.named_parameters())
    groups = [group for optimiser in trainer.optimisers for group in optimiser.param_groups]
    assert sum(len(group["params"]) for group in groups) == len(trail[0]) - len(constant)


def test_learning_rate_schedules() -> None:
    cosine = TrainConfig(schedule="cosine", warmup=0)
    factors = [learning_rate_factor(cosine, step, step / 100) for step in (0, 50, 100)]
    assert factors == pytest.approx([1.0, 0.505, 0.01])
    halving = TrainConfig(schedule="step", warmup=0)
    factors = [learning_rate_factor(halving, n, n / 1000) for n in (0, 199, 200, 400, 600, 999)]
    assert factors == [1, 1, 0.5, 0.25, 0.125, 0.0625]
    warm = TrainConfig(schedule="constant", warmup=4)
    factors = [learning_rate_factor(warm, step, step / 100) for step in range(6)]
    assert factors == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    short = [learning_rate_factor(warm, step, step / 20) for step in range(4)]
    assert short == pytest.approx([0.2, 0.5, 1.0, 1.0])  # over after a tenth of the training


@pytest.fixture
def steps_taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Learning rate and gradient norm of every step of AdamW."""
    taken: list[tuple[float, float]] = []
    real = torch.optim.AdamW.step

    def step(self: torch.optim.AdamW, closure: None = None) -> None:
        (group,) = self.param_groups
        norms = [float(p.grad.norm()) for p in group["params"] if p.grad is not None]
        taken.append((group["lr"], math.hypot(*norms)))
        real(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    return taken


def test_schedule_and_clipping_are_applied(steps_taken: list[tuple[float, float]]) -> None:
    adam = ("train.optimiser=adam", "train.epochs=1", "train.lr=3e-3")
    fit(config := quick("train.clip=1e6", *adam))
    unclipped = [norm for _, norm in steps_taken]
    rates = [
        3e-3 * learning_rate_factor(config.train.complete, step, step / 3) for step in range(3)
    ]
    assert [rate for rate, _ in steps_taken] == rates
    steps_taken.clear()
    fit(quick("train.clip=0.01", *adam))
    clipped = [norm for _, norm in steps_taken]
    assert min(unclipped) > 0.01 and max(clipped) <= 0.01 * (1 + 1e-4)


# The end of a training


def test_the_best_weights_are_kept() -> None:
    task = Task.of(small_dataset(), quick("train.lr=0.3", "train.warmup=0", "train.epochs=4"))
    trainer = Trainer(TrainedModel.untrained(task), task)
    state = trainer.fit()
    errors = [entry["validation"] for entry in state.history]
    assert state.best == min(errors) < max(errors)
    assert state.history[errors.index(min(errors))]["step"] == state.best_step
    assert trainer._validate() == state.best


def test_training_stops_after_patience_epochs_without_improvement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = iter([5.0, 4.0, 4.5, 4.2, 1.0])
    monkeypatch.setattr(Trainer, "_validate", lambda self: next(errors))
    by_step: dict[int, dict] = {}
    task = Task.of(small_dataset(), quick("train.patience=2", "train.epochs=9"))
    trained = TrainedModel.untrained(task)

    def record(progress: Progress) -> None:
        by_step[progress.step] = weights(trained)

    state = Trainer(trained, task).fit(None, False, record)
    assert (state.step, state.best, state.best_step, state.stale) == (9, 4.0, 3, 2)
    assert weights(trained) == by_step[3] != by_step[9]


def set_losses_to_nan(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    """Make the loss NaN at some steps."""
    calls = iter(range(10**6))

    def loss(*arguments: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
        losses, value = masked_loss(*arguments)
        factor = math.nan if next(calls) in steps else 1.0
        return [part * factor for part in losses], value * factor

    monkeypatch.setattr(trainer_module, "masked_loss", loss)


def test_a_step_with_a_non_finite_loss_does_not_change_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_losses_to_nan(monkeypatch, {0, 3, 4})
    task = Task.of(small_dataset(), quick())
    trained, trail = TrainedModel.untrained(task), []
    state = Trainer(trained, task).fit(None, False, lambda progress: trail.append(weights(trained)))
    unchanged = [n for n in range(1, len(trail)) if trail[n] == trail[n - 1]]
    assert unchanged == [1, 4, 5, 6, 8]  # 4 and 8 are validations
    assert (state.skipped, state.bad, state.step) == (3, 0, 6)


def test_three_non_finite_losses_in_a_row_are_an_error_and_the_saved_state_stays_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_losses_to_nan(monkeypatch, {3, 4, 5})
    with pytest.raises(StonetError, match=r"3 steps in a row.*step 5.*Lower\s+train\.lr"):
        fit(quick("train.save_every=1"), tmp_path / "run")
    tensors, document = unpack(saved(tmp_path / "run"), "state")
    assert document["state"]["step"] == 5 and len(tensors) > 10  # unpack refuses NaN
    assert not RunFolder(tmp_path / "run").files


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_a_non_finite_validation_error_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: float
) -> None:
    monkeypatch.setattr(Trainer, "_validate", lambda self: error)
    with pytest.raises(StonetError, match=r"validation error at step 0 is (nan|inf)"):
        fit(quick())


def test_data_that_cannot_be_trained_are_refused_before_a_folder_is_made(
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


# A resumed training equals an uninterrupted one, bit by bit


@pytest.mark.parametrize("nth", [0, 2, 3, 4, 5, 8])
def test_a_training_resumed_after_an_interrupt_equals_an_uninterrupted_one(
    nth: int, tmp_path: Path, uninterrupted: Path
) -> None:
    """0: before the first step; 3, 4: at the end of an epoch, before and after its validation."""
    with pytest.raises(KeyboardInterrupt):
        fit(quick(), tmp_path / "run", on_progress=Stop(nth))
    assert not RunFolder(tmp_path / "run").files
    if nth < 8:
        assert saved(tmp_path / "run") != saved(uninterrupted)
    with pytest.raises(UsageError, match=r"holds a run already, finished or interrupted.*resume"):
        fit(quick(), tmp_path / "run")
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(uninterrupted)
    for name in ("model.safetensors", "metrics.json"):
        assert RunFolder(tmp_path / "run").read(name) == RunFolder(uninterrupted).read(name)


def test_sigterm_saves_and_a_ctrl_c_meanwhile_changes_nothing(
    tmp_path: Path, uninterrupted: Path
) -> None:
    real = Trainer._save

    def hurried(self: Trainer, folder: RunFolder | None) -> None:
        if self.state.step == 5:
            signal.raise_signal(signal.SIGINT)
        real(self, folder)

    def terminate(progress: Progress) -> None:
        if progress.step == 5:
            signal.raise_signal(signal.SIGTERM)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_save", hurried)
        fit(quick(), tmp_path / "run", on_progress=terminate)
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    _, document = unpack(saved(tmp_path / "run"), "state")
    assert document["state"]["step"] == 5
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(uninterrupted)


@pytest.mark.parametrize("during", ["step", "validation"])
def test_after_an_interrupt_within_a_step_training_resumes_from_the_state_before(
    during: str, tmp_path: Path, uninterrupted: Path
) -> None:
    owner, name = (torch.optim.AdamW, "step") if during == "step" else (Trainer, "_validate")
    real, calls = getattr(owner, name), iter(range(100))

    def interrupted(*arguments: object) -> object:
        result = real(*arguments)  # weights have changed, the counter has not
        if next(calls) == (2 if during == "step" else 1):
            raise KeyboardInterrupt
        return result

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, interrupted)
        fit(quick(), tmp_path / "run")
    _, document = unpack(saved(tmp_path / "run"), "state")
    assert document["state"]["step"] == (2 if during == "step" else 3)
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(uninterrupted)


def test_after_an_interrupt_in_the_closed_forms_training_starts_anew(
    tmp_path: Path, uninterrupted: Path
) -> None:
    """No state is saved before the first validation."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(STONetwork, "fit_closed_form", interrupted)
        fit(quick(), tmp_path / "run")
    assert not list(RunFolder(tmp_path / "run").states())
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(uninterrupted)


def test_training_can_be_resumed_several_times_and_prolonged(tmp_path: Path) -> None:
    short, long = (quick("train.schedule=constant", f"train.epochs={n}") for n in (1, 2))
    for nth in (1, 0, 1):
        with pytest.raises(KeyboardInterrupt):
            fit(short, tmp_path / "resumed", True, Stop(nth))
    fit(short, tmp_path / "resumed", True)
    fit(long, tmp_path / "resumed", True)
    fit(long, tmp_path / "uninterrupted")
    assert saved(tmp_path / "resumed") == saved(tmp_path / "uninterrupted")


def test_a_damaged_state_is_replaced_by_the_previous_one(
    tmp_path: Path, uninterrupted: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(quick(), tmp_path / "run", on_progress=Stop(6))
    last, previous = (
        tmp_path / "run" / "trainer" / f"{n}.safetensors" for n in ("last", "previous")
    )
    last.write_bytes(last.read_bytes()[:-1])
    fit(quick(), tmp_path / "run", resume=True)
    assert saved(tmp_path / "run") == saved(uninterrupted)
    for file in (last, previous):
        file.write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match=r"last\.safetensors is not valid"):
        fit(quick(), tmp_path / "run", resume=True)


def test_resuming_with_other_settings_or_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(quick(), tmp_path / "run", on_progress=Stop(2))
    before = saved(tmp_path / "run")
    message = r"Cannot resume: config\.train\.lr was 0\.001 and is now 0\.02\. Resume with the same"
    with pytest.raises(UsageError, match=message):
        fit(quick("train.lr=0.02"), tmp_path / "run", resume=True)
    other = Dataset((replace(small_field(), values=small_field().values * 1.001),), "small")
    with pytest.raises(UsageError, match=r"data\.scaler\.mean was .* and is now "):
        fit(quick(), tmp_path / "run", resume=True, dataset=other)
    assert saved(tmp_path / "run") == before
