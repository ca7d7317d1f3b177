"""When the frames of a data set are: times, forecasts' issue times and leads, calendars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.data.cf import ALIASES
from stonet.data.dates import nanoseconds
from stonet.data.durations import UNITS
from stonet.data.field import time_label
from stonet.errors import DataError
from stonet.io.arrays.coordinates import find, loaded

if TYPE_CHECKING:
    import xarray as xr

STANDARD_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
WORDS = {
    "nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s", "sec": "s",
    "minute": "min", "mins": "min", "hour": "h", "hr": "h", "day": "d",
}  # fmt: skip


@dataclass(frozen=True)
class Timeline:
    """The frames, in the order in which the dims run."""

    dims: tuple[str, ...]  # none for a single frame, two for (issue time, lead)
    times: Int64[np.ndarray, " time"]
    calendar: bool
    reference_time: int | None = None


def timeline(dataset: xr.Dataset, origin: str) -> Timeline:
    """Of valid times, whichever way the data set tells them."""
    time, lead = _valid_name(dataset), find(dataset, "lead")
    if lead is not None and dataset.variables[lead].ndim == 1:
        along = dataset.variables[lead].dims[0]
        if time is None or along not in dataset.variables[time].dims:
            return _forecasts(dataset, lead, origin)
    if time is None:
        raise DataError(
            f"No time coordinate among {sorted(map(str, dataset.variables))}; expected one of "
            f"{', '.join(ALIASES['time'])}."
        )
    times, calendar = read_times(dataset, time, origin)
    dims = tuple(map(str, dataset.variables[time].dims))
    if len(dims) > 1:
        raise DataError(
            f"'{time}' has dims {dims}; expected one dim, along which the frames follow one "
            "another."
        )
    return Timeline(dims, times, calendar, _reference(dataset, origin))


def _valid_name(dataset: xr.Dataset) -> str | None:
    """`valid_time` where it stands beside a `time` that is the forecast's issue time."""
    time, valid = find(dataset, "time"), dataset.variables.get("valid_time")
    if time is not None and valid is not None and valid.ndim <= 1:
        own = dataset.variables[time].dims
        return "valid_time" if valid.dims == own or not own else time
    return time


def _forecasts(dataset: xr.Dataset, lead: str, origin: str) -> Timeline:
    """Issue time + lead, for one forecast or for many that do not overlap."""
    issue = find(dataset, "init") or find(dataset, "time")
    if issue is None or dataset.variables[issue].ndim > 1:
        raise DataError(
            f"'{lead}' counts from an issue time, and there is none of one dim; expected `time`, "
            "`init_time` or `forecast_reference_time`."
        )
    issued, calendar = read_times(dataset, issue, origin)
    leads, dated = read_times(dataset, lead, origin)
    if dated:
        raise DataError(f"'{lead}' holds dates; expected durations since '{issue}'.")
    times = (issued[:, None] + leads[None]).ravel()
    if len(np.unique(times)) < len(times):
        values, count = np.unique(times, return_counts=True)
        first = time_label(int(values[count > 1][0]), calendar)
        raise DataError(
            f"{len(issued)} forecasts of {len(leads)} leads overlap: {int((count > 1).sum())} "
            f"times are forecast more than once (first: {first}). Select one '{issue}', or "
            "leads shorter than the time between two of them."
        )
    dims = (*map(str, dataset.variables[issue].dims), *map(str, dataset.variables[lead].dims))
    single = int(issued[0]) if len(issued) == 1 else None
    return Timeline(dims, times, calendar, single)


def _reference(dataset: xr.Dataset, origin: str) -> int | None:
    name = find(dataset, "init")
    if name is None or dataset.variables[name].size != 1:
        return None
    return int(read_times(dataset, name, origin)[0][0])


def read_times(
    dataset: xr.Dataset, name: str, origin: str, gaps: bool = False
) -> tuple[np.ndarray, bool]:
    """Nanoseconds, and whether they are dates; numbers count in their `units`, else in seconds.

    With `gaps`, missing times are the smallest int64.
    """
    variable = dataset.variables[name]
    array = np.atleast_1d(loaded(dataset, name, origin))
    units = str(variable.attrs.get("units", "s"))
    if array.dtype.kind == "O":
        array = _plain_dates(array, name)
    if array.dtype.kind in "iuf" and " since " in units:
        array = _decoded(array, variable.attrs)
    if array.dtype.kind in "Mm":
        missing = np.isnat(array)
        exact = nanoseconds(array[~missing] if gaps else array)
        exact = _snapped(exact, variable.encoding)
        if gaps:
            whole = np.full(array.shape, np.iinfo(np.int64).min)
            whole[~missing] = exact
            exact = whole
        return exact, array.dtype.kind == "M"
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"'{name}' has type {array.dtype}; expected dates of the standard calendar, or numbers."
        )
    return _counted(array, units, gaps), False


def _counted(array: np.ndarray, units: str, gaps: bool) -> np.ndarray:
    """Numbers in their unit as nanoseconds; whole ones stay exact."""
    unit = units.strip().lower()
    unit = WORDS.get(unit.removesuffix("s"), WORDS.get(unit, unit))
    size = UNITS.get(unit, 0)
    missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    known = np.where(missing, 0, array)
    if not size or (missing.any() and not gaps) or (np.abs(known * float(size)) >= 2.0**63).any():
        raise DataError(
            f"Time is in '{units}', from {array.min():g} to {array.max():g}; expected finite "
            f"numbers, of at most 292 years, in one of {', '.join(UNITS)}; or 'hours since "
            "2000-01-01' and the like."
        )
    if known.dtype.kind in "iu":
        exact = known.astype(np.int64) * size
    else:
        exact = np.rint(known * float(size)).astype(np.int64)
    return np.where(missing, np.iinfo(np.int64).min, exact)


def _decoded(array: np.ndarray, attrs: Any) -> np.ndarray:
    """'hours since 2000-01-01' in an object whose maker did not decode it."""
    import xarray as xr

    _check_calendar(str(attrs.get("calendar", "standard")))
    raw = xr.Dataset({"t": (tuple("abc"[: array.ndim]), array, dict(attrs))})
    return np.asarray(xr.decode_cf(raw, decode_timedelta=False)["t"].values)


def check_calendars(dataset: xr.Dataset) -> None:
    """Refuse times of other calendars before xarray tries to decode them."""
    for variable in dataset.variables.values():
        if " since " in str(variable.attrs.get("units", "")):
            _check_calendar(str(variable.attrs.get("calendar", "standard")))


def _check_calendar(calendar: str) -> None:
    if calendar.lower() not in STANDARD_CALENDARS:
        raise DataError(
            f"Time has the calendar '{calendar}', whose days are none of ours (UTC). Convert it "
            "first: xarray's convert_calendar('standard', align_on='date')."
        )


def _plain_dates(array: np.ndarray, name: str) -> np.ndarray:
    """Cftime's dates, of the calendars that are ours."""
    first: Any = array.ravel()[0] if array.size else None
    if not hasattr(first, "calendar") or not hasattr(first, "isoformat"):
        raise DataError(f"'{name}' has type {type(first).__name__}; expected dates or numbers.")
    _check_calendar(str(first.calendar))
    flat = [np.datetime64(date.isoformat(), "us") for date in array.ravel()]
    return np.array(flat, "datetime64[us]").reshape(array.shape)


def _snapped(times: np.ndarray, encoding: Any) -> np.ndarray:
    """Without the crumbs that days as floating-point numbers leave: 05:59:59.9999997 is 6 h."""
    dtype, units = encoding.get("dtype"), str(encoding.get("units", ""))
    if dtype is None or np.dtype(dtype).kind != "f" or not times.size:
        return times
    word = units.split(" since ")[0].strip().lower()
    size = UNITS.get(WORDS.get(word.removesuffix("s"), word), 0)
    since = _since(units, encoding) if " since " in units else 0.0
    span = max(1.0, float(np.abs(times - since).max()) / size) if size else 1.0
    crumb = float(np.spacing(np.dtype(dtype).type(span))) * size
    grid = next((UNITS[u] for u in ("us", "ms", "s", "min") if UNITS[u] >= crumb), 1)
    return times if crumb < 1 else (times + grid // 2) // grid * grid


def _since(units: str, encoding: Any) -> float:
    """The date from which 'days since 2019-01-01' counts, in nanoseconds; roughly is enough."""
    told = {"units": units, "calendar": encoding.get("calendar", "standard")}
    start = _decoded(np.zeros(1), told)
    start = _plain_dates(start, units) if start.dtype.kind == "O" else start
    return float(start.astype("datetime64[us]").astype(np.int64)[0]) * 1e3
