"""How a text table is written: its header, separator, decimal mark and encoding."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from stonet.errors import DataError

SAMPLE = 100  # lines
SEPARATORS = ",;\t|"


def text_lines(head: bytes, path: Path, whole: bool) -> list[bytes]:
    """The first lines of a file; what is no text is refused."""
    if head and b"\r" in head and b"\n" not in head:
        raise DataError(f"'{path}' is no CSV table: its lines end in CR only. Save it again.")
    if b"\0" in head or re.search(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]", head):
        raise DataError(f"'{path}' is no CSV table: it holds bytes that are no text.")
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    return lines if whole or len(lines) < 2 else lines[:-1]  # the last one may be cut


def find_header(lines: list[bytes], path: Path) -> tuple[int, str]:
    """How many lines are above the header, and it. '#a,b' is one above rows of numbers."""
    comment = None
    for number, line in enumerate(lines):
        if line[:1] == b"#":
            comment = number
        elif line.strip():
            fields = max(line.count(mark.encode()) for mark in SEPARATORS)
            names = b"" if comment is None else lines[comment].lstrip(b"# ")
            numeric = re.search(rb"[A-Za-z_]{2}", line) is None
            alike = max(names.count(mark.encode()) for mark in SEPARATORS) == fields > 0
            if comment is not None and comment == number - 1 and numeric and alike:
                return comment, names.decode(encoding(names))
            return number, line.decode(encoding(line))
    raise DataError(f"'{path}' is no CSV table: it is empty.")


def separator(lines: Sequence[bytes], header: str) -> str:
    """The mark that splits the header and the rows below into equally many fields, most of all."""
    rows = [line.decode(encoding(line)) for line in lines[1:SAMPLE] if line.strip()]

    def fitness(mark: str) -> tuple[float, int]:
        counts = [
            len(next(csv.reader([text], delimiter=mark), [])) for text in (header, *rows[:20])
        ]
        alike = sum(count == counts[0] for count in counts) / len(counts)
        return (alike if counts[0] > 1 else -1.0, counts[0])

    return max(SEPARATORS, key=fitness)


def split(line: str, mark: str) -> list[str]:
    """A line's fields; quotes may hold the mark."""
    try:
        return next(csv.reader([line], delimiter=mark, skipinitialspace=True), [])
    except csv.Error:
        return [line]


def second_table(lines: Sequence[bytes], above: int) -> int | None:
    """Where another table starts, after an empty line; the first may list the places."""
    for number in range(above + 2, len(lines) - 1):
        if not lines[number].strip() and lines[number + 1].strip():
            return number + 1
    return None


def decimal(block: bytes, separator: str) -> str:
    """A comma where numbers have one and none has a point; never if commas separate fields."""
    edge = re.escape(separator.encode())
    if separator == "," or not re.search(rb'["\n%s]-?\d+,\d+["\r\n%s]' % (edge, edge), block):
        return "."
    return "." if re.search(rb'["\n%s]-?\d+\.\d+["\r\n%s]' % (edge, edge), block) else ","


def encoding(block: bytes) -> str:
    """UTF-8, or else Latin-1."""
    if block.isascii():  # far quicker than to decode
        return "utf-8"
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"  # which knows every byte
    return "utf-8"
