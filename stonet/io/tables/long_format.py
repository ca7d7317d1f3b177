"""A long table: one row for each station and time. Kept compactly, then arranged in frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError
from stonet.io.accumulator import SENTINEL
from stonet.io.lazy_source import LazySource, NoValues
from stonet.io.tables.columns import Columns, Table, find_columns, listed
from stonet.io.tables.numeric_columns import Numbers, to_numbers
from stonet.io.tables.station_locations import APART, Place, to_degrees
from stonet.io.tables.time_column import Times
from stonet.system.spill import memory_budget, size_label

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Rows:
    """What the rows say, by numbers: of the station, and of the place where it was said to be."""

    stations: tuple[str, ...]
    named: bool
    places: dict[str, set[Place]]
    heights: Float64[np.ndarray, " station"]  # NaN where not told
    codes: Int64[np.ndarray, " row"]
    times: Int64[np.ndarray, " row"]
    calendar: bool
    values: Float32[np.ndarray, "row column"]
    channels: tuple[tuple[str, str], ...]  # name and unit of each column
    notes: tuple[str, ...]


class Stations:
    """Numbers for stations, and where and how high the rows say that they are."""

    def __init__(self, table: Table, columns: Columns, config: ReadConfig, alone: str) -> None:
        self.table, self.columns, self.alone = table, columns, alone
        self.absent = (SENTINEL, *config.missing)
        self.numbers: dict[str, int] = {}
        self.places: dict[str, set[Place]] = {}
        self.heights = np.empty(0)  # of each station the first that was told
        self.varied = False  # whether a station was told to have two: then they are no altitudes

    def add(self, block: pd.DataFrame) -> Int64[np.ndarray, " row"]:
        """The number of each row's station; -1 where the row does not tell."""
        import pandas as pd

        spots, found = self._spots(block)
        if self.columns.station is not None:
            codes, uniques = pd.factorize(block[self.columns.station])
            names = [_label(name) for name in uniques]
            known = np.unique(codes * len(found) + spots) if len(found) else np.empty(0, np.int64)
            for pair in known[known >= 0]:
                self._put(names[pair // len(found)], found[pair % len(found)])
        elif self.columns.where is not None:
            codes, names = spots, [repr(place) for place in found[:-1]]
            for name, place in zip(names, found[:-1], strict=True):
                self._put(name, place)
        else:
            codes, names = np.zeros(len(block), dtype=np.int64), [self.alone]
        lookup = [self.numbers.setdefault(name, len(self.numbers)) for name in names]
        stations = np.array([*lookup, -1], dtype=np.int64)[codes]
        self._see_heights(block, stations)
        return stations

    def _see_heights(self, block: pd.DataFrame, stations: Int64[np.ndarray, " row"]) -> None:
        unknown = len(self.numbers) - len(self.heights)
        self.heights = np.append(self.heights, np.full(unknown, np.nan))
        if self.columns.altitude is None:
            return
        heights, _ = to_numbers(block[self.columns.altitude], self.table.decimal)
        told = (stations >= 0) & ~np.isnan(heights) & ~np.isin(heights, self.absent)
        stations, heights = stations[told], heights[told]
        who, first = np.unique(stations, return_index=True)
        self.heights[who] = np.where(np.isnan(self.heights[who]), heights[first], self.heights[who])
        self.varied = bool((self.heights[stations] != heights).any())

    def _spots(self, block: pd.DataFrame) -> tuple[Int64[np.ndarray, " row"], list[Place]]:
        """A number for each distinct position in the block; the last stands for none."""
        import pandas as pd

        if self.columns.where is None:
            return np.zeros(len(block), dtype=np.int64), []
        axes = to_degrees(block, self.columns.where, self.table.decimal, self.table.origin)
        key = np.zeros(len(block), dtype=np.int64)
        for axis in axes:
            codes, uniques = pd.factorize(axis, use_na_sentinel=False)
            key, _ = pd.factorize(key * len(uniques) + codes)
        _, first = np.unique(key, return_index=True)
        found = [tuple(float(axis[row]) for axis in axes) for row in first]
        lost = np.isnan(axes[0]) | np.isnan(axes[1])
        return np.where(lost, len(found), key), [*found, (np.nan, np.nan)]

    def _put(self, name: str, place: Place) -> None:
        if np.isfinite(place).all():
            self.places.setdefault(name, set()).add(place)


def collect(
    table: Table,
    columns: Columns,
    config: ReadConfig,
    alone: str = "",
    month_first: bool = False,
) -> Rows:
    """Read the table; what is kept of it must fit the memory budget.

    A column called `height` and the like is the altitude only if no station has two of them. Where
    one has, reading starts again, usually after the first block, and takes it as a measurement.
    """
    while (rows := _collected(table, columns, config, alone, month_first)) is None:
        assert columns.altitude is not None
        measured = (*columns.measured, columns.altitude)
        columns = find_columns(table.names, table.sample, config, measured)
    return rows


def _collected(
    table: Table, columns: Columns, config: ReadConfig, alone: str, month_first: bool
) -> Rows | None:
    """None where the altitude turns out to be none."""
    times = Times(table, columns.time, config, columns.kind == "plane", month_first)
    numbers = Numbers(table, columns.values, columns.values if config.variables else ())
    stations = Stations(table, columns, config, alone)
    codes: list[np.ndarray] = []
    labels = [*columns.time[1:], *([columns.station] if columns.station else [])]
    size = 0
    for block in table.blocks(columns.used, labels):
        there, station = times.add(block), stations.add(block)
        if stations.varied:
            return None
        rows = whole_rows(table, block, there, station)
        times.keep(rows)
        codes.append(station[rows].astype(np.int32))
        size += numbers.add(block, rows) + 20 * int(rows.sum())
        check_budget(table, size)
    if not codes or not sum(map(len, codes)):
        raise DataError(f"'{table.origin}' has a header and no rows.")
    moments, calendar, notes = times.finish()
    names, values = numbers.finish()
    if not names:
        raise no_numbers(table, tuple(columns.values), columns.altitude)
    notes = (*notes, *numbers.notes(columns.values), *_no_altitudes(columns))
    if columns.ignored:
        notes = (*notes, f"Columns not needed are left out: {', '.join(columns.ignored)}.")
    return Rows(
        tuple(stations.numbers),
        columns.station is not None or columns.where is None,
        stations.places,
        stations.heights,
        np.concatenate(codes).astype(np.int64),
        moments,
        calendar,
        values,
        tuple(columns.values[name] for name in names),
        notes,
    )


def _no_altitudes(columns: Columns) -> list[str]:
    """What is told of columns that are called as an altitude is."""
    return [
        f"'{name}' changes at a station, so it is no altitude"
        + (" but a channel." if name in columns.values else ".")
        for name in columns.measured
    ]


def arrange(rows: Rows, order: Sequence[int], points: Points, **rest: Any) -> LazySource:
    """Frames of the rows: order[i] is the number in `rows` of the i-th point.

    A time that a station has several times makes as many frames; assembly settles them.
    """
    import pandas as pd

    place = np.full(len(rows.stations), -1, dtype=np.int64)
    place[np.asarray(order, dtype=np.int64)] = np.arange(len(order))
    nodes = place[rows.codes]
    kept = np.flatnonzero(nodes >= 0)
    whole = len(kept) == len(nodes)
    nodes, moments = (nodes, rows.times) if whole else (nodes[kept], rows.times[kept])
    found, instants = pd.factorize(moments)
    ranks = np.argsort(instants, kind="stable")
    rank = np.empty(len(instants), dtype=np.int64)
    rank[ranks] = np.arange(len(instants))
    instants, frame = np.asarray(instants)[ranks], rank[found]
    key = frame * len(points) + nodes
    sorted_rows = _sorted(key)
    key = key[sorted_rows]
    again = _occurrence(key)
    if again.any():
        most = int(again.max()) + 1
        frames, frame = np.unique(key // len(points) * most + again, return_inverse=True)
        instants = instants[frames // most]
        key = frame * len(points) + key % len(points)
        late = _sorted(key)
        key, sorted_rows = key[late], sorted_rows[late]
    values = rows.values if whole else rows.values[kept]
    values = values if _is_range(sorted_rows) else values[sorted_rows]

    def frames_between(start: int, stop: int) -> np.ndarray:
        low, high = np.searchsorted(key, (start * len(points), stop * len(points)))
        block = np.full(((stop - start) * len(points), values.shape[1]), np.nan, np.float32)
        block[key[low:high] - start * len(points)] = values[low:high]
        return block.reshape(stop - start, len(points), values.shape[1])

    return LazySource(
        times=instants,
        points=points,
        frames=frames_between,
        calendar=rows.calendar,
        named=rows.named,
        **rest,
    )


def settled_place(name: str, places: set[Place], origin: str) -> Place:
    """The one position of a station; of some within the tolerance, always the same."""
    ordered = sorted(places)
    if np.ptp(np.array(ordered), axis=0).max() > APART:
        told = " and ".join(f"({a:g}, {b:g})" for a, b in ordered[:3])
        raise DataError(
            f"'{origin}': station '{name}' is at {told}; a station stays where it is. Give "
            "different stations different names."
        )
    return ordered[0]


def no_numbers(table: Table, columns: Sequence[str], altitude: str | None = None) -> NoValues:
    """The error for a table whose columns hold nothing but text, or an altitude."""
    if not columns:
        return NoValues(
            f"'{table.origin}' holds no numbers to forecast: '{altitude}' never changes at a "
            f"station, so it is the altitude. If it was measured: --variables '{altitude}'."
        )
    return NoValues(
        f"'{table.origin}' holds no numbers to forecast: its columns {listed(columns)} are text or "
        "empty."
    )


def check_budget(table: Table, size: int) -> None:
    """Refuse to keep more than the memory budget."""
    if size > memory_budget():
        raise ResourceError(
            f"'{table.origin}' takes more memory than the budget ({size_label(memory_budget())}, "
            "see STONET_MEMORY). Choose --variables, or split it into several files."
        )


def whole_rows(
    table: Table, block: pd.DataFrame, there: np.ndarray, station: np.ndarray
) -> Bool[np.ndarray, " row"]:
    """Which rows count; those that are empty do not, and others must tell station and time."""
    lacking = ~there | (station < 0)
    if not lacking.any():
        return ~lacking
    empty = block.isna().all(axis=1).to_numpy()
    wrong = lacking & ~empty
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"'{table.origin}': {table.row} {block.index[row]} has no "
            f"{'time' if not there[row] else 'station or position'} ({int(wrong.sum())} such rows "
            "near there). Fill it in, or remove the row."
        )
    return ~empty


def _label(name: object) -> str:
    """A station's name; a whole number read as 12.0 is 12."""
    if isinstance(name, (float, np.floating)) and float(name).is_integer():
        return str(int(name))
    return str(name).strip()


def _sorted(key: np.ndarray) -> np.ndarray:
    if (np.diff(key) >= 0).all():
        return np.arange(len(key))
    return np.argsort(key, kind="stable")


def _is_range(index: np.ndarray) -> bool:
    return bool((index == np.arange(len(index))).all())


def _occurrence(key: np.ndarray) -> np.ndarray:
    """How often each entry of a sorted array occurred before."""
    position = np.arange(len(key))
    first = np.r_[True, np.diff(key) > 0][: len(key)]
    return position - np.maximum.accumulate(np.where(first, position, 0))
