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
        kind = "a folder" if path.is_dir() else f"of a kind that is not read ('{path.suffix}')"
        raise DataError(f"'{path}' is {kind}; expected a file with one of: {', '.join(READERS)}.")
    field = reader(path)
    if not field.observed.any():
        raise DataError(
            f"'{path}' holds {len(field.times)} frames of {', '.join(field.channels)}, and every "
            "value is missing (NaN). Check how the file was made, and its _FillValue."
        )
    return field
