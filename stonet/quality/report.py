"""The quality report: all checks of a data set before training, with advice.

Data without problems give no warning. What `read` refuses is a finding, too: the data are then read
again with lenient options, so that one report shows all problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.config import Config, GraphConfig, ReadConfig
from stonet.data.display import short_time
from stonet.data.durations import duration_label
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
    CheckInput,
    Finding,
    Level,
    flat_line_check,
    missing_value_check,
    outlier_check,
    plural,
    time_axis_check,
)
from stonet.quality.consistency import buddy_check, distance_label, position_check, unit_check

if TYPE_CHECKING:
    from rich.table import Table

LENIENT = {"duplicates": "mean", "same_place": "keep", "infinite": "missing"}
MAX_LAPTOP_POINTS = 4_000  # more points train slowly on a laptop
MAX_RADIUS_POINTS = 1_000  # of which the suggested radius is computed
MIN_TRAINING_WINDOWS = 200  # fewer give little more than the linear base
MAX_LISTED = 8  # findings in a short description
MAX_DEGREE = 50  # of the histogram of neighbours
COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}
CHECKS = (
    time_axis_check,
    missing_value_check,
    flat_line_check,
    outlier_check,
    unit_check,
    buddy_check,
    position_check,
)


@dataclass(frozen=True)
class Report:
    """Findings, the most severe first, and facts about the data where they could be read.

    Args:
        findings: of all checks.
        facts: number of frames and points, period, channels.
        data: None if they could not be read.
    """

    findings: list[Finding]
    facts: dict[str, Any]
    data: CheckInput | None = None

    def __repr__(self) -> str:
        counts = {level: sum(f.level == level for f in self.findings) for level in LEVELS}
        lines = [f"  {f.level:<8} {f.what}" for f in self.findings[:MAX_LISTED]]
        more = len(self.findings) - len(lines)
        title = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
        return "\n".join([f"Report: {title}", *lines, *([f"  … and {more} more"] if more else [])])

    @property
    def field(self) -> Field | None:
        """The data; None if they could not be read."""
        return None if self.data is None else self.data.field

    @cached_property
    def worst(self) -> str:
        """The most severe level: error, warning, note or ok."""
        return self.findings[0].level if self.findings else "ok"

    def to_json(self) -> dict[str, Any]:
        """Findings and facts as JSON types."""
        return {"findings": [asdict(finding) for finding in self.findings], "facts": self.facts}


def check(data: Any, config: ReadConfig | None = None, **options: Any) -> Report:
    """Read data as `stonet.read` does, and run all quality checks.

    Args:
        data: what `stonet.read` takes, or a Field.
        config: options for reading (None: those given by name).
        **options: as for `stonet.read`.

    Returns:
        A report of findings, each with its advice.

    Raises:
        UsageError: there is no such file, or an option is wrong.

    Example:
        >>> report = check("stations.csv")  # doctest: +SKIP
        >>> for finding in report.findings:  # doctest: +SKIP
        ...     print(finding.level, finding.what, finding.advice)
    """
    config = read_config(options) if config is None else config
    field, findings = _read(data, config)
    if field is None:
        return Report(findings, {})
    findings += [Finding("note", note) for note in field.notes]
    checked = CheckInput.of(field)
    for run_check in CHECKS:
        findings += run_check(checked)
    degree, radius = _neighbourhood(field.points)
    findings += _graph_check(checked, degree, radius)
    windows, training_findings = _training_check(field)
    findings += training_findings
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    facts = _facts(checked, degree, radius) | {"windows": windows}
    return Report(findings, facts, checked)


def _read(data: Any, config: ReadConfig) -> tuple[Field | None, list[Finding]]:
    """The field, read with lenient options if need be, and the errors of reading."""
    findings: list[Finding] = []
    for options in (config, config.model_copy(update=LENIENT)):
        try:
            return read_with(data, options), findings
        except UsageError:
            raise  # a wrong path or option, not a problem of the data
        except DataError as error:
            if str(error) not in (finding.what for finding in findings):
                findings.append(Finding("error", str(error)))
    return None, findings


def _neighbourhood(points: Points) -> tuple[Int64[np.ndarray, " node"], float]:
    """Number of points within the suggested radius of each, itself included; and the radius."""
    sample = points
    if len(points) > MAX_RADIUS_POINTS:
        chosen = np.random.default_rng(0).choice(len(points), MAX_RADIUS_POINTS, replace=False)
        sample = points.take(np.sort(chosen))
    radius = radius_for_degree(sample, points, GraphConfig().decoder_degree)
    return count_within(points, radius), radius


def _graph_check(
    data: CheckInput, degree: Int64[np.ndarray, " node"], radius: float
) -> Iterator[Finding]:
    """Isolated stations, and too many points."""
    points = data.field.points
    isolated, distance = np.flatnonzero(degree <= 1), distance_label(points, radius)
    if len(isolated) and len(points) > 1:
        have = "has" if len(isolated) == 1 else "have"
        yield Finding(
            "note",
            f"{plural(len(isolated), 'station')} {have} no other within {distance}, the radius "
            f"with {degree.mean():.0f} stations on average.",
            data.stations(isolated),
            "They are forecast from their own past and the nearest station.",
        )
    elif len(points) > 1:
        yield Finding(
            "ok",
            f"{degree.min()} to {degree.max()} stations, {degree.mean():.0f} on average, lie "
            f"within {distance}, the suggested radius; none is isolated.",
        )
    if len(points) > MAX_LAPTOP_POINTS:
        yield Finding(
            "note",
            f"{len(points)} points train slowly on a laptop.",
            advice="Use fewer (--points 2000), or a region (--bbox west,south,east,north).",
        )


def _training_check(field: Field) -> tuple[dict[str, int], list[Finding]]:
    """The number of windows in each part with default settings, and whether that is enough."""
    if len(field.times) < 2:
        return {}, []  # reported by the time axis check
    config, dataset = Config(), Dataset((field,))
    try:
        spec = resolve_time_spec(dataset, config)
        parts = split(dataset, spec, config.data.split)
        scaler = Scaler.identity(len(field.channels))
        windows = {part: len(cut(parts[part], scaler, spec)) for part in PARTS}
    except DataError as error:
        return {}, [Finding("error", f"Too little data for training. {error}")]
    past, horizon = (duration_label(steps * spec.step) for steps in (spec.past, spec.horizon))
    counts = ", ".join(f"{count} for {part}" for part, count in windows.items())
    what = f"Windows of {spec.past} + {spec.horizon} frames ({past} in, {horizon} out): {counts}."
    short = windows["train"] < MIN_TRAINING_WINDOWS
    level: Level = "note" if short else "ok"
    advice = "Expect little more than the linear base; give a longer series." if short else ""
    return windows, [Finding(level, what, advice=advice)]


def _facts(data: CheckInput, degree: Int64[np.ndarray, " node"], radius: float) -> dict[str, Any]:
    """Shape, extent, period and channels of the data, and the suggested graph."""
    field, statistics, sample = data.field, data.statistics, data.sample
    low, high = field.points.coordinates.min(0), field.points.coordinates.max(0)
    axes = field.points.geometry.axes
    channels = {
        name: {
            "unit": unit,
            "missing_share": float(data.missing[:, c].mean()),
            "min": _finite(statistics.low[:, c].min()),
            "median": _finite(sample.median[c]),
            "max": _finite(statistics.high[:, c].max()),
        }
        for c, (name, unit) in enumerate(field.quantity)
    }
    return {
        "frames": len(field.times),
        "points": len(field.points),
        "geometry": field.points.kind,
        "extent": {a: [float(low[i]), float(high[i])] for i, a in enumerate(axes)},
        "start": short_time(int(field.times[0]), field.calendar),
        "stop": short_time(int(field.times[-1]), field.calendar),
        "step_seconds": field.step / 1e9,
        "calendar": field.calendar,
        "channels": channels,
        "suggested_radius": radius,
        "suggested_radius_text": distance_label(field.points, radius),
        "mean_degree": float(degree.mean()),
        "max_degree": int(degree.max()),
        "isolated": int((degree <= 1).sum()),
        "degrees": np.bincount(np.minimum(degree, MAX_DEGREE)).tolist(),  # last: MAX_DEGREE or more
    }


def _finite(value: Any) -> float | None:
    """A number; None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None


def findings_table(report: Report) -> Table:
    """The findings as a table for the terminal, the most severe first.

    Args:
        report: of `check`.
    """
    from rich.table import Table
    from rich.text import Text

    facts = report.facts
    title = "Quality report"
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
