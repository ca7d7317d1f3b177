"""Checks that apply to files of every format: readable errors, and limits of memory.

A file of a few bytes can declare terabytes, and a damaged one makes the libraries raise errors of
any type. What is particular to a format is in `arrays/hdf5_safety.py` and `arrays/zarr_safety.py`.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stonet.errors import DataError, ResourceError, StonetError
from stonet.system.resources import lacks_memory, memory_budget, size_label

# what xarray and the libraries below it raise for a damaged or foreign file
LIBRARY_ERRORS = (
    OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError, ImportError,
    ArithmeticError, AssertionError, EOFError, SystemError, struct.error, zlib.error,
)  # fmt: skip
MAX_DECLARED_RATIO = 100_000  # of the declared to the stored size of an array
MAX_MESSAGE = 300  # characters of a library's message that are quoted


@contextmanager
def readable(origin: str | Path, kind: str) -> Iterator[None]:
    """Turn any error inside the block into one that names the file; suppress warnings.

    Args:
        origin: the file or object, for messages.
        kind: what it is read as, e.g. "NetCDF".

    Raises:
        DataError: the file is damaged or of another kind.
        ResourceError: memory does not suffice.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except StonetError as error:
        if str(origin) in str(error):
            raise
        raise type(error)(f"'{origin}': {error}") from error
    except Exception as error:
        if lacks_memory(error):
            raise ResourceError(
                f"'{origin}' needs more memory than there is. Read less: variables, a bbox or a "
                "time range."
            ) from error
        of_arrow = type(error).__module__.startswith("pyarrow")  # some have no base class
        if not of_arrow and not isinstance(error, LIBRARY_ERRORS):
            raise
        message = " ".join(str(error).split())[:MAX_MESSAGE] or type(error).__name__
        raise DataError(
            f"'{origin}' cannot be read as {kind} ({message}). Is it complete, and of that kind?"
        ) from error


def check_plain(path: Path) -> None:
    """Refuse a pipe or a device, which would block or never end.

    Args:
        path: that is to be opened.

    Raises:
        DataError: it is neither a file nor a folder.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            f"'{path}' is a pipe or a device; expected a file or a folder. Save the data first."
        )


def check_memory(size: int, what: str, origin: str | Path) -> None:
    """Refuse an object of `size` bytes that must be in memory at once and exceeds the budget.

    Args:
        size: in bytes.
        what: the object, for the message.
        origin: the file, for the message.
    """
    if size > memory_budget():
        raise ResourceError(
            f"'{origin}': {what} would take {size_label(size)} in memory, and the budget is "
            f"{size_label(memory_budget())}{_file_size(origin)}. Choose less (variables, a bbox), "
            "or allow more with STONET_MEMORY, e.g. 8G."
        )


def check_declared(declared: int, stored: int, what: str, origin: str | Path) -> None:
    """Refuse an array that declares far more bytes than it stores.

    Args:
        declared: bytes, as the metadata say.
        stored: bytes in the file.
        what: the array, for the message.
        origin: the file, for the message.
    """
    if declared > memory_budget() and declared > MAX_DECLARED_RATIO * max(stored, 1):
        raise ResourceError(
            f"'{origin}': {what} declares {size_label(declared)} but stores {size_label(stored)}"
            f"{_file_size(origin)}: it is nearly empty, or malicious. Write it again with its "
            "true size."
        )


def _file_size(origin: str | Path) -> str:
    try:
        size = os.stat(origin)
    except (OSError, ValueError):
        return ""
    return "" if os.path.isdir(origin) else f"; the file has {size_label(size.st_size)}"
