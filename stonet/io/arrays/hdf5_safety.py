"""What is checked in an HDF5 file before its values are read: crashes, links, filters, sizes.

Of 3000 files with a few wrong bytes, 7 made HDF5 hang and 1 ended the interpreter. So a helper
process reads each file first (`check_survivable`), and only a file that it survives is opened here.
An HDF5 file can also point to other files, load plugins or declare terabytes: `check_structure`
visits every object and refuses whatever reaches beyond the file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import DataError, ResourceError
from stonet.io.arrays.hdf5_chunks import check_chunks
from stonet.io.safety import check_declared, check_memory
from stonet.system.sandbox import CrashError, Handler, Message, Sandbox, StartError, serve

TIMEOUT = 15.0  # seconds for one file, and as many again for each 16 MB of it that are read
MAX_VARIABLE = 2**25  # bytes up to which the helper process reads a complete variable
MAX_READ = 2**27  # bytes of a file that it reads; of further variables only the first and last
MAX_HELPER_MEMORY = 8 * 2**30  # bytes of address space of the helper process
# the filters that HDF5 and h5py bring with them; any other one would be loaded from a plugin
FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset"}
FILTERS |= {32000: "lzf"}
BARE_DIMENSION = b"This is a netCDF dimension but not"  # marks a dimension without values
MAX_OBJECTS = 100_000
MAX_DEPTH = 100

SANDBOX = Sandbox("stonet.io.arrays.hdf5_safety")


# The helper process


def check_survivable(path: Path) -> None:
    """Refuse a file that crashes or hangs HDF5; an unchanged file is checked only once.

    Args:
        path: of an HDF5 file.
    """
    status = path.stat()
    timeout = TIMEOUT * (1 + min(status.st_size, MAX_READ) / 2**24)
    try:
        survived = _survives(path, status.st_mtime_ns, status.st_size, timeout)
    except TimeoutError:  # not remembered: the machine may have been busy
        raise DataError(
            f"'{path}' cannot be read: checking it took more than {timeout:.0f} s. If the disk or "
            "the machine is slow, try again; if not, HDF5 hangs on the file, which is damaged: "
            "copy or download it again."
        ) from None
    except StartError:
        raise ResourceError(
            "The helper process that checks HDF5 files did not start. Is there memory for it?"
        ) from None
    if not survived:
        raise DataError(
            f"'{path}' cannot be read: HDF5 crashed on it. The file is damaged; copy or download "
            "it again."
        )


@lru_cache(4096)
def _survives(path: Path, changed: int, size: int, timeout: float) -> bool:
    try:
        SANDBOX.request({"path": os.fspath(path.resolve())}, timeout=timeout)
    except CrashError:
        return False
    return True


def _prepare() -> Handler:
    def handle(content: dict[str, Any], blocks: list[bytes]) -> Message:
        with suppress(Exception):  # an error is survived; reading raises it again
            _try_reading(Path(content["path"]))
        return {}, []

    return handle


def _try_reading(path: Path) -> None:
    """Do what reading does: visit all objects, open the file, read values."""
    import h5netcdf
    import h5py  # type: ignore[import-untyped]

    check_structure(path)
    left = MAX_READ
    try:
        with h5netcdf.File(path, "r") as file:
            for variable in file.variables.values():
                dict(variable.attrs)
                left -= _read_sample(variable, left)
    except (ValueError, KeyError):  # HDF5, but not NetCDF
        with h5py.File(path, "r") as file:
            for item in file.values():
                dict(item.attrs)
                left -= _read_sample(item, left)


def _read_sample(variable: Any, left: int) -> int:
    """Read a small variable, or both ends of a large one; the bytes it used of those left."""
    shape = getattr(variable, "shape", None)
    if shape is None or 0 in shape:
        return 0
    size = int(np.prod(shape, dtype=object)) * np.dtype(variable.dtype).itemsize
    if size <= min(MAX_VARIABLE, left):
        variable[...]
        return size
    variable[(0,) * len(shape)]
    variable[tuple(length - 1 for length in shape)]
    return 0


# Structure


def check_structure(path: Path) -> None:
    """Visit every object; refuse links out of the file, plugins, and sizes that cannot fit.

    Args:
        path: of a file that passed `check_survivable`.
    """
    import h5py

    with h5py.File(path, "r") as file:
        visited: set[Any] = set()
        queue: list[tuple[Any, str, int]] = [(file, "", 0)]
        while queue:
            group, prefix, depth = queue.pop()
            for name in group:
                where = f"{prefix}/{name}"
                _check_link(group, name, where, path)
                item = group[name]
                address = h5py.h5o.get_info(item.id).addr
                if address in visited:
                    continue
                visited.add(address)
                if len(visited) > MAX_OBJECTS or depth > MAX_DEPTH:
                    raise DataError(
                        f"'{path}' has more than {MAX_OBJECTS} objects, or groups deeper than "
                        f"{MAX_DEPTH}. Files of measurements do not; convert it."
                    )
                if isinstance(item, h5py.Group):
                    queue.append((item, where, depth + 1))
                elif isinstance(item, h5py.Dataset):
                    _check_dataset(item, where, path)


def _check_link(group: Any, name: str, where: str, path: Path) -> None:
    """Allow hard links, and soft links to objects of this file."""
    import h5py

    kind = group.id.links.get_info(name.encode("utf-8", "surrogateescape")).type
    if kind == h5py.h5l.TYPE_HARD:
        return
    if kind != h5py.h5l.TYPE_SOFT:
        raise _outside(path, where, "is a link to another file")
    target = group.get(name, getlink=True).path
    parts = [part for part in target.split("/") if part not in ("", ".")]
    node = group.file if target.startswith("/") else group
    for part in parts:  # each component, since one in the middle may leave the file too
        if not isinstance(node, h5py.Group) or not node.id.links.exists(part.encode()):
            raise _outside(path, where, f"is a link to '{target}', which does not exist")
        if node.id.links.get_info(part.encode()).type != h5py.h5l.TYPE_HARD:
            raise _outside(path, where, f"is a link over other links ('{target}')")
        node = node[part]


def _check_dataset(dataset: Any, where: str, path: Path) -> None:
    """Refuse values in other files, filters that need plugins, and sizes that cannot fit."""
    import h5py

    plan = dataset.id.get_create_plist()
    if plan.get_layout() == h5py.h5d.VIRTUAL:
        raise _outside(path, where, "takes its values from other files (a virtual data set)")
    if plan.get_external_count():
        raise _outside(path, where, "keeps its values in another file (external storage)")
    for number in range(plan.get_nfilters()):
        code = plan.get_filter(number)[0]
        if code not in FILTERS:
            raise DataError(
                f"'{path}': '{where}' is compressed with filter {code}, which needs a plugin; "
                f"supported are {', '.join(FILTERS.values())}. Convert it: h5repack -f GZIP=4 in "
                "out."
            )
    if dataset.shape is None:
        return
    item_size = max(1, dataset.dtype.itemsize)
    declared = int(np.prod(dataset.shape, dtype=object)) * item_size
    name = f"variable '{where.strip('/')}'"
    if dataset.chunks:
        chunk = int(np.prod(dataset.chunks, dtype=object)) * item_size
        check_memory(chunk, f"a chunk of {name}", path)
        check_chunks(dataset, where, path)
    label = dataset.attrs.get("NAME", b"") if "NAME" in dataset.attrs else b""
    if isinstance(label, bytes) and label.startswith(BARE_DIMENSION):
        return
    check_declared(declared, dataset.id.get_storage_size(), name, path)
    if len(dataset.shape) <= 1:
        check_memory(declared, name, path)


def _outside(path: Path, where: str, what: str) -> DataError:
    return DataError(
        f"'{path}': '{where}' {what}. Nothing outside the file is read; copy the values into it."
    )


if __name__ == "__main__":
    serve(_prepare, MAX_HELPER_MEMORY)
