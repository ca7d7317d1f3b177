"""xarray data sets as lazy sources: grids, stations, forecasts. Only coordinates are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Kind, Points
from stonet.errors import DataError
from stonet.io.arrays import sampling_geometries
from stonet.io.arrays.time_axis import TimeAxis, check_calendars, read_time_axis
from stonet.io.arrays.variables import (
    Channel,
    decode_values,
    find_axes,
    find_channels,
    find_variable,
    global_attributes,
    load,
    load_numbers,
    name_text,
    site_attributes,
    station_names,
    unique_names,
)
from stonet.io.lazy_source import LazySource, inside_box
from stonet.io.safety import check_memory, readable

if TYPE_CHECKING:
    import xarray as xr

BYTES_PER_POINT = 200  # in memory: coordinates, unit vector, name


class LazyDataset:
    """A data set that is opened when it is needed and kept open from one block to the next.

    Opening costs more than reading a block, so a file stays open until its last frame is read.

    Args:
        origin: the file, for messages.
        opener: opens the file.
        owned: whether it is closed here.
    """

    def __init__(self, origin: str, opener: Callable[[], xr.Dataset], owned: bool = True) -> None:
        self.origin, self.opener, self.owned = origin, opener, owned
        self._dataset: xr.Dataset | None = None

    @property
    def dataset(self) -> xr.Dataset:
        """The open data set."""
        if self._dataset is None:
            self._dataset = self.opener()
        return self._dataset

    @contextmanager
    def reading(self, last: bool) -> Iterator[xr.Dataset]:
        """The open data set for one block; closed after the `last` one and after any error.

        Args:
            last: whether no further block will be read.
        """
        try:
            with readable(self.origin, "a data set"):
                yield self.dataset
        except BaseException:
            self.close()
            raise
        if last:
            self.close()

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._dataset is not None and self.owned:
            self._dataset.close()
        self._dataset = None


def from_object(
    source: xr.Dataset | xr.DataArray, origin: str, config: ReadConfig
) -> list[LazySource]:
    """The content of an xarray object.

    Args:
        source: an xarray object; it is left open.
        origin: its name, for messages.
        config: what is selected, and how it is read.
    """
    with readable(origin, "a data set"):
        dataset = _decoded(source)
        return [_open(dataset, LazyDataset(origin, lambda: dataset, owned=False), config)]


def open_file(
    opener: Callable[[], xr.Dataset], origin: str, config: ReadConfig
) -> list[LazySource]:
    """The content of the file that `opener` opens.

    Args:
        opener: opens the file, each time that it is called.
        origin: the file, for messages.
        config: what is selected, and how it is read.
    """
    lazy = LazyDataset(origin, lambda: _decoded(opener()))
    try:
        return [_open(lazy.dataset, lazy, config)]
    finally:
        lazy.close()


def _decoded(source: xr.Dataset | xr.DataArray) -> xr.Dataset:
    """A data set with CF's fill values, scales and dates decoded, if they were not."""
    import xarray as xr

    if isinstance(source, xr.DataArray):
        source = source.to_dataset(name=source.name or "u")
    check_calendars(source)
    return xr.decode_cf(source, decode_timedelta=False)


def _open(dataset: xr.Dataset, lazy: LazyDataset, config: ReadConfig) -> LazySource:
    """A data set over (time, points or grid), or CF's discrete sampling geometries."""
    observations = sampling_geometries.find_observations(dataset, lazy.origin, config)
    if observations is not None:
        return sampling_geometries.from_observations(observations, lazy, config)
    origin = lazy.origin
    kind, first, second = find_axes(dataset, config.geometry)
    time_axis = read_time_axis(dataset, origin)
    space = tuple(map(str, dict.fromkeys(dataset[first].dims + dataset[second].dims)))
    if set(time_axis.dims) & set(space):
        raise DataError(
            f"'{first}' has dims {dataset[first].dims} and '{second}' {dataset[second].dims}; "
            f"expected fixed points, along dims other than {time_axis.dims}."
        )
    channels, notes = find_channels(dataset, (*time_axis.dims, *space), origin, config)
    axes = [load_numbers(dataset, name, origin) for name in (first, second)]
    cuts = _cuts(dataset, (first, second), axes, kind, config)
    grid = len(space) > 1
    coordinates = _coordinates(dataset, (first, second), axes, space, cuts, origin)
    valid = np.isfinite(coordinates).all(1) | (not grid)
    if valid.any():  # cells of a curvilinear grid outside its map are dropped at the end
        coordinates = np.where(valid[:, None], coordinates, coordinates[valid.argmax()])
    names = () if grid else unique_names(_names(dataset, space, origin), notes)
    layout = FrameLayout(time_axis, space, cuts, tuple(channels), len(coordinates))
    source = LazySource(
        origin=origin,
        times=time_axis.times,
        points=Points(coordinates, kind, names),
        channels=tuple(channel.name for channel in channels),
        units=tuple(channel.unit for channel in channels),
        channel_attrs={channel.name: channel.attrs for channel in channels},
        frames=lambda start, stop: _read_frames(layout, lazy, start, stop),
        calendar=time_axis.calendar,
        named=bool(names),
        grid=grid,
        reference_time=time_axis.reference_time,
        sites=site_attributes(dataset, space, origin, cuts),
        attrs=global_attributes(dataset),
        notes=tuple(notes),
        cells=_cells(layout, dataset),
    )
    return source.take(np.flatnonzero(valid)) if not valid.all() else source


def _names(dataset: xr.Dataset, space: tuple[str, ...], origin: str) -> tuple[str, ...]:
    if space:
        return station_names(dataset, space[0], origin)
    single = find_variable(dataset, "station")
    if single is None or dataset[single].ndim:
        return ()
    return (name_text(load(dataset, single, origin).item()),)


def _cuts(
    dataset: xr.Dataset,
    names: tuple[str, str],
    axes: list[np.ndarray],
    kind: Kind,
    config: ReadConfig,
) -> dict[str, Int64[np.ndarray, " kept"]]:
    """Indices along the axes of a regular grid that lie in the bbox; {} for all of them."""
    first, second = (dataset[name].dims for name in names)
    if config.bbox is None or len(first) != 1 or len(second) != 1 or first == second:
        return {}
    west, south, east, north = config.bbox
    middle = ((west + east) / 2, (south + north) / 2)
    if kind == "sphere":
        lon = (west + (east - west) % 360.0 / 2) % 360.0
        middle = float(np.clip(middle[1], -90, 90)), lon
    # each axis alone, at the middle of the box along the other one
    pairs = (
        (first, (axes[0], np.full(len(axes[0]), middle[1]))),
        (second, (np.full(len(axes[1]), middle[0]), axes[1])),
    )
    cuts = {}
    for dims, pair in pairs:
        valid = np.isfinite(pair[0] + pair[1])
        points = Points(np.where(valid[:, None], np.stack(pair, 1), 0.0), kind)
        kept = np.flatnonzero(inside_box(points, config.bbox) & valid)
        if not len(kept):
            return {}
        cuts[str(dims[0])] = kept
    return cuts


def _coordinates(
    dataset: xr.Dataset,
    names: tuple[str, str],
    axes: list[np.ndarray],
    space: tuple[str, ...],
    cuts: dict[str, np.ndarray],
    origin: str,
) -> np.ndarray:
    """Coordinates (node, 2), the nodes in the order of the dims."""
    sizes = [len(cuts.get(dim, range(dataset.sizes[dim]))) for dim in space]
    count = int(np.prod(sizes, dtype=object))
    shape_label = " x ".join(map(str, sizes))
    check_memory(count * BYTES_PER_POINT, f"a grid of {shape_label} points", origin)
    if not count:
        raise DataError(f"There are no points: {dict(zip(space, sizes, strict=True))}.")
    columns = []
    for name, axis in zip(names, axes, strict=True):
        dims = dataset[name].dims
        axis = axis[np.ix_(*(cuts.get(str(d), np.arange(dataset.sizes[d])) for d in dims))]
        axis = axis.transpose([dims.index(d) for d in space if d in dims])
        shape = [size if dim in dims else 1 for dim, size in zip(space, sizes, strict=True)]
        columns.append(np.broadcast_to(axis.reshape(shape), sizes).ravel())
    return np.stack(columns, axis=1)


# Reading frames


@dataclass(frozen=True)
class FrameLayout:
    """How the frames lie in the file.

    Args:
        time_axis: the times, and the dims that they are along.
        space: the dims of the points.
        cuts: positions that are kept along a dim, by dim.
        channels: what each channel is read from.
        nodes: number of points in a frame.
    """

    time_axis: TimeAxis
    space: tuple[str, ...]
    cuts: dict[str, np.ndarray]
    channels: tuple[Channel, ...]
    nodes: int


def _cells(layout: FrameLayout, dataset: xr.Dataset) -> int:
    """Number of values that `_read_frames` reads for one frame, including unwanted ones."""
    per_level = 0
    for region in _regions(layout):
        sides = (range(dataset.sizes[dim])[region.get(dim, slice(None))] for dim in layout.space)
        per_level += int(np.prod([len(side) for side in sides], dtype=object))
    return per_level * sum(
        int(np.prod([high[dim] - low[dim] for dim in low], dtype=object))
        for _, low, high in _variables(layout)
    )


def _variables(layout: FrameLayout) -> Iterator[tuple[list[int], dict[str, int], dict[str, int]]]:
    """For each variable its channels, and the first and last level that is read (exclusive)."""
    for variable in dict.fromkeys(channel.variable for channel in layout.channels):
        columns = [i for i, c in enumerate(layout.channels) if c.variable == variable]
        levels = [layout.channels[i].levels for i in columns]
        low = {dim: min(level[dim] for level in levels) for dim in levels[0]}
        yield columns, low, {dim: max(level[dim] for level in levels) + 1 for dim in levels[0]}


def _read_frames(layout: FrameLayout, lazy: LazyDataset, start: int, stop: int) -> np.ndarray:
    """(time, node, channel) as float32, NaN where missing; only these frames are read."""
    frames = np.empty((stop - start, layout.nodes, len(layout.channels)), np.float32)
    with lazy.reading(last=stop == len(layout.time_axis.times)) as dataset:
        for columns, low, high in _variables(layout):
            variable = dataset[layout.channels[columns[0]].variable]
            part = variable.isel({dim: slice(low[dim], high[dim]) for dim in low})
            array = _read_variable(part, layout, tuple(low), start, stop)
            for column in columns:
                levels = layout.channels[column].levels
                level: tuple[Any, ...] = tuple(levels[dim] - low[dim] for dim in low)
                frames[:, :, column] = array[(..., *level)].reshape(frames.shape[:2])
    return frames


def _read_variable(
    array: xr.DataArray, layout: FrameLayout, levels: tuple[str, ...], start: int, stop: int
) -> np.ndarray:
    """The wanted frames, region and levels of a variable, as (time, *space, *levels)."""
    time_dims = layout.time_axis.dims
    if len(time_dims) == 2:  # complete issue times, of which the first and last may be cut below
        leads = array.sizes[time_dims[1]]
        low = start // leads
        array = array.isel({time_dims[0]: slice(low, -(-stop // leads))})
    elif time_dims:
        array = array.isel({time_dims[0]: slice(start, stop)})
    parts = [
        decode_values(array.isel(region).transpose(*time_dims, *layout.space, *levels))
        for region in _regions(layout)
    ]
    values = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=len(time_dims) + 1)
    if len(time_dims) == 2:
        values = values.reshape(-1, *values.shape[2:])[start - low * leads :][: stop - start]
    elif not time_dims:
        values = values[None]
    for number, dim in enumerate(layout.space):  # drop what lies between the wanted indices
        kept = layout.cuts.get(dim)
        if kept is not None and len(kept) != values.shape[number + 1]:
            values = values.take(kept - kept[0], axis=number + 1)
    return values


def _regions(layout: FrameLayout) -> list[dict[str, slice]]:
    """The region to read; two if the box lies at both ends of the last dim (0 and 360 degrees)."""
    region = {dim: slice(int(kept[0]), int(kept[-1]) + 1) for dim, kept in layout.cuts.items()}
    kept = layout.cuts.get(layout.space[-1]) if layout.space else None
    if kept is None:
        return [region]
    gaps = np.flatnonzero(np.diff(kept) > 1)
    if len(gaps) != 1:
        return [region]
    gap = int(gaps[0])
    low = slice(int(kept[0]), int(kept[gap]) + 1)
    high = slice(int(kept[gap + 1]), int(kept[-1]) + 1)
    return [region | {layout.space[-1]: part} for part in (low, high)]
