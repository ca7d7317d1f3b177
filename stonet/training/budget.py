"""Budget: how long a model may train, and what a training cost.

A budget is a number of epochs, or of minutes. Minutes are converted to steps by timing a few of
them. The result is cached, so that the same training on the same machine takes the same steps and
gives the same bits.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from stonet._version import __version__
from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.system import distributed
from stonet.system.atomic import replacing
from stonet.system.resources import peak_mb, reset_peak
from stonet.system.spill import cache_folder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer

TIMED_STEPS = 8
MIN_VALIDATIONS, MAX_VALIDATIONS = 2, 20  # in a budget of minutes
MAX_VALIDATION_SHARE = 0.2  # of the budget
MAX_UNUSED_SHARE = 0.05  # of the steps, left over so that epochs have equal lengths
PRETRAINING_SHARE = 0.85  # at most, of the time that the closed forms leave
MAX_MEMBERS = 4  # of the residual ensemble, where the configuration does not set a number
SHORT_PRETRAINING, LONG_PRETRAINING = 60, 360  # steps of two timed runs; the difference is timed


@dataclass(frozen=True)
class Budget:
    """How long every model may train: epochs, or minutes of wall time.

    Args:
        epochs: passes over the training windows, or over `steps` batches of them.
        minutes: of wall time, instead of `epochs`.
        steps: of an epoch (None: a whole pass).
        pretraining_steps: (None: as configured).
        residual_members: members of the residual ensemble (None: as configured).

    Raises:
        UsageError: if both or neither of `epochs` and `minutes` are given.
    """

    epochs: int | None = None
    minutes: float | None = None
    steps: int | None = None
    pretraining_steps: int | None = None
    residual_members: int | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.minutes is None):
            raise UsageError("Give either a budget in minutes or a number of epochs.")

    def __str__(self) -> str:
        if self.minutes is not None:
            return f"{self.minutes:g} min of wall time"
        return f"{self.epochs} epochs" + (f" of {self.steps} steps" if self.steps else "")


@dataclass(frozen=True)
class TrainingCost:
    """Time, memory and steps that one training took. The field names are JSON keys of results."""

    model: str
    seed: int
    parameters: int
    steps: int
    seconds: float  # closed forms and validation included
    seconds_per_epoch: float | None  # of a whole pass; None: no step was taken
    peak_mb: float  # of the whole process
    best_validation: float
    inductive: bool
    epochs: int
    per_epoch: int | None  # steps; None: a whole pass over the training windows
    pretraining_steps: int  # of each member of the residual ensemble
    residual_members: int | None = None  # None: one

    @property
    def budget(self) -> Budget:
        """The budget that repeats this training step by step, on any machine."""
        return Budget(
            epochs=self.epochs,
            steps=self.per_epoch,
            pretraining_steps=self.pretraining_steps,
            residual_members=self.residual_members,
        )


@dataclass(frozen=True)
class TrainingResult:
    """A trained model, the task it was trained for, and the cost."""

    trained: TrainedModel
    task: Task
    cost: TrainingCost


def train(dataset: Dataset, config: Config, budget: Budget) -> TrainingResult:
    """Train a model within a budget; the weights of the lowest validation error are kept.

    Example:
        >>> result = train(dataset, load_config("tiny"), Budget(epochs=2))
        >>> result.cost.seconds
    """
    task = Task.of(dataset, config)
    if budget.minutes is not None:
        task = Task.of(dataset, _fit_into_minutes(task, budget.minutes))
    elif budget.epochs is not None:
        lengths = budget.epochs, budget.steps, budget.pretraining_steps, budget.residual_members
        task = Task.of(dataset, _with_lengths(config, *lengths))
    reset_peak()
    trained = TrainedModel.untrained(task)
    trainer, stopwatch = Trainer(trained, task), Stopwatch()
    state = trainer.fit(on_progress=stopwatch)
    parameters = sum(p.numel() for p in trained.model.parameters())
    seconds_per_pass = stopwatch.per_step * trainer.loader.steps_per_pass
    cost = TrainingCost(
        model=config.model,
        seed=config.train.seed,
        parameters=parameters,
        steps=state.step,
        seconds=stopwatch.elapsed,
        seconds_per_epoch=seconds_per_pass if stopwatch.steps or not parameters else None,
        peak_mb=peak_mb(),
        best_validation=state.best,
        inductive=trained.model.inductive,
        epochs=task.config.train.epochs,
        per_epoch=task.config.train.steps,
        pretraining_steps=task.config.pretraining.steps,
        residual_members=task.config.network.residual_members,
    )
    return TrainingResult(trained, task, cost)


def limit_to_minutes(task: Task, minutes: float) -> Task:
    """The task with as many training steps as fit into the minutes."""
    check_minutes(minutes)
    return Task.of(task.dataset, _fit_into_minutes(task, minutes))


def check_minutes(minutes: float) -> None:
    """Refuse a budget that is not positive and finite, or that several processes would share."""
    if not 0 < minutes < math.inf:
        raise UsageError(f"A training of {minutes:g} minutes; expected a number above 0.")
    if distributed.size() > 1:
        raise UsageError(
            "A budget in minutes works with one process only: each process would count its own "
            "steps. Set train.epochs, train.steps and pretraining.steps instead."
        )


class Stopwatch:
    """A progress callback that measures the seconds of each step and of each validation."""

    def __init__(self) -> None:
        self.started = self.last = time.perf_counter()
        self.steps: list[float] = []
        self.validations: list[float] = []

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        (self.steps if progress.validation is None else self.validations).append(now - self.last)
        self.last = now

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the last event."""
        return self.last - self.started

    @property
    def per_step(self) -> float:
        """Median seconds of a step; 0 if none was taken."""
        return float(np.median(self.steps)) if self.steps else 0.0


def _fit_into_minutes(task: Task, minutes: float) -> Config:
    """The configuration with as many steps as fit into the minutes, from the cache or timed."""
    cached = cache_folder() / "compare" / f"{_fingerprint(task, minutes)}.json"
    if cached.is_file():
        return _with_lengths(task.config, **json.loads(cached.read_text()))
    trainer, stopwatch = _time_steps(task)
    if not stopwatch.steps:  # the model has no parameters
        return _with_lengths(task.config, epochs=0)
    seconds = 60 * minutes - stopwatch.validations[0]  # which includes the closed forms
    least = MIN_VALIDATIONS * (stopwatch.validations[-1] + stopwatch.per_step)
    plan = _plan_pretraining(trainer, task.config, seconds, least)
    changed = plan.residual_members != task.config.network.residual_members
    if changed and (plan.residual_members or 1) > 1:  # more members slow down each step
        _, stopwatch = _time_steps(task, plan.residual_members)
    epochs, steps = _plan_epochs(
        seconds - plan.seconds,
        stopwatch.validations[-1],
        stopwatch.per_step,
        trainer.loader.steps_per_pass,
    )
    if not epochs and not (plan.steps and plan.residual_members):
        epochs = MIN_VALIDATIONS  # nothing else is trained
    lengths: dict[str, Any] = {
        "epochs": epochs,
        "steps": steps,
        "pretraining_steps": plan.steps,
        "residual_members": plan.residual_members,
    }
    with suppress(OSError):  # it is measured again where the cache cannot be written
        cached.parent.mkdir(parents=True, exist_ok=True)
        with replacing(cached) as path:  # another process may write the same file
            path.write_text(json.dumps(lengths))
    return _with_lengths(task.config, **lengths)


def _time_steps(task: Task, residual_members: int | None = None) -> tuple[Trainer, Stopwatch]:
    """A short training, timed."""
    stopwatch = Stopwatch()
    lengths = 1, TIMED_STEPS, SHORT_PRETRAINING, residual_members
    short = Task.of(task.dataset, _with_lengths(task.config, *lengths))
    trainer = Trainer(TrainedModel.untrained(short), short)
    trainer.fit(on_progress=stopwatch)
    return trainer, stopwatch


def _plan_epochs(
    seconds: float, validation: float, step: float, steps_per_pass: int
) -> tuple[int, int]:
    """Epochs and steps of each that fit, with a validation after each epoch; 0 if too few do."""
    most = int(
        min(max(MAX_VALIDATION_SHARE * seconds / validation, MIN_VALIDATIONS), MAX_VALIDATIONS)
    )
    steps = int((seconds - most * validation) / step)
    if steps < most:  # slow steps: fewer validations leave time for more of them
        most = max(steps, MIN_VALIDATIONS)
        steps = int((seconds - most * validation) / step)
    if steps < MIN_VALIDATIONS:
        return 0, 1
    validations = max(
        range(MIN_VALIDATIONS, most + 1), key=lambda n: (steps % n <= MAX_UNUSED_SHARE * steps, n)
    )
    each = min(steps_per_pass, steps // validations)
    return min(steps // each, max(1, int(seconds / (each * step + validation)))), each


class PretrainingPlan(NamedTuple):
    """The pretraining that a budget allows."""

    steps: int  # of each member
    residual_members: int | None  # None: the model has no residual ensemble
    seconds: float  # beyond the timed steps


def _plan_pretraining(
    trainer: Trainer, config: Config, seconds: float, least: float
) -> PretrainingPlan:
    """As many pretraining steps as the time allows; then further members of the ensemble.

    A share of the time is left to the other steps, or nothing if it were less than `least`.
    """
    most, wanted = config.pretraining.steps, config.network.residual_members
    timings: list[tuple[int, float, float]] = []  # steps, seconds to sample, seconds to train
    for steps in (SHORT_PRETRAINING, LONG_PRETRAINING):
        started = time.perf_counter()
        pretrainer = trainer.pretrainer(steps)
        if pretrainer is None:
            return PretrainingPlan(most, None, 0.0)
        sampled = time.perf_counter()
        pretrainer.fit(trainer.validation)
        timings.append((pretrainer.steps, sampled - started, time.perf_counter() - sampled))
        most = min(most, pretrainer.max_steps)
    (few, *before), (many, *after) = timings
    sampling, training = (
        max(b - a, 1e-9) / max(many - few, 1) for a, b in zip(before, after, strict=True)
    )
    share = PRETRAINING_SHARE if (1 - PRETRAINING_SHARE) * seconds > least else 1.0
    allowed = max(share * seconds, 0.0)
    more = min(most - SHORT_PRETRAINING, int(allowed / (sampling + training)))
    used = max(more, 0) * (sampling + training)
    if wanted is None and 0 < most == SHORT_PRETRAINING + more:
        validating = max(before[1] - few * training, 0.0)
        each = most * training + validating
        others = min(int((allowed - used) / each), MAX_MEMBERS - 1)
        return PretrainingPlan(SHORT_PRETRAINING + more, 1 + others, used + others * each)
    return PretrainingPlan(SHORT_PRETRAINING + more, wanted or 1, used)


def _fingerprint(task: Task, minutes: float) -> str:
    """A hash of everything that decides how many steps fit; the seed does not."""
    config = task.config.model_dump()
    config["train"].pop("seed")
    windows = task.windows("train", task.stride)
    shape = [len(task.nodes), len(windows), asdict(windows.scaler), asdict(task.time_spec)]
    content = json.dumps(
        [__version__, config, shape, minutes, torch.get_num_threads()], sort_keys=True
    )
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def _with_lengths(
    config: Config,
    epochs: int,
    steps: int | None = None,
    pretraining_steps: int | None = None,
    residual_members: int | None = None,
) -> Config:
    """The configuration with these lengths, without early stopping."""
    warmup = config.train.warmup if steps is None else steps * epochs // 3  # of a short training
    update = {"epochs": epochs, "steps": steps, "patience": max(epochs, 1)}
    update["warmup"] = min(config.train.warmup, warmup)
    sections: dict[str, Any] = {"train": config.train.model_copy(update=update)}
    if pretraining_steps is not None:
        sections["pretraining"] = config.pretraining.model_copy(update={"steps": pretraining_steps})
    if residual_members is not None:
        changed = {"residual_members": residual_members}
        sections["network"] = config.network.model_copy(update=changed)
    return config.model_copy(update=sections)
