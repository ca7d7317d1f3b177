"""Maps as SVG: a dot at each point, coloured by its value, over the coastline.

All maps of a page share one canvas, so that the coastline is in the page once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64
from markupsafe import Markup

from stonet.data.geometry import Points, curve_order
from stonet.plotting import projections
from stonet.plotting.maps import MapProjection
from stonet.reporting.axes import round_numbers
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

SIDE = 360.0  # greatest width and height of a map
MARGIN_LEFT, MARGIN_BOTTOM = 34.0, 20.0  # for ticks
MAX_POINTS = 4000  # that are drawn
COLOURS = 40  # that are told apart
PADDING = 8.0  # pixels between the points and the frame
DOTS = 0.15  # share of the map that dots cover, if they were spread evenly
MIN_SIZE, MAX_SIZE = 2.6, 13.0  # diameter of dots
OUTLINE, RING = 1.0, 2.6  # pixels that surround dots, and those of points held out
BACKGROUND = "map-lines"  # name of the shared coastline


@dataclass(frozen=True)
class Canvas:
    """A map of fixed points: their pixels, and what is drawn under them.

    Args:
        points: all of them.
        held_out: which were not given to the model in training.
        shown: positions of the points that are drawn.
        projection: of the map.
        scale: pixels for each unit of the projection, of x and of y.
        size: width and height in pixels.
        shared: whether the page holds the lines under the map once, for all maps.
    """

    points: Points
    held_out: Bool[np.ndarray, " point"]
    shown: Int64[np.ndarray, " shown"]
    projection: MapProjection
    scale: tuple[float, float]
    size: tuple[float, float]
    shared: bool = True

    @staticmethod
    def of(
        points: Points, held_out: Bool[np.ndarray, " point"] | None = None, shared: bool = True
    ) -> Canvas:
        """A canvas that suits these points.

        Args:
            points: all of them.
            held_out: which were not given to the model in training (None: none of them).
            shared: whether the page holds the lines under the map once, for all maps.
        """
        held_out = np.zeros(len(points), dtype=bool) if held_out is None else held_out
        projection = MapProjection.of(points)
        west, east, south, north = projection.box
        width, height = east - west, (north - south) * projection.aspect
        unit = (SIDE - 2 * PADDING) / max(width, height)
        if height < 0.5 * width:
            unit = min((SIDE - 2 * PADDING) / (0.5 * width), (1.25 * SIDE) / width)
        shown = np.arange(len(points))
        if len(points) > MAX_POINTS:
            order = curve_order(points)
            shown = np.sort(order[np.linspace(0, len(points) - 1, MAX_POINTS).astype(np.int64)])
        size = (width * unit + 2 * PADDING, height * unit + 2 * PADDING)
        scale = unit, unit * projection.aspect
        return Canvas(points, held_out, shown, projection, scale, size, shared)

    def pixels(self, points: Points) -> Float64[np.ndarray, "point 2"]:
        """Pixels of points on the map.

        Args:
            points: of the same geometry.
        """
        return self._pixels(self.projection.project(points))

    def _pixels(self, place: Float64[np.ndarray, "point 2"]) -> Float64[np.ndarray, "point 2"]:
        west, _, _, north = self.projection.box
        x = MARGIN_LEFT + PADDING + (place[:, 0] - west) * self.scale[0]
        return np.stack([x, PADDING + (north - place[:, 1]) * self.scale[1]], axis=1)

    @property
    def dot(self) -> float:
        """The diameter of dots: smaller, the more there are."""
        area = self.size[0] * self.size[1]
        diameter = float(np.sqrt(4 * DOTS * area / (np.pi * len(self.shown))))
        return float(np.clip(diameter, MIN_SIZE, MAX_SIZE))

    def background(self) -> Markup:
        """The drawing that lies under all maps: outline, graticule, coastline, borders."""
        parts = []
        if self.projection.is_global:
            edge = self._pixels(projections.outline())
            parts.append(element("path", d=path_data(*edge.T) + "Z", class_="sea"))
            lines = [self._pixels(line) for line in projections.graticule()]
            parts.append(element("path", d=_joined(lines), class_="graticule"))
        for kind, lines in self.projection.country_lines().items():
            d = _joined([self._pixels(line) for line in lines])
            parts.append(element("path", d=d, class_=kind))
        name: dict[str, Attribute] = {"id": BACKGROUND} if self.shared else {}
        return element("g", *parts, **name)

    def frame(self) -> list[Markup]:
        """The area of the map, its lines and its ticks."""
        width, height = self.size
        box: dict[str, Attribute] = {"x": MARGIN_LEFT, "y": 0.0, "width": width, "height": height}
        use = element("use", href=f"#{BACKGROUND}") if self.shared else self.background()
        if self.projection.is_global:
            return [use]
        west, east, south, north = self.projection.box
        parts = [element("rect", rx=3, class_="sea", **box), use]
        for value in round_numbers(west, east)[::2]:
            x = float(self._pixels(np.array([[value, south]]))[0, 0])
            text = self._tick(value, "WE")
            y = height + 14
            parts.append(element("text", text, x=x, y=y, text_anchor="middle", class_="tick"))
        for value in round_numbers(south, north)[::2]:
            y = float(self._pixels(np.array([[west, value]]))[0, 1]) + 4
            text, x = self._tick(value, "SN"), MARGIN_LEFT - 4
            parts.append(element("text", text, x=x, y=y, text_anchor="end", class_="tick"))
        return parts

    def _tick(self, value: float, ends: str) -> str:
        if self.projection.kind == "plane":
            return f"{value:g}"
        value = round(math.remainder(value, 360.0), 6)
        return f"{abs(value):g}°" + (ends[int(value > 0)] if value else "")

    def hover(self) -> Json:
        """Pixels and names of the points, which the script shows beside the pointer."""
        x, y = np.round(self.pixels(self.points.take(self.shown)), 1).T
        return {
            "x": x.tolist(),
            "y": y.tolist(),
            "names": [self.points.names[i] for i in self.shown.tolist()],
            "index": self.shown.tolist(),
        }

    def map(
        self,
        values: Float[np.ndarray, " point"],
        scale: ColourScale,
        title: str,
        place: Points | None = None,
        sizes: Float[np.ndarray, " point"] | None = None,
    ) -> Drawing:
        """The points coloured by their values; hollow where there is none.

        Args:
            values: of all points, NaN where there is none.
            scale: of the colours.
            title: for screen readers.
            place: marked by a cross.
            sizes: diameter of each dot in pixels (None: all alike).
        """
        place_of = self.pixels(self.points.take(self.shown))
        chosen = np.asarray(values, dtype=np.float64)[self.shown]
        held_out, known = self.held_out[self.shown], np.isfinite(chosen)
        parts = self.frame()
        for some, style in ((~known & ~held_out, "hollow"), (~known & held_out, "hollow held-out")):
            if some.any():
                parts.append(_dots(place_of[some], self.dot, style))
        if sizes is None:
            for some, width, style in ((known, OUTLINE, "under"), (known & held_out, RING, "ring")):
                if some.any():
                    parts.append(_dots(place_of[some], self.dot + width, style))
            colours = np.array(scale.colours(chosen[known], COLOURS))
            for colour in sorted(set(colours.tolist())):
                d = dots_data(*place_of[known][colours == colour].T)
                dots: dict[str, Attribute] = {"stroke": colour, "stroke_width": self.dot}
                parts.append(element("path", d=d, class_="dot", **dots))
        else:
            parts += self._bubbles(place_of, chosen, scale, sizes[self.shown])
        if place is not None:
            parts += _cross(self.pixels(place)[0])
        width, height = self.size
        y = height + MARGIN_BOTTOM
        parts += scale.bar(MARGIN_LEFT, y, width)
        total = y + BAR_HEIGHT + 18
        svg = drawing(MARGIN_LEFT + width + 4, total, title, *parts)
        own = {} if self.shared else {"map": self.hover()}
        return Drawing(svg, {"label": scale.label, "values": rounded(chosen.tolist()), **own})

    def _bubbles(
        self,
        place_of: Float64[np.ndarray, "shown 2"],
        values: Float64[np.ndarray, " shown"],
        scale: ColourScale,
        sizes: Float[np.ndarray, " shown"],
    ) -> list[Markup]:
        """Circles of different sizes, the greatest ones below."""
        order = [i for i in np.argsort(-sizes, kind="stable").tolist() if np.isfinite(values[i])]
        colours = scale.colours(values[order], COLOURS)
        circles = zip(order, colours, strict=True)
        return [
            element(
                "circle",
                cx=float(place_of[i, 0]),
                cy=float(place_of[i, 1]),
                r=max(float(sizes[i]), MIN_SIZE) / 2,
                fill=colour,
                class_="bubble",
            )
            for i, colour in circles
        ]


def _dots(place: Float64[np.ndarray, "point 2"], size: float, style: str) -> Markup:
    """Dots of one style."""
    return element("path", d=dots_data(*place.T), stroke_width=size, class_=f"dot {style}")


def _cross(at: Float64[np.ndarray, " 2"]) -> list[Markup]:
    """A cross around a place, on a halo."""
    x, y = at.tolist()
    d = f"M{x - 8:.1f} {y:.1f}h16M{x:.1f} {y - 8:.1f}v16"
    return [element("path", d=d, class_=f"cross {style}") for style in ("halo", "core")]


def _joined(lines: Sequence[Float64[np.ndarray, "_ 2"]]) -> str:
    """All lines as one path."""
    return "".join(path_data(*line.T) for line in lines)
