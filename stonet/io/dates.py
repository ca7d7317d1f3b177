"""Texts and numbers that stand for times, to nanoseconds: pure functions on whole columns."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Bool, Int64

from stonet.data.durations import DAY, SECOND, UNITS
from stonet.errors import UsageError
from stonet.io.tables.columns import split_unit, squashed

if TYPE_CHECKING:
    import pandas as pd

NAT = int(np.iinfo(np.int64).min)  # what is no time
EPOCHS = {1e8: "s", 1e11: "ms", 1e14: "us", 1e17: "ns"}  # since 1973, the smallest number of each
WORDS = {"seconds": "s", "sec": "s", "minutes": "min", "hours": "h", "hrs": "h", "days": "d"}
YEARS = (1678, 2261)  # what 64 bits of nanoseconds can count
AWARE = r"[T ]\s*\d.*([Zz]|UTC|GMT|[+-]\d\d:?(\d\d)?)$"
LATE = re.compile(r"([T ])24(?=[:.]?00)")
DAY_MONTH_YEAR = re.compile(r"\d{1,2}([/.-])(\d{1,2}|[A-Za-z]{3,9})\1(\d{4}|\d{2})")
CLOCK = re.compile(r"(\d{1,2})(?:[:.h](\d{2})(?:[:.](\d{2}(?:\.\d+)?))?)?(?: ?([AaPp])[Mm])?")


@dataclass(frozen=True)
class Parsed:
    """Nanoseconds, NAT for what is no time; twice, where month and day may be either way round."""

    month_first: Int64[np.ndarray, " text"]
    day_first: Int64[np.ndarray, " text"]
    aware: Bool[np.ndarray, " text"]  # tells its offset from UTC, which is taken off
    clock: bool  # whether any tells a time of day
    kind: str = "dates"  # or how numbers are understood; "elapsed": no calendar


def parse_texts(texts: pd.Index, name: str, plane: bool) -> Parsed | None:
    """Texts of one form, told by the first; None for numbers that could mean anything."""
    import pandas as pd

    if re.fullmatch(r"[-+]?\d*\.?\d*([eE][-+]?\d+)?", texts[0]):
        numbers = pd.to_numeric(pd.Series(texts), errors="coerce")
        if numbers.notna().all():
            return parse_numbers(numbers.to_numpy(), name, plane)
    late = _holds(texts, r"[T ]24[:.]?00")
    if late.any():  # 24:00 is 00:00 of the next day
        texts = pd.Index([LATE.sub(r"\g<1>00", text) for text in texts.to_numpy(dtype=object)])
    if re.match(r"\d{4}", texts[0]):
        codes, tails = pd.factorize(texts.str.slice(8))  # few, since months and years are off
        aware = _holds(pd.Index(tails), AWARE)[codes]
        clock = bool(_holds(pd.Index(tails), r"[T ]\s*\d").any())
        if aware.any():
            texts = texts.str.replace(r" ?(UTC|GMT)$", "", regex=True)
        month_first = day_first = strptime(texts, "ISO8601")
    else:
        aware = np.zeros(len(texts), dtype=bool)
        clock = bool(_holds(texts, r" \d").any())
        month_first, day_first = _day_month_year(texts)
    if late.any():
        ahead = np.where(late, DAY, 0)
        month_first, day_first = (
            np.where(times == NAT, NAT, times + ahead) for times in (month_first, day_first)
        )
    return Parsed(month_first, day_first, aware, clock)


def parse_numbers(numbers: np.ndarray, name: str, plane: bool) -> Parsed | None:
    """Dates without marks (20190315), years, seconds since 1970, or, on a plane, elapsed time."""
    plain, unit = split_unit(name)
    unit, known = WORDS.get(unit.casefold(), unit.casefold()), squashed(plain)
    size = np.abs(numbers.astype(np.float64))
    nobody = np.zeros(len(numbers), dtype=bool)
    if unit in UNITS:
        return _elapsed(numbers, UNITS[unit])
    said = "epoch" in known or "unix" in known
    if not said and (size < 2.0**62).all() and (numbers % 1 == 0).all():
        whole = numbers.astype(np.int64)
        for digits in (8, 10, 12, 14):
            if (whole >= 10 ** (digits - 1)).all() and (whole < 10**digits).all():
                places = [whole // 10 ** (digits - 4)]
                places += [whole // 10**n % 100 for n in range(digits - 6, -1, -2)]
                dates = from_parts(places)
                if (dates != NAT).all():
                    return Parsed(dates, dates, nobody, digits > 8, f"dates of {digits} digits")
        in_years = known in ("year", "yyyy", "yr") or not plane
        if in_years and (whole >= YEARS[0]).all() and (whole <= YEARS[1]).all():
            dates = from_parts([whole])
            return Parsed(dates, dates, nobody, False, "years")
    low = max((low for low in EPOCHS if (size >= low).all()), default=1e8 if said else None)
    if low is not None and (size < low * 1e3).all():
        times = _scaled(numbers, UNITS[EPOCHS[low]])
        return Parsed(times, times, ~nobody, True, f"{EPOCHS[low]} since 1970")
    return _elapsed(numbers, SECOND) if plane else None


def parse_clocks(texts: pd.Index) -> Int64[np.ndarray, " text"]:
    """13, 13:30, 1330, 1:30 PM, 18.00.00 or 24:00 as nanoseconds of the day; NAT for no such."""
    digits = [text.removesuffix(".0") for text in texts]
    together = any(text.isdigit() and int(text) > 24 for text in digits)  # 1330
    return np.array([_clock(text, together) for text in digits], dtype=np.int64)


def from_parts(parts: list[np.ndarray]) -> Int64[np.ndarray, " row"]:
    """Whole numbers year, month, day, hour, minute, second, as many as there are."""
    ones = np.ones(len(parts[0]), dtype=np.int64)
    filled = [part.astype(np.int64) for part in parts]
    year, month, day = [*filled, ones, ones][:3] if len(filled) < 3 else filled[:3]
    right = (year >= YEARS[0]) & (year <= YEARS[1]) & (month >= 1) & (month <= 12) & (day >= 1)
    year, month = np.where(right, year, 1970), np.where(right, month, 1)
    months = (year - 1970) * 12 + month - 1
    date = months.astype("M8[M]").astype("M8[D]") + np.where(right, np.minimum(day, 32) - 1, 0)
    right &= date.astype("M8[M]").astype(np.int64) == months
    times = date.astype(np.int64) * DAY
    for part, limit, unit in zip(filled[3:], (24, 59, 60), ("h", "min", "s"), strict=False):
        right &= (part >= 0) & (part <= limit)
        times = times + np.clip(part, 0, limit) * UNITS[unit]
    return np.where(right, times, NAT)


def strptime(texts: pd.Index, form: str) -> Int64[np.ndarray, " text"]:
    """Nanoseconds in UTC; NAT where the text is not of this form."""
    import pandas as pd

    parsed = pd.to_datetime(texts, format=form, errors="coerce", utc=True)
    return in_nanoseconds(parsed.tz_localize(None).to_numpy())


def in_nanoseconds(times: np.ndarray) -> Int64[np.ndarray, " time"]:
    """NAT also for what 64 bits cannot count."""
    exact = times.astype(f"{times.dtype.kind}8[ns]")
    return np.where(exact.astype(times.dtype) == times, exact.astype(np.int64), NAT)


def parse_zone(name: str | None) -> tzinfo | None:
    """Europe/Berlin, UTC, or a fixed offset such as +02:00."""
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


def _holds(texts: pd.Index, pattern: str) -> Bool[np.ndarray, " text"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of groups in a pattern
        return np.asarray(texts.str.contains(pattern, regex=True), dtype=bool)


def _day_month_year(texts: pd.Index) -> tuple[np.ndarray, np.ndarray]:
    """03/15/2019 1:30 PM, 15.03.19, 15-Mar-2019: with the month first, and with the day first."""
    import pandas as pd

    parts = [text.partition(" ") for text in texts.to_numpy(dtype=object)]
    codes, dates = pd.factorize(pd.Index([date for date, _, _ in parts]))  # far fewer than texts
    turns, clocks = pd.factorize(pd.Index([clock.strip() or "0:00" for _, _, clock in parts]))
    clock = parse_clocks(clocks)[turns]
    match = DAY_MONTH_YEAR.fullmatch(dates[0])
    if not match:
        nothing = np.full(len(texts), NAT)
        return nothing, nothing
    mark, month, year = match[1], match[2], "%Y" if len(match[3]) == 4 else "%y"
    if month.isalpha():
        named = "%b" if len(month) == 3 else "%B"
        forms = [f"%d{mark}{named}{mark}{year}"]
    else:  # nobody writes 12.31.2019
        forms = [f"%d{mark}%m{mark}{year}"] + [f"%m{mark}%d{mark}{year}"] * (mark != ".")
    found = [strptime(dates, form)[codes] for form in forms]
    found = [np.where((date == NAT) | (clock == NAT), NAT, date + clock) for date in found]
    return found[-1], found[0]


def _clock(text: str, together: bool) -> int:
    if together and text.isdigit() and len(text) <= 4:
        text = f"{text.zfill(4)[:2]}:{text.zfill(4)[2:]}"
    match = CLOCK.fullmatch(text)
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


def _elapsed(numbers: np.ndarray, unit: int) -> Parsed:
    times = _scaled(numbers, unit)
    return Parsed(times, times, np.ones(len(times), dtype=bool), True, "elapsed")


def _scaled(numbers: np.ndarray, unit: int) -> Int64[np.ndarray, " number"]:
    """Numbers of a unit in nanoseconds, whole ones exactly; NAT beyond what 64 bits can count."""
    fits = np.abs(numbers.astype(np.float64)) * unit < 2.0**63 * (1 - 1e-12)
    small = np.where(fits, numbers, 0)
    if numbers.dtype.kind in "iu":
        return np.where(fits, small.astype(np.int64) * unit, NAT)
    return np.where(fits, np.rint(small * unit).astype(np.int64), NAT)
