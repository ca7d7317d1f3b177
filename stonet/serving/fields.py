"""Answers of /v1/field and /v1/coast: the forecast on a grid, and the coast below it."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from stonet.data.geometry import Points
from stonet.errors import unknown_name
from stonet.plotting.natural_earth import KINDS, lines
from stonet.serving.about import region as region_of
from stonet.serving.forecasts import times_of
from stonet.serving.issue import Issue, Watch
from stonet.serving.limits import Limits
from stonet.serving.messages import FieldRequest, Region
from stonet.serving.numbers import as_json
from stonet.serving.refusal import Refused
from stonet.serving.times import label, labels

DECIMALS = 3  # of coastlines in degrees: 100 m
Ranges = dict[str, tuple[float, float]]
Document = dict[str, Any]


def field(request: FieldRequest, issue: Issue, limits: Limits, watch: Watch) -> Document:
    """The model's forecast of one channel at the centres of a grid's cells.

    Args:
        request: channel, times and grid.
        issue: features of its issue time.
        limits: of the service.
        watch: called between the parts of the computation.

    Raises:
        Refused: if the grid is too large or empty.
        UsageError: if channel or times are not valid.
    """
    names = issue.field.channels
    if request.channel is not None and request.channel not in names:
        raise unknown_name("channel", request.channel[:80], names)
    c = 0 if request.channel is None else names.index(request.channel)
    rows, columns = request.size
    limits.check_count("cells", rows * columns, limits.sites)
    times = times_of(request.times, issue, limits)
    count = rows * columns * len(times) * len(names)
    limits.check_count("values (cells x times x channels)", count, limits.values)
    kind = issue.field.points.kind
    ranges = ranges_of(request.region, issue.field.points)
    vertical, horizontal = ("lat", "lon") if kind == "sphere" else ("y", "x")
    north_to_south = centres(ranges[vertical], rows)[::-1]
    west_to_east = centres(ranges[horizontal], columns)
    queries = grid_points(north_to_south, west_to_east, kind)
    quantiles = () if request.quantile is None else (request.quantile,)
    made = issue.forecast(queries, times, quantiles, watch)
    values = (made.values[0] if quantiles else made.field.values)[..., c]
    known = values[np.isfinite(values)]
    return {
        "channel": names[c],
        "units": issue.field.units[c],
        "issue_time": label(issue.time, issue.field.calendar),
        "times": labels(times, issue.field.calendar),
        "region": {axis: list(ends) for axis, ends in ranges.items()},
        "rows": {"axis": vertical, "values": north_to_south.tolist()},
        "columns": {"axis": horizontal, "values": west_to_east.tolist()},
        "values": as_json(values.reshape(len(times), rows, columns)),
        "range": as_json(np.array([known.min(), known.max()])) if len(known) else None,
        "quantile": request.quantile,
    }


def ranges_of(given: Region | None, stations: Points) -> Ranges:
    """The ends of both axes.

    Args:
        given: of a request; None: the region of the stations.
        stations: of the observations.

    Raises:
        Refused: if the region has other axes, or is empty.
    """
    axes = stations.geometry.axes
    if given is None:
        return {axis: (ends[0], ends[1]) for axis, ends in region_of(stations).items()}
    found = {name: ends for name, ends in given if ends is not None}
    if set(found) != set(axes):
        raise Refused(
            422,
            f"The region has {sorted(found)}; expected ranges of {axes[0]} and {axes[1]}, such as "
            f'{{"{axes[0]}": [0, 1], "{axes[1]}": [0, 1]}}.',
        )
    for axis, (low, high) in found.items():
        if not low < high or (axis == "lon" and high - low > 360.0):
            raise Refused(422, f"The range of {axis} is {low:g} to {high:g}; expected low < high.")
    return found


def centres(ends: tuple[float, float], count: int) -> Float64[np.ndarray, " cell"]:
    """Centres of equal cells between two ends, increasing.

    Args:
        ends: of the range.
        count: number of cells.
    """
    return ends[0] + (ends[1] - ends[0]) * (np.arange(count) + 0.5) / count


def grid_points(
    rows: Float64[np.ndarray, " row"], columns: Float64[np.ndarray, " column"], kind: str
) -> Points:
    """The points of a grid, row by row.

    Args:
        rows: latitudes, or y.
        columns: longitudes, or x.
        kind: "sphere" or "plane".
    """
    second, first = np.meshgrid(columns, rows)
    pair = (first, second) if kind == "sphere" else (second, first)
    return Points(np.stack([part.ravel() for part in pair], axis=1), kind)  # type: ignore[arg-type]


def coast(text: str | None, stations: Points) -> Document:
    """Coastlines and borders of countries in a region; none on a plane.

    Args:
        text: "west,south,east,north"; None: the region of the stations.
        stations: of the observations.

    Raises:
        Refused: if the text is no region.
    """
    if stations.kind != "sphere":
        return {"coast": [], "borders": []}
    if text is None:
        ranges = region_of(stations)
        box = (ranges["lon"][0], ranges["lat"][0], ranges["lon"][1], ranges["lat"][1])
    else:
        box = _box(text)
    coastlines, borders = (
        [np.round(line, DECIMALS).tolist() for line in lines(kind, box)] for kind in KINDS
    )
    return {"coast": coastlines, "borders": borders}


def _box(text: str) -> tuple[float, float, float, float]:
    """The numbers of a region."""
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError:
        raise Refused(422, "Expected region=west,south,east,north in degrees.") from None
    inside = -90 <= south < north <= 90 and -360 <= west <= 360 and -360 <= east <= 720
    if not inside or not 0 < east - west + 360 * (east < west) <= 360:
        raise Refused(
            422,
            "The region is empty or outside of the Earth; expected west,south,east,north in "
            "degrees, such as -10,35,30,60.",
        )
    return west, south, east, north
