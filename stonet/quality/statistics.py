"""Statistics: what one pass over a field's frames tells of every point and channel.

Frames are taken by the block, so a field on disk that is larger than memory is no trouble. What
needs an order (medians, quantiles) comes from a random sample of whole frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64

from stonet.data.field import Field

BLOCK = 2**21  # cells taken at a time
SAMPLE = 2**22  # cells from which medians and quantiles are taken
STRIP = 400  # bins of time that tell when a point was observed
SENTINELS = (
    [sign * n for sign in (1, -1) for n in (99, 99.9, 99.99, 999, 999.9, 999.99, 9999, 9999.9)]
    + [sign * n for sign in (1, -1) for n in (8888, 99999, 999999, 32767, 32768, 65535)]
    + [1e20, -1e20, 1e30, -1e30, 1e36, 9.96921e36, -1e34]
)  # numbers that people write for "missing"
SIGMA = 1.4826  # of the median absolute deviation of a normal distribution
WIDTH = 2.576  # sigmas from the median to the outermost half percent
ODD = 6.0  # robust deviations from the channel's median: looked at
OUTLIER = 20.0  # robust deviations from the point's own median: reported


@dataclass(frozen=True)
class Sample:
    """The usual values: of each channel, and of each point and channel. NaN where none is known."""

    values: Float32[np.ndarray, "frame node channel"]  # NaN where missing
    median: Float64[np.ndarray, " channel"]
    low: Float64[np.ndarray, " channel"]  # half a percent of the values lie below
    high: Float64[np.ndarray, " channel"]  # half a percent of the values lie above
    spread: Float64[np.ndarray, " channel"]  # one robust sigma
    point_median: Float64[np.ndarray, "node channel"]
    point_spread: Float64[np.ndarray, "node channel"]

    @staticmethod
    def of(source: Field) -> Sample:
        """Of frames at random, not of every n-th: these may all be noons."""
        cells = source.values[0].size
        most = max(16, SAMPLE // cells)
        frames = np.arange(len(source.times))
        if len(frames) > most:
            frames = np.sort(np.random.default_rng(0).choice(frames, most, replace=False))
        values = np.asarray(source.values[frames])
        usual = values.copy()
        for number in SENTINELS:
            usual[usual == np.float32(number)] = np.nan
        point_median, point_spread = _median_and_spread(usual)
        flat = usual.reshape(-1, usual.shape[-1])
        median, spread = _median_and_spread(flat)
        low, high = (quantile(flat, share) for share in (0.005, 0.995))
        wide = (high - low) / (2 * WIDTH)
        spread = np.where(spread > 0, spread, wide)  # such as of rain, which is mostly 0
        return Sample(values, median, low, high, spread, point_median, point_spread)

    def reach(self, deviations: float) -> tuple[np.ndarray, np.ndarray]:
        """So many deviations below and above each channel's median; skewed like the values."""
        below = np.maximum(self.spread, (self.median - self.low) / WIDTH)
        above = np.maximum(self.spread, (self.high - self.median) / WIDTH)
        return deviations * below, deviations * above


@dataclass
class ValueCounts:
    """Values of one kind: how many, and the foremost of them."""

    count: int
    frame: int
    node: int
    value: float
    rank: float  # how foremost it is
    nodes: set[int]

    def joined(self, other: ValueCounts) -> ValueCounts:
        first = self if self.rank >= other.rank else other
        return replace(first, count=self.count + other.count, nodes=self.nodes | other.nodes)


@dataclass
class Statistics:
    """Counts and extremes; frames are positions in the field's times, -1 where there is none."""

    count: Int64[np.ndarray, "node channel"]  # of values
    zeros: Int64[np.ndarray, "node channel"]
    first: Int64[np.ndarray, "node channel"]
    last: Int64[np.ndarray, "node channel"]
    low: Float32[np.ndarray, "node channel"]
    high: Float32[np.ndarray, "node channel"]
    low_at: Int64[np.ndarray, "node channel"]
    high_at: Int64[np.ndarray, "node channel"]
    outage: Int64[np.ndarray, "node channel"]  # the longest: missing frames between two values
    outage_end: Int64[np.ndarray, "node channel"]  # the first frame after it
    stuck: Int64[np.ndarray, "node channel"]  # the longest: repeats of one value other than 0
    stuck_end: Int64[np.ndarray, "node channel"]  # its last frame
    repeats: Int64[np.ndarray, " channel"]  # values that equal the one before, other than 0
    pairs: Int64[np.ndarray, " channel"]  # values other than 0 with one before
    present: Float32[np.ndarray, "bin node"]  # share of values observed, over time
    reporting: Float32[np.ndarray, " time"]  # share of points that have any value in a frame
    outliers: dict[tuple[int, int], ValueCounts] = field(
        default_factory=dict
    )  # by node and channel
    marks: dict[tuple[int, float], ValueCounts] = field(
        default_factory=dict
    )  # by channel and value


def measure(source: Field, sample: Sample) -> Statistics:
    """One pass over all frames."""
    statistics, bins = _blank(source)
    limits = [m.astype(np.float32) for m in _limits(sample)]
    carry = _Carry.blank(source.values[0].size)
    for start, values, mask in _blocks(source):
        _count(statistics, start, values, mask)
        _runs(statistics, start, values, mask, carry)
        part = slice(start, start + len(values))
        statistics.reporting[part] = mask.any(-1).mean(1)
        here, begin = np.unique(bins[part], return_index=True)
        statistics.present[here] += np.add.reduceat(mask.mean(-1, dtype=np.float32), begin, axis=0)
        odd = mask & ((values < limits[0]) | (values > limits[1]))
        if odd.any():
            _look_at(statistics, start, values, np.argwhere(odd), sample)
    statistics.present /= np.bincount(bins, minlength=len(statistics.present))[:, None].astype(
        np.float32
    )
    return statistics


def quantile(values: np.ndarray, share: float) -> Float64[np.ndarray, "..."]:
    """Along the first axis, of what is not NaN; NaN where there is nothing."""
    ordered = np.sort(values, axis=0)  # NaN go last
    known = (~np.isnan(values)).sum(0)
    position = np.rint(share * np.maximum(known - 1, 0)).astype(np.int64)
    return np.take_along_axis(ordered, position[None], axis=0)[0].astype(np.float64)


def _median_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    median = quantile(values, 0.5)
    with np.errstate(over="ignore"):
        away = np.abs(values - median.astype(np.float32))
    return median, SIGMA * quantile(away, 0.5)


def _limits(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    below, above = sample.reach(ODD)
    return sample.median - below, sample.median + above


def _blank(source: Field) -> tuple[Statistics, Int64[np.ndarray, " time"]]:
    shape, frames = source.values.shape[1:], len(source.times)
    count = min(STRIP, frames, max(50, 2**23 // shape[0]))
    bins = np.arange(frames) * count // frames

    def whole(fill: int) -> np.ndarray:
        return np.full(shape, fill, dtype=np.int64)

    blank = Statistics(
        count=whole(0), zeros=whole(0), first=whole(-1), last=whole(-1),
        low=np.full(shape, np.inf, np.float32), high=np.full(shape, -np.inf, np.float32),
        low_at=whole(-1), high_at=whole(-1), outage=whole(0), outage_end=whole(-1),
        stuck=whole(0), stuck_end=whole(-1),
        repeats=np.zeros(shape[1], np.int64), pairs=np.zeros(shape[1], np.int64),
        present=np.zeros((count, shape[0]), np.float32), reporting=np.zeros(frames, np.float32),
    )  # fmt: skip
    return blank, bins


def _blocks(
    source: Field,
) -> Iterator[
    tuple[int, Float32[np.ndarray, "part node channel"], Bool[np.ndarray, "part node channel"]]
]:
    length = max(1, BLOCK // source.values[0].size)
    for start in range(0, len(source.times), length):
        part = slice(start, start + length)
        yield start, np.asarray(source.values[part]), np.asarray(source.observed[part])


def _count(statistics: Statistics, start: int, values: np.ndarray, mask: np.ndarray) -> None:
    any_, length = mask.any(0), len(mask)
    statistics.count += mask.sum(0)
    statistics.zeros += (mask & (values == 0)).sum(0)
    statistics.first = np.where(
        (statistics.first < 0) & any_, start + mask.argmax(0), statistics.first
    )
    statistics.last = np.where(any_, start + length - 1 - mask[::-1].argmax(0), statistics.last)
    for name, sign in (("low", 1), ("high", -1)):
        signed = np.where(mask, sign * values, np.float32("inf"))
        at = signed.argmin(0)
        found = sign * np.take_along_axis(signed, at[None], 0)[0]
        known = getattr(statistics, name)
        better = any_ & (sign * found < sign * known)
        setattr(statistics, name, np.where(better, found, known).astype(np.float32))
        where = f"{name}_at"
        setattr(statistics, where, np.where(better, start + at, getattr(statistics, where)))


@dataclass
class _Carry:
    """What a block needs to know of the frames before it."""

    value: Float32[np.ndarray, " cell"]
    mask: Bool[np.ndarray, " cell"]
    seen: Int32[np.ndarray, " cell"]  # the last frame with a value
    change: Int32[np.ndarray, " cell"]  # the last frame that did not repeat the one before

    @staticmethod
    def blank(cells: int) -> _Carry:
        never = np.full(cells, -1, np.int32)
        return _Carry(np.zeros(cells, np.float32), np.zeros(cells, bool), never, never)


def _runs(
    statistics: Statistics, start: int, values: np.ndarray, mask: np.ndarray, carry: _Carry
) -> None:
    """The longest outages and the longest runs of one value, across blocks."""
    shape = values.shape
    x, seen = values.reshape(shape[0], -1), mask.reshape(shape[0], -1)
    frame = np.arange(start, start + shape[0], dtype=np.int32)[:, None]
    had = np.concatenate([carry.mask[None], seen[:-1]])
    before = np.concatenate([carry.value[None], x[:-1]])
    latest = _latest(np.where(seen, frame, np.int32(-1)), carry.seen)
    earlier = np.concatenate([carry.seen[None], latest[:-1]])
    gap = np.where(seen & (earlier >= 0), frame - earlier - 1, 0)
    pair = seen & had & (x != 0)
    same = pair & (x == before)
    change = _latest(np.where(same, np.int32(-1), frame), carry.change)
    _keep_longest(statistics, "outage", gap, start, shape)
    _keep_longest(statistics, "stuck", frame - change, start, shape)
    statistics.repeats += same.reshape(shape).sum((0, 1))
    statistics.pairs += pair.reshape(shape).sum((0, 1))
    carry.value, carry.mask, carry.seen, carry.change = x[-1], seen[-1], latest[-1], change[-1]


def _latest(frames: np.ndarray, before: np.ndarray) -> Int32[np.ndarray, "time cell"]:
    frames[0] = np.maximum(frames[0], before)
    return np.maximum.accumulate(frames, axis=0)


def _keep_longest(
    statistics: Statistics, name: str, lengths: np.ndarray, start: int, shape: tuple[int, ...]
) -> None:
    at = lengths.argmax(0)
    found = np.take_along_axis(lengths, at[None], 0)[0].astype(np.int64).reshape(shape[1:])
    known, end = getattr(statistics, name), f"{name}_end"
    longer = found > known
    setattr(statistics, name, np.where(longer, found, known))
    setattr(
        statistics, end, np.where(longer, start + at.reshape(shape[1:]), getattr(statistics, end))
    )


def _look_at(
    statistics: Statistics, start: int, values: np.ndarray, cells: np.ndarray, sample: Sample
) -> None:
    """Sort odd values into marks for "missing", outliers, and what is merely odd."""
    t, n, c = cells.T
    value = values[t, n, c]
    mark = np.isin(value, np.array(SENTINELS, np.float32))
    below, above = sample.reach(OUTLIER)
    own = OUTLIER * sample.point_spread[n, c]
    away = value - sample.point_median[n, c]
    far = (away > np.maximum(own, above[c])) | (-away > np.maximum(own, below[c]))
    cells = np.stack([start + t, n, c], axis=1)
    _tally(statistics.marks, (c, value), -(start + t), mark, cells, value)
    _tally(statistics.outliers, (n, c), np.abs(away), far & ~mark, cells, value)


def _tally(
    tallies: dict[Any, ValueCounts],
    key: tuple[np.ndarray, np.ndarray],
    rank: np.ndarray,
    chosen: np.ndarray,
    cells: Int64[np.ndarray, "odd 3"],
    value: np.ndarray,
) -> None:
    """Count the chosen values by their key, and keep the one of the highest rank."""
    index = np.flatnonzero(chosen)
    if not len(index):
        return
    order = index[np.lexsort((-rank[index], key[1][index], key[0][index]))]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(key[0][order]) != 0) | (np.diff(key[1][order]) != 0)
    starts = np.flatnonzero(new)
    for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
        first = order[begin]
        frame, node, _ = cells[first].tolist()
        nodes = set(np.unique(cells[order[begin:end], 1]).tolist())
        found = ValueCounts(
            int(end - begin), frame, node, float(value[first]), float(rank[first]), nodes
        )
        name = key[0][first].item(), key[1][first].item()
        tallies[name] = tallies[name].joined(found) if name in tallies else found
