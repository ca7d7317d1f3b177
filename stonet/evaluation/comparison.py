"""Models side by side: the same windows, scaler, loss, seeds and budget; one table.

A budget is a number of passes over the training windows, or of minutes. Minutes become steps by
timing a few of them first; what was found is kept in the cache, so that the same comparison on the
same machine takes the same steps again and gives the same bits.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from stonet._version import __version__
from stonet.config import Config, make_config
from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.evaluation.metrics import Record
from stonet.evaluation.scoring import evaluate
from stonet.system import distributed
from stonet.system.atomic import replacing
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.system.resources import peak_mb, reset_peak
from stonet.system.spill import cache_folder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer

PROBE = 8  # steps that are timed
FEWEST, JUDGED = 2, 20  # times in a budget of minutes that the validation error is looked at
JUDGING = 0.2  # share of the budget at most that this may take
SPARE = 0.05  # of the steps, that may be left over by as many looks as there may be
SCHOOLING = 0.85  # share at most, of what the closed forms leave, for the expert's schooling
EXPERTS = 4  # at most, if nobody says how many
TAUGHT, LONGER = 60, 360  # of its steps that are timed: what lies between tells a step's time


@dataclass(frozen=True)
class Budget:
    """How long every model may train: passes over the data, or minutes of wall time.

    With `steps`, an epoch has so many of them, as was found for the minutes of an earlier training;
    so it is with `schooling` and `experts`.
    """

    epochs: int | None = None
    minutes: float | None = None
    steps: int | None = None
    pretraining_steps: int | None = None  # None: what the configuration says
    residual_members: int | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.minutes is None):
            raise UsageError("Give either a budget in minutes or a number of epochs.")

    def __str__(self) -> str:
        if self.minutes is not None:
            return f"{self.minutes:g} min of wall time"
        return f"{self.epochs} epochs" + (f" of {self.steps} steps" if self.steps else "")


@dataclass(frozen=True)
class Row:
    """One training: what it cost. Its scores are in the records."""

    model: str
    seed: int
    parameters: int
    steps: int
    seconds: float  # of the training, closed forms and validation included
    seconds_per_epoch: float | None  # one pass over the training windows; None: no step was taken
    peak_mb: float  # memory of the whole process at its highest
    best_validation: float
    inductive: bool
    epochs: int  # with `per_epoch`, the budget that repeats this training to the step
    per_epoch: int | None  # None: one pass over the training windows
    pretraining_steps: int  # steps of an expert's pretraining_steps, for models that have one
    residual_members: int | None = None  # how many there are; None: one

    @property
    def repeated(self) -> Budget:
        """The budget with which the same steps are taken again, whatever the machine."""
        lengths = {
            "epochs": self.epochs,
            "steps": self.per_epoch,
            "pretraining_steps": self.pretraining_steps,
        }
        return Budget(**lengths, residual_members=self.residual_members)


@dataclass(frozen=True)
class Trained:
    """A model that has used up its budget, and what it cost."""

    run: TrainedModel
    task: Task
    row: Row


@dataclass(frozen=True)
class Comparison:
    """Everything that was found, and what could not be run and why."""

    rows: list[Row]
    records: list[Record]
    skipped: dict[str, str]
    budget: str

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "budget": self.budget,
            "rows": [asdict(row) for row in self.rows],
            "records": self.records,
            "skipped": self.skipped,
        }


def compare(
    dataset: Dataset,
    config: Config,
    models: Sequence[str],
    budget: Budget,
    seeds: Sequence[int] = (0,),
    watch: ProgressCallback = ignore_progress,
) -> Comparison:
    """Train every model with every seed, and score all of them on the test part."""
    rows: list[Row] = []
    records: list[Record] = []
    skipped: dict[str, str] = {}
    cells = [(model, seed) for model in models for seed in seeds]
    for number, (model, seed) in enumerate(cells):
        watch(number, len(cells), f"{model}, seed {seed}")
        if model in skipped:
            continue
        try:
            row, scores = train_one(dataset, _with(config, model, seed), budget)
        except UsageError as error:  # this model cannot be asked for that; the others can
            skipped[model] = str(error)
            continue
        rows.append(row)
        records += scores
    watch(len(cells), len(cells), "done")
    if not rows:
        raise UsageError(f"No model could be run: {'; '.join(skipped.values())}")
    return Comparison(rows, records, skipped, str(budget))


def train_one(dataset: Dataset, config: Config, budget: Budget) -> tuple[Row, list[Record]]:
    """One cell of the comparison."""
    found = train(dataset, config, budget)
    return found.row, evaluate(found.run, found.task, models={config.model: found.run.model})


def train(dataset: Dataset, config: Config, budget: Budget) -> Trained:
    """A model of this kind on these data, trained for so long; its best weights."""
    task = Task.of(dataset, config)
    if budget.minutes is not None:
        task = Task.of(dataset, _for_minutes(task, budget.minutes))
    elif budget.epochs is not None:
        limits = budget.epochs, budget.steps, budget.pretraining_steps, budget.residual_members
        task = Task.of(dataset, _trained(config, *limits))
    reset_peak()
    run = TrainedModel.untrained(task)
    trainer, clock = Trainer(run, task), Stopwatch()
    state = trainer.fit(watch=clock)
    whole, parameters = trainer.loader.whole, sum(p.numel() for p in run.model.parameters())
    row = Row(
        model=config.model,
        seed=config.train.seed,
        parameters=parameters,
        steps=state.step,
        seconds=clock.elapsed,
        seconds_per_epoch=clock.per_step * whole if clock.steps or not parameters else None,
        peak_mb=peak_mb(),
        best_validation=state.best,
        inductive=run.model.inductive,
        epochs=task.config.train.epochs,
        per_epoch=task.config.train.steps,
        pretraining_steps=task.config.pretraining.steps,
        residual_members=task.config.network.residual_members,
    )
    return Trained(run, task, row)


def in_minutes(task: Task, minutes: float) -> Task:
    """The task with as many steps as fit; a few of them are timed first, once on this machine."""
    check_minutes(minutes)
    return Task.of(task.dataset, _for_minutes(task, minutes))


def check_minutes(minutes: float) -> None:
    """Refuse what is no length of a training, or not for all of its processes."""
    if not 0 < minutes < math.inf:
        raise UsageError(f"A training of {minutes:g} minutes; expected a number above 0.")
    if distributed.size() > 1:
        raise UsageError(
            "A training in minutes is for one process: each would count other steps. "
            "Set train.epochs, train.steps and pretraining.steps instead."
        )


class Stopwatch:
    """Follows a training: how long a step takes, and a look at the validation windows."""

    def __init__(self) -> None:
        self.started = self.last = time.perf_counter()
        self.steps: list[float] = []
        self.judged: list[float] = []

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        (self.steps if progress.validation is None else self.judged).append(now - self.last)
        self.last = now

    @property
    def elapsed(self) -> float:
        return self.last - self.started

    @property
    def per_step(self) -> float:
        return float(np.median(self.steps)) if self.steps else 0.0


def _for_minutes(task: Task, minutes: float) -> Config:
    """The configuration with so many steps as fit into the minutes; remembered in the cache."""
    note = cache_folder() / "compare" / f"{_fingerprint(task, minutes)}.json"
    if note.is_file():
        found = json.loads(note.read_text())
        return _trained(task.config, **found)
    trainer, clock = _probe(task)
    if not clock.steps:  # nothing to train
        return _trained(task.config, epochs=0)
    seconds = 60 * minutes - clock.judged[0]  # the first look held the closed forms
    least = FEWEST * (clock.judged[-1] + clock.per_step)
    lessons = _schooling(trainer, task.config, seconds, least)
    if (
        lessons.residual_members != task.config.network.residual_members
        and (lessons.residual_members or 1) > 1
    ):
        _, clock = _probe(
            task, lessons.residual_members
        )  # they take their time in steps and looks as well
    pace = clock.judged[-1], clock.per_step
    epochs, each = _epochs(seconds - lessons.seconds, *pace, trainer.loader.whole)
    if not epochs and not (lessons.steps and lessons.residual_members):
        epochs = FEWEST  # has nothing else to learn by
    found = {"epochs": epochs, "steps": each}
    found |= {"pretraining_steps": lessons.steps, "residual_members": lessons.residual_members}
    note.parent.mkdir(parents=True, exist_ok=True)
    with replacing(note) as path:  # two processes may find it at once
        path.write_text(json.dumps(found))
    return _trained(task.config, **found)


def _probe(task: Task, residual_members: int | None = None) -> tuple[Trainer, Stopwatch]:
    """A few steps, timed."""
    clock = Stopwatch()
    few = Task.of(task.dataset, _trained(task.config, 1, PROBE, TAUGHT, residual_members))
    trainer = Trainer(TrainedModel.untrained(few), few)
    trainer.fit(watch=clock)
    return trainer, clock


def _epochs(seconds: float, look: float, step: float, whole: int) -> tuple[int, int]:
    """How many epochs of how many steps fit, a look after each; none if not the fewest do."""
    most = int(min(max(JUDGING * seconds / look, FEWEST), JUDGED))
    steps = int((seconds - most * look) / step)
    if steps < most:  # they are slow, and better than a look after each
        most = max(steps, FEWEST)
        steps = int((seconds - most * look) / step)
    if steps < FEWEST:
        return 0, 1
    looks = max(range(FEWEST, most + 1), key=lambda n: (steps % n <= SPARE * steps, n))
    each = min(whole, steps // looks)
    return min(steps // each, max(1, int(seconds / (each * step + look)))), each


class Lessons(NamedTuple):
    """The schooling that a budget allows."""

    steps: int  # of each expert
    residual_members: int | None  # None: there are none
    seconds: float  # for those steps that the first look has not held


def _schooling(trainer: Trainer, config: Config, seconds: float, least: float) -> Lessons:
    """As many steps as the seconds allow; if that is all one can learn, further experts.

    They leave a share to the network, or nothing if that is less than it must have at least.
    """
    most, wanted = config.pretraining.steps, config.network.residual_members
    taken: list[tuple[int, float, float]] = []
    for steps in (TAUGHT, LONGER):
        begun = time.perf_counter()
        school = trainer.school(steps)
        if school is None:
            return Lessons(most, None, 0.0)
        read = time.perf_counter()
        school.fit(trainer.validation)
        taken.append((school.steps, read - begun, time.perf_counter() - read))
        most = min(most, school.limit)
    (few, *before), (many, *after) = taken
    reading, teaching = (
        max(b - a, 1e-9) / max(many - few, 1) for a, b in zip(before, after, strict=True)
    )
    share = SCHOOLING if (1 - SCHOOLING) * seconds > least else 1.0
    allowed = max(share * seconds, 0.0)
    more = min(most - TAUGHT, int(allowed / (reading + teaching)))
    taking = max(more, 0) * (reading + teaching)
    if wanted is None and 0 < most == TAUGHT + more:
        looks = max(before[1] - few * teaching, 0.0)  # of each at the validation rows
        each = most * teaching + looks
        others = min(int((allowed - taking) / each), EXPERTS - 1)
        return Lessons(TAUGHT + more, 1 + others, taking + others * each)
    return Lessons(TAUGHT + more, wanted or 1, taking)


def _fingerprint(task: Task, minutes: float) -> str:
    """What decides how many steps fit: model, version, data, budget, threads; not the seed."""
    config = task.config.model_dump()
    config["train"].pop("seed")
    windows = task.windows("train", task.stride)
    shape = [len(task.nodes), len(windows), asdict(windows.scaler), asdict(task.time_spec)]
    told = json.dumps(
        [__version__, config, shape, minutes, torch.get_num_threads()], sort_keys=True
    )
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def _trained(
    config: Config,
    epochs: int,
    steps: int | None = None,
    pretraining_steps: int | None = None,
    residual_members: int | None = None,
) -> Config:
    """The same for so long, judged by the best validation error on the way, never cut short."""
    few = config.train.warmup if steps is None else steps * epochs // 3  # too few to warm up long
    update = {"epochs": epochs, "steps": steps, "patience": max(epochs, 1)}
    update["warmup"] = min(config.train.warmup, few)
    sections: dict[str, Any] = {"train": config.train.model_copy(update=update)}
    if pretraining_steps is not None:
        sections["pretraining"] = config.pretraining.model_copy(update={"steps": pretraining_steps})
    if residual_members is not None:
        changed = {"residual_members": residual_members}
        sections["network"] = config.network.model_copy(update=changed)
    return config.model_copy(update=sections)


def _with(config: Config, model: str, seed: int) -> Config:
    values = config.model_dump()
    values["model"], values["train"]["seed"] = model, seed
    return make_config(values)


def summary(comparison: Comparison, points: str = "seen") -> list[dict[str, Any]]:
    """One line for each model, best first: means and spreads over the seeds."""
    lines = []
    channel = _overall(comparison.records)
    for model in dict.fromkeys(row.model for row in comparison.rows):
        rows = [row for row in comparison.rows if row.model == model]
        line: dict[str, Any] = {"model": model, "points": points, "seeds": len(rows)}
        for metric in ("mae", "rmse", "mape", "bias"):
            values = [
                r["value"]
                for r in comparison.records
                if (r["model"], r["points"], r["channel"], r["lead"], r["metric"])
                == (model, points, channel, "all", metric)
                and r["value"] is not None
            ]
            line[metric] = float(np.mean(values)) if values else None
            line[f"{metric}_std"] = float(np.std(values)) if len(values) > 1 else None
        line["parameters"] = rows[0].parameters
        line["steps"] = rows[0].steps
        for cost in ("seconds", "seconds_per_epoch", "peak_mb"):
            told = [value for row in rows if (value := getattr(row, cost)) is not None]
            line[cost] = float(np.mean(told)) if told else None
        lines.append(line)
    reference = next((line["mae"] for line in lines if line["model"] == "persistence"), None)
    for line in lines:
        known = reference and line["mae"] is not None
        line["skill"] = 1 - line["mae"] / reference if known else None
    return sorted(lines, key=lambda line: math.inf if line["mae"] is None else line["mae"])


def _overall(records: list[Record]) -> str:
    channels = dict.fromkeys(str(r["channel"]) for r in records)
    return "all" if "all" in channels else next(iter(channels))
