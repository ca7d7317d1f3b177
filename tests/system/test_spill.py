"""Arrays beyond the memory budget are allocated on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stonet.errors import ResourceError
from stonet.system.spill import allocate


def test_arrays_are_on_disk_only_beyond_the_budget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STONET_CACHE", str(tmp_path))
    monkeypatch.setenv("STONET_MEMORY", "500")
    for shape, on_disk in (((10, 10), False), ((10, 11), True)):
        values, mask = allocate(shape, np.float32, np.bool_)
        assert values.shape == mask.shape == shape
        assert (values.dtype, mask.dtype) == (np.float32, np.bool_)
        assert isinstance(values, np.memmap) == isinstance(mask, np.memmap) == on_disk
        assert not values.any() and not mask.any()
    assert not list(tmp_path.iterdir())  # files on disk have no name


def test_arrays_larger_than_the_disk_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STONET_CACHE", str(tmp_path))
    with pytest.raises(ResourceError, match=r"5 EB.*--bbox"):
        allocate((10**9, 10**9), np.float32, np.bool_)


def test_arrays_go_elsewhere_if_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("STONET_MEMORY", "1k")
    (array,) = allocate((1000,), np.float64)
    array[:] = 3.0
    assert isinstance(array, np.memmap) and array.sum() == 3000.0
