"""Where Fields come from: files of the formats that people have."""

from __future__ import annotations

from pathlib import Path

from stonet.errors import DataError, UsageError
from stonet.field import Field
from stonet.sources import netcdf

READERS = {".nc": netcdf.read, ".nc4": netcdf.read, ".h5": netcdf.read}


def read(path: str | Path) -> Field:
    """The Field in a file; its suffix says which format it is."""
    path = Path(path)
    if not path.exists():
        raise UsageError(
            f"No file '{path}'. Check the path, or give a data set's name such as 'wave'."
        )
    reader = READERS.get(path.suffix.lower())
    if reader is None or path.is_dir():
        kinds = ", ".join(READERS)
        raise DataError(
            f"'{path}' is of a kind that is not read ('{path.suffix}'); expected one of: {kinds}."
        )
    return reader(path)
