"""Names after the CF conventions, and a Field as an xarray data set of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stonet.data.durations import UNITS
from stonet.data.grid import Grid
from stonet.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr

    from stonet.data.field import Field

NANOSECONDS = 1_000_000_000
CHUNK = 2**17  # numbers of a variable that are compressed together
PIECE = 2**22  # numbers of a field that are written together
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
Write = Callable[[tuple[int, ...], np.ndarray], None]  # from there on; the last axis: variables
WORDS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
SUPPORT = ("observed", "interpolated", "extrapolated")  # what stands behind a forecast at a point
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
        "long_name": "what stands behind the forecast at this point",
        "comment": "observed: it has values in the input window; interpolated: an observed point "
        "lies within the decoder's radius; extrapolated: none does.",
    },
}


def to_xarray(field: Field) -> xr.Dataset:
    """Dims (time, station), or (time, lat, lon) on a grid.

    Forecasts carry forecast_reference_time and forecast_period.
    """
    import xarray as xr

    dataset, channels = outline(field)
    values = field.values
    missing = {"_FillValue": np.float32("nan")}
    variables: dict[Any, Any] = {
        name: (("time", "station"), values[:, :, i], about, missing)
        for i, (name, about) in enumerate(channels.items())
    }
    stations = xr.Dataset(variables | dict(dataset.data_vars), dataset.coords, dataset.attrs)
    grid = Grid.of(field.points)
    return stations if grid is None else grid.with_dims(stations)


def outline(field: Field) -> tuple[xr.Dataset, dict[str, dict[str, Any]]]:
    """Everything but the values, and what is noted of each channel."""
    import xarray as xr

    names = np.array(field.points.names, dtype=object)
    coords: dict[str, Any] = {
        "time": _timeline(field.times, field.calendar, {"standard_name": "time", "axis": "T"}),
        "station": ("station", names, {"cf_role": "timeseries_id"}),
    }
    whole = {"_FillValue": None}  # a place is never missing
    for column, axis in enumerate(field.points.geometry.axes):
        coords[axis] = ("station", field.points.coordinates[:, column], STANDARD[axis], whole)
    if field.reference_time is not None:
        reference = np.asarray(field.reference_time, dtype=np.int64)
        about = {"standard_name": "forecast_reference_time"}
        coords["forecast_reference_time"] = _timeline(reference, field.calendar, about)
        coords["forecast_period"] = _periods(field.times - field.reference_time, field.calendar)
    sites: dict[str, Any] = {}
    for name, row in field.sites.items():
        free = name if name not in (*field.channels, *coords) else f"{name}_of_station"
        (coords if name == "altitude" else sites)[free] = _site(name, row, field.points.kind)
    told = [name for name in ("nearest_observation", "support") if name in sites]
    linked = {"ancillary_variables": " ".join(told)} if told else {}
    written = _plain(field.channels)
    channels = {
        written[name]: {"long_name": name, **field.channel_attrs.get(name, {}), **linked}
        | ({"units": unit} if unit else {})  # none: unknown; CF takes "1" for dimensionless
        for name, unit in field.quantity
    }
    attrs = {"Conventions": "CF-1.11", "featureType": "timeSeries", **field.attrs}
    return xr.Dataset(sites, coords, attrs), channels


def _plain(names: Sequence[str]) -> dict[str, str]:
    """Names as files can bear them, each another: "/" would be a folder in NetCDF and Zarr."""
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
    """As `outline`, of forecasts like this one that were issued at these times.

    Dims (forecast_reference_time, forecast_period, station); `time` is the valid time of each.
    """
    dataset, channels = outline(field)
    about = {"standard_name": "forecast_reference_time", "axis": "T"}
    issue, lead = "forecast_reference_time", "forecast_period"
    lengths = field.times - (field.reference_time or 0)
    coords = {
        issue: (issue, *_timeline(issued, field.calendar, about)[1:]),
        lead: (lead, *_periods(lengths, field.calendar)[1:]),
    }
    valid, long = issued[:, None] + lengths, {"standard_name": "time", "long_name": "valid time"}
    coords["time"] = ((issue, lead), *_timeline(valid, field.calendar, long)[1:])
    attrs = {name: text for name, text in dataset.attrs.items() if name != "featureType"}
    told = dataset.drop_vars(["time", issue, lead]).assign_coords(coords)
    told.attrs = attrs
    return told, channels


def to_netcdf(field: Field, path: str | Path) -> None:
    """Write a compressed NetCDF file; it appears whole or not at all."""
    if Grid.of(field.points) is not None:
        with replacing(Path(path)) as temporary:
            to_xarray(field).to_netcdf(temporary, engine="h5netcdf")
        return
    times, width = field.values.shape[:2]
    rows = max(1, CHUNK // width)
    several = rows * max(1, PIECE // (rows * field.values[0].size))  # whole chunks
    with netcdf_in_pieces(Path(path), *outline(field), chunks=(rows, CHUNK)) as write:
        for start in range(0, times, several):
            part = slice(start, start + several)
            write((start, 0), field.values[part])


@contextmanager
def netcdf_in_pieces(
    path: Path,
    dataset: xr.Dataset,
    variables: dict[str, dict[str, Any]],
    dims: tuple[str, ...] = ("time", "station"),
    chunks: tuple[int, ...] = (1, CHUNK),
) -> Iterator[Write]:
    """A compressed file that is filled by calls; it appears when all is in, or not at all.

    Args:
        path: where it will be.
        dataset: everything but the variables (`outline`).
        variables: their names and what is noted of each.
        dims: of every variable.
        chunks: of the first and of the last dim, or of all dims. Pieces of whole chunks are
            written fastest.
    """
    import h5netcdf

    shape = tuple(dataset.sizes[dim] for dim in dims)
    beside = " ".join(sorted(str(name) for name in dataset.coords if name not in dataset.dims))
    if len(chunks) < len(dims):
        chunks = (chunks[0], *shape[1:-1], chunks[-1])
    with replacing(path) as temporary:
        dataset.to_netcdf(temporary, engine="h5netcdf")
        with h5netcdf.File(temporary, "a") as file:
            file.attrs.pop("coordinates", None)  # of variables that were not there yet
            for name, about in variables.items():
                made = file.create_variable(
                    name,
                    dims,
                    np.dtype("float32"),
                    fillvalue=np.float32("nan"),
                    chunks=tuple(map(min, chunks, shape)),
                    compression="gzip",
                    compression_opts=4,
                    shuffle=True,
                )
                made.attrs.update(about | {"coordinates": beside})

            def write(where: tuple[int, ...], values: np.ndarray) -> None:
                place = tuple(
                    slice(a, a + n) for a, n in zip(where, values.shape[:-1], strict=True)
                )
                for number, name in enumerate(variables):
                    file.variables[name][place] = values[..., number]

            yield write


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file or a store that takes the place of `path` once it is complete."""
    if not path.parent.is_dir():
        raise UsageError(f"No folder '{path.parent}' to write '{path.name}' into. Make it first.")
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield folder / path.name
        put(folder / path.name, path, folder / "before")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(new: Path, path: Path, before: Path) -> None:
    """Give `new` its name; a folder that has it goes to `before`, and comes back on failure."""
    try:
        if path.is_dir():  # os.replace takes no folder that is not empty
            os.replace(path, before)
        os.replace(new, path)
    except BaseException:
        if before.exists() and not path.exists():
            os.replace(before, path)
        raise


def _timeline(times: np.ndarray, calendar: bool, attrs: dict[str, str]) -> tuple[Any, ...]:
    """A time variable that loses no nanosecond: dates, seconds, or whole numbers of a unit."""
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
    """The largest unit of which all times are whole numbers: its name, its symbol, its length."""
    common = int(np.gcd.reduce(np.ravel(times)))
    units = zip(WORDS, reversed(UNITS), reversed(UNITS.values()), strict=True)
    return next(unit for unit in units if common % unit[2] == 0)


def _site(name: str, row: np.ndarray, kind: str) -> tuple[Any, ...]:
    """A number of each station, with what is known of its meaning."""
    if name == "support" and np.isin(row, range(len(SUPPORT))).all():
        values = np.arange(len(SUPPORT), dtype=np.int8)
        attrs = SITES[name] | {"flag_values": values, "flag_meanings": " ".join(SUPPORT)}
        return "station", row.astype(np.int8), attrs
    attrs = SITES.get(name, {"long_name": name})
    if name == "nearest_observation" and kind == "sphere":
        attrs = attrs | {"units": "km"}
    return "station", row, attrs
