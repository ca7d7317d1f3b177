"""NREL's renewable energy data in HDF5: reV profiles, NSRDB, WIND Toolkit.

`time_index` and `meta` describe the two axes of every data set (time, site). Stored integers are
divided by their `scale_factor`; where an offset is given too, CF's rule holds instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from stonet.config import ReadConfig
from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.io.lazy_source import LazySource, inside_box
from stonet.io.safety import check_memory, readable

LATITUDES = ("latitude", "lat")
LONGITUDES = ("longitude", "lon")
NAMES = ("gid", "sc_point_gid", "site_id", "sc_gid")
ALTITUDES = ("elevation", "altitude")


@dataclass(frozen=True)
class Meta:
    """The sites of a file.

    Args:
        coordinates: latitude, longitude.
        names: of the sites; numbers where the file has none.
        named: whether the names come from the file.
        altitude: of each site in metres, if the file has it.
    """

    coordinates: Float64[np.ndarray, "site 2"]
    names: tuple[str, ...]
    named: bool
    altitude: Float64[np.ndarray, " site"] | None


def open_nrel(path: Path, config: ReadConfig) -> list[LazySource]:
    """The content of a file whose structure has been checked.

    Args:
        path: of the file.
        config: what is selected, and how it is read.
    """
    import h5py  # type: ignore[import-untyped]

    with readable(path, "NREL's HDF5"), h5py.File(path, "r") as file:
        times = _read_times(file["time_index"], path)
        meta = _read_meta(file["meta"], path)
        shape = (len(times), len(meta.names))
        channels: list[str] = []
        ignored: list[str] = []
        for name, data in file.items():
            if name in ("time_index", "meta"):
                continue
            numeric = isinstance(data, h5py.Dataset) and data.dtype.kind in "iuf"
            (channels if numeric and data.shape == shape else ignored).append(name)
        if not channels:
            raise DataError(
                f"'{path}' has no data set of {shape[0]} times x {shape[1]} sites; there are: "
                f"{', '.join(file)}."
            )
        scales = {name: _scale(file[name].attrs) for name in channels}
        units = tuple(_unit(file[name].attrs) for name in channels)
    sites = _site_range(meta, config)
    notes = [f"Left out, since not over time and site: {', '.join(ignored)}."] if ignored else []
    notes += _leap_day_notes(times)
    return [
        LazySource(
            origin=str(path),
            times=times,
            points=Points(meta.coordinates[sites], "sphere", meta.names[sites]),
            channels=tuple(channels),
            units=units,
            frames=lambda start, stop: _read_frames(path, scales, slice(start, stop), sites),
            named=meta.named,
            sites={} if meta.altitude is None else {"altitude": meta.altitude[sites]},
            notes=tuple(notes),
        )
    ]


def _read_frames(
    path: Path, scales: Mapping[str, tuple[float, float]], times: slice, sites: slice
) -> np.ndarray:
    """(time, site, channel); the file is open only while it is read."""
    import h5py

    columns = []
    with readable(path, "NREL's HDF5"), h5py.File(path, "r") as file:
        for name, (factor, offset) in scales.items():
            values = file[name][times, sites].astype(np.float64)
            columns.append((values * factor + offset).astype(np.float32))
    return np.stack(columns, axis=-1)


def _scale(attrs: Mapping[str, Any]) -> tuple[float, float]:
    """The factor and the offset of stored numbers."""
    scale = float(np.ravel(attrs.get("scale_factor", attrs.get("psm_scale_factor", 1)))[0])
    offset = float(np.ravel(attrs.get("add_offset", attrs.get("psm_add_offset", 0)))[0])
    if not np.isfinite([scale, offset]).all() or scale == 0:
        raise DataError(f"scale_factor is {scale:g} and add_offset {offset:g}; expected numbers.")
    return (scale, offset) if offset else (1 / scale, 0.0)


def _unit(attrs: Mapping[str, Any]) -> str:
    unit = _text(attrs.get("units", attrs.get("psm_units", "")))
    return {"unitless": "1", "None": ""}.get(unit, unit)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _read_times(index: Any, path: Path) -> Int64[np.ndarray, " time"]:
    import pandas as pd

    check_memory(index.size * max(50, index.dtype.itemsize), "'time_index'", path)
    texts = [t.decode() if isinstance(t, bytes) else str(t) for t in index[:].ravel().tolist()]
    try:
        parsed = pd.to_datetime(texts, utc=True, format="ISO8601")  # NREL's times are UTC
    except ValueError as error:
        raise DataError(f"'{path}': 'time_index' holds no dates ({error}).") from None
    if parsed.isna().any():
        raise DataError(f"'{path}': 'time_index' has missing times.")
    return parsed.as_unit("ns").asi8.copy()


def _read_meta(meta: Any, path: Path) -> Meta:
    """The sites, from a table of records or from a group of columns."""
    fields = list((meta.dtype.names or ()) if hasattr(meta, "dtype") else meta)
    by_name = {str(field).lower(): field for field in fields}
    if hasattr(meta, "dtype"):
        check_memory(meta.size * meta.dtype.itemsize, "'meta'", path)
        meta = meta[...]

    def column(choices: tuple[str, ...]) -> np.ndarray | None:
        name = next((by_name[choice] for choice in choices if choice in by_name), None)
        if name is None:
            return None
        check_memory(int(np.prod(meta[name].shape)) * 8, f"'meta/{name}'", path)
        return np.asarray(meta[name][...] if hasattr(meta, "keys") else meta[name])

    axes = []
    for choices in (LATITUDES, LONGITUDES):
        axis = column(choices)
        if axis is None:
            raise DataError(f"'{path}': 'meta' has {', '.join(fields)}; expected {choices[0]}.")
        axes.append(axis.astype(np.float64))
    ids = column(NAMES)
    names = () if ids is None else tuple(_text(name) for name in ids.tolist())
    named = len(names) > 0 and len(set(names)) == len(names)
    altitude = column(ALTITUDES)
    if altitude is not None:
        altitude = altitude.astype(np.float64) if altitude.dtype.kind in "fiu" else None
    coordinates = np.stack(axes, axis=1)
    return Meta(
        coordinates,
        names if named else tuple(map(str, range(len(coordinates)))),
        named,
        altitude,
    )


def _site_range(meta: Meta, config: ReadConfig) -> slice:
    """The shortest range of sites that contains all those in the bbox; all if there are none."""
    if config.bbox is not None:
        inside = np.flatnonzero(inside_box(Points(meta.coordinates, "sphere"), config.bbox))
        if len(inside):
            return slice(int(inside[0]), int(inside[-1]) + 1)
    return slice(0, len(meta.names))


def _leap_day_notes(times: Int64[np.ndarray, " time"]) -> list[str]:
    """A note if 29 February is missing, as in many files of NREL."""
    days = np.unique(times // DAY).astype("datetime64[D]")
    years = np.unique(days.astype("datetime64[Y]"))
    leap = [y for y in years.astype(int) + 1970 if (y % 4 == 0 and y % 100 != 0) or y % 400 == 0]
    absent = [
        str(y)
        for y in leap
        if np.isin(np.array([f"{y}-02-28", f"{y}-03-01"], "M8[D]"), days).all()
        and np.datetime64(f"{y}-02-29") not in days
    ]
    return [f"29 February is not in the file ({', '.join(absent)})."] if absent else []
