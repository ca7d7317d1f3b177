"""Roles of the columns of a table: time, coordinates, station, altitude, values with units."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stonet.config import ReadConfig
from stonet.data.cf import ALIASES
from stonet.data.geometry import GEOMETRIES, Kind
from stonet.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# usual headers of tables, beside the names that all formats share
TABLE_ALIASES: dict[str, tuple[str, ...]] = {
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
    "time_of_day": (
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
    role: tuple(dict.fromkeys((*ALIASES.get(role, ()), *TABLE_ALIASES.get(role, ()))))
    for role in (*ALIASES, *TABLE_ALIASES)
}
MISSING_MARKS = (  # texts that mean a missing value
    "", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL",
    "null", "None", "NaT", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "-", "--", "M",
)  # fmt: skip
DATE_PARTS = ("year", "month", "day", "hour", "minute", "second")
TIME_OF_DAY = re.compile(r"\d{1,4}(\.0)?|\d{1,2}[:.h]\d{2}([:.]\d{2})?(\.\d+)?( ?[AaPp][Mm])?")
UNIT = re.compile(r"(.*?\S)\s*[(\[]([^()\[\]]*)[)\]]")
MAX_NAME = 40  # characters of a name in a message


class Table(ABC):
    """A table whose rows are read in blocks: a CSV file, a Parquet file or a DataFrame."""

    origin: str  # for messages
    path: Path | None
    title: str  # names the quantity of a wide table, or the station of a table of one
    names: tuple[str, ...]
    sample: pd.DataFrame  # the first rows, as text
    preamble: pd.DataFrame | None  # a table of stations above the rows, as text
    decimal: str
    row_label: str  # what the index of a block counts: "line" of the file or "row"

    @abstractmethod
    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, block by block; columns of labels stay text ('007').

        Args:
            used: columns to read.
            labels: those of them that name stations.
        """


class RenamedTable(Table):
    """A table with other names of some columns.

    Args:
        table: with the original names.
        rename: new names by old ones, which may be given without the unit of a header.
    """

    def __init__(self, table: Table, rename: Mapping[str, str]) -> None:
        self.table = table
        new = {name: _renamed(name, rename) for name in table.names}
        self.names = tuple(new.values())
        check_names(self.names, table.origin)
        self.sample = table.sample.rename(columns=new)
        self.original = {name: old for old, name in new.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    @property
    def renamed(self) -> tuple[str, ...]:
        """The original names that were found, without units."""
        pairs = self.original.items()
        return tuple(name for new, old in pairs if new != old for name in (old, split_unit(old)[0]))

    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, under their new names."""
        chosen = ([self.original[name] for name in names] for names in (used, labels))
        new = {old: name for name, old in self.original.items()}
        for block in self.table.blocks(*chosen):
            yield block.rename(columns=new)


def _renamed(header: str, rename: Mapping[str, str]) -> str:
    """'temp [degC]' as 't2m [degC]' for temp=t2m."""
    name, _ = split_unit(header)
    if header in rename:
        return rename[header]
    return header.replace(name, rename[name], 1) if name in rename else header


@dataclass(frozen=True)
class Columns:
    """The columns of each role.

    Args:
        time: one of complete times; date and time of day; or year, month, day and so on.
        station: names of stations.
        coordinates: the two axes, in the order of the geometry.
        kind: the geometry.
        altitude: of the stations.
        values: name and unit of the channel of each column of values.
        ignored: other names of a role that is taken.
        not_altitude: named like an altitude, but changing at a station.
    """

    time: tuple[str, ...]
    station: str | None
    coordinates: tuple[str, str] | None
    kind: Kind
    altitude: str | None
    values: Mapping[str, tuple[str, str]]
    ignored: tuple[str, ...]
    not_altitude: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that must be read, once."""
        roles = (*self.time, self.station, *(self.coordinates or ()), self.altitude)
        return tuple(dict.fromkeys([*(name for name in roles if name), *self.values]))


def find_columns(
    names: Sequence[str],
    sample: pd.DataFrame | None,
    config: ReadConfig,
    not_altitude: tuple[str, ...] = (),
) -> Columns:
    """The roles of all columns, by their names.

    Args:
        names: of the columns.
        sample: the first rows, which distinguish times of day from complete times.
        config: the requested variables and geometry.
        not_altitude: columns that are values, although they are named like an altitude.
    """
    time = find_time(names, sample)
    kind, coordinates = find_axes(names, config.geometry)
    if coordinates and len(time) == 1 and find_column(time, "year") and sample is not None:
        rows = sample.drop_duplicates([*coordinates, *time])
        time = time if rows.duplicated(list(coordinates)).any() else ()  # an attribute of stations
    taken = {*time, *(coordinates or ())}
    free = [name for name in names if name not in taken]
    station = find_column(free, "station")
    requested = {name for name in free if {name, split_unit(name)[0]} & set(config.variables)}
    altitude = find_column(
        [name for name in free if name not in {*requested, *not_altitude}], "altitude"
    )
    rest = [name for name in free if name not in (station, altitude) and is_named(name)]
    plane = {"x", "y"} <= {_key(name) for name in names}
    ignored = [name for name in rest if name not in requested and _is_alias(name, plane)]
    values = channels([name for name in rest if name not in ignored])
    if config.variables:
        values = {name: channel for name, channel in values.items() if name in requested}
    return Columns(time, station, coordinates, kind, altitude, values, tuple(ignored), not_altitude)


def find_column(names: Sequence[str], role: str) -> str | None:
    """The column of a role: the first alias that occurs, as written or in another spelling.

    Args:
        names: of all columns.
        role: a key of ROLES.
    """
    keys: dict[str, str] = {}
    for name in names:
        keys.setdefault(_key(name), name)
    exact = set(names)
    for alias in ROLES[role]:
        if alias in exact:
            return alias
        if normalise_name(alias) in keys:
            return keys[normalise_name(alias)]
    return None


def find_time(names: Sequence[str], sample: pd.DataFrame | None) -> tuple[str, ...]:
    """One column of complete times; date and time of day; or year, month, day and so on.

    Args:
        names: of all columns.
        sample: the first rows as text; None: only the names decide.
    """
    complete, date = find_column(names, "time"), find_column(names, "date")
    time = find_column([name for name in names if name != date], "time_of_day")
    if date and time and _has_times_of_day(sample, time) and _has_dates_only(sample, date):
        hours = normalise_name(time) in ("hour", "hr", "hh")
        minute = find_column(names, "minute") if hours else None
        return (date, time, minute) if minute else (date, time)
    columns = [find_column(names, part) for part in DATE_PARTS]
    parts = [name for name in columns[: [*columns, None].index(None)] if name]
    if parts and (complete is None or (len(parts) >= 3 and _has_times_of_day(sample, complete))):
        return (*parts, complete) if complete and len(parts) == 3 else tuple(parts)
    return (complete,) if complete else ()


def find_axes(names: Sequence[str], geometry: Kind | None) -> tuple[Kind, tuple[str, str] | None]:
    """The geometry, and the two columns of coordinates in its order.

    Args:
        names: of all columns.
        geometry: that the user states; None: the names decide.
    """
    sphere = find_column(names, "lat"), find_column(names, "lon")
    plane = find_column(names, "x"), find_column(names, "y")
    pairs: tuple[tuple[Kind, tuple[str | None, str | None]], ...]
    pairs = (("sphere", sphere), ("plane", plane))
    for kind, (first, second) in pairs:
        if first and second and geometry in (None, kind):
            return kind, (first, second)
    for _, (first, second) in pairs:  # requested as the other geometry: x is lon, y is lat
        if geometry and first and second:
            return geometry, (second, first)
    return geometry or "sphere", None


def channels(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name and unit of each column: 'Power(MW)' is Power in MW, if names stay unique.

    Args:
        names: of the columns of values.
    """
    split = {name: split_unit(name) for name in names}
    counts = Counter(channel for channel, _ in split.values())
    return {
        name: channel if counts[channel[0]] == 1 else (name.strip(), "")
        for name, channel in split.items()
    }


def split_unit(name: str) -> tuple[str, str]:
    """Name and unit of a header: 'temp [degC]' -> ('temp', 'degC'); without a unit ''.

    Args:
        name: a header.
    """
    match = UNIT.fullmatch(name.strip())
    return (match[1], match[2].strip()) if match else (name.strip(), "")


@lru_cache(maxsize=2**14)
def normalise_name(name: str) -> str:
    """The same key for 'Station ID', 'station_id' and 'StationId'.

    Args:
        name: a header.
    """
    return re.sub(r"[\W_]", "", name.casefold())


@lru_cache(maxsize=2**14)
def _key(name: str) -> str:
    return normalise_name(split_unit(name)[0])


ALIAS_KEYS = frozenset(
    normalise_name(alias) for role, names in ROLES.items() for alias in names if role != "altitude"
)


def quote_names(names: Sequence[str], limit: int = 12) -> str:
    """Names for a message, however many and however long they are.

    Args:
        names: any text from a file.
        limit: names to show.
    """
    shown = [
        repr(name if len(name) <= MAX_NAME else name[: MAX_NAME - 3] + "...")
        for name in names[:limit]
    ]
    return ", ".join(shown) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def stem_of(path: Path) -> str:
    """The name of a file without the suffixes of its format and compression.

    Args:
        path: of a table.
    """
    return re.sub(r"(\.(csv|tsv|txt|parquet|pq))?(\.(gz|bz2|xz|zst))?$", "", path.name, flags=re.I)


def axes_label(kind: Kind) -> str:
    """The columns of coordinates and their aliases, for a message.

    Args:
        kind: the geometry.
    """
    labels = (f"'{axis}' ({', '.join(ROLES[axis][:2])})" for axis in GEOMETRIES[kind].axes)
    return " and ".join(labels)


def check_names(names: Sequence[str], origin: str) -> None:
    """Refuse several columns of one name.

    Args:
        names: of all columns.
        origin: the file, for the message.
    """
    counts = Counter(name for name in names if name)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise DataError(
            f"'{origin}' has columns {quote_names(repeated)} more than once. Rename them."
        )


def is_named(name: str) -> bool:
    """Whether the file gives the column a name.

    Args:
        name: as pandas reports it.
    """
    return bool(name.strip()) and not re.fullmatch(r"Unnamed: \d+|__index_level_\d+__", name)


def _is_alias(name: str, plane: bool) -> bool:
    """Whether a column is another name of a role; of one letter, only x and y together."""
    key = _key(name)
    return plane if key in ("x", "y") else len(key) > 1 and key in ALIAS_KEYS


def _has_times_of_day(sample: pd.DataFrame | None, name: str) -> bool:
    """Whether the first values are times of day such as 13, 13:30 or 1330."""
    if sample is None:
        return False
    texts = [str(text).strip() for text in sample[name].dropna()]
    return bool(texts) and all(TIME_OF_DAY.fullmatch(text) for text in texts)


def _has_dates_only(sample: pd.DataFrame | None, name: str) -> bool:
    """Whether the first values are dates without a time of day."""
    texts = [] if sample is None else [str(text) for text in sample[name].dropna()]
    return not _has_times_of_day(sample, name) and not any(
        re.search(r"\d[ T]\d{1,2}[:.]\d\d", text) and not text.endswith("00:00:00")
        for text in texts
    )
