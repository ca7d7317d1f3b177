"""WeatherBench: the paper's temperature, humidity, cloud and wind, from ERA5 on a grid of 5.625°.

One file for each variable and year. The paper's protocol: windows of a day that do not overlap, 12
hours of input and 12 hours of forecast.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.durations import UNITS
from stonet.data.field import Dataset, Field, time_label
from stonet.data.geometry import Points
from stonet.data.splits import every_second
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.errors import DataError
from stonet.io.read import read_with

YEARS = range(2010, 2019)
PAST = HORIZON = 12  # frames of an hour
STRIDE = 24  # frames between two windows
ROWS, COLUMNS = 32, 64  # of the grid
UNSEEN, SEED = 512, 2022  # unseen points, and the seed by which they are drawn
HOUR = UNITS["h"]


def _card(name: str, title: str, channels: str, variables: int, folders: tuple[str, ...]) -> Card:
    """The card of one of the four data sets, which differ in their variables only."""
    files = tuple(File(_file_name(folder, year)) for folder in folders for year in YEARS)
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


def _file_name(folder: str, year: int) -> str:
    return f"{folder}/{folder}_{year}_5.625deg.nc"


TEMPERATURE = _card("temperature", "Temperature at 2 m", "`t2m` (K)", 1, ("2m_temperature",))
HUMIDITY = _card(
    "humidity",
    "Relative humidity near the ground",
    "`r` (%) at 1000 hPa, the last of the file's 13 levels",
    1,
    ("relative_humidity",),
)
CLOUD = _card("cloud", "Total cloud cover", "`tcc` (0 to 1)", 1, ("total_cloud_cover",))
WIND = _card(
    "wind",
    "Wind at 10 m",
    "`u10`, `v10` (m s**-1)",
    2,
    ("10m_u_component_of_wind", "10m_v_component_of_wind"),
)


def temperature(inductive: bool = False) -> Dataset:
    """Temperature at 2 m on the global grid; `inductive` as in `_open`.

    Args:
        inductive: whether the paper's unseen points are held out.
    """
    return _open(TEMPERATURE, {"t2m": "t2m"}, inductive)


def humidity(inductive: bool = False) -> Dataset:
    """Relative humidity at 1000 hPa on the global grid; `inductive` as in `_open`.

    Args:
        inductive: whether the paper's unseen points are held out.
    """
    return _open(HUMIDITY, {"r_1000": "r"}, inductive)


def cloud(inductive: bool = False) -> Dataset:
    """Total cloud cover on the global grid; `inductive` as in `_open`.

    Args:
        inductive: whether the paper's unseen points are held out.
    """
    return _open(CLOUD, {"tcc": "tcc"}, inductive)


def wind(inductive: bool = False) -> Dataset:
    """Both components of the wind at 10 m on the global grid; `inductive` as in `_open`.

    Args:
        inductive: whether the paper's unseen points are held out.
    """
    return _open(WIND, {"u10": "u10", "v10": "v10"}, inductive)


def _open(card: Card, channels: Mapping[str, str], inductive: bool) -> Dataset:
    """Open one of the four data sets.

    Args:
        card: of the data set.
        channels: the name of the channel for each variable of the files.
        inductive: whether to train on every second row and column, with 512 others unseen.
    """
    field = read_with(obtain(card), ReadConfig(variables=tuple(channels)))
    _check_hourly(field, card)
    length = usable_frames(len(field.times))
    if not length:
        raise DataError(f"'{card.name}' has {len(field.times)} hours; expected two days or more.")
    field = field.between(0, length)
    order = south_to_north(field.points)
    unseen: tuple[int, ...] = ()
    if inductive:
        seen, others = every_second(ROWS, COLUMNS, UNSEEN, SEED)
        order = order[np.concatenate([seen, others])]
        unseen = tuple(range(len(seen), len(order)))
    if not np.array_equal(order, np.arange(len(field.points))):
        field = field.take(order)
    names = tuple(channels[name] for name in field.channels)
    field = labelled(field, card, channels=names)
    return Dataset((field,), card.name, unseen, past=PAST, horizon=HORIZON, stride=STRIDE)


def usable_frames(frames: int) -> int:
    """Number of frames in complete windows, counted as by the paper: 78888 give 3286 of 24.

    Args:
        frames: hours in the data.
    """
    return max(0, (frames - PAST - HORIZON) // STRIDE) * STRIDE


def south_to_north(points: Points) -> Int64[np.ndarray, " node"]:
    """Indices of the points row by row from the south, each from longitude 0 eastwards.

    Args:
        points: of the complete grid.
    """
    if len(points) != ROWS * COLUMNS:
        raise DataError(f"The grid has {len(points)} points; expected {ROWS} x {COLUMNS} (5.625°).")
    lat, lon = points.coordinates.T
    return np.lexsort((np.remainder(lon, 360.0), lat))


def _check_hourly(field: Field, card: Card) -> None:
    """Refuse a series with missing hours."""
    gaps = np.flatnonzero(np.diff(field.times) != HOUR)
    if len(gaps):
        last = time_label(int(field.times[gaps[0]]), True)
        raise DataError(
            f"'{card.name}': after {last} the next hour is missing ({len(gaps)} such places). "
            f"A file is incomplete; download it again from {card.page}."
        )
