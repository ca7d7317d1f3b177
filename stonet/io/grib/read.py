"""GRIB files as lazy sources: thousands of messages, grouped into variables through time.

The headers are read first; messages that differ only in their dates share one header, which ecCodes
decodes once. Values are unpacked when they are requested, by their position in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from stonet.config import ReadConfig
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.io.grib.eccodes_client import coordinates, decode
from stonet.io.grib.headers import (
    Header,
    channel_names,
    date_of,
    header_key,
    origin,
    read_header,
)
from stonet.io.grib.message_index import (
    BufferedFile,
    Index,
    PackedField,
    index_fields,
    packed_fields,
)
from stonet.io.grib.simple_packing import simple_packing, unpack
from stonet.io.lazy_source import LazySource
from stonet.io.safety import readable

BLOCK_VALUES = 2**20  # unpacked at a time


@dataclass
class Series:
    """The messages of one variable on one grid, in the file's order.

    Args:
        header: that all messages share.
        first: the first message, for errors and for the grid.
        rows: numbers of the messages in the index.
        times: in seconds.
    """

    header: Header
    first: PackedField
    rows: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)


def open_grib(path: Path, config: ReadConfig) -> list[LazySource]:
    """One source for each variable and level on each grid; messages may be in any order.

    Args:
        path: of the file.
        config: what is selected, and how it is read.
    """
    with readable(path, "GRIB"), path.open("rb") as file:
        window = BufferedFile(file, path)
        index = index_fields(window)
        all_series, reference = _group_messages(window, index)
        first_of_grid = {series.header.grid: series for series in reversed(all_series)}
        points = {grid: _points(series, config) for grid, series in first_of_grid.items()}
    names = channel_names([series.header.variable for series in all_series])
    return [
        _source(path, index, series, name, points[series.header.grid], reference)
        for series, name in zip(all_series, names, strict=True)
    ]


def _group_messages(window: BufferedFile, index: Index) -> tuple[list[Series], int | None]:
    """The messages by variable and grid; and the issue time, if they are one forecast."""
    headers: dict[tuple, Header] = {}
    groups: dict[tuple, Series] = {}
    dates: dict[bytes, int] = {}
    for number, message in enumerate(packed_fields(window, index)):
        key, octets = header_key(message)
        if octets not in dates:
            dates[octets] = date_of(message, octets)
        if key not in headers:
            headers[key] = read_header(message, key[0], dates[octets])
        header = headers[key]
        identity = (header.grid, header.variable)
        series = groups.setdefault(identity, Series(header, message))
        if series.header.unit != header.unit:
            raise DataError(
                f"'{window.path}': '{header.variable.name}' is in '{series.header.unit}' and in "
                f"'{header.unit}'. Split the file, e.g. with grib_copy -w."
            )
        series.rows.append(number)
        series.times.append(dates[octets] + header.offset)
    forecast = len(dates) == 1 and any(header.offset > 0 for header in headers.values())
    return list(groups.values()), next(iter(dates.values())) if forecast else None


def _source(
    path: Path,
    index: Index,
    series: Series,
    name: str,
    points: Points,
    reference: int | None,
) -> LazySource:
    order = np.argsort(series.times, kind="stable")
    rows, version = index[np.asarray(series.rows)[order]], _version(path)

    def frames(start: int, stop: int) -> np.ndarray:
        if _version(path) != version:
            raise DataError(f"'{path}' changed while it was read. Read it again.")
        with readable(path, "GRIB"), path.open("rb") as file:
            return _unpack(BufferedFile(file, path), rows[start:stop], len(points))[..., None]

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


def _version(path: Path) -> tuple[int, int]:
    """Size and time of a file, which change if it is written again."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _points(series: Series, config: ReadConfig) -> Points:
    """The points of a grid, in the order of the values."""
    first, count = series.first, series.header.points
    packing = simple_packing(first)
    values = packing.number if packing is not None and not first.has_bitmap else None
    if values is not None and values < count:  # before memory for the grid is allocated
        raise first.window.broken(first.start, f"a grid of {count} points and {values} values")
    positions = coordinates(origin(first), first.message(), count)
    try:
        if config.geometry == "plane":
            return Points(positions[:, ::-1].copy())
        return Points(positions, "sphere")
    except DataError as error:
        raise DataError(f"{origin(first)}: {error}") from None


def _unpack(window: BufferedFile, rows: Index, points: int) -> Float32[np.ndarray, "field node"]:
    """The values of fields, some at a time; ecCodes decodes what is not in simple packing."""
    values = np.empty((len(rows), points), dtype=np.float32)
    length = max(1, BLOCK_VALUES // points)
    for start in range(0, len(rows), length):
        part = slice(start, start + length)
        fields = list(packed_fields(window, rows[part]))
        packings = {number: simple_packing(field) for number, field in enumerate(fields)}
        simple = {number: packing for number, packing in packings.items() if packing is not None}
        others = [number for number, packing in packings.items() if packing is None]
        if simple:
            chosen = [fields[number] for number in simple]
            values[part][list(simple)] = unpack(chosen, list(simple.values()), points)
        if others:
            messages = [fields[number].message() for number in others]
            values[part][others] = decode(origin(fields[others[0]]), messages, points)
    return values
