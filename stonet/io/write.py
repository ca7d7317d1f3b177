"""Fields as files: NetCDF and Zarr after CF, or long tables. Writing is atomic.

A table has a row for each time and station, and these columns: station, time (ISO 8601, UTC), lat
and lon (or x and y); in forecasts forecast_reference_time and forecast_period (an ISO 8601
duration, as `pandas.to_timedelta` reads it); the channels, empty where missing; and attributes of
each station: altitude, nearest_observation, support. A unit stands behind the name, as in
"t2m (K)". Without a calendar times are "time (s)".
"""

from __future__ import annotations

import gzip
import io
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.data.cf import NANOSECONDS, SUPPORT, outline, to_xarray
from stonet.data.field import Field
from stonet.data.grid import Grid
from stonet.errors import ResourceError, UsageError
from stonet.system.atomic import disk_errors_explained, replacing
from stonet.system.error_keeping_file import ErrorKeepingFile

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

WriteBlock = Callable[[tuple[int, ...], np.ndarray], None]  # (start, values); last axis: variable
CHUNK = 2**17
BLOCK = 2**22
BLOCK_ROWS = 2**19  # rows of a table that are written at a time
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # texts that a spreadsheet would execute
BRACKETS = set("()[]")
ZARR_FILES = (".zgroup", ".zmetadata", ".zattrs", "zarr.json")


def write(field: Field, path: str | Path) -> None:
    """Write a Field in the format of the suffix: .nc, .zarr, .csv, .csv.gz, .parquet.

    Args:
        field: observations or a forecast.
        path: a new file, or one of the same format to be replaced.

    Example:
        >>> write(field, "forecast.nc")  # doctest: +SKIP
    """
    check_writable(path)
    with disk_errors_explained(Path(path)):
        WRITERS[_suffix(Path(path))](field, Path(path))


def check_writable(path: str | Path) -> None:
    """Refuse a path that `write` cannot write, before any long work.

    Args:
        path: of the file or store.

    Raises:
        UsageError: the name or the format does not fit, or it would replace something else.
        ResourceError: the folder is not writable.
    """
    path = Path(path)
    suffix = _suffix(path)
    if suffix not in WRITERS:
        raise UsageError(
            f"Cannot write '{path}': names end in {', '.join(WRITERS)}. Choose one of these."
        )
    if not path.parent.is_dir():
        raise UsageError(f"No folder '{path.parent}' to write '{path.name}' into. Make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ResourceError(f"The folder '{path.parent}' is not writable. Choose another one.")
    if path.exists() and not _is_replaceable(path, suffix):
        raise UsageError(
            f"'{path}' exists and is not a {suffix} that could be replaced. Choose another name."
        )
    library = {".zarr": "zarr", ".parquet": "pyarrow"}.get(suffix)
    if library and find_spec(library) is None:
        raise UsageError(f"{suffix} needs the library {library}: pip install 'stonet[io]'")


def table(
    field: Field, start: int = 0, stop: int | None = None, text: bool = False
) -> pd.DataFrame:
    """A long table of some of the frames.

    Args:
        field: observations or a forecast.
        start: first frame.
        stop: the frame after the last one; None: all.
        text: whether times are text, and names are made safe for spreadsheets.
    """
    import pandas as pd

    times, count = field.times[start:stop], len(field.points)
    safe, time_unit = _spreadsheet_safe if text else str, "" if field.calendar else "s"
    columns: dict[str, Any] = {}

    def add(name: str, unit: str, values: np.ndarray) -> None:
        title = safe(name if unit in ("", "1") or BRACKETS & {*name, *unit} else f"{name} ({unit})")
        columns[title if title not in columns else f"{title}_of_station"] = values

    add("station", "", np.tile(np.array([safe(n) for n in field.points.names], object), len(times)))
    add("time", time_unit, np.repeat(_times(times, field, text), count))
    for axis, values in zip(field.points.geometry.axes, field.points.coordinates.T, strict=True):
        add(axis, "", np.tile(values, len(times)))
    if field.reference_time is not None:
        issued = np.full(len(times), field.reference_time, dtype=np.int64)
        add("forecast_reference_time", time_unit, np.repeat(_times(issued, field, text), count))
        add("forecast_period", time_unit, np.repeat(_durations(times - issued, field, text), count))
    values = field.values[start:stop]
    for number, (name, unit) in enumerate(field.quantity):
        add(name, unit, values[..., number].ravel())
    units = {"altitude": "m", "nearest_observation": "km" * (field.points.kind == "sphere")}
    for name, row in field.sites.items():
        add(name, units.get(name, ""), np.tile(_site_labels(name, row), len(times)))
    frame = pd.DataFrame(columns)
    for name in ("time", "forecast_reference_time"):
        if field.calendar and not text and name in frame:
            frame[name] = frame[name].dt.tz_localize("UTC")
    return frame


def to_netcdf(field: Field, path: Path, chunk: int = CHUNK, block: int = BLOCK) -> None:
    """Write a compressed NetCDF file; an older file is replaced once the new one is complete.

    Args:
        field: observations or a forecast.
        path: the file.
        chunk: numbers of a variable that are compressed together.
        block: numbers of the field that are in memory at once, in complete chunks.
    """
    grid = Grid.of(field.points)
    dataset, variables = outline(field)
    dims: tuple[str, ...] = ("time", "station")
    if grid is not None:
        dataset, dims = grid.with_dims(dataset), ("time", *grid.dims)
    width = math.prod(dataset.sizes[dim] for dim in dims[1:])
    rows = max(1, chunk // width)
    several = rows * max(1, block // (rows * width * len(variables)))
    first = (0,) * (len(dims) - 1)
    with netcdf_by_blocks(path, dataset, variables, dims, (rows, chunk)) as write_block:
        for start in range(0, len(field.times), several):
            values = field.values[start : start + several]
            write_block((start, *first), values if grid is None else grid.scatter_fields(values))


@contextmanager
def netcdf_by_blocks(
    path: Path,
    dataset: xr.Dataset,
    variables: dict[str, dict[str, Any]],
    dims: tuple[str, ...] = ("time", "station"),
    chunks: tuple[int, ...] = (1, CHUNK),
) -> Iterator[WriteBlock]:
    """Write a compressed NetCDF file block by block; it appears at `path` when it is complete.

    Args:
        path: the file to write.
        dataset: everything but the variables, see `stonet.data.cf.outline`.
        variables: their names and attributes.
        dims: of every variable.
        chunks: along the first and the last dim, or along all dims; blocks of complete chunks are
            written fastest.
    """
    import h5netcdf
    import h5py  # type: ignore[import-untyped]

    shape = tuple(dataset.sizes[dim] for dim in dims)
    if len(chunks) < len(dims):
        chunks = (chunks[0], *shape[1:-1], chunks[-1])
    others = " ".join(sorted(str(name) for name in dataset.coords if name not in dataset.dims))
    with replacing(path) as stage:
        stage.write_bytes(bytes(dataset.to_netcdf(engine="h5netcdf")))
        with (
            ErrorKeepingFile(stage) as disk,
            h5py.File(disk, "r+") as store,
            h5netcdf.File(store, "a") as file,
        ):
            file.attrs.pop("coordinates", None)  # xarray's, written before there are variables
            for name, attrs in variables.items():
                variable = file.create_variable(
                    name,
                    dims,
                    np.dtype("float32"),
                    fillvalue=np.float32("nan"),
                    chunks=tuple(map(min, chunks, shape)),
                    compression="gzip",
                    compression_opts=4,
                    shuffle=True,
                )
                variable.attrs.update(attrs | {"coordinates": others})

            def write_block(start: tuple[int, ...], values: np.ndarray) -> None:
                block = tuple(
                    slice(a, a + n) for a, n in zip(start, values.shape[:-1], strict=True)
                )
                for number, name in enumerate(variables):
                    file.variables[name][block] = values[..., number]
                disk.check()

            yield write_block
            file.close()
            store.close()
            disk.check()


def _write_zarr(field: Field, path: Path) -> None:
    with replacing(path) as stage:  # version 3 has no settled form for strings yet
        to_xarray(field).to_zarr(stage, zarr_format=2, consolidated=True)


def _write_csv(field: Field, path: Path, block_rows: int = BLOCK_ROWS) -> None:
    with replacing(path) as stage, stage.open("wb") as raw:
        zipped = gzip.GzipFile("", "wb", mtime=0, fileobj=raw) if path.suffix == ".gz" else raw
        with io.TextIOWrapper(zipped, encoding="utf-8", newline="") as text:
            for number, block in enumerate(_blocks(field, block_rows, text=True)):
                block.to_csv(text, index=False, header=number == 0, lineterminator="\n")


def _write_parquet(field: Field, path: Path, block_rows: int = BLOCK_ROWS) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with replacing(path) as stage:
        writer = None
        for block in _blocks(field, block_rows, text=False):
            schema = None if writer is None else writer.schema
            rows = pa.Table.from_pandas(block, schema=schema, preserve_index=False)
            writer = writer or pq.ParquetWriter(stage, rows.schema)
            writer.write_table(rows)
        assert writer is not None  # a field has at least one frame
        writer.close()


WRITERS: dict[str, Callable[..., None]] = {  # (field, path, limits of memory)
    ".nc": to_netcdf,
    ".zarr": _write_zarr,
    ".csv": _write_csv,
    ".csv.gz": _write_csv,
    ".parquet": _write_parquet,
}


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2 if path.suffix.lower() == ".gz" else -1 :]).lower()


def _is_replaceable(path: Path, suffix: str) -> bool:
    """Files replace files, and Zarr stores replace Zarr stores; other folders are kept."""
    if suffix != ".zarr":
        return path.is_file()
    return path.is_dir() and any((path / name).exists() for name in ZARR_FILES)


def _blocks(field: Field, block_rows: int, text: bool) -> Iterator[pd.DataFrame]:
    length = max(1, block_rows // len(field.points))
    for start in range(0, len(field.times), length):
        yield table(field, start, start + length, text)


def _spreadsheet_safe(text: str) -> str:
    """The text, behind an apostrophe if a spreadsheet would execute it."""
    if not text.startswith(FORMULA_STARTS):
        return text
    try:
        float(text)
        return text  # a number is not executed
    except ValueError:
        return f"'{text}"


def _times(times: Int64[np.ndarray, " time"], field: Field, text: bool) -> np.ndarray:
    """Dates, as text with as many decimals of a second as the field needs; or seconds."""
    if not field.calendar:
        return times / NANOSECONDS
    dates = times.astype("datetime64[ns]")
    if not text:
        return dates
    sizes = (("s", NANOSECONDS), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))
    all_times = np.append(field.times, field.reference_time or 0)
    unit: Any = next(unit for unit, size in sizes if not (all_times % size).any())
    return np.datetime_as_string(dates, unit=unit, timezone="UTC")


def _durations(times: Int64[np.ndarray, " time"], field: Field, text: bool) -> np.ndarray:
    import pandas as pd

    if not field.calendar:
        return times / NANOSECONDS
    durations = times.astype("timedelta64[ns]")
    return np.array([pd.Timedelta(d).isoformat() for d in durations]) if text else durations


def _site_labels(name: str, row: np.ndarray) -> np.ndarray:
    """Numbers of each station; the support of a forecast as a word."""
    if name != "support" or not np.isin(row, range(len(SUPPORT))).all():
        return row
    return np.array(SUPPORT, dtype=object)[row.astype(np.int64)]
