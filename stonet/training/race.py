"""Race: candidate settings train for a short time each, and validation chooses among them.

What is best differs between data: how much to regularise, at which rate to learn, what to start
from. A model names a few candidates (`Forecaster.candidates`). They share a part of the budget
(`train.race`) equally; the best has the rest. Some settings follow from the data without a race
(`Forecaster.suggested`). What a user has set is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stonet.config import Config, Section
from stonet.errors import DivergedError
from stonet.system import distributed
from stonet.system.devices import backend_for
from stonet.system.progress import report_progress
from stonet.training.run_folder import RunFolder, unpack
from stonet.training.state import Weights, newest_valid
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

MIN_STEPS = 10  # of a candidate, where steps are counted: fewer decide nothing
Candidate = Mapping[str, Any]  # "section.key" -> value


@dataclass(frozen=True)
class Entry:
    """One candidate of a race.

    Args:
        settings: that it was trained with.
        validation: its lowest validation error; None: its training diverged.
        steps: that it took.
    """

    settings: Candidate
    validation: float | None
    steps: int


@dataclass(frozen=True)
class Race:
    """A race that was run; what it holds but for the weights is saved with the training.

    Args:
        chosen: settings of the best candidate.
        entries: none: the first candidate was taken without a race.
        steps: of all candidates.
        spent: seconds of the clock in `schedule.py`.
        weights: with which training starts.
    """

    chosen: Candidate
    entries: tuple[Entry, ...] = ()
    steps: int = 0
    spent: float = 0.0
    weights: Weights | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The race as JSON types."""
        facts = {"steps": self.steps, "spent": self.spent}
        entries = [asdict(entry) for entry in self.entries]
        return {"chosen": dict(self.chosen), "candidates": entries, **facts}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Race:
        """The race of which `to_json` gave the content, without weights.

        Args:
            content: as parsed.
        """
        entries = tuple(Entry(**entry) for entry in content["candidates"])
        return Race(content["chosen"], entries, content["steps"], content["spent"])


def trainer_after_race(
    task: Task, folder: RunFolder | None = None, resume: bool = False
) -> Trainer:
    """The trainer of a task with the settings that a race has chosen.

    Args:
        task: data and settings.
        folder: of the first process, if there is one.
        resume: take the result of the race from the newest state in the folder, if it has one.
    """
    trainer = Trainer(TrainedModel.untrained(task), task)
    with distributed.process_group(backend_for(trainer.device)):
        result = saved_race(trainer, folder) if resume else None
        result = result or race(trainer)
    if result is None:
        return trainer
    chosen = with_settings(task, result.chosen)
    return Trainer(TrainedModel.untrained(chosen), chosen, result)


def race(trainer: Trainer) -> Race | None:
    """Train every candidate for its share of the budget.

    Args:
        trainer: of the whole training; it is not changed.

    Returns:
        The result; None for a model without candidates.

    Raises:
        DivergedError: if every candidate diverges.
    """
    task, started, failure = trainer.task, trainer.clock(), None
    candidates = candidates_of(trainer)
    suggested = trainer.model.suggested(trainer.windows, trainer.nodes)
    candidates = _with_suggestion(candidates, suggested, settings_given(task.config))
    if not candidates:
        return None
    limits = _share_of_budget(trainer, len(candidates))
    if len(candidates) == 1 or limits is None:
        return Race(candidates[0])
    runs: list[Trainer] = []
    entries: list[Entry] = []
    for number, candidate in enumerate(candidates):
        report_progress(number, len(candidates), "race")
        short = with_settings(task, {**candidate, **limits})
        run = Trainer(TrainedModel.untrained(short), short)
        run.donors = [other.model for other in runs]
        try:
            best: float | None = run.fit().best
        except DivergedError as error:
            best, failure = None, error
        runs.append(run)
        entries.append(Entry(candidate, best, run.state.step))
    errors = [entry.validation for entry in entries]
    finite = [error for error in errors if error is not None]
    if failure is not None and not finite:
        raise failure
    winner = errors.index(min(finite))
    timed = trainer.schedule.seconds is not None
    seconds = distributed.of_first(trainer.clock() - started, trainer.device)
    return Race(
        candidates[winner],
        tuple(entries),
        sum(entry.steps for entry in entries),
        seconds if timed else 0.0,
        runs[winner].initial,  # with `best` it would go on instead of starting anew
    )


def saved_race(trainer: Trainer, folder: RunFolder | None) -> Race | None:
    """The race of a saved training, but for what has been set by the user since.

    Args:
        trainer: of the training that is resumed.
        folder: with the saved state; None: there is none.
    """
    data = newest_valid(folder, trainer.device)
    content = unpack(data, "The saved state")[1]["state"].get("race") if data else None
    if not content:
        return None
    saved, given = Race.from_json(content), settings_given(trainer.task.config)
    chosen = {key: value for key, value in saved.chosen.items() if key not in given}
    return replace(saved, chosen=chosen)


def candidates_of(trainer: Trainer) -> list[Candidate]:
    """The model's candidates without what the user has set, each once.

    Args:
        trainer: gives model and settings.
    """
    config, samples = trainer.task.config, len(trainer.windows) * len(trainer.nodes)
    given = settings_given(config)
    different: list[Candidate] = []
    for candidate in trainer.model.candidates(config, samples):
        free = {key: value for key, value in candidate.items() if key not in given}
        if free not in different:
            different.append(free)
    return different


def _with_suggestion(
    candidates: list[Candidate], suggested: Candidate, given: set[str]
) -> list[Candidate]:
    """The candidates with what the data suggest, unless they or the user set it otherwise."""
    free = {key: value for key, value in suggested.items() if key not in given}
    if not free:
        return candidates
    return [{**free, **candidate} for candidate in candidates or [{}]]


def settings_given(config: Config) -> set[str]:
    """The settings that were given explicitly, as "section.key".

    Args:
        config: of the run.
    """
    sections = ((name, getattr(config, name)) for name in config.model_fields_set)
    return {
        f"{name}.{key}"
        for name, section in sections
        if isinstance(section, Section)
        for key in section.model_fields_set
    }


def with_settings(task: Task, settings: Candidate) -> Task:
    """The task with other settings; none of them may decide how data are read or split.

    Args:
        task: prepared with its own settings.
        settings: "section.key" and new value.
    """
    config, changes = task.config, dict[str, dict[str, Any]]()
    for key, value in settings.items():
        section, name = key.split(".")
        changes.setdefault(section, {})[name] = value
    changed = {
        name: type(section).model_validate(section.model_dump(exclude_unset=True) | change)
        for name, change in changes.items()
        for section in (getattr(config, name),)
    }
    return replace(task, config=config.model_copy(update=changed))


def _share_of_budget(trainer: Trainer, candidates: int) -> Candidate | None:
    """The length of each candidate's training; None: there is no race."""
    config, schedule = trainer.config, trainer.schedule
    share = config.race / candidates
    if share == 0 or not trainer.optimisers:
        return None
    if config.minutes is not None:
        return {"train.minutes": share * config.minutes}
    steps = int(share * (schedule.steps or 0))
    if steps < MIN_STEPS:
        return None
    epochs = -(-steps // trainer.loader.steps_per_pass)
    return {"train.epochs": epochs, "train.steps": -(-steps // epochs), "train.patience": epochs}
