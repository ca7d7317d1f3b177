"""LazySource: what a file holds, known before its values are read, and read block by block."""

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

SLACK_DEGREES = 2e-5  # around a box; a longitude in float32 is off by up to 1.6e-5
SLACK = 1e-6  # around one on a plane, of its size

Index = Int64[np.ndarray, " chosen"]


class NoValues(DataError):
    """A file with nothing to forecast, such as a table of places: skipped beside other files."""

    def __init__(self, message: str, have: Sequence[str] = (), titled: bool = False) -> None:
        super().__init__(message)
        self.have = tuple(have)  # what it holds, where something else was asked for
        self.titled = titled  # whether only the file's name says that it is something else


@dataclass(frozen=True)
class LazySource:
    """One file's (or one object's) values at points through time, still where they are.

    Times may be in any order and occur twice; `assembly.assemble` sorts, joins and checks them.

    Args:
        origin: the file, for messages.
        times: (time,) nanoseconds, as in Field.
        points: where the nodes are.
        channels: one name for each channel.
        units: one for each channel.
        frames: frames(start, stop) gives (time, node, channel) as float32, NaN where missing, of
            the frames at positions start <= i < stop, in the order of `times`.
        calendar: whether `times` are dates.
        named: whether the points' names come from the file (else they are only numbered).
        grid: whether the points are a grid's, where a pole is given many times.
        reference_time: for forecasts, the last time whose data was known.
        sites: numbers of each point, such as its altitude.
        attrs: free notes carried along.
        notes: what reading did or assumed, one sentence each.
        cells: values that must be read for one frame, wanted or not; 0: just those that it has.
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

    def __post_init__(self) -> None:
        if not self.cells:
            object.__setattr__(self, "cells", len(self.points) * len(self.channels))

    def take(self, index: Index) -> LazySource:
        """The same at some of the points; a frame is still read whole, and costs what it did."""
        if np.array_equal(index, np.arange(len(self.points))):
            return self
        frames = self.frames
        return replace(
            self,
            points=self.points.take(index),
            frames=lambda start, stop: frames(start, stop)[:, index],
            sites={name: row[index] for name, row in self.sites.items()},
        )

    def narrowed(self, config: ReadConfig) -> LazySource | None:
        """Only the wanted variables, region and times; None where nothing of them is here."""
        content = self.of_channels(config.variables) if config.variables else self
        if content is None:
            return None
        if config.bbox is not None:
            inside = inside_box(self.points, config.bbox)
            if not inside.any():
                return None
            content = content.take(np.flatnonzero(inside))
        return content.during(config.start, config.stop)

    def of_channels(self, names: Sequence[str]) -> LazySource | None:
        """Only the channels of these names, in this order; None where there are none.

        A frame is still read whole, and costs what it did.
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

    def during(self, start: str | None, stop: str | None) -> LazySource | None:
        """Only the frames from `start` to `stop`, both included; None where there are none."""
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
        if high - low == len(index):  # the usual case: a stretch of the file
            return replace(
                self, times=self.times[low:high], frames=lambda a, b: frames(low + a, low + b)
            )
        return replace(
            self,
            times=self.times[index],
            cells=self.cells * -(-(high - low) // len(index)),  # with the frames in between
            frames=lambda a, b: frames(int(index[a]), int(index[b - 1]) + 1)[index[a:b] - index[a]],
        )


def of_field(field: Field) -> LazySource:
    """A field that is there already, to select from it."""
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
    )


def inside_box(points: Points, box: tuple[float, float, float, float]) -> np.ndarray:
    """Which points lie in (west, south, east, north), over the date line too; or in x, y, x, y.

    The edges belong to the box, and so do coordinates that rounding moved off them.
    """
    west, south, east, north = box
    across, along = points.coordinates.T if points.kind == "plane" else points.coordinates.T[::-1]
    if south > north or (points.kind == "plane" and west > east):
        raise UsageError(f"The box {box} is empty; write west,south,east,north (or x,y,x,y).")
    plane, size = points.kind == "plane", max(east - west, north - south)
    slack = SLACK * (size if np.isfinite(size) else 0.0) if plane else SLACK_DEGREES
    inside = (along >= south - slack) & (along <= north + slack)
    if plane:
        return inside & (across >= west - slack) & (across <= east + slack)
    width = 360.0 if east - west >= 360 else (east - west) % 360.0
    return inside & ((across - west + slack) % 360.0 <= width + 2 * slack)


def with_levels(config: ReadConfig, contents: Sequence[LazySource]) -> ReadConfig:
    """The variables that were asked for, where `r` stands for all its levels `r_500`, `r_850`."""
    have = list(dict.fromkeys(name for content in contents for name in content.channels))
    names: list[str] = []
    for name in config.variables:
        level = re.compile(re.escape(name) + r"(_-?\d[\d.]*(e[+-]?\d+)?)+")
        names += [name] if name in have else [n for n in have if level.fullmatch(n)] or [name]
    return config.model_copy(update={"variables": tuple(dict.fromkeys(names))})


def nothing_left(contents: Sequence[LazySource], config: ReadConfig) -> DataError | UsageError:
    """The error for a selection that selects nothing: what was asked, and what there is."""
    have = sorted({name for content in contents for name in content.channels})
    unknown = [name for name in config.variables if name not in have]
    if unknown:
        return UsageError(f"No variable '{unknown[0]}' in the data; there are: {', '.join(have)}.")
    corner = np.concatenate([content.points.coordinates for content in contents])
    low, high = corner.min(0), corner.max(0)
    times = np.concatenate([content.times for content in contents])
    span = times.min(), times.max()
    if contents[0].calendar:
        span = tuple(np.datetime64(int(t), "ns").astype("datetime64[s]") for t in span)
    axes = contents[0].points.geometry.axes
    return UsageError(
        "The selection (read.bbox, read.start, read.stop) leaves nothing: the data have "
        f"{axes[0]} {low[0]:g} to {high[0]:g}, {axes[1]} {low[1]:g} to {high[1]:g}, "
        f"times {span[0]} to {span[1]}. A box is west,south,east,north."
    )
