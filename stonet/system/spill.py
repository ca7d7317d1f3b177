"""Large arrays: in memory while they fit the budget, otherwise in an unnamed file on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import ResourceError
from stonet.system.resources import memory_budget, size_label

MAX_DISK_SHARE = 0.9  # of the free disk space that arrays may take


def cache_folder() -> Path:
    """The folder of downloads and spilled arrays: STONET_CACHE, or the user's cache."""
    given = os.environ.get("STONET_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "stonet"


def allocate(shape: tuple[int, ...], *dtypes: Any) -> list[np.ndarray]:
    """Arrays of zeros of one shape, all in memory or, beyond the memory budget, all on disk.

    A file on disk has no name, and its space is freed with the array.

    Args:
        shape: of every array.
        *dtypes: one for each array.

    Raises:
        ResourceError: neither memory nor disk can hold them.
    """
    needed = int(np.prod(shape, dtype=object)) * sum(np.dtype(dtype).itemsize for dtype in dtypes)
    if needed <= memory_budget():
        return [np.zeros(shape, dtype) for dtype in dtypes]
    folder = _scratch_folder()
    free = shutil.disk_usage(folder).free
    if needed > MAX_DISK_SHARE * free:
        raise ResourceError(
            f"{' x '.join(map(str, shape))} values need {size_label(needed)}: more than the memory "
            f"budget ({size_label(memory_budget())}) and than the disk of '{folder}' has free "
            f"({size_label(free)}). Read less: variables, a bbox, a time range, or fewer points "
            "(--variables, --bbox, --from, --to, --points)."
        )
    return [_on_disk(shape, dtype, folder) for dtype in dtypes]


def _scratch_folder() -> Path:
    """The cache, or the folder of temporary files where the cache cannot be written."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.gettempdir())


def _on_disk(shape: tuple[int, ...], dtype: Any, folder: Path) -> np.ndarray:
    with tempfile.TemporaryFile(dir=folder, prefix="stonet-") as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)
