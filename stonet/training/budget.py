"""Budget: how long a model may train, and what a training cost."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.system.resources import peak_mb, reset_peak
from stonet.training.fallback import fit_with_fallback
from stonet.training.race import trainer_after_race
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress


@dataclass(frozen=True)
class Budget:
    """How long every model may train: epochs, or minutes of CPU time.

    Minutes are those of the process with all its threads, on a GPU minutes of wall time. They are
    watched while the model trains: at most one step and one validation come on top.

    Args:
        epochs: passes over the training windows, or over `steps` batches of them.
        minutes: instead of `epochs`.
        steps: of an epoch (None: a whole pass).

    Raises:
        UsageError: if both or neither of `epochs` and `minutes` are given, or `minutes` is no
            number above 0.
    """

    epochs: int | None = None
    minutes: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.minutes is None):
            raise UsageError("Give either a budget in minutes or a number of epochs.")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UsageError(f"A budget of {self.minutes:g} minutes; expected a number above 0.")

    def __str__(self) -> str:
        if self.minutes is not None:
            return f"{self.minutes:g} min of CPU time"
        return f"{self.epochs} epochs" + (f" of {self.steps} steps" if self.steps else "")

    def limit(self, config: Config) -> Config:
        """The configuration with this length, without early stopping.

        Args:
            config: its section `train` is changed.
        """
        if self.epochs is None:
            update = {"minutes": self.minutes}
        else:
            patience = max(self.epochs, 1)
            update = {"epochs": self.epochs, "steps": self.steps, "patience": patience}
            update["minutes"] = None
        return config.model_copy(update={"train": config.train.model_copy(update=update)})


@dataclass(frozen=True)
class TrainingCost:
    """Time, memory and steps that one training took. The field names are JSON keys of results.

    Args:
        model: name in the registry.
        seed: of the training.
        parameters: number of trained weights.
        steps: after the race.
        seconds: wall time, race, closed forms and validation included.
        cpu_seconds: of the process, likewise.
        seconds_per_epoch: of a whole pass; None: no step was taken.
        peak_mb: of the whole process.
        best_validation: lowest validation error.
        inductive: whether the model forecasts at unseen points.
        epochs: None: `minutes` were given.
        per_epoch: steps; None: a whole pass over the training windows.
        minutes: of the budget; None: epochs were given.
    """

    model: str
    seed: int
    parameters: int
    steps: int
    seconds: float
    cpu_seconds: float
    seconds_per_epoch: float | None
    peak_mb: float
    best_validation: float
    inductive: bool
    epochs: int | None
    per_epoch: int | None
    minutes: float | None = None

    @property
    def budget(self) -> Budget:
        """The budget of this training; one of epochs repeats it step by step, on any machine."""
        return Budget(self.epochs, self.minutes, self.per_epoch)


@dataclass(frozen=True)
class TrainingResult:
    """A trained model, the task it was trained for, and the cost.

    Args:
        trained: the model.
        task: its data.
        cost: of the training.
        history: training and validation error by step.
    """

    trained: TrainedModel
    task: Task
    cost: TrainingCost
    history: Sequence[Mapping[str, float | int | None]] = ()


def train(dataset: Dataset, config: Config, budget: Budget) -> TrainingResult:
    """Train a model within a budget; the weights of the lowest validation error are kept.

    As in `fit_run`, reference forecasts take part where the setting train.fallback allows it.

    Args:
        dataset: to learn from.
        config: settings of the model and the training.
        budget: length of the training.

    Example:
        >>> result = train(dataset, load_config("tiny"), Budget(epochs=2))
        >>> result.cost.seconds
    """
    task = Task.of(dataset, budget.limit(config))
    reset_peak()
    stopwatch = Stopwatch()
    trainer = trainer_after_race(task)
    trained, state = fit_with_fallback(trainer, on_progress=stopwatch)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    seconds_per_pass = stopwatch.per_step * trainer.loader.steps_per_pass
    cost = TrainingCost(
        model=config.model,
        seed=config.train.seed,
        parameters=parameters,
        steps=state.step,
        seconds=stopwatch.elapsed,
        cpu_seconds=stopwatch.cpu_elapsed,
        seconds_per_epoch=seconds_per_pass if stopwatch.steps or not parameters else None,
        peak_mb=peak_mb(),
        best_validation=state.best,
        inductive=trained.model.inductive,
        epochs=budget.epochs,
        per_epoch=budget.steps,
        minutes=budget.minutes,
    )
    return TrainingResult(trained, trainer.task, cost, tuple(state.history))


class Stopwatch:
    """A progress callback that measures the seconds of each step and of each validation."""

    def __init__(self) -> None:
        self.started = self.last = time.perf_counter()
        self.cpu_started = self.cpu_last = time.process_time()
        self.steps: list[float] = []
        self.validations: list[float] = []

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        (self.steps if progress.validation is None else self.validations).append(now - self.last)
        self.last, self.cpu_last = now, time.process_time()

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the last event."""
        return self.last - self.started

    @property
    def cpu_elapsed(self) -> float:
        """CPU seconds of the process from the start to the last event."""
        return self.cpu_last - self.cpu_started

    @property
    def per_step(self) -> float:
        """Median seconds of a step; 0 if none was taken."""
        return float(np.median(self.steps)) if self.steps else 0.0
