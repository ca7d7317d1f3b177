"""The doctor's picture: where the stations are, when they report, how they lie, what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stonet.data.cf import NANOSECONDS
from stonet.errors import DataError
from stonet.plotting.figures import DPI, PALETTE
from stonet.plotting.maps import AXES, MapProjection
from stonet.quality.checks import Exam
from stonet.quality.report import Report

ROWS = 300  # of the strip: more stations share a row
SHOWN = 3  # channels whose values are drawn
LOOK: dict[str, Any] = {"cmap": "viridis", "norm": Normalize(0.0, 1.0)}
LABEL = "share of values observed"


def quality_figure(report: Report, title: str = "") -> Figure:
    """A map and a strip of availability, the graph's degrees, and the values of each channel."""
    if report.exam is None:
        raise DataError("The data could not be read, so there is nothing to draw.")
    exam = report.exam
    shown = min(SHOWN, len(exam.field.channels))
    figure = Figure(figsize=(12.0, 8.0), dpi=DPI, layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.45, 1.0))
    upper, lower = halves
    left, right = upper.subplots(1, 2, width_ratios=(1.0, 1.15))
    _map(left, exam)
    _strip(right, exam)
    upper.colorbar(ScalarMappable(**LOOK), ax=[left, right], label=LABEL, pad=0.01, aspect=30)
    first, *others = lower.subplots(1, 1 + shown)
    _degrees(first, np.array(report.facts["degrees"]), report.facts["suggested_radius_text"])
    for c, axes in enumerate(others):
        _values(axes, exam, c)
    for axes in (first, *others):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title or _title(exam), fontsize=14)
    return figure


def _title(exam: Exam) -> str:
    field = exam.field
    last = len(field.times) - 1
    return f"{len(field.points)} stations, {exam.when(0)} to {exam.when(last)}"


def _map(axes: Axes, exam: Exam) -> None:
    points = exam.field.points
    share = exam.statistics.present.mean(0)
    order = np.argsort(-share, kind="stable")  # gaps are drawn last: they must be seen
    sheet = MapProjection.of(points)
    x, y = sheet.place(points)[order].T
    size = float(np.clip(6_000 / len(points), 0.4, 45))
    edge = 0.3 if len(points) < 1_000 else 0.0
    axes.scatter(
        x, y, c=share[order], s=size, linewidths=edge, edgecolors="0.3", rasterized=True, **LOOK
    )
    sheet.dress(axes)
    axes.set_facecolor("0.96")
    across, up = AXES[points.kind]
    axes.set(xlabel=across, ylabel=up, title="where")


def _strip(axes: Axes, exam: Exam) -> None:
    """Stations from the fullest record to the emptiest, over time."""
    present, calendar = exam.statistics.present, exam.field.calendar
    order = np.argsort(-present.mean(0), kind="stable")
    rows = shared_rows(present[:, order].T)
    ends = exam.field.times[[0, -1]]
    dates: Any = ends.astype("datetime64[ns]")
    low, high = date2num(dates) if calendar else ends / NANOSECONDS  # type: ignore[no-untyped-call]
    high = high if high > low else low + 1.0
    extent = (float(low), float(high), float(present.shape[1]), 0.0)
    axes.imshow(rows, aspect="auto", extent=extent, interpolation="nearest", **LOOK)
    if calendar:
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set(xlabel="time (UTC)" if calendar else "time (s)", title="when")
    axes.set_ylabel("stations, the fullest record first")


def shared_rows(rows: Float32[np.ndarray, "node bin"]) -> Float32[np.ndarray, "row bin"]:
    """At most ROWS rows: means of neighbouring ones."""
    if len(rows) <= ROWS:
        return rows
    start = np.arange(ROWS) * len(rows) // ROWS
    count = np.diff(np.append(start, len(rows))).astype(np.float32)
    return np.add.reduceat(rows, start, axis=0) / count[:, None]


def _degrees(axes: Axes, degrees: Int64[np.ndarray, " degree"], radius: str) -> None:
    axes.bar(np.arange(len(degrees)), degrees, width=0.9, color=PALETTE[0])
    if degrees[:2].any():
        axes.bar(np.arange(2), degrees[:2], width=0.9, color=PALETTE[1], label="alone")
        axes.legend(frameon=False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set(xlabel=f"stations within {radius}", ylabel="stations", title="neighbours")


def _values(axes: Axes, exam: Exam, c: int) -> None:
    """A histogram; on a logarithmic scale, so that what is rare is seen."""
    name, unit = exam.field.quantity[c]
    values = exam.sample.values[..., c]
    known = values[np.isfinite(values)].astype(np.float64)
    axes.hist(known, bins=60, color=PALETTE[2], log=len(known) > 0)
    axes.set(xlabel=name if unit in ("1", "") else f"{name} ({unit})", title=name)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel("values" if c == 0 else "")
