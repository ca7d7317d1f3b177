"""Observations in a row: CF's ragged, incomplete and point forms, turned into frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Kind, Points
from stonet.errors import DataError
from stonet.io.arrays.coordinates import (
    carried,
    find,
    numbers,
    places,
    site_numbers,
    station_names,
    unique,
)
from stonet.io.arrays.held import Held
from stonet.io.arrays.time_axis import read_times
from stonet.io.arrays.variables import Channel, channels_of, decoded
from stonet.io.lazy_source import LazySource
from stonet.io.safety import fitting

if TYPE_CHECKING:
    import xarray as xr

MISSING = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Observations:
    """Rows, each of one station at one time."""

    dims: tuple[str, ...]  # of the rows; (station, obs) in the incomplete form
    times: Int64[np.ndarray, " row"]
    stations: Int64[np.ndarray, " row"]  # a negative number: of no station
    calendar: bool
    points: Points
    named: bool
    instances: tuple[str, ...]  # the stations' dim, if they have one
    notes: list[str]


def observations(dataset: xr.Dataset, origin: str, config: ReadConfig) -> Observations | None:
    """The rows, if the data set is of one of these forms; None if not."""
    time = find(dataset, "time")
    if time is None:
        return None
    kind, first, second = places(dataset, config.geometry)
    dims = tuple(map(str, dataset.variables[time].dims))
    where = tuple(map(str, dataset.variables[first].dims))
    if dataset.variables[second].dims != dataset.variables[first].dims or len(where) != 1:
        return None
    if len(dims) == 2 and where[0] in dims:
        stations = np.arange(dataset.sizes[where[0]])
        shape = [dataset.sizes[dim] for dim in dims]
        lying = stations[:, None] if dims[0] == where[0] else stations[None]
        rows = np.broadcast_to(lying, shape).ravel()
    elif len(dims) == 1 and dims == where:
        return _points_in_a_row(dataset, time, (kind, first, second), origin)
    elif len(dims) == 1:
        found = _owners(dataset, dims[0], where[0], origin)
        if found is None:
            return None
        rows = found
    else:
        return None
    times, calendar = read_times(dataset, time, origin, gaps=True)
    coordinates = np.stack([numbers(dataset, name, origin) for name in (first, second)], 1)
    notes: list[str] = []
    names = unique(station_names(dataset, where[0], origin), notes)
    points = Points(coordinates, cast(Kind, kind), names)
    return Observations(
        dims, times.ravel(), rows.astype(np.int64), calendar, points, bool(names), where, notes
    )


def _owners(dataset: xr.Dataset, row: str, station: str, origin: str) -> np.ndarray | None:
    """The station of each row: told by counts (contiguous) or by an index (indexed)."""
    size = dataset.sizes[station]
    for name, variable in dataset.variables.items():
        if variable.attrs.get("sample_dimension") == row and variable.dims == (station,):
            counts = numbers(dataset, str(name), origin)
            if not (counts >= 0).all() or counts.sum() != dataset.sizes[row]:
                raise DataError(
                    f"'{name}' counts {counts.sum():g} rows, and the dim '{row}' has "
                    f"{dataset.sizes[row]}. Is the file whole?"
                )
            return np.repeat(np.arange(size), counts.astype(np.int64))
        if variable.attrs.get("instance_dimension") == station and variable.dims == (row,):
            index = numbers(dataset, str(name), origin)
            bad = np.flatnonzero(~(np.isnan(index) | ((index >= 0) & (index < size))))
            if len(bad):
                raise DataError(
                    f"'{name}' of row {int(bad[0])} is {index[bad[0]]:g}; expected 0 to {size - 1}."
                )
            return np.where(np.isnan(index), -1, index).astype(np.int64)
    return None


def _points_in_a_row(
    dataset: xr.Dataset, time: str, axes: tuple[str, str, str], origin: str
) -> Observations:
    """Rows that each tell their place: a station is a name, or else a place."""
    import pandas as pd

    kind, first, second = axes
    row = str(dataset.variables[time].dims[0])
    feature = str(dataset.attrs.get("featureType", "")).lower()
    if feature.startswith("trajectory"):
        raise DataError(
            "featureType is trajectory: the sensors move. Expected points that stay where they are."
        )
    times, calendar = read_times(dataset, time, origin, gaps=True)
    coordinates = np.stack([numbers(dataset, name, origin) for name in (first, second)], 1)
    there = np.isfinite(coordinates).all(1)
    names = station_names(dataset, row, origin, own=False)
    stations = np.full(len(times), -1)
    if names:
        codes, known = pd.factorize(np.array(names, dtype=object)[there])
        index = np.flatnonzero(there)[np.unique(codes, return_index=True)[1]]
        moved = np.abs(coordinates[there] - coordinates[index][codes]).max(1, initial=0) > 1e-4
        if moved.any():
            raise DataError(
                f"Station '{known[codes[moved.argmax()]]}' is at several places. Expected points "
                "that stay where they are; give moved stations different names."
            )
    else:
        codes = pd.MultiIndex.from_arrays(coordinates[there].T).factorize()[0]
        known = np.array([], dtype=object)
        index = np.flatnonzero(there)[np.unique(codes, return_index=True)[1]]
    stations[there] = codes
    points = Points(coordinates[index], cast(Kind, kind), tuple(map(str, known)))
    return Observations(
        (row,), times, stations.astype(np.int64), calendar, points, bool(names), (), []
    )


def content(rows: Observations, held: Held, config: ReadConfig) -> LazySource:
    """The rows as frames. A time that a station tells twice makes a second frame of that time."""
    dataset, origin = held.dataset, held.origin
    channels, notes = channels_of(dataset, rows.dims, origin, config)
    known = np.flatnonzero((rows.times != MISSING) & (rows.stations >= 0))
    if not len(known):
        raise DataError("No observation has a time and a place.")
    if len(known) < len(rows.times) and len(rows.dims) == 1:
        notes.append(f"{len(rows.times) - len(known)} rows without a time or a place: left out.")
    times, stations = rows.times[known], rows.stations[known]
    frame, frame_times = _frames(times, stations)
    order = np.argsort(frame, kind="stable")
    bounds = np.searchsorted(frame[order], np.arange(len(frame_times) + 1))
    fitting(4 * len(rows.times) * len(channels), "the observations", origin)
    columns = cache(lambda: _columns(held, channels, rows.dims, known))

    def frames(start: int, stop: int) -> np.ndarray:
        made = np.full((stop - start, len(rows.points), len(channels)), np.nan, np.float32)
        chosen = order[bounds[start] : bounds[stop]]
        made[frame[chosen] - start, stations[chosen]] = columns()[chosen]
        return made

    return LazySource(
        origin=origin,
        times=frame_times,
        points=rows.points,
        channels=tuple(channel.name for channel in channels),
        units=tuple(channel.unit for channel in channels),
        frames=frames,
        calendar=rows.calendar,
        named=rows.named,
        sites=site_numbers(dataset, rows.instances, origin, {}) if rows.instances else {},
        attrs=carried(dataset),
        notes=(*rows.notes, *notes),
    )


def _frames(
    times: Int64[np.ndarray, " row"], stations: Int64[np.ndarray, " row"]
) -> tuple[Int64[np.ndarray, " row"], Int64[np.ndarray, " frame"]]:
    """The frame of each row, and the time of each frame."""
    order = np.lexsort((times, stations))
    ordered = np.stack([stations[order], times[order]])
    again = np.r_[False, (np.diff(ordered) == 0).all(0)]
    begin = np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))
    turn = np.empty(len(order), np.int64)  # how often the station told this time before
    turn[order] = np.arange(len(order)) - begin
    if not turn.any():
        unique, frame = np.unique(times, return_inverse=True)
        return frame.ravel(), unique
    pairs, frame = np.unique(np.stack([turn, times], 1), axis=0, return_inverse=True)
    return frame.ravel(), pairs[:, 1].copy()


def _columns(
    held: Held,
    channels: list[Channel],
    dims: tuple[str, ...],
    known: Int64[np.ndarray, " row"],
) -> np.ndarray:
    with held.reading(last=True) as dataset:
        arrays = [
            decoded(dataset[c.variable].isel(c.levels).transpose(*dims)).ravel()[known]
            for c in channels
        ]
    return np.stack(arrays, axis=1)
