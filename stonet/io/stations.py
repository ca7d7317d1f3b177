"""Positions from what users have: Points, tables, files, pairs of coordinates, dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from stonet.data.geometry import Kind, Points
from stonet.errors import DataError, UsageError
from stonet.io.sites import parse_sites
from stonet.io.tables.dataframe import DataFrameTable
from stonet.io.tables.station_locations import StationTable, make_station_table


def as_points(at: Any, kind: Kind, stations: Points | None = None) -> Points | None:
    """Query points.

    Args:
        at: Points; a table with columns lat and lon (or x and y) and, optionally, names; a CSV
            file; "grid:0.25"; a pair (lat, lon) or (x, y) or a list of pairs; names and pairs in
            a dictionary; the name of a station; or a list of these. None stays None.
        kind: "sphere" (lat, lon) or "plane" (x, y).
        stations: whose names are known.

    Raises:
        UsageError: no positions can be found in it.
    """
    if at is None or isinstance(at, Points):
        return at
    if isinstance(at, (str, Path)):
        return parse_sites([str(at)], kind, stations)
    if isinstance(at, Mapping):
        return Points(_pairs(at.values()), kind, tuple(map(str, at)))
    if _is_table(at):
        table = station_table(at, kind)
        names = table.names[table.name_column] if table.name_column else ()
        return Points(table.coordinates, kind, names)
    entries = list(at)
    if not entries:
        raise UsageError("No query point was given; expected at least one.")
    if all(isinstance(entry, Real) for entry in entries):
        entries = [entries]  # a single pair
    if not any(
        isinstance(entry, (str, Path, Points, Mapping)) or _is_table(entry) for entry in entries
    ):
        pairs = _pairs(entries)
        return Points(pairs, kind, tuple(f"{a!r},{b!r}" for a, b in pairs.tolist()))
    parts = [as_points(_single(entry), kind, stations) for entry in entries]
    joined = parts[0]
    for part in parts[1:]:
        assert joined is not None and part is not None
        joined = joined.joined(part)
    return joined


def station_table(stations: Any, geometry: Kind | None = None) -> StationTable:
    """Station positions by name.

    Args:
        stations: a table with columns for names and positions, Points, or names and pairs in a
            dictionary.
        geometry: of the positions (None: from the names of the columns).
    """
    if isinstance(stations, Mapping):
        stations = Points(
            _pairs(stations.values()), geometry or "sphere", tuple(map(str, stations))
        )
    if isinstance(stations, Points):
        names = {"station": stations.names}
        return StationTable(
            "the stations", stations.kind, stations.coordinates, None, names, "station"
        )
    if not _is_table(stations):
        raise UsageError(
            f"Stations were given as {type(stations).__name__}; expected a file, a table, Points "
            "or a dictionary of names and pairs."
        )
    try:
        table = DataFrameTable(stations, "the stations")
        return make_station_table(table.frame, "the stations", geometry)
    except DataError as error:
        raise UsageError(str(error)) from None


def _is_table(source: Any) -> bool:
    """Whether it is a table of pandas, polars or arrow."""
    return hasattr(source, "to_pandas") or hasattr(source, "columns")


def _single(entry: Any) -> Any:
    """An entry of a mixed list; a pair is a list of one pair."""
    is_pair = not isinstance(entry, (str, Path, Points, Mapping)) and not _is_table(entry)
    return [entry] if is_pair else entry


def _pairs(entries: Any) -> np.ndarray:
    """(point, 2) coordinates."""
    pairs = []
    for entry in entries:
        try:
            first, second = (float(number) for number in entry)
        except (TypeError, ValueError):
            raise UsageError(
                f"{entry!r} is not a position; give pairs (lat, lon) or (x, y), Points, a table or "
                "a CSV file of sites."
            ) from None
        pairs.append((first, second))
    return np.array(pairs)
