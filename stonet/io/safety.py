"""What is looked at in a file before anything in it is believed.

An HDF5 file can point to other files, a store can name code to run, and a few bytes can declare
terabytes. Here the structure is walked first, and whatever reaches beyond the file is refused.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import DataError, ResourceError, StonetError
from stonet.system.spill import memory_budget, size_label

# what xarray and the layers below make of a damaged or a foreign file
FOREIGN = (
    OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError, ImportError,
    ArithmeticError, AssertionError, EOFError, SystemError, struct.error, zlib.error,
)  # fmt: skip
# the filters that HDF5 and h5py bring with them; any other one would be loaded from a plugin
FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset"}
FILTERS |= {32000: "lzf"}
EMPTY = 100_000  # a file that declares so many times what it holds, holds next to nothing
SCALE_ONLY = b"This is a netCDF dimension but not"  # a dimension without values of its own
MAX_OBJECTS = 100_000
MAX_DEPTH = 100


@contextmanager
def readable(origin: str | Path, kind: str) -> Iterator[None]:
    """Whatever goes wrong inside is told as a DataError that names the file; no warning leaks."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except StonetError as error:
        if str(origin) in str(error):
            raise
        raise type(error)(f"'{origin}': {error}") from error
    except MemoryError as error:
        raise ResourceError(
            f"'{origin}' needs more memory than there is. Take less: variables, a bbox or a time "
            "range."
        ) from error
    except FOREIGN as error:
        told = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"'{origin}' cannot be read as {kind} ({told}). Is it whole, and of that kind?"
        ) from error


def fitting(size: int, what: str, origin: str | Path) -> None:
    """Refuse what must be in memory at once, and would not fit there."""
    if size > memory_budget():
        held = _size_of(origin)
        raise ResourceError(
            f"'{origin}': {what} would take {size_label(size)} in memory, and the budget is "
            f"{size_label(memory_budget())}{held}. Choose less (variables, a bbox), or allow more "
            "with STONET_MEMORY, e.g. 8G."
        )


def filled(declared: int, stored: int, what: str, origin: str | Path) -> None:
    """Refuse an array that declares far more than it holds."""
    if declared > memory_budget() and declared > EMPTY * max(stored, 1):
        raise ResourceError(
            f"'{origin}': {what} declares {size_label(declared)} but holds {size_label(stored)}"
            f"{_size_of(origin)}: it is all but empty, or made to do harm. Write it again with its "
            "true size."
        )


def walk_hdf5(path: Path) -> None:
    """Visit every object of an HDF5 file; refuse what leaves it, runs plugins or cannot fit."""
    import h5py  # type: ignore[import-untyped]

    with h5py.File(path, "r") as file:
        seen: set[Any] = set()
        queue: list[tuple[Any, str, int]] = [(file, "", 0)]
        while queue:
            group, prefix, depth = queue.pop()
            for name in group:
                where = f"{prefix}/{name}"
                _check_link(group, name, where, path)
                found = group[name]
                key = h5py.h5o.get_info(found.id).addr
                if key in seen:
                    continue
                seen.add(key)
                if len(seen) > MAX_OBJECTS or depth > MAX_DEPTH:
                    raise DataError(
                        f"'{path}' has more than {MAX_OBJECTS} objects, or groups deeper than "
                        f"{MAX_DEPTH}; no file of measurements has."
                    )
                if isinstance(found, h5py.Group):
                    queue.append((found, where, depth + 1))
                elif isinstance(found, h5py.Dataset):
                    _check_dataset(found, where, path)


def _check_link(group: Any, name: str, where: str, path: Path) -> None:
    """Hard links only, and soft ones to objects of this file."""
    import h5py

    kind = group.id.links.get_info(name.encode("utf-8", "surrogateescape")).type
    if kind == h5py.h5l.TYPE_HARD:
        return
    if kind != h5py.h5l.TYPE_SOFT:
        raise _leaves(path, where, "is a link to another file")
    target = group.get(name, getlink=True).path
    parts = [part for part in target.split("/") if part not in ("", ".")]
    node = group.file if target.startswith("/") else group
    for part in parts:  # each component, since one in the middle may leave the file too
        if not isinstance(node, h5py.Group) or not node.id.links.exists(part.encode()):
            raise _leaves(path, where, f"is a link to '{target}', which is not there")
        if node.id.links.get_info(part.encode()).type != h5py.h5l.TYPE_HARD:
            raise _leaves(path, where, f"is a link over other links ('{target}')")
        node = node[part]


def _check_dataset(dataset: Any, where: str, path: Path) -> None:
    import h5py

    plan = dataset.id.get_create_plist()
    if plan.get_layout() == h5py.h5d.VIRTUAL:
        raise _leaves(path, where, "is put together from other files (a virtual data set)")
    if plan.get_external_count():
        raise _leaves(path, where, "keeps its values in another file (external storage)")
    for number in range(plan.get_nfilters()):
        code = plan.get_filter(number)[0]
        if code not in FILTERS:
            raise DataError(
                f"'{path}': '{where}' is compressed with filter {code}, which needs a plugin; "
                f"read are {', '.join(FILTERS.values())}. Convert it: h5repack -f GZIP=4 in out."
            )
    if dataset.shape is None:
        return
    item = max(1, dataset.dtype.itemsize)
    declared = int(np.prod(dataset.shape, dtype=object)) * item
    name = f"variable '{where.strip('/')}'"
    if dataset.chunks:
        fitting(int(np.prod(dataset.chunks, dtype=object)) * item, f"a chunk of {name}", path)
    note = dataset.attrs.get("NAME", b"") if "NAME" in dataset.attrs else b""
    if isinstance(note, bytes) and note.startswith(SCALE_ONLY):
        return
    filled(declared, dataset.id.get_storage_size(), name, path)
    if len(dataset.shape) <= 1:
        fitting(declared, name, path)


def _leaves(path: Path, where: str, what: str) -> DataError:
    return DataError(
        f"'{path}': '{where}' {what}. Nothing outside the file is read; copy the values into it."
    )


def _size_of(origin: str | Path) -> str:
    try:
        size = os.stat(origin)
    except (OSError, ValueError):
        return ""
    return "" if os.path.isdir(origin) else f"; the file has {size_label(size.st_size)}"
