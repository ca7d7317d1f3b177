"""What the compressed chunks of an HDF5 variable unpack to, found before HDF5 unpacks them.

HDF5 unpacks a chunk as far as its data reach, whatever its shape: a megabyte can become a gigabyte.
A filter's own parameters can declare as much. Both are compared with the size of a chunk.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import DataError, ResourceError
from stonet.system.resources import memory_budget, size_label

DEFLATE, CHECKSUM, SZIP, NBIT, SCALE_OFFSET, LZF = 1, 3, 4, 5, 6, 32000  # numbers of filters
COMPRESSORS = (DEFLATE, SZIP, NBIT, SCALE_OFFSET, LZF)
RATIO = {DEFLATE: 1032, LZF: 100}  # of unpacked to packed bytes, at most
SPARE = 4096  # bytes of checksums in a chunk
PIECE = 2**20  # bytes unpacked at a time to count them


def check_chunks(dataset: Any, where: str, path: Path) -> None:
    """Refuse a variable whose chunks unpack to more than their shape, beyond the memory budget.

    Chunks that cannot exceed the budget are not looked at.

    Args:
        dataset: of h5py.
        where: its name in the file.
        path: the file.

    Raises:
        ResourceError: a chunk unpacks to too much.
        DataError: it is compressed twice, or a filter's parameters do not fit.
    """
    if not dataset.chunks:
        return
    name = f"'{path}': '{where}'"
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(number) for number in range(plan.get_nfilters())]
    order = [entry[0] for entry in filters if entry[0] != CHECKSUM]
    codes = [code for code in order if code in COMPRESSORS]
    if not codes:
        return
    if len(codes) > 1 or order[-1] != codes[0]:
        raise DataError(
            f"{name} is compressed twice, or changed after it was compressed, which is not "
            "supported. Write it again with one filter: h5repack -f GZIP=4 in out."
        )
    code = codes[0]
    size = int(np.prod(dataset.chunks, dtype=object)) * max(1, dataset.dtype.itemsize) + SPARE
    place = next(n for n, entry in enumerate(filters) if entry[0] == code)
    if _declared(code, filters[place][2]) > size:
        raise DataError(f"{name}: its filter declares more than a chunk holds. Write it again.")
    budget = memory_budget()
    if code == SZIP or dataset.id.get_storage_size() * RATIO.get(code, 0) > budget:
        for offset, packed in _chunks(dataset):
            if code != SZIP and packed * RATIO[code] <= budget:
                continue
            skipped, data = dataset.id.read_direct_chunk(offset)
            if skipped >> place & 1:  # stored as it is
                continue
            if _unpacked(code, data, size) > size:
                raise ResourceError(
                    f"{name}: the chunk at {offset} unpacks to more than the {size_label(size)} of "
                    "its shape: it is damaged or malicious. Write it again."
                )


def _chunks(dataset: Any) -> list[tuple[tuple[int, ...], int]]:
    """Position and stored size of each chunk."""
    found: list[tuple[tuple[int, ...], int]] = []
    dataset.id.chunk_iter(lambda info: found.append((info.chunk_offset, info.size)))
    return found


def _declared(code: int, parameters: tuple[int, ...]) -> int:
    """Bytes of a chunk that the parameters of its filter declare; 0 where they do not."""
    places = {LZF: (2,), NBIT: (2, 4), SCALE_OFFSET: (2, 4)}.get(code, ())
    if not places or len(parameters) <= max(places):
        return 0
    return int(np.prod([parameters[place] for place in places], dtype=object))


def _unpacked(code: int, data: bytes, limit: int) -> int:
    """Bytes that a chunk unpacks to, counted up to beyond the limit."""
    if code == SZIP:  # the size in its first bytes is that of the memory
        return int.from_bytes(data[:4], "little")
    if code == LZF:
        return _unpacked_lzf(data, limit)
    unpack, rest, size = zlib.decompressobj(), data, 0
    while rest and size <= limit and not unpack.eof:
        try:
            size += len(unpack.decompress(rest, PIECE))
        except zlib.error:  # HDF5 will refuse it
            break
        rest = unpack.unconsumed_tail
    return size


def _unpacked_lzf(data: bytes, limit: int) -> int:
    """The same for LZF: runs of bytes, and references to bytes before."""
    place = size = 0
    while place < len(data) and size <= limit:
        head, place = data[place], place + 1
        if head < 32:
            size, place = size + head + 1, place + head + 1
            continue
        if head >> 5 == 7:  # the length goes on
            size, place = size + data[place] if place < len(data) else size, place + 1
        size, place = size + (head >> 5) + 2, place + 1
    return size
