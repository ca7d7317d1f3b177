"""Zarr stores, version 2 or 3, in a local folder."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stonet.config import ReadConfig
from stonet.errors import DataError, UsageError
from stonet.io.arrays.dataset import contents_of_file
from stonet.io.arrays.zarr_safety import check_store
from stonet.io.lazy_source import LazySource
from stonet.io.safety import readable

if TYPE_CHECKING:
    import xarray as xr


def read(path: Path, config: ReadConfig) -> list[LazySource]:
    """What the store holds, after its descriptions and links have been checked."""
    if not path.is_dir():
        raise DataError(f"'{path}' is no folder; a Zarr store is one. Unpack it first.")
    if find_spec("zarr") is None:
        raise UsageError(f"'{path}' needs the library zarr: pip install 'stonet[io]'")
    with readable(path, "Zarr"):
        whole = path.resolve()
        consolidated = check_store(whole)
        return contents_of_file(partial(_opened, whole, consolidated), str(path), config)


def _opened(whole: Path, consolidated: bool) -> xr.Dataset:
    import xarray as xr
    from zarr.storage import LocalStore  # a path as text could also be an address

    store = LocalStore(whole, read_only=True)
    return xr.open_zarr(store, consolidated=consolidated, chunks=None, decode_cf=False)
