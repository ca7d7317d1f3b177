"""Points at which a forecast is requested: pairs of coordinates, CSV files of sites, grids."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stonet.data.geometry import GEOMETRIES, Kind, Points
from stonet.errors import DataError, UsageError
from stonet.io.tables.station_locations import read_station_table

GRID = "grid:"
MAX_GRID_POINTS = 10**8


def parse_sites(
    entries: Sequence[str | tuple[float, float]], kind: Kind, stations: Points | None = None
) -> Points:
    """Points from any number of entries, in their order.

    Args:
        entries: coordinates as two numbers or as text "a,b", the path of a CSV file, or
            "grid:STEP[,west,south,east,north]", or the name of a station.
        kind: "sphere" (lat, lon) or "plane" (x, y).
        stations: whose names are known.

    Example:
        >>> parse_sites(["46.52,6.63", (-33.9, 18.4)], "sphere").names
        ('46.52,6.63', '-33.9,18.4')
    """
    parts = [_parse(entry, kind, stations) for entry in entries]
    points = parts[0]
    for part in parts[1:]:
        points = points.joined(part)
    return points


def _parse(entry: str | tuple[float, float], kind: Kind, stations: Points | None = None) -> Points:
    if isinstance(entry, tuple):
        first, second = entry
        return Points(np.array([[first, second]]), kind, (f"{first!r},{second!r}",))
    station = None if stations is None else _station(entry, stations)
    if station is not None:
        return station
    if entry.startswith(GRID):
        return _parse_grid(entry, kind)
    is_file = entry.lower().endswith(".csv") or Path(entry).is_file()
    return _read_csv(Path(entry), kind) if is_file else _parse_pair(entry, kind, stations)


def _station(name: str, stations: Points) -> Points | None:
    """The station of this name, in upper or lower case; None if there is none, or several."""
    exact = [i for i, other in enumerate(stations.names) if other == name]
    wanted = name.strip().casefold()
    similar = [i for i, other in enumerate(stations.names) if other.casefold() == wanted]
    found = exact or similar
    return stations.take(np.array(found)) if len(found) == 1 else None


def _parse_pair(entry: str, kind: Kind, stations: Points | None = None) -> Points:
    axes = ",".join(GEOMETRIES[kind].axes)
    try:
        first, second = (float(number) for number in entry.split(","))
    except ValueError:
        hint = ""
        near = difflib.get_close_matches(entry, () if stations is None else stations.names, n=1)
        if near:
            hint = f" Did you mean '{near[0]}'?"
        raise UsageError(
            f"'{entry}' is not a position; write {axes}, e.g. '46.52,6.63', a CSV file, or the "
            f"name of a station.{hint}"
        ) from None
    return Points(np.array([[first, second]]), kind, (entry,))


def _parse_grid(entry: str, kind: Kind) -> Points:
    """'grid:0.25' is the globe, 'grid:0.25,west,south,east,north' a part of it or of a plane."""
    try:
        step, *box = (float(number) for number in entry.removeprefix(GRID).split(","))
        west, south, east, north = box or ((-180.0, -90.0, 180.0 - step, 90.0) * (kind == "sphere"))
        columns, rows = ((high - low) / step for low, high in ((west, east), (south, north)))
    except (ValueError, ZeroDivisionError):
        columns = rows = step = -1.0
    in_limits = (columns + 1) * (rows + 1) < MAX_GRID_POINTS
    if not (step > 0 and min(columns, rows) >= 0 and in_limits):
        raise UsageError(
            f"'{entry}' is not a grid; write {GRID}STEP (on the sphere) or {GRID}STEP,west,south,"
            f"east,north with a step > 0 and fewer than {MAX_GRID_POINTS:.0e} points, e.g. "
            f"{GRID}0.25,-10,50,2,58."
        )
    x, y = (
        low + step * np.arange(int(count + 1e-9) + 1)
        for low, count in ((west, columns), (south, rows))
    )
    coordinates = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return Points(coordinates[:, ::-1] if kind == "sphere" else coordinates, kind)


def _read_csv(path: Path, kind: Kind) -> Points:
    if not path.exists():
        raise UsageError(f"No file '{path}'. Check the path given to --at.")
    if path.is_dir():
        raise DataError(f"'{path}' is not a CSV table: it is a folder.")
    table = read_station_table(path, kind)
    names = table.names.get(table.name_column, ()) if table.name_column else ()
    try:
        return Points(table.coordinates, kind, names)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from None
