"""Charts as SVG: lines with a band, bars, and images with axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64
from markupsafe import Markup

from stonet.reporting.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, Axes, Frame, Numbers, draw_axes
from stonet.reporting.blocks import Drawing, Json, rounded
from stonet.reporting.svg import (
    BAR_HEIGHT,
    Attribute,
    ColourScale,
    dots_data,
    drawing,
    element,
    path_data,
)

MAX_MARKS = 60  # points of a line that are marked


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Args:
        name: in the legend, and beside the pointer.
        x: positions, those of all lines of a chart.
        y: values; NaN breaks the line.
        style: CSS class of its colour.
    """

    name: str
    x: Numbers
    y: Numbers
    style: str = "c0"


@dataclass(frozen=True)
class Band:
    """The area between two lines.

    Args:
        x: positions.
        low: lower line.
        high: upper line.
    """

    x: Numbers
    low: Numbers
    high: Numbers


def line_chart(
    lines: Sequence[Line], axes: Axes, labels: Sequence[str] | None = None, band: Band | None = None
) -> Drawing:
    """Lines over an axis; values are shown beside the pointer.

    Args:
        lines: at least one.
        axes: labels and limits.
        labels: of the points of the first line, shown beside the pointer (None: their x).
        band: behind the lines.
    """
    bands = [] if band is None else [band]
    x = np.concatenate([line.x for line in lines])
    columns = [line.y for line in lines] + [row for b in bands for row in (b.low, b.high)]
    frame = Frame.around(x, np.concatenate(columns), axes)
    parts = [*draw_axes(frame, axes), *(_band(frame, b) for b in bands)]
    for line in reversed(lines):  # the first one on top
        place = frame.x(line.x), frame.y(line.y)
        parts.append(element("path", d=path_data(*place), class_=f"line {line.style}"))
        if len(line.x) <= MAX_MARKS:
            parts.append(element("path", d=dots_data(*place), class_=f"dots {line.style}"))
    svg = drawing(axes.width, HEIGHT, axes.title, *parts)
    texts = [f"{axes.x}: {v:g}" for v in lines[0].x.tolist()] if labels is None else labels
    return Drawing(svg, _hover(frame, lines, list(texts)))


def _band(frame: Frame, band: Band) -> Markup:
    """The area of a band, in pieces where it is not known."""
    known = np.isfinite(band.low) & np.isfinite(band.high)
    ends = np.flatnonzero(np.diff(known, prepend=False, append=False))
    outline = ""
    for start, stop in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
        part = slice(start, stop)
        x, low, high = frame.x(band.x[part]), frame.y(band.low[part]), frame.y(band.high[part])
        outline += path_data(np.append(x, x[::-1]), np.append(low, high[::-1])) + "Z"
    return element("path", d=outline, class_="band")


def _hover(frame: Frame, lines: Sequence[Line], labels: list[str]) -> Json:
    """What the script shows beside the pointer: all lines at the nearest position."""
    positions = np.unique(np.concatenate([line.x for line in lines]))
    by_x = dict(zip(lines[0].x.tolist(), labels, strict=True))
    series: list[object] = []
    for line in lines:
        place = np.searchsorted(positions, line.x)
        values = np.full(len(positions), np.nan)
        values[place] = line.y
        series.append([line.name, line.style, rounded(values.tolist())])
    texts = [by_x.get(v, f"{v:g}") for v in positions.tolist()]
    return {
        "x": np.round(frame.x(positions), 1).tolist(),
        "labels": texts,
        "lines": series,
        "top": TOP,
        "bottom": HEIGHT - BOTTOM,
    }


def bar_chart(
    x: Numbers, y: Numbers, axes: Axes, name: str, reference: float | None = None
) -> Drawing:
    """Bars over an axis.

    Args:
        x: middles of the bars, evenly spaced.
        y: heights.
        axes: labels.
        name: of the values, beside the pointer.
        reference: height of a dashed line (None: none).
    """
    step = float(np.diff(x).min()) if len(x) > 1 else 1.0
    highest = max(float(np.nanmax(y, initial=0.0)), reference or 0.0) or 1.0
    ends = float(x[0] - step / 2), float(x[-1] + step / 2)
    frame = Frame((ends[0], 0.0), (ends[1], 1.06 * highest), axes.width)
    parts = draw_axes(frame, axes)
    base = float(frame.y(np.zeros(1))[0])
    width = 0.86 * float(np.diff(frame.x(np.array([0.0, step])))[0])
    for middle, top in zip(frame.x(x).tolist(), frame.y(y).tolist(), strict=True):
        if np.isfinite(top):
            size: dict[str, Attribute] = {"width": width, "height": base - top, "rx": 1.5}
            parts.append(element("rect", x=middle - width / 2, y=top, class_="bar", **size))
    if reference is not None:
        at = float(frame.y(np.array([reference]))[0])
        across: dict[str, Attribute] = {"x1": LEFT, "x2": axes.width - RIGHT, "y1": at, "y2": at}
        parts.append(element("line", class_="target", **across))
    svg = drawing(axes.width, HEIGHT, axes.title, *parts)
    texts = [f"{axes.x}: {v:g}" for v in x.tolist()]
    return Drawing(svg, _hover(frame, [Line(name, x, y)], texts))


def image_chart(
    rows: Float[np.ndarray, "row column"],
    limits: tuple[float, float],
    scale: ColourScale,
    axes: Axes,
    count: int,
) -> Drawing:
    """An image over an axis, such as availability over time; its rows go down from the top.

    Args:
        rows: values.
        limits: of the x axis.
        scale: colours.
        axes: labels.
        count: what all rows stand for, the end of the y axis.
    """
    frame = Frame((limits[0], float(count)), (limits[1], 0.0), axes.width)
    size: dict[str, Attribute] = {
        "width": axes.width - LEFT - RIGHT,
        "height": HEIGHT - BOTTOM - TOP,
        "preserveAspectRatio": "none",
    }
    picture = element("image", href=scale.image(rows), x=LEFT, y=TOP, class_="pixels", **size)
    bar = scale.bar(LEFT, HEIGHT + 6, axes.width - LEFT - RIGHT)
    height = HEIGHT + 6 + BAR_HEIGHT + 18
    return Drawing(drawing(axes.width, height, axes.title, *draw_axes(frame, axes), picture, *bar))


def flat(values: Float[np.ndarray, "..."]) -> Float64[np.ndarray, " point"]:
    """Values in double precision, one behind the other.

    Args:
        values: of any shape.
    """
    return np.asarray(values, dtype=np.float64).ravel()
