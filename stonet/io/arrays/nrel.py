"""NREL's renewable energy data in HDF5: reV profiles, NSRDB, WIND Toolkit.

`time_index` and `meta` describe the two axes of every data set (time, site). Whole numbers are
divided by their `scale_factor`; where an offset is given too, CF's rule holds instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.io.lazy_source import LazySource, inside_box
from stonet.io.safety import fitting, readable

PLACES = {"lat": ("latitude", "lat"), "lon": ("longitude", "lon")}
NAMES = ("gid", "sc_point_gid", "site_id", "sc_gid")
ALTITUDES = ("elevation", "altitude")
DAY = 86_400 * 10**9


def read(path: Path, config: ReadConfig) -> list[LazySource]:
    """One LazySource; the caller has checked the file's structure."""
    import h5py  # type: ignore[import-untyped]

    with readable(path, "NREL's HDF5"), h5py.File(path, "r") as file:
        times = _times(file["time_index"], path)
        meta = _meta(file["meta"], path)
        wanted: list[str] = []
        ignored: list[str] = []
        for name, data in file.items():
            if name in ("time_index", "meta"):
                continue
            good = isinstance(data, h5py.Dataset) and data.dtype.kind in "iuf"
            fits = good and data.shape == (len(times), len(meta["lat"]))
            (wanted if fits else ignored).append(name)
        if not wanted:
            raise DataError(
                f"'{path}' has no data set of {len(times)} times x {len(meta['lat'])} sites; there "
                f"are: {', '.join(file)}."
            )
        scales = {name: _scale(file[name].attrs) for name in wanted}
        units = tuple(_unit(file[name].attrs) for name in wanted)
    low, high = _stretch(meta, config)
    coordinates = np.stack([meta["lat"], meta["lon"]], 1)
    points = Points(coordinates[low:high], "sphere", meta["names"][low:high])
    notes = [f"Not over time and site, so left out: {', '.join(ignored)}."] if ignored else []
    notes += _leap_day(times)
    return [
        LazySource(
            origin=str(path),
            times=times,
            points=points,
            channels=tuple(wanted),
            units=units,
            frames=lambda start, stop: _frames(path, scales, slice(start, stop), slice(low, high)),
            named=meta["named"],
            sites={"altitude": meta["altitude"][low:high]} if "altitude" in meta else {},
            notes=tuple(notes),
        )
    ]


def _frames(
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
    """What a stored number is multiplied by, and what is added."""
    scale = float(np.ravel(attrs.get("scale_factor", attrs.get("psm_scale_factor", 1)))[0])
    offset = float(np.ravel(attrs.get("add_offset", attrs.get("psm_add_offset", 0)))[0])
    if not np.isfinite([scale, offset]).all() or scale == 0:
        raise DataError(f"scale_factor is {scale:g} and add_offset {offset:g}; expected numbers.")
    return (scale, offset) if offset else (1 / scale, 0.0)


def _unit(attrs: Mapping[str, Any]) -> str:
    unit = attrs.get("units", attrs.get("psm_units", "1"))
    unit = unit.decode("utf-8", "replace") if isinstance(unit, bytes) else str(unit)
    return "1" if unit in ("", "unitless", "None") else unit


def _times(index: Any, path: Path) -> Int64[np.ndarray, " time"]:
    import pandas as pd

    fitting(index.size * max(50, index.dtype.itemsize), "'time_index'", path)
    texts = [t.decode() if isinstance(t, bytes) else str(t) for t in index[:].ravel().tolist()]
    try:
        parsed = pd.to_datetime(texts, utc=True, format="ISO8601")  # NREL's times are UTC
    except ValueError as error:
        raise DataError(f"'{path}': 'time_index' holds no dates ({error}).") from None
    if parsed.isna().any():
        raise DataError(f"'{path}': 'time_index' has missing times.")
    return parsed.as_unit("ns").asi8.copy()


def _meta(meta: Any, path: Path) -> dict[str, Any]:
    """Places, names and altitudes from a table of records, or from a group of columns."""
    fields = list((meta.dtype.names or ()) if hasattr(meta, "dtype") else meta)
    by_name = {str(field).lower(): field for field in fields}

    def column(choices: tuple[str, ...]) -> np.ndarray | None:
        name = next((by_name[choice] for choice in choices if choice in by_name), None)
        if name is None:
            return None
        fitting(int(np.prod(meta[name].shape)) * 8, f"'meta/{name}'", path)
        return np.asarray(meta[name][...] if hasattr(meta, "keys") else meta[name])

    if hasattr(meta, "dtype"):
        fitting(meta.size * meta.dtype.itemsize, "'meta'", path)
        meta = meta[...]
    found: dict[str, Any] = {}
    for axis, choices in PLACES.items():
        place = column(choices)
        if place is None:
            raise DataError(f"'{path}': 'meta' has {', '.join(fields)}; expected {choices[0]}.")
        found[axis] = place.astype(np.float64)
    ids = column(NAMES)
    texts = () if ids is None else tuple(_text(one) for one in ids.tolist())
    found["named"] = len(texts) > 0 and len(set(texts)) == len(texts)
    found["names"] = texts if found["named"] else tuple(map(str, range(len(found["lat"]))))
    altitude = column(ALTITUDES)
    if altitude is not None and altitude.dtype.kind in "fiu":
        found["altitude"] = altitude.astype(np.float64)
    return found


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _stretch(meta: dict[str, Any], config: ReadConfig) -> tuple[int, int]:
    """The run of sites that holds all of the region's; all of them if there is none."""
    whole = 0, len(meta["lat"])
    if config.bbox is None:
        return whole
    points = Points(np.stack([meta["lat"], meta["lon"]], 1), "sphere")
    inside = np.flatnonzero(inside_box(points, config.bbox))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else whole


def _leap_day(times: Int64[np.ndarray, " time"]) -> list[str]:
    """NREL leaves the 29th of February out of many files."""
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
