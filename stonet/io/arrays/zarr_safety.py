"""What is checked in a Zarr store before zarr opens it: links, codecs, sizes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import DataError
from stonet.io.safety import check_declared, check_memory
from stonet.system.resources import memory_budget

# codecs that only rearrange or compress bytes; none of them creates objects or runs code
CODECS = {
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta",
    "fixedscaleoffset", "fletcher32", "gzip", "lz4", "lzma", "packbits", "quantize", "shuffle",
    "transpose", "vlen-bytes", "vlen-utf8", "zlib", "zstd", "sharding_indexed",
}  # fmt: skip
STRING_CODECS = {"vlen-utf8", "vlen-bytes"}  # of the only objects that may be stored
COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
SPARE = 4096  # bytes of headers and checksums in a chunk
METADATA_FILES = {".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json"}
MAX_METADATA = 2**26  # bytes of a metadata file
MAX_FILES = 5_000_000

Metadata = Mapping[str, Any]


@dataclass(frozen=True)
class ChunkLimit:
    """What the chunks of an array may unpack to.

    Args:
        codec: that compresses them.
        size: bytes, at most.
        inner: chunks of a shard; 0 if there are no shards.
        index_first: whether a shard begins with its index.
        index_checksum: bytes behind the index.
    """

    codec: str
    size: int
    inner: int = 0
    index_first: bool = False
    index_checksum: int = 0


def check_store(path: Path) -> bool:
    """Refuse a store that leaves its folder, names unknown codecs, or cannot fit.

    Args:
        path: folder of the store.

    Returns:
        Whether the metadata of all arrays are consolidated in one file.
    """
    sizes = _file_sizes(path)
    chunks: dict[str, list[str]] = {}  # files of each top-level array
    for name in sizes:
        if os.path.basename(name) not in METADATA_FILES:
            chunks.setdefault(name.split(os.sep)[0], []).append(name)
    consolidated = False
    for name, size in sizes.items():
        if os.path.basename(name) not in METADATA_FILES:
            continue
        if size > MAX_METADATA:
            raise DataError(f"'{path / name}' has {size} bytes; metadata are never that long.")
        metadata = _parse_json(path / name)
        at_root = os.path.dirname(name) == ""
        parts = metadata.get("metadata"), metadata.get("consolidated_metadata")
        consolidated |= at_root and any(isinstance(part, Mapping) for part in parts)
        for where, array in _arrays(metadata, os.path.dirname(name)):
            _check_array(array, where, path)
            if os.sep not in where:  # only top-level arrays are read
                stored = {file: sizes[file] for file in chunks.get(where, ())}
                _check_size(array, where, path, sum(stored.values()))
                _check_blosc(array, where, path, stored)
    if not any(name in sizes for name in METADATA_FILES):
        expected = ", ".join(sorted(METADATA_FILES))
        raise DataError(f"'{path}' has none of {expected}: it is not a Zarr store.")
    return bool(consolidated)


def chunk_limits(path: Path) -> dict[str, ChunkLimit]:
    """What the chunks of each compressed top-level array may unpack to; after `check_store`.

    Args:
        path: folder of the store.
    """
    limits: dict[str, ChunkLimit] = {}
    for name in METADATA_FILES:
        for file in (*path.glob(name), *path.glob(f"*/{name}")):
            metadata, folder = _parse_json(file), os.path.relpath(file.parent, path)
            for where, array in _arrays(metadata, "" if folder == "." else folder):
                codecs = set(_all_codec_names(array))
                packed = sorted(codecs & COMPRESSORS)
                if packed and os.sep not in where:
                    limits[where] = _chunk_limit(array, packed[0], bool(codecs & STRING_CODECS))
    return limits


def _chunk_limit(array: Metadata, codec: str, strings: bool) -> ChunkLimit:
    shapes = list(_chunk_shapes(array))
    shape, item_size = shapes[0]
    size = 2 * int(np.prod(shape, dtype=object)) * max(item_size, 8) + SPARE
    size = memory_budget() if strings else min(size, memory_budget())
    for outer in array.get("codecs") or ():
        if isinstance(outer, Mapping) and outer.get("name") == "sharding_indexed":
            options = outer["configuration"]
            index = {n for c in options.get("index_codecs") or () for n in _codec_names(c)}
            inner = int(np.prod(shapes[-1][0], dtype=object))
            first = options.get("index_location") == "start"
            return ChunkLimit(codec, size, inner, first, 4 * ("crc32c" in index))
    return ChunkLimit(codec, size)


def _all_codec_names(array: Metadata) -> list[str]:
    codecs = [array.get("compressor"), *(array.get("filters") or ()), *(array.get("codecs") or ())]
    return [name for codec in codecs if codec is not None for name in _codec_names(codec)]


def _file_sizes(path: Path) -> dict[str, int]:
    """Every file of the store and its size; links out of the store are refused."""
    sizes: dict[str, int] = {}
    folders = [path]
    while folders:
        folder = folders.pop()
        for entry in os.scandir(folder):
            name = os.path.relpath(entry.path, path)
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(path):
                raise DataError(
                    f"'{path}': '{name}' is a link that leaves the store. Nothing outside it is "
                    "read; copy the values into it."
                )
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif entry.is_file():
                sizes[name] = entry.stat().st_size
            elif not entry.is_dir():
                raise DataError(f"'{path}': '{name}' is neither a file nor a folder.")
            else:
                raise DataError(f"'{path}': '{name}' is a link to a folder. Copy it instead.")
            if len(sizes) > MAX_FILES:
                raise DataError(f"'{path}' has more than {MAX_FILES} files. Use larger chunks.")
    return sizes


def _parse_json(file: Path) -> Metadata:
    try:
        metadata = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{file}' is not JSON ({error}). Is the store complete?") from None
    if not isinstance(metadata, Mapping):
        raise DataError(f"'{file}' holds no metadata. Is the store complete?")
    return metadata


def _arrays(metadata: Metadata, where: str) -> Iterator[tuple[str, Metadata]]:
    """The arrays that a metadata file describes: its own, and those consolidated in it."""
    if "shape" in metadata:
        yield where, metadata
    inner = metadata.get("consolidated_metadata")
    inner = inner.get("metadata") if isinstance(inner, Mapping) else None
    for consolidated in (metadata.get("metadata"), inner):
        if isinstance(consolidated, Mapping):
            for key, part in consolidated.items():
                if isinstance(part, Mapping):
                    name = str(key).removesuffix("/.zarray").removesuffix(".zarray")
                    yield from _arrays(part, os.path.join(where, name))


def _check_array(array: Metadata, where: str, path: Path) -> None:
    """Refuse codecs that are not listed, objects other than strings, and chunks too large."""
    all_names = _all_codec_names(array)
    names = set(all_names)
    unknown = names - CODECS
    if unknown:
        raise DataError(
            f"'{path}': '{where}' is encoded with {', '.join(sorted(map(repr, unknown)))}, which "
            f"is not supported (it may run code). Supported are: {', '.join(sorted(CODECS))}."
        )
    if sum(name in COMPRESSORS for name in all_names) > 1:
        raise DataError(
            f"'{path}': '{where}' is compressed twice ({', '.join(sorted(names & COMPRESSORS))}), "
            "which is not supported. Write it again with one of them."
        )
    kind = array.get("dtype", array.get("data_type"))
    if "O" in str(kind) and str(kind).lstrip("|<>=") == "O" and not names & STRING_CODECS:
        raise DataError(f"'{path}': '{where}' holds objects; expected numbers or strings.")
    if array.get("storage_transformers"):
        raise DataError(f"'{path}': '{where}' has storage transformers, which are not supported.")
    for chunk, item_size in _chunk_shapes(array):
        if not all(isinstance(n, int) and n >= 0 for n in chunk):
            raise DataError(f"'{path}': '{where}' has chunks {chunk}; expected integers.")
        size = int(np.prod(chunk, dtype=object)) * item_size
        check_memory(size, f"a chunk of variable '{where}'", path)


def _codec_names(codec: Any) -> Iterator[str]:
    """The name of a codec and of those inside it."""
    if not isinstance(codec, Mapping):
        yield str(codec).removeprefix("numcodecs.")
        return
    yield str(codec.get("id", codec.get("name"))).removeprefix("numcodecs.")
    options = codec.get("configuration")
    if isinstance(options, Mapping):
        for inner in (*(options.get("codecs") or ()), *(options.get("index_codecs") or ())):
            yield from _codec_names(inner)


def _chunk_shapes(array: Metadata) -> Iterator[tuple[list[Any], int]]:
    """Shapes and item sizes held in memory at once: chunks; of shards, inner chunks and index."""
    item_size = _item_size(array)
    outer = array.get("chunks")
    grid = array.get("chunk_grid")
    if isinstance(grid, Mapping):
        outer = (grid.get("configuration") or {}).get("chunk_shape")
    outer = list(outer or ())
    shards = [
        codec["configuration"].get("chunk_shape") or []
        for codec in array.get("codecs") or ()
        if isinstance(codec, Mapping)
        and codec.get("name") == "sharding_indexed"
        and isinstance(codec.get("configuration"), Mapping)
    ]
    if not shards:
        yield outer, item_size
        return
    yield list(shards[0]), item_size
    if len(shards[0]) == len(outer) and all(isinstance(n, int) and n > 0 for n in shards[0]):
        yield [-(-a // b) for a, b in zip(outer, shards[0], strict=True)], 16


def _item_size(array: Metadata) -> int:
    dtype = array.get("dtype", array.get("data_type"))
    try:
        return max(1, np.dtype(dtype if isinstance(dtype, str) else "f8").itemsize)
    except TypeError:  # 'string' and the like: a pointer each
        return 8


def _check_size(array: Metadata, where: str, path: Path, stored: int) -> None:
    shape = array["shape"]
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"'{path}': '{where}' has shape {shape}; expected integers.")
    declared = int(np.prod(shape, dtype=object)) * _item_size(array)
    check_declared(declared, stored, f"variable '{where}'", path)
    if len(shape) <= 1:
        check_memory(declared, f"variable '{where}'", path)


def _check_blosc(array: Metadata, where: str, path: Path, stored: Mapping[str, int]) -> None:
    """Check the sizes in blosc headers: blosc trusts them, and reads beyond a shorter chunk."""
    codecs = [array.get("compressor"), *(array.get("codecs") or ())]
    names = [list(_codec_names(codec)) for codec in codecs if codec is not None]
    if not any("blosc" in group for group in names):
        return
    if any("sharding_indexed" in group for group in names):
        raise DataError(
            f"'{path}': '{where}' has shards of blosc chunks, which are not supported. Write them "
            "with another codec, such as zstd."
        )
    filters = {name for codec in array.get("filters") or () for name in _codec_names(codec)}
    largest = max(
        int(np.prod(chunk, dtype=object)) * max(item_size, 8)
        for chunk, item_size in _chunk_shapes(array)
    )
    for name, size in stored.items():
        with (path / name).open("rb") as file:
            header = file.read(16)
        if len(header) < 16 or int.from_bytes(header[12:16], "little") != size:
            raise DataError(f"'{path}': chunk '{name}' is damaged or incomplete.")
        unpacked = int.from_bytes(header[4:8], "little")
        if not STRING_CODECS & filters and unpacked > 2 * largest:
            raise DataError(f"'{path}': chunk '{name}' would unpack to more than a chunk holds.")
