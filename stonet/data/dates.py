"""Times as users write them, in nanoseconds: dates, durations, datetime and timedelta objects.

A date stands for a period as long as it is written: "2019-03" is a month.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import numpy as np

from stonet.data.durations import SECOND, parse_duration
from stonet.errors import DataError, UsageError

YEARS = (1678, 2261)  # the range of 64-bit nanoseconds
DIGITS_ONLY = re.compile(
    r"([0-9]{4})([0-9]{2})(?:([0-9]{2})(?:T?([0-9]{2})(?:([0-9]{2})([0-9]{2})?)?)?)?"
)

# pandas' Timestamp is a datetime, its Timedelta a timedelta
Time = str | int | date | timedelta | np.integer | np.datetime64 | np.timedelta64
Times = Time | Iterable[Time]


def parse_date(text: str) -> np.datetime64:
    """A date in UTC, in the unit in which it is written, so that `date + 1` is the next one.

    Args:
        text: ISO (2019, 2019-03, 2019-03-15T06:00Z) or its digits alone: 6, 8, 10, 12 or 14.

    Example:
        >>> parse_date("201903"), parse_date("2019031506")
        (np.datetime64('2019-03'), np.datetime64('2019-03-15T06','h'))
    """
    plain = text.strip().removesuffix("Z")
    digits = DIGITS_ONLY.fullmatch(plain)
    if digits:  # numpy would take the digits as a year, and overflow
        parts = [part for part in digits.groups() if part]
        plain = "T".join(filter(None, ["-".join(parts[:3]), ":".join(parts[3:])]))
    year = re.match(r"[+-]?[0-9]+", plain)  # as written: numpy's may have overflowed
    try:
        parsed = np.datetime64(plain)
        in_range = not year or YEARS[0] <= int(year[0]) <= YEARS[1]
    except ValueError:
        parsed, in_range = np.datetime64("NaT"), True
    if np.isnat(parsed):
        raise UsageError(
            f"'{text}' is not a date; write e.g. 2019-03-15, 2019-03-15T06:00 or 201903."
        )
    if not in_range:
        raise UsageError(
            f"'{text}' lies outside the years {YEARS[0]} to {YEARS[1]}, the range of 64-bit "
            "nanoseconds; write a date e.g. as 2019, 201903, 20190315 or 2019-03-15."
        )
    return parsed


def time_bounds(time: Time, calendar: bool) -> tuple[int, int]:
    """First and last nanosecond of a time as it is written: "2019-03" is a month.

    Args:
        time: a date; without a calendar, a duration since zero; or nanoseconds.
        calendar: whether times are dates.
    """
    if isinstance(time, date) and not isinstance(time, datetime):
        time = time.isoformat()
    if not isinstance(time, str):
        return (_in_nanoseconds(time, calendar),) * 2
    if not calendar:
        return (parse_duration(time),) * 2
    parsed = parse_date(time)
    first, following = (bound.astype("datetime64[ns]") for bound in (parsed, parsed + 1))
    return int(first.astype(np.int64)), int(following.astype(np.int64)) - 1


def parse_time(time: Time, calendar: bool, issue_time: int | None = None) -> int:
    """A single time in nanoseconds.

    Args:
        time: a date, nanoseconds, or a lead: "+90min" or a timedelta.
        calendar: whether times are dates.
        issue_time: to which leads are added (None: leads are refused).
    """
    if isinstance(time, str) and time.startswith("+") and issue_time is not None:
        return issue_time + parse_duration(time[1:])
    if _is_duration(time) and issue_time is not None:
        return issue_time + _in_nanoseconds(time, calendar=False)
    if isinstance(time, str) and not calendar:
        raise UsageError(
            f"'{time}' is not a time of a field without a calendar; write a lead such as '+0.004s'."
        )
    try:
        return time_bounds(time, calendar)[0]
    except UsageError as error:
        hint = "" if issue_time is None else " Or write a lead such as '+1h30min'."
        raise UsageError(f"{error}{hint}") from None


def time_label(nanoseconds: int, calendar: bool) -> str:
    """A time for messages: a date, or seconds since zero.

    Args:
        nanoseconds: since 1970 UTC, or since zero.
        calendar: whether the time is a date.
    """
    if calendar:
        return str(np.datetime64(nanoseconds, "ns").astype("datetime64[s]")) + "Z"
    return f"{nanoseconds / SECOND:g} s"


def nanoseconds(times: np.ndarray) -> np.ndarray:
    """Dates or durations as int64; refuses NaT and what lies outside 64-bit nanoseconds.

    Args:
        times: datetime64 or timedelta64 of any unit.
    """
    exact = times.astype(f"{times.dtype.kind}8[ns]")
    if (np.isnat(times) | (exact.astype(times.dtype) != times)).any():
        raise DataError(
            "Some times are missing (NaT) or outside the years 1678 to 2262, the range of 64-bit "
            "nanoseconds. Drop or shift them."
        )
    return exact.astype(np.int64)


def as_list(times: Times) -> list[Time]:
    """One time or several of them, as a list.

    Args:
        times: any of the types that the public functions take.
    """
    if isinstance(times, (str, int, date, timedelta, np.generic)):
        return [times]
    return list(times)


def _is_duration(time: Time) -> bool:
    return isinstance(time, (timedelta, np.timedelta64))


def _in_nanoseconds(time: Time, calendar: bool) -> int:
    """A number, date or duration that is not text, exactly."""
    if isinstance(time, (int, np.integer)) and not isinstance(time, np.timedelta64):
        return int(time)
    expected = "a date" if calendar else "a duration since zero"
    if _is_duration(time) == calendar:
        raise UsageError(f"{time!r} was given; expected {expected}, since the times are such.")
    if isinstance(time, datetime) and time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    for convert in ("to_datetime64", "to_timedelta64"):  # pandas' objects have nanoseconds
        time = getattr(time, convert)() if hasattr(time, convert) else time
    kind = "datetime64" if calendar else "timedelta64"
    try:
        given = np.asarray(time, dtype=None if isinstance(time, np.generic) else f"{kind}[us]")
        exact = given.astype(f"{kind}[ns]")
    except (TypeError, ValueError):
        raise UsageError(f"{time!r} is not a time; expected {expected}.") from None
    if np.isnat(given) or exact.astype(given.dtype) != given:
        raise UsageError(
            f"{time!r} is missing or lies outside the years {YEARS[0]} to {YEARS[1]}, the range "
            "of 64-bit nanoseconds."
        )
    return int(exact.astype(np.int64))
