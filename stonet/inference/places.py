"""Query points as users give them: stations by name, places beside a station, grids of a region."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.errors import UsageError
from stonet.graph.neighbours import nearest_nodes
from stonet.io.sites import GRID, parse_sites
from stonet.io.stations import as_points

SNAP_METRES = 100.0  # on a sphere: a place as near as this to a station is the station
SNAP_SHARE = 1e-3  # on a plane: as a share of the usual distance between neighbouring stations
GLOBAL_GAP = 2.0  # steps of a grid: with a smaller gap between longitudes, it goes around


def find_places(
    at: Any, stations: Points, known: Points | None = None, snap: bool = True
) -> tuple[Points | None, tuple[str, ...]]:
    """Query points from what users give, and notes on the places that are taken for a station.

    Args:
        at: as for `stonet.io.stations.as_points`, or names of stations; None stays None.
        stations: the points of the data, which have a history.
        known: further points whose names are known, such as those of the training.
        snap: move places that lie within 100 m of a station (on a plane: a thousandth of the usual
            distance between neighbours) to it, so that its history is used.

    Raises:
        UsageError: a place is neither a position, nor a file, nor the name of a station.
    """
    named = stations if known is None else _with_others(stations, known)
    places = as_points(at, stations.kind, named)
    entries = at if isinstance(at, (list, tuple)) else [at]
    is_grid = any(isinstance(entry, str) and entry.startswith(GRID) for entry in entries)
    if places is None or not snap or is_grid or places.kind != stations.kind:
        return places, ()
    return snap_to_stations(places, stations)


def snap_to_stations(places: Points, stations: Points) -> tuple[Points, tuple[str, ...]]:
    """The places, those beside a station at its position; and a note on each that was moved.

    Args:
        places: points of the forecast.
        stations: points of the data.
    """
    near = nearest_nodes(places, stations)[1][:, 0]
    distance = stations.geometry.distance(places.embedded, stations.embedded[near])
    moved = np.flatnonzero((distance > 0) & (distance <= _tolerance(stations)))
    if not len(moved):
        return places, ()
    coordinates = places.coordinates.copy()
    coordinates[moved] = stations.coordinates[near[moved]]
    notes = tuple(
        f"'{places.names[i]}' lies {_length(float(distance[i]), stations.kind)} from station "
        f"'{stations.names[near[i]]}' and is taken for it, with its history (--no-snap: as a place "
        "of its own)."
        for i in moved
    )
    return Points(coordinates, places.kind, places.names), notes


def region_grid(step: float, points: Points) -> Points:
    """A regular grid over the region of the points, at multiples of the step.

    Args:
        step: in degrees, or in units of the plane.
        points: that it covers.

    Raises:
        UsageError: the step is not positive, or the grid has too many points.
    """
    if not (math.isfinite(step) and step > 0):
        raise UsageError(f"A grid has a step > 0, such as 0.25; got {step:g}.")
    first, second = points.coordinates.T
    if points.kind == "plane":
        x, y = (_outwards(axis.min(), axis.max(), step) for axis in (first, second))
        return parse_sites([f"{GRID}{step},{x[0]},{y[0]},{x[1]},{y[1]}"], "plane")
    south, north = _outwards(first.min(), first.max(), step)
    west, east = _outwards(*longitude_arc(second, GLOBAL_GAP * step, step), step)
    box = f"{west},{max(south, -90.0)},{min(east, west + 360.0 - step)},{min(north, 90.0)}"
    return parse_sites([f"{GRID}{step},{box}"], "sphere")


def _outwards(low: float, high: float, step: float) -> tuple[float, float]:
    """Both ends, moved outwards to multiples of the step."""
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def longitude_arc(
    longitudes: np.ndarray, least_gap: float = 0.0, step: float = 0.0
) -> tuple[float, float]:
    """The shortest arc with all longitudes: west and east, which is above 180 across the date line.

    Args:
        longitudes: in degrees.
        least_gap: degrees without a point; with less everywhere, the arc goes around.
        step: that such an arc ends before its beginning.
    """
    ordered = np.unique(longitudes % 360.0)
    gaps = np.diff(ordered, append=ordered[0] + 360.0)
    widest = int(gaps.argmax())
    if gaps[widest] <= least_gap:
        return -180.0, 180.0 - step
    west = float(ordered[(widest + 1) % len(ordered)])
    west -= 360.0 * (west >= 180.0)
    return west, west + 360.0 - float(gaps[widest])


def _tolerance(stations: Points) -> float:
    """The distance within which a place is a station."""
    if stations.kind == "sphere":
        return SNAP_METRES / 1000 / EARTH_RADIUS_KM
    if len(stations) < 2:
        return 0.0
    nearest = nearest_nodes(stations, stations, 2)[1][:, 1]
    distance = stations.geometry.distance(stations.embedded, stations.embedded[nearest])
    return SNAP_SHARE * float(np.median(distance))


def _length(distance: float, kind: str) -> str:
    return f"{1000 * EARTH_RADIUS_KM * distance:.0f} m" if kind == "sphere" else f"{distance:.3g}"


def _with_others(stations: Points, known: Points) -> Points:
    """The stations, and the known points with other names."""
    names = set(stations.names)
    others = np.flatnonzero([name not in names for name in known.names])
    if not len(others) or known.kind != stations.kind:
        return stations
    return stations.joined(known.take(others))
