"""Refit: train once more on training and validation part, with all that validation has chosen.

Kept are the settings of the race, the penalties of the linear forecast, the number of steps that
was best, and where reference forecasts take part. New are the weights, the scaler and the range.
The test part is used neither for choices nor for weights. Scores and calibration remain those of
the model before: its errors in the validation part are those of data it had not seen, and the refit
model has none. Its own are expected to be no larger, since it has seen more and newer data; widths
of intervals follow its recent errors as always (`stonet.calibration.online`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stonet.linear.fit import fit_linear
from stonet.linear.regression import LinearForecast, Settled
from stonet.system import distributed
from stonet.system.devices import backend_for
from stonet.training.choice import combine
from stonet.training.fit import summary
from stonet.training.references import references_of
from stonet.training.run_folder import RunFolder
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, StepCallback, Trainer


def refit_run(
    trained: TrainedModel,
    task: Task,
    state: State,
    folder: str | Path | None,
    watch: StepCallback = lambda progress: None,
) -> tuple[TrainedModel, Mapping[str, Any]]:
    """Refit a trained model, and publish it in its run folder.

    The folder holds the model before the refit until the new one is complete: an interrupted refit
    begins anew.

    Args:
        trained: by `fit_run`.
        task: what it was trained for.
        state: at the end of its training.
        folder: its run folder (None: the model stays in memory).
        watch: called after each step.

    Returns:
        the refit model, and what metrics.json holds.

    Example:
        >>> trained, state = fit_run(task, None, False, watch)
        >>> refit_run(trained, task, state, None)[0]
    """
    joined = replace(_as_chosen(trained, task, state.best_step), parts=task.parts).joined()
    settled = settled_by(task, trained)
    made = _refit(trained, joined, state, settled, watch)
    windows = {"training_windows": len(joined.windows("train", joined.stride))}
    metrics = {**summary(state, joined), "refit": {"steps": state.best_step, **windows}}
    if folder is not None and distributed.is_first():
        RunFolder(folder).publish(made.files(metrics))
    return made, metrics


def settled_by(task: Task, trained: TrainedModel) -> Settled | None:
    """The penalties that validation chooses for the linear forecast of a task.

    Args:
        task: with training and validation part.
        trained: gives the number of channels.

    Returns:
        None where nothing is known of the targets.
    """
    base = LinearForecast(task.time_spec, len(trained.channels))
    fit_linear(base, task.windows("train", task.stride), task.validation_windows, task.nodes)
    return base.settled


def _as_chosen(trained: TrainedModel, task: Task, steps: int) -> Task:
    """The task with the settings of the trained model, and its best number of steps."""
    length = {"minutes": None, "epochs": 1, "steps": max(steps, 1)}
    train = trained.config.train.model_copy(update=length)
    return replace(task, config=trained.config.model_copy(update={"train": train}))


def _refit(
    trained: TrainedModel,
    joined: Task,
    state: State,
    settled: Settled | None,
    watch: StepCallback,
) -> TrainedModel:
    """A new model trained on the joined parts, with the reference forecasts of the first one."""
    network = TrainedModel.untrained(joined)
    trainer = Trainer(network, joined)
    base = getattr(network.model, "base", None)
    if isinstance(base, LinearForecast) and base.kind == "ridge":
        base.settled = settled
    with distributed.process_group(backend_for(trainer.device)):
        trainer.prepare()
        with trainer.step_batches() as batches:
            for step in range(state.best_step if trainer.optimisers else 0):
                trainer.step(batches(step))
                done = (step + 1) / state.best_step
                watch(Progress(step + 1, state.best_step, done, trainer.loss, state.best))
    network.model.cpu().eval()
    network = replace(network, config=trained.config)
    if not trained.choices or not distributed.is_first():
        return network
    references = references_of(network, joined, settled=settled)
    horizon = trained.time_spec.horizon
    model = combine(network.model, references, trained.choices, trained.channels, horizon)
    return replace(network, model=model, choices=trained.choices)
