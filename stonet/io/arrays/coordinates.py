"""Which variables of a data set say where and when: by name, or by what CF says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stonet.data.cf import ALIASES
from stonet.errors import DataError
from stonet.io.safety import fitting

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
DEGREES = {  # CF lets these be written in many ways
    "lat": {f"degree{s}{n}" for s in ("", "s") for n in ("_north", "_n", "n")},
    "lon": {f"degree{s}{n}" for s in ("", "s") for n in ("_east", "_e", "e")},
}
LETTERS = {"time": "T", "x": "X", "y": "Y"}


def find(dataset: xr.Dataset, what: str) -> str | None:
    """The variable that plays this part: by its name, standard_name, units, or axis."""
    by_name = {str(name).lower(): str(name) for name in dataset.variables}
    for alias in NAMES[what]:
        if alias in by_name:
            return by_name[alias]
    tests = (
        ("standard_name", STANDARD_NAMES.get(what, ())),
        ("units", DEGREES.get(what, ())),
        ("axis", (LETTERS.get(what, "-"),)),
    )
    for key, accepted in tests:
        for name, variable in dataset.variables.items():
            said = str(variable.attrs.get(key, ""))
            if said in accepted or (key == "units" and said.lower() in accepted):
                return str(name)
    return None


def places(dataset: xr.Dataset, geometry: str | None) -> tuple[str, str, str]:
    """The kind of space and its two axes: lat and lon, or x and y where there are none."""
    sphere = find(dataset, "lat"), find(dataset, "lon")
    plane = find(dataset, "x"), find(dataset, "y")
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


def loaded(dataset: xr.Dataset, name: str, origin: str) -> np.ndarray:
    """A coordinate's values, if they fit in memory."""
    variable = dataset.variables[name]
    fitting(int(variable.nbytes), f"variable '{name}'", origin)
    return np.asarray(variable.values)


def numbers(dataset: xr.Dataset, name: str, origin: str) -> np.ndarray:
    """A coordinate's values as float64."""
    array = loaded(dataset, name, origin)
    if array.dtype.kind not in "fiu":
        raise DataError(f"'{name}' has type {array.dtype}; expected numbers.")
    return array.astype(np.float64)


def station_names(dataset: xr.Dataset, dim: str, origin: str, own: bool = True) -> tuple[str, ...]:
    """Names along the dim: by the role timeseries_id, by a usual name, or the dim's `own`."""
    roles = [
        str(name)
        for name, variable in dataset.variables.items()
        if variable.attrs.get("cf_role") == "timeseries_id"
    ]
    places = {find(dataset, axis) for axis in ("lat", "lon", "x", "y", "time")}
    last = dim if own and dim not in places else None
    for name in (*roles, find(dataset, "station"), last):
        if name and name in dataset.variables and dataset.variables[name].dims[:1] == (dim,):
            array = loaded(dataset, name, origin)
            if array.ndim == 2 and array.dtype.kind in "SU":  # letters along a second dim
                empty = array.dtype.type()
                array = np.array([empty.join(row.tolist()) for row in array])
            if array.ndim == 1 and array.dtype.kind in "SUOTiuf":
                return tuple(map(as_text, array.tolist()))
    return ()


def as_text(name: Any) -> str:
    """A station's name, from letters, bytes or a number."""
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    if isinstance(name, float) and name.is_integer():  # a whole number that may be missing
        name = int(name)
    return str(name).strip("\0 ")


def unique(names: tuple[str, ...], notes: list[str]) -> tuple[str, ...]:
    """Names that tell stations apart, or none."""
    if len(set(names)) == len(names):
        return names
    seen: set[str] = set()
    twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    notes.append(f"Station names are not unique ('{twice}'), so the stations are numbered.")
    return ()


def site_numbers(
    dataset: xr.Dataset, space: tuple[str, ...], origin: str, cuts: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Numbers of each point: every one that stations have, the altitude of a grid."""
    altitude = find(dataset, "altitude")
    used = {find(dataset, part) for part in ("lat", "lon", "x", "y", "station", "time")}
    found: dict[str, np.ndarray] = {}
    for name, variable in dataset.variables.items():
        wanted = name == altitude if len(space) > 1 else name not in (*used, *space)
        if not wanted or set(variable.dims) != set(space) or variable.dtype.kind not in "fiu":
            continue
        if not space or variable.attrs.keys() & {"cf_role", "sample_dimension"}:
            continue
        array = numbers(dataset, str(name), origin)
        array = array.transpose([variable.dims.index(dim) for dim in space])
        array = array[np.ix_(*(cuts.get(dim, np.arange(dataset.sizes[dim])) for dim in space))]
        found["altitude" if name == altitude else str(name)] = array.ravel()
    return found


def carried(dataset: xr.Dataset) -> dict[str, Any]:
    """Free notes that go with the values."""
    return {str(k): v for k, v in dataset.attrs.items() if k not in ("Conventions", "featureType")}
