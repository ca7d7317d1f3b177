"""Chunks of HDF5 that unpack to more than their shape are refused before they are unpacked."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from stonet.errors import DataError, ResourceError
from stonet.io.read import read

FILTERS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip"},
    "shuffled": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "szip": {"compression": "szip"},
    "scaleoffset": {"scaleoffset": 4},
    "none": {"fletcher32": True},
}


def write(path: Path, **options: Any) -> np.ndarray:
    """A NetCDF file of 40 times and 16 points, of which `u` has these filters."""
    values = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    coords = {"time": np.arange(40.0), "x": np.arange(16.0), "y": 0.0}
    xr.Dataset({"u": (("time", "x"), values)}, coords).to_netcdf(path, engine="h5netcdf")
    with h5py.File(path, "a") as file:
        attributes, scales = dict(file["u"].attrs), [file["time"], file["x"]]
        del file["u"]
        made = file.create_dataset("u", data=values, chunks=(20, 16), **options)
        made.attrs.update({k: v for k, v in attributes.items() if "DIMENSION" not in k})
        for dimension, scale in zip(made.dims, scales, strict=True):
            dimension.attach_scale(scale)
    return values


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STONET_MEMORY", "100k")  # else small files need not be looked at


@pytest.mark.parametrize("name", FILTERS)
def test_honest_chunks_are_read(tmp_path: Path, name: str) -> None:
    if name == "szip" and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        pytest.skip("HDF5 without szip")
    values = write(tmp_path / "x.nc", **FILTERS[name])
    np.testing.assert_allclose(read(tmp_path / "x.nc").values[..., 0], values, atol=1e-4)


@pytest.mark.parametrize("name", ["gzip", "lzf"])
def test_a_chunk_that_unpacks_to_more_than_its_shape_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / "x.nc", **FILTERS[name])
    # of LZF: a zero, then references to the byte before, each of 264 bytes
    bomb = zlib.compress(bytes(2**26), 9) if name == "gzip" else b"\0\0" + b"\xe0\xff\0" * 2**11
    with h5py.File(tmp_path / "x.nc", "a") as file:
        file["u"].id.write_direct_chunk((20, 0), bomb)
    tracemalloc.start()
    try:
        with pytest.raises(ResourceError, match="unpacks to more than"):
            read(tmp_path / "x.nc")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_chunk_compressed_twice_is_refused(tmp_path: Path) -> None:
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((20, 16))
    plan.set_deflate(9)
    plan.set_deflate(9)
    write(tmp_path / "x.nc")
    with h5py.File(tmp_path / "x.nc", "a") as file:
        space, kind = h5py.h5s.create_simple((40, 16)), h5py.h5t.NATIVE_FLOAT
        h5py.h5d.create(file.id, b"v", kind, space, plan)
    with pytest.raises(DataError, match="compressed twice"):
        read(tmp_path / "x.nc")


def test_a_filter_that_declares_more_than_a_chunk_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.nc", **FILTERS["lzf"])
    data = (tmp_path / "x.nc").read_bytes()
    honest = (20 * 16 * 4).to_bytes(4, "little")
    place = data.index(b"lzf\0")
    at = data.index(honest, place)
    (tmp_path / "x.nc").write_bytes(data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :])
    with pytest.raises(DataError, match=r"declares more than a chunk|cannot be read"):
        read(tmp_path / "x.nc")
