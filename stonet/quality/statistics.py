"""Statistics of every point and channel, from one pass over the frames.

Frames are read in blocks, so a field on disk may be larger than memory. Medians and quantiles come
from a random sample of frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64

from stonet.data.field import Field

CELLS_PER_BLOCK = 2**21  # values read at a time
MAX_SAMPLE_CELLS = 2**22  # values from which medians and quantiles are computed
MAX_TIME_BINS = 400  # of the availability over time
FILL_VALUES = (
    [sign * n for sign in (1, -1) for n in (99, 99.9, 99.99, 999, 999.9, 999.99, 9999, 9999.9)]
    + [sign * n for sign in (1, -1) for n in (8888, 99999, 999999, 32767, 32768, 65535)]
    + [1e20, -1e20, 1e30, -1e30, 1e36, 9.96921e36, -1e34]
)  # numbers often written for "missing"
MAD_TO_SIGMA = 1.4826  # normal distribution: standard deviation over median absolute deviation
TAIL_SIGMAS = 2.576  # normal distribution: from the median to the outermost half percent
SUSPECT_SIGMAS = 6.0  # robust deviations from the channel's median that are examined
OUTLIER_SIGMAS = 20.0  # robust deviations from the point's own median that are reported


@dataclass(frozen=True)
class Sample:
    """Robust statistics of each channel, and of each point and channel; NaN without values.

    Args:
        values: NaN where missing.
        median: of each channel.
        low: 0.5 % quantile.
        high: 99.5 % quantile.
        spread: robust standard deviation.
        point_median: of each point and channel.
        point_spread: robust standard deviation of each point and channel.
    """

    values: Float32[np.ndarray, "frame node channel"]
    median: Float64[np.ndarray, " channel"]
    low: Float64[np.ndarray, " channel"]
    high: Float64[np.ndarray, " channel"]
    spread: Float64[np.ndarray, " channel"]
    point_median: Float64[np.ndarray, "node channel"]
    point_spread: Float64[np.ndarray, "node channel"]

    @staticmethod
    def of(source: Field, max_cells: int = MAX_SAMPLE_CELLS) -> Sample:
        """Statistics of random frames; every n-th frame might always be the same hour.

        Args:
            source: the field.
            max_cells: values in the sample, but at least 16 frames.
        """
        max_frames = max(16, max_cells // source.values[0].size)
        frames = np.arange(len(source.times))
        if len(frames) > max_frames:
            frames = np.sort(np.random.default_rng(0).choice(frames, max_frames, replace=False))
        values = np.asarray(source.values[frames])
        valid = values.copy()
        for number in FILL_VALUES:
            valid[valid == np.float32(number)] = np.nan
        point_median, point_spread = _median_and_spread(valid)
        flat = valid.reshape(-1, valid.shape[-1])
        median, spread = _median_and_spread(flat)
        low, high = (quantile(flat, share) for share in (0.005, 0.995))
        from_tails = (high - low) / (2 * TAIL_SIGMAS)
        spread = np.where(spread > 0, spread, from_tails)  # such as rain, which is mostly 0
        return Sample(values, median, low, high, spread, point_median, point_spread)

    def margins(self, sigmas: float) -> tuple[np.ndarray, np.ndarray]:
        """`sigmas` deviations below and above each channel's median, skewed like the values.

        Args:
            sigmas: number of standard deviations.
        """
        below = np.maximum(self.spread, (self.median - self.low) / TAIL_SIGMAS)
        above = np.maximum(self.spread, (self.high - self.median) / TAIL_SIGMAS)
        return sigmas * below, sigmas * above


@dataclass
class Occurrences:
    """Values of one kind: their number, their stations, and the one of the highest rank.

    Args:
        count: number of values.
        frame: of the value of the highest rank.
        node: of that value.
        value: the value itself.
        rank: by which the value is chosen.
        nodes: stations with such values.
    """

    count: int
    frame: int
    node: int
    value: float
    rank: float
    nodes: set[int]

    def merged(self, other: Occurrences) -> Occurrences:
        """Both together.

        Args:
            other: of the same kind.
        """
        first = self if self.rank >= other.rank else other
        return replace(first, count=self.count + other.count, nodes=self.nodes | other.nodes)


@dataclass
class Statistics:
    """Counts, extremes and runs; frames are positions in the field's times, -1 for none.

    Args:
        count: of values.
        zeros: values that are 0.
        first: frame of the first value.
        last: frame of the last value.
        low: smallest value.
        high: largest value.
        low_at: frame of the smallest value.
        high_at: frame of the largest value.
        gap: longest run of missing frames between two values.
        gap_end: the first frame after it.
        flat: longest run of repeats of one value other than 0.
        flat_end: its last frame.
        repeats: values that equal the one before, other than 0.
        pairs: values other than 0 with one before.
        availability: share of values observed, over time.
        reporting: share of points with any value in a frame.
        outliers: by node and channel.
        fill_values: by channel and value.
    """

    count: Int64[np.ndarray, "node channel"]
    zeros: Int64[np.ndarray, "node channel"]
    first: Int64[np.ndarray, "node channel"]
    last: Int64[np.ndarray, "node channel"]
    low: Float32[np.ndarray, "node channel"]
    high: Float32[np.ndarray, "node channel"]
    low_at: Int64[np.ndarray, "node channel"]
    high_at: Int64[np.ndarray, "node channel"]
    gap: Int64[np.ndarray, "node channel"]
    gap_end: Int64[np.ndarray, "node channel"]
    flat: Int64[np.ndarray, "node channel"]
    flat_end: Int64[np.ndarray, "node channel"]
    repeats: Int64[np.ndarray, " channel"]
    pairs: Int64[np.ndarray, " channel"]
    availability: Float32[np.ndarray, "bin node"]
    reporting: Float32[np.ndarray, " time"]
    outliers: dict[tuple[int, int], Occurrences] = field(default_factory=dict)
    fill_values: dict[tuple[int, float], Occurrences] = field(default_factory=dict)


def compute_statistics(source: Field, sample: Sample, block: int = CELLS_PER_BLOCK) -> Statistics:
    """Statistics of all frames, in one pass.

    Args:
        source: the field.
        sample: its robust statistics, which define outliers.
        block: values that are read at a time.
    """
    statistics, bins = _empty(source)
    below, above = sample.margins(SUSPECT_SIGMAS)
    low, high = (m.astype(np.float32) for m in (sample.median - below, sample.median + above))
    previous = _PreviousFrame.empty(source.values[0].size)
    for start, values, mask in _blocks(source, block):
        _update_extremes(statistics, start, values, mask)
        _update_runs(statistics, start, values, mask, previous)
        part = slice(start, start + len(values))
        statistics.reporting[part] = mask.any(-1).mean(1)
        here, begin = np.unique(bins[part], return_index=True)
        share = mask.mean(-1, dtype=np.float32)
        statistics.availability[here] += np.add.reduceat(share, begin, axis=0)
        suspect = mask & ((values < low) | (values > high))
        if suspect.any():
            _classify(statistics, start, values, np.argwhere(suspect), sample)
    frames_per_bin = np.bincount(bins, minlength=len(statistics.availability))
    statistics.availability /= frames_per_bin[:, None].astype(np.float32)
    return statistics


def quantile(values: np.ndarray, share: float) -> Float64[np.ndarray, "..."]:
    """A quantile along the first axis of all that is not NaN; NaN where nothing is.

    Args:
        values: NaN where missing.
        share: 0 to 1.
    """
    ordered = np.sort(values, axis=0)  # NaN last
    count = (~np.isnan(values)).sum(0)
    position = np.rint(share * np.maximum(count - 1, 0)).astype(np.int64)
    return np.take_along_axis(ordered, position[None], axis=0)[0].astype(np.float64)


def _median_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median and robust standard deviation along the first axis."""
    median = quantile(values, 0.5)
    with np.errstate(over="ignore"):
        deviation = np.abs(values - median.astype(np.float32))
    return median, MAD_TO_SIGMA * quantile(deviation, 0.5)


def _empty(source: Field) -> tuple[Statistics, Int64[np.ndarray, " time"]]:
    """Statistics before the first frame, and the time bin of each frame."""
    shape, frames = source.values.shape[1:], len(source.times)
    num_bins = min(MAX_TIME_BINS, frames, max(50, 2**23 // shape[0]))
    bins = np.arange(frames) * num_bins // frames

    def full(fill: int) -> np.ndarray:
        return np.full(shape, fill, dtype=np.int64)

    empty = Statistics(
        count=full(0), zeros=full(0), first=full(-1), last=full(-1),
        low=np.full(shape, np.inf, np.float32), high=np.full(shape, -np.inf, np.float32),
        low_at=full(-1), high_at=full(-1), gap=full(0), gap_end=full(-1),
        flat=full(0), flat_end=full(-1),
        repeats=np.zeros(shape[1], np.int64), pairs=np.zeros(shape[1], np.int64),
        availability=np.zeros((num_bins, shape[0]), np.float32),
        reporting=np.zeros(frames, np.float32),
    )  # fmt: skip
    return empty, bins


def _blocks(
    source: Field, block: int
) -> Iterator[
    tuple[int, Float32[np.ndarray, "part node channel"], Bool[np.ndarray, "part node channel"]]
]:
    """(first frame, values, observed) of one block of frames after another."""
    length = max(1, block // source.values[0].size)
    for start in range(0, len(source.times), length):
        part = slice(start, start + length)
        yield start, np.asarray(source.values[part]), np.asarray(source.observed[part])


def _update_extremes(
    statistics: Statistics, start: int, values: np.ndarray, mask: np.ndarray
) -> None:
    """Counts, first and last frames, minima and maxima."""
    observed, length = mask.any(0), len(mask)
    statistics.count += mask.sum(0)
    statistics.zeros += (mask & (values == 0)).sum(0)
    statistics.first = np.where(
        (statistics.first < 0) & observed, start + mask.argmax(0), statistics.first
    )
    statistics.last = np.where(observed, start + length - 1 - mask[::-1].argmax(0), statistics.last)
    for name, sign in (("low", 1), ("high", -1)):
        signed = np.where(mask, sign * values, np.float32("inf"))
        at = signed.argmin(0)
        extreme = sign * np.take_along_axis(signed, at[None], 0)[0]
        before = getattr(statistics, name)
        better = observed & (sign * extreme < sign * before)
        setattr(statistics, name, np.where(better, extreme, before).astype(np.float32))
        frame = f"{name}_at"
        setattr(statistics, frame, np.where(better, start + at, getattr(statistics, frame)))


@dataclass
class _PreviousFrame:
    """The state that one block passes on to the next."""

    value: Float32[np.ndarray, " cell"]
    mask: Bool[np.ndarray, " cell"]
    last_value: Int32[np.ndarray, " cell"]  # the last frame with a value
    last_change: Int32[np.ndarray, " cell"]  # the last frame that did not repeat the one before

    @staticmethod
    def empty(cells: int) -> _PreviousFrame:
        never = np.full(cells, -1, np.int32)
        return _PreviousFrame(np.zeros(cells, np.float32), np.zeros(cells, bool), never, never)


def _update_runs(
    statistics: Statistics,
    start: int,
    values: np.ndarray,
    mask: np.ndarray,
    previous: _PreviousFrame,
) -> None:
    """The longest gaps and the longest runs of one value, across blocks."""
    shape = values.shape
    x, observed = values.reshape(shape[0], -1), mask.reshape(shape[0], -1)
    frame = np.arange(start, start + shape[0], dtype=np.int32)[:, None]
    observed_before = np.concatenate([previous.mask[None], observed[:-1]])
    x_before = np.concatenate([previous.value[None], x[:-1]])
    last_value = _running_maximum(np.where(observed, frame, np.int32(-1)), previous.last_value)
    earlier = np.concatenate([previous.last_value[None], last_value[:-1]])
    gap = np.where(observed & (earlier >= 0), frame - earlier - 1, 0)
    pair = observed & observed_before & (x != 0)
    same = pair & (x == x_before)
    last_change = _running_maximum(np.where(same, np.int32(-1), frame), previous.last_change)
    _keep_longest(statistics, "gap", gap, start, shape)
    _keep_longest(statistics, "flat", frame - last_change, start, shape)
    statistics.repeats += same.reshape(shape).sum((0, 1))
    statistics.pairs += pair.reshape(shape).sum((0, 1))
    previous.value, previous.mask = x[-1], observed[-1]
    previous.last_value, previous.last_change = last_value[-1], last_change[-1]


def _running_maximum(frames: np.ndarray, before: np.ndarray) -> Int32[np.ndarray, "time cell"]:
    """The highest frame so far."""
    frames[0] = np.maximum(frames[0], before)
    return np.maximum.accumulate(frames, axis=0)


def _keep_longest(
    statistics: Statistics, name: str, lengths: np.ndarray, start: int, shape: tuple[int, ...]
) -> None:
    """Update the longest run of a kind, and the frame at its end."""
    at = lengths.argmax(0)
    length = np.take_along_axis(lengths, at[None], 0)[0].astype(np.int64).reshape(shape[1:])
    before, end = getattr(statistics, name), f"{name}_end"
    longer = length > before
    setattr(statistics, name, np.where(longer, length, before))
    setattr(
        statistics, end, np.where(longer, start + at.reshape(shape[1:]), getattr(statistics, end))
    )


def _classify(
    statistics: Statistics, start: int, values: np.ndarray, cells: np.ndarray, sample: Sample
) -> None:
    """Sort suspect values into fill values, outliers, and plausible ones."""
    t, n, c = cells.T
    value = values[t, n, c]
    fill = np.isin(value, np.array(FILL_VALUES, np.float32))
    below, above = sample.margins(OUTLIER_SIGMAS)
    own = OUTLIER_SIGMAS * sample.point_spread[n, c]
    deviation = value - sample.point_median[n, c]
    far = (deviation > np.maximum(own, above[c])) | (-deviation > np.maximum(own, below[c]))
    cells = np.stack([start + t, n, c], axis=1)
    _add(statistics.fill_values, (c, value), -(start + t), fill, cells, value)
    _add(statistics.outliers, (n, c), np.abs(deviation), far & ~fill, cells, value)


def _add(
    occurrences: dict[Any, Occurrences],
    key: tuple[np.ndarray, np.ndarray],
    rank: np.ndarray,
    chosen: np.ndarray,
    cells: Int64[np.ndarray, "value 3"],
    value: np.ndarray,
) -> None:
    """Count the chosen values by key, and keep the one of the highest rank."""
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
        new_values = Occurrences(
            int(end - begin), frame, node, float(value[first]), float(rank[first]), nodes
        )
        name = key[0][first].item(), key[1][first].item()
        occurrences[name] = (
            occurrences[name].merged(new_values) if name in occurrences else new_values
        )
