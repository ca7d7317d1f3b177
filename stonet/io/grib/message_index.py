"""GRIB, the frame around the values: which fields a file holds, and where each one's sections lie.

Editions 1 and 2, also mixed, also several fields in one message. Only headers are read here, and
every length is checked against the file before it is believed. What the headers mean is asked of
ecCodes (`decoder`), which need not see a message that is broken already.

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

BUFFER = 2**18
PADDING = 2**12  # blank bytes that may lie between messages
COLUMNS = 16  # of an index: start, edition, then offset and length of sections 1 to 7
SHORTEST = {1: {1: 28, 2: 6, 3: 6, 4: 11}, 2: {1: 21, 2: 5, 3: 14, 4: 9, 5: 11, 6: 6, 7: 5}}
LARGE = 0x800000  # a message over 8 MB of edition 1 counts its length in units of 120 bytes
PREVIOUS_BITMAP, NO_BITMAP = 254, 255  # of edition 2


class Window:
    """Bytes anywhere in a file, through a buffer."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path = file, path
        self.size = os.fstat(file.fileno()).st_size
        self._start, self._bytes = 0, b""

    def at(self, offset: int, length: int) -> bytes:
        """These bytes; fewer at the file's end."""
        first = offset - self._start
        if first < 0 or first + length > len(self._bytes):
            self.file.seek(offset)
            self._start, self._bytes = offset, self.file.read(max(length, BUFFER))
            first = 0
        return self._bytes[first : first + length]

    def broken(self, where: int, what: str) -> DataError:
        """The error for a damaged file."""
        return DataError(
            f"'{self.path}' is damaged at byte {where}: {what}. Fetch the file again; if it is "
            "known to be good, `grib_copy in.grib out.grib` (ecCodes) keeps what can be read."
        )


def find_fields(window: Window) -> Int64[np.ndarray, "field 16"]:
    """The index of a file: one row for each field."""
    rows, position = array("q"), 0
    while position < window.size:
        start = window.at(position, 16)
        if not start.startswith(b"GRIB"):
            position += _padding(window, position)
            continue
        if len(start) < 16:
            raise window.broken(position, "the last message is cut off")
        position = _walk(window, position, start, rows)
    if not rows:
        raise DataError(f"'{window.path}' holds no GRIB message. Check how the file was made.")
    return np.frombuffer(rows, dtype=np.int64).reshape(-1, COLUMNS)


def _padding(window: Window, position: int) -> int:
    """How many bytes lie before the next message: few, and blank."""
    gap = window.at(position, PADDING)
    blank = len(gap) - len(gap.lstrip(b"\0 \r\n"))
    if gap[blank : blank + 4] not in (b"GRIB", b""):
        found = gap[blank : blank + 4]
        raise window.broken(position + blank, f"expected the mark 'GRIB', found {found!r}")
    if blank == PADDING:
        raise window.broken(position, f"more than {PADDING} blank bytes between messages")
    return blank


def _walk(window: Window, start: int, head: bytes, rows: array[int]) -> int:
    """Add the rows of the message at `start`; where it ends."""
    edition = head[7]
    if edition not in (1, 2):
        raise window.broken(start, f"GRIB edition {edition}; expected 1 or 2")
    length = int.from_bytes(head[4:7] if edition == 1 else head[8:16])
    if edition == 1 and length >= LARGE:
        length = _large(window, start, length)
    end = start + length
    if end > window.size:
        left = window.size - start
        raise window.broken(
            start, f"the message should have {length} bytes, and the file ends after {left}"
        )
    if length < 20 or window.at(end - 4, 4) != b"7777":
        raise window.broken(start, "the message does not end with '7777'")
    (_walk_1 if edition == 1 else _walk_2)(window, start, end - 4, rows)
    return end


def _section(window: Window, edition: int, number: int, position: int, end: int) -> int:
    """The length of a section, checked."""
    length = int.from_bytes(window.at(position, 3 if edition == 1 else 4))
    if not SHORTEST[edition][number] <= length <= end - position:
        raise window.broken(position, f"section {number} of a message says it has {length} bytes")
    return length


def _before_data(window: Window, start: int, end: int) -> list[int]:
    """Offsets and lengths of sections 1 to 3 of edition 1, zero where there is none."""
    spans, position = [0] * 6, start + 8
    has = int.from_bytes(window.at(start + 15, 1))
    for number, there in ((1, True), (2, has & 0x80), (3, has & 0x40)):
        if there:
            length = _section(window, 1, number, position, end)
            spans[2 * number - 2 : 2 * number] = position, length
            position += length
    return [*spans, position]


def _large(window: Window, start: int, length: int) -> int:
    data = _before_data(window, start, window.size)[-1]
    rest = int.from_bytes(window.at(data, 3))  # what 120 bytes are too many by
    return length if rest >= 120 else (length - LARGE) * 120 - rest + 4


def _walk_1(window: Window, start: int, end: int, rows: array[int]) -> None:
    *spans, data = _before_data(window, start, end)
    length = int.from_bytes(window.at(data, 3))
    if length < 120 and end - start >= LARGE:
        length = end - data  # more than its own three bytes can say
    if length < SHORTEST[1][4] or data + length != end:
        raise window.broken(data, "the sections of a message do not add up to its length")
    rows.extend([start, 1, *spans, data, length, *[0] * 6])


def _walk_2(window: Window, start: int, end: int, rows: array[int]) -> None:
    spans, position, previous, found = [0] * (COLUMNS - 2), start + 16, 0, 0
    bitmap = (0, 0)
    while position < end:
        number = int.from_bytes(window.at(position + 4, 1))
        back = previous == 7 and number in (2, 3, 4)  # another field of the same message
        onward = number == previous + 1 or (previous, number) == (1, 3)
        if not (back or onward) or number > 7:
            raise window.broken(position, f"section {number} follows section {previous}")
        length = _section(window, 2, number, position, end)
        spans[2 * number - 2 : 2 * number] = position, length
        if number == 6:
            kind = window.at(position + 5, 1)[0]
            if kind == PREVIOUS_BITMAP:
                if not bitmap[1]:
                    raise window.broken(position, "a field shares a bitmap that is not there")
                spans[10:12] = bitmap
            elif kind != NO_BITMAP:
                bitmap = (position, length)
        elif number == 7:
            rows.extend([start, 2, *spans])
            found += 1
        position, previous = position + length, number
    if not found or previous != 7:
        raise window.broken(position, "a message ends before its values")


class Packed:
    """One field, still packed: a row of an index, with the file behind it."""

    def __init__(self, window: Window, row: list[int]) -> None:
        self.window, self.row = window, row
        self.start, self.edition = row[0], row[1]

    @property
    def has_bitmap(self) -> bool:
        """Whether values may be missing."""
        if self.edition == 1:
            return self.row[7] > 0
        return self.section(6, 6)[5] != NO_BITMAP

    def section(self, number: int, most: int | None = None) -> bytes:
        """A section's bytes, or only its first ones; none where there is none."""
        offset, length = self.row[2 * number : 2 * number + 2]
        return self.window.at(offset, length if most is None else min(most, length))

    def message(self) -> bytes:
        """The field as a message of its own."""
        first = self.window.at(self.start, 16 if self.edition == 2 else 8)
        numbers = range(1, 8 if self.edition == 2 else 5)
        body = b"".join([first, *(self.section(number) for number in numbers), b"7777"])
        if self.edition == 2:
            body = body[:8] + len(body).to_bytes(8) + body[16:]
        return body


def packed(window: Window, index: Int64[np.ndarray, "field 16"]) -> Iterator[Packed]:
    """The fields of these rows."""
    return (Packed(window, row) for row in index.tolist())
