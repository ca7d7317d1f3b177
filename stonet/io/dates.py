"""Time zones, and dates and times in the columns of tables, in nanoseconds.

The entries of a column are parsed together; they share one format, which the first one determines.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Bool, Int64

from stonet.data.dates import YEARS
from stonet.data.durations import DAY, SECOND, UNITS
from stonet.errors import UsageError
from stonet.io.tables.columns import normalise_name, split_unit

if TYPE_CHECKING:
    import pandas as pd

NAT = int(np.iinfo(np.int64).min)  # marks what is not a time
EPOCH_UNITS = {1e8: "s", 1e11: "ms", 1e14: "us", 1e17: "ns"}  # smallest number of each, from 1973
UNIT_NAMES = {"seconds": "s", "sec": "s", "minutes": "min", "hours": "h", "hrs": "h", "days": "d"}
WITH_OFFSET = r"[T ]\s*\d.*([Zz]|UTC|GMT|[+-]\d\d:?(\d\d)?)$"
MIDNIGHT_24 = re.compile(r"([T ])24(?=[:.]?00)")
DAY_MONTH_YEAR = re.compile(r"\d{1,2}([/.-])(\d{1,2}|[A-Za-z]{3,9})\1(\d{4}|\d{2})")
TIME_OF_DAY = re.compile(r"(\d{1,2})(?:[:.h](\d{2})(?:[:.](\d{2}(?:\.\d+)?))?)?(?: ?([AaPp])[Mm])?")


def parse_zone(name: str | None) -> tzinfo | None:
    """A time zone: Europe/Berlin, UTC, or a fixed offset such as +02:00.

    Args:
        name: as the user writes it; None: no zone is stated.
    """
    if name is None:
        return None
    offset = re.fullmatch(r"(?:UTC)?([+-])(\d{1,2}):?(\d{2})?", name.strip())
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return ZoneInfo(name.strip())
    except (OSError, ValueError, LookupError):
        raise UsageError(
            f"Unknown time zone '{name}'. Write e.g. Europe/Berlin, UTC or +02:00."
        ) from None


# Columns of a table


@dataclass(frozen=True)
class ParsedTimes:
    """Times in nanoseconds, NAT where there is none; two readings if day and month may be swapped.

    Args:
        month_first: read with the month before the day.
        day_first: read with the day before the month; the same array if there is only one reading.
        aware: whether the text states its offset from UTC, which has been subtracted.
        has_time_of_day: whether any entry has a time of day.
        kind: how the entries were understood; "elapsed" has no calendar.
    """

    month_first: Int64[np.ndarray, " text"]
    day_first: Int64[np.ndarray, " text"]
    aware: Bool[np.ndarray, " text"]
    has_time_of_day: bool
    kind: str = "dates"


def parse_texts(texts: pd.Index, name: str, plane: bool) -> ParsedTimes | None:
    """Times as text, in the format of the first entry; None for numbers of unknown meaning.

    Args:
        texts: the entries.
        name: of the column, which may state a unit.
        plane: whether numbers without a unit are elapsed seconds.
    """
    import pandas as pd

    if re.fullmatch(r"[-+]?\d*\.?\d*([eE][-+]?\d+)?", texts[0]):
        numbers = pd.to_numeric(pd.Series(texts), errors="coerce")
        if numbers.notna().all():
            return parse_numbers(numbers.to_numpy(), name, plane)
    next_day = _contains(texts, r"[T ]24[:.]?00")
    if next_day.any():  # 24:00 is 00:00 of the next day
        texts = pd.Index(
            [MIDNIGHT_24.sub(r"\g<1>00", text) for text in texts.to_numpy(dtype=object)]
        )
    if re.match(r"\d{4}", texts[0]):
        codes, tails = pd.factorize(texts.str.slice(8))  # few are distinct: no years or months
        aware = _contains(pd.Index(tails), WITH_OFFSET)[codes]
        has_time_of_day = bool(_contains(pd.Index(tails), r"[T ]\s*\d").any())
        if aware.any():
            texts = texts.str.replace(r" ?(UTC|GMT)$", "", regex=True)
        month_first = day_first = _strptime(texts, "ISO8601")
    else:
        aware = np.zeros(len(texts), dtype=bool)
        has_time_of_day = bool(_contains(texts, r" \d").any())
        month_first, day_first = _parse_day_month_year(texts)
    if next_day.any():
        shift = np.where(next_day, DAY, 0)
        month_first, day_first = (
            np.where(times == NAT, NAT, times + shift) for times in (month_first, day_first)
        )
    return ParsedTimes(month_first, day_first, aware, has_time_of_day)


def parse_numbers(numbers: np.ndarray, name: str, plane: bool) -> ParsedTimes | None:
    """Dates as numbers (20190315), years, time since 1970 or, on a plane, elapsed seconds.

    Args as in `parse_texts`.

    Args:
        numbers: the column.
        name: of the column; it may hold a unit, as "time (s)".
        plane: whether the points lie on a plane, where times are often elapsed.

    Returns:
        None if the numbers are not times.
    """
    plain, unit = split_unit(name)
    unit, plain = UNIT_NAMES.get(unit.casefold(), unit.casefold()), normalise_name(plain)
    size = np.abs(numbers.astype(np.float64))
    naive = np.zeros(len(numbers), dtype=bool)
    if unit in UNITS:
        return _elapsed(numbers, UNITS[unit])
    is_epoch = "epoch" in plain or "unix" in plain
    if not is_epoch and (size < 2.0**62).all() and (numbers % 1 == 0).all():
        integers = numbers.astype(np.int64)
        for digits in (8, 10, 12, 14):
            if (integers >= 10 ** (digits - 1)).all() and (integers < 10**digits).all():
                parts = [integers // 10 ** (digits - 4)]
                parts += [integers // 10**n % 100 for n in range(digits - 6, -1, -2)]
                dates = from_parts(parts)
                if (dates != NAT).all():
                    return ParsedTimes(dates, dates, naive, digits > 8, f"dates of {digits} digits")
        as_years = plain in ("year", "yyyy", "yr") or not plane
        if as_years and (integers >= YEARS[0]).all() and (integers <= YEARS[1]).all():
            dates = from_parts([integers])
            return ParsedTimes(dates, dates, naive, False, "years")
    low = max(
        (low for low in EPOCH_UNITS if (size >= low).all()), default=1e8 if is_epoch else None
    )
    if low is not None and (size < low * 1e3).all():
        times = _scaled(numbers, UNITS[EPOCH_UNITS[low]])
        return ParsedTimes(times, times, ~naive, True, f"{EPOCH_UNITS[low]} since 1970")
    return _elapsed(numbers, SECOND) if plane else None


def parse_times_of_day(texts: pd.Index) -> Int64[np.ndarray, " text"]:
    """13, 13:30, 1330, 1:30 PM, 18.00.00 or 24:00 as nanoseconds of the day; NAT otherwise.

    Args:
        texts: distinct values of a column.
    """
    plain = [text.removesuffix(".0") for text in texts]
    hhmm = any(text.isdigit() and int(text) > 24 for text in plain)  # 1330
    return np.array([_parse_time_of_day(text, hhmm) for text in plain], dtype=np.int64)


def from_parts(parts: list[np.ndarray]) -> Int64[np.ndarray, " row"]:
    """Times from integers: year and, as far as given, month, day, hour, minute, second.

    Args:
        parts: at least the years; each has one number for each row.
    """
    ones = np.ones(len(parts[0]), dtype=np.int64)
    integers = [part.astype(np.int64) for part in parts]
    year, month, day = [*integers, ones, ones][:3] if len(integers) < 3 else integers[:3]
    valid = (year >= YEARS[0]) & (year <= YEARS[1]) & (month >= 1) & (month <= 12) & (day >= 1)
    year, month = np.where(valid, year, 1970), np.where(valid, month, 1)
    months = (year - 1970) * 12 + month - 1
    date = months.astype("M8[M]").astype("M8[D]") + np.where(valid, np.minimum(day, 32) - 1, 0)
    valid &= date.astype("M8[M]").astype(np.int64) == months
    times = date.astype(np.int64) * DAY
    for part, limit, unit in zip(integers[3:], (24, 59, 60), ("h", "min", "s"), strict=False):
        valid &= (part >= 0) & (part <= limit)
        times = times + np.clip(part, 0, limit) * UNITS[unit]
    return np.where(valid, times, NAT)


def in_nanoseconds(times: np.ndarray) -> Int64[np.ndarray, " time"]:
    """datetime64 or timedelta64 as int64; NAT for what is missing or out of range.

    Args:
        times: of any unit.
    """
    exact = times.astype(f"{times.dtype.kind}8[ns]")
    return np.where(exact.astype(times.dtype) == times, exact.astype(np.int64), NAT)


def _strptime(texts: pd.Index, form: str) -> Int64[np.ndarray, " text"]:
    """Texts of one format in UTC; NAT for others."""
    import pandas as pd

    parsed = pd.to_datetime(texts, format=form, errors="coerce", utc=True)
    return in_nanoseconds(parsed.tz_localize(None).to_numpy())


def _contains(texts: pd.Index, pattern: str) -> Bool[np.ndarray, " text"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of groups in a pattern
        return np.asarray(texts.str.contains(pattern, regex=True), dtype=bool)


def _parse_day_month_year(texts: pd.Index) -> tuple[np.ndarray, np.ndarray]:
    """03/15/2019 1:30 PM, 15.03.19, 15-Mar-2019: with the month first, and with the day first."""
    import pandas as pd

    parts = [text.partition(" ") for text in texts.to_numpy(dtype=object)]
    date_codes, dates = pd.factorize(pd.Index([date for date, _, _ in parts]))  # few are distinct
    time_codes, times = pd.factorize(pd.Index([time.strip() or "0:00" for _, _, time in parts]))
    time_of_day = parse_times_of_day(times)[time_codes]
    match = DAY_MONTH_YEAR.fullmatch(dates[0])
    if not match:
        nothing = np.full(len(texts), NAT)
        return nothing, nothing
    mark, month, year = match[1], match[2], "%Y" if len(match[3]) == 4 else "%y"
    if month.isalpha():
        named = "%b" if len(month) == 3 else "%B"
        forms = [f"%d{mark}{named}{mark}{year}"]
    else:  # with points the day is first: 31.12.2019
        forms = [f"%d{mark}%m{mark}{year}"] + [f"%m{mark}%d{mark}{year}"] * (mark != ".")
    readings = [_strptime(dates, form)[date_codes] for form in forms]
    readings = [
        np.where((date == NAT) | (time_of_day == NAT), NAT, date + time_of_day) for date in readings
    ]
    return readings[-1], readings[0]


def _parse_time_of_day(text: str, hhmm: bool) -> int:
    if hhmm and text.isdigit() and len(text) <= 4:
        text = f"{text.zfill(4)[:2]}:{text.zfill(4)[2:]}"
    match = TIME_OF_DAY.fullmatch(text)
    if not match:
        return NAT
    hour, minute, second = int(match[1]), int(match[2] or 0), float(match[3] or 0)
    if match[4]:
        if not 1 <= hour <= 12:
            return NAT
        hour = hour % 12 + (12 if match[4] in "Pp" else 0)
    if minute > 59 or second >= 61 or hour * 3600 + minute * 60 + second > 86400:
        return NAT
    return hour * UNITS["h"] + minute * UNITS["min"] + round(second * SECOND)


def _elapsed(numbers: np.ndarray, unit: int) -> ParsedTimes:
    times = _scaled(numbers, unit)
    return ParsedTimes(times, times, np.ones(len(times), dtype=bool), True, "elapsed")


def _scaled(numbers: np.ndarray, unit: int) -> Int64[np.ndarray, " number"]:
    """Numbers of a unit in nanoseconds, integers exactly; NAT beyond the range of 64 bits."""
    fits = np.abs(numbers.astype(np.float64)) * unit < 2.0**63 * (1 - 1e-12)
    bounded = np.where(fits, numbers, 0)
    if numbers.dtype.kind in "iu":
        return np.where(fits, bounded.astype(np.int64) * unit, NAT)
    return np.where(fits, np.rint(bounded * unit).astype(np.int64), NAT)
