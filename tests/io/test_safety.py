"""Errors name the file, and memory is bounded, whatever the format."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from stonet.errors import DataError, ResourceError
from stonet.io import safety
from stonet.io.read import read


def test_errors_keep_their_type_and_name_the_file():
    with (
        pytest.raises(ResourceError, match=r"'a.nc' needs more memory"),
        safety.readable("a.nc", "X"),
    ):
        raise MemoryError
    with (
        pytest.raises(DataError, match=r"'a.nc' cannot be read as X \(no such\)"),
        safety.readable("a.nc", "X"),
    ):
        raise OSError("no such")


def test_grids_beyond_the_memory_budget_are_refused(monkeypatch):
    coords = {
        "time": [0.0, 1.0],
        "lat": np.linspace(-80, 80, 2000),
        "lon": np.linspace(0, 300, 2000),
    }
    values = np.broadcast_to(np.float32(0), (2, 2000, 2000))
    dataset = xr.Dataset({"u": (("time", "lat", "lon"), values)}, coords)
    monkeypatch.setenv("STONET_MEMORY", "100M")
    with pytest.raises(ResourceError, match=r"a grid of 2000 x 2000 points would take 800 MB"):
        read(dataset)
    assert len(read(dataset, bbox=(0, 0, 10, 10)).points) < 20_000


STREAM = """
import os, resource, sys
import numpy as np, xarray as xr, zarr, h5netcdf  # imported before the limit is set
from stonet.io.read import read
folder, name = sys.argv[1:]
axes = {"time": [0.0, 1], "x": [0.0, 1], "y": 0.0}
read(xr.Dataset({"u": (("time", "x"), np.ones((2, 2)))}, axes))
status = open("/proc/self/status").read().split()
now = int(status[status.index("VmData:") + 1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + 110 * 2**20,) * 2)
try:
    np.ones(120 * 2**20, np.uint8)
    sys.exit("the limit has no effect")
except MemoryError:
    pass
field = read(os.path.join(folder, name))
assert isinstance(field.values, np.memmap), type(field.values)
total = 0.0
for start in range(0, len(field.times), 50):
    block = field.values[start : start + 50]
    expected = np.float32(start) + np.arange(len(block), dtype=np.float32)
    assert (block[..., 0] == expected[:, None]).all(), start
    assert field.observed[start : start + 50].all()
print(field.values.nbytes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("name", ["large.nc", "large.zarr"])
def test_values_larger_than_memory_are_streamed_to_disk(tmp_path, name):
    """120 MB of values are read by a process whose memory may grow by 110 MB."""
    frames, side = 1000, 176
    values = np.broadcast_to(
        np.arange(frames, dtype=np.float32)[:, None, None], (frames, side, side)
    )
    axis = np.linspace(0, 60, side)
    coords = {"time": np.arange(frames, dtype=float), "lat": axis, "lon": axis}
    dataset = xr.Dataset({"u": (("time", "lat", "lon"), values)}, coords)
    if name.endswith("zarr"):
        pytest.importorskip("zarr")
        encoding = {"u": {"chunks": (20, side, side)}}
        dataset.to_zarr(tmp_path / name, zarr_format=2, encoding=encoding)
    else:
        encoding = {"u": {"chunksizes": (20, side, side)}}
        dataset.to_netcdf(tmp_path / name, engine="h5netcdf", encoding=encoding)
    limits = {
        "STONET_MEMORY": "20M",
        "STONET_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STREAM, str(tmp_path), name],
        env=os.environ | limits,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == values.nbytes > 120 * 10**6
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("name", ["x.csv", "x.nc", "x.grib", "x.parquet", "x.h5", "x"])
def test_a_pipe_is_refused_and_does_not_block(tmp_path, name):
    os.mkfifo(tmp_path / name)
    (tmp_path / "good.csv").write_text("station,time,v\na,2020-01-01,3\n")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("blocked"))
    signal.alarm(20)
    try:
        with pytest.raises(DataError, match="is a pipe or a device"):
            read(tmp_path / name)
        with pytest.raises(DataError, match="is a pipe or a device"):
            read(tmp_path / "good.csv", stations=str(tmp_path / name))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_an_error_of_arrow_without_a_base_class_is_explained():
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"'a\.parquet' cannot be read as X"):  # noqa: SIM117
        with safety.readable("a.parquet", "X"):
            raise pa.lib.ArrowException("Unknown error")


def test_errors_for_lack_of_memory_are_resource_errors():
    for error in (
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        ImportError("x.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ):
        with pytest.raises(ResourceError, match="needs more memory"):  # noqa: SIM117
            with safety.readable("a", "X"):
                raise error
