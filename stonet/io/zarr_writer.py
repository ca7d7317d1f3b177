"""ZarrWriter: a Zarr store filled piece by piece, by one process or many, that appears when whole.

Until then it lies beside its place in the folder NAME.part, with a mark for every piece that is
done, so that interrupted work can go on. `filled` fills a NetCDF file as well, by one process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from stonet.data.cf import Write, netcdf_in_pieces, put
from stonet.errors import ResourceError, UsageError
from stonet.io.write import check_writable
from stonet.system import distributed

if TYPE_CHECKING:
    import xarray as xr

STORE = "store.zarr"
MARKS = "done"  # a folder with an empty file for each piece
ASKED = "asked"  # a file that says what the pieces belong to
LOCK, BEFORE = ".lock", "before.zarr"  # held by who writes; what had the name until then


def check_store(path: Path) -> None:
    """Refuse what could not be written piece by piece, before any long work."""
    if path.suffix.lower() != ".zarr":
        raise UsageError(
            f"'{path}' cannot be written piece by piece. Give a name that ends in .zarr."
        )
    check_writable(path)


def check_unfinished(path: Path) -> None:
    """Refuse to begin where unfinished work lies, or where another process is at work."""
    part = _part(path)
    if part.exists():
        _check_ours(part)
        os.close(_locked(path))
        raise UsageError(f"'{part}' is there: unfinished work. Go on with --resume, or delete it.")


@contextmanager
def filled(
    path: Path, chunks: tuple[int, int], outline: xr.Dataset, variables: dict[str, dict[str, Any]]
) -> Iterator[Write]:
    """A new store (.zarr) or file (.nc) that is filled by calls, and left whole or not at all.

    Dims are (time, station); a store may be filled by many processes.
    """
    if path.suffix.lower() == ".nc" and distributed.size() == 1:
        check_writable(path)
        with netcdf_in_pieces(path, outline, variables, chunks=chunks) as write:
            yield write
        return
    archive = ZarrWriter(path, chunks)
    archive.begin(outline, variables)
    try:
        yield archive.write
    except BaseException:
        archive.abandon()
        raise
    try:
        archive.finish()
    finally:
        archive.let_go()


class ZarrWriter:
    """A store of some variables of the same dims, the last of them stations.

    Args:
        path: where it will be; it ends in .zarr.
        chunks: of the first and of the last dim; a piece is a chunk, or several.
    """

    def __init__(self, path: Path, chunks: tuple[int, int]) -> None:
        check_store(path)
        self.path, self.chunks = path, chunks
        self.part, self._lock = _part(path), -1
        self._names: list[str] = []

    def begin(
        self,
        outline: xr.Dataset,
        variables: dict[str, dict[str, Any]],
        dims: tuple[str, ...] = ("time", "station"),
        asked: str = "",
        resume: bool | None = None,
    ) -> None:
        """Make the store, or with `resume` go on with it; all processes come here together.

        Args:
            outline: everything but the variables.
            variables: their names and what is noted of each.
            dims: of every variable.
            asked: a mark of the question; work on another one is not continued.
            resume: None: what another run has left is thrown away; False: refused.
        """
        self._names = list(variables)
        if distributed.rank() == 0 and not self._goes_on(asked, resume):
            self._make(outline, variables, dims, asked)
        distributed.wait()

    def write(self, where: tuple[int, ...], values: Float32[np.ndarray, "..."]) -> None:
        """Values of all variables (the last axis) from there on, and the mark that they are in."""
        import zarr

        group = zarr.open_group(self.part / STORE, mode="r+", use_consolidated=False)
        place = tuple(slice(a, a + n) for a, n in zip(where, values.shape[:-1], strict=True))
        for number, name in enumerate(self._names):
            array: Any = group[name]
            array[place] = values[..., number]
        self._mark(where).touch()

    def has(self, where: tuple[int, ...]) -> bool:
        """Whether that piece was written before."""
        return self._mark(where).exists()

    def finish(self) -> None:
        """All processes come here; the store gets its name."""
        distributed.wait()
        if distributed.rank() == 0:
            put(self.part / STORE, self.path, self.part / BEFORE)
            shutil.rmtree(self.part)
        self.let_go()
        distributed.wait()

    def abandon(self) -> None:
        """Leave nothing behind."""
        if distributed.rank() == 0:
            shutil.rmtree(self.part, ignore_errors=True)
            self.let_go()

    def let_go(self) -> None:
        """Others may write now, whether it is whole or not."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _mark(self, where: tuple[int, ...]) -> Path:
        return self.part / MARKS / "-".join(map(str, where))

    def _goes_on(self, asked: str, resume: bool | None) -> bool:
        """Whether work on the same question is continued; what is in the way goes or is refused."""
        if not self.part.exists():
            return False
        _check_ours(self.part)
        self._lock = _locked(self.path)
        whole = (self.part / ASKED).exists() and (self.part / STORE).exists()
        if resume is None or not whole:  # stopped as it began, or as it ended
            shutil.rmtree(self.part)
            self.let_go()
            return False
        if not resume:
            self.let_go()
            check_unfinished(self.path)
        if (self.part / ASKED).read_text() != asked:
            self.let_go()
            raise UsageError(
                f"'{self.part}' is of another run, other data, points or times, or was shared by "
                "another number of processes. Delete it, or ask the same again."
            )
        return True

    def _make(
        self,
        outline: xr.Dataset,
        variables: dict[str, dict[str, Any]],
        dims: tuple[str, ...],
        asked: str,
    ) -> None:
        import zarr

        (self.part / MARKS).mkdir(parents=True)
        self._lock = _locked(self.path)
        outline.to_zarr(self.part / STORE, zarr_format=2, consolidated=False)
        beside = " ".join(sorted(str(n) for n in outline.coords if n not in outline.dims))
        shape = tuple(outline.sizes[dim] for dim in dims)
        group = zarr.open_group(self.part / STORE, mode="r+", use_consolidated=False)
        for name, about in variables.items():
            group.create_array(
                name,
                shape=shape,
                chunks=(min(self.chunks[0], shape[0]), *shape[1:-1], self.chunks[1]),
                dtype="float32",
                fill_value=float("nan"),
                attributes=about | {"_ARRAY_DIMENSIONS": list(dims), "coordinates": beside},
            )
        zarr.consolidate_metadata(self.part / STORE)
        (self.part / ASKED).write_text(asked)


def _part(path: Path) -> Path:
    """Where the store lies until it is whole."""
    return path.with_name(f"{path.name}.part")


def _check_ours(part: Path) -> None:
    """Refuse a folder that no archive has made."""
    if not (part / MARKS).is_dir():
        raise UsageError(f"'{part}' is in the way, and none of ours. Move it elsewhere.")


def _locked(path: Path) -> int:
    """An open file by which this process is the only one that writes; it ends with the process."""
    lock = os.open(_part(path) / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ResourceError(
            f"Another process is writing '{path}'. Wait for it, or choose another name."
        ) from None
    except OSError:  # a file system without locks
        pass
    return lock
