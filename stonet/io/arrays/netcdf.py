"""NetCDF files: version 4 (HDF5) through h5netcdf, the classic ones through scipy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stonet.config import ReadConfig
from stonet.errors import DataError
from stonet.io.arrays.dataset import contents_of_file
from stonet.io.arrays.hdf5_probe import check_survivable
from stonet.io.lazy_source import LazySource
from stonet.io.safety import readable, walk_hdf5

if TYPE_CHECKING:
    import xarray as xr

CLASSIC = (b"CDF\x01", b"CDF\x02")


def read(path: Path, config: ReadConfig) -> list[LazySource]:
    """What the file holds; it is closed until frames are read, and again after the last one."""
    with readable(path, "NetCDF"):
        return contents_of_file(opener(path), str(path), config)


def opener(path: Path) -> Callable[[], xr.Dataset]:
    """A function that opens the file, after its structure has been checked."""
    import h5py  # type: ignore[import-untyped]

    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"CDF\x05":
        raise DataError(
            f"'{path}' is NetCDF of the 64-bit data kind (CDF-5), which is not read. Convert it: "
            "nccopy -k netCDF-4 in.nc out.nc."
        )
    if magic in CLASSIC:
        return partial(_opened, path, "scipy")
    if not h5py.is_hdf5(path):
        raise DataError(
            f"'{path}' cannot be read as NetCDF (it starts with {magic!r}). Is it whole, and "
            "NetCDF?"
        )
    check_survivable(path)
    walk_hdf5(path)
    return partial(_opened, path, "h5netcdf")


def _opened(path: Path, engine: str) -> xr.Dataset:
    import xarray as xr

    return xr.open_dataset(path, engine=engine, decode_cf=False, cache=False)
