"""Sizes that the pages of a Parquet file unpack to, found before any page is unpacked.

The metadata of a file state sizes that nobody checks: Arrow allocates what the header of each page
declares. So the headers are read here (Thrift, compact protocol), page after page.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from stonet.errors import DataError

HEADER_BYTES = 2**10, 2**17  # of a page: usually, and at most, with statistics of long texts
MAX_PAGES = 1_000_000  # of the columns that are read
MAX_DEPTH = 16  # of structures in a header
DATA_PAGE, DATA_PAGE_V2 = 5, 8  # fields of a page's header with the encoding of its values
DELTA_TEXT = 7  # encoding in which a text repeats the beginning of the one before it
STRUCT, LISTS, BINARY = 12, (9, 10), 8  # types of Thrift fields
INTEGERS, FIXED = (4, 5, 6), {1: 0, 2: 0, 3: 1, 7: 8}  # true, false, byte, double: their bytes


@dataclass(frozen=True)
class PageSizes:
    """What some columns unpack to.

    Args:
        largest_group: bytes of all pages of these columns, of the largest row group.
        largest_delta: bytes of the largest page of texts stored as differences, each of which may
            unpack to a text as long as the page; 0 if there is none.
    """

    largest_group: int = 0
    largest_delta: int = 0


def page_sizes(path: Path, metadata: Any, columns: set[str]) -> PageSizes:
    """The sizes that the headers of all pages declare.

    Args:
        path: the file.
        metadata: pyarrow's `FileMetaData` of it.
        columns: names of the columns that are read.

    Raises:
        DataError: if a header is not valid.
    """
    largest = delta = pages = 0
    end = path.stat().st_size
    with path.open("rb") as file:
        for number in range(metadata.num_row_groups):
            group, total = metadata.row_group(number), 0
            for index in range(group.num_columns):
                column = group.column(index)
                if column.path_in_schema not in columns:
                    continue
                for size, encoding in _pages(file, column, end, str(path)):
                    total, pages = total + size, pages + 1
                    delta = max(delta, size if encoding == DELTA_TEXT else 0)
                    if pages > MAX_PAGES:
                        raise DataError(
                            f"'{path}' has more than {MAX_PAGES} pages. Write it with larger ones."
                        )
            largest = max(largest, total)
    return PageSizes(largest, delta)


def _pages(file: BinaryIO, column: Any, end: int, origin: str) -> list[tuple[int, int]]:
    """Declared size and encoding (-1: unknown) of each page of a column in a row group."""
    starts = [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset:
        starts.append(column.dictionary_page_offset)
    place, found, values = min(starts), [], 0
    stop = min(place + column.total_compressed_size, end)
    while place < stop and values < column.num_values:
        try:
            header, length = _header(file, place)
            size, packed = int(header[2]), int(header[3])
        except (LookupError, ValueError, TypeError) as error:
            raise DataError(
                f"'{origin}': a page of column '{column.path_in_schema}' has no valid header "
                f"({error!r}). The file is damaged; copy or download it again."
            ) from None
        if size < 0 or packed < 0:
            raise DataError(
                f"'{origin}': a page of column '{column.path_in_schema}' declares {size} bytes. "
                "The file is damaged; copy or download it again."
            )
        data = header.get(DATA_PAGE) or header.get(DATA_PAGE_V2) or {}
        data = data if isinstance(data, dict) else {}
        encoding = data.get(2 if DATA_PAGE in header else 4, -1)
        found.append((size, encoding if isinstance(encoding, int) else -1))
        count = data.get(1, 0)
        values += max(count, 0) if isinstance(count, int) else 0
        place += length + packed
    return found


def _header(file: BinaryIO, place: int) -> tuple[dict[int, Any], int]:
    """The header of a page, and its length."""
    for limit in HEADER_BYTES:
        file.seek(place)
        with suppress(IndexError):
            return read_struct(file.read(limit))
    raise ValueError(f"longer than {limit} bytes")


def read_struct(data: bytes, place: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A structure of Thrift's compact protocol: integers and structures by field; and its end.

    Args:
        data: that hold it.
        place: where it starts.
        depth: number of structures that it lies in.

    Raises:
        IndexError: the data end before it does.
        ValueError: it is not valid.

    Example:
        >>> read_struct(bytes([0x15, 0x04, 0x15, 0xA0, 0x06, 0x00]))
        ({1: 2, 2: 400}, 6)
    """
    if depth > MAX_DEPTH:
        raise ValueError("structures too deep")
    fields: dict[int, Any] = {}
    field = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            field += head >> 4
        else:
            field, place = _integer(data, place)
        value, place = _value(data, place, head & 15, depth, in_list=False)
        fields[field] = value
    return fields, place + 1


def _value(data: bytes, place: int, kind: int, depth: int, in_list: bool) -> tuple[Any, int]:
    """A value of a type, None for those of no interest here; and its end."""
    if kind in INTEGERS:
        return _integer(data, place)
    if kind in FIXED:
        return None, place + (FIXED[kind] or in_list)  # truth values are bytes in lists only
    if kind == BINARY:
        length, place = _varint(data, place)
        return None, place + length
    if kind == STRUCT:
        return read_struct(data, place, depth + 1)
    if kind in LISTS:
        head = data[place]
        count, place = (head >> 4, place + 1) if head >> 4 < 15 else _varint(data, place + 1)
        if depth > MAX_DEPTH or count > len(data):
            raise ValueError("a list too long")
        for _ in range(count):
            _, place = _value(data, place, head & 15, depth + 1, in_list=True)
        return None, place
    raise ValueError(f"type {kind}")


def _integer(data: bytes, place: int) -> tuple[int, int]:
    """A signed integer, and its end."""
    number, place = _varint(data, place)
    return (number >> 1) ^ -(number & 1), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """An unsigned integer in groups of seven bits, and its end."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
        if shift > 63:
            raise ValueError("an integer too long")
