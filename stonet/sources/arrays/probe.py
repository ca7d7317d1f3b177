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

PATIENCE = 15.0  # seconds for one file
START = 60.0  # seconds for the helper's own start
WHOLE = 2**25  # bytes up to which a variable is read whole; of larger ones the ends
MEMORY = 8 * 2**30  # bytes of address space that the helper may take
COMMAND = "from stonet.sources.arrays.probe import serve; serve()"


class Helper:
    """The other process."""

    def __init__(self) -> None:
        package = str(Path(__file__).parents[3])
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # HDF5 tells there what it thinks of damaged files
            env=os.environ | {"PYTHONPATH": paths},
        )

    def survives(self, path: Path, patience: float) -> bool:
        """Whether the process is still there after a look into the file."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(os.fspath(path.resolve())).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return self.answers(patience)

    def answers(self, patience: float) -> bool:
        """Whether it says in time that it is done."""
        answers: Queue[bytes] = Queue()
        reading = self.process.stdout
        assert reading is not None
        threading.Thread(target=lambda: answers.put(reading.readline()), daemon=True).start()
        try:
            return answers.get(timeout=patience) == b"done\n"
        except Empty:
            return False

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
    if not _survivable(path, about.st_mtime_ns, about.st_size):
        raise DataError(
            f"'{path}' cannot be read: HDF5 crashed on it, or did not come back within "
            f"{PATIENCE:g} s. The file is damaged; copy or download it again."
        )


@lru_cache(4096)
def _survivable(path: Path, changed: int, size: int) -> bool:
    with _lock:
        if _helpers and (
            _helpers[0].owner != os.getpid() or _helpers[0].process.poll() is not None
        ):
            _forget()
        if not _helpers:
            _helpers.append(Helper())
            if not _helpers[0].answers(START):
                _forget()
                raise ResourceError(
                    f"The process that looks into HDF5 files first ({sys.executable}) did not "
                    "start. Is there memory for it?"
                )
        good = _helpers[0].survives(path, PATIENCE)
        if not good:
            _forget()
        return good


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

    from stonet.sources.guards import walk_hdf5

    walk_hdf5(path)
    try:
        with h5netcdf.File(path, "r") as file:
            for variable in file.variables.values():
                dict(variable.attrs)
                _taste(variable)
    except (ValueError, KeyError):  # no NetCDF: not all of HDF5 is
        with h5py.File(path, "r") as file:
            for found in file.values():
                dict(found.attrs)
                _taste(found)


def _taste(variable: Any) -> None:
    """All of a small variable, the ends of a large one."""
    shape = getattr(variable, "shape", None)
    if shape is None or 0 in shape:
        return
    if int(np.prod(shape, dtype=object)) * np.dtype(variable.dtype).itemsize <= WHOLE:
        variable[...]
    else:
        variable[(0,) * len(shape)]
        variable[tuple(length - 1 for length in shape)]
