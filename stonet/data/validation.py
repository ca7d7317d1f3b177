"""Checks of the parts of a Field; a refusal names the first defect and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64

from stonet.data.dates import nanoseconds, time_label
from stonet.data.geometry import Points
from stonet.errors import DataError

MAX_SPAN = 2**63 - 1  # nanoseconds


def checked_channels(
    channels: Sequence[str], units: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units as tuples; a lone string is one name.

    Args:
        channels: names.
        units: one for each channel; empty: all are unknown.
    """
    channels = (channels,) if isinstance(channels, str) else tuple(channels)
    units = (units,) if isinstance(units, str) and units else tuple(units)
    units = units or ("",) * len(channels)
    if not channels or len(set(channels)) < len(channels):
        raise DataError(f"Channels {channels}: expected at least one, each with its own name.")
    if len(units) != len(channels):
        raise DataError(f"{len(units)} units for {len(channels)} channels. Give one each.")
    return channels, units


def check_shape(values: np.ndarray, points: int, channels: tuple[str, ...]) -> None:
    """Refuse values that are not real numbers by (time, node, channel).

    Args:
        values: as the user gave them.
        points: number of points.
        channels: names.
    """
    if values.dtype.kind not in "fiub":
        raise DataError(f"Values have type {values.dtype}; expected real numbers.")
    if values.ndim != 3:
        raise DataError(f"Values have shape {values.shape}; expected (time, node, channel).")
    if values.shape[1:] != (points, len(channels)):
        raise DataError(
            f"Values have shape {values.shape}, meaning {values.shape[1]} points and "
            f"{values.shape[2]} channels; there are {points} points and channels {channels}. "
            "Check the order of the axes: (time, node, channel)."
        )


def checked_mask(mask: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """The mask; all True if none is given.

    Args:
        mask: as the user gave it; None: every value was observed.
        shape: of the values.
    """
    if mask is None:
        return np.ones(shape, dtype=bool)
    mask = np.asarray(mask)
    if mask.shape != shape or mask.dtype != bool:
        raise DataError(
            f"The mask has shape {mask.shape} and type {mask.dtype}; expected {shape} like the "
            "values, True where a value was observed."
        )
    return mask


def checked_site(name: str, row: np.ndarray, points: int) -> np.ndarray:
    """A number for each point, as an immutable copy.

    Args:
        name: of the property, such as "altitude".
        row: its numbers.
        points: number of points.
    """
    row = np.array(row, dtype=np.float64)
    if row.shape != (points,):
        raise DataError(
            f"'{name}' has shape {row.shape}; expected a number for each of the {points} points."
        )
    row.setflags(write=False)
    return row


def checked_times(times: np.ndarray, frames: int, calendar: bool) -> Int64[np.ndarray, " time"]:
    """Times as nanoseconds that increase strictly.

    Args:
        times: integers in nanoseconds, or datetime64.
        frames: number of frames.
        calendar: whether the times are dates; for messages.
    """
    if np.issubdtype(times.dtype, np.datetime64):
        times = nanoseconds(times)
    if times.shape != (frames,) or not np.issubdtype(times.dtype, np.integer):
        raise DataError(
            f"Times have shape {times.shape} and type {times.dtype}; expected {frames} integers "
            "(nanoseconds) or datetime64, one for each frame."
        )
    if frames == 0:
        raise DataError("The field has no frame; expected at least one.")
    times = times.astype(np.int64)
    check_span(times, calendar)
    late = np.flatnonzero(np.diff(times) <= 0)
    if len(late):
        first = int(late[0])
        raise DataError(
            f"Times must increase strictly; {time_label(int(times[first + 1]), calendar)} follows "
            f"{time_label(int(times[first]), calendar)} (frame {first + 1}; {len(late)} such "
            "places). Sort the frames and merge the duplicates."
        )
    return times


def check_span(times: Int64[np.ndarray, " time"], calendar: bool) -> None:
    """Refuse times whose differences exceed 64-bit nanoseconds.

    Args:
        times: nanoseconds.
        calendar: whether the times are dates; for messages.
    """
    first, last = int(times.min()), int(times.max())
    if last - first > MAX_SPAN:
        raise DataError(
            f"Times span {time_label(first, calendar)} to {time_label(last, calendar)}, and at "
            "most 292 years can be counted in 64-bit nanoseconds. Select a part (--from, --to)."
        )


def check_finite(
    values: Float32[np.ndarray, "time node channel"],
    times: Int64[np.ndarray, " time"],
    points: Points,
    channels: tuple[str, ...],
    calendar: bool,
) -> None:
    """Refuse infinite values; NaN is a missing value.

    Args:
        values: of the field.
        times: of the frames.
        points: of the nodes.
        channels: their names.
        calendar: whether times are dates.
    """
    infinite = np.isinf(values)
    if infinite.any():
        frame, node, channel = (int(i[0]) for i in np.nonzero(infinite))
        raise DataError(
            f"{int(infinite.sum())} values are infinite (first: '{channels[channel]}' at point "
            f"'{points.names[node]}', {time_label(int(times[frame]), calendar)}). "
            "Set them to NaN if they are missing."
        )
