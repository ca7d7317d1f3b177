"""Schedule: how long a training is, when it validates, and the learning rate on the way.

A training takes a number of steps, or a number of seconds. Seconds are CPU time of the process
with all its threads, so that other work on the machine changes nothing; on a GPU they are wall
time. They are counted while the model trains: closed forms, graphs and validations included. All
decisions are functions of the saved state, so that a resumed training makes the same ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from stonet.config import TrainConfig
from stonet.training.state import State

VALIDATIONS = 20  # of a training in seconds, at equal intervals
MAX_VALIDATION_SHARE = 0.15  # of the seconds spent, before the last validation
MAX_WARMUP_SHARE = 0.1  # of the training
HALVINGS = 5  # equal parts of a training with the schedule "step"


def clock(device: torch.device) -> Callable[[], float]:
    """A function that gives seconds: CPU time of the process, or wall time for a GPU.

    Args:
        device: of the training.
    """
    return time.process_time if device.type == "cpu" else time.perf_counter


@dataclass(frozen=True)
class Schedule:
    """The length of a training: steps, or seconds.

    Args:
        steps: of all epochs; None: `seconds` decide.
        per_epoch: steps between two validations, unless `seconds` decide.
        seconds: of the clock.
    """

    steps: int | None
    per_epoch: int
    seconds: float | None = None

    @staticmethod
    def of(config: TrainConfig, per_epoch: int, taken: int = 0) -> Schedule:
        """The schedule that the settings ask for, without the steps `taken` by a race before.

        Args:
            config: gives epochs or minutes.
            per_epoch: steps of an epoch.
            taken: steps of the race.
        """
        if config.minutes is None:
            return Schedule(max(config.epochs * per_epoch - taken, 0), per_epoch)
        return Schedule(None, per_epoch, 60 * config.minutes)

    def progress(self, state: State) -> float:
        """The completed share of the steps, from 0 to 1; with seconds, the last validation fits.

        Args:
            state: of the training.
        """
        if self.seconds is None:
            return state.step / max(self.steps or 0, 1)
        left = self.seconds - state.begun - _usual_validation(state)
        return min(max((state.spent - state.begun) / left, 0.0), 1.0) if left > 0 else 1.0

    def ended(self, state: State) -> bool:
        """Whether there is neither a step nor time left.

        Args:
            state: of the training.
        """
        if self.seconds is None:
            return state.step >= (self.steps or 0)
        return self.progress(state) >= 1

    def validates(self, state: State) -> bool:
        """Whether to validate now: before the first step, after the last one, and in between.

        Args:
            state: of the training.
        """
        if not state.history:
            return True
        if state.history[-1]["step"] == state.step:
            return False
        if self.ended(state):
            return True
        if self.seconds is None:
            return state.step % self.per_epoch == 0
        due = state.spent - state.validated >= (self.seconds - state.begun) / VALIDATIONS
        usual = _usual_validation(state)
        return due and state.validating + usual <= MAX_VALIDATION_SHARE * (state.spent + usual)


def _usual_validation(state: State) -> float:
    """Mean seconds of a validation so far."""
    return state.validating / max(len(state.history), 1)


def learning_rate_factor(config: TrainConfig, step: int, progress: float) -> float:
    """The factor on train.lr at a step: warm-up times schedule.

    Args:
        config: its `warmup` and `schedule` are used.
        step: number of the step, from 0.
        progress: completed share of the training.
    """
    warmup = min(1.0, max((step + 1) / (config.warmup + 1), progress / MAX_WARMUP_SHARE))
    if config.schedule == "cosine":
        return warmup * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))
    if config.schedule == "step":
        return warmup * 0.5 ** int(HALVINGS * progress)
    return warmup
