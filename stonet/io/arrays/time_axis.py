"""Times of the frames of a data set: valid times, or issue times and leads; calendars."""

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
from stonet.io.arrays.variables import find_variable, load

if TYPE_CHECKING:
    import xarray as xr

MISSING_TIME = np.iinfo(np.int64).min
STANDARD_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
UNIT_NAMES = {
    "nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s", "sec": "s",
    "minute": "min", "mins": "min", "hour": "h", "hr": "h", "day": "d",
}  # fmt: skip


@dataclass(frozen=True)
class TimeAxis:
    """The times of the frames, in the order of the dims.

    Args:
        dims: none for a single frame, two for (issue time, lead).
        times: of the frames in nanoseconds.
        calendar: whether `times` are dates.
        reference_time: of a single forecast, its issue time.
    """

    dims: tuple[str, ...]
    times: Int64[np.ndarray, " time"]
    calendar: bool
    reference_time: int | None = None


def read_time_axis(dataset: xr.Dataset, origin: str) -> TimeAxis:
    """The valid times of all frames.

    Args:
        dataset: with decoded times.
        origin: the file, for messages.
    """
    time, lead = _valid_time_name(dataset), find_variable(dataset, "lead")
    if lead is not None and dataset.variables[lead].ndim == 1:
        lead_dim = dataset.variables[lead].dims[0]
        valid = () if time is None else dataset.variables[time].dims
        if lead_dim not in valid or len(valid) == 2:  # the valid times of several forecasts
            return _forecast_times(dataset, lead, origin)
    if time is None:
        raise DataError(
            f"No time coordinate among {sorted(map(str, dataset.variables))}; expected one of "
            f"{', '.join(ALIASES['time'])}."
        )
    times, calendar = read_times(dataset, time, origin)
    dims = tuple(map(str, dataset.variables[time].dims))
    if len(dims) > 1:
        raise DataError(f"'{time}' has dims {dims}; expected one dim, that of the frames.")
    return TimeAxis(dims, times, calendar, _reference_time(dataset, origin))


def _valid_time_name(dataset: xr.Dataset) -> str | None:
    """`valid_time` where it stands beside a `time` that is the issue time."""
    time, valid = find_variable(dataset, "time"), dataset.variables.get("valid_time")
    if time is not None and valid is not None and valid.ndim <= 1:
        dims = dataset.variables[time].dims
        return "valid_time" if valid.dims == dims or not dims else time
    return time


def _forecast_times(dataset: xr.Dataset, lead: str, origin: str) -> TimeAxis:
    """Issue time + lead, for one forecast or for several that do not overlap."""
    issue = find_variable(dataset, "init") or find_variable(dataset, "time")
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
            "leads shorter than the time between two issue times."
        )
    dims = (*map(str, dataset.variables[issue].dims), *map(str, dataset.variables[lead].dims))
    reference = int(issued[0]) if len(issued) == 1 else None
    return TimeAxis(dims, times, calendar, reference)


def _reference_time(dataset: xr.Dataset, origin: str) -> int | None:
    name = find_variable(dataset, "init")
    if name is None or dataset.variables[name].size != 1:
        return None
    return int(read_times(dataset, name, origin)[0][0])


def read_times(
    dataset: xr.Dataset, name: str, origin: str, gaps: bool = False
) -> tuple[np.ndarray, bool]:
    """A time variable in nanoseconds, and whether it holds dates.

    Numbers count in their `units`, or in seconds without them.

    Args:
        dataset: holds the variable.
        name: the variable.
        origin: the file, for messages.
        gaps: whether missing times are allowed; they become `MISSING_TIME`.
    """
    variable = dataset.variables[name]
    array = np.atleast_1d(load(dataset, name, origin))
    units = str(variable.attrs.get("units", "s"))
    if array.dtype.kind == "O":
        array = _from_cftime(array, name)
    if array.dtype.kind in "iuf" and " since " in units:
        array = _decoded(array, variable.attrs)
    if array.dtype.kind in "Mm":
        missing = np.isnat(array)
        exact = nanoseconds(array[~missing] if gaps else array)
        exact = _without_rounding_error(exact, variable.encoding)
        if gaps:
            times = np.full(array.shape, MISSING_TIME)
            times[~missing] = exact
            exact = times
        return exact, array.dtype.kind == "M"
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"'{name}' has type {array.dtype}; expected dates of the standard calendar, or numbers."
        )
    return _elapsed(array, units, gaps), False


def _elapsed(array: np.ndarray, units: str, gaps: bool) -> np.ndarray:
    """Numbers of a unit in nanoseconds; integers stay exact."""
    unit = units.strip().lower()
    unit = UNIT_NAMES.get(unit.removesuffix("s"), UNIT_NAMES.get(unit, unit))
    length = UNITS.get(unit, 0)
    missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    numbers = np.where(missing, 0, array)
    too_long = (np.abs(numbers * float(length)) >= 2.0**63).any()
    if not length or (missing.any() and not gaps) or too_long:
        raise DataError(
            f"Time is in '{units}', from {array.min():g} to {array.max():g}; expected finite "
            f"numbers, of at most 292 years, in one of {', '.join(UNITS)}; or a unit such as "
            "'hours since 2000-01-01'."
        )
    if numbers.dtype.kind in "iu":
        exact = numbers.astype(np.int64) * length
    else:
        exact = np.rint(numbers * float(length)).astype(np.int64)
    return np.where(missing, MISSING_TIME, exact)


def _decoded(array: np.ndarray, attrs: Any) -> np.ndarray:
    """Dates of 'hours since 2000-01-01' in an object that was not decoded."""
    import xarray as xr

    _check_calendar(str(attrs.get("calendar", "standard")))
    raw = xr.Dataset({"t": (tuple("abc"[: array.ndim]), array, dict(attrs))})
    return np.asarray(xr.decode_cf(raw, decode_timedelta=False)["t"].values)


def check_calendars(dataset: xr.Dataset) -> None:
    """Refuse times of other calendars than the standard one before xarray decodes them.

    Args:
        dataset: with times that are not decoded yet.
    """
    for variable in dataset.variables.values():
        if " since " in str(variable.attrs.get("units", "")):
            _check_calendar(str(variable.attrs.get("calendar", "standard")))


def _check_calendar(calendar: str) -> None:
    if calendar.lower() not in STANDARD_CALENDARS:
        raise DataError(
            f"Time has the calendar '{calendar}'; expected the standard calendar. Convert it "
            "first: xarray's convert_calendar('standard', align_on='date')."
        )


def _from_cftime(array: np.ndarray, name: str) -> np.ndarray:
    """Cftime's dates of the standard calendar as datetime64."""
    first: Any = array.ravel()[0] if array.size else None
    if not hasattr(first, "calendar") or not hasattr(first, "isoformat"):
        raise DataError(f"'{name}' has type {type(first).__name__}; expected dates or numbers.")
    _check_calendar(str(first.calendar))
    flat = [np.datetime64(date.isoformat(), "us") for date in array.ravel()]
    return np.array(flat, "datetime64[us]").reshape(array.shape)


def _without_rounding_error(times: np.ndarray, encoding: Any) -> np.ndarray:
    """Times rounded to what their floating-point unit resolves: 05:59:59.9999997 becomes 06:00."""
    dtype, units = encoding.get("dtype"), str(encoding.get("units", ""))
    if dtype is None or np.dtype(dtype).kind != "f" or not times.size:
        return times
    unit = units.split(" since ")[0].strip().lower()
    length = UNITS.get(UNIT_NAMES.get(unit.removesuffix("s"), unit), 0)
    epoch = _epoch(units, encoding) if " since " in units else 0.0
    span = max(1.0, float(np.abs(times - epoch).max()) / length) if length else 1.0
    error = float(np.spacing(np.dtype(dtype).type(span))) * length
    grid = next((UNITS[u] for u in ("us", "ms", "s", "min") if UNITS[u] >= error), 1)
    return times if error < 1 else (times + grid // 2) // grid * grid


def _epoch(units: str, encoding: Any) -> float:
    """The date from which 'days since 2019-01-01' counts, roughly, in nanoseconds."""
    attrs = {"units": units, "calendar": encoding.get("calendar", "standard")}
    start = _decoded(np.zeros(1), attrs)
    start = _from_cftime(start, units) if start.dtype.kind == "O" else start
    return float(start.astype("datetime64[us]").astype(np.int64)[0]) * 1e3
