"""Solar: the power of 137 photovoltaic plants in Alabama, every five minutes of 2006.

One table for each plant, in a folder or still in NREL's archive, from which nothing is unpacked.
Local time is Central Standard Time all year (no summer time: every day has 288 rows), so UTC is
six hours later.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.splits import at_random
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import Found, folders, how_to_get
from stonet.errors import DataError

PLANTS, UNSEEN, SEED = 137, 29, 2022
NAME = re.compile(
    r"Actual_(-?\d+(?:\.\d+)?)_(-?\d+(?:\.\d+)?)_2006_(UPV|DPV)_(\d+(?:\.\d+)?)MW_5_Min\.csv(?:\.gz)?"
)
HEADER = b"LocalTime,Power(MW)"
LARGEST = 2**24  # bytes of one plant's table; the real ones have 2.3 MB
MOST_MEMBERS = 10_000  # of an archive
FIVE_MINUTES, SIX_HOURS = 300 * 10**9, 6 * 3600 * 10**9
ARCHIVE = "al-pv-2006.zip"
PLACES = ("solar", "al-pv-2006")  # folders, under STONET_DATA or the cache

CARD = Card(
    name="solar",
    title="Power of 137 photovoltaic plants in Alabama, every five minutes of 2006",
    kind="modelled: NREL's synthetic plants from satellite irradiance, not metered",
    source="NREL, Solar Power Data for Integration Studies, Alabama, 2006, the 'Actual' tables",
    page="https://www.nrel.gov/grid/solar-power-data.html",
    licence="public (NREL, United States Department of Energy)",
    channels="`power` (MW)",
    shape="105120 x 137 x 1",
    step="5 min",
    period="2006, stored as UTC (local time is Central Standard Time, six hours behind)",
    split="by time, 70/10/20 %, 12 frames in and 12 out, stride 12; 108 points for training and "
    "29 unseen, drawn once",
    notes=(
        "One of the paper's data sets. The archive `al-pv-2006.zip` (or its tables, also as "
        "`.csv.gz`, in `solar/` or `al-pv-2006/`) is not fetched. Positions come from the file "
        "names. As in the paper the points lie on a plane: longitude and latitude in degrees, "
        "both shifted and scaled by one factor into the unit box; the true ones and the capacity "
        "are in `sites`. Three pairs of plants share their position and are kept. Zero at night, "
        "about half of all values.",
    ),
    files=(File(ARCHIVE),),
)


class Plant(NamedTuple):
    """A table of one plant, by what its name tells; the path is the archive's if it is in one."""

    lat: float
    lon: float
    kind: str
    capacity: float
    path: Path
    member: str

    @property
    def name(self) -> str:
        return f"{self.lat:g}_{self.lon:g}_{self.kind}_{self.capacity:g}MW"


def solar() -> Dataset:
    """All 137 plants; 29 of them are unseen."""
    plants = locate()
    if not plants:
        raise how_to_get(CARD, CARD.files)
    if len(plants) != PLANTS:
        raise DataError(
            f"'{plants[0].path}' gives {len(plants)} plants; Alabama has {PLANTS}. Put all of "
            f"{ARCHIVE} there and nothing else, from {CARD.page}."
        )
    unseen = tuple(at_random(PLANTS, UNSEEN, SEED).tolist())
    return Dataset((read_plants(plants),), CARD.name, unseen, past=12, horizon=12, stride=12)


def find() -> Found:
    """The tables that are here, or the archive that is missing."""
    plants = locate()
    paths = sorted({plant.path for plant in plants})
    return Found(paths, [] if len(plants) == PLANTS else list(CARD.files))


def locate() -> list[Plant]:
    """The plants of the first folder or archive that has any, from south to north."""
    for place in PLACES:
        for folder in folders(place):
            if folder.is_dir():
                plants = _named((path, path.name) for path in folder.iterdir())
                if plants:
                    return plants
            for path in (folder / ARCHIVE, folder.parent / ARCHIVE):
                if path.is_file():
                    return _named((path, member) for member in _members(path))
    return []


def _named(tables: Iterator[tuple[Path, str]]) -> list[Plant]:
    plants: dict[str, Plant] = {}
    for path, member in sorted(tables):
        match = NAME.fullmatch(member.rsplit("/", 1)[-1])
        if match:
            lat, lon, kind, capacity = match.groups()
            plant = Plant(float(lat), float(lon), kind, float(capacity), path, member)
            plants.setdefault(plant.name, plant)  # .csv before .csv.gz
    return sorted(plants.values())


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"'{path}' is no ZIP archive that can be read ({error}).") from None
    if len(members) > MOST_MEMBERS:
        raise DataError(f"'{path}' has {len(members)} members; NREL's has some hundreds.")
    return members


def read_plants(plants: list[Plant]) -> Field:
    """The plants' tables side by side; all of them have the same times."""
    texts, power = _table(plants[0])
    values = np.empty((len(texts), len(plants), 1), dtype=np.float32)
    values[:, 0, 0] = power
    for number, plant in enumerate(plants[1:], start=1):
        told, power = _table(plant)
        if not np.array_equal(told, texts):
            raise DataError(
                f"'{plant.member}' has {len(told)} rows and other times than "
                f"'{plants[0].member}' with {len(texts)}. All plants have the same; get the "
                "archive again."
            )
        values[:, number, 0] = power
    place = np.array([[plant.lon, plant.lat] for plant in plants])
    sites = {"lat": place[:, 1], "lon": place[:, 0]}
    sites["capacity"] = np.array([plant.capacity for plant in plants])
    points = Points(unit_box(place), "plane", tuple(plant.name for plant in plants))
    times = _utc(texts, plants[0].member)
    return labelled(Field(values, times, points, ("power",), units=("MW",), sites=sites), CARD)


def unit_box(places: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, "node 2"]:
    """Shifted and scaled into the unit box, by one factor: shapes stay as they are."""
    extent = np.ptp(places, axis=0).max()
    return (places - places.min(0)) / (extent if extent > 0 else 1.0)


def _table(plant: Plant) -> tuple[np.ndarray, Float32[np.ndarray, " time"]]:
    """Times as they are written, and power."""
    import pandas as pd

    name = plant.member
    try:
        if plant.path.suffix == ".zip":
            with zipfile.ZipFile(plant.path) as archive, archive.open(name) as stream:
                text = _bounded(stream, name)
        else:
            opened = gzip.open if plant.path.suffix == ".gz" else open
            with opened(plant.path, "rb") as stream:
                text = _bounded(stream, name)
        if text.split(b"\n", 1)[0].strip() != HEADER:
            raise ValueError(f"its first line is {text[:40]!r}, expected {HEADER.decode()}")
        table = pd.read_csv(io.BytesIO(text), dtype={"LocalTime": str, "Power(MW)": np.float32})
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise DataError(f"'{name}' in '{plant.path}' cannot be read: {error}.") from None
    return table["LocalTime"].to_numpy(dtype=object), table["Power(MW)"].to_numpy(np.float32)


def _bounded(stream: Any, name: str) -> bytes:
    text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise DataError(f"'{name}' has more than {LARGEST} bytes; a plant's table has 2.3 million.")
    return text


def _utc(texts: np.ndarray, name: str) -> Int64[np.ndarray, " time"]:
    import pandas as pd

    try:
        local = pd.to_datetime(pd.Series(texts), format="%m/%d/%y %H:%M").to_numpy("M8[ns]")
    except (ValueError, TypeError) as error:
        raise DataError(f"'{name}': a time cannot be read ({error}).") from None
    times = local.astype(np.int64) + SIX_HOURS
    if (np.diff(times) != FIVE_MINUTES).any():
        raise DataError(f"'{name}': rows are not five minutes apart throughout. Get it again.")
    return times
