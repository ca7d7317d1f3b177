"""A long table, one row for each station and time: its columns are collected block by block.

What is kept of a row are its time, the number of its station, and its values as float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Kind, Points
from stonet.errors import DataError, ResourceError
from stonet.io.accumulator import SENTINEL
from stonet.io.lazy_source import NoValues
from stonet.io.tables.columns import MISSING_MARKS, Columns, Table, find_columns, quote_names
from stonet.io.tables.time_column import TimeColumn
from stonet.system.resources import memory_budget, size_label

if TYPE_CHECKING:
    import pandas as pd

Position = tuple[float, ...]  # two coordinates and possibly the altitude
Station = str | Position  # a name, or the position of a station without one
BOOLEANS = {"true": "1", "false": "0"}
HEMISPHERES = {"n": 1.0, "e": 1.0, "s": -1.0, "w": -1.0}  # 57.05N, 10.33W
MAX_SHIFT = 1e-4  # degrees or units of the plane between two positions of one station
BYTES_PER_ROW = 20  # of time and station number, while they are collected


@dataclass(frozen=True)
class LongTable:
    """All rows of a long table.

    Args:
        stations: names or positions, by number.
        named: whether `stations` are names.
        positions: all positions that the rows give a station.
        altitudes: of each station, NaN where unknown.
        codes: number of each row's station.
        times: of each row, in nanoseconds.
        calendar: whether `times` are dates.
        values: of each row.
        channels: name and unit of each column of `values`.
        notes: what reading did or assumed.
    """

    stations: tuple[Station, ...]
    named: bool
    positions: dict[Station, set[Position]]
    altitudes: Float64[np.ndarray, " station"]
    codes: Int64[np.ndarray, " row"]
    times: Int64[np.ndarray, " row"]
    calendar: bool
    values: Float32[np.ndarray, "row column"]
    channels: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def read_rows(
    table: Table,
    columns: Columns,
    config: ReadConfig,
    station_name: str = "",
    month_first: bool = False,
) -> LongTable:
    """Read all rows, within the memory budget.

    A column named `height` and the like is an altitude only if it is constant at every station.
    Where it is not, reading starts again, usually after the first block, and takes it as a channel.

    Args:
        table: whose rows are read.
        columns: roles of its columns.
        config: options of reading.
        station_name: the station of all rows, in a table without names and positions.
        month_first: whether 03/04/06 is known to be in March.
    """
    while (rows := _read_rows(table, columns, config, station_name, month_first)) is None:
        assert columns.altitude is not None
        not_altitude = (*columns.not_altitude, columns.altitude)
        columns = find_columns(table.names, table.sample, config, not_altitude)
    return rows


def _read_rows(
    table: Table, columns: Columns, config: ReadConfig, station_name: str, month_first: bool
) -> LongTable | None:
    """All rows; None if the altitude changes at a station."""
    times = TimeColumn(table, columns.time, config, columns.kind == "plane", month_first)
    numbers = NumericColumns(table, columns.values, columns.values if config.variables else ())
    stations = StationIndex(table, columns, config, station_name)
    codes: list[np.ndarray] = []
    labels = [*columns.time[1:], *([columns.station] if columns.station else [])]
    size = 0
    for block in table.blocks(columns.used, labels):
        has_time, station = times.add(block), stations.add(block)
        if stations.altitude_varies:
            return None
        rows = complete_rows(table, block, has_time, station)
        times.keep(rows)
        codes.append(station[rows].astype(np.int32))
        size += numbers.add(block, rows) + BYTES_PER_ROW * int(rows.sum())
        check_budget(table, size)
    if not codes or not sum(map(len, codes)):
        raise DataError(f"'{table.origin}' has a header and no rows.")
    row_times, calendar, notes = times.finish()
    names, values = numbers.finish()
    if not names:
        raise no_numeric_columns(table, tuple(columns.values), columns.altitude)
    notes = (*notes, *numbers.notes(columns.values), *_altitude_notes(columns))
    if columns.ignored:
        notes = (*notes, f"Columns not needed are left out: {', '.join(columns.ignored)}.")
    return LongTable(
        stations=tuple(stations.numbers),
        named=columns.station is not None or columns.coordinates is None,
        positions=stations.positions,
        altitudes=stations.altitudes,
        codes=np.concatenate(codes).astype(np.int64),
        times=row_times,
        calendar=calendar,
        values=values,
        channels=tuple(columns.values[name] for name in names),
        notes=notes,
    )


# Stations


class StationIndex:
    """Numbers the stations of the rows, and collects their positions and altitudes.

    Args:
        table: that the blocks are from.
        columns: roles of its columns.
        config: values that mean missing.
        station_name: of all rows, in a table without stations.
    """

    def __init__(
        self, table: Table, columns: Columns, config: ReadConfig, station_name: str
    ) -> None:
        self.table, self.columns, self.station_name = table, columns, station_name
        self.missing = (SENTINEL, *config.missing)
        self.numbers: dict[Station, int] = {}
        self.positions: dict[Station, set[Position]] = {}
        self.altitudes = np.empty(0)  # the first of each station
        self.altitude_varies = False  # whether a station has two: then it is a channel

    def add(self, block: pd.DataFrame) -> Int64[np.ndarray, " row"]:
        """The number of each row's station; -1 where the row has none.

        Args:
            block: consecutive rows.
        """
        import pandas as pd

        codes: np.ndarray
        stations: list[Station]
        position_codes, positions = self._positions(block)
        if self.columns.station is not None:
            codes, uniques = pd.factorize(block[self.columns.station])
            stations = [_station_name(name) for name in uniques]
            count = len(positions)
            pairs = np.unique(codes * count + position_codes) if count else np.empty(0, np.int64)
            for pair in pairs[pairs >= 0]:
                self._add_position(stations[pair // count], positions[pair % count])
        elif self.columns.coordinates is not None:
            codes, stations = position_codes, list(positions[:-1])
            for position in positions[:-1]:
                self._add_position(position, position)
        else:
            codes, stations = np.zeros(len(block), dtype=np.int64), [self.station_name]
        numbers = [self._number(station) for station in stations]
        rows = np.array([*numbers, -1], dtype=np.int64)[codes]
        self._add_altitudes(block, rows)
        return rows

    def _number(self, station: Station) -> int:
        if isinstance(station, tuple) and any(map(math.isnan, station)):
            return -1
        return self.numbers.setdefault(station, len(self.numbers))

    def _positions(self, block: pd.DataFrame) -> tuple[Int64[np.ndarray, " row"], list[Position]]:
        """The distinct positions of a block, the last for none; and their number in each row."""
        import pandas as pd

        if self.columns.coordinates is None:
            return np.zeros(len(block), dtype=np.int64), []
        axes = to_degrees(block, self.columns.coordinates, self.table.decimal, self.table.origin)
        key = np.zeros(len(block), dtype=np.int64)
        for axis in axes:
            codes, uniques = pd.factorize(axis, use_na_sentinel=False)
            key, _ = pd.factorize(key * len(uniques) + codes)
        _, first = np.unique(key, return_index=True)
        positions: list[Position] = [tuple(float(axis[row]) for axis in axes) for row in first]
        missing = np.isnan(axes[0]) | np.isnan(axes[1])
        return np.where(missing, len(positions), key), [*positions, (np.nan, np.nan)]

    def _add_position(self, station: Station, position: Position) -> None:
        if np.isfinite(position).all():
            self.positions.setdefault(station, set()).add(position)

    def _add_altitudes(self, block: pd.DataFrame, rows: Int64[np.ndarray, " row"]) -> None:
        new = len(self.numbers) - len(self.altitudes)
        self.altitudes = np.append(self.altitudes, np.full(new, np.nan))
        if self.columns.altitude is None:
            return
        altitudes, _ = to_numbers(block[self.columns.altitude], self.table.decimal)
        valid = (rows >= 0) & ~np.isnan(altitudes) & ~np.isin(altitudes, self.missing)
        rows, altitudes = rows[valid], altitudes[valid]
        stations, first = np.unique(rows, return_index=True)
        before = self.altitudes[stations]
        self.altitudes[stations] = np.where(np.isnan(before), altitudes[first], before)
        self.altitude_varies = bool((self.altitudes[rows] != altitudes).any())


def make_points(
    table: Table, positions: Mapping[Station, Position], kind: Kind
) -> tuple[Points, dict[str, np.ndarray]]:
    """Points of named or unnamed stations, and their altitudes if any is known.

    Args:
        table: for messages.
        positions: coordinates, and the altitude if known, of each station.
        kind: the geometry.
    """
    altitudes = np.array([p[2] if len(p) > 2 else np.nan for p in positions.values()])
    names = tuple(name for name in positions if isinstance(name, str))
    try:
        points = Points(np.array([p[:2] for p in positions.values()]), kind, names)
    except DataError as error:
        raise DataError(f"'{table.origin}': {error}") from None
    return points, {} if np.isnan(altitudes).all() else {"altitude": altitudes}


def _station_name(name: object) -> str:
    """The name of a station; an integer read as 12.0 is 12."""
    if isinstance(name, (float, np.floating)) and float(name).is_integer():
        return str(int(name))
    return str(name).strip()


def _altitude_notes(columns: Columns) -> list[str]:
    return [
        f"'{name}' changes at a station, so it is not an altitude"
        + (" but a channel." if name in columns.values else ".")
        for name in columns.not_altitude
    ]


# Numbers


class NumericColumns:
    """Collects the columns of numbers of a table's blocks as float32; text columns are left out.

    Args:
        table: whose rows are read.
        columns: their names.
        requested: columns in which any text is an error.
    """

    def __init__(self, table: Table, columns: Iterable[str], requested: Iterable[str] = ()) -> None:
        self.table, self.requested = table, frozenset(requested)
        self.blocks: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        self.numeric: set[str] = set()  # columns with at least one number
        self.texts: list[str] = []

    def add(self, block: pd.DataFrame, rows: Bool[np.ndarray, " row"]) -> int:
        """Collect these rows of a block; returns their size in bytes.

        Args:
            block: consecutive rows.
            rows: those of them to keep.
        """
        for name in list(self.blocks):
            numbers, is_text = to_numbers(block[name], self.table.decimal)
            if is_text.any() and self._is_text_column(name, numbers, is_text):
                self.texts.append(name)
                del self.blocks[name]
                continue
            if is_text.any():
                raise self._not_a_number(name, block, is_text)
            if not np.isnan(numbers).all():
                self.numeric.add(name)
            with np.errstate(over="ignore"):  # becomes infinite, and is treated as such
                numbers = numbers.astype(np.float32)
            self.blocks[name].append(numbers if rows.all() else numbers[rows])
        return sum(parts[-1].nbytes for parts in self.blocks.values() if parts)

    def finish(self) -> tuple[tuple[str, ...], Float32[np.ndarray, "row column"]]:
        """The names and values of the numeric and of the requested columns."""
        names = tuple(n for n in self.blocks if n in self.numeric or n in self.requested)
        count = sum(map(len, self.blocks[names[0]])) if names else 0
        values = np.empty((count, len(names)), np.float32)
        for column, name in enumerate(names):
            values[:, column] = np.concatenate(self.blocks.pop(name))
        return names, values

    def notes(self, columns: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
        """Sentences on the columns that were left out.

        Args:
            columns: name and unit of each column of values.
        """
        empty = [name for name in columns if name in self.blocks and name not in self.numeric]
        notes = []
        if self.texts:
            notes.append(f"Columns of text are left out: {quote_names(self.texts)}.")
        if empty:
            notes.append(f"Columns without a value are left out: {quote_names(empty)}.")
        return tuple(notes)

    def _is_text_column(self, name: str, numbers: np.ndarray, is_text: np.ndarray) -> bool:
        count = (~np.isnan(numbers)).sum()
        return name not in self.requested | self.numeric and bool(is_text.sum() > count)

    def _not_a_number(self, name: str, block: pd.DataFrame, is_text: np.ndarray) -> DataError:
        row = int(is_text.argmax())
        example = quote_names([str(block[name].iloc[row])])
        return DataError(
            f"'{self.table.origin}': column '{name}' has {example} in {self.table.row_label} "
            f"{block.index[row]}; expected a number ({int(is_text.sum())} such cells near there). "
            "Correct them, leave them empty if they are missing, or choose other --variables."
        )


def to_numbers(
    column: pd.Series, decimal: str = "."
) -> tuple[np.ndarray, Bool[np.ndarray, " row"]]:
    """A column as float64, and where it holds text that is not a number.

    Args:
        column: of any type.
        decimal: "." or ",".
    """
    import pandas as pd

    if column.dtype.kind in "fiub":  # of NumPy, and nullable ones of pandas and arrow
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), dtype=bool)
    if column.dtype.kind not in "OUST":
        return np.full(len(column), np.nan), column.notna().to_numpy()
    codes, uniques = pd.factorize(column)  # parsing text is slow, and most of it is repeated
    texts = pd.Series([str(text).strip() for text in uniques], dtype=object)
    if decimal == ",":
        texts = texts.str.replace(",", ".", regex=False)
    lower = texts.str.lower()
    texts = texts.mask(lower.isin(BOOLEANS), lower.map(BOOLEANS))
    parsed = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64)
    wrong = np.isnan(parsed) & ~texts.isin(MISSING_MARKS).to_numpy(bool)
    return np.r_[parsed, np.nan][codes], np.r_[wrong, False][codes]


def to_degrees(
    frame: pd.DataFrame, columns: tuple[str, str], decimal: str, origin: str
) -> list[np.ndarray]:
    """The two columns of coordinates as numbers; 57.05N and 10.33W are understood.

    Args:
        frame: a block.
        columns: of the two coordinates.
        decimal: "." or ",".
        origin: the file, for messages.
    """
    axes = []
    for name in columns:
        numbers, is_text = to_numbers(frame[name], decimal)
        if is_text.any():
            texts = frame[name][is_text].astype(str).str.strip().str.lower()
            magnitude, _ = to_numbers(texts.str[:-1], decimal)
            numbers[is_text] = magnitude * texts.str[-1].map(HEMISPHERES).to_numpy(np.float64)
        wrong = is_text & np.isnan(numbers)
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"'{origin}': columns {list(columns)} must hold numbers; '{name}' has "
                f"{quote_names([str(frame[name].iloc[row])])} in row {frame.index[row]}."
            )
        axes.append(numbers + 0.0)  # -0.0 becomes 0.0
    return axes


# Checks that wide tables share


def complete_rows(
    table: Table, block: pd.DataFrame, has_time: np.ndarray, station: np.ndarray
) -> Bool[np.ndarray, " row"]:
    """Rows with a time and a station; others must be empty.

    Args:
        table: for messages.
        block: consecutive rows.
        has_time: whether each row has a time.
        station: number of each row's station; -1 without one.
    """
    incomplete = ~has_time | (station < 0)
    if not incomplete.any():
        return ~incomplete
    empty = block.isna().all(axis=1).to_numpy()
    wrong = incomplete & ~empty
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"'{table.origin}': {table.row_label} {block.index[row]} has no "
            f"{'time' if not has_time[row] else 'station or position'} ({int(wrong.sum())} such "
            "rows near there). Fill it in, or remove the row."
        )
    return ~empty


def check_budget(table: Table, size: int) -> None:
    """Refuse to keep more bytes than the memory budget.

    Args:
        table: for the message.
        size: in bytes.
    """
    if size > memory_budget():
        raise ResourceError(
            f"'{table.origin}' takes more memory than the budget ({size_label(memory_budget())}, "
            "see STONET_MEMORY). Choose --variables, or split it into several files."
        )


def no_numeric_columns(
    table: Table, columns: Sequence[str], altitude: str | None = None
) -> NoValues:
    """The error for a table whose columns hold nothing but text, or an altitude.

    Args:
        table: for the message.
        columns: that hold no numbers.
        altitude: the only column of numbers, if it was taken for the altitude.
    """
    if not columns:
        return NoValues(
            f"'{table.origin}' holds no values to forecast: '{altitude}' never changes at a "
            f"station, so it is the altitude. If it was measured: --variables '{altitude}'."
        )
    return NoValues(
        f"'{table.origin}' holds no values to forecast: its columns {quote_names(columns)} are "
        "text or empty."
    )
