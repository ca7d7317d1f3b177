"""The figure of a quality report: map, availability over time, neighbours and histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stonet.data.cf import NANOSECONDS
from stonet.errors import DataError
from stonet.plotting.figures import (
    DPI,
    PALETTE,
    TIME_LABELS,
    format_time_axis,
    quantity_label,
)
from stonet.plotting.maps import MapProjection
from stonet.quality.checks import CheckInput
from stonet.quality.report import MAX_DEGREE, Report

MAX_ROWS = 300  # of the availability; more stations share a row
MAX_CHANNELS = 3  # with a histogram
BINS = 60
SCALE: dict[str, Any] = {"cmap": "viridis", "norm": Normalize(0.0, 1.0)}


def quality_figure(report: Report, title: str = "") -> Figure:
    """Draw a quality report.

    Args:
        report: as from `stonet.quality.report.check`.
        title: of the figure; by default the number of stations and the period.

    Raises:
        DataError: the data could not be read.

    Example:
        >>> quality_figure(check("stations.csv")).savefig("check.png")  # doctest: +SKIP
    """
    if report.data is None:
        raise DataError("The data could not be read, so there is nothing to draw.")
    data, facts = report.data, report.facts
    num_histograms = min(MAX_CHANNELS, len(data.field.channels))
    figure = Figure(figsize=(12.0, 8.0), dpi=DPI, layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.45, 1.0))
    upper, lower = halves
    left, right = upper.subplots(1, 2, width_ratios=(1.0, 1.15))
    _draw_map(left, data)
    _draw_availability(right, data)
    label = "share of values observed"
    upper.colorbar(ScalarMappable(**SCALE), ax=[left, right], label=label, pad=0.01, aspect=30)
    first, *others = lower.subplots(1, 1 + num_histograms)
    _draw_degrees(first, np.array(facts["degrees"]), facts["suggested_radius_text"])
    for c, axes in enumerate(others):
        _draw_histogram(axes, data, c)
    for axes in (first, *others):
        axes.spines[["top", "right"]].set_visible(False)
    period = f"{facts['points']} stations, {facts['start']} to {facts['stop']}"
    figure.suptitle(title or period, fontsize=14)
    return figure


def _draw_map(axes: Axes, data: CheckInput) -> None:
    """The stations, coloured by their availability; incomplete ones on top."""
    points = data.field.points
    share = data.statistics.availability.mean(0)
    order = np.argsort(-share, kind="stable")
    projection = MapProjection.of(points)
    projection.draw_dots(axes, points.take(order), share[order].astype(np.float64), **SCALE)
    x_label, y_label = projection.labels
    axes.set(xlabel=x_label, ylabel=y_label, title="Stations")


def _draw_availability(axes: Axes, data: CheckInput) -> None:
    """Availability over time, from the most complete record to the least."""
    availability, calendar = data.statistics.availability, data.field.calendar
    order = np.argsort(-availability.mean(0), kind="stable")
    rows = merge_rows(availability[:, order].T)
    ends = data.field.times[[0, -1]]
    dates: Any = ends.astype("datetime64[ns]")
    low, high = date2num(dates) if calendar else ends / NANOSECONDS  # type: ignore[no-untyped-call]
    high = high if high > low else low + 1.0
    extent = (float(low), float(high), float(availability.shape[1]), 0.0)
    axes.imshow(rows, aspect="auto", extent=extent, interpolation="nearest", **SCALE)
    format_time_axis(axes, calendar)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set(xlabel=TIME_LABELS[calendar], title="Availability")
    axes.set_ylabel("stations, most complete record first")


def merge_rows(rows: Float32[np.ndarray, "node bin"]) -> Float32[np.ndarray, "row bin"]:
    """At most MAX_ROWS rows: means of neighbouring ones."""
    if len(rows) <= MAX_ROWS:
        return rows
    start = np.arange(MAX_ROWS) * len(rows) // MAX_ROWS
    count = np.diff(np.append(start, len(rows))).astype(np.float32)
    return np.add.reduceat(rows, start, axis=0) / count[:, None]


def _draw_degrees(axes: Axes, degrees: Int64[np.ndarray, " degree"], radius: str) -> None:
    """Histogram of the number of stations within the suggested radius."""
    axes.bar(np.arange(len(degrees)), degrees, width=0.9, color=PALETTE[0])
    if degrees[:2].any():
        axes.bar(np.arange(2), degrees[:2], width=0.9, color=PALETTE[1], label="isolated")
        axes.legend(frameon=False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    above = f" ({MAX_DEGREE}: or more)" if len(degrees) > MAX_DEGREE else ""
    axes.set(xlabel=f"stations within {radius}{above}", ylabel="stations", title="Neighbours")


def _draw_histogram(axes: Axes, data: CheckInput, c: int) -> None:
    """Histogram of a channel's values, on a logarithmic scale that shows rare ones."""
    values = data.sample.values[..., c]
    finite = values[np.isfinite(values)].astype(np.float64)
    axes.hist(finite, bins=BINS, color=PALETTE[2], log=len(finite) > 0)
    axes.set(xlabel=quantity_label(*data.field.quantity[c]), title=data.field.channels[c])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylabel("number of values" if c == 0 else "")
