"""WeatherBench: ERA5 on a global grid of 5.625°, one file for each variable and year.

The paper's weather, by its protocol: windows of a day, 12 hours in and 12 out, that do not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.field import Dataset, Field, time_label
from stonet.data.geometry import Points
from stonet.data.splits import every_second
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.errors import DataError
from stonet.io.read import read_with

YEARS = range(2010, 2019)
PAST = HORIZON = 12
STRIDE = 24
ROWS, COLUMNS = 32, 64
UNSEEN, SEED = 512, 2022
HOUR = 3_600_000_000_000


def make_card(
    name: str, title: str, channels: str, variables: int, folders: tuple[str, ...]
) -> Card:
    """The card of one of the four; they differ in their variable only."""
    files = tuple(File(file_name(folder, year)) for folder in folders for year in YEARS)
    archives = " and ".join(f"`{folder}_5.625deg.zip`" for folder in folders)
    return Card(
        name=name,
        title=f"{title}, the whole Earth, 2010 to 2018",
        kind="reanalysis: a weather model held to observations, regridded by WeatherBench",
        source=f"WeatherBench 5.625°, from ERA5 (C3S); unpack {archives} there",
        page="https://mediatum.ub.tum.de/1524895",
        licence="Copernicus licence (ERA5): free use, with attribution to C3S / ECMWF; see the "
        "page for WeatherBench's own terms",
        channels=channels,
        shape=f"78864 x 2048 x {variables} (32 x 64 grid, row by row from the south)",
        step="1 h",
        period="2010 to 2018; the last day is left out, as in the paper's harness",
        split="3286 windows of a day, 12 h in and 12 h out, stride 24 h: 2300, 329 and 657; "
        "`inductive=True`: 16 x 32 points for training, 512 others unseen",
        notes=("One of the paper's data sets. It is not fetched: the archives have gigabytes.",),
        folder="weatherbench",
        files=files,
    )


def file_name(folder: str, year: int) -> str:
    """As WeatherBench calls its files."""
    return f"{folder}/{folder}_{year}_5.625deg.nc"


def open_weather(card: Card, channels: Mapping[str, str], inductive: bool) -> Dataset:
    """The data set.

    Args:
        card: which one.
        channels: our name of each of the files' variables.
        inductive: whether to train on every second row and column, 512 others being unseen.
    """
    field = read_with(obtain(card), ReadConfig(variables=tuple(channels)))
    _check_hourly(field, card)
    length = usable(len(field.times))
    if not length:
        raise DataError(f"'{card.name}' has {len(field.times)} hours; expected two days or more.")
    field = field.between(0, length)
    order = southern_first(field.points)
    unseen: tuple[int, ...] = ()
    if inductive:
        chosen, others = every_second(ROWS, COLUMNS, UNSEEN, SEED)
        order = order[np.concatenate([chosen, others])]
        unseen = tuple(range(len(chosen), len(order)))
    if not np.array_equal(order, np.arange(len(field.points))):
        field = field.take(order)
    names = tuple(channels[name] for name in field.channels)
    field = labelled(field, card, channels=names)
    return Dataset((field,), card.name, unseen, past=PAST, horizon=HORIZON, stride=STRIDE)


def usable(frames: int) -> int:
    """Frames in whole windows, counted as the paper's harness does: 78888 give 3286 of 24."""
    return max(0, (frames - PAST - HORIZON) // STRIDE) * STRIDE


def southern_first(points: Points) -> Int64[np.ndarray, " node"]:
    """Row by row from the south, each from longitude 0 eastward."""
    if len(points) != ROWS * COLUMNS:
        raise DataError(f"The grid has {len(points)} points; expected {ROWS} x {COLUMNS} (5.625°).")
    lat, lon = points.coordinates.T
    return np.lexsort((np.remainder(lon, 360.0), lat))


def _check_hourly(field: Field, card: Card) -> None:
    gaps = np.flatnonzero(np.diff(field.times) != HOUR)
    if len(gaps):
        last = time_label(int(field.times[gaps[0]]), True)
        raise DataError(
            f"'{card.name}': after {last} the next hour is missing ({len(gaps)} such places). "
            f"A file is incomplete; get it again from {card.page}."
        )
