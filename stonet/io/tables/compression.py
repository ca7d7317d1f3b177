"""Packed files: their bytes as a stream, whatever the file is called."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from stonet.errors import DataError, UsageError


@runtime_checkable
class Stream(Protocol):
    """Bytes in their order."""

    def read(self, size: int = -1, /) -> bytes: ...

    def readline(self, size: int = -1, /) -> bytes: ...


@contextmanager
def unpacked(path: Path) -> Iterator[Stream]:
    """The file's bytes, unpacked if its first ones say that it is packed."""
    import bz2
    import gzip
    import lzma

    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"PK"):
        raise DataError(
            f"'{path}' is a ZIP archive (or an Excel file). Unpack it first, or save it as CSV."
        )
    if magic.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"'{path}' is UTF-16 text. Save it as UTF-8.")
    try:
        if magic.startswith(b"\x1f\x8b"):
            with gzip.open(path, "rb") as gz:
                yield cast(Stream, gz)
        elif magic.startswith(b"BZh"):
            with bz2.open(path, "rb") as bz:
                yield cast(Stream, bz)
        elif magic == b"\xfd7zXZ\x00":
            with lzma.open(path, "rb") as xz:
                yield cast(Stream, xz)
        elif magic.startswith(b"\x28\xb5\x2f\xfd"):
            yield _zstd(path)
        else:
            with path.open("rb") as plain:
                yield plain
    except lzma.LZMAError as error:  # of no kind that others know
        raise DataError(f"'{path}' cannot be unpacked ({error}). Is it whole?") from None


def _zstd(path: Path) -> Stream:
    try:
        import pyarrow as pa
    except ImportError:
        raise UsageError(
            f"'{path}' is packed with Zstandard, which needs pyarrow: pip install 'stonet[io]'."
        ) from None
    packed = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    return cast(Stream, io.BufferedReader(packed, 2**16))
