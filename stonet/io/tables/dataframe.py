"""Tables with typed columns: pandas, polars and arrow in memory, and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stonet.errors import DataError, ResourceError, UsageError
from stonet.io.tables.columns import Table, check_names, find_column, find_time, stem_of
from stonet.io.tables.parquet_safety import PageSizes, page_sizes
from stonet.system.resources import memory_budget, size_label

if TYPE_CHECKING:
    import pandas as pd

BLOCK_ROWS = 2**18  # read at a time
TEXT_ROWS = 2**14  # read at a time from a file with text, of which a row may hold much
SAMPLE_ROWS = 100
TEXT_TYPES = ("string", "large_string", "binary", "large_binary")
TIME_TYPES = ("time", "date")  # beginnings of the names of arrow's types of times


class DataFrameTable(Table):
    """A table in memory.

    Args:
        source: a DataFrame, or an object with to_pandas().
        origin: its name, for messages.
    """

    row_label = "row"
    decimal = "."
    preamble = None
    path = None

    def __init__(self, source: Any, origin: str) -> None:
        import pandas as pd

        frame = source.to_pandas() if hasattr(source, "to_pandas") else source
        if not isinstance(frame, pd.DataFrame) or frame.columns.nlevels > 1:
            raise DataError(f"{origin} is not a table with one level of columns.")
        if any(frame.index.names) or isinstance(frame.index, (pd.DatetimeIndex, pd.PeriodIndex)):
            names = [name or "time" for name in frame.index.names]
            frame = frame.reset_index(names=names, allow_duplicates=True)
        self.origin = origin
        self.title = str(frame.columns.name) if frame.columns.name else "value"
        self.names = tuple(str(name) for name in frame.columns)
        check_names(self.names, origin)
        self.frame = frame.set_axis(list(self.names), axis=1).reset_index(drop=True)
        self.sample = _as_text(self.frame.iloc[:SAMPLE_ROWS])

    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, block by block, indexed by the row's position."""
        for start in range(0, len(self.frame), BLOCK_ROWS):
            yield _plain(self.frame.iloc[start : start + BLOCK_ROWS][list(used)])


class ParquetTable(Table):
    """A Parquet file; its metadata are checked before any value is read.

    Args:
        path: of the file.
    """

    path: Path
    row_label = "row"
    decimal = "."
    preamble = None

    def __init__(self, path: Path) -> None:
        pq = _pyarrow(path)
        self.path, self.origin, self.title = path, str(path), stem_of(path)
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            flat = [field for field in schema if field.type.num_fields == 0 and not _is_blob(field)]
            self.stored = {field.name: field.name for field in flat}
            self.texts = [field.name for field in flat if str(field.type) in TEXT_TYPES]
            check_names(schema.names, str(path))
            unnamed_times = [
                field.name
                for field in flat
                if field.name.startswith("__index_level_") and str(field.type)[:4] in TIME_TYPES
            ]
            if unnamed_times and not find_time(schema.names, None):  # the index of a DataFrame
                self.stored["time"] = self.stored.pop(unnamed_times[0])
            self.names = tuple(self.stored)
            sizes = self._check_size(file.metadata, self.names)
        with pq.ParquetFile(
            path, read_dictionary=[] if sizes.largest_delta else self.texts
        ) as file:
            count = min(SAMPLE_ROWS, _safe_rows(sizes))
            batches = file.iter_batches(count, columns=list(self.stored.values()))
            self.sample = _as_text(_plain(self._renamed(next(batches, None))))

    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, block by block, indexed by the row's position."""
        import pandas as pd

        pq = _pyarrow(self.path)
        start = 0
        stored = [self.stored[name] for name in used]
        texts = [name for name in stored if name in self.texts]
        with pq.ParquetFile(self.path) as file:
            sizes = self._check_size(file.metadata, used)
        rows = min(_safe_rows(sizes), TEXT_ROWS if texts else BLOCK_ROWS)
        once = [] if sizes.largest_delta else texts  # Arrow has no dictionary of differences
        with pq.ParquetFile(self.path, read_dictionary=once) as file:  # each text once
            for batch in file.iter_batches(rows, columns=stored):
                self._check(batch.nbytes, f"{len(batch)} rows unpack to")
                frame = self._renamed(batch)[list(used)]
                frame.index = pd.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield _plain(frame)

    def _renamed(self, batch: Any) -> pd.DataFrame:
        """A batch with the names of `self.names`."""
        import pandas as pd
        import pyarrow as pa

        if batch is None:
            return pd.DataFrame({name: [] for name in self.names}, dtype=object)
        frame = pa.Table.from_batches([batch]).to_pandas(ignore_metadata=True)
        return frame.rename(columns={stored: name for name, stored in self.stored.items()})

    def _check_size(self, metadata: Any, used: Sequence[str]) -> PageSizes:
        """Refuse rows, or row groups, that exceed the memory budget."""
        sizes = page_sizes(self.path, metadata, {self.stored[name] for name in used})
        rows = metadata.num_rows * (20 + 4 * len(used))
        for size, what in (
            (sizes.largest_group, "a row group unpacks to"),
            (rows, "its rows take"),
        ):
            self._check(size, what)
        return sizes

    def _check(self, size: int, what: str) -> None:
        if size > memory_budget():
            raise ResourceError(
                f"'{self.path}': {what} {size_label(size)}, more than the memory budget "
                f"({size_label(memory_budget())}, see STONET_MEMORY). Choose --variables, or "
                "write it again in smaller files and row groups."
            )


def _safe_rows(sizes: PageSizes) -> int:
    """Rows that fit the memory budget even if every text is as long as a page of differences."""
    return max(1, memory_budget() // max(sizes.largest_delta, 1))


def _is_blob(field: Any) -> bool:
    """Whether a column holds bytes of a fixed length, which are neither numbers nor texts."""
    return str(field.type).startswith("fixed_size_binary")


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            f"'{path}' is a Parquet file, which needs pyarrow: pip install 'stonet[io]'."
        ) from None
    return pq


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Categories as their values, and objects of dates as datetimes."""
    import pandas as pd

    changed = {}
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            categories, codes = column.cat.categories, column.cat.codes.to_numpy()
            if categories.dtype.kind not in "iufbmM":  # texts: each row refers to the same one
                texts = np.array([*categories.to_numpy(dtype=object), None], dtype=object)
                column = pd.Series(texts[codes], index=column.index, dtype=object)
            else:
                column = column.astype(categories.dtype)
            changed[name] = column
        if column.dtype == object and find_column([str(name)], "time"):
            first = next(iter(column.dropna()), None)
            if hasattr(first, "year"):
                zone = getattr(first, "tzinfo", None)
                changed[name] = pd.to_datetime(column, utc=zone is not None)
    return frame.assign(**changed) if changed else frame


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(object).where(frame.notna(), None).map(lambda v: v if v is None else str(v))
