"""CF's discrete sampling geometries: observations in rows (ragged, incomplete, point) to frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Kind, Points
from stonet.errors import DataError
from stonet.io.arrays.time_axis import MISSING_TIME, read_times
from stonet.io.arrays.variables import (
    Channel,
    decode_values,
    find_axes,
    find_channels,
    find_variable,
    global_attributes,
    load_numbers,
    site_attributes,
    station_names,
    unique_names,
)
from stonet.io.lazy_source import LazySource
from stonet.io.safety import check_memory

if TYPE_CHECKING:
    import xarray as xr

    from stonet.io.arrays.dataset import LazyDataset

MAX_SHIFT = 1e-4  # degrees or units of the plane between two positions of one station


@dataclass(frozen=True)
class Observations:
    """Rows, each of one station at one time.

    Args:
        dims: of the rows; (station, obs) in the incomplete form.
        times: nanoseconds, or MISSING_TIME.
        stations: negative: no station.
        calendar: whether `times` are dates.
        points: positions of the stations.
        named: whether the names of the stations come from the file.
        instances: the dim of the stations, if they have one.
        notes: sentences about changes.
    """

    dims: tuple[str, ...]
    times: Int64[np.ndarray, " row"]
    stations: Int64[np.ndarray, " row"]
    calendar: bool
    points: Points
    named: bool
    instances: tuple[str, ...]
    notes: list[str]


def find_observations(dataset: xr.Dataset, origin: str, config: ReadConfig) -> Observations | None:
    """The rows, if the data set is a discrete sampling geometry; otherwise None.

    Args:
        dataset: with decoded times.
        origin: the file, for messages.
        config: may state the geometry.
    """
    time = find_variable(dataset, "time")
    if time is None:
        return None
    kind, first, second = find_axes(dataset, config.geometry)
    dims = tuple(map(str, dataset.variables[time].dims))
    space = tuple(map(str, dataset.variables[first].dims))
    if dataset.variables[second].dims != dataset.variables[first].dims or len(space) != 1:
        return None
    if len(dims) == 2 and space[0] in dims:
        numbers = np.arange(dataset.sizes[space[0]])
        shape = [dataset.sizes[dim] for dim in dims]
        numbers = numbers[:, None] if dims[0] == space[0] else numbers[None]
        stations = np.broadcast_to(numbers, shape).ravel()
    elif len(dims) == 1 and dims == space:
        return _point_observations(dataset, time, (kind, first, second), origin)
    elif len(dims) == 1:
        ragged = _ragged_stations(dataset, dims[0], space[0], origin)
        if ragged is None:
            return None
        stations = ragged
    else:
        return None
    times, calendar = read_times(dataset, time, origin, gaps=True)
    coordinates = np.stack([load_numbers(dataset, name, origin) for name in (first, second)], 1)
    notes: list[str] = []
    names = unique_names(station_names(dataset, space[0], origin), notes)
    points = Points(coordinates, kind, names)
    return Observations(
        dims, times.ravel(), stations.astype(np.int64), calendar, points, bool(names), space, notes
    )


def _ragged_stations(dataset: xr.Dataset, row: str, station: str, origin: str) -> np.ndarray | None:
    """The station of each row, from counts (contiguous) or from an index (indexed)."""
    size = dataset.sizes[station]
    for name, variable in dataset.variables.items():
        if variable.attrs.get("sample_dimension") == row and variable.dims == (station,):
            counts = load_numbers(dataset, str(name), origin)
            if not (counts >= 0).all() or counts.sum() != dataset.sizes[row]:
                raise DataError(
                    f"'{name}' counts {counts.sum():g} rows, and the dim '{row}' has "
                    f"{dataset.sizes[row]}. Is the file complete?"
                )
            return np.repeat(np.arange(size), counts.astype(np.int64))
        if variable.attrs.get("instance_dimension") == station and variable.dims == (row,):
            index = load_numbers(dataset, str(name), origin)
            bad = np.flatnonzero(~(np.isnan(index) | ((index >= 0) & (index < size))))
            if len(bad):
                raise DataError(
                    f"'{name}' of row {int(bad[0])} is {index[bad[0]]:g}; expected 0 to {size - 1}."
                )
            return np.where(np.isnan(index), -1, index).astype(np.int64)
    return None


def _point_observations(
    dataset: xr.Dataset, time: str, axes: tuple[Kind, str, str], origin: str
) -> Observations:
    """Rows with their own positions: a station is identified by its name, or by its position."""
    import pandas as pd

    kind, first, second = axes
    row = str(dataset.variables[time].dims[0])
    feature = str(dataset.attrs.get("featureType", "")).lower()
    if feature.startswith("trajectory"):
        raise DataError("featureType is trajectory: the sensors move. Expected fixed points.")
    times, calendar = read_times(dataset, time, origin, gaps=True)
    coordinates = np.stack([load_numbers(dataset, name, origin) for name in (first, second)], 1)
    located = np.isfinite(coordinates).all(1)
    names = station_names(dataset, row, origin, use_dim=False)
    stations = np.full(len(times), -1)
    if names:
        codes, uniques = pd.factorize(np.array(names, dtype=object)[located])
    else:
        codes = pd.MultiIndex.from_arrays(coordinates[located].T).factorize()[0]
        uniques = np.array([], dtype=object)
    index = np.flatnonzero(located)[np.unique(codes, return_index=True)[1]]
    if names:
        shift = np.abs(coordinates[located] - coordinates[index][codes]).max(1, initial=0)
        if (shift > MAX_SHIFT).any():
            name = uniques[codes[(shift > MAX_SHIFT).argmax()]]
            raise DataError(
                f"Station '{name}' has several positions. Expected fixed points; give moved "
                "stations different names."
            )
    stations[located] = codes
    points = Points(coordinates[index], kind, tuple(map(str, uniques)))
    return Observations(
        (row,), times, stations.astype(np.int64), calendar, points, bool(names), (), []
    )


def from_observations(rows: Observations, lazy: LazyDataset, config: ReadConfig) -> LazySource:
    """The rows as frames. If a station has a time twice, there are two frames of that time.

    Args:
        rows: found by `find_observations`.
        lazy: the data set; channels are read when they are needed.
        config: what is selected, and how it is read.
    """
    dataset, origin = lazy.dataset, lazy.origin
    channels, notes = find_channels(dataset, rows.dims, origin, config)
    kept = np.flatnonzero((rows.times != MISSING_TIME) & (rows.stations >= 0))
    if not len(kept):
        raise DataError("No observation has a time and a position.")
    if len(kept) < len(rows.times) and len(rows.dims) == 1:
        missing = len(rows.times) - len(kept)
        notes.append(f"{missing} rows without a time or a position are left out.")
    times, stations = rows.times[kept], rows.stations[kept]
    frame, frame_times = _assign_frames(times, stations)
    order = np.argsort(frame, kind="stable")
    bounds = np.searchsorted(frame[order], np.arange(len(frame_times) + 1))
    check_memory(4 * len(rows.times) * len(channels), "the observations", origin)
    columns = cache(lambda: _load_columns(lazy, channels, rows.dims, kept))

    def frames(start: int, stop: int) -> np.ndarray:
        values = np.full((stop - start, len(rows.points), len(channels)), np.nan, np.float32)
        chosen = order[bounds[start] : bounds[stop]]
        values[frame[chosen] - start, stations[chosen]] = columns()[chosen]
        return values

    return LazySource(
        origin=origin,
        times=frame_times,
        points=rows.points,
        channels=tuple(channel.name for channel in channels),
        units=tuple(channel.unit for channel in channels),
        channel_attrs={channel.name: channel.attrs for channel in channels},
        frames=frames,
        calendar=rows.calendar,
        named=rows.named,
        sites=site_attributes(dataset, rows.instances, origin, {}) if rows.instances else {},
        attrs=global_attributes(dataset),
        notes=(*rows.notes, *notes),
    )


def _assign_frames(
    times: Int64[np.ndarray, " row"], stations: Int64[np.ndarray, " row"]
) -> tuple[Int64[np.ndarray, " row"], Int64[np.ndarray, " frame"]]:
    """The frame of each row, and the time of each frame."""
    order = np.lexsort((times, stations))
    ordered = np.stack([stations[order], times[order]])
    repeated = np.r_[False, (np.diff(ordered) == 0).all(0)]
    first = np.maximum.accumulate(np.where(repeated, 0, np.arange(len(order))))
    occurrence = np.empty(len(order), np.int64)  # of this time at this station, from 0
    occurrence[order] = np.arange(len(order)) - first
    if not occurrence.any():
        unique, frame = np.unique(times, return_inverse=True)
        return frame.ravel(), unique
    pairs, frame = np.unique(np.stack([occurrence, times], 1), axis=0, return_inverse=True)
    return frame.ravel(), pairs[:, 1].copy()


def _load_columns(
    lazy: LazyDataset,
    channels: list[Channel],
    dims: tuple[str, ...],
    kept: Int64[np.ndarray, " row"],
) -> np.ndarray:
    """The values of the kept rows, one column for each channel."""
    with lazy.reading(last=True) as dataset:
        arrays = [
            decode_values(dataset[c.variable].isel(c.levels).transpose(*dims)).ravel()[kept]
            for c in channels
        ]
    return np.stack(arrays, axis=1)
