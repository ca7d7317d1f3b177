"""A Zarr store whose chunks unpack to the size that they declare, or are refused.

A chunk of a few bytes can unpack to gigabytes. Codecs unpack without a limit, so what a chunk
unpacks to is found before a codec gets it: from its headers, or by unpacking without keeping it.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore

from stonet.errors import ResourceError
from stonet.io.arrays.zarr_safety import ChunkLimit
from stonet.system.resources import memory_budget, size_label

ZSTD_MAGIC, ZSTD_SKIPPED = 0xFD2FB528, 0x184D2A50
ZSTD_BLOCK = 2**17  # bytes that a block unpacks to, at most
DEFLATE_RATIO = 1032  # of unpacked to packed bytes, at most
CONCURRENT = 16  # chunks that zarr may unpack at a time
PIECE = 2**20  # bytes unpacked at a time to count them
ABSENT = 2**64 - 1  # offset of a chunk that a shard does not have
NO_DATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class BoundedStore(LocalStore):
    """A local store, read only, that refuses chunks which unpack to too much.

    Args:
        root: folder of the store.
        limits: of each compressed array, by its name.
    """

    def __init__(self, root: Path, limits: Mapping[str, ChunkLimit]) -> None:
        super().__init__(root, read_only=True)
        self._limits = dict(limits)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """The bytes of a file or of a part of it.

        Args:
            key: path of the file within the store.
            prototype: of the buffer that zarr wants.
            byte_range: part of the file; None: all of it.
        """
        content = await super().get(key, prototype, byte_range)
        limit = self._limits.get(key.split("/")[0])
        if content is not None and limit is not None and not key.endswith(NO_DATA):
            packed = content.to_bytes()
            for part in _chunks(packed, limit) if byte_range is None else [packed]:
                if unpacked_size(part, limit.codec, limit.size) > limit.size:
                    raise ResourceError(
                        f"'{self.root}': chunk '{key}' unpacks to more than the "
                        f"{size_label(limit.size)} that its array declares: it is damaged or "
                        "malicious. Write it again."
                    )
        return content


def _chunks(packed: bytes, limit: ChunkLimit) -> list[bytes]:
    """The file of a chunk, or the chunks in a shard."""
    if not limit.inner:
        return [packed]
    size = 16 * limit.inner
    start = 0 if limit.index_first else len(packed) - size - limit.index_checksum
    index = packed[max(start, 0) : max(start, 0) + size]
    numbers = [int.from_bytes(index[i : i + 8], "little") for i in range(0, len(index), 8)]
    places = zip(numbers[::2], numbers[1::2], strict=False)
    return [packed[offset : offset + n] for offset, n in places if offset != ABSENT]


def unpacked_size(packed: bytes, codec: str, limit: int) -> int:
    """Bytes that a chunk unpacks to, or a bound of it; counted only up to beyond the limit.

    What is not of the codec's format counts as 0: the codec will refuse it.

    Args:
        packed: the chunk as stored.
        codec: name of its compression.
        limit: bytes beyond which counting stops.
    """
    if codec == "zstd":
        return _zstd_size(packed, limit)
    if codec in ("lz4", "blosc"):  # the size in the header is that of the memory
        start = 0 if codec == "lz4" else 4
        return int.from_bytes(packed[start : start + 4], "little")
    if codec in ("gzip", "zlib") and len(packed) * DEFLATE_RATIO <= memory_budget() // CONCURRENT:
        return 0  # as small as any chunk may be
    return _counted_size(packed, codec, limit)


DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}


def _counted_size(packed: bytes, codec: str, limit: int) -> int:
    """Unpacks piece by piece; a file of several members is read to its end."""
    size = 0
    while packed:
        unpack = DECOMPRESSORS[codec]()
        rest = packed
        while not unpack.eof:
            try:
                done = len(unpack.decompress(rest, PIECE))
            except (zlib.error, OSError, EOFError):
                return size
            except lzma.LZMAError:  # perhaps in the form without a header, which cannot be counted
                return limit + 1
            size += done
            rest = getattr(unpack, "unconsumed_tail", b"")
            if size > limit or (not done and not rest):
                return size
        packed = unpack.unused_data
    return size


def _zstd_size(packed: bytes, limit: int) -> int:
    """The size in the header of the first frame; without it a bound from the blocks."""
    size, place = 0, 0
    while place + 6 <= len(packed) and size <= limit:
        magic = int.from_bytes(packed[place : place + 4], "little")
        if magic & ~15 == ZSTD_SKIPPED:
            place += 8 + int.from_bytes(packed[place + 4 : place + 8], "little")
            continue
        if magic != ZSTD_MAGIC:
            break
        flags = packed[place + 4]
        single, has_checksum = flags >> 5 & 1, flags >> 2 & 1
        declared = (1 if single else 0, 2, 4, 8)[flags >> 6]
        place += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
        if declared:
            stated = int.from_bytes(packed[place : place + declared], "little")
            size += stated + (256 if declared == 2 else 0)
        place += declared
        place, bound = _zstd_blocks(packed, place, limit)
        size += 0 if declared else bound
        place += 4 * has_checksum
    return size


def _zstd_blocks(packed: bytes, place: int, limit: int) -> tuple[int, int]:
    """The end of a frame's blocks, and a bound of what they unpack to."""
    bound, last = 0, False
    while not last and place + 3 <= len(packed) and bound <= limit:
        header = int.from_bytes(packed[place : place + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        bound += ZSTD_BLOCK if kind == 2 else size
        place += 3 + (1 if kind == 1 else size)
    return place, bound
