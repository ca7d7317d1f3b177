"""Sheets: how points of a plane or of the earth are laid out and drawn as a continuous map.

Maps interpolate linearly between the points, which invents no extremes; grey is where nothing is
known. Regions are never torn at the date line.
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


@dataclass(frozen=True)
class MapProjection:
    """The flat sheet a map is drawn on: the plane itself, or longitude by latitude.

    The sphere is cut in the middle of the widest range of longitudes without a point, so that no
    region is torn; points all around the globe are cut at the date line and repeated beyond it.
    """

    kind: Kind
    west: float  # the longitude where the sphere is cut
    whole: bool  # whether the points go all around the globe
    box: tuple[float, float, float, float]  # west, east, south, north

    @staticmethod
    def of(points: Points) -> MapProjection:
        west, whole = -180.0, False
        if points.kind == "sphere":
            around = np.unique(np.remainder(points.coordinates[:, 1], 360.0))
            gaps = np.diff(around, append=around[0] + 360.0)
            whole = bool(gaps.max() < 45.0)
            middle = float(around[gaps.argmax()] + gaps.max() / 2.0)
            west = -180.0 if whole else math.remainder(middle, 360.0)
        x, y = MapProjection(points.kind, west, whole, (0.0, 1.0, 0.0, 1.0)).place(points).T
        margin = 0.03 * (float(max(np.ptp(x), np.ptp(y))) or 1.0)
        east_west = (-180.0, 180.0) if whole else (float(x.min()) - margin, float(x.max()) + margin)
        box = (*east_west, float(y.min()) - margin, float(y.max()) + margin)
        return MapProjection(points.kind, west, whole, box)

    @property
    def stretch(self) -> float:
        """How much longer a unit of y is drawn than one of x: 1 / cos(latitude) for regions."""
        if self.kind == "plane" or self.whole:
            return 1.0
        return 1.0 / max(math.cos(math.radians((self.box[2] + self.box[3]) / 2.0)), 0.2)

    def panel(self) -> tuple[float, float]:
        """Width and height in inches that suit the region's shape."""
        ratio = self.stretch * (self.box[3] - self.box[2]) / (self.box[1] - self.box[0])
        width = max(1.3, min(2.5 / math.sqrt(ratio), 6.0, 2.7 / ratio))
        return width, max(0.8, min(width * ratio, 2.7))

    def place(self, points: Points) -> Float64[np.ndarray, "node 2"]:
        """x, y on the sheet."""
        if points.kind != self.kind:
            raise DataError(f"Points on a {points.kind} cannot be drawn on a map of a {self.kind}.")
        if self.kind == "plane":
            return points.coordinates
        lat, lon = points.coordinates.T
        return np.stack([np.remainder(lon - self.west, 360.0) + self.west, lat], axis=1)

    def draw(
        self, axes: Axes, points: Points, values: Float64[np.ndarray, " node"], **look: Any
    ) -> None:
        """A smooth map of the values that are not NaN; dots where they span no surface."""
        known = np.isfinite(values)
        place, values = self.place(points)[known], values[known]
        if self.whole:  # both edges continue with what is beyond them
            place = np.concatenate([place + np.array([turn, 0.0]) for turn in (-360.0, 0.0, 360.0)])
            near = np.abs(place[:, 0]) < 240.0
            place, values = place[near], np.tile(values, 3)[near]
        triangles = _triangulation(place)
        if triangles is None:
            axes.scatter(place[:, 0], place[:, 1], c=values, s=40, edgecolors="0.4", **look)
        else:
            fine, smooth = _refined(triangles, values)
            axes.tripcolor(fine, smooth, shading="gouraud", **look)
        self.dress(axes)

    def dress(self, axes: Axes) -> None:
        """Limits, proportions and ticks that suit the sheet."""
        axes.set(xlim=self.box[:2], ylim=self.box[2:], aspect=self.stretch, facecolor="0.9")
        steps = [1, 2, 5, 10] if self.kind == "plane" else [1, 2, 3, 6, 9, 10]
        prune: Any = "both" if self.whole else None
        for axis, ends in ((axes.xaxis, "WE"), (axes.yaxis, "SN")):
            axis.set_major_locator(MaxNLocator(4, steps=steps, prune=prune))
            if self.kind == "sphere":
                axis.set_major_formatter(FuncFormatter(lambda v, _, ends=ends: _degrees(v, ends)))


def _triangulation(place: Float64[np.ndarray, "node 2"]) -> tri.Triangulation | None:
    """Delaunay without the slivers along the hull; None if there is no area to speak of."""
    extent = np.linalg.svd(place - place.mean(axis=0), compute_uv=False) if len(place) > 3 else None
    if extent is None or extent[1] <= 1e-6 * extent[0]:
        return None
    raw = tri.Triangulation(place[:, 0], place[:, 1])
    # not rescaled to a square, which would call good triangles of a long region flat
    flat = tri.TriAnalyzer(raw).get_flat_tri_mask(0.02, rescale=False)
    return tri.Triangulation(raw.x, raw.y, raw.triangles[~flat]) if not flat.all() else raw


def _refined(
    triangles: tri.Triangulation, values: Float64[np.ndarray, " node"]
) -> tuple[tri.Triangulation, Float64[np.ndarray, " vertex"]]:
    """Smaller triangles of the same surface: so colours follow the colour map, not RGB mixing."""
    subdivisions = min(4, max(0, round(math.log(30_000 / len(triangles.triangles), 4))))
    surface = tri.LinearTriInterpolator(triangles, values)
    fine, smooth = tri.UniformTriRefiner(triangles).refine_field(values, surface, subdivisions)
    return fine, np.asarray(smooth, dtype=np.float64)


def _degrees(value: float, ends: str) -> str:
    value = round(math.remainder(value, 360.0), 6)
    return f"{abs(value):g}°" + (ends[int(value > 0)] if value else "")
