"""Accumulator: the cells of a Field while sources are added to them, block by block.

A cell is one channel at one point and time.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.durations import UNITS, parse_duration
from stonet.data.field import time_label
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.io.lazy_source import LazySource
from stonet.system.progress import report_progress
from stonet.system.resources import memory_budget
from stonet.system.spill import allocate

MAX_BLOCK_CELLS = 2**24  # cells read at a time, where memory allows
MIN_BLOCK_CELLS = 2**16
SENTINEL = -9999.0  # marks missing values in most files
MAX_CONFLICTS = 5  # listed in a message

Rows = Int64[np.ndarray, " row"]


class Accumulator:
    """Values and mask of a Field that is being filled.

    Args:
        times: of the frames, sorted.
        points: of the nodes.
        channels: names of the channels.
        config: how missing, infinite and repeated values are treated.
        calendar: whether `times` are dates, for messages.
    """

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
        dtypes = (np.float32, np.bool_, *((np.uint32,) if averaged else ()))
        self.values, self.mask, *counts = allocate(shape, *dtypes)
        self.count = counts[0] if counts else None
        self.times, self.points, self.channels = times, points, channels
        self.config, self.calendar = config, calendar
        self.repeated = self.sentinels = self.infinite = 0
        self.done = self.total = 0  # frames, for the progress

    def add(self, source: LazySource) -> None:
        """Read the source's values into their cells, block by block.

        Args:
            source: whose channels and points are among those of the field.
        """
        rows = np.searchsorted(self.times, bin_times(source.times, self.config))
        columns = [self.channels.index(name) for name in source.channels]
        all_channels = columns == list(range(len(self.channels)))
        length = max(1, block_cells() // max(1, source.cells))  # of what is read, wanted or not
        for start in range(0, len(rows), length):
            stop = min(start + length, len(rows))
            block = np.asarray(source.frames(start, stop), np.float32)
            block = self._without_missing(block, source, start)
            where, block, weight = self._without_repeats(rows[start:stop], block, source)
            if all_channels:
                self._store(where, slice(None), block, weight, source)
            else:
                for number, column in enumerate(columns):
                    part = slice(number, number + 1)
                    share = weight[..., part]
                    self._store(where, slice(column, column + 1), block[..., part], share, source)
            self.done += stop - start
            report_progress(self.done, self.total)

    def _store(
        self, rows: Rows, channels: slice, block: np.ndarray, weight: np.ndarray, source: LazySource
    ) -> None:
        """Store values at distinct rows; each is the mean of `weight` given values."""
        new, old = ~np.isnan(block), self.mask[rows, :, channels]
        repeated = new & old
        value = np.where(new, block, 0)
        if repeated.any():
            before = self.values[rows, :, channels]
            self.repeated += int(repeated.sum())
            if self.count is not None:
                total = self.count[rows, :, channels] + np.maximum(weight, 1)
                mean = before + (value - before) * (weight / total)
                value = np.where(repeated, mean, value)
            elif self.config.duplicates == "first":
                value = np.where(repeated, before, value)
            else:
                self._check_equal(rows, channels, before, value, repeated, source)
        self.values[rows, :, channels] = np.where(new, value, self.values[rows, :, channels])
        self.mask[rows, :, channels] = new | old
        if self.count is not None:
            self.count[rows, :, channels] += weight

    def _without_repeats(
        self, rows: Rows, block: np.ndarray, source: LazySource
    ) -> tuple[Int64[np.ndarray, " distinct"], np.ndarray, np.ndarray]:
        """Each row once, with the value that its repeats leave, and how many values were given."""
        given = ~np.isnan(block)
        if (np.diff(rows) > 0).all():
            return rows, block, given
        order = np.argsort(rows, kind="stable")
        rows, block, given = rows[order], block[order], given[order]
        starts = np.flatnonzero(np.r_[True, np.diff(rows) > 0])
        weight = np.add.reduceat(given, starts, axis=0, dtype=np.uint32)
        self.repeated += int((weight[weight > 1] - 1).sum())
        position = np.arange(len(rows))[:, None, None]
        first = np.minimum.reduceat(np.where(given, position, len(rows) - 1), starts, axis=0)
        if self.count is not None:
            total = np.add.reduceat(np.where(given, block, 0), starts, axis=0, dtype=np.float64)
            with np.errstate(invalid="ignore"):
                return rows[starts], (total / weight).astype(np.float32), weight
        last = np.maximum.reduceat(np.where(given, position, 0), starts, axis=0)
        chosen = first if self.config.duplicates == "first" else last
        kept = np.take_along_axis(block, chosen, axis=0)
        if self.config.duplicates == "refuse":
            before = np.take_along_axis(block, first, axis=0)
            for extreme in (np.fmin.reduceat, np.fmax.reduceat):
                columns = slice(0, block.shape[2])
                self._check_equal(
                    rows[starts],
                    columns,
                    before,
                    extreme(block, starts, axis=0),
                    weight > 1,
                    source,
                    tuple(source.channels),
                )
        return rows[starts], np.where(weight > 0, kept, np.float32("nan")), weight

    def _check_equal(
        self,
        rows: Rows,
        channels: slice,
        before: np.ndarray,
        value: np.ndarray,
        repeated: np.ndarray,
        source: LazySource,
        names: tuple[str, ...] = (),
    ) -> None:
        """Refuse repeats that differ, unless the last ones are wanted."""
        differ = repeated & (before != value)
        if self.config.duplicates == "refuse" and differ.any():
            raise self._conflict(
                rows, names or self.channels[channels], before, value, differ, source
            )

    def _conflict(
        self,
        rows: Rows,
        names: tuple[str, ...],
        before: np.ndarray,
        value: np.ndarray,
        differ: np.ndarray,
        source: LazySource,
    ) -> DataError:
        examples = [
            f"'{names[c]}' at '{self.points.names[n]}', "
            f"{time_label(int(self.times[rows[t]]), self.calendar)}: {before[t, n, c]:g} and "
            f"{value[t, n, c]:g}"
            for t, n, c in np.argwhere(differ)[:MAX_CONFLICTS]
        ]
        return DataError(
            f"'{source.origin}': {int(differ.sum())} values are given twice and differ ("
            + "; ".join(examples)
            + "). Remove the wrong ones, or choose with --set read.duplicates=mean, first or last. "
            "An hour that occurs twice each autumn is local time: give its --timezone."
        )

    def _without_missing(self, block: np.ndarray, source: LazySource, start: int) -> np.ndarray:
        """The block with NaN for sentinels and, if configured, for infinite values."""
        absent = np.isin(block, np.array([SENTINEL, *self.config.missing], np.float32))
        if absent.any():
            self.sentinels += int(absent.sum())
            block = np.where(absent, np.nan, block)
        infinite = np.isinf(block)
        if not infinite.any():
            return block
        if self.config.infinite == "refuse":
            t, n, c = np.argwhere(infinite)[0]
            time = time_label(int(source.times[start + t]), source.calendar)
            raise DataError(
                f"'{source.origin}': {int(infinite.sum())} values are infinite or too large for "
                f"float32 (first: '{source.channels[c]}' at '{source.points.names[n]}', {time}). "
                "If they mean missing: --set read.infinite=missing."
            )
        self.infinite += int(infinite.sum())
        return np.where(infinite, np.nan, block)

    def mark_missing(self) -> None:
        """NaN where no value was given, block by block: the arrays may be on disk."""
        length = max(1, block_cells() // max(1, self.mask[0].size))
        for start in range(0, len(self.times), length):
            missing = ~self.mask[start : start + length]
            if missing.any():
                self.values[start : start + length][missing] = np.nan

    def notes(self) -> list[str]:
        """Sentences on what was done to the values."""
        notes = []
        if self.sentinels:
            marks = ", ".join(f"{v:g}" for v in (SENTINEL, *self.config.missing))
            notes.append(f"{self.sentinels} values equal to {marks} count as missing.")
        if self.infinite:
            notes.append(f"{self.infinite} infinite values count as missing.")
        if self.repeated and self.config.every is None:
            how = {"refuse": "equal, merged"}.get(self.config.duplicates, self.config.duplicates)
            notes.append(f"{self.repeated} values were given more than once ({how}).")
        return notes


def block_cells() -> int:
    """Number of cells to read at a time: fewer where the memory budget is small."""
    return max(MIN_BLOCK_CELLS, min(MAX_BLOCK_CELLS, memory_budget() // 32))


def bin_times(times: Int64[np.ndarray, " time"], config: ReadConfig) -> Int64[np.ndarray, " time"]:
    """Times rounded to multiples of `read.every`, halves upwards; unchanged without it.

    Args:
        times: nanoseconds.
        config: its `every` is the bin.
    """
    if config.every is None:
        return times
    step = parse_duration(config.every)
    if step < UNITS["ms"]:
        raise UsageError(f"read.every = '{config.every}' is too short; write e.g. '1h'.")
    return (times + step // 2) // step * step
