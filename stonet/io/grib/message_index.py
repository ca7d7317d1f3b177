"""Index of a GRIB file: its fields, and the offset and length of every section.

Editions 1 and 2, also mixed, also with several fields in one message. Only headers are read here,
and every length is checked against the file. `eccodes_client` decodes the meaning of headers; it
receives no message whose structure is damaged.

    edition 1:  GRIB  1 product  [2 grid]  [3 bitmap]  4 data  7777
    edition 2:  GRIB  1 date  ([2 local] 3 grid (4 product  5 packing  6 bitmap  7 data))…  7777
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Int64

from stonet.errors import DataError

BUFFER_BYTES = 2**18  # read at a time
MAX_PADDING = 2**12  # blank bytes between messages
INDEX_COLUMNS = 16  # start, edition, then offset and length of sections 1 to 7
MIN_SECTION = {1: {1: 28, 2: 6, 3: 6, 4: 11}, 2: {1: 21, 2: 5, 3: 14, 4: 9, 5: 11, 6: 6, 7: 5}}
LARGE = 0x800000  # flag of messages over 8 MB in edition 1: the length counts 120 bytes
PREVIOUS_BITMAP, NO_BITMAP = 254, 255  # codes of edition 2

Index = Int64[np.ndarray, "field 16"]


class BufferedFile:
    """Random access to the bytes of a file, through a buffer.

    Args:
        file: open for reading.
        path: for messages.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path = file, path
        self.size = os.fstat(file.fileno()).st_size
        self._start, self._bytes = 0, b""

    def at(self, offset: int, length: int) -> bytes:
        """The bytes at an offset; fewer at the end of the file.

        Args:
            offset: from the start of the file.
            length: number of bytes.
        """
        first = offset - self._start
        if first < 0 or first + length > len(self._bytes):
            self.file.seek(offset)
            self._start, self._bytes = offset, self.file.read(max(length, BUFFER_BYTES))
            first = 0
        return self._bytes[first : first + length]

    def broken(self, where: int, what: str) -> DataError:
        """The error for a damaged file.

        Args:
            where: offset of the damage.
            what: that is wrong there.
        """
        return DataError(
            f"'{self.path}' is damaged at byte {where}: {what}. Download the file again; if it is "
            "sound, `grib_copy in.grib out.grib` (ecCodes) keeps what can be read."
        )


def index_fields(window: BufferedFile) -> Index:
    """The index of a file: one row for each field.

    Args:
        window: the file.
    """
    rows, position = array("q"), 0
    while position < window.size:
        start = window.at(position, 16)
        if not start.startswith(b"GRIB"):
            position += _padding_length(window, position)
            continue
        if len(start) < 16:
            raise window.broken(position, "the last message is cut off")
        position = _index_message(window, position, start, rows)
    if not rows:
        raise DataError(f"'{window.path}' holds no GRIB message. Check how the file was made.")
    return np.frombuffer(rows, dtype=np.int64).reshape(-1, INDEX_COLUMNS)


def _padding_length(window: BufferedFile, position: int) -> int:
    """Number of blank bytes before the next message."""
    gap = window.at(position, MAX_PADDING)
    blank = len(gap) - len(gap.lstrip(b"\0 \r\n"))
    if gap[blank : blank + 4] not in (b"GRIB", b""):
        text = gap[blank : blank + 4]
        raise window.broken(position + blank, f"expected 'GRIB', got {text!r}")
    if blank == MAX_PADDING:
        raise window.broken(position, f"more than {MAX_PADDING} blank bytes between messages")
    return blank


def _index_message(window: BufferedFile, start: int, head: bytes, rows: array[int]) -> int:
    """Add the rows of the message at `start`; returns its end."""
    edition = head[7]
    if edition not in (1, 2):
        raise window.broken(start, f"GRIB edition {edition}; expected 1 or 2")
    length = int.from_bytes(head[4:7] if edition == 1 else head[8:16])
    if edition == 1 and length >= LARGE:
        length = _large_message_length(window, start, length)
    end = start + length
    if end > window.size:
        left = window.size - start
        raise window.broken(
            start, f"the message should have {length} bytes, and the file ends after {left}"
        )
    if length < 20 or window.at(end - 4, 4) != b"7777":
        raise window.broken(start, "the message does not end with '7777'")
    (_index_edition_1 if edition == 1 else _index_edition_2)(window, start, end - 4, rows)
    return end


def _section_length(
    window: BufferedFile, edition: int, number: int, position: int, end: int
) -> int:
    """The length of a section, checked against its limits."""
    length = int.from_bytes(window.at(position, 3 if edition == 1 else 4))
    if not MIN_SECTION[edition][number] <= length <= end - position:
        raise window.broken(position, f"section {number} of a message declares {length} bytes")
    return length


def _sections_before_data(window: BufferedFile, start: int, end: int) -> list[int]:
    """Offsets and lengths of sections 1 to 3 of edition 1 (0 if absent), and that of the data."""
    spans, position = [0] * 6, start + 8
    flags = int.from_bytes(window.at(start + 15, 1))
    for number, present in ((1, True), (2, flags & 0x80), (3, flags & 0x40)):
        if present:
            length = _section_length(window, 1, number, position, end)
            spans[2 * number - 2 : 2 * number] = position, length
            position += length
    return [*spans, position]


def _large_message_length(window: BufferedFile, start: int, length: int) -> int:
    """The length of a message of edition 1 whose own field is too short for it."""
    data = _sections_before_data(window, start, window.size)[-1]
    excess = int.from_bytes(window.at(data, 3))  # of the multiple of 120 bytes
    return length if excess >= 120 else (length - LARGE) * 120 - excess + 4


def _index_edition_1(window: BufferedFile, start: int, end: int, rows: array[int]) -> None:
    *spans, data = _sections_before_data(window, start, end)
    length = int.from_bytes(window.at(data, 3))
    if length < 120 and end - start >= LARGE:
        length = end - data  # more than its own three bytes can hold
    if length < MIN_SECTION[1][4] or data + length != end:
        raise window.broken(data, "the sections of a message do not add up to its length")
    rows.extend([start, 1, *spans, data, length, *[0] * 6])


def _index_edition_2(window: BufferedFile, start: int, end: int, rows: array[int]) -> None:
    spans, position, previous, fields = [0] * (INDEX_COLUMNS - 2), start + 16, 0, 0
    bitmap = (0, 0)
    while position < end:
        number = int.from_bytes(window.at(position + 4, 1))
        next_field = previous == 7 and number in (2, 3, 4)  # of the same message
        next_section = number == previous + 1 or (previous, number) == (1, 3)
        if not (next_field or next_section) or number > 7:
            raise window.broken(position, f"section {number} follows section {previous}")
        length = _section_length(window, 2, number, position, end)
        spans[2 * number - 2 : 2 * number] = position, length
        if number == 6:
            kind = window.at(position + 5, 1)[0]
            if kind == PREVIOUS_BITMAP:
                if not bitmap[1]:
                    raise window.broken(position, "a field refers to a bitmap that does not exist")
                spans[10:12] = bitmap
            elif kind != NO_BITMAP:
                bitmap = (position, length)
        elif number == 7:
            rows.extend([start, 2, *spans])
            fields += 1
        position, previous = position + length, number
    if not fields or previous != 7:
        raise window.broken(position, "a message ends before its values")


class PackedField:
    """One field that is still packed: a row of an index, and its file.

    Args:
        window: the file.
        row: of the index.
    """

    def __init__(self, window: BufferedFile, row: list[int]) -> None:
        self.window, self.row = window, row
        self.start, self.edition = row[0], row[1]

    @property
    def has_bitmap(self) -> bool:
        """Whether values may be missing."""
        if self.edition == 1:
            return self.row[7] > 0
        return self.section(6, 6)[5] != NO_BITMAP

    def section(self, number: int, limit: int | None = None) -> bytes:
        """The bytes of a section, or its first `limit` bytes; empty if there is none.

        Args:
            number: 1 to 7 in edition 2, 1 to 4 in edition 1.
            limit: bytes to read; None: all.
        """
        offset, length = self.row[2 * number : 2 * number + 2]
        return self.window.at(offset, length if limit is None else min(limit, length))

    def message(self) -> bytes:
        """The field as a complete message."""
        first = self.window.at(self.start, 16 if self.edition == 2 else 8)
        numbers = range(1, 8 if self.edition == 2 else 5)
        body = b"".join([first, *(self.section(number) for number in numbers), b"7777"])
        if self.edition == 2:
            body = body[:8] + len(body).to_bytes(8) + body[16:]
        return body


def packed_fields(window: BufferedFile, index: Index) -> Iterator[PackedField]:
    """The fields of some rows of an index.

    Args:
        window: the file.
        index: the rows that are wanted.
    """
    return (PackedField(window, row) for row in index.tolist())
