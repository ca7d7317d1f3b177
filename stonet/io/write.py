"""Fields as files: NetCDF and Zarr after CF, or long tables. Each appears whole or not at all.

A table has a row for each time and station, and these columns: station, time (ISO 8601, UTC), lat
and lon (or x and y); in forecasts forecast_reference_time and forecast_period (an ISO 8601
duration, as `pandas.to_timedelta` reads it); the channels, empty where missing; and what is known
of each station: altitude, nearest_observation, support in words. A unit stands behind the name, as
in "t2m (K)". Without a calendar times are "time (s)".
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.data.cf import NANOSECONDS, SUPPORT, replacing, to_netcdf, to_xarray
from stonet.data.field import Field
from stonet.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

ROWS = 2**19  # of a table that are made at a time
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a text that starts so
BRACKETS = set("()[]")
ZARR_FILES = (".zgroup", ".zmetadata", ".zattrs", "zarr.json")


def write(field: Field, path: str | Path) -> None:
    """Write the field in the format that the name asks for: .nc, .zarr, .csv, .csv.gz, .parquet."""
    check_writable(path)
    WRITERS[_suffix(Path(path))](field, Path(path))


def check_writable(path: str | Path) -> None:
    """Refuse what `write` could not do, before any long work."""
    path = Path(path)
    suffix = _suffix(path)
    if suffix not in WRITERS:
        raise UsageError(
            f"Cannot write '{path}': names end in {', '.join(WRITERS)}. Choose one of these."
        )
    if not path.parent.is_dir():
        raise UsageError(f"No folder '{path.parent}' to write '{path.name}' into. Make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"The folder '{path.parent}' is not writable. Choose another one.")
    if path.exists() and not _may_replace(path, suffix):
        raise UsageError(
            f"'{path}' is there already, no {suffix} that could be replaced. Choose another name."
        )
    library = {".zarr": "zarr", ".parquet": "pyarrow"}.get(suffix)
    if library and find_spec(library) is None:
        raise UsageError(f"{suffix} needs the library {library}: pip install 'stonet[io]'")


def table(
    field: Field, start: int = 0, stop: int | None = None, text: bool = False
) -> pd.DataFrame:
    """The long table of some of the frames; as `text`, times are words and names are harmless."""
    import pandas as pd

    times, count = field.times[start:stop], len(field.points)
    safe, clock = _harmless if text else str, "" if field.calendar else "s"
    columns: dict[str, Any] = {}

    def add(name: str, unit: str, values: np.ndarray) -> None:
        title = safe(name if unit in ("", "1") or BRACKETS & {*name, *unit} else f"{name} ({unit})")
        columns[title if title not in columns else f"{title}_of_station"] = values

    add("station", "", np.tile(np.array([safe(n) for n in field.points.names], object), len(times)))
    add("time", clock, np.repeat(_dates(times, field, text), count))
    for axis, values in zip(field.points.geometry.axes, field.points.coordinates.T, strict=True):
        add(axis, "", np.tile(values, len(times)))
    if field.reference_time is not None:
        issued = np.full(len(times), field.reference_time, dtype=np.int64)
        add("forecast_reference_time", clock, np.repeat(_dates(issued, field, text), count))
        add("forecast_period", clock, np.repeat(_spans(times - issued, field, text), count))
    values = field.values[start:stop]
    for number, (name, unit) in enumerate(field.quantity):
        add(name, unit, values[..., number].ravel())
    units = {"altitude": "m", "nearest_observation": "km" * (field.points.kind == "sphere")}
    for name, row in field.sites.items():
        add(name, units.get(name, ""), np.tile(_words(name, row), len(times)))
    made = pd.DataFrame(columns)
    for name in ("time", "forecast_reference_time"):
        if field.calendar and not text and name in made:
            made[name] = made[name].dt.tz_localize("UTC")
    return made


def _write_zarr(field: Field, path: Path) -> None:
    with replacing(path) as temporary:  # version 3 has no settled form for texts yet
        to_xarray(field).to_zarr(temporary, zarr_format=2, consolidated=True)


def _write_csv(field: Field, path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb") as raw:
        zipped = gzip.GzipFile("", "wb", mtime=0, fileobj=raw) if path.suffix == ".gz" else raw
        with io.TextIOWrapper(zipped, encoding="utf-8", newline="") as text:
            for number, block in enumerate(_blocks(field, text=True)):
                block.to_csv(text, index=False, header=number == 0, lineterminator="\n")


def _write_parquet(field: Field, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        writer = None
        for block in _blocks(field, text=False):
            schema = None if writer is None else writer.schema
            made = pa.Table.from_pandas(block, schema=schema, preserve_index=False)
            writer = writer or pq.ParquetWriter(temporary, made.schema)
            writer.write_table(made)
        assert writer is not None  # a field has at least one frame
        writer.close()


WRITERS: dict[str, Callable[[Field, Path], None]] = {
    ".nc": to_netcdf,
    ".zarr": _write_zarr,
    ".csv": _write_csv,
    ".csv.gz": _write_csv,
    ".parquet": _write_parquet,
}


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2 if path.suffix.lower() == ".gz" else -1 :]).lower()


def _may_replace(path: Path, suffix: str) -> bool:
    """Files by files, and Zarr stores by Zarr stores; a folder of anything else is kept."""
    if suffix != ".zarr":
        return path.is_file()
    return path.is_dir() and any((path / name).exists() for name in ZARR_FILES)


def _blocks(field: Field, text: bool) -> Iterator[pd.DataFrame]:
    length = max(1, ROWS // len(field.points))
    for start in range(0, len(field.times), length):
        yield table(field, start, start + length, text)


def _harmless(text: str) -> str:
    """A text as it is, or behind an apostrophe if a spreadsheet would run it."""
    if not text.startswith(FORMULA):
        return text
    try:
        float(text)
        return text  # a number is only a number
    except ValueError:
        return f"'{text}"


def _dates(times: Int64[np.ndarray, " time"], field: Field, text: bool) -> np.ndarray:
    """Dates, as text with as many digits behind the second as the field needs; or seconds."""
    if not field.calendar:
        return times / NANOSECONDS
    dates = times.astype("datetime64[ns]")
    if not text:
        return dates
    sizes = (("s", NANOSECONDS), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))
    every = np.append(field.times, field.reference_time or 0)
    unit: Any = next(unit for unit, size in sizes if not (every % size).any())
    return np.datetime_as_string(dates, unit=unit, timezone="UTC")


def _spans(times: Int64[np.ndarray, " time"], field: Field, text: bool) -> np.ndarray:
    import pandas as pd

    if not field.calendar:
        return times / NANOSECONDS
    spans = times.astype("timedelta64[ns]")
    return np.array([pd.Timedelta(span).isoformat() for span in spans]) if text else spans


def _words(name: str, row: np.ndarray) -> np.ndarray:
    if name != "support" or not np.isin(row, range(len(SUPPORT))).all():
        return row
    return np.array(SUPPORT, dtype=object)[row.astype(np.int64)]
