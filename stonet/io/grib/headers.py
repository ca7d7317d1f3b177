"""The meaning of a GRIB header: which variable, on which grid, valid at which time.

Messages that differ only in their dates share one header, so ecCodes describes each header once and
the dates are read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from stonet.errors import DataError
from stonet.io.grib.eccodes_client import describe
from stonet.io.grib.message_index import PackedField

FIRST_YEAR, LAST_YEAR = 1678, 2261  # the range of 64-bit nanoseconds
CALENDAR_UNITS = range(3, 8)  # codes of months, years, …: not a fixed number of seconds
PERIOD_ENDS = {8: 34, 11: 37}  # product templates of edition 2 with the end of a period: octet
UNKNOWN = (None, "unknown", "~")
PARAMETER_KEYS = {
    1: ("table2Version", "indicatorOfParameter"),
    2: ("discipline", "parameterCategory", "parameterNumber"),
}
WIND_COMPONENTS = {"u", "v", "u10", "v10", "u100", "v100"}
UNROTATED_GRIDS = {"regular_ll", "reduced_ll", "regular_gg", "reduced_gg"}


class Variable(NamedTuple):
    """Everything that may distinguish two variables of one name.

    Args:
        name: ecCodes' short name.
        level_type: such as "isobaricInhPa".
        level: in the unit of its type.
        step_type: instant, accum, avg, ….
        member: of an ensemble; 0 for a single forecast.
    """

    name: str
    level_type: str | None
    level: int | None
    step_type: str | None
    member: int


class Header(NamedTuple):
    """What all messages with one header have in common.

    Args:
        grid: the octets that describe the grid.
        variable: what the values are.
        unit: of the values.
        offset: seconds from the message's date to its valid time.
        points: number of values.
        institution: that issued the message, if it is stated.
        notes: sentences about unusual headers.
    """

    grid: bytes
    variable: Variable
    unit: str
    offset: int
    points: int
    institution: str | None
    notes: tuple[str, ...]


def header_key(field: PackedField) -> tuple[tuple, bytes]:
    """The identity of a header (the grid first, without the date), and the octets of the date.

    Args:
        field: one message, or one of its fields.
    """
    if field.edition == 1:
        head = field.section(1)
        rest = (head[:12], head[17:24], head[25:26], head[28:])  # without the decimal scale
        return (field.section(2), *rest), head[24:25] + head[12:17]
    head, product = field.section(1), field.section(4)
    rest = (field.window.at(field.start + 6, 1), head[:12], head[19:], field.section(2))
    end = PERIOD_ENDS.get(int.from_bytes(product[7:9]), len(product))
    if end + 7 <= len(product):
        period = date_of(field, product[end : end + 7]) - date_of(field, head[12:19])
        product = product[:end] + product[end + 7 :] + repr(period).encode()
    return (field.section(3), *rest, product), head[12:19]


def date_of(field: PackedField, octets: bytes) -> int:
    """The date of a message in seconds since 1970.

    Args:
        field: whose edition decides how a date is stored.
        octets: of the date.
    """
    if field.edition == 1:
        century, year, *rest = octets
        parts = [(century - 1) * 100 + year, *rest]
    else:
        parts = [int.from_bytes(octets[:2]), *octets[2:]]
    try:
        date = datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        date = datetime.max.replace(tzinfo=UTC)
    if not FIRST_YEAR <= date.year <= LAST_YEAR:
        raise field.window.broken(field.start, f"the date {'-'.join(map(str, parts))}")
    return int(date.timestamp())


def read_header(field: PackedField, grid: bytes, date: int) -> Header:
    """The header of a message, decoded by ecCodes.

    Args:
        field: the message.
        grid: its grid section, which identifies the grid.
        date: of the message, in seconds since 1970.
    """
    keys = describe(origin(field), field.message())
    name = _name(field, keys)
    if keys["gridType"] == "sh":
        raise DataError(
            f"{origin(field)}: '{name}' is given as spherical harmonics, not at points. Convert "
            "it to a grid first, e.g. with `cdo sp2gpl in.grib out.grib`."
        )
    try:
        valid, issued = (_seconds(keys, kind) for kind in ("validity", "data"))
    except (TypeError, ValueError):
        raise field.window.broken(field.start, "a message without a valid date") from None
    if keys["indicatorOfUnitOfTimeRange"] in CALENDAR_UNITS and valid != issued:
        raise DataError(
            f"{origin(field)}: '{name}' is a forecast by months or years, which ecCodes places "
            "at multiples of 30 or 365 days. Convert it with its true dates, e.g. to NetCDF."
        )
    if issued != date - date % 60:
        raise field.window.broken(field.start, "two dates that differ")
    notes: tuple[str, ...] = ()
    rotated = keys["gridType"] not in UNROTATED_GRIDS
    if keys["uvRelativeToGrid"] and name in WIND_COMPONENTS and rotated:
        notes = (f"'{name}' is relative to the grid's axes, not to east and north.",)
    kind, level = keys["typeOfLevel"], keys["level"]
    if str(keys["shortName"])[:1].isdigit():  # "2t" and "10u" contain their height
        kind = level = None
    return Header(
        grid=grid,
        variable=Variable(name, kind, level, keys["stepType"], keys["number"] or 0),
        unit=keys["units"] or "",
        offset=valid - issued,
        points=keys["numberOfDataPoints"] or 0,
        institution=keys["centre"],
        notes=notes,
    )


def _name(field: PackedField, keys: dict[str, Any]) -> str:
    for name in (keys["cfVarName"], keys["shortName"]):
        if name not in UNKNOWN:
            return str(name)
    return "_".join(["parameter", *(str(keys[key]) for key in PARAMETER_KEYS[field.edition])])


def _seconds(keys: dict[str, Any], kind: str) -> int:
    """A date and time of ecCodes in seconds since 1970."""
    day, time = f"{keys[kind + 'Date']:08d}", f"{keys[kind + 'Time']:04d}"
    text = f"{day[:-4]}-{day[-4:-2]}-{day[-2:]}T{time[:-2]}:{time[-2:]}"
    return int(np.datetime64(text, "s").astype(np.int64))


def origin(field: PackedField) -> str:
    """The file and position of a message, for errors.

    Args:
        field: one message, or one of its fields.
    """
    return f"'{field.window.path}', message at byte {field.start}"


def channel_names(variables: Sequence[Variable]) -> list[str]:
    """Unique names: the variable's, extended by level, kind or member where others share it.

    Args:
        variables: of all series of a file.
    """
    names = [variable.name for variable in variables]
    for part, mark in (("level", ""), ("level_type", ""), ("step_type", ""), ("member", "m")):
        values = [getattr(variable, part) for variable in variables]
        distinct: dict[str, set[Any]] = {}
        for name, value in zip(names, values, strict=True):
            distinct.setdefault(name, set()).add(value)
        names = [
            f"{name}_{mark}{value}" if len(distinct[name]) > 1 else name
            for name, value in zip(names, values, strict=True)
        ]
    return names
