"""A forecast to be written, and files opened by plain xarray."""

from __future__ import annotations

import numpy as np
import xarray as xr

from stonet.data.field import Field
from stonet.data.geometry import Points

HOUR = 3_600 * 10**9
START = 438_288 * HOUR  # 2020-01-01


def make_forecast(kind="sphere", calendar=True, reference=True, times=None, seed=0) -> Field:
    """A forecast of two channels at four points, with missing values and site attributes."""
    rng = np.random.default_rng(seed)
    times = (START if calendar else 0) + HOUR * np.arange(1, 4) if times is None else times
    values = rng.normal(280, 10, (len(times), 4, 2)).astype(np.float32)
    values[0, 1] = values[-1, 2, 1] = np.nan
    return Field(
        values,
        np.asarray(times, dtype=np.int64),
        Points(rng.uniform(-60, 60, (4, 2)), kind, ("a", "Zürich, HB", "=1+1", "-7")),
        channels=("t2m", "wind"),
        units=("K", "m s-1"),
        calendar=calendar,
        reference_time=int(times[0]) - HOUR if reference else None,
        sites={
            "altitude": np.array([0.5, np.nan, 408.0, -3.0]),
            "nearest_observation": np.array([0.0, 1.25, 7.0, 900.0]),
            "support": np.array([0.0, 1.0, 1.0, 2.0]),
        },
    )


def open_file(path) -> xr.Dataset:
    """A NetCDF file or Zarr store as xarray reads it, loaded."""
    if path.suffix == ".zarr":
        return xr.open_zarr(path, decode_timedelta=True, chunks=None).load()
    with xr.open_dataset(path, decode_timedelta=True) as file:
        return file.load()


def with_nan(field: Field) -> np.ndarray:
    """The values, NaN where missing."""
    return np.where(field.observed, field.values, np.nan)
