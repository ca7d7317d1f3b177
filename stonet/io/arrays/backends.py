"""How NetCDF, HDF5 and Zarr files are opened, after their structure has been checked.

NetCDF-4 and other HDF5    h5netcdf
classic NetCDF             scipy
NREL's HDF5                h5py (`nrel.py`)
Zarr, version 2 or 3       zarr, in a local folder
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stonet.config import ReadConfig
from stonet.errors import DataError, UsageError
from stonet.io.arrays import nrel
from stonet.io.arrays.dataset import open_file
from stonet.io.arrays.hdf5_safety import check_structure, check_survivable
from stonet.io.arrays.zarr_safety import ChunkLimit, check_store, chunk_limits
from stonet.io.lazy_source import LazySource
from stonet.io.safety import readable

if TYPE_CHECKING:
    import xarray as xr

CLASSIC = (b"CDF\x01", b"CDF\x02")  # first bytes of NetCDF-3 files


def open_netcdf(path: Path, config: ReadConfig) -> list[LazySource]:
    """The content of a NetCDF file; it is open only while frames are read.

    Args:
        path: of a file in any form of NetCDF but CDF-5.
        config: what is selected, and how it is read.
    """
    with readable(path, "NetCDF"):
        return open_file(opener(path), str(path), config)


def open_hdf5(path: Path, config: ReadConfig) -> list[LazySource]:
    """The content of an HDF5 file: NREL's form has `time_index` and `meta`, others are NetCDF-4.

    Args:
        path: of an HDF5 file, or of a NetCDF file with the suffix of one.
        config: what is selected, and how it is read.
    """
    import h5py  # type: ignore[import-untyped]

    if not h5py.is_hdf5(path):
        return open_netcdf(path, config)
    with readable(path, "HDF5"):
        check_survivable(path)
        check_structure(path)
        with h5py.File(path, "r") as file:
            is_nrel = "time_index" in file and "meta" in file
    return nrel.open_nrel(path, config) if is_nrel else open_netcdf(path, config)


def open_zarr(path: Path, config: ReadConfig) -> list[LazySource]:
    """The content of a Zarr store.

    Args:
        path: of the store's folder.
        config: what is selected, and how it is read.
    """
    if not path.is_dir():
        raise DataError(f"'{path}' is not a folder, and a Zarr store is one. Unpack it first.")
    if find_spec("zarr") is None:
        raise UsageError(f"'{path}' needs the library zarr: pip install 'stonet[io]'")
    with readable(path, "Zarr"):
        store = path.resolve()
        consolidated = check_store(store)
        return open_file(
            partial(_open_store, store, consolidated, chunk_limits(store)), str(path), config
        )


def opener(path: Path) -> Callable[[], xr.Dataset]:
    """A function that opens a NetCDF file whose structure has been checked.

    Args:
        path: of a NetCDF file.
    """
    import h5py

    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"CDF\x05":
        raise DataError(
            f"'{path}' is NetCDF in the 64-bit data format (CDF-5), which is not supported. "
            "Convert it: nccopy -k netCDF-4 in.nc out.nc."
        )
    if magic in CLASSIC:
        return partial(_open_netcdf, path, "scipy")
    if not h5py.is_hdf5(path):
        raise DataError(
            f"'{path}' cannot be read as NetCDF (it starts with {magic!r}). Is it complete, and "
            "NetCDF?"
        )
    check_survivable(path)
    check_structure(path)
    return partial(_open_netcdf, path, "h5netcdf")


def _open_netcdf(path: Path, engine: str) -> xr.Dataset:
    import xarray as xr

    return xr.open_dataset(path, engine=engine, decode_cf=False, cache=False)


def _open_store(path: Path, consolidated: bool, limits: dict[str, ChunkLimit]) -> xr.Dataset:
    import xarray as xr

    from stonet.io.arrays.zarr_chunks import BoundedStore

    store = BoundedStore(path, limits)  # a path as text could also be an address
    return xr.open_zarr(store, consolidated=consolidated, chunks=None, decode_cf=False)
