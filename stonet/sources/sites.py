"""Where to ask: sites from a CSV file or from 'lat,lon' on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stonet.cf import ALIASES
from stonet.errors import DataError, UsageError
from stonet.geometry import GEOMETRIES, Kind, Points


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
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, skipinitialspace=True)  # '007' stays a name
    except FileNotFoundError:
        raise UsageError(f"No file '{path}'. Check the path given to --at.") from None
    except (ValueError, OSError) as error:
        raise DataError(f"'{path}' is no CSV table ({error}).") from None
    columns = [_column(table, axis, path) for axis in GEOMETRIES[kind].axes]
    try:
        coordinates = table[columns].to_numpy(dtype=np.float64)
    except ValueError as error:
        raise DataError(f"'{path}': columns {columns} must hold numbers ({error}).") from None
    named = next(
        (c for c in table.columns if str(c).strip().lower() in (*ALIASES["station"], "name")), None
    )
    names = () if named is None else tuple(str(n) for n in table[named])
    try:
        return Points(coordinates, kind, names)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from None


def _column(table: object, axis: str, path: Path) -> str:
    columns = {str(c).strip().lower(): str(c) for c in table.columns}  # type: ignore[attr-defined]
    for alias in ALIASES[axis]:
        if alias in columns:
            return columns[alias]
    raise DataError(
        f"'{path}' has columns {sorted(columns)}; expected '{axis}' ({', '.join(ALIASES[axis])})."
    )
