"""The data sets by name: each with a card that says what it is, and a function that opens it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets import (
    cloud,
    era5_bhutan,
    era5_uk,
    humidity,
    noaa_daily,
    pv_rhode_island,
    solar,
    temperature,
    wave,
    wind,
)
from stonet.datasets.card import Card
from stonet.datasets.download import Found, Watch, how_to_get, look_up, obtain
from stonet.errors import unknown_name
from stonet.io.read import narrow, read_with


@dataclass(frozen=True)
class Entry:
    """A data set: what it is, and how it is opened."""

    card: Card
    open: Callable[..., Dataset]
    find: Callable[[], Found] | None = None  # where its files are; None: as the card lists them


DATASETS: dict[str, Entry] = {
    "wave": Entry(wave.CARD, wave.wave),
    "solar": Entry(solar.CARD, solar.solar, solar.find),
    "temperature": Entry(temperature.CARD, temperature.temperature),
    "humidity": Entry(humidity.CARD, humidity.humidity),
    "cloud": Entry(cloud.CARD, cloud.cloud),
    "wind": Entry(wind.CARD, wind.wind),
    "era5-uk": Entry(era5_uk.CARD, era5_uk.era5_uk),
    "era5-bhutan": Entry(era5_bhutan.CARD, era5_bhutan.era5_bhutan),
    "pv-rhode-island": Entry(pv_rhode_island.CARD, pv_rhode_island.pv_rhode_island),
    "noaa-daily": Entry(noaa_daily.CARD, noaa_daily.noaa_daily),
}


def open_dataset(name: str, **options: Any) -> Dataset:
    """The data set of this name; `options` are those of its own function.

    Example:
        >>> open_dataset("wave").points.kind
        'plane'
        >>> open_dataset("era5-bhutan", variables="r2m")  # doctest: +SKIP
    """
    opening = _entry(name).open
    known = inspect.signature(opening).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of data set '{name}':", option, known)
    return opening(**options)


def open_any(data: str, config: ReadConfig, inductive: bool = False) -> Dataset:
    """A data set by its name, or a file, folder or pattern; narrowed to what is asked for.

    `inductive` asks for the form with unseen points where a data set has two.
    """
    if data in DATASETS:
        offered = inspect.signature(DATASETS[data].open).parameters
        options: dict[str, Any] = (
            {"inductive": True} if inductive and "inductive" in offered else {}
        )
        if config.variables and "variables" in offered:
            options["variables"] = config.variables  # spares reading the others
        return narrow(open_dataset(data, **options), config)
    check_known(data)
    return Dataset((read_with(data, config),), name=data)


def check_known(data: str, others: Iterable[str] = ()) -> None:
    """Refuse what is neither a data set's name (or one of some others) nor looks like a file."""
    looks_like_a_name = "/" not in data and "*" not in data and Path(data).suffix == ""
    if data not in DATASETS and looks_like_a_name and not Path(data).exists():
        raise unknown_name("file or data set", data, [*others, *DATASETS])


def cards() -> list[Card]:
    """What data sets there are."""
    return [entry.card for entry in DATASETS.values()]


def find(name: str) -> Found:
    """The data set's files on this machine, and those that are missing."""
    entry = _entry(name)
    return entry.find() if entry.find else look_up(entry.card)


def fetch(name: str, watch: Watch | None = None) -> list[Path]:
    """Bring the data set's files here, and check them; an error says what must be done by hand."""
    entry = _entry(name)
    if entry.find is None:
        return obtain(entry.card, watch=watch)
    found = entry.find()
    if found.missing:
        raise how_to_get(entry.card, found.missing)
    return found.found


def _entry(name: str) -> Entry:
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return DATASETS[name]
