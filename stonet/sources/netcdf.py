"""NetCDF files: version 4 (HDF5) through h5netcdf, the classic ones through scipy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stonet.config import ReadConfig
from stonet.errors import DataError
from stonet.sources.content import Content
from stonet.sources.guards import readable, walk_hdf5
from stonet.sources.probe import check_survivable
from stonet.sources.xarrays import contents, prepared

if TYPE_CHECKING:
    import xarray as xr

CLASSIC = (b"CDF\x01", b"CDF\x02")


def read(path: Path, config: ReadConfig) -> list[Content]:
    """What the file holds; it is opened again for each block of frames, and closed after it."""
    with readable(path, "NetCDF"):
        opened = opener(path)
        with opened() as dataset:
            return contents(dataset, str(path), config, opened)


def opener(path: Path) -> Callable[[], AbstractContextManager[xr.Dataset]]:
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
        return lambda: _opened(path, "scipy")
    if not h5py.is_hdf5(path):
        raise DataError(
            f"'{path}' cannot be read as NetCDF (it starts with {magic!r}). Is it whole, and "
            "NetCDF?"
        )
    check_survivable(path)
    walk_hdf5(path)
    return lambda: _opened(path, "h5netcdf")


@contextmanager
def _opened(path: Path, engine: str) -> Iterator[xr.Dataset]:
    import xarray as xr

    with readable(path, "NetCDF"):
        dataset = xr.open_dataset(path, engine=engine, decode_cf=False, cache=False)
        try:
            yield prepared(dataset)
        finally:
            dataset.close()
