"""Tables as text: CSV in its many dialects, perhaps compressed, in blocks of whole lines.

The text is never in memory as a whole, each line must have as many fields as the header, and each
row knows its line in the file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from stonet.errors import DataError, ResourceError
from stonet.io.tables.columns import Table, check_names, find_axes, find_time, listed, stem_of
from stonet.io.tables.compression import Stream, unpacked
from stonet.io.tables.csv_dialect import (
    SAMPLE,
    decimal,
    encoding,
    find_header,
    second_table,
    separator,
    split,
    text_lines,
)
from stonet.io.tables.numeric_columns import MARKS
from stonet.system.spill import memory_budget, size_label

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 2**24  # bytes of text parsed at a time
HEAD = 2**17  # bytes that tell the dialect
LONGEST = 2**20  # bytes of one line
EMPTY_LINES = 2**19  # of a block; more take long to count and mean nothing
TEXT_PER_BUDGET = 8  # bytes of text read for each byte of the memory budget


class Text(Table):
    """A text file whose dialect is known; its rows are read by `blocks`."""

    row = "line"
    path: Path

    def __init__(self, path: Path) -> None:
        self.path, self.origin, self.title = path, str(path), stem_of(path)
        with unpacked(path) as stream:
            head = stream.read(HEAD)
        lines = text_lines(head, path, whole=len(head) < HEAD)
        self.above, header = find_header(lines, path)
        self.separator = separator(lines[self.above :], header)
        self.preamble: pd.DataFrame | None = None
        self.names = self._names(header)
        follows = second_table(lines, self.above)
        if follows and find_axes(self.names, None)[1] and not find_time(self.names, None):
            second = self._names(lines[follows].decode(encoding(lines[follows])))
            if find_time(second, None):
                self.preamble = self._parsed(lines[self.above + 1 : follows], self.names)
                self.above, self.names = follows, second
        rows = [line for line in lines[self.above + 1 :] if line.strip() and line[:1] != b"#"]
        self.decimal = decimal(b"\n".join(rows), self.separator)
        self.sample = self._parsed(rows[:SAMPLE], self.names)

    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, block by block, indexed by the file's lines; labels stay text."""
        import pandas as pd

        places = {self.names.index(name): name for name in used}
        text = {place: str for place, name in places.items() if name in labels}
        marks: Any = {place: [""] if place in text else list(MARKS) for place in places}
        first = True
        with unpacked(self.path) as stream:
            for _ in range(self.above + 1):
                stream.readline()
            for line, block in _blocks(stream, self.above + 2, len(self.names), self.path):
                if first:
                    self.decimal, first = decimal(block, self.separator), False
                rows = _checked_rows(block, line, self.separator, len(self.names), self.path)
                if not len(rows):
                    continue
                frame = pd.read_csv(
                    io.BytesIO(block),
                    sep=self.separator,
                    header=None,
                    names=list(range(len(self.names))),
                    usecols=list(places),
                    index_col=False,
                    dtype=text,
                    na_values=marks,
                    keep_default_na=False,
                    skipinitialspace=True,
                    decimal=self.decimal,
                    encoding=encoding(block),
                )
                if len(frame) != len(rows):
                    raise DataError(
                        f"'{self.path}' is no CSV table: lines {line} to {rows[-1]} hold "
                        f"{len(frame)} rows and not {len(rows)}. Is a quotation mark missing?"
                    )
                yield frame.set_axis(rows, axis=0).rename(columns=places)

    def _names(self, header: str) -> tuple[str, ...]:
        names = [name.strip() for name in split(header, self.separator)]
        check_names(names, self.origin)
        if len(names) < 2:
            raise DataError(
                f"'{self.path}' is no CSV table: its first line, {listed([header])}, has a single "
                "field; expected names of columns, separated by comma, semicolon or tab."
            )
        blank = iter(range(len(names)))
        return tuple(name or f"Unnamed: {next(blank)}" for name in names)

    def _parsed(self, lines: Sequence[bytes], names: Sequence[str]) -> pd.DataFrame:
        """A few lines as text; what is ragged is told when the rows are read."""
        import pandas as pd

        texts = [line.decode(encoding(line)) for line in lines if line.strip()]
        rows = [[text.strip() for text in split(line, self.separator)] for line in texts]
        cells = [[*row, *[""] * len(names)][: len(names)] for row in rows]
        frame = pd.DataFrame(cells, columns=list(names), dtype=object)
        return frame.mask(frame.isin(MARKS))


def _blocks(stream: Stream, line: int, fields: int, path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines, about BLOCK bytes at a time, and the number of the first one."""
    total, most = 0, TEXT_PER_BUDGET * memory_budget()
    while block := stream.read(BLOCK):
        if not block.endswith(b"\n"):
            block += stream.readline(LONGEST)
        block += _rest_of_quote(stream, block, line, path)
        total += len(block)
        if total > most:
            raise ResourceError(
                f"'{path}' unpacks to more than {size_label(most)} of text: {TEXT_PER_BUDGET} "
                f"times the memory budget ({size_label(memory_budget())}, see STONET_MEMORY). "
                "Split it, or convert it to Parquet or NetCDF."
            )
        if b"\0" in block:
            raise DataError(f"'{path}' is no CSV table: it holds bytes that are no text.")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        count = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
        if count > len(block) // fields + EMPTY_LINES:
            raise DataError(
                f"'{path}' is no CSV table: after line {line} most lines are empty or too short."
            )
        if b"#" in block:
            block = re.sub(rb"(?m)^#[^\n]*$", b"", block)
        yield line, block
        line += count


def _rest_of_quote(stream: Stream, block: bytes, line: int, path: Path) -> bytes:
    """The lines over which a quoted field goes on."""
    inside, rest = b'"' in block and block.count(b'"') % 2 == 1, bytearray()
    while inside:
        more = stream.readline(LONGEST)
        if not more or len(rest) > LONGEST:
            raise DataError(
                f"'{path}': after line {line} a quotation mark is opened and never closed."
            )
        rest += more
        inside = more.count(b'"') % 2 == 0
    return bytes(rest)


def _checked_rows(
    block: bytes, line: int, mark: str, fields: int, path: Path
) -> Int64[np.ndarray, " row"]:
    """The lines that hold rows; each must have as many fields as the header."""
    text = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
    breaks, marks = text == ord("\n"), text == ord(mark)
    every = ends = np.flatnonzero(breaks)
    if b'"' in block:
        outside = np.cumsum(text == ord('"'), dtype=np.uint8) & 1 == 0
        marks &= outside
        ends = np.flatnonzero(breaks & outside)
    starts = np.r_[0, ends[:-1] + 1]
    counts = np.diff(np.searchsorted(np.flatnonzero(marks), ends), prepend=0) + 1
    odd, where = np.flatnonzero(counts != fields), np.arange(len(ends))
    ink = np.flatnonzero(text > ord(" ")) if len(odd) else odd
    blank = np.searchsorted(ink, starts[odd]) == np.searchsorted(ink, ends[odd])
    numbers = np.asarray(np.searchsorted(every, starts) if len(ends) < len(every) else where)
    if not blank.all():
        wrong = odd[~blank]
        raise DataError(
            f"'{path}' is no CSV table: line {numbers[wrong[0]] + line} has {counts[wrong[0]]} "
            f"fields and the header {fields} ({len(wrong)} such lines near there). Is it whole?"
        )
    return np.delete(numbers, odd) + line
