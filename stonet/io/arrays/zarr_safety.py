"""What is looked at in a Zarr store before zarr opens it: links, codecs, sizes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import DataError
from stonet.io.safety import filled, fitting

# codecs that only rearrange or compress bytes; none of them makes objects or runs code
CODECS = {
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta",
    "fixedscaleoffset", "fletcher32", "gzip", "lz4", "lzma", "packbits", "quantize", "shuffle",
    "transpose", "vlen-bytes", "vlen-utf8", "zlib", "zstd", "sharding_indexed",
}  # fmt: skip
TEXTS = {"vlen-utf8", "vlen-bytes"}  # the only objects that may be stored
DESCRIPTIONS = {".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json"}
LONGEST = 2**26  # bytes of a description
MOST_FILES = 5_000_000


def check_store(path: Path) -> bool:
    """Refuse a store that leaves its folder, names unknown codecs, or cannot fit.

    Gives whether its descriptions are gathered in one place (consolidated).
    """
    sizes = _walk(path)
    chunks: dict[str, list[str]] = {}  # by the array that they are of
    for name in sizes:
        if os.path.basename(name) not in DESCRIPTIONS:
            chunks.setdefault(name.split(os.sep)[0], []).append(name)
    consolidated = False
    for name, size in sizes.items():
        if os.path.basename(name) not in DESCRIPTIONS:
            continue
        if size > LONGEST:
            raise DataError(f"'{path / name}' has {size} bytes; no description is that long.")
        described = _parsed(path / name)
        at_root = os.path.dirname(name) == ""
        gathered = described.get("metadata"), described.get("consolidated_metadata")
        consolidated |= at_root and any(isinstance(part, Mapping) for part in gathered)
        for where, array in _arrays(described, os.path.dirname(name)):
            _check_array(array, where, path)
            if os.sep not in where:  # only these are read
                held = {file: sizes[file] for file in chunks.get(where, ())}
                _check_size(array, where, path, sum(held.values()))
                _check_blosc(array, where, path, held)
    if not any(name in sizes for name in DESCRIPTIONS):
        raise DataError(f"'{path}' has none of {', '.join(sorted(DESCRIPTIONS))}: no Zarr store.")
    return bool(consolidated)


def _walk(path: Path) -> dict[str, int]:
    """Every file of the store and its size; anything that leads out of it is refused."""
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
            if len(sizes) > MOST_FILES:
                raise DataError(f"'{path}' has more than {MOST_FILES} files. Use larger chunks.")
    return sizes


def _parsed(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{file}' is no JSON ({error}). Is the store whole?") from None
    if not isinstance(found, Mapping):
        raise DataError(f"'{file}' holds no description. Is the store whole?")
    return found


def _arrays(described: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The arrays that a description tells of: itself, and those gathered in it."""
    if "shape" in described:
        yield where, described
    inner = described.get("consolidated_metadata")
    inner = inner.get("metadata") if isinstance(inner, Mapping) else None
    for gathered in (described.get("metadata"), inner):
        if isinstance(gathered, Mapping):
            for key, part in gathered.items():
                if isinstance(part, Mapping):
                    name = str(key).removesuffix("/.zarray").removesuffix(".zarray")
                    yield from _arrays(part, os.path.join(where, name))


def _check_array(array: Mapping[str, Any], where: str, path: Path) -> None:
    """Codecs of the list only, objects only as texts, and chunks that fit in memory."""
    codecs = [array.get("compressor"), *(array.get("filters") or ()), *(array.get("codecs") or ())]
    names = {name for codec in codecs if codec is not None for name in _codec_names(codec)}
    unknown = names - CODECS
    if unknown:
        raise DataError(
            f"'{path}': '{where}' is encoded with {', '.join(sorted(map(repr, unknown)))}, which "
            f"is not read (it may run code). Read are: {', '.join(sorted(CODECS))}."
        )
    kind = array.get("dtype", array.get("data_type"))
    if "O" in str(kind) and str(kind).lstrip("|<>=") == "O" and not names & TEXTS:
        raise DataError(f"'{path}': '{where}' holds objects; expected numbers or texts.")
    if array.get("storage_transformers"):
        raise DataError(f"'{path}': '{where}' has storage transformers, which are not read.")
    for chunk, item in _chunks(array):
        if not all(isinstance(n, int) and n >= 0 for n in chunk):
            raise DataError(f"'{path}': '{where}' has chunks {chunk}; expected whole numbers.")
        fitting(int(np.prod(chunk, dtype=object)) * item, f"a chunk of variable '{where}'", path)


def _codec_names(codec: Any) -> Iterator[str]:
    if not isinstance(codec, Mapping):
        yield str(codec).removeprefix("numcodecs.")
        return
    yield str(codec.get("id", codec.get("name"))).removeprefix("numcodecs.")
    options = codec.get("configuration")
    if isinstance(options, Mapping):
        for inner in (*(options.get("codecs") or ()), *(options.get("index_codecs") or ())):
            yield from _codec_names(inner)


def _chunks(array: Mapping[str, Any]) -> Iterator[tuple[list[Any], int]]:
    """The shapes that are in memory at once: chunks; of shards, the inner chunks and the index."""
    item = _item_size(array)
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
        yield outer, item
        return
    yield list(shards[0]), item
    if len(shards[0]) == len(outer) and all(isinstance(n, int) and n > 0 for n in shards[0]):
        yield [-(-a // b) for a, b in zip(outer, shards[0], strict=True)], 16


def _item_size(array: Mapping[str, Any]) -> int:
    told = array.get("dtype", array.get("data_type"))
    try:
        return max(1, np.dtype(told if isinstance(told, str) else "f8").itemsize)
    except TypeError:  # 'string' and the like: a pointer each
        return 8


def _check_size(array: Mapping[str, Any], where: str, path: Path, stored: int) -> None:
    shape = array["shape"]
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"'{path}': '{where}' has shape {shape}; expected whole numbers.")
    declared = int(np.prod(shape, dtype=object)) * _item_size(array)
    filled(declared, stored, f"variable '{where}'", path)
    if len(shape) <= 1:
        fitting(declared, f"variable '{where}'", path)


def _check_blosc(array: Mapping[str, Any], where: str, path: Path, held: Mapping[str, int]) -> None:
    """Blosc believes what a chunk says of its own length, and reads beyond a shorter one."""
    codecs = [array.get("compressor"), *(array.get("codecs") or ())]
    outer = [list(_codec_names(codec)) for codec in codecs if codec is not None]
    if not any("blosc" in names for names in outer):
        return
    if any("sharding_indexed" in names for names in outer):
        raise DataError(
            f"'{path}': '{where}' has shards of blosc chunks, which are not read. Write them with "
            "another codec, such as zstd."
        )
    texts = TEXTS & {name for codec in array.get("filters") or () for name in _codec_names(codec)}
    room = max(int(np.prod(chunk, dtype=object)) * max(item, 8) for chunk, item in _chunks(array))
    for name, size in held.items():
        with (path / name).open("rb") as file:
            head = file.read(16)
        if len(head) < 16 or int.from_bytes(head[12:16], "little") != size:
            raise DataError(f"'{path}': chunk '{name}' is damaged or not whole.")
        if not texts and int.from_bytes(head[4:8], "little") > 2 * room:
            raise DataError(f"'{path}': chunk '{name}' would become larger than a chunk is.")
