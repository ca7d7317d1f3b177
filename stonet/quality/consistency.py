"""Consistency: units against values, stations against neighbours (buddy check), positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64, Int64

from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.data.physical_limits import quantity_of, standard_unit
from stonet.graph.neighbours import nearest_nodes
from stonet.quality.checks import CheckInput, Finding, plural, verb
from stonet.quality.statistics import MAD_TO_SIGMA

# Quantities that are never negative -> tolerance, as a share of the largest usual value.
NON_NEGATIVE = {"precipitation": 0.001, "wind speed": 0.001, "radiation": 0.02, "humidity": 0.001}
MAX_HUMIDITY = 105  # percent
BUDDIES = 8  # neighbours with which a station is compared
BUDDY_SIGMAS = 8.0  # robust deviations from the neighbours' median
MAX_STATIONS = 5_000  # more points are a grid, whose positions nobody typed
ISOLATED_SPACINGS = 5.0  # usual distances to the nearest station


def unit_check(data: CheckInput) -> Iterator[Finding]:
    """Declared units that the values contradict, and physically impossible values.

    Args:
        data: to be checked.
    """
    for name in data.field.angles():
        yield Finding(
            "warning",
            f"{name} is a direction in degrees: 359 and 1 are 2 degrees apart, not 358.",
            name,
            f"fit refuses it. Read components instead: --wind-components SPEED,{name}.",
        )
    for c, (channel, unit) in enumerate(data.field.quantity):
        if np.isfinite(data.sample.median[c]):
            quantity = quantity_of(channel, unit)
            known = "" if unit == "1" else standard_unit(unit)
            yield from _wrong_unit(data, c, channel, quantity, known)
            yield from _impossible(data, c, channel, quantity, known)


def _wrong_unit(
    data: CheckInput, c: int, channel: str, quantity: str, unit: str
) -> Iterator[Finding]:
    """The unit that the values suggest, where it differs from the declared one."""
    sample = data.sample
    low, median, high = (float(q[c]) for q in (sample.low, sample.median, sample.high))
    likely = unit
    if quantity == "temperature":
        likely = "K" if 150 < median < 400 else "degF" if median > 45 else unit
        if unit in ("K", "") and median <= 150:
            likely = "degF" if median > 45 or high > 65 else "degC"
        if unit not in ("K", "degC", "degF", "") or (unit == "degF" and likely != "K"):
            likely = unit
    elif quantity == "pressure" and unit in ("Pa", "hPa", ""):
        likely = "Pa" if median > 20_000 else "hPa" if 300 < median < 1_200 else unit
    elif quantity in ("humidity", "fraction") and unit in ("%", ""):
        likely = "%" if high > 1.5 else "" if high > 0 and unit == "%" else unit
    if likely == unit:
        return
    name = likely or "fractions of 1"
    if not unit:
        yield Finding("note", f"{channel} has no unit; the values look like {name}.", channel)
        return
    what = f"{channel} is declared in {unit}, but the values look like {name}: "
    what += f"{low:.4g} to {high:.4g}, median {median:.4g}."
    yield Finding("warning", what, channel, "Correct the unit, or convert the values.")


def _impossible(
    data: CheckInput, c: int, channel: str, quantity: str, unit: str
) -> Iterator[Finding]:
    """Negative values of quantities that have none, and humidity above 100 %."""
    statistics, high = data.statistics, float(data.sample.high[c])
    reported = statistics.count[:, c] > 0
    size = max(abs(high), abs(float(data.sample.low[c])))
    limit = -NON_NEGATIVE[quantity] * size if quantity in NON_NEGATIVE else -np.inf
    fill_values = [value for (channel_, value) in statistics.fill_values if channel_ == c]
    lowest, highest = statistics.low[:, c], statistics.high[:, c]
    below = np.flatnonzero(reported & (lowest < limit) & ~np.isin(lowest, fill_values))
    if len(below):
        worst = below[np.argsort(lowest[below], kind="stable")]
        yield Finding(
            "warning",
            f"{channel} is negative at {plural(len(below), 'station')}; {quantity} never is.",
            data.stations(worst, lambda n: _extreme(data, n, c, "low")),
            "Set these values to missing, or correct their offset.",
        )
    if quantity != "humidity" or not (unit == "%" or high > 1.5):
        return
    above = np.flatnonzero(reported & (highest > MAX_HUMIDITY) & ~np.isin(highest, fill_values))
    if len(above):
        worst = above[np.argsort(-highest[above], kind="stable")]
        yield Finding(
            "warning",
            f"{channel} is above 100 % at {plural(len(above), 'station')}.",
            data.stations(worst, lambda n: _extreme(data, n, c, "high")),
            "Set these values to 100 % or to missing.",
        )


def _extreme(data: CheckInput, node: int, c: int, end: str) -> str:
    """The lowest or highest value of a station, with its time."""
    value, frame = (getattr(data.statistics, name) for name in (end, f"{end}_at"))
    return f"{data.value(float(value[node, c]), c)} at {data.time(int(frame[node, c]))}"


def buddy_check(data: CheckInput) -> Iterator[Finding]:
    """Stations whose median differs from that of their neighbours, or is in another unit.

    Args:
        data: to be checked.
    """
    points = data.field.points
    if len(points) <= BUDDIES:
        return
    near = nearest_nodes(points, points, BUDDIES + 1)[1]
    for c in range(len(data.field.channels)):
        own = data.sample.point_median[:, c]
        reported = np.isfinite(own)
        if reported.sum() <= BUDDIES:
            continue
        neighbours = np.where(reported, own, np.median(own[reported]))[near[:, 1:]]
        expected = np.median(neighbours, axis=1)
        difference = np.where(reported, own - expected, 0.0)
        spread = MAD_TO_SIGMA * np.median(np.abs(difference - np.median(difference)))
        limit = max(BUDDY_SIGMAS * spread, 2 * float(data.sample.spread[c]))
        nodes = np.flatnonzero(np.abs(difference) > limit)
        nodes = nodes[np.argsort(-np.abs(difference[nodes]))]
        yield from _unlike_neighbours(data, c, nodes, own, expected)


def _unlike_neighbours(
    data: CheckInput, c: int, nodes: np.ndarray, own: np.ndarray, expected: np.ndarray
) -> Iterator[Finding]:
    """A finding per station in another unit, and one for all others."""
    channel, quantity = data.field.channels[c], quantity_of(*data.field.quantity[c])

    def detail(n: int) -> str:
        return f"median {data.value(own[n], c)}, neighbours {data.value(expected[n], c)}"

    unexplained = []
    for node in nodes.tolist():
        confusion = _confused_unit(float(own[node]), float(expected[node]), quantity)
        if confusion is None:
            unexplained.append(node)
            continue
        what = f"{data.station(node)} seems to report {channel} in another unit ({confusion})."
        yield Finding("warning", what, data.stations([node], detail), "Convert its values.")
    if unexplained:
        count = len(unexplained)
        what = f"{plural(count, 'station')} {verb(count, 'report')} {channel} far from "
        what += f"{'its' if count == 1 else 'their'} neighbours."
        advice = "Check elevation, position and sensor."
        yield Finding("note", what, data.stations(unexplained, detail), advice)


def _confused_unit(own: float, expected: float, quantity: str) -> str | None:
    """The confusion of units that explains a station's median by its neighbours'; None if none."""
    readings = {"K instead of degC": expected + 273.15, "degC instead of K": expected - 273.15}
    if quantity == "temperature":
        readings["degF instead of degC"] = 1.8 * expected + 32
        readings["degC instead of degF"] = (expected - 32) / 1.8
    elif quantity == "pressure":
        readings |= {"Pa instead of hPa": 100 * expected, "hPa instead of Pa": expected / 100}
    elif quantity in ("humidity", "fraction"):
        readings["% instead of fractions"] = 100 * expected
        readings["fractions instead of %"] = expected / 100
    best = min(readings, key=lambda name: abs(own - readings[name]))
    return best if abs(own - readings[best]) < 0.15 * abs(own - expected) else None


def position_check(data: CheckInput) -> Iterator[Finding]:
    """Positions that look mistaken: shared, at 0° N 0° E, exchanged or with a wrong sign.

    Args:
        data: to be checked.
    """
    points = data.field.points
    yield from _shared_positions(data, points)
    if points.kind == "sphere":
        lon = points.coordinates[:, 1]
        null = np.flatnonzero((np.abs(points.coordinates) < 0.01).all(1) & _isolated(points))
        if len(null):
            what = f"{plural(len(null), 'station')} {verb(len(null), 'lie')} at 0° N, 0° E."
            yield Finding("warning", what, data.stations(null), "Correct the position.")
        if (lon < 0).any() and (lon > 180).any():
            what = "Longitudes are given both as -180..180 and as 0..360; both are understood."
            yield Finding("note", what, f"{lon.min():g} to {lon.max():g}")
        yield from _against_attributes(data)
        yield from _misplaced(data, np.setdiff1d(np.arange(len(points)), null))


def _shared_positions(data: CheckInput, points: Points) -> Iterator[Finding]:
    """Stations at the same position."""
    _, group, size = np.unique(
        np.round(points.embedded, 9), axis=0, return_inverse=True, return_counts=True
    )
    shared = np.flatnonzero(size[group.ravel()] > 1)
    if len(shared):
        order = shared[np.argsort(group.ravel()[shared], kind="stable")]
        what = f"{len(shared)} stations share a position with another one."
        yield Finding("warning", what, data.stations(order), "Correct them, or keep one of each.")


def _against_attributes(data: CheckInput) -> Iterator[Finding]:
    """A declared extent (ACDD attributes) that fits only with lat and lon exchanged."""
    attributes, coordinates = data.field.attrs, data.field.points.coordinates
    try:
        box = [
            [float(attributes[f"geospatial_{axis}_{end}"]) for end in ("min", "max")]
            for axis in ("lat", "lon")
        ]
    except (KeyError, TypeError, ValueError):
        return
    low, high = np.array(box).T[0] - 0.01, np.array(box).T[1] + 0.01
    straight, exchanged = (
        ((x >= low) & (x <= high)).all() for x in (coordinates, coordinates[:, ::-1])
    )
    if exchanged and not straight:
        what = "Latitude and longitude seem to be exchanged: the file declares an extent of "
        what += f"{box[0][0]:g} to {box[0][1]:g} N, {box[1][0]:g} to {box[1][1]:g} E."
        yield Finding("warning", what, advice="Exchange them.")


def _isolated(points: Points) -> Bool[np.ndarray, " node"]:
    """Points much farther from their nearest neighbour than is usual."""
    if len(points) < 5:
        return np.zeros(len(points), dtype=bool)
    distance, usual = _nearest_distance(points)
    return distance > ISOLATED_SPACINGS * usual


def _nearest_distance(points: Points) -> tuple[Float64[np.ndarray, " node"], float]:
    """Distance of each point to its nearest neighbour in the embedding, and the median."""
    distance = nearest_nodes(points, points, 2)[0][:, 1]
    apart = distance[distance > 0]
    return distance, float(np.median(apart)) if len(apart) else 0.0


def _misplaced(data: CheckInput, nodes: Int64[np.ndarray, " node"]) -> Iterator[Finding]:
    """Isolated stations that would lie among the others with a common typing error undone."""
    points = data.field.points.take(nodes)
    if len(points) < 5 or len(points) > MAX_STATIONS:
        return
    distance, usual = _nearest_distance(points)
    lat, lon = points.coordinates.T
    corrections = {
        "latitude and longitude exchanged": np.stack([lon, lat], axis=1),
        "longitude with the wrong sign": np.stack([lat, -lon], axis=1),
        "latitude with the wrong sign": np.stack([-lat, lon], axis=1),
    }
    for index in np.flatnonzero(distance > ISOLATED_SPACINGS * usual):
        for mistake, coordinates in corrections.items():
            if _is_among(coordinates[index], points, float(distance[index]), usual):
                name = data.station(int(nodes[index]))
                what = f"{name} lies far from all others: {mistake}?"
                where = f"{name} at {lat[index]:g}, {lon[index]:g}"
                yield Finding("warning", what, where, "Correct the position.")
                break


def _is_among(
    position: Float64[np.ndarray, " 2"], others: Points, distance: float, usual: float
) -> bool:
    """Whether a corrected position is about as near to the others as they are to one another."""
    if abs(position[0]) > 90:
        return False
    corrected = Points(position[None], "sphere")
    nearest = float(nearest_nodes(corrected, others)[0][0, 0])
    return nearest < min(3 * usual, 0.2 * distance)


def distance_label(points: Points, distance: float) -> str:
    """A distance in kilometres on the sphere, in the unit of the coordinates on a plane.

    Args:
        points: give the geometry.
        distance: in radians on the sphere.
    """
    return f"{distance * EARTH_RADIUS_KM:.4g} km" if points.kind == "sphere" else f"{distance:.4g}"
