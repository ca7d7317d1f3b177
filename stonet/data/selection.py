"""Positions of the frames and points that a selection names, after xarray's `sel` and `isel`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int64

from stonet.data.dates import Time, Times, as_list, time_bounds, time_label
from stonet.errors import UsageError, unknown_name

Positions = Int64[np.ndarray, " chosen"]
TimeLabels = Times | slice
StationLabels = str | Iterable[str] | slice
Indices = int | slice | Sequence[int] | np.ndarray


def frames_at(
    times: Int64[np.ndarray, " time"], calendar: bool, labels: TimeLabels
) -> Int64[np.ndarray, " chosen"]:
    """Positions of the frames that labels name; both ends of a slice are included.

    Args:
        times: of the field, in nanoseconds.
        calendar: whether they are dates.
        labels: dates, durations since zero, a list of them, or a slice.
    """
    if isinstance(labels, slice):
        low = times[0] if labels.start is None else time_bounds(labels.start, calendar)[0]
        high = times[-1] if labels.stop is None else time_bounds(labels.stop, calendar)[1]
        chosen = np.flatnonzero((times >= low) & (times <= high))[:: labels.step]
        return _some(chosen, f"between {labels.start} and {labels.stop}", times, calendar)
    found = [_frames_of(times, calendar, label) for label in as_list(labels)]
    if not found:
        raise UsageError("No time was given; expected at least one.")
    return np.unique(np.concatenate(found))


def _frames_of(times: Int64[np.ndarray, " time"], calendar: bool, label: Time) -> Positions:
    first, last = time_bounds(label, calendar)
    chosen = np.flatnonzero((times >= first) & (times <= last))
    return _some(chosen, f"at {label}", times, calendar)


def _some(
    chosen: Positions, selection: str, times: Int64[np.ndarray, " time"], calendar: bool
) -> Positions:
    """The positions, refused if there are none."""
    if len(chosen):
        return chosen
    first, last = (time_label(int(time), calendar) for time in times[[0, -1]])
    raise UsageError(f"No frame {selection}; the field's times are {first} to {last}.")


def stations_named(names: tuple[str, ...], labels: StationLabels) -> Positions:
    """Positions of the points with these names, in the order in which they are given.

    Args:
        names: of all stations.
        labels: a name, several, or a slice of names.
    """
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)

    def find(label: object) -> list[int]:
        if str(label) in positions:
            return positions[str(label)]
        close = difflib.get_close_matches(str(label), positions, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"No station '{label}' among the {len(names)} of the field.{hint}")

    if isinstance(labels, slice):
        first = 0 if labels.start is None else find(labels.start)[0]
        last = len(names) - 1 if labels.stop is None else find(labels.stop)[-1]
        return positions_of(slice(first, last + 1, labels.step), len(names), "stations")
    given = [labels] if isinstance(labels, str) or not isinstance(labels, Iterable) else labels
    chosen = [position for label in given for position in find(label)]
    return positions_of(chosen, len(names), "stations")


def channels_named(names: tuple[str, ...], labels: str | Sequence[str]) -> list[int]:
    """Positions of the channels with these names, in the order in which they are given.

    Args:
        names: of all channels.
        labels: one name or several.
    """
    given = [labels] if isinstance(labels, str) else list(labels)
    for label in given:
        if label not in names:
            raise unknown_name("channel", label, names)
    if not given or len(set(given)) < len(given):
        raise UsageError(f"Channels {given}; expected at least one, each once.")
    return [names.index(label) for label in given]


def positions_of(indices: Indices, length: int, what: str) -> Positions:
    """Positions from indices as numpy takes them: numbers, slices, lists, Boolean arrays.

    Args:
        indices: as numpy takes them.
        length: of the axis.
        what: its name in errors.
    """
    if isinstance(indices, (list, tuple)) and not len(indices):
        indices = slice(0, 0)
    try:
        chosen = np.atleast_1d(np.arange(length)[indices])
    except IndexError as error:
        raise UsageError(f"Cannot select {what} of 0..{length - 1}: {error}.") from None
    if not len(chosen) or chosen.ndim > 1:
        raise UsageError(f"The selection leaves no {what}; there are 0..{length - 1}.")
    return chosen
