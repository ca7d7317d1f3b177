"""Fit a model to a task and publish it as a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stonet.errors import UsageError
from stonet.system import distributed
from stonet.training.fallback import fit_with_fallback
from stonet.training.model_card import facts
from stonet.training.race import trainer_after_race
from stonet.training.run_folder import RunFolder
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import StepCallback, Trainer


def fit_run(
    task: Task,
    folder: str | Path | None,
    resume: bool,
    watch: StepCallback,
    replace_run: bool = False,
) -> tuple[TrainedModel, State]:
    """Train a model for a task; with a folder, publish it there once it is complete.

    Args:
        task: the data and the settings.
        folder: the run folder to make (None: the model stays in memory).
        resume: continue from the last saved state in the folder.
        watch: called after each step and validation.
        replace_run: replace a run that the folder holds.
    """
    if folder is None or not distributed.is_first():
        return _trained(task, None, resume, watch)
    Trainer(TrainedModel.untrained(task), task)  # refuses what is impossible before a run exists
    place = RunFolder(folder)
    with place.lock():
        if not (resume or replace_run):
            check_empty(place)
        trained, state = _trained(task, place, resume, watch)
        place.publish(trained.files(summary(state, task)))
    return trained, state


def _trained(
    task: Task, place: RunFolder | None, resume: bool, watch: StepCallback
) -> tuple[TrainedModel, State]:
    """Train the model that a race has chosen."""
    return fit_with_fallback(trainer_after_race(task, place, resume), place, resume, watch)


def check_empty(place: RunFolder) -> None:
    """Refuse a folder that holds a run.

    Args:
        place: where a new run is to be stored.
    """
    if place.files or any(True for _ in place.states()):
        raise UsageError(
            f"'{place.path}' holds a run already, finished or interrupted. Choose another folder, "
            "or continue the run with --resume (in Python: resume=True)."
        )


def summary(state: State, task: Task) -> Mapping[str, Any]:
    """The course of a training and the facts of its data, for metrics.json and the model card.

    Args:
        state: at the end of the training.
        task: that the model was trained for.
    """
    return {
        "best_validation": state.best,
        "best_step": state.best_step,
        "steps": state.step,
        "skipped_steps": state.skipped,
        "isolated_points": state.isolated,
        "race": state.race,
        "history": state.history,
        "data": facts(task),
    }
