"""Solar: the power of 137 photovoltaic plants in Alabama, every five minutes of 2006.

One table for each plant, in a folder or in NREL's ZIP archive, which is read without unpacking it.
Local time is Central Standard Time all year (no daylight saving: every day has 288 rows), so UTC is
six hours later.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.splits import at_random
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import LocalFiles, folders, missing_files
from stonet.errors import DataError
from stonet.io.archive import member_names, read_bounded, read_member

NUM_PLANTS, NUM_UNSEEN, SEED = 137, 29, 2022
FILE_NAME = re.compile(
    r"Actual_(-?\d+(?:\.\d+)?)_(-?\d+(?:\.\d+)?)_2006_(UPV|DPV)_(\d+(?:\.\d+)?)MW_5_Min\.csv(?:\.gz)?"
)
HEADER = b"LocalTime,Power(MW)"
MAX_TABLE_BYTES = 2**24  # of one plant; the real ones have 2.3 MB
FIVE_MINUTES, SIX_HOURS = 300 * 10**9, 6 * 3600 * 10**9
ARCHIVE = "al-pv-2006.zip"
FOLDERS = ("solar", "al-pv-2006")  # below STONET_DATA or the cache

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
    """The table of one plant: what its name states, and the file or archive that holds it.

    Args:
        lat: latitude in degrees.
        lon: longitude in degrees.
        kind: as the file's name states it, "UPV" or "DPV".
        capacity: in MW.
        path: of the file or archive.
        member: name of the file within the archive.
    """

    lat: float
    lon: float
    kind: str
    capacity: float
    path: Path
    member: str

    @property
    def name(self) -> str:
        """The name of the station."""
        return f"{self.lat:g}_{self.lon:g}_{self.kind}_{self.capacity:g}MW"


def solar() -> Dataset:
    """All 137 plants; 29 of them are unseen."""
    plants = find_plants()
    if not plants:
        raise missing_files(CARD, CARD.files)
    if len(plants) != NUM_PLANTS:
        raise DataError(
            f"'{plants[0].path}' has {len(plants)} plants; expected {NUM_PLANTS}. Put all of "
            f"{ARCHIVE} there and nothing else, from {CARD.page}."
        )
    unseen = tuple(at_random(NUM_PLANTS, NUM_UNSEEN, SEED).tolist())
    return Dataset((read_plants(plants),), CARD.name, unseen, past=12, horizon=12, stride=12)


def find() -> LocalFiles:
    """The tables on this machine, or the archive that is missing."""
    plants = find_plants()
    paths = sorted({plant.path for plant in plants})
    return LocalFiles(paths, [] if len(plants) == NUM_PLANTS else list(CARD.files))


def find_plants() -> list[Plant]:
    """The plants of the first folder or archive that has any, from south to north."""
    for name in FOLDERS:
        for folder in folders(name):
            if folder.is_dir():
                plants = _parse_names((path, path.name) for path in folder.iterdir())
                if plants:
                    return plants
            for path in (folder / ARCHIVE, folder.parent / ARCHIVE):
                if path.is_file():
                    return _parse_names((path, member) for member in member_names(path))
    return []


def _parse_names(tables: Iterator[tuple[Path, str]]) -> list[Plant]:
    """The plants among files or members of an archive, by their names."""
    plants: dict[str, Plant] = {}
    for path, member in sorted(tables):
        match = FILE_NAME.fullmatch(member.rsplit("/", 1)[-1])
        if match:
            lat, lon, kind, capacity = match.groups()
            plant = Plant(float(lat), float(lon), kind, float(capacity), path, member)
            plants.setdefault(plant.name, plant)  # .csv before .csv.gz
    return sorted(plants.values())


def read_plants(plants: list[Plant]) -> Field:
    """The tables of all plants as one Field; they must have the same times.

    Args:
        plants: at least one.
    """
    times, power = _read_table(plants[0])
    values = np.empty((len(times), len(plants), 1), dtype=np.float32)
    values[:, 0, 0] = power
    for number, plant in enumerate(plants[1:], start=1):
        own_times, power = _read_table(plant)
        if not np.array_equal(own_times, times):
            raise DataError(
                f"'{plant.member}' has {len(own_times)} rows and other times than "
                f"'{plants[0].member}' with {len(times)}. All plants have the same; download the "
                "archive again."
            )
        values[:, number, 0] = power
    positions = np.array([[plant.lon, plant.lat] for plant in plants])
    sites = {"lat": positions[:, 1], "lon": positions[:, 0]}
    sites["capacity"] = np.array([plant.capacity for plant in plants])
    points = Points(unit_box(positions), "plane", tuple(plant.name for plant in plants))
    utc = _to_utc(times, plants[0].member)
    return labelled(Field(values, utc, points, ("power",), units=("MW",), sites=sites), CARD)


def unit_box(positions: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, "node 2"]:
    """Positions shifted and scaled into the unit box, by one factor for both axes.

    Args:
        positions: x, y in any unit.
    """
    extent = np.ptp(positions, axis=0).max()
    return (positions - positions.min(0)) / (extent if extent > 0 else 1.0)


def _read_table(plant: Plant) -> tuple[np.ndarray, Float32[np.ndarray, " time"]]:
    """Times as text, and power."""
    import pandas as pd

    name = plant.member
    try:
        if plant.path.suffix == ".zip":
            text = read_member(plant.path, name, MAX_TABLE_BYTES)
        else:
            opener = gzip.open if plant.path.suffix == ".gz" else open
            with opener(plant.path, "rb") as stream:
                text = read_bounded(stream, name, MAX_TABLE_BYTES)
        if text.split(b"\n", 1)[0].strip() != HEADER:
            raise ValueError(f"its first line is {text[:40]!r}, expected {HEADER.decode()}")
        table = pd.read_csv(io.BytesIO(text), dtype={"LocalTime": str, "Power(MW)": np.float32})
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"'{name}' in '{plant.path}' cannot be read: {error}.") from None
    return table["LocalTime"].to_numpy(dtype=object), table["Power(MW)"].to_numpy(np.float32)


def _to_utc(texts: np.ndarray, name: str) -> Int64[np.ndarray, " time"]:
    """Central Standard Time as text in UTC; rows must be five minutes apart."""
    import pandas as pd

    try:
        local = pd.to_datetime(pd.Series(texts), format="%m/%d/%y %H:%M").to_numpy("M8[ns]")
    except (ValueError, TypeError) as error:
        raise DataError(f"'{name}': a time cannot be read ({error}).") from None
    times = local.astype(np.int64) + SIX_HOURS
    if (np.diff(times) != FIVE_MINUTES).any():
        raise DataError(f"'{name}': some rows are not five minutes apart. Download it again.")
    return times
