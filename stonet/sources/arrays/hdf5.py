"""HDF5 files: NREL's renewable energy data, or NetCDF-4 under another name."""

from __future__ import annotations

from pathlib import Path

from stonet.config import ReadConfig
from stonet.sources.arrays import netcdf, rev
from stonet.sources.arrays.probe import check_survivable
from stonet.sources.content import Content
from stonet.sources.guards import readable, walk_hdf5


def read(path: Path, config: ReadConfig) -> list[Content]:
    """NREL's form has a `time_index` and a `meta`."""
    import h5py  # type: ignore[import-untyped]

    if not h5py.is_hdf5(path):
        return netcdf.read(path, config)
    with readable(path, "HDF5"):
        check_survivable(path)
        walk_hdf5(path)
        with h5py.File(path, "r") as file:
            nrel = "time_index" in file and "meta" in file
    return rev.read(path, config) if nrel else netcdf.read(path, config)
