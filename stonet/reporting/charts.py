"""Charts as SVG: lines with bands, bars, and images with axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from markupsafe import Markup
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num, num2date
from matplotlib.ticker import MaxNLocator

from stonet.data.display import shortened
from stonet.reporting.svg import ColourScale, drawing, element, legend, path_data

WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 12.0, 12.0, 42.0  # margins
LEGEND_ROW, CHARACTERS_PER_ROW = 15.0, 58
MAX_MARKS = 60  # points with a mark and a value on hover
Numbers = Float64[np.ndarray, " point"]
Ticks = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Line:
    """A line of a chart; `style` is a CSS class such as "c0", "c1 dashed"."""

    name: str
    x: Numbers
    y: Numbers
    style: str = "c0"


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    x: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True)
class Axes:
    """What a chart shows beside its data.

    Args:
        title: for screen readers.
        x: label of the x axis.
        y: label of the y axis.
        x_ticks: positions and labels (None: chosen here).
        zero: whether the y axis begins at zero.
        y_limits: of the y axis (None: those of the data).
    """

    title: str
    x: str
    y: str
    x_ticks: Ticks | None = None
    zero: bool = True
    y_limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class _Frame:
    """Limits of the data and the area they are drawn in."""

    low: tuple[float, float]
    high: tuple[float, float]
    top: float

    def x(self, values: Numbers) -> Numbers:
        share = (values - self.low[0]) / (self.high[0] - self.low[0])
        return np.asarray(LEFT + share * (WIDTH - LEFT - RIGHT))

    def y(self, values: Numbers) -> Numbers:
        share = (values - self.low[1]) / (self.high[1] - self.low[1])
        return np.asarray(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - self.top))


def line_chart(
    lines: Sequence[Line], axes: Axes, band: Band | None = None, marks: bool = True
) -> Markup:
    """Lines over an axis, with a legend; every point has its value on hover.

    Args:
        lines: at least one.
        axes: labels and limits.
        band: behind the lines.
        marks: whether points are marked.
    """
    entries = [(shortened(line.name, 32), line.style) for line in lines]
    rows = -(-sum(len(name) + 5 for name, _ in entries) // CHARACTERS_PER_ROW)
    frame = _frame(lines, band, axes, TOP + LEGEND_ROW * rows)
    parts = _grid(frame, axes)
    if band is not None:
        known = np.isfinite(band.low) & np.isfinite(band.high)
        x, low, high = frame.x(band.x[known]), frame.y(band.low[known]), frame.y(band.high[known])
        outline = path_data(np.append(x, x[::-1]), np.append(low, high[::-1]))
        parts += [element("path", d=outline + "Z", class_="band")] if known.any() else []
    for line in lines:
        x, y = frame.x(line.x), frame.y(line.y)
        parts.append(element("path", d=path_data(x, y), class_=f"line {line.style}"))
        if marks and len(x) <= MAX_MARKS:
            parts += _marks(line, x, y, axes)
    parts += legend(entries, LEFT, TOP + 6, WIDTH - LEFT - RIGHT)
    return drawing(WIDTH, HEIGHT, axes.title, *parts)


def bar_chart(x: Numbers, y: Numbers, axes: Axes, reference: float | None = None) -> Markup:
    """Bars over an axis.

    Args:
        x: middles of the bars, evenly spaced.
        y: heights.
        axes: labels.
        reference: height of a dashed line (None: none).
    """
    width = float(np.diff(x).min()) if len(x) > 1 else 1.0
    edges = np.array([x[0] - width / 2, x[-1] + width / 2])
    highest = max(float(np.nanmax(y, initial=0.0)), reference or 0.0) or 1.0
    frame = _Frame((float(edges[0]), 0.0), (float(edges[1]), 1.05 * highest), TOP)
    parts = _grid(frame, axes)
    base = float(frame.y(np.zeros(1))[0])
    size = 0.9 * float(np.diff(frame.x(np.array([0.0, width])))[0])
    for left, top, value in zip(frame.x(x).tolist(), frame.y(y).tolist(), y.tolist(), strict=True):
        if np.isfinite(value):
            tip = element("title", f"{value:.4g}")
            area: dict[str, Any] = {"width": size, "height": base - top}
            parts.append(element("rect", tip, x=left - size / 2, y=top, class_="bar", **area))
    if reference is not None:
        at = float(frame.y(np.array([reference]))[0])
        ends: dict[str, Any] = {"x1": LEFT, "x2": WIDTH - RIGHT, "y1": at, "y2": at}
        parts.append(element("line", class_="line grey dashed", **ends))
    return drawing(WIDTH, HEIGHT, axes.title, *parts)


def image_chart(
    rows: Float64[np.ndarray, "row column"],
    limits: tuple[float, float],
    scale: ColourScale,
    axes: Axes,
    name: str,
) -> Markup:
    """An image over an axis, such as availability over time; its rows go down from the top.

    Args:
        rows: values.
        limits: of the x axis.
        scale: colours.
        axes: labels.
        name: unique in the page.
    """
    frame = _Frame((limits[0], float(len(rows))), (limits[1], 0.0), TOP)
    picture = element(
        "image",
        href=scale.image(rows),
        x=LEFT,
        y=TOP,
        width=WIDTH - LEFT - RIGHT,
        height=HEIGHT - BOTTOM - TOP,
        preserveAspectRatio="none",
        class_="pixels",
    )
    parts = [*_grid(frame, axes), picture, *scale.bar(LEFT, HEIGHT + 4, WIDTH - LEFT - RIGHT, name)]
    return drawing(WIDTH, HEIGHT + 32, axes.title, *parts)


def time_ticks(times: Int64[np.ndarray, " time"], calendar: bool) -> tuple[Numbers, Ticks]:
    """Times as positions on an axis, and ticks with short dates; seconds without a calendar."""
    if not calendar:
        seconds = times / 1e9
        return seconds, [(v, f"{v:g}") for v in _ticks(float(seconds[0]), float(seconds[-1]))]
    days = np.asarray(date2num(times.astype("datetime64[ns]")), dtype=np.float64)  # type: ignore[no-untyped-call]
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    low, high = float(days[0]), float(days[-1])
    if low == high:
        low, high = low - 0.5, high + 0.5
    at = locator.tick_values(num2date(low), num2date(high))  # type: ignore[no-untyped-call]
    labels = ConciseDateFormatter(locator).format_ticks(at)  # type: ignore[no-untyped-call]
    return days, list(zip(np.asarray(at).tolist(), map(str, labels), strict=True))


def _frame(lines: Sequence[Line], band: Band | None, axes: Axes, top: float) -> _Frame:
    """Limits that hold all of the data."""
    x = np.concatenate([line.x for line in lines])
    columns = [line.y for line in lines]
    columns += [] if band is None else [band.low, band.high]
    y = np.concatenate(columns)
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    left, right = (float(x.min()), float(x.max())) if x.size else (0.0, 1.0)
    low, high = axes.y_limits or ((float(y.min()), float(y.max())) if y.size else (0.0, 1.0))
    if axes.y_limits is None:
        margin = 0.05 * (high - low) or 0.5
        low, high = (min(low, 0.0) if axes.zero else low - margin), high + margin
    if left == right:
        left, right = left - 0.5, right + 0.5
    return _Frame((left, low), (right, high if high > low else low + 1.0), top)


def _grid(frame: _Frame, axes: Axes) -> list[Markup]:
    """Grid lines, ticks and labels."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    low, high = sorted((frame.low[1], frame.high[1]))
    parts = []
    for value in _ticks(low, high):
        at = float(frame.y(np.array([value]))[0])
        parts += [
            element("line", x1=LEFT, x2=right, y1=at, y2=at, class_="grid"),
            element("text", f"{value:g}", x=LEFT - 6, y=at + 4, text_anchor="end", class_="tick"),
        ]
    ticks = axes.x_ticks
    if ticks is None:
        ticks = [(v, f"{v:g}") for v in _ticks(frame.low[0], frame.high[0])]
    for value, text in ticks:
        if frame.low[0] <= value <= frame.high[0]:
            at = float(frame.x(np.array([value]))[0])
            parts += [
                element("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis"),
                element("text", text, x=at, y=bottom + 17, text_anchor="middle", class_="tick"),
            ]
    middle, centre = (LEFT + right) / 2, (TOP + bottom) / 2
    turn = f"rotate(-90 12 {centre:.0f})"
    return [
        *parts,
        element("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"),
        element("text", axes.x, x=middle, y=HEIGHT - 6, text_anchor="middle", class_="label"),
        element(
            "text", axes.y, x=12, y=centre, text_anchor="middle", class_="label", transform=turn
        ),
    ]


def _marks(line: Line, x: Numbers, y: Numbers, axes: Axes) -> list[Markup]:
    """A mark at each point, with its value as a title."""
    label = _tick_label(axes)
    return [
        element(
            "circle",
            element("title", f"{line.name}, {label(at)}: {value:.4g}"),
            cx=cx,
            cy=cy,
            r=2.6,
            class_=f"mark {line.style}",
        )
        for at, value, cx, cy in zip(
            line.x.tolist(), line.y.tolist(), x.tolist(), y.tolist(), strict=True
        )
        if np.isfinite(value)
    ]


def _tick_label(axes: Axes) -> Callable[[float], str]:
    """Texts of values on the x axis."""
    return lambda value: f"{axes.x} {value:g}"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others."""
    if not low < high:
        return [low]
    values = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    margin = 1e-9 * (high - low)
    return [float(v) for v in values if low - margin <= v <= high + margin]
