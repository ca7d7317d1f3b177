"""Zarr stores, version 2 or 3, in a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stonet.config import ReadConfig
from stonet.errors import DataError, UsageError
from stonet.sources.content import Content
from stonet.sources.guards import readable
from stonet.sources.stores import check_store
from stonet.sources.xarrays import contents, prepared

if TYPE_CHECKING:
    import xarray as xr


def read(path: Path, config: ReadConfig) -> list[Content]:
    """What the store holds, after its descriptions and links have been checked."""
    if not path.is_dir():
        raise DataError(f"'{path}' is no folder; a Zarr store is one. Unpack it first.")
    if find_spec("zarr") is None:
        raise UsageError(f"'{path}' needs the library zarr: pip install 'stonet[io]'")
    with readable(path, "Zarr"):
        whole = path.resolve()
        consolidated = check_store(whole)
        with _opened(whole, path, consolidated) as dataset:
            return contents(dataset, str(path), config, lambda: _opened(whole, path, consolidated))


@contextmanager
def _opened(whole: Path, path: Path, consolidated: bool) -> Iterator[xr.Dataset]:
    import xarray as xr
    from zarr.storage import LocalStore  # a path as text could also be an address

    with readable(path, "Zarr"):
        dataset = xr.open_zarr(
            LocalStore(whole, read_only=True),
            consolidated=consolidated,
            chunks=None,
            decode_cf=False,
        )
        try:
            yield prepared(dataset)
        finally:
            dataset.close()
