"""The data doctor: examines data before anyone trains on them, and says what to do.

Healthy data get no warning. What `read` refuses is a finding, too: the doctor then reads again,
leniently, to find everything else in the same visit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.config import Config, GraphConfig, ReadConfig
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import resolve_time_spec
from stonet.data.windows import PARTS, cut, split
from stonet.errors import DataError, UsageError
from stonet.graph.neighbours import count_within, radius_for_degree
from stonet.io.read import read_config, read_with
from stonet.quality.checks import (
    LEVELS,
    Exam,
    Finding,
    Level,
    date,
    duration,
    missing_values,
    plural,
    regular_times,
    strange_values,
    stuck_sensors,
    verb,
)
from stonet.quality.consistency import buddy_check, kilometres, places, units

if TYPE_CHECKING:
    from rich.table import Table

LENIENT = {"duplicates": "mean", "same_place": "keep", "infinite": "missing"}
COMFORTABLE = 4_000  # points that a laptop trains on without complaint
ASKED = 1_000  # points from which the radius is found where there are many more
MAX_LISTED = 8  # findings in a short description
COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}


@dataclass(frozen=True)
class Report:
    """What was found, the worst first; and what was measured, where the data could be read."""

    findings: list[Finding]
    facts: dict[str, Any]
    exam: Exam | None = None

    def __repr__(self) -> str:
        counts = {level: sum(f.level == level for f in self.findings) for level in LEVELS}
        lines = [f"  {f.level:<8} {f.what}" for f in self.findings[:MAX_LISTED]]
        more = len(self.findings) - len(lines)
        title = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
        return "\n".join([f"Report: {title}", *lines, *([f"  … and {more} more"] if more else [])])

    @property
    def field(self) -> Field | None:
        return None if self.exam is None else self.exam.field

    @cached_property
    def worst(self) -> str:
        """The gravest level: error, warning, note or ok."""
        return self.findings[0].level if self.findings else "ok"

    def to_json(self) -> dict[str, Any]:
        """A dictionary of what JSON knows."""
        return {"findings": [asdict(finding) for finding in self.findings], "facts": self.facts}


def check(source: Any, config: ReadConfig | None = None, **options: Any) -> Report:
    """Read the source as `stonet.read` would, and report everything worth knowing.

    Args:
        source: what `stonet.read` takes, or a Field.
        config: the options with which it would be read (None: those given by name).
        **options: as for `stonet.read`.

    Example:
        >>> stonet.check("stations.csv", variables="temperature")
    """
    config = read_config(options) if config is None else config
    field, findings = _read(source, config)
    if field is None:
        return Report(findings, {})
    findings += [Finding("note", note) for note in field.notes]
    exam = Exam.of(field)
    degree, radius = _neighbourhood(field.points)
    rules = (regular_times, missing_values, stuck_sensors, strange_values, units)
    for rule in (*rules, buddy_check, places):
        findings += rule(exam)
    findings += _graph(exam, degree, radius)
    windows, told = _training(field)
    findings += told
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return Report(findings, _facts(exam, degree, radius) | {"windows": windows}, exam)


def _read(source: Any, config: ReadConfig) -> tuple[Field | None, list[Finding]]:
    """The field, however it can be had, and what stood in the way."""
    findings: list[Finding] = []
    for attempt in (config, config.model_copy(update=LENIENT)):
        try:
            return read_with(source, attempt), findings
        except UsageError:
            raise  # no such file, no such option: not the data's fault
        except DataError as error:
            if str(error) not in (finding.what for finding in findings):
                findings.append(Finding("error", str(error)))
    return None, findings


def _neighbourhood(points: Points) -> tuple[Int64[np.ndarray, " node"], float]:
    """How many points each has within the suggested radius (itself included), and that radius."""
    asked = points
    if len(points) > ASKED:
        chosen = np.random.default_rng(0).choice(len(points), ASKED, replace=False)
        asked = points.take(np.sort(chosen))
    radius = radius_for_degree(asked, points, GraphConfig().decoder_degree)
    return count_within(points, radius), radius


def _graph(exam: Exam, degree: Int64[np.ndarray, " node"], radius: float) -> Iterator[Finding]:
    points = exam.field.points
    alone = np.flatnonzero(degree <= 1)
    if len(alone) and len(points) > 1:
        yield Finding(
            "note",
            f"{plural(len(alone), 'station')} {verb(len(alone), 'have').replace('haves', 'has')} "
            f"no other within {kilometres(points, radius)}, the radius that gives "
            f"{degree.mean():.0f} on average.",
            exam.names(alone),
            "They are forecast from their own past and the next station.",
        )
    elif len(points) > 1:
        yield Finding(
            "ok",
            f"Within {kilometres(points, radius)}, the suggested radius, lie {degree.min()} to "
            f"{degree.max()} stations, {degree.mean():.0f} on average; none is isolated.",
        )
    if len(points) > COMFORTABLE:
        yield Finding(
            "note",
            f"{len(points)} points are many for a laptop.",
            advice="Take fewer (--points 2000), or a region (--bbox west,south,east,north).",
        )


def _training(field: Field) -> tuple[dict[str, int], list[Finding]]:
    """How many windows each part would have, by default; and whether one can train at all."""
    if len(field.times) < 2:
        return {}, []  # has been said
    config, dataset = Config(), Dataset((field,))
    try:
        time_spec = resolve_time_spec(dataset, config)
        parts = split(dataset, time_spec, config.data.split)
        scaler = Scaler.identity(len(field.channels))
        windows = {part: len(cut(parts[part], scaler, time_spec)) for part in PARTS}
    except DataError as error:
        return {}, [Finding("error", f"Too little to train on. {error}")]
    told = ", ".join(f"{count} to {part}" for part, count in windows.items())
    told = told.replace("to validation", "to validate")
    lengths = f"{duration(time_spec.past * time_spec.step)} in, {duration(time_spec.horizon * time_spec.step)} out"
    level: Level = "note" if windows["train"] < 200 else "ok"
    what = f"Windows of {time_spec.past} + {time_spec.horizon} frames ({lengths}): {told}."
    few = "Few: expect little more than the linear base. Give a longer series."
    return windows, [Finding(level, what, advice=few if level == "note" else "")]


def _facts(exam: Exam, degree: Int64[np.ndarray, " node"], radius: float) -> dict[str, Any]:
    field, statistics, sample = exam.field, exam.statistics, exam.sample
    low, high = field.points.coordinates.min(0), field.points.coordinates.max(0)
    axes = field.points.geometry.axes
    channels = {
        name: {
            "unit": unit,
            "missing_share": float(exam.missing[:, c].mean()),
            "min": _number(statistics.low[:, c].min()),
            "median": _number(sample.median[c]),
            "max": _number(statistics.high[:, c].max()),
        }
        for c, (name, unit) in enumerate(field.quantity)
    }
    return {
        "frames": len(field.times),
        "points": len(field.points),
        "geometry": field.points.kind,
        "extent": {a: [float(low[i]), float(high[i])] for i, a in enumerate(axes)},
        "start": date(int(field.times[0]), field.calendar),
        "stop": date(int(field.times[-1]), field.calendar),
        "step_seconds": field.step / 1e9,
        "calendar": field.calendar,
        "channels": channels,
        "suggested_radius": radius,
        "suggested_radius_text": kilometres(field.points, radius),
        "mean_degree": float(degree.mean()),
        "max_degree": int(degree.max()),
        "isolated": int((degree <= 1).sum()),
        "degrees": np.bincount(np.minimum(degree, 50)).tolist(),  # the last: 50 and more
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def findings_table(report: Report) -> Table:
    """The findings for people, the worst first."""
    from rich.table import Table
    from rich.text import Text

    facts = report.facts
    title = "what the doctor found"
    if facts:
        title = (
            f"{facts['frames']} frames at {facts['points']} points, {facts['start']} to "
            f"{facts['stop']}; {', '.join(facts['channels'])}"
        )
    table = Table(title=Text(title, style="bold"), title_justify="left", show_header=False)
    for finding in report.findings:
        text = Text(finding.what)  # names may hold brackets, so there is no markup
        if finding.where:
            text.append(f"\n{finding.where}", style="dim")
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style="italic")
        table.add_row(Text(finding.level, style=COLOURS[finding.level]), text)
    return table
