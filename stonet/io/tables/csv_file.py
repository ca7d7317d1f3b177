"""CSV files in many dialects, plain or compressed, read in blocks of complete lines.

The text is never in memory as a whole, every line must have as many fields as the header, and every
row knows its line in the file.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Int64

from stonet.errors import DataError, ResourceError, UsageError
from stonet.io.safety import check_plain
from stonet.io.tables.columns import (
    MISSING_MARKS,
    Table,
    check_names,
    find_axes,
    find_time,
    quote_names,
    stem_of,
)
from stonet.system.resources import memory_budget, size_label

if TYPE_CHECKING:
    import pandas as pd

BLOCK_BYTES = 2**24  # of text parsed at a time
HEAD_BYTES = 2**17  # of text from which the dialect is recognised
SAMPLE_LINES = 100
SEPARATOR_LINES = 20  # from which the separator is recognised
MAX_LINE = 2**20  # bytes
MAX_EMPTY_LINES = 2**19  # of a block
MAX_TEXT_PER_MEMORY = 8  # bytes of text for each byte of the memory budget
SEPARATORS = ",;\t|"


class CsvTable(Table):
    """A CSV file whose dialect has been recognised.

    Args:
        path: of the file, plain or compressed.
    """

    row_label = "line"
    path: Path

    def __init__(self, path: Path) -> None:
        self.path, self.origin, self.title = path, str(path), stem_of(path)
        with decompressed(path) as stream:
            head = stream.read(HEAD_BYTES)
        lines = _first_lines(head, path, complete=len(head) < HEAD_BYTES)
        self.above, header = _find_header(lines, path)
        self.separator = _find_separator(lines[self.above :], header)
        self.preamble: pd.DataFrame | None = None
        self.names = self._split_header(header)
        second = _find_second_table(lines, self.above)
        if second and find_axes(self.names, None)[1] and not find_time(self.names, None):
            names = self._split_header(_decoded(lines[second]))
            if find_time(names, None):
                self.preamble = self._parse(lines[self.above + 1 : second], self.names)
                self.above, self.names = second, names
        rows = [line for line in lines[self.above + 1 :] if line.strip() and line[:1] != b"#"]
        self.decimal = _find_decimal(b"\n".join(rows), self.separator)
        self.sample = self._parse(rows[:SAMPLE_LINES], self.names)

    def blocks(self, used: Sequence[str], labels: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The used columns, block by block, indexed by the file's lines; labels stay text."""
        import pandas as pd

        columns = {self.names.index(name): name for name in used}
        as_text = {number: str for number, name in columns.items() if name in labels}
        marks: Any = {n: [""] if n in as_text else list(MISSING_MARKS) for n in columns}
        first = True
        with decompressed(self.path) as stream:
            for _ in range(self.above + 1):
                stream.readline()
            for line, block in _read_blocks(stream, self.above + 2, len(self.names), self.path):
                if first:
                    self.decimal, first = _find_decimal(block, self.separator), False
                rows = _check_rows(block, line, self.separator, len(self.names), self.path)
                if not len(rows):
                    continue
                frame = pd.read_csv(
                    io.BytesIO(block),
                    sep=self.separator,
                    header=None,
                    names=list(range(len(self.names))),
                    usecols=list(columns),
                    index_col=False,
                    dtype=as_text,
                    na_values=marks,
                    keep_default_na=False,
                    skipinitialspace=True,
                    decimal=self.decimal,
                    encoding=_encoding(block),
                )
                if len(frame) != len(rows):
                    raise _not_csv(
                        self.path,
                        f"lines {line} to {rows[-1]} hold {len(frame)} rows, not {len(rows)}. Is a "
                        "quotation mark missing?",
                    )
                yield frame.set_axis(rows, axis=0).rename(columns=columns)

    def _split_header(self, header: str) -> tuple[str, ...]:
        names = [name.strip() for name in _split(header, self.separator)]
        check_names(names, self.origin)
        if len(names) < 2:
            raise _not_csv(
                self.path,
                f"its first line, {quote_names([header])}, has a single field; expected names of "
                "columns, separated by comma, semicolon or tab.",
            )
        blank = iter(range(len(names)))
        return tuple(name or f"Unnamed: {next(blank)}" for name in names)

    def _parse(self, lines: Sequence[bytes], names: Sequence[str]) -> pd.DataFrame:
        """Lines as text; wrong numbers of fields are reported when the rows are read."""
        import pandas as pd

        texts = [_decoded(line) for line in lines if line.strip()]
        rows = [[text.strip() for text in _split(line, self.separator)] for line in texts]
        cells = [[*row, *[""] * len(names)][: len(names)] for row in rows]
        frame = pd.DataFrame(cells, columns=list(names), dtype=object)
        return frame.mask(frame.isin(MISSING_MARKS))


# Compression


@runtime_checkable
class ByteStream(Protocol):
    """A file that is read from its beginning."""

    def read(self, size: int = -1, /) -> bytes:
        """Read bytes from the current position.

        Args:
            size: most bytes; -1: all.
        """
        ...

    def readline(self, size: int = -1, /) -> bytes:
        """Read one line.

        Args:
            size: most bytes; -1: all.
        """
        ...


@contextmanager
def decompressed(path: Path) -> Iterator[ByteStream]:
    """The bytes of a file, decompressed if its first bytes are those of a compressed file.

    Args:
        path: of the file.
    """
    import bz2
    import gzip
    import lzma

    check_plain(path)
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"PK"):
        raise DataError(
            f"'{path}' is a ZIP archive (or an Excel file). Unpack it first, or save it as CSV."
        )
    if magic.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"'{path}' is UTF-16 text. Save it as UTF-8.")
    openers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    opener: Any = next((o for start, o in openers.items() if magic.startswith(start)), open)
    try:
        if magic.startswith(b"\x28\xb5\x2f\xfd"):
            yield _zstandard(path)
        else:
            with opener(path, "rb") as stream:
                yield cast(ByteStream, stream)
    except lzma.LZMAError as error:  # has no base class but Exception
        raise DataError(f"'{path}' cannot be unpacked ({error}). Is it complete?") from None


def _zstandard(path: Path) -> ByteStream:
    try:
        import pyarrow as pa
    except ImportError:
        raise UsageError(
            f"'{path}' is compressed with Zstandard, which needs pyarrow: pip install 'stonet[io]'."
        ) from None
    stream = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    return cast(ByteStream, io.BufferedReader(stream, 2**16))


# Dialect


def _first_lines(head: bytes, path: Path, complete: bool) -> list[bytes]:
    """The first lines of a file; other content than text is refused."""
    if head and b"\r" in head and b"\n" not in head:
        raise _not_csv(path, "its lines end in CR only. Save it again.")
    if b"\0" in head or re.search(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]", head):
        raise _not_csv(path, "it holds bytes that are not text.")
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    return lines if complete or len(lines) < 2 else lines[:-1]  # the last one may be cut


def _find_header(lines: list[bytes], path: Path) -> tuple[int, str]:
    """Number of lines above the header, and the header; '#a,b' is one above rows of numbers."""
    comment = None
    for number, line in enumerate(lines):
        if line[:1] == b"#":
            comment = number
        elif line.strip():
            fields = max(line.count(mark.encode()) for mark in SEPARATORS)
            names = b"" if comment is None else lines[comment].lstrip(b"# ")
            numeric = re.search(rb"[A-Za-z_]{2}", line) is None
            same = max(names.count(mark.encode()) for mark in SEPARATORS) == fields > 0
            if comment is not None and comment == number - 1 and numeric and same:
                return comment, _decoded(names)
            return number, _decoded(line)
    raise _not_csv(path, "it is empty.")


def _find_separator(lines: Sequence[bytes], header: str) -> str:
    """The mark that splits the most lines into as many fields as the header."""
    rows = [_decoded(line) for line in lines[1:SAMPLE_LINES] if line.strip()]
    texts = (header, *rows[:SEPARATOR_LINES])

    def score(mark: str) -> tuple[float, int]:
        counts = [len(next(csv.reader([text], delimiter=mark), [])) for text in texts]
        same = sum(count == counts[0] for count in counts) / len(counts)
        return (same if counts[0] > 1 else -1.0, counts[0])

    return max(SEPARATORS, key=score)


def _find_second_table(lines: Sequence[bytes], above: int) -> int | None:
    """The line where another table starts after an empty line; the first may list stations."""
    for number in range(above + 2, len(lines) - 1):
        if not lines[number].strip() and lines[number + 1].strip():
            return number + 1
    return None


def _find_decimal(block: bytes, separator: str) -> str:
    """The decimal mark: a comma if numbers have one and none has a point."""
    edge = re.escape(separator.encode())
    if separator == "," or not re.search(rb'["\n%s]-?\d+,\d+["\r\n%s]' % (edge, edge), block):
        return "."
    return "." if re.search(rb'["\n%s]-?\d+\.\d+["\r\n%s]' % (edge, edge), block) else ","


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return [line]


def _encoding(block: bytes) -> str:
    """UTF-8, or else Latin-1."""
    if block.isascii():  # far faster than decoding
        return "utf-8"
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"  # decodes every byte
    return "utf-8"


def _decoded(line: bytes) -> str:
    return line.decode(_encoding(line))


def _not_csv(path: Path, reason: str) -> DataError:
    return DataError(f"'{path}' is not a CSV table: {reason}")


# Rows


def _read_blocks(
    stream: ByteStream, line: int, fields: int, path: Path
) -> Iterator[tuple[int, bytes]]:
    """Complete lines, about BLOCK_BYTES at a time, and the number of the first one."""
    total, limit = 0, MAX_TEXT_PER_MEMORY * memory_budget()
    while block := stream.read(BLOCK_BYTES):
        if not block.endswith(b"\n"):
            block += stream.readline(MAX_LINE)
        block += _rest_of_quote(stream, block, line, path)
        total += len(block)
        if total > limit:
            raise ResourceError(
                f"'{path}' unpacks to more than {size_label(limit)} of text: {MAX_TEXT_PER_MEMORY} "
                f"times the memory budget ({size_label(memory_budget())}, see STONET_MEMORY). "
                "Split it, or convert it to Parquet or NetCDF."
            )
        if b"\0" in block:
            raise _not_csv(path, "it holds bytes that are not text.")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        count = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
        if count > len(block) // fields + MAX_EMPTY_LINES:
            raise _not_csv(path, f"after line {line} most lines are empty or too short.")
        if b"#" in block:
            block = re.sub(rb"(?m)^#[^\n]*$", b"", block)
        yield line, block
        line += count


def _rest_of_quote(stream: ByteStream, block: bytes, line: int, path: Path) -> bytes:
    """The lines over which a quoted field continues."""
    inside, rest = b'"' in block and block.count(b'"') % 2 == 1, bytearray()
    while inside:
        more = stream.readline(MAX_LINE)
        if not more or len(rest) > MAX_LINE:
            raise DataError(
                f"'{path}': after line {line} a quotation mark is opened and never closed."
            )
        rest += more
        inside = more.count(b'"') % 2 == 0
    return bytes(rest)


def _check_rows(
    block: bytes, line: int, separator: str, fields: int, path: Path
) -> Int64[np.ndarray, " row"]:
    """The line numbers of the rows; each must have as many fields as the header."""
    text = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
    breaks, marks = text == ord("\n"), text == ord(separator)
    all_ends = ends = np.flatnonzero(breaks)
    if b'"' in block:
        outside = np.cumsum(text == ord('"'), dtype=np.uint8) & 1 == 0
        marks &= outside
        ends = np.flatnonzero(breaks & outside)
    starts = np.r_[0, ends[:-1] + 1]
    counts = np.diff(np.searchsorted(np.flatnonzero(marks), ends), prepend=0) + 1
    odd, index = np.flatnonzero(counts != fields), np.arange(len(ends))
    visible = np.flatnonzero(text > ord(" ")) if len(odd) else odd
    blank = np.searchsorted(visible, starts[odd]) == np.searchsorted(visible, ends[odd])
    multiline = len(ends) < len(all_ends)
    numbers = np.asarray(np.searchsorted(all_ends, starts) if multiline else index)
    if not blank.all():
        wrong = odd[~blank]
        raise _not_csv(
            path,
            f"line {numbers[wrong[0]] + line} has {counts[wrong[0]]} fields and the header "
            f"{fields} ({len(wrong)} such lines near there). Is it complete?",
        )
    return np.delete(numbers, odd) + line
