"""Atomic replacement of files and folders, and an advisory lock between processes.

A reader finds the old content or the new content of a path, never a part of either, whenever the
writer fails or is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stonet.errors import ResourceError, UsageError

STAGE = ".stage-"  # prefix of files and folders that are not complete yet


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file or a folder that replaces `path` once it is complete.

    The yielded path lies beside `path`, with the same suffix. It is removed if the block fails.

    Args:
        path: what is replaced, a file or a folder. Its parent must exist.

    Example:
        >>> with replacing(Path("out.nc")) as stage:  # doctest: +SKIP
        ...     dataset.to_netcdf(stage)
    """
    if not path.parent.is_dir():
        raise UsageError(f"No folder '{path.parent}' to write '{path.name}' into. Make it first.")
    stage = path.with_name(f"{STAGE}{os.getpid()}-{os.urandom(8).hex()}{path.suffix}")
    backup = stage.with_name(f"{stage.name}-old")
    try:
        yield stage
        replace(stage, path, backup)
    finally:
        remove(stage)
        remove(backup)


REMOVALS = 100  # attempts to delete a folder
LOOK = 0.02  # seconds between two looks for a folder that was deleted


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file so that the new content survives a power failure.

    Args:
        path: the file.
        data: its new content.

    Raises:
        ResourceError: the disk is full or not writable; the old content is still there.
    """
    with disk_errors_explained(path):
        with replacing(path) as stage:
            stage.write_bytes(data)
            sync(stage)
        sync(path.parent)


@contextmanager
def disk_errors_explained(path: Path) -> Iterator[None]:
    """Turn an error of the system while `path` is written into one that names it.

    Args:
        path: what the block writes; the message names it.

    Raises:
        ResourceError: the disk is full or not writable.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise ResourceError(
            f"Cannot write '{path}' ({reason}). Check the free space and the permissions there."
        ) from error


def replace(new: Path, path: Path, backup: Path) -> None:
    """Rename `new` to `path`; a folder at `path` is moved to `backup`, and back on failure.

    Args:
        new: the complete file or folder.
        path: its name from now on.
        backup: where a folder at `path` goes.
    """
    try:
        if path.is_dir():  # os.replace refuses to replace a folder that is not empty
            os.replace(path, backup)
        os.replace(new, path)
    except BaseException:
        if backup.exists() and not path.exists():
            os.replace(backup, path)
        raise


def sync(*paths: Path) -> None:
    """Flush files, and the names in folders, to the disk.

    Args:
        *paths: files or folders.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def acquire_lock(path: Path) -> int:
    """Lock a file for this process, without waiting; `os.close` of the result releases the lock.

    The lock ends with the process, so none is ever stale. Forked children hold it as well. The
    file names the process and the host that hold it. Links are not followed.

    Args:
        path: of the lock file; it is created if absent.

    Returns:
        The descriptor of the locked file.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file cannot be opened, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".ljust(80).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove(path: Path, looks: int = 0) -> None:
    """Delete a file or folder, if there is one.

    Threads of a writer that failed may still add files, or even make the folder anew.

    Args:
        path: of the file or folder.
        looks: number of times in a row that the folder must be absent after it was deleted.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    absent = 0
    for _ in range(REMOVALS):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            absent = 0
        elif absent >= looks:
            return
        else:
            absent += 1
            time.sleep(LOOK)
