"""Answers on observations: /v1/stations at one time, and /v1/series of some stations."""

from __future__ import annotations

from typing import Any

import numpy as np

from stonet.data.durations import SECOND
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.serving.history import position_at, positions_of
from stonet.serving.limits import Limits
from stonet.serving.numbers import as_json
from stonet.serving.refusal import Refused
from stonet.serving.times import label, labels

HOUR = 3600 * SECOND
Document = dict[str, Any]


def stations(field: Field, time: str | None) -> Document:
    """Position, values and last observation of every station at a time.

    Args:
        field: observations.
        time: as in a request; None: the latest.
    """
    place, calendar = position_at(field, time), field.calendar
    values = as_json(field.values[place])
    last = last_observations(field, place)
    return {
        "time": label(int(field.times[place]), calendar),
        "stations": [
            {
                "id": name,
                "name": name,
                "position": [first, second],
                "values": dict(zip(field.channels, row, strict=True)),
                "last_observation": None if newest < 0 else label(field.times[newest], calendar),
            }
            for (name, first, second), row, newest in zip(
                field.points, values, last.tolist(), strict=True
            )
        ],
    }


def last_observations(field: Field, place: int) -> np.ndarray:
    """The position of the last frame with a value of each station, up to a frame; -1: none.

    Args:
        field: observations.
        place: position of the last frame that counts.
    """
    found = np.full(len(field.points), -1)
    stop, length = place + 1, 64
    while stop > 0 and (found < 0).any():  # mostly a few frames back
        start = max(0, stop - length)
        observed = np.any(field.observed[start:stop], axis=-1)[::-1]
        new = (found < 0) & observed.any(0)
        found[new] = stop - 1 - observed.argmax(0)[new]
        stop, length = start, 2 * length
    return found


def series(
    field: Field, names: list[str], hours: float, issue_time: str | None, limits: Limits
) -> Document:
    """The past of some stations up to an issue time.

    Args:
        field: observations.
        names: ids of the stations.
        hours: length of the past.
        issue_time: as in a request; None: the latest.
        limits: of the service.
    """
    if not names:
        raise Refused(422, "Expected at least one station: /v1/series?stations=ID,ID&hours=48.")
    nodes = positions_of(field.points, names)
    place = position_at(field, issue_time)
    oldest = int(field.times[place]) - int(min(hours * HOUR, 2**62))
    first = int(np.searchsorted(field.times, oldest))
    count = (place + 1 - first) * len(nodes) * len(field.channels)
    limits.check_count("values (times x stations x channels)", count, limits.values)
    values = field.values[first : place + 1][:, nodes]
    return {
        "issue_time": label(int(field.times[place]), field.calendar),
        "times": labels(field.times[first : place + 1], field.calendar),
        "units": dict(field.quantity),
        "stations": [
            {
                "id": name,
                "position": field.points.coordinates[node].tolist(),
                "values": {
                    channel: as_json(values[:, i, c]) for c, channel in enumerate(field.channels)
                },
            }
            for i, (name, node) in enumerate(zip(names, nodes, strict=True))
        ],
    }


def split_names(given: list[str], points: Points) -> list[str]:
    """Ids of stations: an entry is one id, or several separated by commas.

    Args:
        given: entries of a request.
        points: the stations.
    """
    known = set(points.names)
    parts = [[entry] if entry in known else entry.split(",") for entry in given]
    return [name for part in parts for name in part if name]
