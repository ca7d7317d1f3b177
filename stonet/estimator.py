"""STONet, the estimator: fit, predict, score, with the habits of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stonet.config import Config, load_config, make_config
from stonet.data.dates import Times
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Kind, Points
from stonet.data.splits import hold_out
from stonet.data.windows import split
from stonet.errors import UsageError
from stonet.evaluation.comparison import check_minutes, in_minutes
from stonet.evaluation.metrics import Record, find
from stonet.evaluation.scoring import check_same_kind, evaluate
from stonet.graph.neighbours import own_nodes
from stonet.inference.forecast import forecast
from stonet.io.read import read_with
from stonet.io.sites import parse_sites
from stonet.models.baselines.persistence import persistence
from stonet.system import distributed
from stonet.training.run_folder import RunFolder
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer, Watcher

Data = Field | Dataset | Any  # Any: whatever `stonet.read` reads
Places = Points | str | Path | Sequence[Any] | np.ndarray  # of files, or of pairs; or a pair


class STONet:
    """A forecaster of fields on scattered points.

    Example:
        >>> model = STONet(horizon="12h").fit(observations)
        >>> forecast = model.predict(observations, at=sites, times=["+90min", "+6h"])

    Args:
        horizon: how far ahead to learn: steps of the data, or a duration such as "12h".
        past: how far back to look (None: 12 steps, or a day where the data has a daily cycle).
        preset: "default", "paper" or "tiny".
        seed: of everything random (None: as in the settings, or 0).
        settings: "section.key=value" overrides, as on the command line.
    """

    def __init__(
        self,
        horizon: int | str | None = None,
        past: int | str | None = None,
        preset: str = "default",
        seed: int | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        self.horizon, self.past, self.preset, self.seed = horizon, past, preset, seed
        self.settings = settings
        config = load_config(preset, settings=settings).model_dump()
        config["data"] |= {k: v for k, v in (("horizon", horizon), ("past", past)) if v is not None}
        config["train"] |= {} if seed is None else {"seed": seed}
        self.config: Config = make_config(config)
        self._run: TrainedModel | None = None
        self.state: State | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as scikit-learn asks for them."""
        return {k: getattr(self, k) for k in ("horizon", "past", "preset", "seed", "settings")}

    def fit(
        self,
        data: Data,
        folder: str | Path | None = None,
        resume: bool = False,
        watch: Watcher = lambda progress: None,
        minutes: float | None = None,
    ) -> STONet:
        """Learn from a Field, a Dataset or anything that `stonet.read` reads, anew each time.

        With a folder, save the run there; with minutes, take as many steps as fit into them.
        """
        if minutes is not None:  # what is refused must not wait for the timing
            check_minutes(minutes)
            if folder is not None and not resume:
                check_empty(RunFolder(folder))
        task = Task.of(as_dataset(data, self.config), self.config)
        task = task if minutes is None else in_minutes(task, minutes)
        self._run, self.state = fit_run(task, folder, resume, watch)
        return self

    def predict(self, data: Data, at: Places | None = None, times: Times | None = None) -> Field:
        """The forecast after the data's last time; see `stonet.inference.forecast.forecast`.

        Args:
            data: observations, as for `fit`.
            at: Points, a CSV file of sites, pairs (lat, lon) or (x, y), or a list of these.
            times: leads such as "+90min" or dates.
        """
        field = as_dataset(data, reading_for(self.run)).episodes[-1]
        return forecast(self.run, field, as_points(at, field.points.kind), times)

    def score(self, data: Data, part: str = "test") -> float:
        """The skill over persistence at seen points, 1 - MAE / its MAE; NaN if that is zero."""
        run, channels = self.run, self.run.channels
        whole = as_dataset(data, reading_for(run, data))
        reference = persistence(run.config, run.time_spec, len(channels), run.nodes)
        pair = {"persistence": reference, self.config.model: run.model}
        seen = whole.take(whole.seen) if whole.unseen else whole
        records = evaluate(run, scored_task(run, seen), part, pair)
        channel = channels[0] if len(channels) == 1 else "all"
        chosen = {"points": "seen", "channel": channel, "lead": "all", "metric": "mae"}
        mine, theirs = (
            find(records, model=name, **chosen) for name in (self.config.model, "persistence")
        )
        return 1.0 - mine / theirs if theirs else math.nan

    def records(self, data: Data, part: str = "test") -> list[Record]:
        """Every score, of the model and of its references, as tidy records."""
        whole = as_dataset(data, reading_for(self.run, data))
        return evaluate(self.run, scored_task(self.run, whole), part)

    @property
    def run(self) -> TrainedModel:
        """The trained model with all it needs."""
        if self._run is None:
            raise UsageError(
                "This STONet is not trained yet. Call fit(data), or STONet.load(folder)."
            )
        return self._run

    @staticmethod
    def load(folder: str | Path) -> STONet:
        """The estimator of a run folder, trained; its `config` is the run's."""
        run = TrainedModel.load(folder)
        data, seed = run.config.data, run.config.train.seed
        estimator = STONet(data.horizon, data.past, seed=seed)
        estimator.config, estimator._run = run.config, run
        return estimator


def as_dataset(data: Data, config: Config) -> Dataset:
    """A single Field is a data set of one episode; anything else is read."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Field):
        return Dataset((data,))
    name = str(data) if isinstance(data, (str, Path)) else "data"
    return Dataset((read_with(data, config.read),), name)


def reading_for(run: TrainedModel, data: Data = None) -> Config:
    """How files are read for a trained run: as for training, of any time, its variables only.

    To be scored, what it was trained on is cut as it was then.
    """
    if isinstance(data, (str, Path)) and str(data) == run.dataset:
        return run.config
    changed = {"start": None, "stop": None, "variables": run.channels}
    return run.config.model_copy(update={"read": run.config.read.model_copy(update=changed)})


def as_points(at: Places | None, kind: Kind) -> Points | None:
    """Where to ask, from whatever says so."""
    if at is None or isinstance(at, Points):
        return at
    entries: list[Any] = [at] if isinstance(at, (str, Path)) else list(at)
    if entries and all(isinstance(e, (int, float, np.number)) for e in entries):
        entries = [entries]  # a lone pair
    return parse_sites([str(e) if isinstance(e, (str, Path)) else _pair(e) for e in entries], kind)


def _pair(place: Any) -> str:
    """As one would type it."""
    try:
        first, second = (float(number) for number in place)
    except (TypeError, ValueError):
        raise UsageError(
            f"{place!r} is no place; give pairs (lat, lon) or (x, y), Points or a CSV of sites."
        ) from None
    return f"{first!r},{second!r}"


def fit_run(
    task: Task, folder: str | Path | None, resume: bool, watch: Watcher, replace_run: bool = False
) -> tuple[TrainedModel, State]:
    """Train for a task; publish the run in its folder as a whole."""
    run = TrainedModel.untrained(task)
    trainer = Trainer(run, task)  # refuses what cannot be trained before a folder is made
    if folder is None or not distributed.is_first():
        return run, trainer.fit(None, resume, watch)
    place = RunFolder(folder)
    with place.lock():
        if not (resume or replace_run):
            check_empty(place)
        state = trainer.fit(place, resume, watch)
        place.publish(run.files(summary(state)))
    return run, state


def check_empty(place: RunFolder) -> None:
    """Refuse a folder that holds a run."""
    if place.files or any(True for _ in place.states()):
        raise UsageError(
            f"'{place.path}' holds a run already, finished or interrupted. Choose another folder, "
            "or go on where it stopped with --resume (in Python: resume=True)."
        )


def summary(state: State) -> Mapping[str, Any]:
    """How training went, for metrics.json."""
    return {
        "best_validation": state.best,
        "best_step": state.best_step,
        "steps": state.step,
        "skipped_steps": state.skipped,
        "isolated_points": state.isolated,
        "history": state.history,
    }


def held_out(run: TrainedModel, dataset: Dataset) -> Dataset:
    """Unseen is what the run was not trained on; of wholly other points, the share it held out.

    A run that held nothing out leaves the data set's own choice.
    """
    share = run.config.data.unseen
    if not share or dataset.points.kind != run.nodes.kind:
        return hold_out(dataset, share)
    known = own_nodes(dataset.points, run.nodes) < len(run.nodes)
    if not known.any():
        return hold_out(dataset, share)
    return replace(dataset, unseen=tuple(np.flatnonzero(~known).tolist()))


def scored_task(run: TrainedModel, dataset: Dataset) -> Task:
    """The data set cut and scaled as the run was trained, for scoring."""
    check_same_kind(run, dataset)
    dataset, data = held_out(run, dataset), run.config.data
    parts = split(dataset, run.time_spec, data.split, data.stride or 1)
    return Task(dataset, run.config, run.time_spec, run.scaler, parts)
