"""GRIB files: fields by the thousand, one message each, sorted here into variables through time.

First the headers: messages that differ only in their dates share one header, which ecCodes
explains once. Values are unpacked when they are asked for, by their place in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.io.grib.eccodes_client import coordinates, decode
from stonet.io.grib.headers import Header, date_of, explain, header_key, names_of, origin
from stonet.io.grib.message_index import Packed, Window, find_fields, packed
from stonet.io.grib.simple_packing import simple, unpack
from stonet.io.lazy_source import LazySource
from stonet.io.safety import readable

CELLS = 2**20  # values unpacked at a time
SECOND = 1_000_000_000


@dataclass
class Series:
    """The messages of one variable on one grid, in the file's order."""

    header: Header
    first: Packed
    rows: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # in seconds


def read(path: Path, config: ReadConfig) -> list[LazySource]:
    """One LazySource for each variable and level on each grid; its messages may be in any order."""
    with readable(path, "GRIB"), path.open("rb") as file:
        window = Window(file, path)
        index = find_fields(window)
        series, reference = _sorted_out(window, index)
        grids = {one.header.grid: one for one in reversed(series)}
        places = {grid: _points(one, config) for grid, one in grids.items()}
    names = names_of([one.header.variable for one in series])
    return [
        _content(path, index, one, name, places[one.header.grid], reference)
        for one, name in zip(series, names, strict=True)
    ]


def _sorted_out(
    window: Window, index: Int64[np.ndarray, "field 16"]
) -> tuple[list[Series], int | None]:
    """The messages by variable and grid; and the date of the forecast, if they are one."""
    headers: dict[tuple, Header] = {}
    series: dict[tuple, Series] = {}
    dates: dict[bytes, int] = {}
    for number, message in enumerate(packed(window, index)):
        key, octets = header_key(message)
        if octets not in dates:
            dates[octets] = date_of(message, octets)
        if key not in headers:
            headers[key] = explain(message, key[0], dates[octets])
        header = headers[key]
        identity = (header.grid, header.variable)
        if identity not in series:
            series[identity] = Series(header, message)
        one = series[identity]
        if one.header.unit != header.unit:
            raise DataError(
                f"'{window.path}': '{header.variable.name}' is in '{one.header.unit}' and in "
                f"'{header.unit}'. Split the file, e.g. with grib_copy -w."
            )
        one.rows.append(number)
        one.times.append(dates[octets] + header.offset)
    forecast = len(dates) == 1 and any(header.offset > 0 for header in headers.values())
    return list(series.values()), next(iter(dates.values())) if forecast else None


def _content(
    path: Path,
    index: Int64[np.ndarray, "field 16"],
    series: Series,
    name: str,
    points: Points,
    reference: int | None,
) -> LazySource:
    order = np.argsort(series.times, kind="stable")
    rows, mark = index[np.asarray(series.rows)[order]], _mark(path)

    def frames(start: int, stop: int) -> np.ndarray:
        if _mark(path) != mark:
            raise DataError(f"'{path}' changed while it was read. Read it again.")
        with readable(path, "GRIB"), path.open("rb") as file:
            return _values(Window(file, path), rows[start:stop], len(points))[..., None]

    header = series.header
    return LazySource(
        origin=str(path),
        times=np.asarray(series.times, dtype=np.int64)[order] * SECOND,
        points=points,
        channels=(name,),
        units=(header.unit,),
        frames=frames,
        named=False,
        grid=True,
        reference_time=None if reference is None else reference * SECOND,
        attrs={"institution": header.institution} if header.institution else {},
        notes=header.notes,
    )


def _mark(path: Path) -> tuple[int, int]:
    """By which a changed file is known."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _points(series: Series, config: ReadConfig) -> Points:
    """The grid's points, in the order of the values."""
    first, count = series.first, series.header.points
    packing = simple(first)
    held = packing.number if packing is not None and not first.has_bitmap else None
    if held is not None and held < count:  # before a grid of any size is made
        raise first.window.broken(first.start, f"a grid of {count} points and {held} values")
    places = coordinates(origin(first), first.message(), count)
    try:
        if config.geometry == "plane":
            return Points(places[:, ::-1].copy())
        return Points(places, "sphere")
    except DataError as error:
        raise DataError(f"{origin(first)}: {error}") from None


def _values(
    window: Window, rows: Int64[np.ndarray, "field 16"], points: int
) -> Float32[np.ndarray, "field node"]:
    """The values of these fields, some at a time."""
    values = np.empty((len(rows), points), dtype=np.float32)
    for start in range(0, len(rows), max(1, CELLS // points)):
        part = slice(start, start + max(1, CELLS // points))
        fields = list(packed(window, rows[part]))
        packings = [simple(field) for field in fields]
        plain = [number for number, packing in enumerate(packings) if packing is not None]
        rare = [number for number, packing in enumerate(packings) if packing is None]
        if plain:
            known = [packing for packing in packings if packing is not None]
            values[part][plain] = unpack([fields[n] for n in plain], known, points)
        if rare:
            messages = [fields[n].message() for n in rare]
            values[part][rare] = decode(origin(fields[rare[0]]), messages, points)
    return values
