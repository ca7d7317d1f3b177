"""What the columns of a table mean: when, where, which station, and values with their units."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from stonet.config import ReadConfig
from stonet.data.cf import ALIASES
from stonet.data.geometry import GEOMETRIES, Kind
from stonet.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# what people write in the header of a table, beside the names that every format shares
IN_TABLES: dict[str, tuple[str, ...]] = {
    "time": (
        "datetime", "date_time", "date", "dates", "time_utc", "datetime_utc", "date_utc",
        "utc_time", "utc", "time_stamp", "valid", "obs_time", "observation_time", "measured_at",
        "local_time", "local_datetime", "time_local", "date_local", "dt", "dt_iso",
        "last_updated_epoch", "last_updated", "unix_time", "unix", "epoch", "t",
    ),
    "lat": ("lat_deg", "lat_degrees", "latitude_deg", "station_latitude", "station_lat"),
    "lon": (
        "lng", "long", "lon_deg", "lon_degrees", "longitude_deg", "station_longitude",
        "station_lon",
    ),
    "x": ("x_coord", "x_coordinate", "easting"),
    "y": ("y_coord", "y_coordinate", "northing"),
    "station": (
        "stn", "site", "site_id", "site_name", "sensor", "sensor_id", "location_id",
        "location", "location_name", "city", "city_name", "name", "id", "code",
    ),
    "altitude": (
        "alt", "altitude", "elev", "elevation", "height", "z", "altitude_m", "elevation_m",
    ),
    "date": ("date", "obs_date", "date_utc", "date_local", "yyyymmdd"),
    "clock": (
        "time", "hour", "hr", "hh", "hhmm", "time_of_day", "clock", "time_utc", "utc_time",
        "local_time", "time_local",
    ),
    "year": ("year", "yyyy", "yr"),
    "month": ("month", "mo"),
    "day": ("day", "dy"),
    "hour": ("hour", "hr"),
    "minute": ("minute",),
    "second": ("second",),
}  # fmt: skip
ROLES = {
    role: tuple(dict.fromkeys((*ALIASES.get(role, ()), *IN_TABLES.get(role, ()))))
    for role in (*ALIASES, *IN_TABLES)
}
PARTS = ("year", "month", "day", "hour", "minute", "second")
CLOCK = re.compile(r"\d{1,4}(\.0)?|\d{1,2}[:.h]\d{2}([:.]\d{2})?(\.\d+)?( ?[AaPp][Mm])?")
UNIT = re.compile(r"(.*?\S)\s*[(\[]([^()\[\]]*)[)\]]")


class Table(ABC):
    """Rows that come in blocks: a text file, a Parquet file or a frame in memory."""

    origin: str  # for messages
    path: Path | None
    title: str  # of a table whose columns are stations, or that is a station's
    names: tuple[str, ...]
    sample: pd.DataFrame  # the first rows, as text
    preamble: pd.DataFrame | None  # a table of places above the rows, as text
    decimal: str
    row: str  # what a block's index counts: "line" of the file or "row"

    @abstractmethod
    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, block by block; labels stay text ('007')."""


@dataclass(frozen=True)
class Columns:
    """The role of each column; `time` holds one, date and clock, or year, month, day, ..."""

    time: tuple[str, ...]
    station: str | None
    where: tuple[str, str] | None
    kind: Kind
    altitude: str | None
    values: Mapping[str, tuple[str, str]]  # column: channel, unit
    ignored: tuple[str, ...]  # other names for a role that is taken
    measured: tuple[str, ...] = ()  # called as an altitude is, but changing at a station

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that has to be read, once."""
        roles = (*self.time, self.station, *(self.where or ()), self.altitude)
        return tuple(dict.fromkeys([*(name for name in roles if name), *self.values]))


def find_columns(
    names: Sequence[str],
    sample: pd.DataFrame | None,
    config: ReadConfig,
    measured: tuple[str, ...] = (),
) -> Columns:
    """Roles by name; the sample only tells a time of day from a whole time.

    `measured` columns are known to be no altitude, whatever they are called.
    """
    time = find_time(names, sample)
    kind, where = find_axes(names, config.geometry)
    if where and len(time) == 1 and find(time, "year") and sample is not None:
        repeated = sample.drop_duplicates([*where, *time]).duplicated(list(where)).any()
        time = time if repeated else ()  # the year of something, in a table of places
    taken = set(time)
    taken.update(where or ())
    free = [name for name in names if name not in taken]
    station = find(free, "station")
    wanted = {name for name in free if {name, split_unit(name)[0]} & set(config.variables)}
    altitude = find([name for name in free if name not in {*wanted, *measured}], "altitude")
    rest = [name for name in free if name not in (station, altitude) and is_named(name)]
    plane = {"x", "y"} <= {_key(name) for name in names}
    spare = {name: None for name in rest if name not in wanted and _is_spare(name, plane)}
    values = channels([name for name in rest if name not in spare])
    if config.variables:
        values = {name: told for name, told in values.items() if name in wanted}
    return Columns(time, station, where, kind, altitude, values, tuple(spare), measured)


def find(names: Sequence[str], role: str) -> str | None:
    """The column for a role: the first alias that occurs; as written, or else in any spelling."""
    keys: dict[str, str] = {}
    for name in names:
        keys.setdefault(_key(name), name)
    exact = set(names)
    for alias in ROLES[role]:
        if alias in exact:
            return alias
        if squashed(alias) in keys:
            return keys[squashed(alias)]
    return None


def find_time(names: Sequence[str], sample: pd.DataFrame | None) -> tuple[str, ...]:
    """One column of times; date and time of day; or year, month, day and so on."""
    whole, date = find(names, "time"), find(names, "date")
    clock = find([name for name in names if name != date], "clock")
    if date and clock and _is_clock(sample, clock) and _is_day(sample, date):
        minute = find(names, "minute") if squashed(clock) in ("hour", "hr", "hh") else None
        return (date, clock, minute) if minute else (date, clock)
    found = [find(names, part) for part in PARTS]
    parts = [name for name in found[: [*found, None].index(None)] if name]
    if parts and (whole is None or (len(parts) >= 3 and _is_clock(sample, whole))):
        return (*parts, whole) if whole and len(parts) == 3 else tuple(parts)
    return (whole,) if whole else ()


def find_axes(names: Sequence[str], geometry: Kind | None) -> tuple[Kind, tuple[str, str] | None]:
    """The two columns of positions, in the geometry's order, and the geometry."""
    sphere = find(names, "lat"), find(names, "lon")
    plane = find(names, "x"), find(names, "y")
    for kind, (first, second) in (("sphere", sphere), ("plane", plane)):
        if first and second and (geometry is None or geometry == kind):
            return ("sphere" if kind == "sphere" else "plane"), (first, second)
    for first, second in (sphere, plane):  # asked for as the other kind: x is lon, y is lat
        if geometry and first and second:
            return geometry, (second, first)
    return geometry or "sphere", None


def channels(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name and unit of each column: 'Power(MW)' is Power in MW, where that leaves names apart."""
    split = {name: split_unit(name) for name in names}
    counts = Counter(channel for channel, _ in split.values())
    return {
        name: told if counts[told[0]] == 1 else (name.strip(), "1") for name, told in split.items()
    }


def split_unit(name: str) -> tuple[str, str]:
    """'temp [degC]' -> temp, degC; without a unit, '1'."""
    match = UNIT.fullmatch(name.strip())
    return (match[1], match[2].strip() or "1") if match else (name.strip(), "1")


@lru_cache(maxsize=2**14)
def squashed(name: str) -> str:
    """'Station ID', 'station_id' and 'StationId' alike."""
    return re.sub(r"[\W_]", "", name.casefold())


@lru_cache(maxsize=2**14)
def _key(name: str) -> str:
    return squashed(split_unit(name)[0])


KNOWN = frozenset(squashed(a) for role, names in ROLES.items() for a in names if role != "altitude")


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, however many, long or strange they are."""
    shown = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def stem_of(path: Path) -> str:
    """A file's name without what tells its format and packing."""
    return re.sub(r"(\.(csv|tsv|txt|parquet|pq))?(\.(gz|bz2|xz|zst))?$", "", path.name, flags=re.I)


def axes_label(kind: Kind) -> str:
    """The columns of positions, with what else people call them."""
    told = (f"'{axis}' ({', '.join(ROLES[axis][:2])})" for axis in GEOMETRIES[kind].axes)
    return " and ".join(told)


def check_names(names: Sequence[str], origin: str) -> None:
    """Refuse two columns of one name."""
    counts = Counter(name for name in names if name)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise DataError(f"'{origin}' has columns {listed(twice)} more than once. Rename them.")


def is_named(name: str) -> bool:
    """Whether a column has a name of its own."""
    return bool(name.strip()) and not re.fullmatch(r"Unnamed: \d+|__index_level_\d+__", name)


def _is_spare(name: str, plane: bool) -> bool:
    """Whether a column is another name for a role; one letter is not enough, but x with y is."""
    key = _key(name)
    return plane if key in ("x", "y") else len(key) > 1 and key in KNOWN


def _is_clock(sample: pd.DataFrame | None, name: str) -> bool:
    """Whether the first values are times of day such as 13, 13:30 or 1330."""
    if sample is None:
        return False
    texts = [str(text).strip() for text in sample[name].dropna()]
    return bool(texts) and all(CLOCK.fullmatch(text) for text in texts)


def _is_day(sample: pd.DataFrame | None, name: str) -> bool:
    """Whether the first values are dates without a time of day."""
    texts = [] if sample is None else [str(text) for text in sample[name].dropna()]
    return not _is_clock(sample, name) and not any(
        re.search(r"\d[ T]\d{1,2}[:.]\d\d", text) and not text.endswith("00:00:00")
        for text in texts
    )
