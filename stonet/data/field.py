"""Field: values at scattered points through time. The one currency; it enters and it leaves.

Everything outside the model is in the data's own units. A value that was not observed is missing:
NaN in files, False in `mask`, and without any influence wherever the field goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from stonet.data import cf
from stonet.data.geometry import Points
from stonet.errors import DataError

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Field:
    """Observed or forecast values, checked once, at birth, and immutable ever after.

    Args:
        values: (time, node, channel), in `units`.
        times: (time,) nanoseconds: since 1970 UTC, or since zero where `calendar` is False.
        points: where the nodes are.
        channels: one name for each channel.
        mask: True where a value was observed; by default where it is not NaN.
        units: one for each channel.
        calendar: whether `times` are dates, so that hour of day and day of year mean something.
        reference_time: for forecasts, the last time whose data was known.
        attrs: free notes carried along (title, source, licence).
        sites: numbers of each point, such as its altitude, by name.
        notes: what reading did to the data (merged, dropped, assumed), for people to read.
    """

    values: Float32[np.ndarray, "time node channel"]
    times: Int64[np.ndarray, " time"]
    points: Points
    channels: tuple[str, ...] = ("u",)
    mask: Bool[np.ndarray, "time node channel"] | None = None
    units: tuple[str, ...] = ()
    calendar: bool = True
    reference_time: int | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    sites: Mapping[str, Float64[np.ndarray, " node"]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        channels, units = _checked_channels(self.channels, self.units)
        _check_shape(values, len(self.points), channels)
        times = _checked_times(np.asarray(self.times), len(values), self.calendar)
        mask = ~np.isnan(values) & _checked_mask(self.mask, values.shape)
        with np.errstate(over="ignore"):  # too large for float32: infinite, and refused as such
            values = np.where(mask, values.astype(np.float32), np.float32("nan"))
        _check_finite(values, times, self.points, channels, self.calendar)
        for array in (values, mask, times):
            array.setflags(write=False)
        sites = {name: _checked_site(name, row, self.points) for name, row in self.sites.items()}
        checked = dict(values=values, mask=mask, times=times, channels=channels, units=units)
        for key, value in (checked | {"sites": sites, "notes": tuple(self.notes)}).items():
            object.__setattr__(self, key, value)

    @classmethod
    def trusted(cls, **parts: Any) -> Field:
        """Make a field of checked parts without copying them: arrays may be files on disk.

        Values must be NaN exactly where the mask is False.
        """
        made = object.__new__(cls)
        for key, value in parts.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(made, key, value)
        return made

    @property
    def observed(self) -> Bool[np.ndarray, "time node channel"]:
        """The mask, never None: True where a value was observed."""
        assert self.mask is not None  # set at birth
        return self.mask

    def _filled(self, frames: slice = slice(None)) -> Float32[np.ndarray, "time node channel"]:
        """The values of these frames with 0 where they are missing; no more is held in memory."""
        return np.where(self.observed[frames], self.values[frames], np.float32(0))

    @property
    def quantity(self) -> tuple[tuple[str, str], ...]:
        """What is measured: each channel's name and unit."""
        return tuple(zip(self.channels, self.units, strict=True))

    @property
    def step(self) -> int:
        """The usual time between frames, in nanoseconds (the median; 1 s for a single frame)."""
        return int(np.median(np.diff(self.times))) if len(self.times) > 1 else cf.NANOSECONDS

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Field:
        """The same times at some of the points."""
        chosen = dict(
            values=self.values[:, index],
            mask=self.observed[:, index],
            points=self.points.take(index),
            sites={name: row[index] for name, row in self.sites.items()},
        )
        return Field.trusted(**(vars(self) | chosen))

    def between(self, start: int, stop: int) -> Field:
        """The frames at positions start <= i < stop."""
        if not 0 <= start < stop <= len(self.times):
            raise DataError(f"Frames {start}..{stop} asked of a field with {len(self.times)}.")
        names = ("values", "mask", "times")
        return Field.trusted(**(vars(self) | {n: vars(self)[n][start:stop] for n in names}))

    def joined(self, other: Field) -> Field:
        """The same times at these points and the other field's points."""
        if not np.array_equal(self.times, other.times) or self.quantity != other.quantity:
            raise DataError(
                "Only fields with the same times, channels and units can be joined; got "
                f"{len(self.times)} and {len(other.times)} frames of {self.quantity} and "
                f"{other.quantity}."
            )
        return replace(
            self,
            values=np.concatenate([self.values, other.values], axis=1),
            mask=np.concatenate([self.observed, other.observed], axis=1),
            points=self.points.joined(other.points),
            sites={
                name: np.concatenate([row, other.sites[name]])
                for name, row in self.sites.items()
                if name in other.sites
            },
        )

    def to_xarray(self) -> xr.Dataset:
        """A CF discrete-sampling-geometry data set: dims (time, station), NaN where missing."""
        return cf.to_xarray(self)

    def to_netcdf(self, path: str) -> None:
        """Write the CF form; the file appears whole or not at all."""
        cf.to_netcdf(self, path)


@dataclass(frozen=True, eq=False)
class Dataset:
    """One or more Fields on the same points (*episodes*), and which points training never sees.

    Windows never cross an episode's end. Lengths are the data set's own protocol, if it has one.
    """

    episodes: tuple[Field, ...]
    name: str = "data"
    unseen: tuple[int, ...] = ()  # positions of the points held out for the inductive evaluation
    past: int | None = None  # frames in
    horizon: int | None = None  # frames out
    stride: int | None = None  # frames between the starts of two windows

    def __post_init__(self) -> None:
        if not self.episodes:
            raise DataError(f"Data set '{self.name}' has no episode; expected at least one Field.")
        first = self.episodes[0]
        for number, other in enumerate(self.episodes[1:], start=1):
            if other.points != first.points or other.quantity != first.quantity:
                raise DataError(
                    f"Episode {number} of '{self.name}' has other points, channels or units than "
                    "episode 0. All episodes of a data set share them."
                )
            if other.calendar != first.calendar:
                raise DataError(
                    f"Episode {number} of '{self.name}' has {_clock_name(other)} and episode 0 "
                    f"{_clock_name(first)}. All episodes of a data set have the same."
                )
        object.__setattr__(self, "unseen", tuple(int(i) for i in self.unseen))
        if self.unseen and not set(self.unseen) < set(range(len(first.points))):
            raise DataError(f"Unseen points must be some, not all, of 0..{len(first.points) - 1}.")

    @property
    def points(self) -> Points:
        return self.episodes[0].points

    @property
    def seen(self) -> Int64[np.ndarray, " seen"]:
        """Positions of the points that training may use."""
        return np.setdiff1d(np.arange(len(self.points)), np.asarray(self.unseen, dtype=np.int64))

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Dataset:
        """The same episodes at some of the points, none of them held out."""
        return replace(self, episodes=tuple(e.take(index) for e in self.episodes), unseen=())


def _checked_channels(
    channels: Sequence[str], units: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units as tuples; a lone string is one name."""
    channels = (channels,) if isinstance(channels, str) else tuple(channels)
    units = (units,) if isinstance(units, str) and units else tuple(units)
    units = units or ("1",) * len(channels)
    if not channels or len(set(channels)) < len(channels):
        raise DataError(f"Channels {channels}: expected at least one, each with its own name.")
    if len(units) != len(channels):
        raise DataError(f"{len(units)} units for {len(channels)} channels. Give one each.")
    return channels, units


def _check_shape(values: np.ndarray, points: int, channels: tuple[str, ...]) -> None:
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


def _checked_mask(mask: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    if mask is None:
        return np.ones(shape, dtype=bool)
    mask = np.asarray(mask)
    if mask.shape != shape or mask.dtype != bool:
        raise DataError(
            f"The mask has shape {mask.shape} and type {mask.dtype}; expected {shape} like the "
            "values, True where a value was observed."
        )
    return mask


def _checked_site(name: str, row: np.ndarray, points: Points) -> np.ndarray:
    row = np.array(row, dtype=np.float64)
    if row.shape != (len(points),):
        raise DataError(
            f"'{name}' has shape {row.shape}; expected a number for each of the "
            f"{len(points)} points."
        )
    row.setflags(write=False)
    return row


def _checked_times(times: np.ndarray, frames: int, calendar: bool) -> Int64[np.ndarray, " time"]:
    if np.issubdtype(times.dtype, np.datetime64):
        times = cf.nanoseconds(times)
    if times.shape != (frames,) or not np.issubdtype(times.dtype, np.integer):
        raise DataError(
            f"Times have shape {times.shape} and type {times.dtype}; expected {frames} integers "
            "(nanoseconds) or datetime64, one for each frame."
        )
    if frames == 0:
        raise DataError("The field has no frame: there is nothing to learn or to forecast from.")
    times = times.astype(np.int64)
    late = np.flatnonzero(np.diff(times) <= 0)
    if len(late):
        first = int(late[0])
        raise DataError(
            f"Times must increase strictly; {time_label(int(times[first + 1]), calendar)} follows "
            f"{time_label(int(times[first]), calendar)} (frame {first + 1}; {len(late)} such "
            "places). Sort the frames and merge the duplicates."
        )
    return times


def _check_finite(
    values: Float32[np.ndarray, "time node channel"],
    times: Int64[np.ndarray, " time"],
    points: Points,
    channels: tuple[str, ...],
    calendar: bool,
) -> None:
    infinite = np.isinf(values)
    if infinite.any():
        frame, node, channel = (int(i[0]) for i in np.nonzero(infinite))
        raise DataError(
            f"{int(infinite.sum())} values are infinite (first: '{channels[channel]}' at point "
            f"'{points.names[node]}', {time_label(int(times[frame]), calendar)}). "
            "Set them to NaN if they are missing."
        )


def _clock_name(field: Field) -> str:
    return "dates" if field.calendar else "seconds from zero"


def time_label(nanoseconds: int, calendar: bool) -> str:
    """A time as people write it: a date, or seconds from zero."""
    if calendar:
        return str(np.datetime64(nanoseconds, "ns").astype("datetime64[s]")) + "Z"
    return f"{nanoseconds / cf.NANOSECONDS:g} s"
