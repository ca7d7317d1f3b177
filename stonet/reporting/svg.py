"""SVG elements as safe markup: everything that is not markup already is escaped.

Colours of lines and text are CSS classes, so that a page may change them with its theme.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, UInt8
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.colors import Normalize, to_hex
from matplotlib.image import imsave

Attribute = str | int | float
STOPS = 9  # of a gradient


def element(tag: str, *children: str | Markup, **attributes: Attribute) -> Markup:
    """An element. Text and values are escaped.

    Args:
        tag: name of the element.
        *children: markup, or text that is escaped.
        **attributes: "_" stands for "-", and a "_" at the end is dropped.

    Example:
        >>> element("text", "a < b", x=1.0, class_="tick")
        Markup('<text x="1" class="tick">a &lt; b</text>')
    """
    pairs = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), number(value))
        for name, value in attributes.items()
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), pairs, inner)


def number(value: Attribute) -> str:
    """A number with at most two decimals; text as it is."""
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def path_data(x: Float64[np.ndarray, " point"], y: Float64[np.ndarray, " point"]) -> str:
    """The `d` of a line through these points; NaN breaks it."""
    parts, drawing = [], False
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if not (np.isfinite(a) and np.isfinite(b)):
            drawing = False
            continue
        parts.append(f"{'L' if drawing else 'M'}{number(a)} {number(b)}")
        drawing = True
    return "".join(parts)


def drawing(
    width: float, height: float, title: str, *children: str | Markup, class_: str = ""
) -> Markup:
    """A complete SVG with an accessible name."""
    box = f"0 0 {number(float(width))} {number(float(height))}"
    return element(
        "svg",
        *children,
        viewBox=box,
        role="img",
        aria_label=title,
        class_=f"chart {class_}".strip(),
    )


class ColourScale:
    """Colours of values, and the bar that explains them.

    Args:
        low: value of the first colour.
        high: value of the last one.
        name: of a matplotlib colour map.
        label: of the bar.
    """

    def __init__(self, low: float, high: float, name: str, label: str) -> None:
        if not low < high:
            low, high = low - 0.5, high + 0.5
        self.norm, self.map, self.label = Normalize(low, high), colormaps[name], label

    @staticmethod
    def of(values: Float64[np.ndarray, "..."], label: str, name: str = "viridis") -> ColourScale:
        """From the 1 % to the 99 % quantile."""
        finite = values[np.isfinite(values)]
        low, high = np.percentile(finite, [1, 99]) if finite.size else (0.0, 1.0)
        return ColourScale(float(low), float(high), name, label)

    @staticmethod
    def symmetric(values: Float64[np.ndarray, "..."], label: str) -> ColourScale:
        """Around zero, up to the 99 % quantile of the absolute values."""
        finite = np.abs(values[np.isfinite(values)])
        limit = (float(np.percentile(finite, 99)) if finite.size else 0.0) or 1.0
        return ColourScale(-limit, limit, "RdBu_r", label)

    def colour(self, value: float) -> str:
        """The colour of a value as #rrggbb."""
        return to_hex(self.map(self.norm(value)))

    def image(self, rows: Float64[np.ndarray, "row column"]) -> str:
        """The values as a PNG in a data URI; NaN is transparent."""
        pixels: UInt8[np.ndarray, "row column 4"] = self.map(
            self.norm(np.ma.masked_invalid(rows)), bytes=True
        )
        buffer = io.BytesIO()
        imsave(buffer, np.ascontiguousarray(pixels), format="png")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

    def bar(self, x: float, y: float, width: float, name: str) -> list[Markup]:
        """A horizontal colour bar with its ends and its label.

        Args:
            x: left end.
            y: upper end.
            width: of the bar.
            name: unique in the page, for the gradient.
        """
        share = np.linspace(0, 1, STOPS)
        stops = [element("stop", offset=s, stop_color=to_hex(self.map(s))) for s in share.tolist()]
        ends = ((x, self.norm.vmin, "start"), (x + width, self.norm.vmax, "end"))
        return [
            element("defs", element("linearGradient", *stops, id=name)),
            element("rect", x=x, y=y, width=width, height=8.0, fill=f"url(#{name})"),
            *(
                element("text", f"{value:.3g}", x=at, y=y + 20, text_anchor=anchor, class_="tick")
                for at, value, anchor in ends
            ),
            element(
                "text", self.label, x=x + width / 2, y=y + 20, text_anchor="middle", class_="tick"
            ),
        ]


def legend(entries: Sequence[tuple[str, str]], x: float, y: float, width: float) -> list[Markup]:
    """Names beside short lines, in rows.

    Args:
        entries: name and CSS class of the line.
        x: left end.
        y: of the first row.
        width: of all rows.
    """
    found, at, row = [], x, y
    for name, style in entries:
        length = 26 + 6.2 * len(name)
        if at > x and at + length > x + width:
            at, row = x, row + 15
        line = element("line", x1=at, x2=at + 16, y1=row - 4, y2=row - 4, class_=f"line {style}")
        found += [line, element("text", name, x=at + 20, y=row, class_="tick")]
        at += length
    return found
