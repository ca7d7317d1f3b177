"""Dates that people write: 2019, 2019-03, 20190315T06; each as long as it is written."""

from __future__ import annotations

import re

import numpy as np

from stonet.data.durations import parse_duration
from stonet.errors import UsageError

YEARS = (1678, 2261)  # what 64 bits of nanoseconds can count
COMPACT = re.compile(
    r"([0-9]{4})([0-9]{2})(?:([0-9]{2})(?:T?([0-9]{2})(?:([0-9]{2})([0-9]{2})?)?)?)?"
)


def parse_date(text: str) -> np.datetime64:
    """A date in UTC, in the unit in which it was written, so that `date + 1` is what follows it.

    ISO (2019, 2019-03, 2019-03-15T06:00Z) or its digits alone: 6, 8, 10, 12 or 14 of them.

    Example:
        >>> parse_date("201903"), parse_date("2019031506")
        (np.datetime64('2019-03'), np.datetime64('2019-03-15T06','h'))
    """
    plain = text.strip().removesuffix("Z")
    compact = COMPACT.fullmatch(plain)
    if compact:  # numpy would take the digits as a year, and overflow
        parts = [part for part in compact.groups() if part]
        plain = "T".join(filter(None, ["-".join(parts[:3]), ":".join(parts[3:])]))
    year = re.match(r"[+-]?[0-9]+", plain)  # as written: numpy's may have overflowed
    try:
        date = np.datetime64(plain)
        known = not year or YEARS[0] <= int(year[0]) <= YEARS[1]
    except ValueError:
        date, known = np.datetime64("NaT"), True
    if np.isnat(date):
        raise UsageError(f"'{text}' is no date; write e.g. 2019-03-15, 2019-03-15T06:00 or 201903.")
    if not known:
        raise UsageError(
            f"'{text}' lies outside the years {YEARS[0]} to {YEARS[1]} that nanoseconds can count; "
            "write a date e.g. as 2019, 201903, 20190315 or 2019-03-15."
        )
    return date


def moment(text: str, calendar: bool) -> tuple[int, int]:
    """The first and the last nanosecond of what was written: '2019-03' is a whole month."""
    if not calendar:
        return (parse_duration(text),) * 2
    first = parse_date(text)
    first, following = (date.astype("datetime64[ns]") for date in (first, first + 1))
    return int(first.astype(np.int64)), int(following.astype(np.int64)) - 1
