"""Suspicions: units that the values contradict, stations unlike their neighbours, odd places."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64, Int64

from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.graph.neighbours import nearest_nodes
from stonet.quality.checks import Exam, Finding, plural, verb

KINDS = {  # what a channel measures, by its name
    "temperature": r"temp|dew_?point|^t2m|^d2m|^2[td]$|^tas|^ta$|^tmax|^tmin|^tavg|^tdp|^sst|^skt",
    "pressure": r"pressure|^pres|^mslp?$|^slp|^sp$|^psl|^prmsl",
    "humidity": r"humid|^rh|^relhum|^hurs",
    "fraction": r"cloud|^tcc$|^clt$|capacity_?factor|^cf_",
    "precipitation": r"precip|rain|^tp$|^pr$|snow",
    "wind speed": r"wind_?speed|^ws|^ff$|^sfcwind|^si10|gust",
    "radiation": r"radiation|irradiance|^ssrd|^ghi|^dni|^dhi|^rsds|shortwave|^swdown",
}
SPELLINGS = {
    "K": ("k", "kelvin"),
    "degC": ("degc", "c", "°c", "deg c", "celsius", "degrees_celsius", "degree_celsius", "deg_c"),
    "degF": ("degf", "f", "°f", "deg f", "fahrenheit", "degrees_fahrenheit", "deg_f"),
    "Pa": ("pa", "pascal"),
    "hPa": ("hpa", "mbar", "mb", "millibar"),
    "%": ("%", "percent"),
    "": ("", "1", "unknown", "-"),
}
NEVER_NEGATIVE = {"precipitation": 0.001, "wind speed": 0.001, "radiation": 0.02, "humidity": 0.001}
NEIGHBOURS = 8  # with which a station is compared
UNLIKE = 8.0  # robust deviations from the neighbours
MANY = 5_000  # points from which on they are a grid rather than stations
FAR = 5.0  # times the usual distance to the next station


def kind_of(channel: str, unit: str) -> str:
    """What a channel measures, as far as its name or its unit tells; else ''."""
    name = channel.lower()
    if "specific" in name:
        return ""
    for kind, pattern in KINDS.items():
        if re.search(pattern, name):
            return kind
    by_unit = {"K": "temperature", "degC": "temperature", "degF": "temperature"}
    return by_unit.get(spelled(unit), "")


def spelled(unit: str) -> str:
    """The unit in one spelling."""
    low = unit.strip().lower()
    return next((ours for ours, others in SPELLINGS.items() if low in others), unit)


def units(exam: Exam) -> Iterator[Finding]:
    """Declared units against the values; values that cannot be."""
    for c, (channel, unit) in enumerate(exam.field.quantity):
        if np.isfinite(exam.sample.median[c]):
            kind = kind_of(channel, unit)
            yield from _wrong_unit(exam, c, channel, kind, spelled(unit))
            yield from _impossible(exam, c, channel, kind, spelled(unit))


def _wrong_unit(exam: Exam, c: int, channel: str, kind: str, unit: str) -> Iterator[Finding]:
    low, middle, high = (
        float(q[c]) for q in (exam.sample.low, exam.sample.median, exam.sample.high)
    )
    seems = unit
    if kind == "temperature":
        seems = "K" if 150 < middle < 400 else "degF" if middle > 45 else unit
        if unit in ("K", "") and middle <= 150:
            seems = "degF" if middle > 45 or high > 65 else "degC"
        if unit not in ("K", "degC", "degF", "") or (unit == "degF" and seems != "K"):
            seems = unit
    elif kind == "pressure" and unit in ("Pa", "hPa", ""):
        seems = "Pa" if middle > 20_000 else "hPa" if 300 < middle < 1_200 else unit
    elif kind in ("humidity", "fraction") and unit in ("%", ""):
        percent = high > 1.5
        seems = "%" if percent else "" if high > 0 and unit == "%" else unit
    if seems == unit:
        return
    word = seems or "fractions of 1"
    if not unit:
        yield Finding("note", f"{channel} has no unit; the values look like {word}.", channel)
        return
    yield Finding(
        "warning",
        f"{channel} is said to be in {unit}, but the values look like {word}: "
        f"{low:.4g} to {high:.4g}, {middle:.4g} in the middle.",
        channel,
        "Correct the unit, or convert the values.",
    )


def _impossible(exam: Exam, c: int, channel: str, kind: str, unit: str) -> Iterator[Finding]:
    statistics, high = exam.statistics, float(exam.sample.high[c])
    known = statistics.count[:, c] > 0
    size = max(abs(high), abs(float(exam.sample.low[c])))
    low_limit = -NEVER_NEGATIVE[kind] * size if kind in NEVER_NEGATIVE else -np.inf
    marked = [value for (channel_, value) in statistics.marks if channel_ == c]
    below = np.flatnonzero(
        known & (statistics.low[:, c] < low_limit) & ~np.isin(statistics.low[:, c], marked)
    )
    if len(below):
        worst = below[np.argsort(statistics.low[below, c], kind="stable")]
        yield Finding(
            "warning",
            f"{channel} is negative at {plural(len(below), 'station')}; {kind} never is.",
            exam.names(worst, lambda n: _extreme(exam, n, c, low=True)),
            "Set these values to missing, or correct their offset.",
        )
    if kind != "humidity" or not (unit == "%" or high > 1.5):
        return
    above = np.flatnonzero(
        known & (statistics.high[:, c] > 105) & ~np.isin(statistics.high[:, c], marked)
    )
    if len(above):
        worst = above[np.argsort(-statistics.high[above, c], kind="stable")]
        yield Finding(
            "warning",
            f"{channel} is above 100 % at {plural(len(above), 'station')}.",
            exam.names(worst, lambda n: _extreme(exam, n, c, low=False)),
            "Set these values to 100 % or to missing.",
        )


def _extreme(exam: Exam, node: int, c: int, low: bool) -> str:
    statistics = exam.statistics
    value, at = (
        (statistics.low, statistics.low_at) if low else (statistics.high, statistics.high_at)
    )
    return f"{exam.value(float(value[node, c]), c)} at {exam.when(int(at[node, c]))}"


def buddy_check(exam: Exam) -> Iterator[Finding]:
    """Stations whose usual value is another unit's, or far from what their neighbours report."""
    points = exam.field.points
    if len(points) <= NEIGHBOURS:
        return
    _, near = nearest_nodes(points, points, NEIGHBOURS + 1)
    for c in range(len(exam.field.channels)):
        own = exam.sample.point_median[:, c]
        known = np.isfinite(own)
        if known.sum() <= NEIGHBOURS:
            continue
        around = np.where(known, own, np.median(own[known]))[near[:, 1:]]
        theirs = np.median(around, axis=1)
        away = np.where(known, own - theirs, 0.0)
        usual = 1.4826 * np.median(np.abs(away - np.median(away)))
        odd = np.flatnonzero(np.abs(away) > max(UNLIKE * usual, 2 * float(exam.sample.spread[c])))
        yield from _unlike(exam, c, odd[np.argsort(-np.abs(away[odd]))], own, theirs)


def _unlike(
    exam: Exam, c: int, odd: np.ndarray, own: np.ndarray, theirs: np.ndarray
) -> Iterator[Finding]:
    channel, kind = exam.field.channels[c], kind_of(*exam.field.quantity[c])

    def tell(n: int) -> str:
        return f"usually {exam.value(own[n], c)}, its neighbours {exam.value(theirs[n], c)}"

    unexplained = []
    for node in odd.tolist():
        slip = _slip(float(own[node]), float(theirs[node]), kind)
        if slip is None:
            unexplained.append(node)
            continue
        text = f"{exam.name(node)} seems to report {channel} in another unit ({slip})."
        yield Finding("warning", text, f"{exam.name(node)} {tell(node)}", "Convert its values.")
    if unexplained:
        count = len(unexplained)
        yield Finding(
            "note",
            f"{plural(count, 'station')} {verb(count, 'report')} {channel} far from "
            f"{'its' if count == 1 else 'their'} neighbours.",
            exam.names(unexplained, tell),
            "Mountains, or a wrong position or sensor?",
        )


def _slip(own: float, theirs: float, kind: str) -> str | None:
    """The confusion of units that turns the neighbours' value into the station's; if any does."""
    reading = {"K instead of degC": theirs + 273.15, "degC instead of K": theirs - 273.15}
    if kind == "temperature":
        reading["degF instead of degC"] = 1.8 * theirs + 32
        reading["degC instead of degF"] = (theirs - 32) / 1.8
    elif kind == "pressure":
        reading |= {"Pa instead of hPa": 100 * theirs, "hPa instead of Pa": theirs / 100}
    elif kind in ("humidity", "fraction"):
        reading |= {"% instead of fractions": 100 * theirs, "fractions instead of %": theirs / 100}
    best = min(reading, key=lambda name: abs(own - reading[name]))
    return best if abs(own - reading[best]) < 0.15 * abs(own - theirs) else None


def places(exam: Exam) -> Iterator[Finding]:
    """Positions that look mistaken: swapped, without a sign, at 0/0, shared."""
    points = exam.field.points
    yield from _shared(exam, points)
    if points.kind == "sphere":
        lon = points.coordinates[:, 1]
        null = np.flatnonzero((np.abs(points.coordinates) < 0.01).all(1) & _lonely(points))
        if len(null):
            text = f"{plural(len(null), 'station')} {verb(len(null), 'lie')} at 0° N, 0° E."
            yield Finding("warning", text, exam.names(null), "No position? Correct it.")
        if (lon < 0).any() and (lon > 180).any():
            yield Finding(
                "note",
                "Longitudes are written both as -180..180 and as 0..360; they are understood.",
                f"{lon.min():g} to {lon.max():g}",
            )
        yield from _against_notes(exam)
        yield from _misplaced(exam, np.setdiff1d(np.arange(len(points)), null))


def _shared(exam: Exam, points: Points) -> Iterator[Finding]:
    _, group, size = np.unique(
        np.round(points.embedded, 9), axis=0, return_inverse=True, return_counts=True
    )
    twins = np.flatnonzero(size[group.ravel()] > 1)
    if len(twins):
        order = twins[np.argsort(group.ravel()[twins], kind="stable")]
        text = f"{len(twins)} stations share a position with another one."
        yield Finding("warning", text, exam.names(order), "Correct them, or keep one of each.")


def _against_notes(exam: Exam) -> Iterator[Finding]:
    """The file's own statement of its extent (ACDD) fits only with lat and lon exchanged."""
    notes = exam.field.attrs
    try:
        box = [
            [float(notes[f"geospatial_{axis}_{end}"]) for end in ("min", "max")]
            for axis in ("lat", "lon")
        ]
    except (KeyError, TypeError, ValueError):
        return
    low, high = np.array(box).T[0] - 0.01, np.array(box).T[1] + 0.01
    straight, swapped = (
        ((x >= low) & (x <= high)).all()
        for x in (exam.field.points.coordinates, exam.field.points.coordinates[:, ::-1])
    )
    if swapped and not straight:
        yield Finding(
            "warning",
            "Latitude and longitude seem to be exchanged: the file itself says that it covers "
            f"{box[0][0]:g} to {box[0][1]:g} N, {box[1][0]:g} to {box[1][1]:g} E.",
            advice="Exchange them.",
        )


def _lonely(points: Points) -> Bool[np.ndarray, " node"]:
    """Which points lie much farther from the next one than is usual."""
    if len(points) < 5:
        return np.zeros(len(points), dtype=bool)
    apart, usual = spacing(points)
    return apart > FAR * usual


def spacing(points: Points) -> tuple[Float64[np.ndarray, " node"], float]:
    """From each point to the next one elsewhere, straight through the embedding; and usually."""
    apart = nearest_nodes(points, points, 2)[0][:, 1]
    return apart, float(np.median(apart[apart > 0])) if (apart > 0).any() else 0.0


def _misplaced(exam: Exam, nodes: Int64[np.ndarray, " node"]) -> Iterator[Finding]:
    """Stations far from all others, which would lie among them with a slip of the pen undone."""
    points = exam.field.points.take(nodes)
    if len(points) < 5 or len(points) > MANY:  # nobody writes so many positions by hand
        return
    apart, usual = spacing(points)
    far = np.flatnonzero(apart > FAR * usual)
    lat, lon = points.coordinates.T
    slips = {
        "latitude and longitude exchanged": np.stack([lon, lat], axis=1),
        "longitude with the wrong sign": np.stack([lat, -lon], axis=1),
        "latitude with the wrong sign": np.stack([-lat, lon], axis=1),
    }
    for node in far:
        for slip, coordinates in slips.items():
            if _joins(coordinates[node], points, float(apart[node]), usual):
                where = f"{exam.name(int(nodes[node]))} at {lat[node]:g}, {lon[node]:g}"
                text = f"{exam.name(int(nodes[node]))} lies far from all others: {slip}?"
                yield Finding("warning", text, where, "Correct the position.")
                break


def _joins(place: Float64[np.ndarray, " 2"], others: Points, apart: float, usual: float) -> bool:
    """Whether a place is as near to the others as they are to one another."""
    if abs(place[0]) > 90:
        return False
    moved = Points(place[None], "sphere")
    return float(nearest_nodes(moved, others)[0][0, 0]) < min(3 * usual, 0.2 * apart)


def kilometres(points: Points, distance: float) -> str:
    """A distance as people read it."""
    return f"{distance * EARTH_RADIUS_KM:.4g} km" if points.kind == "sphere" else f"{distance:.4g}"
