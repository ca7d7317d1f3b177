"""LazySource: the content of one file, described before its values are read block by block."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from stonet.config import ReadConfig
from stonet.data.dates import time_bounds
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError

TOLERANCE_DEGREES = 2e-5  # around a box: a longitude in float32 is off by up to 1.6e-5
TOLERANCE = 1e-6  # around a box on a plane, as a share of its size

Index = Int64[np.ndarray, " chosen"]


class NoValues(DataError):
    """A file without the requested values, such as a table of stations.

    It is skipped if other files have values.

    Args:
        message: of the error.
        available: channels that the file has, if others were requested.
        named_by_file: whether the name of its only channel is that of the file.
    """

    def __init__(
        self, message: str, available: Sequence[str] = (), named_by_file: bool = False
    ) -> None:
        super().__init__(message)
        self.available = tuple(available)
        self.named_by_file = named_by_file


@dataclass(frozen=True)
class LazySource:
    """Values of one file or object at points through time, not yet read.

    Times may be in any order and repeated; `merge.merge_sources` sorts, joins and checks them.

    Args:
        origin: the file, for messages.
        times: (time,) nanoseconds, as in Field.
        points: positions of the nodes.
        channels: one name for each channel.
        units: one for each channel.
        frames: frames(start, stop) reads (time, node, channel) as float32, NaN where missing, for
            the indices start <= i < stop of `times`.
        calendar: whether `times` are dates.
        named: whether the names of the points come from the file; otherwise they are numbers.
        grid: whether the points are those of a grid, which may hold a pole many times.
        reference_time: of forecasts, the last time whose data were available.
        sites: numbers of each point, such as its altitude.
        attrs: attributes that are kept with the values.
        notes: what reading did or assumed, one sentence each.
        cells: values that are read for one frame, including unwanted ones; 0: node x channel.
        channel_attrs: CF attributes of channels by name.
        renamed: original names of columns that have been renamed.
    """

    origin: str
    times: Int64[np.ndarray, " time"]
    points: Points
    channels: tuple[str, ...]
    units: tuple[str, ...]
    frames: Callable[[int, int], np.ndarray]
    calendar: bool = True
    named: bool = True
    grid: bool = False
    reference_time: int | None = None
    sites: Mapping[str, Float64[np.ndarray, " node"]] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cells: int = 0
    channel_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    renamed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.cells:
            object.__setattr__(self, "cells", len(self.points) * len(self.channels))

    def with_notes(self, *notes: str) -> LazySource:
        """The same source with further notes.

        Args:
            *notes: sentences about changes.
        """
        return replace(self, notes=(*self.notes, *notes))

    def select(self, config: ReadConfig) -> LazySource | None:
        """The requested variables, region and times; None if the source has none of them.

        Args:
            config: its variables, bbox, start and stop.
        """
        source = self.select_channels(config.variables) if config.variables else self
        if source is None:
            return None
        if config.bbox is not None:
            inside = inside_box(self.points, config.bbox)
            if not inside.any():
                return None
            source = source.take(np.flatnonzero(inside))
        return source.select_period(config.start, config.stop)

    def take(self, index: Index) -> LazySource:
        """Some of the points, in the order of `index`; frames are still read completely.

        Args:
            index: positions of points.
        """
        if np.array_equal(index, np.arange(len(self.points))):
            return self
        frames = self.frames
        return replace(
            self,
            points=self.points.take(index),
            frames=lambda start, stop: frames(start, stop)[:, index],
            sites={name: row[index] for name, row in self.sites.items()},
        )

    def select_channels(self, names: Sequence[str]) -> LazySource | None:
        """The channels of these names, in this order; None if there are none.

        Args:
            names: names that the source lacks are passed over.
        """
        chosen = [self.channels.index(name) for name in names if name in self.channels]
        if not chosen:
            return None
        frames = self.frames
        return replace(
            self,
            channels=tuple(self.channels[i] for i in chosen),
            units=tuple(self.units[i] for i in chosen),
            frames=lambda start, stop: frames(start, stop)[:, :, chosen],
        )

    def select_period(self, start: str | None, stop: str | None) -> LazySource | None:
        """The frames from `start` to `stop`, both included; None if there are none.

        Args:
            start: a date, or a duration without a calendar; None: from the first frame.
            stop: likewise; None: to the last frame.
        """
        if start is None and stop is None:
            return self
        first = None if start is None else time_bounds(start, self.calendar)[0]
        last = None if stop is None else time_bounds(stop, self.calendar)[1]
        wanted = np.ones(len(self.times), dtype=bool)
        wanted &= True if first is None else self.times >= first
        wanted &= True if last is None else self.times <= last
        if not wanted.any():
            return None
        index, frames = np.flatnonzero(wanted), self.frames
        low, high = int(index[0]), int(index[-1]) + 1
        if high - low == len(index):  # the usual case: consecutive frames
            return replace(
                self, times=self.times[low:high], frames=lambda a, b: frames(low + a, low + b)
            )
        return replace(
            self,
            times=self.times[index],
            cells=self.cells * -(-(high - low) // len(index)),  # with the frames in between
            frames=lambda a, b: frames(int(index[a]), int(index[b - 1]) + 1)[index[a:b] - index[a]],
        )


def from_field(field: Field) -> LazySource:
    """A Field as a source, to select from it.

    Args:
        field: its values are read when they are needed.
    """
    return LazySource(
        origin=str(field.attrs.get("title", "the field")),
        times=field.times,
        points=field.points,
        channels=field.channels,
        units=field.units,
        frames=lambda a, b: field.values[a:b],
        calendar=field.calendar,
        reference_time=field.reference_time,
        sites=field.sites,
        attrs=field.attrs,
        notes=field.notes,
        channel_attrs=field.channel_attrs,
    )


def with_names_and_units(sources: Sequence[LazySource], config: ReadConfig) -> list[LazySource]:
    """The sources with renamed channels and declared units.

    Args:
        sources: of all files.
        config: its `rename` and `units`.

    Raises:
        UsageError: no source has such a channel, or two would have one name.
    """
    known = {name for source in sources for name in (*source.channels, *source.renamed)}
    for old, new in config.rename.items():
        if old not in known and new not in known:
            raise UsageError(
                f"No variable '{old}' to rename; there are: {', '.join(sorted(known))}."
            )
    renamed = [_renamed(source, config) for source in sources]
    known = {name for source in renamed for name in source.channels}
    for name in config.units:
        if name not in known:
            raise UsageError(
                f"No variable '{name}' to give a unit; there are: {', '.join(sorted(known))}."
            )
    return renamed


def _renamed(source: LazySource, config: ReadConfig) -> LazySource:
    channels = tuple(config.rename.get(name, name) for name in source.channels)
    if len(set(channels)) < len(channels):
        raise UsageError(f"Two variables of '{source.origin}' would have one name: {channels}.")
    units = tuple(
        config.units.get(name, unit) for name, unit in zip(channels, source.units, strict=True)
    )
    about = {config.rename.get(name, name): attrs for name, attrs in source.channel_attrs.items()}
    return replace(source, channels=channels, units=units, channel_attrs=about)


def inside_box(points: Points, box: tuple[float, float, float, float]) -> np.ndarray:
    """Which points lie in a box; its edges belong to it, up to rounding.

    Args:
        points: on a sphere or a plane.
        box: (west, south, east, north), possibly across the date line; or (x, y, x, y).
    """
    west, south, east, north = box
    plane = points.kind == "plane"
    x, y = points.coordinates.T if plane else points.coordinates.T[::-1]
    if south > north or (plane and west > east):
        raise UsageError(f"The box {box} is empty; write west,south,east,north (or x,y,x,y).")
    size = max(east - west, north - south)
    tolerance = TOLERANCE * (size if np.isfinite(size) else 0.0) if plane else TOLERANCE_DEGREES
    inside = (y >= south - tolerance) & (y <= north + tolerance)
    if plane:
        return inside & (x >= west - tolerance) & (x <= east + tolerance)
    width = 360.0 if east - west >= 360 else (east - west) % 360.0
    return inside & ((x - west + tolerance) % 360.0 <= width + 2 * tolerance)


def expand_levels(config: ReadConfig, sources: Sequence[LazySource]) -> ReadConfig:
    """The requested variables, with `r` replaced by all its levels `r_500`, `r_850`.

    Args:
        config: its `variables` are the requested ones.
        sources: of all files.
    """
    available = list(dict.fromkeys(name for source in sources for name in source.channels))
    names: list[str] = []
    for name in config.variables:
        level = re.compile(re.escape(name) + r"(_-?\d[\d.]*(e[+-]?\d+)?)+")
        levels = [other for other in available if level.fullmatch(other)]
        names += [name] if name in available else levels or [name]
    return config.model_copy(update={"variables": tuple(dict.fromkeys(names))})


def empty_selection(sources: Sequence[LazySource], config: ReadConfig) -> UsageError:
    """The error for a selection without values: what was requested, and what is available.

    Args:
        sources: of all files.
        config: the selection.
    """
    available = sorted({name for source in sources for name in source.channels})
    unknown = [name for name in config.variables if name not in available]
    if unknown:
        return UsageError(
            f"No variable '{unknown[0]}' in the data; there are: {', '.join(available)}."
        )
    coordinates = np.concatenate([source.points.coordinates for source in sources])
    low, high = coordinates.min(0), coordinates.max(0)
    times = np.concatenate([source.times for source in sources])
    period = times.min(), times.max()
    if sources[0].calendar:
        period = tuple(np.datetime64(int(t), "ns").astype("datetime64[s]") for t in period)
    axes = sources[0].points.geometry.axes
    return UsageError(
        "The selection (read.bbox, read.start, read.stop) is empty: the data have "
        f"{axes[0]} {low[0]:g} to {high[0]:g}, {axes[1]} {low[1]:g} to {high[1]:g}, "
        f"times {period[0]} to {period[1]}. A box is west,south,east,north."
    )
