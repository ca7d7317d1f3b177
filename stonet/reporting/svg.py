"""SVG elements as safe markup: everything that is not markup already is escaped.

Colours of lines and text are CSS classes, so that a page may change them with its theme. Colours of
values are those of matplotlib's colour maps.
"""

from __future__ import annotations

import base64
import io

import numpy as np
from jaxtyping import Float, UInt8
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.colors import Normalize, to_hex
from matplotlib.image import imsave

Attribute = str | int | float
BAR_PIXELS = 64  # of a colour bar
BAR_HEIGHT = 8.0


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
        Markup(' {}="{}"').format(attribute_name(name), number(value))
        for name, value in attributes.items()
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), pairs, inner)


def attribute_name(name: str) -> str:
    """`class_` as `class`, `text_anchor` as `text-anchor`; capitals as in viewBox stay.

    Args:
        name: of a Python argument.
    """
    return name.rstrip("_").replace("_", "-")


def number(value: Attribute) -> str:
    """A number with at most two decimals; text as it is.

    Args:
        value: of an attribute.
    """
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def path_data(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"]) -> str:
    """The `d` of a line through these points; NaN breaks it.

    Args:
        x: in pixels.
        y: in pixels, downwards.
    """
    parts, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if not (np.isfinite(a) and np.isfinite(b)):
            pen = "M"
            continue
        parts.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L"
    return "".join(parts)


def dots_data(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"]) -> str:
    """The `d` of a dot at each point, drawn by the ends of lines without length.

    Args:
        x: in pixels.
        y: in pixels, downwards.
    """
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return "".join(f"M{a:.1f} {b:.1f}h0" for a, b in pairs if np.isfinite(a) and np.isfinite(b))


def drawing(width: float, height: float, title: str, *children: str | Markup) -> Markup:
    """A complete SVG with an accessible name.

    Args:
        width: of the view box.
        height: of the view box.
        title: read by screen readers.
        *children: elements.
    """
    box = f"0 0 {number(float(width))} {number(float(height))}"
    return element("svg", *children, viewBox=box, role="img", aria_label=title)


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
        self.norm, self.map, self.label = Normalize(low, high, clip=True), colormaps[name], label

    @staticmethod
    def of(values: Float[np.ndarray, "..."], label: str, name: str = "viridis") -> ColourScale:
        """From the 1 % to the 99 % quantile.

        Args:
            values: that are to be shown; NaN does not count.
            label: of the bar.
            name: of a matplotlib colour map.
        """
        finite = values[np.isfinite(values)]
        low, high = np.percentile(finite, [1, 99]) if finite.size else (0.0, 1.0)
        return ColourScale(float(low), float(high), name, label)

    @staticmethod
    def symmetric(
        values: Float[np.ndarray, "..."], label: str, name: str = "RdBu_r"
    ) -> ColourScale:
        """Around zero, up to the 99 % quantile of the absolute values.

        Args:
            values: that are to be shown; NaN does not count.
            label: of the bar.
            name: of a matplotlib colour map.
        """
        finite = np.abs(values[np.isfinite(values)])
        limit = (float(np.percentile(finite, 99)) if finite.size else 0.0) or 1.0
        return ColourScale(-limit, limit, name, label)

    def colours(self, values: Float[np.ndarray, " value"], count: int) -> list[str]:
        """The colours of values as #rrggbb, of which there are at most `count`.

        Args:
            values: all finite.
            count: colours that are told apart.
        """
        share = np.round(np.asarray(self.norm(values)) * (count - 1)) / (count - 1)
        return [to_hex(self.map(s)) for s in share.tolist()]

    def image(self, rows: Float[np.ndarray, "row column"]) -> str:
        """The values as a PNG in a data URI; NaN is transparent.

        Args:
            rows: from the top downwards.
        """
        pixels: UInt8[np.ndarray, "row column 4"] = self.map(
            self.norm(np.ma.masked_invalid(rows)), bytes=True
        )
        buffer = io.BytesIO()
        imsave(buffer, np.ascontiguousarray(pixels), format="png")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

    def bar(self, x: float, y: float, width: float) -> list[Markup]:
        """A horizontal colour bar with its ends and its label.

        Args:
            x: left end.
            y: upper end.
            width: of the bar.
        """
        low, high = float(self.norm.vmin or 0.0), float(self.norm.vmax or 0.0)
        size: dict[str, Attribute] = {"width": width, "height": BAR_HEIGHT}
        href = self.image(np.linspace(low, high, BAR_PIXELS)[None])
        ends = ((x, f"{low:.3g}", "start"), (x + width, f"{high:.3g}", "end"))
        at = y + BAR_HEIGHT + 13
        return [
            element("image", href=href, x=x, y=y, preserveAspectRatio="none", **size),
            *(
                element("text", text, x=end, y=at, text_anchor=anchor, class_="tick")
                for end, text, anchor in ends
            ),
            element(
                "text", self.label, x=x + width / 2, y=at, text_anchor="middle", class_="label"
            ),
        ]
