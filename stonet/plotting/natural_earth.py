"""Coastlines and borders of countries for maps: Natural Earth, public domain.

The lines lie in `natural_earth.npz` beside this file; `natural_earth.txt` says where they are from.
`scripts/natural_earth.py` writes it. Lakes are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from stonet.errors import UsageError, unknown_name

KINDS = ("coast", "border")
Degrees = float | int
Box = tuple[Degrees, Degrees, Degrees, Degrees]  # west, south, east, north, in degrees
Line = Float64[np.ndarray, "_ 2"]  # longitude, latitude

FILE = Path(__file__).with_name("natural_earth.npz")
UNITS_PER_DEGREE = 250
# Of the file's levels; a level serves boxes from the extent beside it: about a pixel on 1000.
TOLERANCES = (0.25, 0.06, 0.012)  # degrees
EXTENTS = (90.0, 25.0, 0.0)  # degrees


@dataclass(frozen=True)
class _Lines:
    """Lines one behind the other, with the box of each."""

    points: Float64[np.ndarray, "point 2"]
    first: np.ndarray  # positions of the lines' first points, and the number of points
    lowest: Float64[np.ndarray, "line 2"]
    highest: Float64[np.ndarray, "line 2"]


def lines(kind: str, box: Box, tolerance: float | None = None) -> list[Line]:
    """The coastlines or borders within a box.

    Args:
        kind: "coast" or "border" (between countries, on land).
        box: west, south, east and north in degrees. A box across the date line has longitudes above
            180 or below -180, such as (170, -50, 190, -30), or a west that is greater than its
            east, which stands for east + 360.
        tolerance: how far in degrees a line may lie from the real one; 0.012 is the finest.
            By default as coarse as the box allows on a map of 1000 pixels.

    Returns:
        Lines of longitude and latitude, cut at the box, of at least two points each. Longitudes
        increase through the box and do not jump.

    Raises:
        UsageError: the kind is unknown, or the box is empty.

    Example:
        >>> coast = lines("coast", (-75.0, -35.0, -33.0, 6.0))  # Brazil
        >>> all(line.shape[1] == 2 for line in coast)
        True
    """
    if kind not in KINDS:
        raise UsageError(unknown_name("kind of line", kind, KINDS))
    west, south, east, north = (float(side) for side in box)
    east += 360.0 if west > east else 0.0
    if not (np.isfinite([west, south, east, north]).all() and west < east and south < north):
        raise UsageError(
            f"Expected a box of west, south, east and north in degrees, got {tuple(box)}: it is "
            "empty. Give south < north, and finite numbers."
        )
    stored = _read(kind, _level(max(east - west, north - south), tolerance))
    found: list[Line] = []
    for turn in range(int(np.floor((west + 180.0) / 360.0)), int(np.ceil((east + 180.0) / 360.0))):
        shift = np.array([360.0 * turn, 0.0])
        low, high = np.array([west, south]) - shift, np.array([east, north]) - shift
        found += [part + shift for part in _within(stored, low, high)]
    return found


def _level(extent: float, tolerance: float | None) -> int:
    """The coarsest level that keeps the tolerance, or that suits the extent."""
    if tolerance is None:
        return next(level for level, least in enumerate(EXTENTS) if extent >= least)
    fine_enough = (level for level, value in enumerate(TOLERANCES) if value <= tolerance)
    return next(fine_enough, len(TOLERANCES) - 1)


@cache
def _read(kind: str, level: int) -> _Lines:
    """The lines of a kind at a level of detail."""
    with np.load(FILE, allow_pickle=False) as file:
        starts, sizes, steps, levels = (
            file[f"{kind}_{part}"] for part in ("starts", "sizes", "steps", "levels")
        )
    line = np.repeat(np.arange(len(sizes)), sizes)
    total = np.cumsum(steps.T, axis=0, dtype=np.int64)
    first = np.cumsum(sizes) - sizes  # the first step of a line is zero
    points = (total - total[first][line] + starts[line]) / UNITS_PER_DEGREE
    kept = levels <= level
    counts = np.bincount(line[kept], minlength=len(sizes))
    points, counts = points[kept], counts[counts > 0]
    first = np.concatenate([[0], np.cumsum(counts)])
    low, high = (extreme.reduceat(points, first[:-1]) for extreme in (np.minimum, np.maximum))
    return _Lines(points, first, low, high)


def _within(
    stored: _Lines, low: Float64[np.ndarray, " 2"], high: Float64[np.ndarray, " 2"]
) -> list[Line]:
    """The parts of the lines in a box."""
    touching = ((stored.highest >= low) & (stored.lowest <= high)).all(axis=1)
    inside = np.all((stored.lowest >= low) & (stored.highest <= high), axis=1)
    found: list[Line] = []
    for line in np.flatnonzero(touching):
        points = stored.points[stored.first[line] : stored.first[line + 1]]
        found += [points.copy()] if inside[line] else clipped(points, low, high)
    return found


def clipped(
    line: Line, low: Float64[np.ndarray, " 2"], high: Float64[np.ndarray, " 2"]
) -> list[Line]:
    """The parts of a line in a box, by Liang and Barsky's method on all of its segments at once.

    Args:
        line: longitude and latitude, or any two coordinates.
        low: the smaller coordinates of the box.
        high: the greater ones.
    """
    start, step = line[:-1], np.diff(line, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sides = np.stack([(low - start) / step, (high - start) / step])
    still = step == 0.0  # such a segment is in the box throughout or nowhere
    held = (start >= low) & (start <= high)
    entry = np.where(still, np.where(held, -np.inf, np.inf), sides.min(axis=0)).max(axis=1)
    leave = np.where(still, np.where(held, np.inf, -np.inf), sides.max(axis=0)).min(axis=1)
    entry, leave = np.maximum(entry, 0.0), np.minimum(leave, 1.0)
    crosses = np.flatnonzero(entry < leave)
    if not len(crosses):
        return []
    start, step, entry, leave = (part[crosses] for part in (start, step, entry, leave))
    begins, ends = (np.clip(start + t[:, None] * step, low, high) for t in (entry, leave))
    broken = (np.diff(crosses) > 1) | (leave[:-1] < 1.0) | (entry[1:] > 0.0)
    parts = np.split(np.arange(len(crosses)), np.flatnonzero(broken) + 1)
    return [np.concatenate([begins[part[:1]], ends[part]]) for part in parts]
