"""Field and Dataset: values at scattered points through time, in the data's units.

Every step of the way takes or gives a Field. A value that was not observed is NaN in `values` and
False in `mask`; it has no influence on any result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from stonet.data import cf, display, selection, validation
from stonet.data.dates import Time
from stonet.data.dates import time_label as time_label
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.physical_limits import is_angle, is_direction
from stonet.data.writing import WriteMethods
from stonet.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Field(WriteMethods, display.Described):
    """Observed or forecast values at points through time; checked once and immutable.

    Example:
        >>> field = stonet.read("stations.csv")
        >>> field.sel(time=slice("2019-03", "2019-05"), station="Bern").to_dataframe()

    Args:
        values: (time, node, channel), in `units`; NaN where missing.
        times: (time,) nanoseconds since 1970 UTC, or since zero if `calendar` is False; also
            datetime64. They must increase.
        points: positions and names of the nodes.
        channels: one name for each channel.
        mask: True where a value was observed (None: where it is not NaN).
        units: one for each channel; "" is unknown, "1" a number without a dimension (empty: all
            are unknown).
        calendar: whether `times` are dates, with hours of the day and days of the year.
        reference_time: of a forecast, the last time with observations (issue time).
        attrs: free metadata (title, source, licence).
        sites: numbers of each point, such as the altitude, by name.
        notes: sentences about changes made on reading (merged, dropped, assumed).
        channel_attrs: CF attributes of channels by name, such as standard_name, long_name,
            cell_methods, valid_min and valid_max.

    Raises:
        DataError: shapes, types, times or values do not fit; the message names the first defect.
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
    channel_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        channels, units = validation.checked_channels(self.channels, self.units)
        validation.check_shape(values, len(self.points), channels)
        times = validation.checked_times(np.asarray(self.times), len(values), self.calendar)
        mask = ~np.isnan(values) & validation.checked_mask(self.mask, values.shape)
        with np.errstate(over="ignore"):  # too large for float32: infinite, and refused as such
            values = np.where(mask, values.astype(np.float32), np.float32("nan"))
        validation.check_finite(values, times, self.points, channels, self.calendar)
        for array in (values, mask, times):
            array.setflags(write=False)
        count = len(self.points)
        sites = {n: validation.checked_site(n, row, count) for n, row in self.sites.items()}
        checked = dict(values=values, mask=mask, times=times, channels=channels, units=units)
        about = {name: dict(self.channel_attrs.get(name, {})) for name in channels}
        kept = {"sites": sites, "notes": tuple(self.notes), "channel_attrs": about}
        for key, value in (checked | kept).items():
            object.__setattr__(self, key, value)

    @classmethod
    def trusted(cls, **parts: Any) -> Field:
        """Make a field of checked parts without copying them: arrays may be files on disk.

        Args:
            **parts: all attributes. Values must be NaN exactly where the mask is False.
        """
        made = object.__new__(cls)
        for key, value in ({"channel_attrs": {}} | parts).items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(made, key, value)
        return made

    def _title(self) -> str:
        times, stations, channels = self.values.shape
        kind = "Field" if self.reference_time is None else "Forecast field"
        sizes = zip((times, stations, channels), ("time", "station", "channel"), strict=True)
        return f"{kind}: {' x '.join(display.counted(*size) for size in sizes)}"

    def _summary(self) -> dict[str, str]:
        return {
            "period": display.period([self]),
            "extent": display.extent(self.points),
            "channels": display.channels_with_units(self.channels, self.units),
            "missing": display.missing_share([self]),
        }

    @property
    def observed(self) -> Bool[np.ndarray, "time node channel"]:
        """True where a value was observed; never None."""
        assert self.mask is not None  # set by the constructor
        return self.mask

    def _filled(self, frames: slice = slice(None)) -> Float32[np.ndarray, "time node channel"]:
        """The values of these frames with 0 where they are missing; only these are copied."""
        return np.where(self.observed[frames], self.values[frames], np.float32(0))

    @property
    def datetimes(self) -> np.ndarray:
        """The times as datetime64[ns] in UTC; without a calendar as timedelta64[ns] since zero."""
        return self.times.astype("datetime64[ns]" if self.calendar else "timedelta64[ns]")

    @property
    def quantity(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each channel."""
        return tuple(zip(self.channels, self.units, strict=True))

    @property
    def step(self) -> int:
        """The median time between frames, in nanoseconds; 1 s for a single frame."""
        return int(np.median(np.diff(self.times))) if len(self.times) > 1 else SECOND

    def sel(
        self,
        time: selection.TimeLabels | None = None,
        station: selection.StationLabels | None = None,
        channel: str | Sequence[str] | None = None,
    ) -> Field:
        """Select by label; all axes are kept, even if one element is left.

        Args:
            time: a date as long as it is written ("2019-03" is a month), a datetime, a list of
                them, or a slice that includes both ends. Without a calendar, durations since zero.
            station: a name, a list of names in the wanted order, or a slice of names.
            channel: a name or a list of names in the wanted order.

        Raises:
            UsageError: a label names nothing.

        Example:
            >>> field.sel(time=slice("2019-03-01", "2019-03-15T12"), station=["Bern", "Basel"])
        """
        frames = None if time is None else selection.frames_at(self.times, self.calendar, time)
        nodes = None if station is None else selection.stations_named(self.points.names, station)
        chosen = self._at(frames, nodes)
        return chosen if channel is None else chosen._with_channels(channel)

    def _with_channels(self, channel: str | Sequence[str]) -> Field:
        index = selection.channels_named(self.channels, channel)
        parts = {name: vars(self)[name][..., index] for name in ("values", "mask")}
        names = {name: tuple(vars(self)[name][i] for i in index) for name in ("channels", "units")}
        return Field.trusted(**(vars(self) | parts | names))

    def isel(
        self, time: selection.Indices | None = None, station: selection.Indices | None = None
    ) -> Field:
        """Select by position; both axes are kept, even if one element is left.

        Args:
            time: numbers, a slice or a Boolean array, in the order of the times.
            station: numbers, a slice or a Boolean array.

        Example:
            >>> field.isel(time=slice(-24, None), station=[0, 3])
        """
        frames = nodes = None
        if time is not None:
            frames = selection.positions_of(time, len(self.times), "times")
        if station is not None:
            nodes = selection.positions_of(station, len(self.points), "stations")
        return self._at(frames, nodes)

    def _at(
        self,
        frames: Int64[np.ndarray, " frame"] | None,
        nodes: Int64[np.ndarray, " chosen"] | None,
    ) -> Field:
        """The field at these positions; consecutive frames are not copied."""
        chosen = self
        if frames is not None:
            steps = np.diff(frames)
            if (steps <= 0).any():
                raise UsageError("Selected times must be in increasing order, each once.")
            consecutive = (steps == 1).all()
            index = slice(int(frames[0]), int(frames[-1]) + 1) if consecutive else frames
            parts = {n: vars(self)[n][index] for n in ("values", "mask", "times")}
            chosen = Field.trusted(**(vars(self) | parts))
        return chosen if nodes is None else chosen.take(nodes)

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Field:
        """All times at the points at these positions, in this order.

        Args:
            index: positions of points; repetitions are allowed.
        """
        chosen = dict(
            values=self.values[:, index],
            mask=self.observed[:, index],
            points=self.points.take(index),
            sites={name: row[index] for name, row in self.sites.items()},
        )
        return Field.trusted(**(vars(self) | chosen))

    def between(self, start: int, stop: int) -> Field:
        """The frames at positions start <= i < stop; nothing is copied.

        Args:
            start: first frame.
            stop: the frame after the last one.
        """
        if not 0 <= start < stop <= len(self.times):
            raise DataError(
                f"Frames {start}..{stop} were requested of a field with {len(self.times)} frames."
            )
        return self._at(np.arange(start, stop), None)

    def is_part_of(self, episode: Field) -> bool:
        """Whether this field was cut out of that one: their times share memory.

        Args:
            episode: a field, such as one with more frames.
        """
        return bool(np.may_share_memory(episode.times, self.times))

    def joined(self, other: Field) -> Field:
        """The same times at the points of this field, followed by those of another one.

        Args:
            other: a field with the same times, channels and units.
        """
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

    def angles(self) -> tuple[str, ...]:
        """The channels that are directions in degrees, by their names, units and values."""
        found = []
        for c, (name, unit) in enumerate(self.quantity):
            standard_name = str(self.channel_attrs.get(name, {}).get("standard_name", ""))
            if is_direction(name, standard_name):
                values = self.values[..., c][self.observed[..., c]]
                low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
                found += [name] * is_angle(name, unit, standard_name, low, high)
        return tuple(found)

    def to_dataframe(self) -> pd.DataFrame:
        """A long table: one row for each time and station, one column for each channel.

        Columns: time (datetime64 in UTC; without a calendar timedelta64), station, lat and lon (or
        x and y), the channels, and what is known of each station, such as the altitude.
        """
        import pandas as pd

        stations, frames = len(self.points), len(self.times)
        columns: dict[str, np.ndarray] = {
            "time": np.repeat(self.datetimes, stations),
            "station": np.tile(np.array(self.points.names, dtype=object), frames),
        }
        for axis, row in zip(self.points.geometry.axes, self.points.coordinates.T, strict=True):
            columns[axis] = np.tile(row, frames)
        for number, name in enumerate(self.channels):
            free = name if name not in columns else f"{name}_value"
            columns[free] = self.values[:, :, number].ravel()
        for name, row in self.sites.items():
            free = name if name not in columns else f"{name}_of_station"
            columns[free] = np.tile(row, frames)
        return pd.DataFrame(columns)

    def to_xarray(self) -> xr.Dataset:
        """A CF discrete-sampling-geometry data set: dims (time, station), NaN where missing."""
        return cf.to_xarray(self)

    def plot(
        self,
        ax: Axes | None = None,
        channel: str | None = None,
        time: Time | None = None,
        stations: Sequence[str] | str | None = None,
    ) -> Axes:
        """Draw a map of one time, or the series of some stations.

        A field on a grid is drawn as cells, stations as dots; on the sphere with coastlines and
        borders. Nothing is shown or kept: `field.plot().figure.savefig("map.png")`.

        Args:
            ax: matplotlib axes to draw on (None: those of a new figure).
            channel: name (None: the first).
            time: of the map: a date, or a lead of a forecast such as "+6h" (None: the last).
            stations: at most six names, whose series are drawn (None: a map).

        Returns:
            The axes.

        Raises:
            UsageError: there is no such channel, time or station.

        Example:
            >>> field.plot(time="2019-03-01T12").figure.savefig("map.png")
            >>> field.plot(stations=["Bern", "Basel"])
        """
        from stonet.plotting.fields import plot_field

        return plot_field(self, ax, channel, time, stations)

    def _write(self, path: str | Path) -> None:
        from stonet.io.write import write  # upwards, as `plot`: pandas and xarray have both, too

        write(self, path)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(display.Described):
    """One or more Fields (episodes) on the same points, and the points held out from training.

    A window never crosses the end of an episode.

    Args:
        episodes: fields with the same points, channels and units.
        name: for titles and messages.
        unseen: positions of the points held out for the inductive evaluation.
        past: frames in, if the data set prescribes them.
        horizon: frames out, if the data set prescribes them.
        stride: frames between the starts of two windows, if the data set prescribes them.

    Raises:
        DataError: there is no episode, or the episodes differ in points, channels or units.
    """

    episodes: tuple[Field, ...]
    name: str = "data"
    unseen: tuple[int, ...] = ()
    past: int | None = None
    horizon: int | None = None
    stride: int | None = None

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
                    f"Of episodes 0 and {number} of '{self.name}' one has dates and the other has "
                    "seconds since zero. All episodes of a data set have the same."
                )
        object.__setattr__(self, "unseen", tuple(int(i) for i in self.unseen))
        if self.unseen and not set(self.unseen) < set(range(len(first.points))):
            raise DataError(f"Unseen points must be some, not all, of 0..{len(first.points) - 1}.")

    def _title(self) -> str:
        frames = sum(len(episode.times) for episode in self.episodes)
        return (
            f"Dataset '{display.shortened(self.name, display.MAX_NAME)}': "
            f"{display.counted(len(self.episodes), 'episode')}, "
            f"{display.counted(frames, 'time')} x {display.counted(len(self.points), 'station')}"
        )

    def _summary(self) -> dict[str, str]:
        first = self.episodes[0]
        return {
            "period": display.period(self.episodes),
            "extent": display.extent(self.points),
            "channels": display.channels_with_units(first.channels, first.units),
            "missing": display.missing_share(self.episodes),
            "held out": f"{len(self.unseen)} of {len(self.points)} stations",
        }

    @property
    def points(self) -> Points:
        """The points of all episodes."""
        return self.episodes[0].points

    @property
    def seen(self) -> Int64[np.ndarray, " seen"]:
        """Positions of the points that training may use."""
        return np.setdiff1d(np.arange(len(self.points)), np.asarray(self.unseen, dtype=np.int64))

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Dataset:
        """The same episodes at some of the points, none of them held out.

        Args:
            index: positions of points.
        """
        return replace(self, episodes=tuple(e.take(index) for e in self.episodes), unseen=())
