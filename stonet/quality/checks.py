"""Symptoms: gaps in time, silent stations, stuck sensors, outliers, marks for "missing".

Each function takes what was measured and yields findings: what, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int64

from stonet.data.durations import UNITS, parse_duration
from stonet.data.field import Field
from stonet.quality.statistics import Sample, Statistics, ValueCounts, measure

Level = Literal["error", "warning", "note", "ok"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note", "ok")  # the worst first
NAMED = 5  # stations named in one finding
REGULAR = 0.01  # of a step: times off by less are regular
WILD = 0.25  # of a step: if most times are off by more, there is no step
GAP = 1.5  # steps between two frames: something is missing
LOST = 0.05  # share of frames missing in gaps: worth a warning
SILENT, QUIET = 0.5, 0.2  # share of a station's values missing: a warning, a note
EDGE = 0.1  # share of the period that a station's record may lack at either end
LONG_RUN = 12  # repeats of a value that are never just chance


@dataclass(frozen=True)
class Finding:
    """One thing that a person should know about their data."""

    level: Level
    what: str
    where: str = ""  # file, variable, station, time
    advice: str = ""


@dataclass(frozen=True)
class Exam:
    """A field with all that was measured of it."""

    field: Field
    sample: Sample
    statistics: Statistics

    @staticmethod
    def of(field: Field) -> Exam:
        sample = Sample.of(field)
        with np.errstate(over="ignore", invalid="ignore"):  # values near the end of float32
            return Exam(field, sample, measure(field, sample))

    @cached_property
    def missing(self) -> np.ndarray:
        """The share of values missing, of each point and channel."""
        return 1.0 - self.statistics.count / len(self.field.times)

    def when(self, frame: int) -> str:
        return date(int(self.field.times[frame]), self.field.calendar)

    def between(self, start: int, stop: int) -> str:
        """Two frames and the time between them, in words."""
        span = int(self.field.times[stop] - self.field.times[start])
        return f"{self.when(start)} to {self.when(stop)} ({duration(span)})"

    def name(self, node: int) -> str:
        return f"'{self.field.points.names[node]}'"

    def names(
        self, nodes: Sequence[int] | np.ndarray, tell: Callable[[int], str] | None = None
    ) -> str:
        """The first few by name, the others by number; `tell` adds to each."""
        told = [self.name(int(n)) + (f" {tell(int(n))}" if tell else "") for n in nodes[:NAMED]]
        rest = len(nodes) - len(told)
        return ("; " if tell else ", ").join(told) + (f" and {rest} more" if rest else "")

    def value(self, value: float | np.floating, channel: int) -> str:
        unit = self.field.units[channel]
        return f"{value:.6g}" + ("" if unit in ("1", "") else f" {unit}")


def date(time: int, calendar: bool) -> str:
    """2020-03-01, 2020-03-01 06:00, 2020-03-01 06:00:30; or seconds."""
    if not calendar:
        return f"{time / UNITS['s']:g} s"
    text = str(np.datetime64(time, "ns").astype("datetime64[s]")).replace("T", " ")
    return text.removesuffix(":00").removesuffix(" 00:00")


def duration(time: int) -> str:
    """In the largest unit of which it is at least one."""
    unit = next((u for u in reversed(UNITS) if abs(time) >= UNITS[u]), "ns")
    number = time / UNITS[unit]
    return f"{number:.0f} {unit}" if abs(number) >= 100 else f"{number:.3g} {unit}"


def regular_times(exam: Exam) -> Iterator[Finding]:
    """The step, the gaps and the jitter of the frames."""
    field = exam.field
    if len(field.times) < 2:
        yield Finding("error", "There is a single frame.", exam.when(0), "Give a longer series.")
        return
    steps, usual = np.diff(field.times), field.step
    off = np.abs(steps - usual) > REGULAR * usual
    gaps = np.flatnonzero(steps > GAP * usual)
    if not off.any():
        span = exam.between(0, len(field.times) - 1)
        yield Finding("ok", f"Times are regular, every {duration(usual)}.", span)
        return
    every = f"Averages at regular times: --set read.every={nice(usual)}"
    if (np.abs(steps - usual) > WILD * usual).mean() > 0.5:
        low, high = (duration(int(q)) for q in np.quantile(steps, (0.05, 0.95)))
        yield Finding(
            "warning",
            f"Times have no regular step: most are {low} to {high} apart ({duration(usual)} in the "
            "middle).",
            exam.between(0, len(field.times) - 1),
            every,
        )
        return
    if len(gaps):
        yield _gaps(exam, gaps, usual)
    jitter = off & (steps <= GAP * usual)
    if jitter.any():
        worst = int(np.argmax(np.where(jitter, np.abs(steps - usual), -1)))
        yield Finding(
            "note",
            f"{jitter.mean():.1%} of the steps differ from {duration(usual)} by up to "
            f"{duration(abs(int(steps[worst]) - usual))}. Irregular times are fine.",
            exam.between(worst, worst + 1),
            every,
        )


def _gaps(exam: Exam, gaps: Int64[np.ndarray, " gap"], usual: int) -> Finding:
    steps = np.diff(exam.field.times)
    lacking = int((np.rint(steps[gaps] / usual) - 1).sum())
    share = lacking / (lacking + len(exam.field.times))
    longest = int(gaps[np.argmax(steps[gaps])])
    return Finding(
        "warning" if share > LOST else "note",
        f"{plural(len(gaps), 'gap')} between the frames: {plural(lacking, 'frame')} of "
        f"{duration(usual)} ({share:.1%}) are not there.",
        f"the longest: {exam.between(longest, longest + 1)}",
        "No window crosses a long gap. Fill them in if the data exist.",
    )


def missing_values(exam: Exam) -> Iterator[Finding]:
    """How much is missing of each channel and where; records that start late or end early."""
    field, missing = exam.field, exam.missing
    if not missing.any():
        yield Finding("ok", "No value is missing.")
        return
    shares = missing.mean(0)
    told = ", ".join(
        f"{name} {share:.1%}" for name, share in zip(field.channels, shares, strict=True)
    )
    apart = _apart(exam)
    bad = float(shares.max()) > 0.6 and apart is None
    yield Finding("warning" if bad else "note", f"Values are missing: {told}.")
    if apart is not None:
        yield apart
        return
    yield from _never(exam)
    yield from _silent(exam)
    yield from _late_or_early(exam)


def _apart(exam: Exam) -> Finding | None:
    """Stations that report at times of their own, so that most frames are nearly empty."""
    field, statistics = exam.field, exam.statistics
    if len(field.points) < 4 or np.median(statistics.reporting) > 0.5:
        return None
    frames = statistics.count.max(1)
    lively = frames > 2
    if not lively.any() or np.median(frames[lively]) > len(field.times) / 2:
        return None
    first, last = statistics.first.max(1)[lively], statistics.last.max(1)[lively]
    own = (field.times[last] - field.times[first]) / np.maximum(frames[lively] - 1, 1)
    usual = int(np.median(own))
    if usual < GAP * field.step:
        return None
    return Finding(
        "warning",
        f"Stations report at different times: half of the frames hold values of less than "
        f"{np.median(statistics.reporting):.0%} of them, each reports about every {duration(usual)}.",
        advice=f"Bring them together: --set read.every={nice(usual)}",
    )


def _never(exam: Exam) -> Iterator[Finding]:
    for c, channel in enumerate(exam.field.channels):
        never = np.flatnonzero(exam.statistics.count[:, c] == 0)
        if 0 < len(never) < len(exam.field.points):
            what = f"{plural(len(never), 'station')} never {verb(len(never), 'report')} {channel}."
            advice = "There it is forecast from what others report."
            yield Finding("note", what, exam.names(never), advice)


def _silent(exam: Exam) -> Iterator[Finding]:
    """Stations that lack far more than others do, each by the worst of the channels it has."""
    known = exam.statistics.count > 0
    usual = [np.median(exam.missing[k, c]) if k.any() else 1.0 for c, k in enumerate(known.T)]
    missing = np.where(known & (exam.missing > np.array(usual) + 0.1), exam.missing, 0.0)
    worst = missing.argmax(1)
    share = missing.max(1)
    order = np.argsort(-share, kind="stable")
    levels: tuple[tuple[Level, float, float], ...] = (
        ("warning", SILENT, 1.0),
        ("note", QUIET, SILENT),
    )

    def tell(n: int) -> str:
        c = int(worst[n])
        length, end = int(exam.statistics.outage[n, c]), int(exam.statistics.outage_end[n, c])
        outage = f", silent {exam.between(end - length - 1, end)}" if length else ""
        return f"{share[n]:.0%} of {exam.field.channels[c]}{outage}"

    for level, low, high in levels:
        nodes = order[(share[order] > low) & (share[order] <= high)]
        if len(nodes):
            what = (
                f"{plural(len(nodes), 'station')} {verb(len(nodes), 'lack')} more than {low:.0%}."
            )
            advice = "Leave them out if they are no longer there." if level == "warning" else ""
            yield Finding(level, what, exam.names(nodes, tell), advice)


def _late_or_early(exam: Exam) -> Iterator[Finding]:
    """Stations of which a channel begins well after the others, or ends well before."""
    times, statistics = exam.field.times, exam.statistics
    if len(times) < 20:
        return
    known = statistics.count > 0
    late = np.where(known, times[statistics.first] - times[0], 0)
    early = np.where(known, times[-1] - times[statistics.last], 0)
    slack = EDGE * float(times[-1] - times[0])
    kinds = (
        ("starts late", "start late", late, statistics.first),
        ("ends early", "end early", early, statistics.last),
    )
    for one, many, lack, frame in kinds:
        worst, length = lack.argmax(1), lack.max(1)
        nodes = np.flatnonzero(length > slack)
        nodes = nodes[np.argsort(-length[nodes], kind="stable")]
        told = {n: exam.when(int(frame[n, worst[n]])) for n in nodes[:NAMED].tolist()}
        if len(nodes):
            what = f"{plural(len(nodes), 'record')} {one if len(nodes) == 1 else many}."
            yield Finding("note", what, exam.names(nodes, told.__getitem__))


def stuck_sensors(exam: Exam) -> Iterator[Finding]:
    """Sensors that never change, or repeat a value for longer than chance explains."""
    statistics, frames = exam.statistics, len(exam.field.times)
    for c, channel in enumerate(exam.field.channels):
        known = statistics.count[:, c] >= max(2, min(10, frames))
        flat = known & (statistics.low[:, c] == statistics.high[:, c])
        if flat.any() and flat[known].all():
            where = exam.value(float(statistics.low[flat, c][0]), c)
            text = f"{channel} never changes, at any station."
            yield Finding("warning", text, where, "Leave it out.")
            continue
        idle = (
            statistics.zeros[known, c].sum() > 0.5 * statistics.count[known, c].sum()
        )  # such as rain
        zero = statistics.low[:, c] == 0
        yield from _flat(exam, c, np.flatnonzero(flat & ~zero), "warning")
        yield from _flat(exam, c, np.flatnonzero(flat & zero), "note" if idle else "warning")
        yield from _long_runs(exam, c, channel, flat)


def _flat(exam: Exam, c: int, nodes: Int64[np.ndarray, " node"], level: Level) -> Iterator[Finding]:
    if len(nodes):
        yield Finding(
            level,
            f"{plural(len(nodes), 'station')} {verb(len(nodes), 'report')} one and the same "
            f"{exam.field.channels[c]} all the time.",
            exam.names(nodes, lambda n: exam.value(float(exam.statistics.low[n, c]), c)),
            "A broken sensor? Leave the station out.",
        )


def _long_runs(exam: Exam, c: int, channel: str, flat: np.ndarray) -> Iterator[Finding]:
    statistics = exam.statistics
    chance = float(np.clip(statistics.repeats[c] / max(int(statistics.pairs[c]), 1), 1e-6, 0.99))
    expected = np.log(max(int(statistics.pairs[c]), 2)) / -np.log(chance)  # the longest by chance
    usual = float(np.median(statistics.stuck[:, c])) if len(flat) > 3 else 0.0
    threshold = max(LONG_RUN, 3 * expected, 4 * usual)
    nodes = np.flatnonzero((statistics.stuck[:, c] >= threshold) & ~flat)
    value = np.array([exam.field.values[statistics.stuck_end[n, c], n, c] for n in nodes])
    # a bound that several stations reach, such as 100 % humidity, is no defect
    ends = np.concatenate([statistics.low[:, c], statistics.high[:, c]])
    natural = np.array([(ends == v).sum() >= 3 for v in value], dtype=bool)
    nodes = nodes[~natural]
    if len(nodes):
        order = nodes[np.argsort(-statistics.stuck[nodes, c], kind="stable")]

        def tell(n: int) -> str:
            end = int(statistics.stuck_end[n, c])
            stuck = exam.value(float(exam.field.values[end, n, c]), c)
            return f"{stuck}, {exam.between(end - int(statistics.stuck[n, c]), end)}"

        yield Finding(
            "warning",
            f"{plural(len(nodes), 'sensor')} of {channel} {verb(len(nodes), 'stick')} to one value "
            "for long.",
            exam.names(order, tell),
            "Set these values to missing.",
        )


def strange_values(exam: Exam) -> Iterator[Finding]:
    """Numbers that mean "missing", and values far from all others of their station."""
    statistics, field = exam.statistics, exam.field
    for (c, value), mark in sorted(statistics.marks.items()):
        if mark.count > 1:
            yield Finding(
                "warning",
                f"{mark.count} values of {field.channels[c]} are {value:g}, far from all others: "
                'a mark for "missing"?',
                f"{plural(len(mark.nodes), 'station')}, first {exam.name(mark.node)}, "
                f"{exam.when(mark.frame)}",
                f"If so: --set read.missing={value:g}",
            )
    for c in range(len(field.channels)):
        found = {n: tally for (n, k), tally in statistics.outliers.items() if k == c}
        for (k, _), mark in statistics.marks.items():
            if k == c and mark.count == 1:
                found.setdefault(mark.node, mark)
        if found:
            yield _outliers(exam, c, found)


def _outliers(exam: Exam, c: int, found: dict[int, ValueCounts]) -> Finding:
    total = sum(tally.count for tally in found.values())
    low, high = (exam.value(float(end[c]), c) for end in (exam.sample.low, exam.sample.high))
    return Finding(
        "warning",
        f"{plural(total, 'value')} of {exam.field.channels[c]} {'is' if total == 1 else 'are'} far "
        f"from all others of {'its' if total == 1 else 'their'} station (usual: {low} to {high}).",
        exam.names(
            sorted(found, key=lambda n: -found[n].count),
            lambda n: f"{exam.value(found[n].value, c)} at {exam.when(found[n].frame)}",
        ),
        "Set them to missing if they are wrong.",
    )


def nice(time: int) -> str:
    """The nearest usual duration, as options take it: 1h, 30min, 10s."""
    usual = [f"{n}{unit}" for unit in ("s", "min") for n in (1, 2, 5, 10, 15, 20, 30)]
    usual += ["1ms", "10ms", "100ms", "1h", "2h", "3h", "4h", "6h", "8h", "12h", "1d", "7d"]
    return min(usual, key=lambda text: abs(np.log(parse_duration(text) / time)))


def plural(count: int, noun: str) -> str:
    """1 gap, 2 gaps."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def verb(count: int, word: str) -> str:
    """1 station lacks, 2 stations lack."""
    return word + ("s" if count == 1 else "")
