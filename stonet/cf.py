"""Field <-> xarray, after the CF conventions: stations as `timeSeries`, grids as points."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from stonet.clock import UNITS
from stonet.errors import DataError
from stonet.geometry import Kind, Points

if TYPE_CHECKING:
    import xarray as xr

    from stonet.field import Field

NANOSECONDS = 1_000_000_000
ALIASES: dict[str, tuple[str, ...]] = {  # ours first; what else people write after it
    "time": ("time", "valid_time", "ds", "timestamp"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "longitude"),
    "x": ("x",),
    "y": ("y",),
    "station": ("station", "station_id", "unique_id", "station_name"),
}
STANDARD = {
    "time": {"standard_name": "time"},
    "lat": {"standard_name": "latitude", "units": "degrees_north"},
    "lon": {"standard_name": "longitude", "units": "degrees_east"},
    "x": {"long_name": "x coordinate"},
    "y": {"long_name": "y coordinate"},
}


def to_xarray(field: Field) -> xr.Dataset:
    """Dims (time, station); forecasts carry forecast_reference_time and forecast_period."""
    import xarray as xr

    axes = field.points.geometry.axes
    coords: dict[str, Any] = {
        "time": ("time", _as_times(field.times, field.calendar), _time_attrs(field.calendar)),
        "station": (
            "station",
            np.array(field.points.names, dtype=object),
            {"cf_role": "timeseries_id"},
        ),
    }
    for column, axis in enumerate(axes):
        coords[axis] = ("station", field.points.coordinates[:, column], STANDARD[axis])
    if field.reference_time is not None:
        lead = field.times - field.reference_time
        reference = np.asarray(field.reference_time, dtype=np.int64)
        coords["forecast_reference_time"] = (
            (),
            _as_times(reference, field.calendar),
            {"standard_name": "forecast_reference_time"}
            | _time_attrs(field.calendar, units_only=True),
        )
        period = lead.astype("timedelta64[ns]") if field.calendar else lead / NANOSECONDS
        attrs = {"standard_name": "forecast_period"} | ({} if field.calendar else {"units": "s"})
        coords["forecast_period"] = ("time", period, attrs)
    values = np.where(field.observed, field.values, np.float32("nan"))
    variables = {
        name: (("time", "station"), values[:, :, i], {"units": field.units[i], "long_name": name})
        for i, name in enumerate(field.channels)
    }
    attrs = {"Conventions": "CF-1.11", "featureType": "timeSeries", **field.attrs}
    return xr.Dataset(variables, coords, attrs)


def arguments(dataset: xr.Dataset, channels: Sequence[str] | None = None) -> dict[str, Any]:
    """What Field() takes, from stations or a grid; every variable is a channel unless named."""
    time = _time(dataset)
    frame = str(time.dims[0])
    kind, first, second = _axes(dataset)
    space = tuple(dict.fromkeys(dataset[first].dims + dataset[second].dims))
    if frame in space or not space:
        raise DataError(
            f"'{first}' has dims {dataset[first].dims} and '{second}' {dataset[second].dims}; "
            f"expected points that stay where they are, along dims other than '{frame}'."
        )
    names = _channel_names(dataset, frame, space, channels)
    stacked = [dataset[name].transpose(frame, *space) for name in names]
    shape = (stacked[0].shape[0], int(np.prod(stacked[0].shape[1:])))
    with np.errstate(over="ignore"):  # too large for float32: infinite, and refused as such
        arrays = [np.asarray(array.values).astype(np.float32) for array in stacked]
    values = np.stack([array.reshape(shape) for array in arrays], axis=-1)
    grid = tuple(
        dataset[axis].broadcast_like(stacked[0].isel({frame: 0})).transpose(*space)
        for axis in (first, second)
    )
    coordinates = np.stack([np.asarray(axis, dtype=np.float64).ravel() for axis in grid], axis=1)
    times, calendar = _read_times(time)
    return {
        "values": values,
        "times": times,
        "points": Points(coordinates, kind, _point_names(dataset, space, len(coordinates))),
        "channels": tuple(names),
        "units": tuple(str(dataset[name].attrs.get("units", "1")) for name in names),
        "calendar": calendar,
        "reference_time": _reference(dataset),
        "attrs": {
            k: v for k, v in dataset.attrs.items() if k not in ("Conventions", "featureType")
        },
    }


def to_netcdf(field: Field, path: str | Path) -> None:
    """Write through a temporary file in the same folder, so that no half file is ever seen."""
    path = Path(path)
    if not path.parent.is_dir():
        raise DataError(f"No folder '{path.parent}' to write '{path.name}' into. Make it first.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        to_xarray(field).to_netcdf(temporary, engine="h5netcdf")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _as_times(times: np.ndarray, calendar: bool) -> np.ndarray:
    return times.astype("datetime64[ns]") if calendar else np.asarray(times / NANOSECONDS)


def _time_attrs(calendar: bool, units_only: bool = False) -> dict[str, str]:
    units = {} if calendar else {"units": "s"}
    return units if units_only else {"standard_name": "time", "axis": "T"} | units


def nanoseconds(times: np.ndarray) -> np.ndarray:
    """Dates or durations as int64; NaT and what int64 cannot count in nanoseconds are refused."""
    exact = times.astype(f"{times.dtype.kind}8[ns]")
    if (np.isnat(times) | (exact.astype(times.dtype) != times)).any():
        raise DataError(
            "Some times are missing (NaT) or outside the years 1678 to 2262 that nanoseconds in "
            "64 bits can count. Drop or shift them."
        )
    return exact.astype(np.int64)


def _time(dataset: xr.Dataset) -> xr.DataArray:
    name = _find(dataset, "time")
    if name is None:
        raise DataError(
            f"No time coordinate among {sorted(map(str, dataset.variables))}; expected one of "
            f"{', '.join(ALIASES['time'])}."
        )
    if dataset[name].ndim != 1:
        raise DataError(
            f"'{name}' has dims {dataset[name].dims}; expected one dim, along which the frames "
            "follow one another. A single frame is not enough to forecast from."
        )
    return dataset[name]


def _reference(dataset: xr.Dataset) -> int | None:
    reference = dataset.variables.get("forecast_reference_time")
    if reference is None:
        return None
    if reference.size != 1:
        raise DataError(
            f"The data holds {reference.size} values of forecast_reference_time; expected a single "
            "forecast. Select one of them first."
        )
    return int(_read_times(reference)[0].item())


def _read_times(time: xr.DataArray | xr.Variable) -> tuple[np.ndarray, bool]:
    """Nanoseconds, and whether they are dates; plain numbers are seconds, or in their `units`."""
    array = np.atleast_1d(time.values)
    if array.dtype.kind in "Mm":
        return nanoseconds(array), array.dtype.kind == "M"
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"Time has type {array.dtype}; expected dates of the standard calendar or seconds. "
            "Other calendars (360_day, noleap) have no UTC and are refused; convert them first."
        )
    unit = str(time.attrs.get("units", "s"))
    counted = array.astype(np.float64) * UNITS.get(unit, np.nan)
    if not (np.abs(counted) < 2.0**63).all():
        raise DataError(
            f"Time is in '{unit}', from {array.min():g} to {array.max():g}; expected finite "
            f"numbers, of at most 292 years, in one of {', '.join(UNITS)}; or dates decoded after "
            "CF (xarray.decode_cf)."
        )
    return np.rint(counted).astype(np.int64), False


def _find(dataset: xr.Dataset, name: str) -> str | None:
    for alias in ALIASES[name]:
        if alias in dataset.variables:
            return alias
    for variable in dataset.variables:
        if dataset[variable].attrs.get("standard_name") == STANDARD.get(name, {}).get(
            "standard_name", "-"
        ):
            return str(variable)
    return None


def _axes(dataset: xr.Dataset) -> tuple[Kind, str, str]:
    for kind, first, second in (("sphere", "lat", "lon"), ("plane", "x", "y")):
        found = _find(dataset, first), _find(dataset, second)
        if found[0] and found[1]:
            return cast(Kind, kind), found[0], found[1]
    raise DataError(
        f"No coordinates among {sorted(map(str, dataset.variables))}; expected lat and lon "
        "(degrees) for points on the earth, or x and y for points on a plane."
    )


def _channel_names(
    dataset: xr.Dataset, time_dim: str, space: tuple[Any, ...], wanted: Sequence[str] | None
) -> list[str]:
    dims = {time_dim, *space}
    have = [
        str(name)
        for name, array in dataset.data_vars.items()
        if set(array.dims) == dims and array.dtype.kind in "fiub"
    ]
    for name in wanted or ():
        if name not in have:
            raise DataError(
                f"No variable '{name}' of numbers over {sorted(map(str, dims))}; there are: "
                f"{', '.join(have) or 'none'}."
            )
    if not have:
        listing = ", ".join(f"{name}{array.dims}" for name, array in dataset.data_vars.items())
        raise DataError(
            f"No variable of numbers over the dims {sorted(map(str, dims))}; there are: "
            f"{listing or 'none'}. Select a level or member first if there are more dims."
        )
    return list(wanted) if wanted else have


def _point_names(dataset: xr.Dataset, space: tuple[Any, ...], count: int) -> tuple[str, ...]:
    label = _find(dataset, "station")
    if label is None and len(space) == 1 and space[0] in dataset.coords:
        label = str(space[0])
    if label is None or dataset[label].dims != space:
        return ()
    names = dataset[label].values.ravel()
    return tuple(n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in names)
