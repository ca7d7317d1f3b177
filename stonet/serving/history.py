"""History: the observations that a service holds. It is replaced as a whole, never changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64

from stonet.data.durations import DAY
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.serving.limits import Limits
from stonet.serving.messages import Observations
from stonet.serving.refusal import Refused
from stonet.serving.times import label, parse

LONGEST_GAP = 366 * DAY  # between the last time and a new one, in nanoseconds


def bounded(field: Field, limits: Limits) -> Field:
    """The newest frames of a field.

    Args:
        field: observations.
        limits: of the service.
    """
    count = len(field.times)
    return field.between(max(0, count - limits.frames), count)


def position_at(field: Field, time: str | None) -> int:
    """The position of the last frame that is not after a time.

    Args:
        field: observations.
        time: as in a request; None: the last frame.

    Raises:
        Refused: with status 422, if the time is outside of the observations.
    """
    if time is None:
        return len(field.times) - 1
    wanted = parse(time, field.calendar)
    first, last = int(field.times[0]), int(field.times[-1])
    if not first <= wanted <= last:
        raise Refused(
            422,
            f"{label(wanted, field.calendar)} is outside of the observations, which are from "
            f"{label(first, field.calendar)} to {label(last, field.calendar)}. Choose a time "
            "between.",
        )
    return int(np.searchsorted(field.times, wanted, side="right")) - 1


def with_observations(field: Field, new: Observations, limits: Limits) -> Field:
    """The field with new values: at new times, or in place of those at known times.

    A value that is null leaves what is known.

    Args:
        field: observations.
        new: of some of its stations.
        limits: of the service.

    Raises:
        Refused: if times, stations, channels or shapes do not fit.
        DataError: if values are too large.
    """
    limits.check_count("times of observations", len(new.times), limits.times)
    times, nodes = _times(field, new), _nodes(field, new)
    values = _values(field, new, nodes)
    every = np.union1d(field.times, times)
    result = np.full((len(every), *field.values.shape[1:]), np.nan, np.float32)
    result[np.searchsorted(every, field.times)] = field.values
    rows = np.searchsorted(every, times)
    result[rows] = np.where(np.isnan(values), result[rows], values)
    return bounded(replace(field, values=result, times=every, mask=None), limits)


def continued(field: Field, other: Field, times: frozenset[int]) -> Field:
    """The field with later frames of another one, at the stations that both have.

    Args:
        field: observations.
        other: of the same channels.
        times: of the frames that may be taken.
    """
    later = [t for t in other.times.tolist() if t > field.times[-1] and t in times]
    known = {name: number for number, name in enumerate(other.points.names)}
    pairs = [(i, known[name]) for i, name in enumerate(field.points.names) if name in known]
    if not later or not pairs:
        return field
    values = np.full((len(later), *field.values.shape[1:]), np.nan, np.float32)
    own, others = np.array(pairs).T
    rows = np.searchsorted(other.times, later)
    values[:, own] = other.values[rows][:, others]
    return replace(
        field,
        values=np.concatenate([field.values, values]),
        times=np.concatenate([field.times, np.array(later, dtype=np.int64)]),
        mask=None,
    )


def _times(field: Field, new: Observations) -> Int64[np.ndarray, " time"]:
    """The times of new observations; they increase, and are within a year after the last frame."""
    times = np.array([parse(time, field.calendar) for time in new.times], dtype=np.int64)
    if (np.diff(times) <= 0).any():
        raise Refused(422, "The times of observations must increase, each once. Sort them.")
    first, last = int(field.times[0]), int(field.times[-1])
    if times[0] < first or times[-1] > last + LONGEST_GAP:
        wrong = int(times[0] if times[0] < first else times[-1])
        raise Refused(
            422,
            f"Observations at {label(wrong, field.calendar)} do not continue the data, which are "
            f"from {label(first, field.calendar)} to {label(last, field.calendar)}. Send times "
            "from there to a year later.",
        )
    return times


def _nodes(field: Field, new: Observations) -> Int64[np.ndarray, " station"]:
    """Positions of the stations."""
    found = positions_of(field.points, new.stations)
    if len(np.unique(found)) < len(found):
        raise Refused(422, "A station is given twice in 'stations'. Give each once.")
    return found


def positions_of(points: Points, stations: list[str]) -> Int64[np.ndarray, " station"]:
    """Positions of stations by their ids.

    Args:
        points: the stations.
        stations: ids.

    Raises:
        Refused: with status 422, if one is not known.
    """
    known = {name: number for number, name in enumerate(points.names)}
    for name in stations:
        if name not in known:
            raise Refused(
                422, f"There is no station '{name[:80]}'; GET /v1/stations lists all {len(known)}."
            )
    return np.array([known[name] for name in stations], dtype=np.int64)


def _values(
    field: Field, new: Observations, nodes: Int64[np.ndarray, " station"]
) -> Float32[np.ndarray, "time node channel"]:
    """The new values at all stations; NaN where none was given."""
    shape = (len(new.times), len(nodes))
    result = np.full((shape[0], *field.values.shape[1:]), np.nan, np.float32)
    for name, rows in new.values.items():
        if name not in field.channels:
            raise Refused(
                422,
                f"There is no channel '{name[:80]}'; expected {', '.join(field.channels)}, in the "
                "units that GET /v1/model gives.",
            )
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            raise Refused(
                422,
                f"The values of '{name}' do not fit; expected {shape[0]} rows (times) of {shape[1]}"
                " values (stations), null where missing.",
            )
        numbers = np.array(rows, dtype=np.float64).reshape(shape)
        if (np.abs(numbers) > np.finfo(np.float32).max).any():
            raise Refused(422, f"A value of '{name}' is too large for a 32-bit number.")
        result[:, nodes, field.channels.index(name)] = numbers
    return result
