"""Where to ask: sites from a CSV file, 'lat,lon' on the command line, or a grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stonet.data.geometry import GEOMETRIES, Kind, Points
from stonet.errors import DataError, UsageError
from stonet.io.tables.station_locations import read_places

GRID = "grid:"
MOST = 10**8  # points of a grid


def parse_sites(entries: Sequence[str], kind: Kind) -> Points:
    """Points from any number of 'a,b' pairs, grids and CSV files, in their order."""
    parts = [_points(entry, kind) for entry in entries]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.joined(part)
    return joined


def _points(entry: str, kind: Kind) -> Points:
    if entry.startswith(GRID):
        return _grid(entry, kind)
    return _read_csv(Path(entry), kind) if _is_file(entry) else _pair(entry, kind)


def _grid(entry: str, kind: Kind) -> Points:
    """'grid:0.25' is the globe, 'grid:0.25,west,south,east,north' a part of it or of a plane."""
    try:
        step, *box = (float(number) for number in entry.removeprefix(GRID).split(","))
        west, south, east, north = box or ((-180.0, -90.0, 180.0 - step, 90.0) * (kind == "sphere"))
        columns, rows = ((high - low) / step for low, high in ((west, east), (south, north)))
    except (ValueError, ZeroDivisionError):
        columns = rows = step = -1.0
    few = step > 0 and min(columns, rows) >= 0 and (columns + 1) * (rows + 1) < MOST
    if not few:
        raise UsageError(
            f"'{entry}' is no grid; write {GRID}STEP (on the sphere) or {GRID}STEP,west,south,east,"
            f"north with a step > 0 and fewer than {MOST:.0e} points, e.g. {GRID}0.25,-10,50,2,58."
        )
    x, y = (
        low + step * np.arange(int(count + 1e-9) + 1)
        for low, count in ((west, columns), (south, rows))
    )
    places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return Points(places[:, ::-1] if kind == "sphere" else places, kind)


def _is_file(entry: str) -> bool:
    return entry.lower().endswith(".csv") or Path(entry).is_file()


def _pair(entry: str, kind: Kind) -> Points:
    axes = ",".join(GEOMETRIES[kind].axes)
    try:
        first, second = (float(number) for number in entry.split(","))
    except ValueError:
        raise UsageError(
            f"'{entry}' is no place; write {axes}, e.g. '46.52,6.63', or a CSV file."
        ) from None
    return Points(np.array([[first, second]]), kind, (entry,))


def _read_csv(path: Path, kind: Kind) -> Points:
    if not path.exists():
        raise UsageError(f"No file '{path}'. Check the path given to --at.")
    if path.is_dir():
        raise DataError(f"'{path}' is no CSV table: it is a folder.")
    places = read_places(path, kind)
    names = places.names.get(places.named, ()) if places.named else ()
    try:
        return Points(places.where, kind, names)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from None
