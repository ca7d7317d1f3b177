"""ZarrWriter: a Zarr store written in pieces by one or many processes, which appears when complete.

Until then it lies in the folder NAME.part beside its final path, with a marker for every piece that
is written, so that interrupted work can be resumed. `open_writer` also writes NetCDF files, by one
process.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from stonet.errors import ResourceError, UsageError
from stonet.io.write import WriteBlock, check_writable, netcdf_by_blocks
from stonet.system import distributed
from stonet.system.atomic import (
    acquire_lock,
    disk_errors_explained,
    remove,
    replace,
    sync,
    write_atomic,
)

if TYPE_CHECKING:
    import xarray as xr

STORE = "store.zarr"
MARKERS = "done"  # a folder with an empty file for each piece
FINGERPRINT = "request"  # a file that identifies what is being written
LOCK = ".lock"
LATE_LOOKS = 5  # for files that threads of zarr still write after an error
BACKUP = "before.zarr"  # the store that is replaced
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without locks


def check_store(path: Path) -> None:
    """Refuse a path that cannot be written in pieces, before any long work.

    Args:
        path: of the store.
    """
    if path.suffix.lower() != ".zarr":
        raise UsageError(
            f"'{path}' cannot be written piece by piece. Give a name that ends in .zarr."
        )
    check_writable(path)


def check_unfinished(path: Path) -> None:
    """Refuse to begin if there is unfinished work, or if another process is writing.

    Args:
        path: of the finished store.
    """
    part = _part(path)
    if part.exists():
        _check_own(part)
        _release(_locked(path))
        raise UsageError(
            f"'{part}' exists: unfinished work. Continue it with --resume, or delete it."
        )


@contextmanager
def open_writer(
    path: Path,
    chunks: tuple[int, ...],
    outline: xr.Dataset,
    variables: dict[str, dict[str, Any]],
    dims: tuple[str, ...] = ("time", "station"),
) -> Iterator[WriteBlock]:
    """A new Zarr store or NetCDF file that is written in pieces; it appears when complete.

    Args:
        path: ends in .zarr or, for one process, in .nc.
        chunks: along the first and the last dim, or along all dims.
        outline: everything but the variables.
        variables: their names and attributes.
        dims: of every variable.

    Yields:
        write(start, values): stores values of all variables (the last axis) from an index on.
    """
    if path.suffix.lower() == ".nc" and distributed.size() == 1:
        check_writable(path)
        with (
            disk_errors_explained(path),
            netcdf_by_blocks(path, outline, variables, dims, chunks) as write,
        ):
            yield write
        return
    writer = ZarrWriter(path, chunks)
    try:
        with disk_errors_explained(path):
            writer.begin(outline, variables, dims)
            yield writer.write
            writer.finish()
    except BaseException:
        writer.abandon()
        raise
    finally:
        writer.release()


class ZarrWriter:
    """A store of variables of the same dims.

    Args:
        path: of the finished store; ends in .zarr.
        chunks: along the first and the last dim, or along all dims; a piece is one or several.
    """

    def __init__(self, path: Path, chunks: tuple[int, ...]) -> None:
        check_store(path)
        self.path, self.chunks = path, chunks
        self.part, self._lock = _part(path), -1
        self._names: list[str] = []
        self._created = False  # the unfinished store, by this process

    def begin(
        self,
        outline: xr.Dataset,
        variables: dict[str, dict[str, Any]],
        dims: tuple[str, ...] = ("time", "station"),
        fingerprint: str = "",
        resume: bool | None = None,
    ) -> None:
        """Create the store, or resume an unfinished one; all processes call this together.

        Args:
            outline: everything but the variables.
            variables: their names and attributes.
            dims: of every variable.
            fingerprint: identifies the request; unfinished work on another one is not resumed.
            resume: whether unfinished work is resumed or refused; None: it is deleted.
        """
        self._names = list(variables)
        if distributed.rank() == 0 and not self._resumes(fingerprint, resume):
            try:
                self._create(outline, variables, dims, fingerprint)
            except BaseException:
                self.abandon()
                raise
        distributed.barrier()

    def write(self, where: tuple[int, ...], values: Float32[np.ndarray, "..."]) -> None:
        """Store values of all variables (the last axis) from an index on, and mark the piece.

        Args:
            where: the first index along each dim.
            values: of the piece; the last axis is that of the variables.
        """
        import zarr

        group = zarr.open_group(self.part / STORE, mode="r+", use_consolidated=False)
        region = tuple(slice(a, a + n) for a, n in zip(where, values.shape[:-1], strict=True))
        for number, name in enumerate(self._names):
            array: Any = group[name]
            array[region] = values[..., number]
            sync(
                *self._chunk_files(name, region, array.chunks)
            )  # before the mark, which survives with them
        self._marker(where).touch()
        sync(self._marker(where), self.part / MARKERS)

    def has(self, where: tuple[int, ...]) -> bool:
        """Whether the piece from this index on has been written.

        Args:
            where: the first index along each dim.
        """
        return self._marker(where).exists()

    def finish(self) -> None:
        """Move the store to its path; all processes call this."""
        distributed.barrier()
        if distributed.rank() == 0:
            replace(self.part / STORE, self.path, self.part / BACKUP)
            shutil.rmtree(self.part)
        self.release()
        distributed.barrier()

    def abandon(self) -> None:
        """Delete the unfinished store, unless it is another process that writes it."""
        if distributed.rank() == 0 and self._created:
            remove(self.part, LATE_LOOKS)
            self.release()

    def release(self) -> None:
        """Let other processes write, whether the store is complete or not."""
        _release(self._lock)
        self._lock = -1

    def _chunk_files(
        self, name: str, region: tuple[slice, ...], chunks: tuple[int, ...]
    ) -> list[Path]:
        """The files of a variable's chunks in a region, and their folder."""
        folder = self.part / STORE / name
        sizes = zip(region, chunks, strict=True)
        ranges = (range(part.start // size, -(-part.stop // size)) for part, size in sizes)
        paths = (folder / ".".join(map(str, chunk)) for chunk in product(*ranges))
        return [*(path for path in paths if path.exists()), folder]  # empty chunks have no file

    def _marker(self, where: tuple[int, ...]) -> Path:
        return self.part / MARKERS / "-".join(map(str, where))

    def _resumes(self, fingerprint: str, resume: bool | None) -> bool:
        """Whether unfinished work on the same request is resumed; other work is removed."""
        if not self.part.exists():
            return False
        _check_own(self.part)
        self._lock = _locked(self.path)
        begun = (self.part / FINGERPRINT).exists() and (self.part / STORE).exists()
        if resume is None or not begun:  # not begun: stopped at the very start or end
            shutil.rmtree(self.part)
            self.release()
            return False
        if not resume:
            self.release()
            check_unfinished(self.path)
        if (self.part / FINGERPRINT).read_text() != fingerprint:
            self.release()
            raise UsageError(
                f"'{self.part}' is of another run, other data, points or times, or of another "
                "number of processes. Delete it, or repeat the same request."
            )
        return True

    def _create(
        self,
        outline: xr.Dataset,
        variables: dict[str, dict[str, Any]],
        dims: tuple[str, ...],
        fingerprint: str,
    ) -> None:
        import zarr

        self.part.mkdir()
        self._created = True
        (self.part / MARKERS).mkdir()
        self._lock = _locked(self.path)
        outline.to_zarr(self.part / STORE, zarr_format=2, consolidated=False)
        coordinates = " ".join(sorted(str(n) for n in outline.coords if n not in outline.dims))
        shape = tuple(outline.sizes[dim] for dim in dims)
        chunks = self.chunks
        if len(chunks) < len(dims):
            chunks = (chunks[0], *shape[1:-1], chunks[-1])
        group = zarr.open_group(self.part / STORE, mode="r+", use_consolidated=False)
        for name, attrs in variables.items():
            group.create_array(
                name,
                shape=shape,
                chunks=(min(chunks[0], shape[0]), *chunks[1:]),
                dtype="float32",
                fill_value=float("nan"),
                attributes=attrs | {"_ARRAY_DIMENSIONS": list(dims), "coordinates": coordinates},
            )
        zarr.consolidate_metadata(self.part / STORE)
        sync(*(path for path in (self.part / STORE).rglob("*")), self.part / STORE)
        write_atomic(self.part / FINGERPRINT, fingerprint.encode())


def _part(path: Path) -> Path:
    """The folder of the store until it is complete."""
    return path.with_name(f"{path.name}.part")


def _check_own(part: Path) -> None:
    if not (part / MARKERS).is_dir():
        raise UsageError(f"'{part}' exists and was not created by stonet. Move it elsewhere.")


def _locked(path: Path) -> int:
    """The lock of the only process that writes; -1 on a file system without locks."""
    try:
        return acquire_lock(_part(path) / LOCK)
    except BlockingIOError:
        raise ResourceError(
            f"Another process is writing '{path}'. Wait for it, or choose another name."
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return -1


def _release(lock: int) -> None:
    if lock >= 0:
        os.close(lock)
