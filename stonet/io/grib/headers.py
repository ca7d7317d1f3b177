"""What a GRIB header says: which variable, on which grid, valid when.

Messages that differ only in their dates share one header, so that ecCodes explains each kind once
and the dates are read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from stonet.errors import DataError
from stonet.io.grib.eccodes_client import describe
from stonet.io.grib.message_index import Packed

FIRST_YEAR, LAST_YEAR = 1678, 2261  # that nanoseconds in 64 bits can count
CALENDAR_UNITS = range(3, 8)  # steps in months, years, …: no fixed number of seconds
ENDS = {8: 34, 11: 37}  # product templates of edition 2 that give their period's end, and where
UNKNOWN = (None, "unknown", "~")
CODES = {
    1: ("table2Version", "indicatorOfParameter"),
    2: ("discipline", "parameterCategory", "parameterNumber"),
}
WIND = {"u", "v", "u10", "v10", "u100", "v100"}
UNROTATED = {"regular_ll", "reduced_ll", "regular_gg", "reduced_gg"}


class Variable(NamedTuple):
    """What is measured: all that may tell two variables of one name apart."""

    name: str
    level_type: str | None
    level: int | None
    step_type: str | None  # instant, accum, avg, …
    member: int


class Header(NamedTuple):
    """What all messages with one header share."""

    grid: bytes
    variable: Variable
    unit: str
    offset: int  # from the message's date to the time it is valid for, in seconds
    points: int
    institution: str | None
    notes: tuple[str, ...]


def header_key(field: Packed) -> tuple[tuple, bytes]:
    """What tells headers apart, the grid first and without the date; and the date."""
    if field.edition == 1:
        head = field.section(1)
        rest = (head[:12], head[17:24], head[25:26], head[28:])  # without the decimal scale
        return (field.section(2), *rest), head[24:25] + head[12:17]
    head, product = field.section(1), field.section(4)
    rest = (field.window.at(field.start + 6, 1), head[:12], head[19:], field.section(2))
    end = ENDS.get(int.from_bytes(product[7:9]), len(product))
    if end + 7 <= len(product):
        period = date_of(field, product[end : end + 7]) - date_of(field, head[12:19])
        product = product[:end] + product[end + 7 :] + repr(period).encode()
    return (field.section(3), *rest, product), head[12:19]


def date_of(field: Packed, octets: bytes) -> int:
    """Seconds since 1970."""
    if field.edition == 1:
        century, year, *rest = octets
        parts = [(century - 1) * 100 + year, *rest]
    else:
        parts = [int.from_bytes(octets[:2]), *octets[2:]]
    try:
        moment = datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        moment = datetime.max.replace(tzinfo=UTC)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise field.window.broken(field.start, f"the date {'-'.join(map(str, parts))}")
    return int(moment.timestamp())


def explain(field: Packed, grid: bytes, date: int) -> Header:
    """The header in words, from ecCodes."""
    about = describe(origin(field), field.message())
    name = _name(field, about)
    if about["gridType"] == "sh":
        raise DataError(
            f"{origin(field)}: '{name}' is given as spherical harmonics, not at places. Convert "
            "it to a grid first, e.g. with `cdo sp2gpl in.grib out.grib`."
        )
    try:
        valid, said = (_moment(about, kind) for kind in ("validity", "data"))
    except (TypeError, ValueError):
        raise field.window.broken(field.start, "a message without a valid date") from None
    if about["indicatorOfUnitOfTimeRange"] in CALENDAR_UNITS and valid != said:
        raise DataError(
            f"{origin(field)}: '{name}' is a forecast by months or years, which ecCodes places "
            "at multiples of 30 or 365 days. Convert it with its true dates, e.g. to NetCDF."
        )
    if said != date - date % 60:
        raise field.window.broken(field.start, "a date that cannot be understood")
    notes: tuple[str, ...] = ()
    if about["uvRelativeToGrid"] and name in WIND and about["gridType"] not in UNROTATED:
        notes = (f"'{name}' is relative to the grid's axes, not to east and north.",)
    kind, level = about["typeOfLevel"], about["level"]
    if str(about["shortName"])[:1].isdigit():  # "2t" and "10u" tell their height
        kind = level = None
    return Header(
        grid=grid,
        variable=Variable(name, kind, level, about["stepType"], about["number"] or 0),
        unit=about["units"] or "1",
        offset=valid - said,
        points=about["numberOfDataPoints"] or 0,
        institution=about["centre"],
        notes=notes,
    )


def _name(field: Packed, about: dict[str, Any]) -> str:
    for name in (about["cfVarName"], about["shortName"]):
        if name not in UNKNOWN:
            return str(name)
    return "_".join(["parameter", *(str(about[code]) for code in CODES[field.edition])])


def _moment(about: dict[str, Any], kind: str) -> int:
    day, clock = f"{about[kind + 'Date']:08d}", f"{about[kind + 'Time']:04d}"
    text = f"{day[:-4]}-{day[-4:-2]}-{day[-2:]}T{clock[:-2]}:{clock[-2:]}"
    return int(np.datetime64(text, "s").astype(np.int64))


def origin(field: Packed) -> str:
    """Which message, for errors."""
    return f"'{field.window.path}', message at byte {field.start}"


def names_of(variables: Sequence[Variable]) -> list[str]:
    """Each variable's name, with what tells it from others of that name: level, kind, member."""
    names = [variable.name for variable in variables]
    for part, mark in (("level", ""), ("level_type", ""), ("step_type", ""), ("member", "m")):
        values = [getattr(variable, part) for variable in variables]
        kinds: dict[str, set[Any]] = {}
        for name, value in zip(names, values, strict=True):
            kinds.setdefault(name, set()).add(value)
        names = [
            f"{name}_{mark}{value}" if len(kinds[name]) > 1 else name
            for name, value in zip(names, values, strict=True)
        ]
    return names
