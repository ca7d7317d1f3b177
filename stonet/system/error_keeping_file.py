"""A file for HDF5, which ends the process by a signal when a disk is full while it closes a file.

Its writes never fail: what the disk refuses stays in memory, and the error is kept for the caller.
"""

from __future__ import annotations

import io
import os
from pathlib import Path


class ErrorKeepingFile(io.RawIOBase):
    """A file that can be read and written anywhere; a caller asks `check` whether it is complete.

    Args:
        path: of an existing file.

    Example:
        >>> with ErrorKeepingFile(path) as file:  # doctest: +SKIP
        ...     with h5py.File(file, "r+") as store:
        ...         store["u"][:] = values
        ...     file.check()
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR)
        self._position = 0
        self._refused: list[tuple[int, bytes]] = []  # (position, content), in the order of writing
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error of a write, if there was one."""
        if self._error is not None:
            raise self._error

    def write(self, data: object) -> int:
        """Store bytes at the current position; on the disk, or after an error in memory.

        Args:
            data: any object with a buffer.
        """
        content = memoryview(data).cast("B")  # type: ignore[arg-type]
        done = 0
        while done < len(content) and self._error is None:
            try:
                done += os.pwrite(self._file, content[done:], self._position + done)
            except OSError as error:
                self._error = error
        if done < len(content):
            self._refused.append((self._position + done, bytes(content[done:])))
        self._position += len(content)
        return len(content)

    def readinto(self, buffer: object) -> int:
        """Fill a buffer from the current position; what was never written is zero.

        Args:
            buffer: to be filled.

        Returns:
            Number of bytes, always the length of the buffer.
        """
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        start, size = self._position, len(target)
        target[:] = os.pread(self._file, size, start).ljust(size, b"\0")
        for position, content in self._refused:
            low, high = max(start, position), min(start + size, position + len(content))
            if low < high:
                target[low - start : high - start] = content[low - position : high - position]
        self._position += size
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the current position.

        Args:
            offset: in bytes, from `whence`.
            whence: the start, the current position or the end.

        Returns:
            The new position.
        """
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size()}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The current position."""
        return self._position

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file.

        Args:
            size: in bytes; None: the current position.

        Returns:
            The new size.
        """
        size = self._position if size is None else size
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            self._error = self._error or error
        return size

    def close(self) -> None:
        """Close the file; an error of a write is not raised here but by `check`."""
        if not self.closed:
            os.close(self._file)
        super().close()

    def readable(self) -> bool:
        """Yes."""
        return True

    def writable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def _size(self) -> int:
        ends = (position + len(content) for position, content in self._refused)
        return max([os.fstat(self._file).st_size, *ends])
