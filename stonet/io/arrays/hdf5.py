"""HDF5 files: NREL's renewable energy data, or NetCDF-4 under another name."""

from __future__ import annotations

from pathlib import Path

from stonet.config import ReadConfig
from stonet.io.arrays import netcdf, nrel
from stonet.io.arrays.hdf5_probe import check_survivable
from stonet.io.lazy_source import LazySource
from stonet.io.safety import readable, walk_hdf5


def read(path: Path, config: ReadConfig) -> list[LazySource]:
    """NREL's form has a `time_index` and a `meta`."""
    import h5py  # type: ignore[import-untyped]

    if not h5py.is_hdf5(path):
        return netcdf.read(path, config)
    with readable(path, "HDF5"):
        check_survivable(path)
        walk_hdf5(path)
        with h5py.File(path, "r") as file:
            from_nrel = "time_index" in file and "meta" in file
    return nrel.read(path, config) if from_nrel else netcdf.read(path, config)
