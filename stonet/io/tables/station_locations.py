"""Tables of stations: the positions of stations, for data that do not contain them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stonet.config import ReadConfig
from stonet.data.geometry import Kind, Points
from stonet.errors import DataError, ResourceError, UsageError
from stonet.io.safety import readable
from stonet.io.tables.columns import axes_label, find_axes, find_column, find_columns, quote_names
from stonet.io.tables.csv_file import CsvTable
from stonet.io.tables.long_format import MAX_SHIFT, Position, to_degrees, to_numbers

if TYPE_CHECKING:
    import pandas as pd

MAX_SIBLINGS = 2000  # files of a folder that are searched for a table of stations
MAX_BYTES = 2**26  # of a table of stations
IN_FILE_NAME = re.compile(r"(?:^|_)(-?\d{1,2}\.\d+)_(-?\d{1,3}\.\d+)(?=_|$)")
NREL = re.compile(r"(Actual|DA|HA4)_-?[\d.]+_-?[\d.]+_\d{4}_(UPV|DPV)_[\d.]+MW_\d+_Min", re.I)


@dataclass(frozen=True)
class StationTable:
    """Positions of stations.

    Args:
        origin: the file, for messages.
        kind: the geometry.
        coordinates: (station, 2).
        altitude: of each station, if the table has it.
        names: every other column, any of which may identify the stations; the likeliest first.
        name_column: the column that is named as one of station names.
    """

    origin: str
    kind: Kind
    coordinates: np.ndarray
    altitude: np.ndarray | None
    names: Mapping[str, tuple[str, ...]]
    name_column: str | None

    def locate(self, stations: Sequence[str]) -> dict[str, Position]:
        """Positions (and altitudes) of stations, by the column that identifies the most.

        Args:
            stations: names in the data.

        Returns:
            Only the stations that the table contains.
        """
        best: dict[str, list[int]] = {}
        for column in self.names.values():
            rows = self._rows(column, stations)
            if len(rows) > len(best):
                best = rows
        return {name: self._position(name, rows) for name, rows in best.items()}

    def _rows(self, column: tuple[str, ...], stations: Sequence[str]) -> dict[str, list[int]]:
        """The rows of each station, by its exact name, otherwise by a similar one."""
        exact: dict[str, list[int]] = {}
        similar: dict[str, list[int]] = {}
        for row, name in enumerate(column):
            if name and np.isfinite(self.coordinates[row]).all():
                exact.setdefault(name, []).append(row)
                similar.setdefault(_loose(name), []).append(row)
        matches = {name: exact.get(name) or similar.get(_loose(name)) for name in stations}
        return {name: rows for name, rows in matches.items() if rows}

    def _position(self, name: str, rows: list[int]) -> Position:
        positions = self.coordinates[rows]
        if np.ptp(positions, axis=0).max() > MAX_SHIFT:
            farthest = positions[np.abs(positions - positions[0]).max(1).argmax()]
            raise DataError(
                f"'{self.origin}': station '{name}' is at {positions[0]} and at {farthest}. Give "
                "different stations different names."
            )
        altitude = () if self.altitude is None else (float(self.altitude[rows[0]]),)
        return (*map(float, positions[0]), *altitude)


def read_station_table(path: str | Path, geometry: Kind | None = None) -> StationTable:
    """Read a CSV file of stations.

    Args:
        path: of the file.
        geometry: that the user states; None: the columns decide.
    """
    import pandas as pd

    path = Path(path)
    if not path.exists():
        raise UsageError(f"No file '{path}'. Check the path of the table of stations.")
    if path.stat().st_size > MAX_BYTES:
        raise DataError(
            f"'{path}' is too large for a table of stations. Keep names and positions only."
        )
    with readable(path, "a CSV table"):
        table = CsvTable(path)
        blocks = list(table.blocks(table.names, table.names))
        if not blocks:
            raise DataError(f"'{path}' has a header and no rows; expected at least one point.")
        return make_station_table(pd.concat(blocks), str(path), geometry, table.decimal)


def make_station_table(
    frame: pd.DataFrame, origin: str, geometry: Kind | None = None, decimal: str = "."
) -> StationTable:
    """A table of stations from columns of text.

    Args:
        frame: columns of text.
        origin: the file, for messages.
        geometry: that the user states; None: the columns decide.
        decimal: "." or ",".
    """
    names = [str(name) for name in frame.columns]
    kind, axes = find_axes(names, geometry)
    if axes is None:
        raise DataError(
            f"'{origin}' has columns [{quote_names(names)}]; expected {axes_label(kind)}, and "
            "names of stations."
        )
    altitude = find_column([name for name in names if name not in axes], "altitude")
    coordinates = np.stack(to_degrees(frame, axes, decimal, origin), axis=1)
    altitudes = None if altitude is None else to_numbers(frame[altitude], decimal)[0]
    rest = [name for name in names if name not in (*axes, altitude)]
    first = find_column(rest, "station")
    ordered = sorted(rest, key=lambda name: name != first)
    labels = {name: frame[name].astype(object).where(frame[name].notna(), "") for name in ordered}
    texts = {name: tuple(str(text).strip() for text in column) for name, column in labels.items()}
    return StationTable(origin, kind, coordinates, altitudes, texts, first)


def position_in_file_name(stem: str) -> Position | None:
    """The position in a file's name, as NREL writes it: Actual_33.05_-80.25_2006_...

    Args:
        stem: the name without its suffixes.
    """
    match = IN_FILE_NAME.search(stem)
    return (float(match[1]), float(match[2])) if match else None


def locate(
    stations: Sequence[str],
    path: Path | None,
    preamble: pd.DataFrame | None,
    config: ReadConfig,
) -> tuple[dict[str, Position], StationTable | None]:
    """Positions of stations from read.stations, the file's preamble, or a table beside the file.

    Otherwise the run's own positions, if the data are read for one.

    Args:
        stations: their names.
        path: the file, if the data are one.
        preamble: a table of stations in the file itself.
        config: options of reading.

    Returns:
        The positions of the stations that were located, and the table that lists them.
    """
    if config.stations is not None:
        tables = [config._station_table or read_station_table(config.stations, config.geometry)]
    elif preamble is not None:
        tables = [make_station_table(preamble, str(path), config.geometry)]
    else:
        siblings = [] if path is None else _sibling_tables(path)
        tables = [read_station_table(sibling, config.geometry) for sibling in siblings]
        if config._known_places is not None:
            tables.append(_as_table(config._known_places))
    candidates = [(table.locate(stations), table) for table in tables]
    positions, table = max(candidates, key=lambda pair: len(pair[0]), default=({}, None))
    return positions, table if positions else None


def _as_table(places: Points) -> StationTable:
    """Places that a run knows, as the last resort."""
    names = {"station": places.names}
    return StationTable("the run", places.kind, places.coordinates, None, names, "station")


def _sibling_tables(path: Path) -> list[Path]:
    """Tables of stations in the same folder."""
    siblings = [
        sibling
        for sibling in sorted(path.parent.iterdir())
        if sibling.is_file()
        and re.search(r"\.(csv|tsv|txt)(\.(gz|bz2|xz|zst))?$", sibling.name, re.I)
    ][:MAX_SIBLINGS]
    stats = [(sibling, sibling.stat()) for sibling in siblings]
    return [file for file, s in stats if _lists_stations(file, s.st_size, s.st_mtime_ns)]


@lru_cache(maxsize=2 * MAX_SIBLINGS)
def _lists_stations(path: Path, size: int, changed: int) -> bool:
    return size <= MAX_BYTES and is_station_table(path)


def is_station_table(path: Path) -> bool:
    """Whether a file has columns of positions and no column of times.

    Args:
        path: of a CSV file.
    """
    try:
        with readable(path, "a CSV table"):
            table = CsvTable(path)
    except (DataError, ResourceError):
        return False
    columns = find_columns(table.names, table.sample, ReadConfig())
    return not columns.time and columns.coordinates is not None


def _loose(name: str) -> str:
    return re.sub(r"[\s_]+", " ", name.strip().casefold())
