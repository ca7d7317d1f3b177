"""Map projections: points of a plane or of the earth, drawn as a continuous map.

Values are interpolated linearly between the points, which adds no extremes; areas without data are
grey. A region across the date line stays in one piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib import tri
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from stonet.data.geometry import Kind, Points
from stonet.errors import DataError

AXES = {"plane": ("x", "y"), "sphere": ("longitude", "latitude")}
GLOBAL_GAP = 45.0  # degrees: points with smaller gaps in longitude go around the globe
MARGIN = 0.03  # around the points, as a share of the extent
MIN_TRIANGLE_RATIO = 0.02  # of inscribed to circumscribed circle; flatter ones are left out
MAX_TRIANGLES = 30_000  # of a refined map


@dataclass(frozen=True)
class MapProjection:
    """The coordinates of a map: those of the plane, or longitude and latitude.

    The sphere is cut in the middle of the widest range of longitudes without a point, so that a
    region stays in one piece. Points all around the globe are cut at the date line, and repeated
    beyond it.

    Args:
        kind: the geometry.
        west: longitude of the cut.
        is_global: whether the points go all around the globe.
        box: west, east, south, north.
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
        x, y = unbounded.project(points).T
        margin = MARGIN * (float(max(np.ptp(x), np.ptp(y))) or 1.0)
        sides = (-180.0, 180.0)
        if not is_global:
            sides = (float(x.min()) - margin, float(x.max()) + margin)
        box = (*sides, float(y.min()) - margin, float(y.max()) + margin)
        return MapProjection(points.kind, west, is_global, box)

    @property
    def aspect(self) -> float:
        """Length of a unit of y over that of a unit of x: 1 / cos(latitude) for regions."""
        if self.kind == "plane" or self.is_global:
            return 1.0
        return 1.0 / max(math.cos(math.radians((self.box[2] + self.box[3]) / 2.0)), 0.2)

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
        if self.kind == "plane":
            return points.coordinates
        lat, lon = points.coordinates.T
        return np.stack([np.remainder(lon - self.west, 360.0) + self.west, lat], axis=1)

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
        position, values = self.project(points)[finite], values[finite]
        if self.is_global:  # both edges continue with what is beyond them
            turns = (-360.0, 0.0, 360.0)
            position = np.concatenate([position + np.array([turn, 0.0]) for turn in turns])
            near = np.abs(position[:, 0]) < 240.0
            position, values = position[near], np.tile(values, 3)[near]
        triangles = _triangulation(position)
        if triangles is None:
            x, y = position.T
            axes.scatter(x, y, c=values, s=40, edgecolors="0.4", **scale)
        else:
            fine, smooth = _refined(triangles, values)
            axes.tripcolor(fine, smooth, shading="gouraud", **scale)
        self.format_axes(axes)

    def format_axes(self, axes: Axes) -> None:
        """Set limits, aspect and ticks.

        Args:
            axes: of the map.
        """
        axes.set(xlim=self.box[:2], ylim=self.box[2:], aspect=self.aspect, facecolor="0.9")
        steps = [1, 2, 5, 10] if self.kind == "plane" else [1, 2, 3, 6, 9, 10]
        prune: Any = "both" if self.is_global else None
        for axis, ends in ((axes.xaxis, "WE"), (axes.yaxis, "SN")):
            axis.set_major_locator(MaxNLocator(4, steps=steps, prune=prune))
            if self.kind == "sphere":
                axis.set_major_formatter(FuncFormatter(lambda v, _, ends=ends: _degrees(v, ends)))


def _triangulation(position: Float64[np.ndarray, "node 2"]) -> tri.Triangulation | None:
    """Delaunay triangles without slivers along the hull; None if the points span no area."""
    if len(position) <= 3:
        return None
    extent = np.linalg.svd(position - position.mean(axis=0), compute_uv=False)
    if extent[1] <= 1e-6 * extent[0]:
        return None
    raw = tri.Triangulation(position[:, 0], position[:, 1])
    # Not rescaled to a square, in which good triangles of a long region would be flat.
    flat = tri.TriAnalyzer(raw).get_flat_tri_mask(MIN_TRIANGLE_RATIO, rescale=False)
    return tri.Triangulation(raw.x, raw.y, raw.triangles[~flat]) if not flat.all() else raw


def _refined(
    triangles: tri.Triangulation, values: Float64[np.ndarray, " node"]
) -> tuple[tri.Triangulation, Float64[np.ndarray, " vertex"]]:
    """Smaller triangles of the same surface, so that colours follow the map instead of mixing."""
    subdivisions = min(4, max(0, round(math.log(MAX_TRIANGLES / len(triangles.triangles), 4))))
    surface = tri.LinearTriInterpolator(triangles, values)
    fine, smooth = tri.UniformTriRefiner(triangles).refine_field(values, surface, subdivisions)
    return fine, np.asarray(smooth, dtype=np.float64)


def _degrees(value: float, ends: str) -> str:
    """A longitude or latitude as maps write it: 30°W."""
    value = round(math.remainder(value, 360.0), 6)
    return f"{abs(value):g}°" + (ends[int(value > 0)] if value else "")
