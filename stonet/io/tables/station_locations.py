"""Tables of places: where stations are, for data that does not tell."""

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
from stonet.io.tables.columns import Table, axes_label, find, find_axes, find_columns, listed
from stonet.io.tables.csv_file import Text
from stonet.io.tables.numeric_columns import to_numbers

if TYPE_CHECKING:
    import pandas as pd

Place = tuple[float, ...]  # two coordinates and, perhaps, the altitude
SIGNS = {"n": 1.0, "e": 1.0, "s": -1.0, "w": -1.0}  # 57.05N, 10.33W
APART = 1e-4  # degrees; how far apart two positions of the same station may be
MOST_SIBLINGS = 2000  # files of a folder that are looked at for a table of places
LARGEST = 2**26  # bytes of such a table
IN_NAME = re.compile(r"(?:^|_)(-?\d{1,2}\.\d+)_(-?\d{1,3}\.\d+)(?=_|$)")
NREL = re.compile(r"(Actual|DA|HA4)_-?[\d.]+_-?[\d.]+_\d{4}_(UPV|DPV)_[\d.]+MW_\d+_Min", re.I)


@dataclass(frozen=True)
class Places:
    """A table of places: positions, and every column by which a station may be called."""

    origin: str
    kind: Kind
    where: np.ndarray  # (place, 2)
    altitude: np.ndarray | None
    names: Mapping[str, tuple[str, ...]]  # of each column, the likeliest first
    named: str | None  # the column that is there for names

    def locate(self, wanted: Sequence[str]) -> dict[str, Place]:
        """Positions (and altitudes) of the wanted stations, by the column that knows most."""
        best: dict[str, list[int]] = {}
        for column in self.names.values():
            found = self._rows(column, wanted)
            if len(found) > len(best):
                best = found
        return {name: self._place(name, rows) for name, rows in best.items()}

    def _rows(self, column: tuple[str, ...], wanted: Sequence[str]) -> dict[str, list[int]]:
        """The rows of each station: of its name as it is written, or else of one much alike."""
        exactly: dict[str, list[int]] = {}
        alike: dict[str, list[int]] = {}
        for row, name in enumerate(column):
            if name and np.isfinite(self.where[row]).all():
                exactly.setdefault(name, []).append(row)
                alike.setdefault(_loose(name), []).append(row)
        found = {name: exactly.get(name) or alike.get(_loose(name)) for name in wanted}
        return {name: rows for name, rows in found.items() if rows}

    def _place(self, name: str, rows: list[int]) -> Place:
        where = self.where[rows]
        if np.ptp(where, axis=0).max() > APART:
            raise DataError(
                f"'{self.origin}': station '{name}' is at {where[0]} and at "
                f"{where[np.abs(where - where[0]).max(1).argmax()]}. Give different stations "
                "different names."
            )
        height = () if self.altitude is None else (float(self.altitude[rows[0]]),)
        return (*map(float, where[0]), *height)


def read_places(path: str | Path, geometry: Kind | None = None) -> Places:
    """A CSV file of places."""
    import pandas as pd

    path = Path(path)
    if not path.exists():
        raise UsageError(f"No file '{path}'. Check the path of the table of stations.")
    if path.stat().st_size > LARGEST:
        raise DataError(f"'{path}' is too large for a table of places. Keep names and positions.")
    with readable(path, "a CSV table"):
        text = Text(path)
        blocks = list(text.blocks(text.names, text.names))
        if not blocks:
            raise DataError(f"'{path}' has a header and no rows; expected at least one point.")
        return places_of(pd.concat(blocks), str(path), geometry, text.decimal)


def places_of(
    frame: pd.DataFrame, origin: str, geometry: Kind | None = None, decimal: str = "."
) -> Places:
    """From a frame of text."""
    names = [str(name) for name in frame.columns]
    kind, where = find_axes(names, geometry)
    if where is None:
        raise DataError(
            f"'{origin}' has columns [{listed(names)}]; expected {axes_label(kind)}, and names of "
            "stations."
        )
    altitude = find([name for name in names if name not in where], "altitude")
    axes = to_degrees(frame, where, decimal, origin)
    heights = None if altitude is None else to_numbers(frame[altitude], decimal)[0]
    rest = [name for name in names if name not in (*where, altitude)]
    first = find(rest, "station")
    ordered = sorted(rest, key=lambda name: name != first)
    labels = {name: frame[name].astype(object).where(frame[name].notna(), "") for name in ordered}
    texts = {name: tuple(str(text).strip() for text in column) for name, column in labels.items()}
    return Places(origin, kind, np.stack(axes, axis=1), heights, texts, first)


def to_degrees(
    frame: pd.DataFrame, where: tuple[str, str], decimal: str, origin: str
) -> list[np.ndarray]:
    """The two coordinates as numbers; 57.05N and 10.33W too."""
    axes = []
    for name in where:
        numbers, text = to_numbers(frame[name], decimal)
        if text.any():
            texts = frame[name][text].astype(str).str.strip().str.lower()
            bare, _ = to_numbers(texts.str[:-1], decimal)
            numbers[text] = bare * texts.str[-1].map(SIGNS).to_numpy(np.float64)
        wrong = text & np.isnan(numbers)
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"'{origin}': columns {list(where)} must hold numbers; '{name}' has "
                f"{listed([str(frame[name].iloc[row])])} in row {frame.index[row]}."
            )
        axes.append(numbers + 0.0)  # -0.0 is 0.0
    return axes


def in_file_name(stem: str) -> tuple[float, float] | None:
    """Position told by a file's name, as NREL does: Actual_33.05_-80.25_2006_..."""
    match = IN_NAME.search(stem)
    return (float(match[1]), float(match[2])) if match else None


def locate(
    wanted: Sequence[str],
    path: Path | None,
    preamble: pd.DataFrame | None,
    config: ReadConfig,
) -> tuple[dict[str, Place], Places | None]:
    """Where the stations are: by --stations, by the file itself, or by a table in its folder."""
    if config.stations is not None:
        tables = [config._station_table or read_places(config.stations, config.geometry)]
    elif preamble is not None:
        tables = [places_of(preamble, str(path), config.geometry)]
    else:
        near = [] if path is None else _near(path)
        tables = [read_places(other, config.geometry) for other in near]
    found = [(table.locate(wanted), table) for table in tables]
    located, table = max(found, key=lambda pair: len(pair[0]), default=({}, None))
    return located, table if located else None


def points_at(
    table: Table, known: Mapping[str, Place], kind: Kind, named: bool = True
) -> tuple[Points, dict[str, np.ndarray]]:
    """Points, and their altitudes if any is known; errors are told with the table's name."""
    places = list(known.values())
    heights = np.array([place[2] if len(place) > 2 else np.nan for place in places])
    try:
        points = Points(np.array([p[:2] for p in places]), kind, tuple(known) if named else ())
    except DataError as error:
        raise DataError(f"'{table.origin}': {error}") from None
    return points, {} if np.isnan(heights).all() else {"altitude": heights}


def _near(path: Path) -> list[Path]:
    """Tables of places in the same folder."""
    others = [
        other
        for other in sorted(path.parent.iterdir())
        if other.is_file() and re.search(r"\.(csv|tsv|txt)(\.(gz|bz2|xz|zst))?$", other.name, re.I)
    ][:MOST_SIBLINGS]
    marks = [(other, (stat := other.stat()).st_size, stat.st_mtime_ns) for other in others]
    return [other for other, size, changed in marks if _lists_places(other, size, changed)]


@lru_cache(maxsize=2 * MOST_SIBLINGS)
def _lists_places(path: Path, size: int, changed: int) -> bool:
    return size <= LARGEST and is_places(path)


def _loose(name: str) -> str:
    return re.sub(r"[\s_]+", " ", name.strip().casefold())


def is_places(path: Path) -> bool:
    """Whether a file lists places: positions, and no time."""
    try:
        with readable(path, "a CSV table"):
            text = Text(path)
    except (DataError, ResourceError):
        return False
    columns = find_columns(text.names, text.sample, ReadConfig())
    return not columns.time and columns.where is not None
