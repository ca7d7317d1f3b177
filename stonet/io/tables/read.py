"""Station tables as lazy sources: long, wide, or one file for each station."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Kind
from stonet.errors import DataError
from stonet.io.lazy_source import LazySource, NoValues
from stonet.io.safety import check_plain, readable
from stonet.io.tables.columns import (
    Columns,
    RenamedTable,
    Table,
    find_columns,
    is_named,
    quote_names,
)
from stonet.io.tables.csv_file import CsvTable
from stonet.io.tables.dataframe import DataFrameTable, ParquetTable
from stonet.io.tables.long_format import (
    MAX_SHIFT,
    LongTable,
    Position,
    Station,
    make_points,
    read_rows,
)
from stonet.io.tables.station_locations import NREL, StationTable, locate, position_in_file_name
from stonet.io.tables.wide_format import read_wide

MIN_LOCATED = 0.5  # share of the stations that a table of stations must list, unless it was given


def open_table(path: Path, config: ReadConfig) -> list[LazySource]:
    """The content of a CSV or Parquet file.

    Args:
        path: of the file.
        config: what is selected, and how it is read.
    """
    check_plain(path)
    with readable(path, "a table"):
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1" or path.suffix.lower() in (".parquet", ".pq")
        return [_open(ParquetTable(path) if parquet else CsvTable(path), config)]


def from_frame(table: Any, origin: str, config: ReadConfig) -> list[LazySource]:
    """The content of a table in memory: pandas, or anything with to_pandas().

    Args:
        table: pandas, polars or arrow.
        origin: its name, for messages.
        config: what is selected, and how it is read.
    """
    with readable(origin, "a table"):
        return [_open(DataFrameTable(table, origin), config)]


def _open(table: Table, config: ReadConfig) -> LazySource:
    """A table, whose columns may get other names."""
    if not config.rename:
        return _recognise(table, config)
    renamed = RenamedTable(table, config.rename)
    return replace(_recognise(renamed, config), renamed=renamed.renamed)


def _recognise(table: Table, config: ReadConfig) -> LazySource:
    """Recognise the layout of a table: long, wide, or of a single station."""
    columns = find_columns(table.names, table.sample, config)
    if not columns.time:
        raise _no_time_column(table, columns)
    _check_zone(table, config)
    if columns.coordinates is not None or columns.station is not None:
        return _open_long(table, columns, config)
    position = position_in_file_name(table.title)
    if position is not None:
        return _open_single_station(table, columns, config, position, "sphere")
    names = [name for name in table.names if name not in columns.time and is_named(name)]
    preamble = table.preamble
    if preamble is not None and len(preamble) == 1:  # of one station, whatever its name
        preamble = preamble.assign(station=table.title)
    located, source = locate([*names, table.title], table.path, preamble, config)
    positions = {name: position for name, position in located.items() if name in names}
    if source and len(positions) > (0 if config.stations else MIN_LOCATED * len(names)):
        notes = _location_notes(table, names, positions, source, config)
        return read_wide(table, columns, positions, source.kind, config, notes)
    if source and located:
        return _open_single_station(table, columns, config, located[table.title], source.kind)
    raise _no_positions(table, names, config, table.title)


def _open_long(table: Table, columns: Columns, config: ReadConfig) -> LazySource:
    """One row for each station and time; positions in the rows, or from a table of stations."""
    _check_values(table, columns, config)
    rows = read_rows(table, columns, config)
    positions: dict[Station, Position] = {
        station: _single_position(station, given, table.origin)
        for station, given in rows.positions.items()
    }
    unlocated = [str(station) for station in rows.stations if station not in positions]
    kind, notes = columns.kind, rows.notes
    if unlocated:
        located, source = locate(unlocated, table.path, table.preamble, config)
        kind = source.kind if source and not positions else kind
        positions.update(located)
        if not positions:
            raise _no_positions(table, rows.stations, config)
        notes += _location_notes(table, rows.stations, positions, source, config)
    if rows.named:
        stations = sorted((s for s in rows.stations if s in positions), key=_numbers_first)
    else:
        stations = sorted(positions, key=positions.__getitem__)
    return _to_frames(
        table, rows, {name: positions[name] for name in stations}, kind, notes, config
    )


def _open_single_station(
    table: Table, columns: Columns, config: ReadConfig, position: Position, kind: Kind
) -> LazySource:
    """A file of one station, named after the file."""
    _check_values(table, columns, config)
    name = table.title
    rows = read_rows(table, columns, config, name, month_first=bool(NREL.fullmatch(name)))
    return _to_frames(table, rows, {name: position}, kind, rows.notes, config)


def _to_frames(
    table: Table,
    rows: LongTable,
    positions: Mapping[Station, Position],
    kind: Kind,
    notes: tuple[str, ...],
    config: ReadConfig,
) -> LazySource:
    """The rows as frames of all stations.

    A time that a station has several times gives as many frames; `merge` resolves them.
    """
    number = {station: code for code, station in enumerate(rows.stations)}
    positions = {
        station: given if len(given) > 2 else (*given, float(rows.altitudes[number[station]]))
        for station, given in positions.items()
    }
    points, sites = make_points(table, positions, kind)
    nodes = np.full(len(rows.stations), -1, dtype=np.int64)
    nodes[[number[station] for station in positions]] = np.arange(len(positions))
    equal_ones_count = config.every is not None or config.duplicates == "mean"
    distinct = None if equal_ones_count else rows.values
    times, key, order = _sort_rows(nodes[rows.codes], rows.times, len(points), distinct)
    dropped = int((nodes[rows.codes] >= 0).sum()) - len(order)
    if dropped:
        notes = (
            *notes,
            f"{dropped} rows repeat the one before of their station and time (equal, merged).",
        )
    is_sorted = np.array_equal(order, np.arange(len(rows.codes)))
    values = rows.values if is_sorted else rows.values[order]

    def frames(start: int, stop: int) -> np.ndarray:
        low, high = np.searchsorted(key, (start * len(points), stop * len(points)))
        block = np.full(((stop - start) * len(points), values.shape[1]), np.nan, np.float32)
        block[key[low:high] - start * len(points)] = values[low:high]
        return block.reshape(stop - start, len(points), values.shape[1])

    return LazySource(
        origin=table.origin,
        times=times,
        points=points,
        channels=tuple(channel for channel, _ in rows.channels),
        units=tuple(unit for _, unit in rows.channels),
        frames=frames,
        calendar=rows.calendar,
        named=rows.named,
        sites=sites,
        notes=notes,
    )


def _sort_rows(
    nodes: Int64[np.ndarray, " row"],
    times: Int64[np.ndarray, " row"],
    count: int,
    values: Float32[np.ndarray, "row column"] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times of the frames, `frame * count + node` of each row in order, and the sorted rows.

    Args:
        nodes: of each row; negative: left out.
        times: of each row.
        count: number of nodes.
        values: of each row, by which a row that repeats another one is dropped (None: none is).
    """
    import pandas as pd

    kept = np.flatnonzero(nodes >= 0)
    codes, uniques = pd.factorize(times[kept])
    ranked = np.argsort(uniques, kind="stable")
    rank = np.empty(len(uniques), dtype=np.int64)
    rank[ranked] = np.arange(len(uniques))
    frame_times = np.asarray(uniques)[ranked]
    key = rank[codes] * count + nodes[kept]
    order = _stable_order(key)
    key = key[order]
    if values is not None:
        changed = _changed(key, values, kept[order])
        key, order = key[changed], order[changed]
    position = np.arange(len(key))
    is_first = np.r_[True, np.diff(key) > 0][: len(key)]
    occurrence = position - np.maximum.accumulate(np.where(is_first, position, 0))
    if occurrence.any():  # a station has a time several times
        repeats = int(occurrence.max()) + 1
        frames, frame = np.unique(key // count * repeats + occurrence, return_inverse=True)
        frame_times = frame_times[frames // repeats]
        key = frame * count + key % count
        again = _stable_order(key)
        key, order = key[again], order[again]
    return frame_times, key, kept[order]


def _changed(
    key: Int64[np.ndarray, " sorted"],
    values: Float32[np.ndarray, "row column"],
    order: Int64[np.ndarray, " sorted"],
) -> Bool[np.ndarray, " sorted"]:
    """Which of the sorted rows differ from the one before, by key or by value."""
    changed = np.r_[True, np.diff(key) > 0][: len(key)]
    again = np.flatnonzero(~changed)
    row, before = values[order[again]], values[order[again - 1]]
    changed[again] = ((row != before) & ~(np.isnan(row) & np.isnan(before))).any(axis=1)
    return changed


def _stable_order(key: np.ndarray) -> np.ndarray:
    if (np.diff(key) >= 0).all():
        return np.arange(len(key))
    return np.argsort(key, kind="stable")


def _single_position(station: Station, positions: set[Position], origin: str) -> Position:
    """The position of a station; of several within the tolerance, always the same."""
    ordered = sorted(positions)
    if np.ptp(np.array(ordered), axis=0).max() > MAX_SHIFT:
        examples = " and ".join(f"({a:g}, {b:g})" for a, b in ordered[:3])
        raise DataError(
            f"'{origin}': station '{station}' is at {examples}, but a station has one position. "
            "Give different stations different names."
        )
    return ordered[0]


def _numbers_first(name: Station) -> tuple[int, int, str]:
    """A sorting key: names that are numbers in their order, then the others in theirs."""
    text = str(name)
    return (0, int(text), text) if text.isascii() and text.isdigit() else (1, 0, text)


# Checks and messages


def _location_notes(
    table: Table,
    stations: Sequence[Station],
    positions: Mapping[Any, Position],
    source: StationTable | None,
    config: ReadConfig,
) -> tuple[str, ...]:
    """Where positions come from, and which stations are left out because they have none."""
    unlocated = [str(station) for station in stations if station not in positions]
    if len(unlocated) > (1 - MIN_LOCATED) * len(stations) and not config.stations:
        raise _no_positions(table, unlocated, config)
    notes = []
    if source is not None and source.origin not in (config.stations, table.origin):
        notes.append(f"Positions are from '{source.origin}'.")
    if unlocated:
        notes.append(
            f"{len(unlocated)} of {len(stations)} stations have no known position and are left "
            f"out: {quote_names(unlocated)}."
        )
    return tuple(notes)


def _check_zone(table: Table, config: ReadConfig) -> None:
    """Refuse to ignore a time zone above the rows, as Open-Meteo writes it."""
    if table.preamble is None or "timezone" not in table.preamble or config.timezone:
        return
    local = [zone for zone in table.preamble["timezone"].dropna() if zone not in ("UTC", "GMT")]
    if local:
        raise DataError(
            f"'{table.origin}' states that its times are those of {local[0]}. Give --timezone "
            f"{local[0]}."
        )


def _check_values(table: Table, columns: Columns, config: ReadConfig) -> None:
    """Refuse a table without a column of values; the rows decide whether a height is one."""
    if columns.values or (columns.altitude is not None and not config.variables):
        return
    available = [
        channel
        for channel, _ in find_columns(table.names, table.sample, ReadConfig()).values.values()
    ]
    if config.variables:
        raise NoValues(
            f"'{table.origin}' has no variable {quote_names(config.variables)}; there are: "
            f"{quote_names(available) or 'none'}.",
            available,
        )
    raise DataError(
        f"'{table.origin}' has no column of values beside {quote_names(columns.used)}; expected at "
        "least one."
    )


def _no_time_column(table: Table, columns: Columns) -> DataError:
    if columns.coordinates is not None:
        return NoValues(f"'{table.origin}' is a table of stations; it has no time column.")
    hint = ""
    if any(name.replace(".", "").replace("-", "").isdigit() for name in table.names):
        hint = " Its first line seems to hold values: put a line with names above it."
    return DataError(
        f"'{table.origin}' has no time column among {quote_names(table.names)}; expected 'time', "
        f"'date', 'datetime', 'timestamp', 'ds', or year, month and day.{hint}"
    )


def _no_positions(
    table: Table, names: Sequence[Station], config: ReadConfig, single: str = ""
) -> DataError:
    """The error for stations without positions.

    Args:
        table: whose rows are read.
        names: of the stations.
        config: options of reading.
        single: the name of the station, if the table is of one.
    """
    where = f"'{config.stations}' does not list" if config.stations else "no table lists"
    other = f" (nor '{single}', if this is the file of one station)" if single else ""
    return DataError(
        f"'{table.origin}' has no positions (lat and lon, or x and y), and "
        f"{where} {quote_names([str(name) for name in names], 5)}{other}. Give a CSV table with "
        "their names and lat, lon: --set read.stations=places.csv."
    )
