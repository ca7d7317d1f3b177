"""Accumulator: the cells of a field while files are painted into them, block by block."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.durations import UNITS, parse_duration
from stonet.data.field import time_label
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.io.lazy_source import LazySource
from stonet.system.progress import tell
from stonet.system.spill import Room, memory_budget

BLOCK = 2**24  # cells read at a time
SENTINEL = -9999.0  # means "not observed" to nearly everyone who writes it
LISTED = 5  # conflicts named in a message


class Accumulator:
    """The cells to be filled, and who filled them."""

    def __init__(
        self,
        times: Int64[np.ndarray, " time"],
        points: Points,
        channels: tuple[str, ...],
        config: ReadConfig,
        calendar: bool,
    ) -> None:
        shape = (len(times), len(points), len(channels))
        averaged = config.every is not None or config.duplicates == "mean"
        room = Room(
            int(np.prod(shape, dtype=object)), 9 if averaged else 5, " x ".join(map(str, shape))
        )
        self.values = room.zeros(shape, np.float32)
        self.mask = room.zeros(shape, np.bool_)
        self.count = room.zeros(shape, np.uint32) if averaged else None
        self.times, self.points, self.channels = times, points, channels
        self.config, self.calendar = config, calendar
        self.repeated = self.sentinels = self.infinite = 0
        self.done = self.total = 0  # frames, for whoever watches

    def add(self, part: LazySource) -> None:
        """Put the part's values into their cells, block by block."""
        rows = np.searchsorted(self.times, in_bins(part.times, self.config))
        columns = [self.channels.index(name) for name in part.channels]
        every = columns == list(range(len(self.channels)))
        length = max(1, cells_at_once() // max(1, part.cells))  # of what is read, kept or not
        for start in range(0, len(rows), length):
            stop = min(start + length, len(rows))
            block = self._cleaned(np.asarray(part.frames(start, stop), np.float32), part, start)
            for chosen in _once_each(rows[start:stop]):
                where = rows[start:stop][chosen]
                if every:
                    self._settle(where, slice(None), block[chosen], part)
                else:
                    for number, column in enumerate(columns):
                        cells = slice(column, column + 1)
                        self._settle(where, cells, block[chosen][..., number : number + 1], part)
            self.done += stop - start
            tell(self.done, self.total)

    def _settle(
        self, rows: Int64[np.ndarray, " row"], cells: slice, block: np.ndarray, part: LazySource
    ) -> None:
        new, old = ~np.isnan(block), self.mask[rows, :, cells]
        both = new & old
        value = np.where(new, block, 0)
        if both.any():
            before = self.values[rows, :, cells]
            value = self._agreed(rows, cells, before, value, both, part)
        self.values[rows, :, cells] = np.where(new, value, self.values[rows, :, cells])
        self.mask[rows, :, cells] = new | old
        if self.count is not None:
            self.count[rows, :, cells] += new

    def _agreed(
        self,
        rows: Int64[np.ndarray, " row"],
        cells: slice,
        before: np.ndarray,
        value: np.ndarray,
        both: np.ndarray,
        part: LazySource,
    ) -> np.ndarray:
        """What to write where a cell is given again."""
        self.repeated += int(both.sum())
        if self.count is not None:
            seen = self.count[rows, :, cells].astype(np.float64)
            return np.where(both, before + (value - before) / (seen + 1), value)
        differ = both & (before != value)
        if self.config.duplicates == "first":
            return np.where(both, before, value)
        if self.config.duplicates == "refuse" and differ.any():
            raise self._conflict(rows, cells, before, value, differ, part)
        return value

    def _conflict(
        self,
        rows: Int64[np.ndarray, " row"],
        cells: slice,
        before: np.ndarray,
        value: np.ndarray,
        differ: np.ndarray,
        part: LazySource,
    ) -> DataError:
        names = self.channels[cells]
        listed = [
            f"'{names[c]}' at '{self.points.names[n]}', "
            f"{time_label(int(self.times[rows[t]]), self.calendar)}: {before[t, n, c]:g} and "
            f"{value[t, n, c]:g}"
            for t, n, c in np.argwhere(differ)[:LISTED]
        ]
        return DataError(
            f"'{part.origin}': {int(differ.sum())} values are given twice and differ ("
            + "; ".join(listed)
            + "). Remove the wrong ones, or choose with --set read.duplicates=mean, first or last. "
            "An hour that occurs twice each autumn is local time: give its --timezone."
        )

    def _cleaned(self, block: np.ndarray, part: LazySource, start: int) -> np.ndarray:
        """Sentinels and, if wished, infinite values as NaN."""
        absent = np.isin(block, np.array([SENTINEL, *self.config.missing], np.float32))
        if absent.any():
            self.sentinels += int(absent.sum())
            block = np.where(absent, np.nan, block)
        infinite = np.isinf(block)
        if not infinite.any():
            return block
        if self.config.infinite == "refuse":
            t, n, c = np.argwhere(infinite)[0]
            when = time_label(int(part.times[start + t]), part.calendar)
            raise DataError(
                f"'{part.origin}': {int(infinite.sum())} values are infinite or too large for "
                f"float32 (first: '{part.channels[c]}' at '{part.points.names[n]}', {when}). If "
                "they mean missing: --set read.infinite=missing."
            )
        self.infinite += int(infinite.sum())
        return np.where(infinite, np.nan, block)

    def mark_missing(self) -> None:
        """NaN where no value was given, block by block: the arrays may be on disk."""
        length = max(1, cells_at_once() // max(1, self.mask[0].size))
        for start in range(0, len(self.times), length):
            missing = ~self.mask[start : start + length]
            if missing.any():
                self.values[start : start + length][missing] = np.nan

    def notes(self) -> list[str]:
        """What was done to the values, for people."""
        told = []
        if self.sentinels:
            marks = ", ".join(f"{v:g}" for v in (SENTINEL, *self.config.missing))
            told.append(f"{self.sentinels} values equal to {marks} count as missing.")
        if self.infinite:
            told.append(f"{self.infinite} infinite values count as missing.")
        if self.repeated and self.config.every is None:
            how = {"refuse": "equal, merged"}.get(self.config.duplicates, self.config.duplicates)
            told.append(f"{self.repeated} values were given more than once ({how}).")
        return told


def cells_at_once() -> int:
    """Cells read at a time: fewer where the memory budget is small."""
    return max(2**16, min(BLOCK, memory_budget() // 32))


def in_bins(times: Int64[np.ndarray, " time"], config: ReadConfig) -> Int64[np.ndarray, " time"]:
    """The nearest whole multiple of `read.every`, half way up."""
    if config.every is None:
        return times
    step = parse_duration(config.every)
    if step < UNITS["ms"]:
        raise UsageError(f"read.every = '{config.every}' is too short; write e.g. '1h'.")
    return (times + step // 2) // step * step


def _once_each(rows: Int64[np.ndarray, " row"]) -> list[np.ndarray]:
    """Positions in groups that hold no row twice; nearly always a single group."""
    if (np.diff(rows) > 0).all():
        return [np.arange(len(rows))]
    order = np.argsort(rows, kind="stable")
    first = np.r_[True, np.diff(rows[order]) > 0]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    turn = np.empty(len(rows), dtype=np.int64)  # how often the row occurred before
    turn[order] = np.arange(len(rows)) - begin
    return [np.flatnonzero(turn == number) for number in range(int(turn.max()) + 1)]
