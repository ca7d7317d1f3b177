"""Maps and series of fields on matplotlib axes; `Field.plot` and `QuantileField.plot` lead here.

Comes in: a Field, and axes or none. Goes out: the axes. Symbols with a value are returned as
`Tips`, from which a page makes texts that appear under the pointer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from stonet.data.cf import NANOSECONDS
from stonet.data.dates import Time, parse_time
from stonet.data.display import short_time, shortened
from stonet.data.durations import duration_label
from stonet.data.field import Field
from stonet.data.grid import Grid
from stonet.data.quantile_field import QuantileField
from stonet.errors import UsageError, unknown_name
from stonet.plotting.figures import (
    DPI,
    PALETTE,
    TIME_LABELS,
    format_time_axis,
    quantity_label,
    robust_scale,
)
from stonet.plotting.maps import MapProjection

PANEL_WIDTH = 5.0  # inches: texts are readable on a phone
SERIES_HEIGHT = 3.2  # inches
MAX_SERIES = 6  # stations in one panel of series
COLOUR_MAP = "viridis"
BANDS = ((90, 0.18), (50, 0.32))  # central intervals in percent, and their opacity
LEGEND_COLUMNS = 3
MAX_MARKED = 120  # values of a line that are marked

Tips = list[tuple[Artist, list[str]]]  # symbols, and a text for each of them


@dataclass(frozen=True)
class ColourScale:
    """Colours of values.

    Args:
        norm: limits.
        cmap: name of a matplotlib colour map.
    """

    norm: Normalize
    cmap: str = COLOUR_MAP

    @staticmethod
    def of(*values: Float64[np.ndarray, "..."]) -> ColourScale:
        """From the 1 % to the 99 % quantile of all values.

        Args:
            *values: NaN where there are none.
        """
        return ColourScale(robust_scale(np.concatenate([part.ravel() for part in values])))

    @property
    def drawn(self) -> dict[str, Any]:
        """As matplotlib's functions take it."""
        return {"norm": self.norm, "cmap": self.cmap}


def plot_field(
    field: Field,
    ax: Axes | None = None,
    channel: str | None = None,
    time: Time | None = None,
    stations: Sequence[str] | str | None = None,
) -> Axes:
    """A map of one time, or the series of some stations; see `Field.plot`.

    Args:
        field: to draw.
        ax: to draw on (None: those of a new figure).
        channel: name (None: the first).
        time: of the map: a date, or a lead such as "+6h" (None: the last).
        stations: names, whose series are drawn (None: a map).
    """
    number = channel_number(field, channel)
    if stations is None and len(field.points) > 1:
        frame = frame_at(field, time)
        ax = new_axes(map_size(MapProjection.of(field.points))) if ax is None else ax
        draw_map(ax, field, frame, number)
        return ax
    if time is not None:
        raise UsageError("A time is that of a map; series show all times. Give one of the two.")
    names = [stations] if isinstance(stations, str) else stations
    chosen = field if names is None else field.sel(station=list(names))
    ax = new_axes((PANEL_WIDTH, SERIES_HEIGHT)) if ax is None else ax
    draw_lines(ax, chosen, number)
    return ax


def plot_quantiles(
    found: QuantileField,
    ax: Axes | None = None,
    channel: str | None = None,
    time: Time | None = None,
    stations: str | None = None,
) -> Axes:
    """The series of one station with its intervals, or a map; see `QuantileField.plot`.

    Args:
        found: to draw.
        ax: to draw on (None: those of a new figure).
        channel: name (None: the first).
        time: of the map: a date, or a lead such as "+6h" (None: the last).
        stations: name of the station whose series is drawn (None: a map).
    """
    if stations is None and len(found.field.points) > 1:
        return plot_field(found.field, ax, channel, time)
    if time is not None:
        raise UsageError("A time is that of a map; series show all times. Give one of the two.")
    node = 0
    if stations is not None:
        name = found.field.sel(station=stations).points.names[0]
        node = found.field.points.names.index(name)
    ax = new_axes((PANEL_WIDTH, SERIES_HEIGHT)) if ax is None else ax
    draw_forecast(ax, found, node, channel_number(found.field, channel))
    return ax


def draw_map(
    axes: Axes,
    field: Field,
    frame: int,
    channel: int,
    scale: ColourScale | None = None,
    projection: MapProjection | None = None,
    marker: str = "o",
    colour_bar: bool = True,
) -> Tips:
    """One time of a field: the cells of a grid, or a dot at each station.

    Args:
        axes: to draw on.
        field: on a grid or at stations.
        frame: position of the time.
        channel: position of the channel.
        scale: colours (None: those of this time's values).
        projection: of the map (None: that suits the points).
        marker: symbol of the stations.
        colour_bar: whether the colours are explained below the map.

    Returns:
        The texts of the stations that have a value; none of a grid.
    """
    values = field.values[frame, :, channel].astype(np.float64)
    scale = ColourScale.of(values) if scale is None else scale
    projection = MapProjection.of(field.points) if projection is None else projection
    grid, tips = Grid.of(field.points), Tips()
    if grid is not None:
        projection.draw_grid(axes, grid, grid.scatter(values), **scale.drawn)
    else:
        dots = projection.draw_dots(axes, field.points, values, marker=marker, **scale.drawn)
        unit = with_unit(field.units[channel])
        known = np.flatnonzero(np.isfinite(values))
        names = field.points.names
        tips.append((dots, [f"{shortened(names[i])}: {values[i]:.4g}{unit}" for i in known]))
    x_label, y_label = projection.labels
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_title(time_title(field, frame), fontsize=11)
    if colour_bar:
        draw_colour_bar(axes, scale, quantity_label(*field.quantity[channel]))
    return tips


def draw_lines(axes: Axes, field: Field, channel: int) -> Tips:
    """The series of some stations, one line each.

    Args:
        axes: to draw on.
        field: of at most MAX_SERIES stations.
        channel: position of the channel.

    Raises:
        UsageError: there are too many stations.
    """
    names, unit = field.points.names, with_unit(field.units[channel])
    if len(names) > MAX_SERIES:
        raise UsageError(
            f"{len(names)} series were requested, and {MAX_SERIES} can be told apart in one "
            "panel. Name fewer stations."
        )
    tips: Tips = []
    x = time_values(field.times, field.calendar)
    texts = [short_time(int(time), field.calendar) for time in field.times]
    for node, name in enumerate(names):
        values = field.values[:, node, channel].astype(np.float64)
        label = shortened(name, 24)
        tips += draw_line(axes, x, values, texts, label, unit, PALETTE[node % len(PALETTE)])
    format_series(axes, field, channel)
    add_legend(axes)
    return tips


def draw_forecast(
    axes: Axes,
    found: QuantileField,
    node: int,
    channel: int,
    past: Field | None = None,
    truth: Field | None = None,
) -> Tips:
    """The forecast at one point with its intervals, after the past and beside the truth.

    Args:
        axes: to draw on.
        found: the forecast; its quantiles may be none.
        node: position of the point.
        channel: position of the channel.
        past: observations at this point up to the issue time (None: none).
        truth: observations at this point during the forecast (None: none).
    """
    field = found.field
    unit = with_unit(field.units[channel])
    x = time_values(field.times, field.calendar)
    values = field.values[:, node, channel].astype(np.float64)
    texts = [short_time(int(time), field.calendar) for time in field.times]
    issue = None if field.reference_time is None else np.array([field.reference_time])
    for percent, opacity in BANDS:
        tail = (100 - percent) / 200
        if not {tail, 1 - tail} <= {round(tau, 9) for tau in found.quantiles}:
            continue
        low, high = (end.values[:, node, channel] for end in found.interval(percent))
        known = np.isfinite(low) & np.isfinite(high)
        if known.any():
            shade: dict[str, Any] = {"alpha": opacity, "linewidth": 0}
            label = f"{percent} % interval"
            axes.fill_between(x, low, high, where=known, color=PALETTE[1], label=label, **shade)
            parts = zip(texts, low, high, strict=True)
            texts = [f"{text}, {percent} %: {a:.4g} to {b:.4g}" for text, a, b in parts]
    tips = draw_line(axes, x, values, texts, "forecast", unit, PALETTE[1])
    for name, observed, style in (("observed", past, "-"), ("observed later", truth, "--")):
        if observed is not None and np.isfinite(observed.values[:, 0, channel]).any():
            series = observed.values[:, 0, channel].astype(np.float64)
            at = time_values(observed.times, observed.calendar)
            when = [short_time(int(time), observed.calendar) for time in observed.times]
            tips += draw_line(axes, at, series, when, name, unit, "0.15", style)
    if issue is not None:
        axes.axvline(time_values(issue, field.calendar)[0], color="0.5", lw=1.0, ls=":")
    format_series(axes, field, channel)
    axes.set_title(shortened(field.points.names[node], 40), fontsize=11, parse_math=False)
    add_legend(axes)
    return tips


def draw_line(
    axes: Axes,
    x: Float64[np.ndarray, " time"],
    values: Float64[np.ndarray, " time"],
    texts: Sequence[str],
    label: str,
    unit: str,
    colour: str,
    style: str = "-",
) -> Tips:
    """A line whose values are marked where they are few.

    Args:
        axes: to draw on.
        x: times, as `time_values` gives them.
        values: NaN breaks the line.
        texts: what is said of each value beside the value itself.
        label: in the legend.
        unit: with a space before it.
        colour: of the line.
        style: of the line, as matplotlib writes it.
    """
    marks: dict[str, Any] = {"marker": "o", "markersize": 3} if len(x) <= MAX_MARKED else {}
    (line,) = axes.plot(x, values, style, color=colour, label=label, linewidth=1.6, **marks)
    known = np.flatnonzero(np.isfinite(values)).tolist()
    return [(line, [f"{label}, {texts[i]}: {values[i]:.4g}{unit}" for i in known])]


def format_series(axes: Axes, field: Field, channel: int) -> None:
    """Labels, dates and a light grid of series.

    Args:
        axes: of the series.
        field: that is drawn.
        channel: position of the channel.
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(TIME_LABELS[field.calendar])
    axes.set_ylabel(quantity_label(*field.quantity[channel]), parse_math=False)
    format_time_axis(axes, field.calendar)


def add_legend(axes: Axes) -> None:
    """A legend above the lines, for which room is made.

    Args:
        axes: of series.
    """
    rows = -(-len(axes.get_legend_handles_labels()[0]) // LEGEND_COLUMNS)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (0.05 + 0.1 * rows) * (high - low))
    style: dict[str, Any] = {"frameon": False, "fontsize": 8, "columnspacing": 1.2}
    axes.legend(loc="upper center", ncols=LEGEND_COLUMNS, **style)


def draw_colour_bar(axes: Axes, scale: ColourScale, label: str) -> None:
    """The colour bar below a map; arrows stand for values beyond the scale.

    Args:
        axes: of the map.
        scale: that is explained.
        label: quantity and unit.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes that were drawn on have a figure
    bar = figure.colorbar(
        ScalarMappable(**scale.drawn),
        ax=axes,
        orientation="horizontal",
        extend="both",
        pad=0.02,
        aspect=35,
    )
    bar.set_label(label, parse_math=False)


def new_axes(size: tuple[float, float]) -> Axes:
    """The axes of a new figure, which no global state knows.

    Args:
        size: width and height in inches.
    """
    return Figure(figsize=size, dpi=DPI, layout="constrained").subplots()


def map_size(projection: MapProjection, width: float = PANEL_WIDTH) -> tuple[float, float]:
    """Width and height of a figure with a single map, its labels and its colour bar.

    Args:
        projection: of the map.
        width: in inches.
    """
    west, east, south, north = projection.box
    ratio = projection.aspect * (north - south) / (east - west)
    return width, float(np.clip(ratio * (width - 0.8), 1.2, 1.6 * width)) + 1.4


def channel_number(field: Field, channel: str | None) -> int:
    """The position of a channel.

    Args:
        field: that has it.
        channel: name; None: the first.

    Raises:
        UsageError: there is no such channel.
    """
    if channel is None:
        return 0
    if channel not in field.channels:
        raise unknown_name("channel", channel, field.channels)
    return field.channels.index(channel)


def time_title(field: Field, frame: int) -> str:
    """The time of a map; of a forecast also the lead: 2024-06-01 06:00 UTC, +6 h.

    Args:
        field: that is drawn.
        frame: position of the time.
    """
    time = int(field.times[frame])
    text = short_time(time, field.calendar) + " UTC" * field.calendar
    if field.reference_time is None:
        return text
    return f"{text}, +{duration_label(time - field.reference_time)}"


def time_values(times: Int64[np.ndarray, " time"], calendar: bool) -> Float64[np.ndarray, " time"]:
    """Times as matplotlib draws them: days, or seconds without a calendar.

    Args:
        times: in nanoseconds.
        calendar: whether they are dates.
    """
    if not calendar:
        return times / NANOSECONDS
    return np.asarray(date2num(times.astype("datetime64[ns]")), dtype=np.float64)  # type: ignore[no-untyped-call]


def with_unit(unit: str) -> str:
    """The unit behind a number, with a space; nothing for numbers without one.

    Args:
        unit: "" is unknown.
    """
    return "" if unit in ("", "1") else f" {unit}"


def frame_at(field: Field, time: Time | None) -> int:
    """The position of a time.

    Args:
        field: that has it.
        time: a date, or a lead of a forecast; None: the last time.

    Raises:
        UsageError: the field has no such time; the message names the nearest one.
    """
    if time is None:
        return len(field.times) - 1
    wanted = parse_time(time, field.calendar, field.reference_time)
    nearest = int(np.abs(field.times - wanted).argmin())
    if int(field.times[nearest]) != wanted:
        shown = short_time(int(field.times[nearest]), field.calendar)
        raise UsageError(
            f"The field has no values for {short_time(wanted, field.calendar)}; the nearest of "
            f"its {len(field.times)} times is {shown}."
        )
    return nearest
