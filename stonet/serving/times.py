"""Times as the service writes and reads them: ISO 8601 in UTC, or seconds without a calendar."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from jaxtyping import Int64

from stonet.data.dates import parse_time
from stonet.data.durations import SECOND, parse_duration
from stonet.errors import UsageError
from stonet.serving.refusal import Refused

OFFSET = re.compile(r"T.*[+-]\d\d:?\d*$")  # of a time zone
LARGEST = 2**62  # nanoseconds; sums of two times stay within 64 bits


def label(nanoseconds: int | np.integer, calendar: bool) -> str:
    """A time as text that `parse` reads exactly: 2024-01-01T06:00:00Z, or 0.125s.

    Args:
        nanoseconds: since 1970 UTC, or since zero.
        calendar: whether the time is a date.
    """
    whole, part = divmod(int(nanoseconds), SECOND)
    decimals = f".{part:09d}".rstrip("0") if part else ""
    return f"{np.datetime64(whole, 's')}{decimals}Z" if calendar else f"{whole}{decimals}s"


def labels(times: Iterable[int] | Int64[np.ndarray, " time"], calendar: bool) -> list[str]:
    """The texts of several times.

    Args:
        times: nanoseconds.
        calendar: whether the times are dates.
    """
    return [label(int(time), calendar) for time in times]


def parse(text: str, calendar: bool, issue_time: int | None = None) -> int:
    """A time of a request in nanoseconds.

    Args:
        text: a date in UTC; without a calendar, a duration since zero; or a lead such as "+6h".
        calendar: whether times are dates.
        issue_time: to which leads are added; None: leads are refused.

    Raises:
        Refused: with status 422, if it cannot be read.
    """
    if OFFSET.search(text):
        raise Refused(422, f"'{text}' has an offset; expected UTC, such as 2024-01-01T06:00Z.")
    try:
        if not calendar and not text.startswith("+"):
            found = parse_duration(text)
        else:
            found = parse_time(text, calendar, issue_time)
    except (UsageError, ValueError, OverflowError) as error:
        raise Refused(422, str(error)) from None
    if abs(found) > LARGEST:
        raise Refused(422, f"'{text}' is beyond the times that the service knows.")
    return found
