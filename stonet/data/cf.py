"""A Field as an xarray data set with names and attributes of the CF conventions.

References:
    NetCDF Climate and Forecast (CF) Metadata Conventions, version 1.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stonet.data.durations import UNITS
from stonet.data.grid import Grid

if TYPE_CHECKING:
    import xarray as xr

    from stonet.data.field import Field

NANOSECONDS = 1_000_000_000
ALIASES: dict[str, tuple[str, ...]] = {  # the name that is written, and other names that are read
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
WORDS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
SUPPORT = ("observed", "interpolated", "extrapolated")  # of a forecast by observations
SITES: dict[str, dict[str, Any]] = {
    "altitude": {
        "standard_name": "altitude",
        "long_name": "height above mean sea level",
        "units": "m",
        "positive": "up",
    },
    "nearest_observation": {
        "long_name": "distance to the nearest point that was observed",
        "comment": "Within the input window. On a plane in the unit of the coordinates.",
    },
    "support": {
        "long_name": "support of the forecast by observations",
        "comment": "observed: it has values in the input window; interpolated: an observed point "
        "lies within the decoder's radius; extrapolated: none does.",
    },
}


def to_xarray(field: Field) -> xr.Dataset:
    """A data set with dims (time, station), or (time, lat, lon) on a grid.

    Forecasts have the coordinates forecast_reference_time and forecast_period.

    Args:
        field: observations or a forecast.
    """
    import xarray as xr

    dataset, channels = outline(field)
    values = field.values
    missing = {"_FillValue": np.float32("nan")}
    variables: dict[Any, Any] = {
        name: (("time", "station"), values[:, :, i], attrs, missing)
        for i, (name, attrs) in enumerate(channels.items())
    }
    stations = xr.Dataset(variables | dict(dataset.data_vars), dataset.coords, dataset.attrs)
    grid = Grid.of(field.points)
    return stations if grid is None else grid.with_dims(stations)


def outline(field: Field) -> tuple[xr.Dataset, dict[str, dict[str, Any]]]:
    """The data set without the channels, and the attributes of each channel by name.

    Args:
        field: its points, times and metadata; values are not read.
    """
    import xarray as xr

    names = np.array(field.points.names, dtype=object)
    coords: dict[str, Any] = {
        "time": _timeline(field.times, field.calendar, {"standard_name": "time", "axis": "T"}),
        "station": ("station", names, {"cf_role": "timeseries_id"}),
    }
    no_fill = {"_FillValue": None}  # a coordinate is never missing
    for column, axis in enumerate(field.points.geometry.axes):
        coords[axis] = ("station", field.points.coordinates[:, column], STANDARD[axis], no_fill)
    if field.reference_time is not None:
        reference = np.asarray(field.reference_time, dtype=np.int64)
        attrs = {"standard_name": "forecast_reference_time"}
        coords["forecast_reference_time"] = _timeline(reference, field.calendar, attrs)
        coords["forecast_period"] = _periods(field.times - field.reference_time, field.calendar)
    sites: dict[str, Any] = {}
    for name, row in field.sites.items():
        free = name if name not in (*field.channels, *coords) else f"{name}_of_station"
        (coords if name == "altitude" else sites)[free] = _site(name, row, field.points.kind)
    ancillary = [name for name in ("nearest_observation", "support") if name in sites]
    linked = {"ancillary_variables": " ".join(ancillary)} if ancillary else {}
    written = _plain(field.channels)
    channels = {
        written[name]: {"long_name": name, **field.channel_attrs.get(name, {}), **linked}
        | ({"units": unit} if unit else {})  # none: unknown; CF takes "1" for dimensionless
        for name, unit in field.quantity
    }
    about = {"Conventions": "CF-1.11", "featureType": "timeSeries", **field.attrs}
    return xr.Dataset(sites, coords, about), channels


def _plain(names: Sequence[str]) -> dict[str, str]:
    """Distinct names without "/", which would be a group in NetCDF and Zarr."""
    found: dict[str, str] = {}
    for name in names:
        plain = name.replace("/", "_")
        while plain != name and plain in (*names, *found.values()):
            plain += "_"
        found[name] = plain
    return found


def outline_of_many(
    field: Field, issued: np.ndarray
) -> tuple[xr.Dataset, dict[str, dict[str, Any]]]:
    """As `outline`, with dims (forecast_reference_time, forecast_period, station).

    The coordinate time is the valid time of each forecast.

    Args:
        field: one of the forecasts.
        issued: issue times of all forecasts, in nanoseconds.
    """
    dataset, channels = outline(field)
    issue_attrs = {"standard_name": "forecast_reference_time", "axis": "T"}
    issue, lead = "forecast_reference_time", "forecast_period"
    lengths = field.times - (field.reference_time or 0)
    coords = {
        issue: (issue, *_timeline(issued, field.calendar, issue_attrs)[1:]),
        lead: (lead, *_periods(lengths, field.calendar)[1:]),
    }
    valid, long = issued[:, None] + lengths, {"standard_name": "time", "long_name": "valid time"}
    coords["time"] = ((issue, lead), *_timeline(valid, field.calendar, long)[1:])
    attrs = {name: text for name, text in dataset.attrs.items() if name != "featureType"}
    result = dataset.drop_vars(["time", issue, lead]).assign_coords(coords)
    result.attrs = attrs
    return result, channels


def _timeline(times: np.ndarray, calendar: bool, attrs: dict[str, str]) -> tuple[Any, ...]:
    """A time variable exact to the nanosecond: dates, seconds, or integers of a smaller unit."""
    dims = ("time",) * times.ndim
    if calendar:
        units = f"{_largest_unit(times)[0]} since 1970-01-01"
        encoding = {"units": units, "dtype": "int64", "calendar": "proleptic_gregorian"}
        return dims, times.astype("datetime64[ns]"), attrs, encoding
    seconds = np.asarray(times / NANOSECONDS)
    if np.array_equal(np.rint(seconds * NANOSECONDS).astype(np.int64), times):
        return dims, seconds, attrs | {"units": "s"}, {"_FillValue": None}
    _, short, size = _largest_unit(times)
    return dims, times // size, attrs | {"units": short}, {}


def _periods(lead: np.ndarray, calendar: bool) -> tuple[Any, ...]:
    attrs = {"standard_name": "forecast_period"}
    if not calendar:
        return _timeline(lead, calendar, attrs)
    encoding = {"units": _largest_unit(lead)[0], "dtype": "int64"}
    return "time", lead.astype("timedelta64[ns]"), attrs, encoding


def _largest_unit(times: np.ndarray) -> tuple[str, str, int]:
    """Name, symbol and length of the largest unit of which all times are multiples."""
    common = int(np.gcd.reduce(np.ravel(times)))
    units = zip(WORDS, reversed(UNITS), reversed(UNITS.values()), strict=True)
    return next(unit for unit in units if common % unit[2] == 0)


def _site(name: str, row: np.ndarray, kind: str) -> tuple[Any, ...]:
    """A variable of the stations with its attributes."""
    if name == "support" and np.isin(row, range(len(SUPPORT))).all():
        values = np.arange(len(SUPPORT), dtype=np.int8)
        attrs = SITES[name] | {"flag_values": values, "flag_meanings": " ".join(SUPPORT)}
        return "station", row.astype(np.int8), attrs
    attrs = SITES.get(name, {"long_name": name})
    if name == "nearest_observation" and kind == "sphere":
        attrs = attrs | {"units": "km"}
    return "station", row, attrs
