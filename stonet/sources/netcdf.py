"""NetCDF-4 (HDF5) files: CF stations, or a grid."""

from __future__ import annotations

from pathlib import Path

from stonet.errors import DataError
from stonet.field import Field

# what xarray and the layers below make of a damaged or a foreign file
FOREIGN = (OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError, ImportError)


def read(path: Path) -> Field:
    """Open with xarray, decode after CF, and unroll to points."""
    import h5py  # type: ignore[import-untyped]
    import xarray as xr

    try:
        h5py.File(path, "r").close()  # h5netcdf litters stderr over a file that does not open
        with xr.open_dataset(path, engine="h5netcdf", decode_timedelta=True) as dataset:
            return Field.from_xarray(dataset.load())
    except DataError as error:
        raise DataError(f"'{path}': {error}") from error
    except FOREIGN as error:
        raise DataError(
            f"'{path}' cannot be read as NetCDF ({error}). Is it whole, and NetCDF-4?"
        ) from error
