"""Where to ask: sites from a CSV file or from 'lat,lon' on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stonet.errors import DataError, UsageError
from stonet.geometry import GEOMETRIES, Kind, Points
from stonet.sources.tables.places import read_places


def parse_sites(entries: Sequence[str], kind: Kind) -> Points:
    """Points from any number of 'a,b' pairs and CSV files, in their order."""
    parts = [
        _read_csv(Path(entry), kind) if _is_file(entry) else _pair(entry, kind) for entry in entries
    ]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.joined(part)
    return joined


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
