"""Points on a plane or on a sphere, and their distances, in float64.

The paper's arccos<x, y> is not used: in floating point it is NaN for some pairs of equal points and
cannot resolve distances under a few kilometres. The chord form has neither defect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data import display
from stonet.errors import DataError

Kind = Literal["plane", "sphere"]
EARTH_RADIUS_KM = 6371.0088
MAX_COORDINATE = 1e15  # on a plane: squares of it are exact enough, also in float32


@runtime_checkable
class Geometry(Protocol):
    """A space: embedding, distance and local directions."""

    axes: tuple[str, str]  # names of the two coordinates
    dimension: int  # of the embedding
    diameter: float  # the largest distance; infinite on a plane

    def embed(self, coordinates: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, "node m"]:
        """Coordinates in the Euclidean space of the networks.

        Args:
            coordinates: x, y or latitude, longitude in degrees.
        """
        ...

    def distance(
        self, x: Float64[np.ndarray, "... m"], y: Float64[np.ndarray, "... m"]
    ) -> Float64[np.ndarray, "..."]:
        """d(x, y) between embedded points.

        Args:
            x: embedded points.
            y: embedded points.
        """
        ...

    def chord(self, radius: float) -> float:
        """The straight distance in the embedding that corresponds to `radius`.

        Args:
            radius: a distance within the space.
        """
        ...

    def offset(
        self, x: Float64[np.ndarray, "... m"], y: Float64[np.ndarray, "... m"]
    ) -> Float64[np.ndarray, "... 2"]:
        """The displacement from x to y in two local directions at x; its length is d(x, y).

        Args:
            x: embedded points.
            y: embedded points.
        """
        ...


class Plane:
    """The Euclidean plane; coordinates x, y in any unit of length."""

    axes = ("x", "y")
    dimension = 2
    diameter = float("inf")

    def embed(self, coordinates: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, "node m"]:
        return coordinates

    def distance(
        self, x: Float64[np.ndarray, "... m"], y: Float64[np.ndarray, "... m"]
    ) -> Float64[np.ndarray, "..."]:
        return np.linalg.norm(x - y, axis=-1)

    def chord(self, radius: float) -> float:
        return radius

    def offset(
        self, x: Float64[np.ndarray, "... m"], y: Float64[np.ndarray, "... m"]
    ) -> Float64[np.ndarray, "... 2"]:
        return y - x


class Sphere:
    """The unit sphere; coordinates latitude, longitude in degrees; distances in radians."""

    axes = ("lat", "lon")
    dimension = 3
    diameter = float(np.pi)

    def embed(self, coordinates: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, "node m"]:
        lat, lon = np.deg2rad(coordinates[:, 0]), np.deg2rad(np.remainder(coordinates[:, 1], 360.0))
        # sin(90 deg - |lat|) is exactly 0 at a pole, unlike cos(lat): no effect of lon
        ring = np.sin(np.deg2rad(90.0 - np.abs(coordinates[:, 0])))
        return np.stack([ring * np.cos(lon), ring * np.sin(lon), np.sin(lat)], axis=1)

    def distance(
        self, x: Float64[np.ndarray, "... m"], y: Float64[np.ndarray, "... m"]
    ) -> Float64[np.ndarray, "..."]:
        """2 atan2(|x - y|, |x + y|): the chord form, accurate for equal and for opposite points."""
        return 2.0 * np.arctan2(np.linalg.norm(x - y, axis=-1), np.linalg.norm(x + y, axis=-1))

    def chord(self, radius: float) -> float:
        return 2.0 * float(np.sin(min(radius, np.pi) / 2.0))

    def offset(
        self, x: Float64[np.ndarray, "... m"], y: Float64[np.ndarray, "... m"]
    ) -> Float64[np.ndarray, "... 2"]:
        """The initial direction of the great circle at x as (east, north), times the distance."""
        ring = np.hypot(x[..., 0], x[..., 1])
        safe = np.where(ring > 0, ring, 1.0)
        cos, sin = (
            np.where(ring > 0, x[..., 0] / safe, 1.0),
            np.where(ring > 0, x[..., 1] / safe, 0.0),
        )
        up = x[..., 2]
        east = -sin * y[..., 0] + cos * y[..., 1]
        north = -up * (cos * y[..., 0] + sin * y[..., 1]) + ring * y[..., 2]
        # from a pole to the other, every direction is right; north is used
        north = np.where(np.hypot(east, north) > 0, north, 1.0)
        scale = self.distance(x, y) / np.hypot(east, north)
        return np.stack([east * scale, north * scale], axis=-1)


GEOMETRIES: dict[str, Geometry] = {"plane": Plane(), "sphere": Sphere()}


@dataclass(frozen=True, eq=False, repr=False)
class Points(display.Described):
    """Positions with names, checked when they are made.

    Args:
        coordinates: (node, 2): x, y on a plane; latitude, longitude in degrees on a sphere.
        kind: "plane" or "sphere".
        names: one for each point; numbered from 0 where none are given.
    """

    coordinates: Float64[np.ndarray, "node 2"]
    kind: Kind = "plane"
    names: tuple[str, ...] = ()
    embedded: Float64[np.ndarray, "node m"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        coordinates = np.array(self.coordinates, dtype=np.float64)
        if self.kind not in GEOMETRIES:
            raise DataError(f"Geometry '{self.kind}' is unknown. Choose 'plane' or 'sphere'.")
        if coordinates.ndim != 2 or coordinates.shape[1] != 2 or len(coordinates) == 0:
            raise DataError(
                f"Coordinates have shape {coordinates.shape}; expected (points, 2) with at least "
                f"one point, meaning {' and '.join(GEOMETRIES[self.kind].axes)} of each point."
            )
        names = tuple(self.names) or tuple(str(i) for i in range(len(coordinates)))
        if len(names) != len(coordinates):
            raise DataError(f"{len(names)} names for {len(coordinates)} points. Give one each.")
        _check_range(coordinates, self.kind, names)
        coordinates.setflags(write=False)
        embedded = np.ascontiguousarray(GEOMETRIES[self.kind].embed(coordinates))
        embedded.setflags(write=False)
        for key, value in (("coordinates", coordinates), ("names", names), ("embedded", embedded)):
            object.__setattr__(self, key, value)

    def _title(self) -> str:
        return f"Points: {len(self):,}"

    def _summary(self) -> dict[str, str]:
        return {"extent": display.extent(self), "names": display.listed(self.names)}

    @property
    def geometry(self) -> Geometry:
        """The geometry of this kind of points."""
        return GEOMETRIES[self.kind]

    def __len__(self) -> int:
        return len(self.coordinates)

    def __iter__(self) -> Iterator[tuple[str, float, float]]:
        for name, (first, second) in zip(self.names, self.coordinates, strict=True):
            yield name, float(first), float(second)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Points)
            and self.kind == other.kind
            and self.names == other.names
            and np.array_equal(self.coordinates, other.coordinates)
        )

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Points:
        """The points at these indices, in this order.

        Args:
            index: positions of points.
        """
        return Points(self.coordinates[index], self.kind, tuple(self.names[i] for i in index))

    def joined(self, other: Points) -> Points:
        """These points followed by others of the same kind.

        Args:
            other: points of the same kind.
        """
        if other.kind != self.kind:
            raise DataError(f"Cannot join points on a {other.kind} to points on a {self.kind}.")
        both = np.concatenate([self.coordinates, other.coordinates])
        return Points(both, self.kind, self.names + other.names)


def curve_order(points: Points) -> Int64[np.ndarray, " node"]:
    """Indices of the points along a space-filling curve: neighbours stay close.

    Args:
        points: on a plane or a sphere.
    """
    low, high = points.coordinates.min(0), points.coordinates.max(0)
    scaled = (points.coordinates - low) / np.where(high > low, high - low, 1.0)
    return morton_order(np.minimum(scaled * 2**16, 2**16 - 1).astype(np.int64))


def morton_order(cells: Int64[np.ndarray, "node 2"]) -> Int64[np.ndarray, " node"]:
    """The order of grid cells along the Z-shaped curve, by interleaving the bits of x and y.

    Args:
        cells: column and row of each cell, in 16 bits.
    """
    bits = [(cells[:, a] >> bit & 1) << (2 * bit + a) for a in (0, 1) for bit in range(16)]
    return np.argsort(np.sum(bits, axis=0), kind="stable")


def _check_range(
    coordinates: Float64[np.ndarray, "node 2"], kind: Kind, names: tuple[str, ...]
) -> None:
    """Refuse coordinates that are not finite or out of range, with a probable cause."""
    bad = ~np.isfinite(coordinates).all(axis=1)
    if bad.any():
        raise DataError(
            f"{int(bad.sum())} of {len(names)} points have no finite coordinates "
            f"(first: '{names[int(bad.argmax())]}'). Drop them or fill them in."
        )
    if kind == "plane":
        bad = np.abs(coordinates).max(axis=1) > MAX_COORDINATE
        if bad.any():
            first = int(bad.argmax())
            raise DataError(
                f"Point '{names[first]}' is at x={coordinates[first, 0]:g}, "
                f"y={coordinates[first, 1]:g}; coordinates on a plane are at most "
                f"{MAX_COORDINATE:g}. Choose a larger unit, or correct the point."
            )
        return
    bad = (np.abs(coordinates[:, 0]) > 90.0) | (np.abs(coordinates[:, 1]) > 360.0)
    if bad.any():
        first = int(bad.argmax())
        lat, lon = coordinates[first]
        swapped = abs(lon) <= 90.0 and abs(lat) <= 360.0
        raise DataError(
            f"Point '{names[first]}' is at lat={lat:g}, lon={lon:g}; latitude must be in [-90, 90] "
            "and longitude in [-360, 360] degrees. "
            + (
                "Latitude and longitude seem to be swapped."
                if swapped
                else "Metres or another projection? Then use geometry 'plane'."
            )
        )
