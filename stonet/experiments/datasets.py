"""The tasks: which data stand for which of the paper's six, and how they are opened."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets import DATASETS, check_known, find, open_any, open_dataset
from stonet.io.read import narrow

CHUNK = 512  # frames that are hashed at a time


@dataclass(frozen=True)
class Task:
    """Data under a name of their own."""

    dataset: str  # as `stonet.datasets` knows it
    settings: tuple[str, ...] = ()  # of the section `read`
    paper: str | None = None  # the paper's data set of the same kind
    title: str = ""
    unit: str = ""  # in which its errors are shown
    per_unit: float = 1.0  # of the data's own unit
    options: tuple[tuple[str, int], ...] = ()  # of the data set's own function


SHORT = "wave-short"  # to see that things run; no task of the paper's
TASKS = {
    "wave": Task("wave", (), "Wave", "Wave, simulated", "1e-3", 1e-3),
    SHORT: Task("wave", title="Wave, a few", options=(("sequences", 12), ("frames", 60))),
    "solar-pv": Task(
        "pv-rhode-island", (), "Solar", "PV power, Rhode Island", "% of capacity", 1e-2
    ),
    "temperature-uk": Task("era5-uk", (), "Temperature", "Temperature, UK", "K"),
    "humidity-bhutan": Task(
        "era5-bhutan", ("read.variables=r2m",), "Humidity", "Relative humidity, Bhutan", "%"
    ),
    "radiation-bhutan": Task(
        "era5-bhutan",
        ("read.variables=ssrd",),
        "Cloud",
        "Solar radiation, Bhutan (stand-in for cloud cover)",
        "W/m²",
        3600.0,
    ),
    "wind-bhutan": Task(
        "era5-bhutan", ("read.variables=u10,v10",), "Wind", "Wind, Bhutan (two components)", "m/s"
    ),
}


PUBLISHED = tuple(name for name in TASKS if name != SHORT)


def task_of(name: str) -> Task:
    """What a name stands for: one of ours, else a data set or a file by itself."""
    return TASKS.get(name) or Task(name, (), None, name)


def check_task(name: str) -> None:
    """Refuse a name that nothing can be opened by."""
    if name not in TASKS:
        check_known(name, TASKS)


def open_task(name: str, config: ReadConfig, inductive: bool = False) -> Dataset:
    """The data of a task; points that the data set holds out are only there for `inductive`."""
    task, whole = task_of(name), config.model_copy(update={"points": None})
    wanted = config if inductive else whole
    if task.options:
        dataset = narrow(open_dataset(task.dataset, **dict(task.options)), wanted)
    else:
        dataset = open_any(task.dataset, wanted, inductive)
    if inductive:
        return dataset
    seen = dataset.take(dataset.seen)
    few = config.points is not None and config.points < len(seen.points)
    return narrow(seen, ReadConfig(points=config.points)) if few else seen


def at_hand(name: str) -> bool:
    """Whether a task's data are on this machine, so that nothing need be fetched."""
    dataset = task_of(name).dataset
    return dataset not in DATASETS or not find(dataset).missing


def data_sha256(dataset: Dataset) -> str:
    """Of everything that training and scoring can see of the data."""
    first = dataset.episodes[0]
    told = [first.quantity, first.calendar, first.points.kind, dataset.unseen]
    told += [dataset.past, dataset.horizon, dataset.stride]
    digest = hashlib.sha256(repr(told).encode())
    digest.update(first.points.coordinates.tobytes())
    for field in dataset.episodes:
        digest.update(field.times.tobytes())
        for start in range(0, len(field.times), CHUNK):
            part = slice(start, start + CHUNK)
            digest.update(field._filled(part).tobytes())
            digest.update(np.packbits(field.observed[part]).tobytes())
    return digest.hexdigest()
