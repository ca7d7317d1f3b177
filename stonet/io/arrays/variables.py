"""Roles of the variables of a data set: coordinates, stations, channels; and how they are loaded.

A role is recognised by the variable's name or by its CF attributes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stonet.config import ReadConfig
from stonet.data.cf import ALIASES
from stonet.data.geometry import Kind
from stonet.errors import DataError, UsageError
from stonet.io.safety import check_memory

if TYPE_CHECKING:
    import xarray as xr

NAMES = {
    **ALIASES,
    "lat": (*ALIASES["lat"], "nav_lat", "xlat"),
    "lon": (*ALIASES["lon"], "nav_lon", "xlong", "long"),
    "init": ("forecast_reference_time", "init_time", "reference_time", "initial_time", "init"),
    "lead": ("step", "lead_time", "prediction_timedelta", "forecast_period", "leadtime", "lead"),
    "altitude": ("altitude", "alt", "elevation", "elev", "surface_altitude", "station_altitude"),
}
STANDARD_NAMES = {
    "time": ("time",),
    "lat": ("latitude",),
    "lon": ("longitude",),
    "x": ("projection_x_coordinate",),
    "y": ("projection_y_coordinate",),
    "init": ("forecast_reference_time",),
    "lead": ("forecast_period",),
    "altitude": ("altitude", "surface_altitude", "height_above_mean_sea_level"),
}
DEGREES = {  # CF allows many spellings of these units
    "lat": {f"degree{s}{n}" for s in ("", "s") for n in ("_north", "_n", "n")},
    "lon": {f"degree{s}{n}" for s in ("", "s") for n in ("_east", "_e", "e")},
}
AXIS_LETTERS = {"time": "T", "x": "X", "y": "Y"}
CHANNEL_ATTRIBUTES = ("standard_name", "long_name", "cell_methods", "comment", "description")
MAX_ATTRIBUTE = 1000  # characters of an attribute that are kept
MAX_CHANNELS = 64  # of one data set
MAX_LEVELS = 1000 * MAX_CHANNELS  # of one variable


# Coordinates


def find_variable(dataset: xr.Dataset, role: str) -> str | None:
    """The variable with this role: by its name, standard_name, units, or axis.

    Args:
        dataset: to be searched.
        role: a key of NAMES, such as "lat" or "time".
    """
    by_name = {str(name).lower(): str(name) for name in dataset.variables}
    for alias in NAMES[role]:
        if alias in by_name:
            return by_name[alias]
    tests = (
        ("standard_name", STANDARD_NAMES.get(role, ())),
        ("units", DEGREES.get(role, ())),
        ("axis", (AXIS_LETTERS.get(role, "-"),)),
    )
    for key, accepted in tests:
        for name, variable in dataset.variables.items():
            text = str(variable.attrs.get(key, ""))
            if text in accepted or (key == "units" and text.lower() in accepted):
                return str(name)
    return None


def find_axes(dataset: xr.Dataset, geometry: Kind | None) -> tuple[Kind, str, str]:
    """The geometry and its two axes: lat and lon, or x and y where there are none.

    Args:
        dataset: to be searched.
        geometry: that the user states; None: the data set decides.
    """
    sphere = find_variable(dataset, "lat"), find_variable(dataset, "lon")
    plane = find_variable(dataset, "x"), find_variable(dataset, "y")
    if all(sphere) and not (geometry == "plane" and all(plane)):
        if geometry == "plane":
            return "plane", str(sphere[1]), str(sphere[0])
        return "sphere", str(sphere[0]), str(sphere[1])
    if all(plane):
        if geometry == "sphere":
            return "sphere", str(plane[1]), str(plane[0])
        return "plane", str(plane[0]), str(plane[1])
    raise DataError(
        f"No coordinates among {sorted(map(str, dataset.variables))}; expected lat and lon "
        "(degrees) for points on the earth, or x and y for points on a plane."
    )


def load(dataset: xr.Dataset, name: str, origin: str) -> np.ndarray:
    """The values of a coordinate, if they fit in memory.

    Args:
        dataset: that holds the variable.
        name: of the variable.
        origin: the file, for messages.
    """
    variable = dataset.variables[name]
    check_memory(int(variable.nbytes), f"variable '{name}'", origin)
    return np.asarray(variable.values)


def load_numbers(dataset: xr.Dataset, name: str, origin: str) -> np.ndarray:
    """The values of a coordinate as float64.

    Args:
        dataset: that holds the variable.
        name: of the variable.
        origin: the file, for messages.
    """
    array = load(dataset, name, origin)
    if array.dtype.kind not in "fiu":
        raise DataError(f"'{name}' has type {array.dtype}; expected numbers.")
    return array.astype(np.float64)


# Stations


def station_names(
    dataset: xr.Dataset, dim: str, origin: str, use_dim: bool = True
) -> tuple[str, ...]:
    """Names along `dim`: by cf_role timeseries_id, by a usual name or, with `use_dim`, its own.

    Args:
        dataset: to be searched.
        dim: of the stations.
        origin: the file, for messages.
        use_dim: whether the coordinate of the dim itself may hold the names.
    """
    by_role = [
        str(name)
        for name, variable in dataset.variables.items()
        if variable.attrs.get("cf_role") == "timeseries_id"
    ]
    axes = {find_variable(dataset, axis) for axis in ("lat", "lon", "x", "y", "time")}
    last = dim if use_dim and dim not in axes else None
    for name in (*by_role, find_variable(dataset, "station"), last):
        if name and name in dataset.variables and dataset.variables[name].dims[:1] == (dim,):
            array = load(dataset, name, origin)
            if array.ndim == 2 and array.dtype.kind in "SU":  # characters along a second dim
                empty = array.dtype.type()
                array = np.array([empty.join(row.tolist()) for row in array])
            if array.ndim == 1 and array.dtype.kind in "SUOTiuf":
                return tuple(map(name_text, array.tolist()))
    return ()


def name_text(name: Any) -> str:
    """The name of a station as text, from characters, bytes or a number.

    Args:
        name: as the file stores it.
    """
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    if isinstance(name, float) and name.is_integer():  # an integer column with missing values
        name = int(name)
    return str(name).strip("\0 ")


def unique_names(names: tuple[str, ...], notes: list[str]) -> tuple[str, ...]:
    """The names if they are unique, otherwise none, and a note.

    Args:
        names: of all stations.
        notes: a sentence is appended if names repeat.
    """
    if len(set(names)) == len(names):
        return names
    counts = Counter(names)
    repeated = next(name for name in names if counts[name] > 1)
    notes.append(f"Station names are not unique ('{repeated}'), so the stations are numbered.")
    return ()


def site_attributes(
    dataset: xr.Dataset, space: tuple[str, ...], origin: str, cuts: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Numbers of each point: all that stations have, the altitude of a grid.

    Args:
        dataset: to be searched.
        space: the dims of the points.
        origin: the file, for messages.
        cuts: positions that are kept along a dim, by dim.
    """
    altitude = find_variable(dataset, "altitude")
    roles = ("lat", "lon", "x", "y", "station", "time")
    used = {find_variable(dataset, role) for role in roles}
    attributes: dict[str, np.ndarray] = {}
    for name, variable in dataset.variables.items():
        wanted = name == altitude if len(space) > 1 else name not in (*used, *space)
        if not wanted or set(variable.dims) != set(space) or variable.dtype.kind not in "fiu":
            continue
        if not space or variable.attrs.keys() & {"cf_role", "sample_dimension"}:
            continue
        array = load_numbers(dataset, str(name), origin)
        array = array.transpose([variable.dims.index(dim) for dim in space])
        array = array[np.ix_(*(cuts.get(dim, np.arange(dataset.sizes[dim])) for dim in space))]
        attributes["altitude" if name == altitude else str(name)] = array.ravel()
    return attributes


def global_attributes(dataset: xr.Dataset) -> dict[str, Any]:
    """Global attributes that are kept with the values.

    Args:
        dataset: as read.
    """
    return {str(k): v for k, v in dataset.attrs.items() if k not in ("Conventions", "featureType")}


# Channels


@dataclass(frozen=True)
class Channel:
    """A variable, or one level of it.

    Args:
        name: of the channel.
        variable: its name in the file.
        unit: "" if the file has none.
        levels: the index along each further dim, in the array's order.
        attrs: CF attributes that are kept.
    """

    name: str
    variable: str
    unit: str
    levels: dict[str, int]
    attrs: dict[str, Any] = field(default_factory=dict)


def find_channels(
    dataset: xr.Dataset, dims: tuple[str, ...], origin: str, config: ReadConfig
) -> tuple[list[Channel], list[str]]:
    """The requested numeric variables over `dims`, or all; and notes on what is left out.

    A further dim of several levels gives a channel for each level, such as `r_850`. A channel is
    requested by its own name, or with all others of its variable by the variable's name.

    Args:
        dataset: to be searched.
        dims: that every channel must have.
        origin: the file, for messages.
        config: its `variables` are the requested ones; empty: all.
    """
    candidates: list[Channel] = []
    skipped: list[str] = []
    roles = ("lat", "lon", "time", "station", *(("x", "y", "altitude") if len(dims) == 1 else ()))
    taken = {find_variable(dataset, role) for role in roles}  # if they are not coordinates
    for name, array in dataset.data_vars.items():
        if name in taken or array.attrs.keys() & {"cf_role", "instance_dimension"}:
            continue
        if set(dims) <= set(array.dims) and array.dtype.kind in "fiub" and array.size:
            candidates += _levels(dataset, str(name), dims, origin)
        elif set(dims) <= set(array.dims):
            skipped.append(str(name))
    if not candidates:
        listing = ", ".join(f"{name}{array.dims}" for name, array in dataset.data_vars.items())
        raise DataError(
            f"No numeric variable over the dims {sorted(dims)}; there are: {listing or 'none'}."
        )
    requested = set(config.variables)
    chosen = [c for c in candidates if c.name in requested or c.variable in requested]
    chosen = chosen if requested and chosen else candidates
    if len(chosen) > MAX_CHANNELS:
        some = ", ".join(channel.name for channel in chosen[:5])
        raise UsageError(
            f"'{origin}' has {len(chosen)} channels ({some}, ...), and at most {MAX_CHANNELS} are "
            f"read. Choose some, e.g. variables=['{chosen[0].name}'] "
            f"(--variables {chosen[0].name})."
        )
    notes = [f"Left out, since not numeric: {', '.join(skipped)}."] if skipped else []
    return chosen, notes


def _levels(
    dataset: xr.Dataset, name: str, dims: tuple[str, ...], origin: str
) -> Iterator[Channel]:
    """A channel for each combination of levels along the dims beyond `dims`."""
    array = dataset[name]
    unit = str(array.attrs.get("units", "")).strip()
    extra = [str(dim) for dim in array.dims if dim not in dims]
    labels = [_level_labels(dataset, dim, origin) for dim in extra]
    count = int(np.prod([len(row) for row in labels], dtype=object))
    if count > MAX_LEVELS:
        raise UsageError(
            f"'{origin}': '{name}' has {count} levels over {extra}; select some of them first."
        )
    for index in itertools.product(*(range(len(row)) for row in labels)):
        parts = [row[i] for row, i in zip(labels, index, strict=True) if len(row) > 1]
        levels = dict(zip(extra, index, strict=True))
        yield Channel("_".join([name, *parts]), name, unit, levels, channel_attributes(array))


def channel_attributes(array: xr.DataArray) -> dict[str, Any]:
    """The CF attributes of a variable that are kept with its values.

    Args:
        array: the variable as read.
    """
    given = [key for key in CHANNEL_ATTRIBUTES if key in array.attrs]
    kept: dict[str, Any] = {key: str(array.attrs[key])[:MAX_ATTRIBUTE] for key in given}
    limits = zip(("valid_min", "valid_max"), _valid_range(array), strict=True)
    return kept | {key: value for key, value in limits if value is not None}


def _level_labels(dataset: xr.Dataset, dim: str, origin: str) -> list[str]:
    """Each level's label: its coordinate, or its number."""
    size = dataset.sizes[dim]
    if dim in dataset.variables and dataset.variables[dim].dims == (dim,):
        values = load(dataset, dim, origin)
        texts = [f"{v:g}" if values.dtype.kind in "fiu" else str(v) for v in values.tolist()]
        if len(set(texts)) == size:
            return texts
    return [str(number) for number in range(size)]


def decode_values(array: xr.DataArray) -> np.ndarray:
    """The values as float32, NaN where missing or outside the valid range.

    Args:
        array: one block of a variable, as stored.
    """
    values = np.asarray(array.values)
    low, high = _valid_range(array)
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: infinite
        decoded = values.astype(np.float32)
        if low is not None:
            decoded = np.where(values < low, np.float32("nan"), decoded)
        if high is not None:
            decoded = np.where(values > high, np.float32("nan"), decoded)
    return decoded


def _valid_range(array: xr.DataArray) -> tuple[float | None, float | None]:
    """CF's valid_min and valid_max or valid_range, given as packed numbers if values are packed."""
    attrs, encoding = array.attrs, array.encoding
    both = np.atleast_1d(attrs.get("valid_range", []))
    low, high = both if both.size == 2 else (attrs.get("valid_min"), attrs.get("valid_max"))
    scale, offset = encoding.get("scale_factor", 1.0), encoding.get("add_offset", 0.0)
    packed = np.dtype(encoding.get("dtype") or "f8").kind in "iu" and (scale, offset) != (1, 0)

    def limit(number: Any) -> float | None:
        given = np.atleast_1d(number if number is not None else np.nan)
        if given.size != 1 or given.dtype.kind not in "iuf" or np.isnan(float(given[0])):
            return None
        value = float(given[0])
        is_packed = packed and given.dtype.kind in "iu"  # packed numbers are integers
        return value * float(scale) + float(offset) if is_packed else value

    limits = limit(low), limit(high)
    if None not in limits and limits[0] > limits[1]:  # type: ignore[operator]
        limits = limits[1], limits[0]  # a negative scale reverses them
    return limits
