"""Axes of a chart: limits, ticks and labels; linear, logarithmic or of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from markupsafe import Markup
from matplotlib.dates import AutoDateLocator, date2num, num2date
from matplotlib.ticker import MaxNLocator

from stonet.data.durations import SECOND, UNITS
from stonet.reporting.svg import element

WIDTH, HEIGHT = 380.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 10.0, 42.0  # margins
STEPS, WHOLE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0), (1.0, 2.0, 5.0, 10.0)  # leading digits of ticks
MAX_RATIO = 50.0  # greatest over smallest value from which an axis is logarithmic
Numbers = Float64[np.ndarray, " point"]
Ticks = Sequence[tuple[float, str]]


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
        width: of the drawing.
    """

    title: str
    x: str
    y: str
    x_ticks: Ticks | None = None
    zero: bool = True
    y_limits: tuple[float, float] | None = None
    width: float = WIDTH


@dataclass(frozen=True)
class Frame:
    """Limits of the data, and the area that they are drawn in.

    Args:
        low: left and lower limit.
        high: right and upper limit.
        width: of the drawing.
        log: whether the y axis is logarithmic.
    """

    low: tuple[float, float]
    high: tuple[float, float]
    width: float = WIDTH
    log: bool = False

    @staticmethod
    def around(
        x: Float64[np.ndarray, " place"], y: Float64[np.ndarray, " value"], axes: Axes
    ) -> Frame:
        """Limits that hold all finite values.

        Args:
            x: of all lines.
            y: of all lines.
            axes: labels and wishes.
        """
        x, y = x[np.isfinite(x)], y[np.isfinite(y)]
        left, right = (float(x.min()), float(x.max())) if x.size else (0.0, 1.0)
        if left == right:
            left, right = left - 0.5, right + 0.5
        log = spans_orders(y) if axes.zero and axes.y_limits is None else False
        low, high = axes.y_limits or ((float(y.min()), float(y.max())) if y.size else (0.0, 1.0))
        if log:
            low, high = low / 1.15, high * 1.15
        elif axes.y_limits is None:
            margin = 0.06 * (high - min(low, 0.0) if axes.zero else high - low) or 0.5
            low, high = (min(low, 0.0) if axes.zero else low - margin), high + margin
        return Frame((left, low), (right, high if high > low else low + 1.0), axes.width, log)

    def x(self, values: Numbers) -> Numbers:
        """Pixels of values on the x axis.

        Args:
            values: in units of the axis.
        """
        share = (values - self.low[0]) / (self.high[0] - self.low[0])
        return np.asarray(LEFT + share * (self.width - LEFT - RIGHT))

    def y(self, values: Numbers) -> Numbers:
        """Pixels of values on the y axis, from the top.

        Args:
            values: in units of the axis.
        """
        low, high = self.low[1], self.high[1]
        if self.log:
            with np.errstate(invalid="ignore", divide="ignore"):
                values, low, high = np.log(values), float(np.log(low)), float(np.log(high))
        share = (values - low) / (high - low)
        return np.asarray(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP))

    def y_ticks(self) -> list[float]:
        """Round numbers on the y axis."""
        low, high = sorted((self.low[1], self.high[1]))
        if not self.log:
            return round_numbers(low, high)
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        steps = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
        found = [step * 10.0**decade for decade in decades for step in steps]
        return [value for value in found if low <= value <= high]


def spans_orders(values: Numbers) -> bool:
    """Whether the greatest value is many times the smallest one, and all are positive.

    Args:
        values: finite ones.
    """
    return bool(values.size and values.min() > 0 and values.max() > MAX_RATIO * values.min())


def draw_axes(frame: Frame, axes: Axes) -> list[Markup]:
    """Grid lines, ticks and labels.

    Args:
        frame: limits.
        axes: labels.
    """
    bottom, right = HEIGHT - BOTTOM, frame.width - RIGHT
    parts = []
    for value in frame.y_ticks():
        at = float(frame.y(np.array([value]))[0])
        label = tick_text(value)
        parts += [
            element("line", x1=LEFT, x2=right, y1=at, y2=at, class_="grid"),
            element("text", label, x=LEFT - 6, y=at + 4, text_anchor="end", class_="tick"),
        ]
    ticks = axes.x_ticks
    if ticks is None:
        values = round_numbers(frame.low[0], frame.high[0], WHOLE_STEPS)
        ticks = [(v, f"{v:g}") for v in values]
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


def tick_text(value: float) -> str:
    """A round number as a short text: 1e-4 for 0.0001.

    Args:
        value: of a tick.
    """
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.6g}"


def lead_unit(step: int, last: int) -> tuple[str, float]:
    """The unit in which multiples of a step are shown, and the length of a step in it.

    Args:
        step: in nanoseconds.
        last: the greatest multiple.

    Example:
        >>> lead_unit(3_600_000_000_000, 12)
        ('h', 1.0)
    """
    names = {"d": "days", "h": "h", "min": "min", "s": "s", "ms": "ms", "us": "µs"}
    for short, name in names.items():
        if step * last >= 2 * UNITS[short] and (short != "d" or step >= UNITS["h"]):
            return name, step / UNITS[short]
    return "ns", float(step)


def round_numbers(low: float, high: float, steps: Sequence[float] = STEPS) -> list[float]:
    """About five round numbers between two others.

    Args:
        low: the lower end.
        high: the upper end.
        steps: leading digits of the steps between them.
    """
    if not low < high:
        return [low]
    values = MaxNLocator(6, steps=list(steps)).tick_values(low, high)
    margin = 1e-9 * (high - low)
    return [float(v) for v in values if low - margin <= v <= high + margin]


def time_axis(times: Int64[np.ndarray, " point"], calendar: bool) -> tuple[Numbers, Ticks]:
    """Times as positions on an axis, and ticks with short dates; seconds without a calendar.

    Args:
        times: in nanoseconds.
        calendar: whether they are dates.
    """
    if not calendar:
        seconds = times / SECOND
        numbers = round_numbers(float(seconds.min()), float(seconds.max()))
        return seconds, [(v, f"{v:g}") for v in numbers]
    days = np.asarray(date2num(times.astype("datetime64[ns]")), dtype=np.float64)  # type: ignore[no-untyped-call]
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    low, high = float(days.min()), float(days.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    found: Any = locator.tick_values(num2date(low), num2date(high))  # type: ignore[no-untyped-call]
    at = np.asarray(found, dtype=np.float64)
    return days, list(zip(at.tolist(), _date_labels(at), strict=True))


def _date_labels(days: Numbers) -> list[str]:
    """Years, months, days or hours, by the distance of the ticks; each can be read alone."""
    spacing = float(np.diff(days).min()) if len(days) > 1 else 1.0
    pattern = "%Y" if spacing > 300 else "%b %Y" if spacing > 27 else "%-d %b"
    dates: list[Any] = [num2date(day) for day in days.tolist()]  # type: ignore[no-untyped-call]
    return [
        d.strftime(pattern if spacing >= 1 or not d.hour + d.minute else "%H:%M") for d in dates
    ]
