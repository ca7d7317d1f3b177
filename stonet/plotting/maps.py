"""Map projections: points of a plane or of the earth, drawn as a continuous map or as dots.

Values are interpolated linearly between the points, which adds no extremes; areas without data are
grey. A region is drawn by longitude and latitude, whose degrees are as long as in its middle, and
stays in one piece across the date line. The globe is drawn in the equal-area projection Equal
Earth. Coastlines and borders are those of Natural Earth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib import tri
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import Polygon
from matplotlib.ticker import FuncFormatter, MaxNLocator

from stonet.data.geometry import Kind, Points
from stonet.data.grid import Grid
from stonet.errors import DataError
from stonet.plotting import natural_earth, projections
from stonet.plotting.surfaces import cell_edges, refined, triangulation

AXES = {"plane": ("x", "y"), "sphere": ("longitude", "latitude")}
GLOBAL_GAP = 45.0  # degrees: points with smaller gaps in longitude go around the globe
MARGIN = 0.03  # around the points, as a share of the extent
EMPTY = "0.9"  # grey of areas without data
MIN_COSINE = 0.2  # of the latitude, near the poles
LINES: dict[str, dict[str, Any]] = {  # what is drawn of Natural Earth
    "coast": {"colors": "0.15", "linewidths": 0.6},
    "border": {"colors": "0.35", "linewidths": 0.4},
}
COUNTRIES = "_countries"  # label of their lines; with "_" it is in no legend
DOT_AREA = 9_000.0  # in square points, of all dots of a map


@dataclass(frozen=True)
class MapProjection:
    """The coordinates of a map: those of the plane, longitude and latitude, or Equal Earth.

    The sphere is cut in the middle of the widest range of longitudes without a point, so that a
    region stays in one piece. Points all around the globe are drawn on an equal-area map that is
    cut at the date line; values are continued beyond it.

    Args:
        kind: the geometry.
        west: longitude of the cut.
        is_global: whether the points go all around the globe.
        box: limits of x and y.

    Example:
        >>> projection = MapProjection.of(field.points)
        >>> projection.draw_dots(axes, field.points, field.values[-1, :, 0], cmap="viridis")
    """

    kind: Kind
    west: float
    is_global: bool
    box: tuple[float, float, float, float]

    @staticmethod
    def of(points: Points) -> MapProjection:
        """The projection that suits some points.

        Args:
            points: that are to be drawn.
        """
        west, is_global = -180.0, False
        if points.kind == "sphere":
            longitudes = np.unique(np.remainder(points.coordinates[:, 1], 360.0))
            gaps = np.diff(longitudes, append=longitudes[0] + 360.0)
            is_global = bool(gaps.max() < GLOBAL_GAP)
            middle = float(longitudes[gaps.argmax()] + gaps.max() / 2.0)
            west = -180.0 if is_global else math.remainder(middle, 360.0)
        unbounded = MapProjection(points.kind, west, is_global, (0.0, 1.0, 0.0, 1.0))
        x, y = (projections.outline() if is_global else unbounded.project(points)).T
        margin = MARGIN * (float(max(np.ptp(x), np.ptp(y))) or 1.0)
        margin = 0.002 if is_global else margin
        sides = (float(x.min()) - margin, float(x.max()) + margin)
        box = (*sides, float(y.min()) - margin, float(y.max()) + margin)
        return MapProjection(points.kind, west, is_global, box)

    @property
    def aspect(self) -> float:
        """Length of a unit of y over that of a unit of x: 1 / cos(latitude) for regions."""
        if self.kind == "plane" or self.is_global:
            return 1.0
        middle = math.radians((self.box[2] + self.box[3]) / 2.0)
        return 1.0 / max(math.cos(middle), MIN_COSINE)

    @property
    def labels(self) -> tuple[str, str]:
        """Names of the axes; the globe's have no ticks, only a graticule."""
        return ("", "") if self.is_global else AXES[self.kind]

    def panel(self) -> tuple[float, float]:
        """Width and height of a panel in inches that suit the region's shape."""
        ratio = self.aspect * (self.box[3] - self.box[2]) / (self.box[1] - self.box[0])
        width = max(1.3, min(2.5 / math.sqrt(ratio), 6.0, 2.7 / ratio))
        return width, max(0.8, min(width * ratio, 2.7))

    def project(self, points: Points) -> Float64[np.ndarray, "node 2"]:
        """The x and y of points on the map.

        Args:
            points: of the same geometry.

        Raises:
            DataError: the points are of another geometry.
        """
        if points.kind != self.kind:
            raise DataError(f"Points on a {points.kind} cannot be drawn on a map of a {self.kind}.")
        return self._on_map(self._unrolled(points))

    def _unrolled(self, points: Points) -> Float64[np.ndarray, "node 2"]:
        """The x and y of a plane, or longitudes east of the cut and latitudes."""
        if self.kind == "plane":
            return points.coordinates
        lat, lon = points.coordinates.T
        return np.stack([np.remainder(lon - self.west, 360.0) + self.west, lat], axis=1)

    def _on_map(self, position: Float64[np.ndarray, "place 2"]) -> Float64[np.ndarray, "place 2"]:
        """The x and y on the map of unrolled positions."""
        return projections.equal_earth(position) if self.is_global else position

    def draw(
        self, axes: Axes, points: Points, values: Float64[np.ndarray, " node"], **scale: Any
    ) -> None:
        """Draw a continuous map of the values; as dots where the points span no area.

        Args:
            axes: to draw on.
            points: of the values.
            values: NaN where there is none.
            scale: `cmap` and `norm`.
        """
        finite = np.isfinite(values)
        position, known = self._unrolled(points)[finite], values[finite]
        if self.is_global:  # both edges continue with what is beyond them
            turns = (-360.0, 0.0, 360.0)
            position = np.concatenate([position + np.array([turn, 0.0]) for turn in turns])
            near = np.abs(position[:, 0]) < 240.0
            position, known = position[near], np.tile(known, 3)[near]
        triangles = triangulation(position)
        if triangles is None:
            self.draw_dots(axes, points, values, **scale)
            return
        fine, smooth = refined(triangles, known)
        x, y = self._on_map(np.stack([fine.x, fine.y], axis=1)).T
        surface = tri.Triangulation(x, y, fine.triangles, fine.mask)
        mesh = axes.tripcolor(surface, smooth, shading="gouraud", rasterized=True, **scale)
        self.format_axes(axes)
        if self.is_global:
            mesh.set_clip_path(axes.patches[0])

    def draw_grid(
        self, axes: Axes, grid: Grid, values: Float64[np.ndarray, "row column"], **scale: Any
    ) -> None:
        """Draw a cell for each value of a regular grid; grey where there is none.

        Args:
            axes: to draw on.
            grid: rows and columns of the cells.
            values: as from `Grid.scatter`, NaN where there is none.
            scale: `cmap` and `norm`.
        """
        rows, columns = np.argsort(grid.rows), grid.columns
        if self.kind == "sphere":
            columns = np.remainder(columns - self.west, 360.0) + self.west
        order = np.argsort(columns)
        east = columns[order]
        if self.is_global:  # the first column is also that beyond the eastern edge
            order, east = np.append(order, order[0]), np.append(east, east[0] + 360.0)
        x, y = cell_edges(east), cell_edges(grid.rows[rows])
        if self.kind == "sphere":
            y = y.clip(-90.0, 90.0)
        corners = np.stack(np.meshgrid(x, y), axis=-1)
        on_map = self._on_map(corners.reshape(-1, 2)).reshape(corners.shape)
        shown = np.ma.masked_invalid(values[np.ix_(rows, order)])
        mesh = axes.pcolormesh(on_map[..., 0], on_map[..., 1], shown, rasterized=True, **scale)
        self.format_axes(axes)
        if self.is_global:
            mesh.set_clip_path(axes.patches[0])

    def draw_dots(
        self,
        axes: Axes,
        points: Points,
        values: Float64[np.ndarray, " node"],
        marker: str = "o",
        **scale: Any,
    ) -> PathCollection:
        """Draw a dot at each point, coloured by its value; hollow where there is none.

        Args:
            axes: to draw on.
            points: of the values.
            values: NaN where there is none.
            marker: symbol, as matplotlib names it.
            scale: `cmap` and `norm`.

        Returns:
            The dots that have a value, in the order of the points.
        """
        x, y = self.project(points).T
        known = np.isfinite(values)
        size = float(np.clip(DOT_AREA / max(len(points), 1), 1.0, 45.0))
        width = 0.4 if size > 4.0 else 0.0
        hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": "0.5", "linewidths": 0.5}
        common: dict[str, Any] = {"s": size, "marker": marker, "zorder": 4}
        dots = axes.scatter(
            x[known],
            y[known],
            c=values[known],
            edgecolors="0.2",
            linewidths=width,
            **common,
            **scale,
        )
        if not known.all():
            axes.scatter(x[~known], y[~known], **hollow, **common)
        self.format_axes(axes)
        return dots

    def format_axes(self, axes: Axes) -> None:
        """Set limits, aspect and ticks, and draw coastlines and borders once.

        Args:
            axes: of the map.
        """
        axes.set(xlim=self.box[:2], ylim=self.box[2:], aspect=self.aspect, facecolor=EMPTY)
        if any(lines.get_label() == COUNTRIES for lines in axes.collections):
            return
        if self.is_global:
            _draw_globe(axes)
        else:
            steps = [1, 2, 5, 10] if self.kind == "plane" else [1, 2, 3, 6, 9, 10]
            for axis, ends in ((axes.xaxis, "WE"), (axes.yaxis, "SN")):
                axis.set_major_locator(MaxNLocator(4, steps=steps))
                if self.kind == "sphere":
                    formatter = FuncFormatter(lambda v, _, ends=ends: _degrees(v, ends))
                    axis.set_major_formatter(formatter)
        for kind, lines in self.country_lines().items():
            drawn = LineCollection(lines, zorder=3, label=COUNTRIES, **LINES[kind])
            axes.add_collection(drawn, autolim=False)

    def country_lines(self) -> dict[str, list[natural_earth.Line]]:
        """Coastlines and borders in x and y of the map, by kind; none on a plane."""
        if self.kind == "plane":
            return {}
        west, east, south, north = self.box
        shown = (-180.0, -90.0, 180.0, 90.0)
        if not self.is_global:
            shown = (west, max(south, -90.0), east, min(north, 90.0))
        found = {kind: natural_earth.lines(kind, shown) for kind in LINES}
        return {kind: [self._on_map(line) for line in found[kind]] for kind in found}


def _draw_globe(axes: Axes) -> None:
    """The outline of the globe instead of a frame, and a graticule."""
    axes.set(facecolor="none", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    edge = Polygon(projections.outline(), facecolor=EMPTY, edgecolor="0.3", lw=0.8, zorder=0)
    axes.add_patch(edge)
    lines = LineCollection(projections.graticule(), colors="0.5", linewidths=0.3, zorder=2.5)
    axes.add_collection(lines, autolim=False)


def _degrees(value: float, ends: str) -> str:
    """A longitude or latitude as maps write it: 30°W."""
    value = round(math.remainder(value, 360.0), 6)
    return f"{abs(value):g}°" + (ends[int(value > 0)] if value else "")
