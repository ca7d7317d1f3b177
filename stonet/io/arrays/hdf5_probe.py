"""A look into an HDF5 file by another process, since a damaged one can crash or hang the library.

Of 3000 files with a few wrong bytes, 7 never came back from HDF5 and 1 ended the interpreter. So
a helper process opens each file first; only what it survives is opened here. The helper is started
once, is told one path after another, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import numpy as np

from stonet.errors import DataError, ResourceError
from stonet.system.resources import PYTHON, import_paths

PATIENCE = 15.0  # seconds for one file, and as many again for each 16 MB of it that are read
START = 60.0  # seconds for the helper's own start
WHOLE = 2**25  # bytes up to which a variable is read whole; of larger ones the ends
MOST = 2**27  # bytes of a file that are read; of variables beyond them the ends
MEMORY = 8 * 2**30  # bytes of address space that the helper may take
COMMAND = "from stonet.io.arrays.hdf5_probe import serve; serve()"


class Helper:
    """The other process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [*PYTHON, "-c", COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # HDF5 tells there what it thinks of damaged files
            env=os.environ | {"PYTHONPATH": import_paths()},
        )

    def survives(self, path: Path, patience: float) -> bool:
        """Whether the process is still there after a look; TimeoutError if it does not say."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(os.fspath(path.resolve())).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return self.answers(patience)

    def answers(self, patience: float) -> bool:
        """Whether it says that it is done, and not that it is gone; TimeoutError if neither."""
        answers: Queue[bytes] = Queue()
        reading = self.process.stdout
        assert reading is not None
        threading.Thread(target=lambda: answers.put(reading.readline()), daemon=True).start()
        try:
            return answers.get(timeout=patience) == b"done\n"
        except Empty:
            raise TimeoutError from None

    def end(self) -> None:
        """Also when it hangs."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


_helpers: list[Helper] = []
_lock = threading.Lock()


def check_survivable(path: Path) -> None:
    """Refuse a file that crashes or hangs HDF5; the same file is looked at only once."""
    about = path.stat()
    patience = PATIENCE * (1 + min(about.st_size, MOST) / 2**24)
    try:
        good = _survivable(path, about.st_mtime_ns, about.st_size, patience)
    except TimeoutError:  # not remembered: the machine may have been busy
        raise DataError(
            f"'{path}' cannot be read: a first look into it was not done within {patience:.0f} s. "
            "If the disk or the machine is slow, try again; if not, HDF5 hangs on the file, which "
            "is damaged: copy or download it again."
        ) from None
    if not good:
        raise DataError(
            f"'{path}' cannot be read: HDF5 crashed on it. The file is damaged; copy or download "
            "it again."
        )


@lru_cache(4096)
def _survivable(path: Path, changed: int, size: int, patience: float) -> bool:
    with _lock:
        if _helpers and (
            _helpers[0].owner != os.getpid() or _helpers[0].process.poll() is not None
        ):
            _forget()
        if not _helpers:
            _helpers.append(_started())
        good = False
        try:
            good = _helpers[0].survives(path, patience)
        finally:
            if not good:
                _forget()
        return good


def _started() -> Helper:
    helper = Helper()
    with suppress(TimeoutError):
        if helper.answers(START):
            return helper
    helper.end()
    raise ResourceError(
        f"The process that looks into HDF5 files first ({sys.executable}) did not start. Is there "
        "memory for it?"
    )


@atexit.register
def _forget() -> None:
    while _helpers:
        _helpers.pop().end()


def serve() -> None:
    """The helper's life: a path on each line of its input, a word for each it came back from."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("done", flush=True)
    for line in sys.stdin:
        with suppress(Exception):  # an error is an answer: it will be told outside, again
            _look(Path(json.loads(line)))
        print("done", flush=True)


def _look(path: Path) -> None:
    """What reading does: walk, open, read."""
    import h5netcdf
    import h5py  # type: ignore[import-untyped]

    from stonet.io.safety import walk_hdf5

    walk_hdf5(path)
    left = MOST
    try:
        with h5netcdf.File(path, "r") as file:
            for variable in file.variables.values():
                dict(variable.attrs)
                left -= _taste(variable, left)
    except (ValueError, KeyError):  # no NetCDF: not all of HDF5 is
        with h5py.File(path, "r") as file:
            for found in file.values():
                dict(found.attrs)
                left -= _taste(found, left)


def _taste(variable: Any, left: int) -> int:
    """All of a small variable, the ends of a large one; how many of the bytes left it took."""
    shape = getattr(variable, "shape", None)
    if shape is None or 0 in shape:
        return 0
    size = int(np.prod(shape, dtype=object)) * np.dtype(variable.dtype).itemsize
    if size <= min(WHOLE, left):
        variable[...]
        return size
    variable[(0,) * len(shape)]
    variable[tuple(length - 1 for length in shape)]
    return 0
