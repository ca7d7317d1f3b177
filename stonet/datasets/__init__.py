"""Data sets by name: each with a card that describes it and a function that opens it.

Input: a name and options. Output: a `Dataset`. Start reading at `card.py`; `download.py` locates,
fetches and verifies the files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets import (
    era5_bhutan,
    era5_uk,
    inmet_brazil,
    noaa_daily,
    peakweather,
    pv_rhode_island,
    solar,
    stations,
    wave,
    weatherbench,
)
from stonet.datasets.card import Card
from stonet.datasets.download import LocalFiles, find_local, missing_files, obtain
from stonet.errors import unknown_name
from stonet.io.read import narrow, original_variables, read_with
from stonet.system.progress import ProgressCallback, ignore_progress


@dataclass(frozen=True)
class Entry:
    """A data set: its card, and the function that opens it.

    Args:
        card: describes the data set.
        open: returns it, with the options that its card names.
        find: locates its files; None: those of the card.
    """

    card: Card
    open: Callable[..., Dataset]
    find: Callable[[], LocalFiles] | None = None


DATASETS: dict[str, Entry] = {
    "wave": Entry(wave.CARD, wave.wave),
    "stations": Entry(stations.CARD, stations.stations),
    "solar": Entry(solar.CARD, solar.solar, solar.find),
    "temperature": Entry(weatherbench.TEMPERATURE, weatherbench.temperature),
    "humidity": Entry(weatherbench.HUMIDITY, weatherbench.humidity),
    "cloud": Entry(weatherbench.CLOUD, weatherbench.cloud),
    "wind": Entry(weatherbench.WIND, weatherbench.wind),
    "era5-uk": Entry(era5_uk.CARD, era5_uk.era5_uk),
    "era5-bhutan": Entry(era5_bhutan.CARD, era5_bhutan.era5_bhutan),
    "pv-rhode-island": Entry(pv_rhode_island.CARD, pv_rhode_island.pv_rhode_island),
    "noaa-daily": Entry(noaa_daily.CARD, noaa_daily.noaa_daily),
    "peakweather": Entry(peakweather.CARD, peakweather.peakweather, peakweather.find),
    "inmet-brazil": Entry(inmet_brazil.CARD, inmet_brazil.inmet_brazil),
}


def open_dataset(name: str, **options: Any) -> Dataset:
    """Open a data set by its name; missing files are downloaded where that is possible.

    Args:
        name: one of `DATASETS`.
        **options: those of the data set's own function.

    Raises:
        UsageError: the name or an option is unknown.
        DataError: files are missing and cannot be downloaded; the message says where to get them.

    Example:
        >>> open_dataset("wave").points.kind
        'plane'
        >>> open_dataset("era5-bhutan", variables="r2m")  # doctest: +SKIP
    """
    opener = _entry(name).open
    available = inspect.signature(opener).parameters
    for option in options:
        if option not in available:
            raise unknown_name(f"option of data set '{name}':", option, available)
    return opener(**options)


def open_any(data: str, config: ReadConfig, inductive: bool = False) -> Dataset:
    """A data set by its name, or a file, folder or pattern; restricted to the selection.

    Args:
        data: a name or a path.
        config: what is selected, and how files are read.
        inductive: whether to open the variant with unseen points, if a data set has two.
    """
    if data in DATASETS:
        available = inspect.signature(DATASETS[data].open).parameters
        options: dict[str, Any] = {}
        if inductive and "inductive" in available:
            options["inductive"] = True
        if config.variables and "variables" in available:
            options["variables"] = original_variables(config)  # the others need not be read
        return narrow(open_dataset(data, **options), config)
    check_known(data)
    return Dataset((read_with(data, config),), name=data)


def check_known(data: str, others: Iterable[str] = ()) -> None:
    """Refuse what is neither a data set's name (or one of `others`) nor looks like a file.

    Args:
        data: as the user gave it.
        others: further names that are valid.
    """
    looks_like_a_name = "/" not in data and "*" not in data and Path(data).suffix == ""
    if data not in DATASETS and looks_like_a_name and not Path(data).exists():
        raise unknown_name("file or data set", data, [*others, *DATASETS])


def cards() -> list[Card]:
    """The cards of all data sets."""
    return [entry.card for entry in DATASETS.values()]


def find(name: str) -> LocalFiles:
    """The files of a data set on this machine, and those that are missing.

    Args:
        name: of a data set.
    """
    entry = _entry(name)
    return entry.find() if entry.find else find_local(entry.card)


def fetch(name: str, progress: ProgressCallback = ignore_progress) -> list[Path]:
    """Download the files of a data set and verify them; an error says what to do by hand.

    Args:
        name: of a data set.
        progress: called as bytes arrive.
    """
    entry = _entry(name)
    if entry.find is None:
        return obtain(entry.card, progress=progress)
    files = entry.find()
    if files.missing:
        raise missing_files(entry.card, files.missing)
    return files.present


def _entry(name: str) -> Entry:
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return DATASETS[name]
