"""Checks of single stations: time axis, missing values, flat lines, outliers.

Each check takes a `CheckInput` and yields findings: what, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int64

from stonet.data.display import short_time
from stonet.data.durations import DAY, duration_label, parse_duration
from stonet.data.field import Field
from stonet.quality.statistics import (
    CELLS_PER_BLOCK,
    MAX_SAMPLE_CELLS,
    Occurrences,
    Sample,
    Statistics,
    compute_statistics,
)

Level = Literal["error", "warning", "note", "ok"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note", "ok")  # the most severe first
MAX_NAMED = 5  # stations named in one finding
REGULAR_STEPS = 0.01  # deviation up to which a step is regular, in usual steps
IRREGULAR_STEPS = 0.25  # if most steps deviate by more, there is no usual step
GAP_STEPS = 1.5  # frames farther apart have a gap between them
GAP_WARNING = 0.05  # share of frames missing in gaps
MISSING_WARNING, MISSING_NOTE = 0.5, 0.2  # share of a station's values missing
MISSING_EXCESS = 0.1  # share missing above the usual one, to be reported
MAX_MISSING = 0.6  # share of a channel missing
EDGE_SHARE = 0.1  # of the period, that a record may lack at either end
SILENT_STEPS = 12  # without a value at the end, and at least a day: the length of usual inputs
SILENT_REPORTS = 4  # the same, in the station's own mean interval
MIN_FLAT_RUN = 12  # repeats of a value that chance never explains


@dataclass(frozen=True)
class Finding:
    """One observation about the data.

    Args:
        level: "error", "warning", "note" or "ok".
        what: a sentence.
        where: file, variable, station, time.
        advice: what to do about it.
    """

    level: Level
    what: str
    where: str = ""
    advice: str = ""


@dataclass(frozen=True)
class CheckInput:
    """A field with its statistics, and the words for its times, stations and values.

    Args:
        field: all values.
        sample: robust statistics.
        statistics: counts, extremes and runs.
    """

    field: Field
    sample: Sample
    statistics: Statistics

    @staticmethod
    def of(
        field: Field, max_sample: int = MAX_SAMPLE_CELLS, block: int = CELLS_PER_BLOCK
    ) -> CheckInput:
        """Compute the statistics of a field.

        Args:
            field: the data, which may be larger than memory.
            max_sample: values from which medians and quantiles are computed.
            block: values that are read at a time.
        """
        sample = Sample.of(field, max_sample)
        with np.errstate(over="ignore", invalid="ignore"):  # values near the end of float32
            return CheckInput(field, sample, compute_statistics(field, sample, block))

    @cached_property
    def missing(self) -> np.ndarray:
        """Share of values missing at each point and channel."""
        return 1.0 - self.statistics.count / len(self.field.times)

    def time(self, frame: int) -> str:
        """The time of a frame.

        Args:
            frame: its position.
        """
        return short_time(int(self.field.times[frame]), self.field.calendar)

    def period(self, start: int, stop: int) -> str:
        """The times of two frames and the duration between them.

        Args:
            start: position of the first frame.
            stop: position of the last frame.
        """
        span = int(self.field.times[stop] - self.field.times[start])
        return f"{self.time(start)} to {self.time(stop)} ({duration_label(span)})"

    def station(self, node: int) -> str:
        """The name of a station, quoted.

        Args:
            node: its position.
        """
        return f"'{self.field.points.names[node]}'"

    def stations(
        self, nodes: Sequence[int] | np.ndarray, detail: Callable[[int], str] | None = None
    ) -> str:
        """The first stations by name, each with its `detail`, and the number of all others.

        Args:
            nodes: their positions.
            detail: gives a text for a station.
        """
        first = [int(node) for node in nodes[:MAX_NAMED]]
        names = [self.station(n) + (f" {detail(n)}" if detail else "") for n in first]
        rest = len(nodes) - len(first)
        return ("; " if detail else ", ").join(names) + (f" and {rest} more" if rest else "")

    def value(self, value: float | np.floating, channel: int) -> str:
        """A value with its unit.

        Args:
            value: in the data's units.
            channel: its position.
        """
        unit = self.field.units[channel]
        return f"{value:.6g}" + ("" if unit in ("1", "") else f" {unit}")


def usual_duration(time: int) -> str:
    """The nearest customary duration, as options take it: 1h, 30min, 10s.

    Args:
        time: nanoseconds.
    """
    usual = [f"{n}{unit}" for unit in ("s", "min") for n in (1, 2, 5, 10, 15, 20, 30)]
    usual += ["1ms", "10ms", "100ms", "1h", "2h", "3h", "4h", "6h", "8h", "12h", "1d", "7d"]
    return min(usual, key=lambda text: abs(np.log(parse_duration(text) / time)))


def plural(count: int, noun: str) -> str:
    """1 gap, 2 gaps.

    Args:
        count: how many.
        noun: in the singular.
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")


def verb(count: int, word: str) -> str:
    """1 station lacks, 2 stations lack.

    Args:
        count: of the subject.
        word: in the plural.
    """
    return word + ("s" if count == 1 else "")


def time_axis_check(data: CheckInput) -> Iterator[Finding]:
    """The usual step, gaps and irregular steps of the time axis.

    Args:
        data: to be checked.
    """
    times, last = data.field.times, len(data.field.times) - 1
    if not last:
        yield Finding("error", "There is a single frame.", data.time(0), "Give a longer series.")
        return
    steps, usual = np.diff(times), data.field.step
    deviation = np.abs(steps - usual)
    irregular = deviation > REGULAR_STEPS * usual
    if not irregular.any():
        what = f"Times are regular, every {duration_label(usual)}."
        yield Finding("ok", what, data.period(0, last))
        return
    resample = f"Averages at regular times: --set read.every={usual_duration(usual)}"
    if (deviation > IRREGULAR_STEPS * usual).mean() > 0.5:
        low, high = (duration_label(int(q)) for q in np.quantile(steps, (0.05, 0.95)))
        what = f"Times have no regular step: 90 % of the steps are {low} to {high} long, "
        what += f"{duration_label(usual)} is the median."
        yield Finding("warning", what, data.period(0, last), resample)
        return
    gaps = np.flatnonzero(steps > GAP_STEPS * usual)
    if len(gaps):
        missing = int((np.rint(steps[gaps] / usual) - 1).sum())
        share = missing / (missing + len(times))
        longest = int(gaps[np.argmax(steps[gaps])])
        yield Finding(
            "warning" if share > GAP_WARNING else "note",
            f"{plural(len(gaps), 'gap')} in the time axis: {plural(missing, 'frame')} of "
            f"{duration_label(usual)} ({share:.1%}) missing.",
            f"longest: {data.period(longest, longest + 1)}",
            "No window crosses a long gap. Add the missing data if they exist.",
        )
    jitter = irregular & (steps <= GAP_STEPS * usual)
    if jitter.any():
        worst = int(np.argmax(np.where(jitter, deviation, -1)))
        what = f"{jitter.mean():.1%} of the steps differ from {duration_label(usual)} by up to "
        what += f"{duration_label(int(deviation[worst]))}. Irregular times are allowed."
        yield Finding("note", what, data.period(worst, worst + 1), resample)


def missing_value_check(data: CheckInput) -> Iterator[Finding]:
    """Missing values by channel and station; records that start late or end early.

    Args:
        data: to be checked.
    """
    if not data.missing.any():
        yield Finding("ok", "No value is missing.")
        return
    shares = data.missing.mean(0)
    each = zip(data.field.channels, shares, strict=True)
    asynchronous = _asynchronous(data)
    severe = float(shares.max()) > MAX_MISSING and asynchronous is None
    what = f"Values are missing: {', '.join(f'{name} {share:.1%}' for name, share in each)}."
    yield Finding("warning" if severe else "note", what)
    if asynchronous is not None:
        yield asynchronous
        return
    yield from _never_reported(data)
    yield from _mostly_missing(data)
    yield from _silent_at_the_end(data)
    yield from _short_records(data)


def _asynchronous(data: CheckInput) -> Finding | None:
    """Stations that report at times of their own, so that most frames are nearly empty."""
    field, statistics = data.field, data.statistics
    median_share = np.median(statistics.reporting)
    if len(field.points) < 4 or median_share > 0.5:
        return None
    frames = statistics.count.max(1)
    active = frames > 2
    if not active.any() or np.median(frames[active]) > len(field.times) / 2:
        return None
    first, last = statistics.first.max(1)[active], statistics.last.max(1)[active]
    steps = (field.times[last] - field.times[first]) / np.maximum(frames[active] - 1, 1)
    usual = int(np.median(steps))
    if usual < GAP_STEPS * field.step:
        return None
    what = "Stations report at different times: half of the frames hold values of less than "
    what += f"{median_share:.0%} of them, each reports about every {duration_label(usual)}."
    advice = f"Resample to common times: --set read.every={usual_duration(usual)}"
    return Finding("warning", what, advice=advice)


def _never_reported(data: CheckInput) -> Iterator[Finding]:
    """Stations without any value of a channel."""
    for c, channel in enumerate(data.field.channels):
        never = np.flatnonzero(data.statistics.count[:, c] == 0)
        if 0 < len(never) < len(data.field.points):
            what = f"{plural(len(never), 'station')} never {verb(len(never), 'report')} {channel}."
            advice = "It is forecast there from the values of other stations."
            yield Finding("note", what, data.stations(never), advice)


def _mostly_missing(data: CheckInput) -> Iterator[Finding]:
    """Stations that lack far more than is usual, each by its worst channel."""
    statistics = data.statistics
    reported = statistics.count > 0
    usual = [np.median(data.missing[k, c]) if k.any() else 1.0 for c, k in enumerate(reported.T)]
    excess = reported & (data.missing > np.array(usual) + MISSING_EXCESS)
    missing = np.where(excess, data.missing, 0.0)
    channel, share = missing.argmax(1), missing.max(1)
    order = np.argsort(-share, kind="stable")
    levels: tuple[tuple[Level, float, float], ...] = (
        ("warning", MISSING_WARNING, 1.0),
        ("note", MISSING_NOTE, MISSING_WARNING),
    )

    def detail(n: int) -> str:
        c = int(channel[n])
        length, end = int(statistics.gap[n, c]), int(statistics.gap_end[n, c])
        gap = f", longest gap {data.period(end - length - 1, end)}" if length else ""
        return f"{share[n]:.0%} of {data.field.channels[c]}{gap}"

    for level, low, high in levels:
        nodes = order[(share[order] > low) & (share[order] <= high)]
        if len(nodes):
            count = len(nodes)
            what = f"{plural(count, 'station')} {verb(count, 'lack')} more than {low:.0%}."
            advice = "Leave them out if they were closed." if level == "warning" else ""
            yield Finding(level, what, data.stations(nodes, detail), advice)


def _silence(data: CheckInput) -> Int64[np.ndarray, " node"]:
    """Nanoseconds since the last value of each silent station; 0 at the others.

    A station is silent if its last value is older than what forecasts start from.
    """
    field, statistics = data.field, data.statistics
    count = statistics.count.max(1)
    last = np.where(statistics.count > 0, statistics.last, 0).max(1)
    length = field.times[-1] - field.times[last]
    usual = (field.times[-1] - field.times[0]) / np.maximum(count, 1)  # between its own values
    limit = np.maximum(max(SILENT_STEPS * field.step, DAY * field.calendar), SILENT_REPORTS * usual)
    return np.where((count > 0) & (length > limit), length, 0)


def _silent_at_the_end(data: CheckInput) -> Iterator[Finding]:
    """Stations that are silent at the end of the record, the longest ones first."""
    silence = _silence(data)
    nodes = np.argsort(-silence, kind="stable")[: np.count_nonzero(silence)]
    if len(nodes):
        end, are = int(data.field.times[-1]), "is" if len(nodes) == 1 else "are"

        def detail(n: int) -> str:
            since = short_time(end - int(silence[n]), data.field.calendar)
            return f"since {since} ({duration_label(int(silence[n]))})"

        what = f"{plural(len(nodes), 'station')} of {len(silence)} {are} silent at the end."
        advice = "Forecasts treat them as places without a history. Add their values, or end the "
        advice += "data earlier (--to)."
        yield Finding("warning", what, data.stations(nodes, detail), advice)


def _short_records(data: CheckInput) -> Iterator[Finding]:
    """Stations whose record of a channel starts well after the period, or ends well before."""
    times, statistics = data.field.times, data.statistics
    if len(times) < 20:
        return
    reported = statistics.count > 0
    late = np.where(reported, times[statistics.first] - times[0], 0)
    early = np.where(reported, times[-1] - times[statistics.last], 0)
    early[_silence(data) > 0] = 0  # reported as silent
    tolerance = EDGE_SHARE * float(times[-1] - times[0])
    for action, adverb, lack, frame in (
        ("start", "late", late, statistics.first),
        ("end", "early", early, statistics.last),
    ):
        channel, length = lack.argmax(1), lack.max(1)
        nodes = np.flatnonzero(length > tolerance)
        nodes = nodes[np.argsort(-length[nodes], kind="stable")]
        at = {n: data.time(int(frame[n, channel[n]])) for n in nodes[:MAX_NAMED].tolist()}
        if len(nodes):
            what = f"{plural(len(nodes), 'record')} {verb(len(nodes), action)} {adverb}."
            yield Finding("note", what, data.stations(nodes, at.__getitem__))


def flat_line_check(data: CheckInput) -> Iterator[Finding]:
    """Sensors that never change, or repeat a value for longer than chance explains.

    Args:
        data: to be checked.
    """
    statistics, frames = data.statistics, len(data.field.times)
    for c, channel in enumerate(data.field.channels):
        reported = statistics.count[:, c] >= max(2, min(10, frames))
        constant = reported & (statistics.low[:, c] == statistics.high[:, c])
        if constant.any() and constant[reported].all():
            where = data.value(float(statistics.low[constant, c][0]), c)
            yield Finding("warning", f"{channel} is constant at all stations.", where, "Omit it.")
            continue
        zeros, count = statistics.zeros[reported, c].sum(), statistics.count[reported, c].sum()
        mostly_zero = zeros > 0.5 * count  # such as rain
        zero = statistics.low[:, c] == 0
        yield from _constant(data, c, np.flatnonzero(constant & ~zero), "warning")
        level: Level = "note" if mostly_zero else "warning"
        yield from _constant(data, c, np.flatnonzero(constant & zero), level)
        yield from _long_runs(data, c, channel, constant)


def _constant(
    data: CheckInput, c: int, nodes: Int64[np.ndarray, " node"], level: Level
) -> Iterator[Finding]:
    """Stations with one and the same value throughout."""
    if len(nodes):
        count, channel = len(nodes), data.field.channels[c]
        what = f"{plural(count, 'station')} {verb(count, 'report')} a constant {channel}."
        where = data.stations(nodes, lambda n: data.value(float(data.statistics.low[n, c]), c))
        yield Finding(level, what, where, "A broken sensor? Leave the station out.")


def _long_runs(data: CheckInput, c: int, channel: str, constant: np.ndarray) -> Iterator[Finding]:
    """Sensors that repeat one value for long, unless the value is a natural bound."""
    statistics = data.statistics
    pairs, length = int(statistics.pairs[c]), statistics.flat[:, c]
    repeat_share = float(np.clip(statistics.repeats[c] / max(pairs, 1), 1e-6, 0.99))
    by_chance = np.log(max(pairs, 2)) / -np.log(repeat_share)  # expected longest run
    usual = float(np.median(length)) if len(constant) > 3 else 0.0
    threshold = max(MIN_FLAT_RUN, 3 * by_chance, 4 * usual)
    nodes = np.flatnonzero((length >= threshold) & ~constant)
    values = np.array([data.field.values[statistics.flat_end[n, c], n, c] for n in nodes])
    # A value that several stations reach as their extreme, such as 100 % humidity, is a bound.
    extremes = np.concatenate([statistics.low[:, c], statistics.high[:, c]])
    bound = np.array([(extremes == value).sum() >= 3 for value in values], dtype=bool)
    nodes = nodes[~bound]
    if len(nodes):
        nodes = nodes[np.argsort(-length[nodes], kind="stable")]

        def detail(n: int) -> str:
            end = int(statistics.flat_end[n, c])
            value = data.value(float(data.field.values[end, n, c]), c)
            return f"{value}, {data.period(end - int(length[n]), end)}"

        count = len(nodes)
        what = f"{plural(count, 'sensor')} of {channel} {verb(count, 'stick')} to one value."
        advice = "Set these values to missing."
        yield Finding("warning", what, data.stations(nodes, detail), advice)


def outlier_check(data: CheckInput) -> Iterator[Finding]:
    """Fill values that stand for "missing", and values far from all others of their station.

    Args:
        data: to be checked.
    """
    statistics, field = data.statistics, data.field
    for (c, value), values in sorted(statistics.fill_values.items()):
        if values.count > 1:
            stations = plural(len(values.nodes), "station")
            yield Finding(
                "warning",
                f"{values.count} values of {field.channels[c]} are {value:g}, far from all others: "
                'a fill value for "missing"?',
                f"{stations}, first {data.station(values.node)}, {data.time(values.frame)}",
                f"If so: --set read.missing={value:g}",
            )
    for c in range(len(field.channels)):
        outliers = {n: values for (n, k), values in statistics.outliers.items() if k == c}
        for (k, _), values in statistics.fill_values.items():
            if k == c and values.count == 1:
                outliers.setdefault(values.node, values)
        if outliers:
            yield _outliers(data, c, outliers)


def _outliers(data: CheckInput, c: int, outliers: dict[int, Occurrences]) -> Finding:
    """A finding on the outliers of one channel, by station."""
    count = sum(values.count for values in outliers.values())
    low, high = (data.value(float(end[c]), c) for end in (data.sample.low, data.sample.high))
    be, their = ("is", "its") if count == 1 else ("are", "their")
    return Finding(
        "warning",
        f"{plural(count, 'value')} of {data.field.channels[c]} {be} far from all others of {their} "
        f"station (99 % of all values: {low} to {high}).",
        data.stations(
            sorted(outliers, key=lambda n: -outliers[n].count),
            lambda n: f"{data.value(outliers[n].value, c)} at {data.time(outliers[n].frame)}",
        ),
        "Set them to missing if they are wrong.",
    )
