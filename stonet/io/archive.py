"""Members of ZIP archives, read in memory one at a time and never unpacked to disk.

An archive of a few kilobytes can declare, or hide, terabytes; names can point outside its folder.
What is read is counted, whatever the archive says of itself.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Protocol, runtime_checkable

from stonet.errors import DataError

MAX_MEMBERS = 10_000
MAX_RATIO = 400  # of a member's size to what it takes in the archive; tables reach about 20
SMALL = 2**20  # bytes up to which any ratio is harmless
ERRORS = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, NotImplementedError
)  # fmt: skip


@runtime_checkable
class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes.

        Args:
            size: how many at most.
        """
        ...


def member_names(path: Path) -> list[str]:
    """The names of all files of an archive, in its order.

    Args:
        path: of the archive.

    Raises:
        DataError: it is no archive, has too many members, or one whose name leads outside.
    """
    with _opened(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
    if len(names) > MAX_MEMBERS:
        raise DataError(
            f"'{path}' has {len(names)} members; expected at most {MAX_MEMBERS}. Is it the right "
            "file?"
        )
    for name in names:
        if _leads_outside(name):
            raise DataError(
                f"'{path}' has a member '{name[:80]}' that would lie outside its folder. Such an "
                "archive is malicious or damaged; get it from its publisher."
            )
    return names


def read_member(path: Path, name: str, limit: int) -> bytes:
    """The content of one member.

    Args:
        path: of the archive.
        name: of the member.
        limit: of its size in bytes.

    Raises:
        DataError: it is damaged, encrypted, larger than the limit, or packed as no table is.
    """
    with _opened(path, name) as archive:
        info = archive.getinfo(name)
        ratio = info.file_size / max(info.compress_size, 1)
        if info.file_size > SMALL and ratio > MAX_RATIO:
            raise DataError(
                f"'{name}' in '{path}' is packed {ratio:.0f} : 1; expected at most {MAX_RATIO} : "
                "1. It is nearly empty, or malicious."
            )
        with archive.open(info) as stream:
            return read_bounded(stream, name, limit)


def read_bounded(stream: Readable, name: str, limit: int) -> bytes:
    """All bytes of a stream.

    Args:
        stream: to read from.
        name: of its content, for the message.
        limit: of its length.

    Raises:
        DataError: there is more.
    """
    content = stream.read(limit + 1)
    if len(content) > limit:
        raise DataError(
            f"'{name}' has more than {limit} bytes, which no such table has. Is it the right file?"
        )
    return content


@contextmanager
def _opened(path: Path, member: str = "") -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except DataError:
        raise
    except (*ERRORS, KeyError) as error:
        what = f"'{member}' in '{path}' cannot be read"
        what = what if member else f"'{path}' is not a readable ZIP archive"
        raise DataError(f"{what} ({error}). Is it complete?") from None


def _leads_outside(name: str) -> bool:
    windows, posix = PureWindowsPath(name), PurePosixPath(name)
    absolute = posix.is_absolute() or bool(windows.drive) or name.startswith("\\")
    return absolute or ".." in windows.parts or "\0" in name
