"""HDF5 files that reach out of themselves, lie about their size, or break the library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from stonet.errors import DataError, ResourceError, StonetError
from stonet.io import safety
from stonet.io.arrays import hdf5_probe
from stonet.io.read import read

CANARY = 4242.0  # stands in another file, and nowhere else


def whole(path: Path) -> None:
    time_axis = np.datetime64("2024-01-01", "ns") + np.arange(4) * np.timedelta64(1, "h")
    coords = {"time": time_axis, "lat": [0.0, 1.0], "lon": [0.0, 1.0, 2.0]}
    dims = ("time", "lat", "lon")
    dataset = xr.Dataset({"u": (dims, np.ones((4, 2, 3), np.float32))}, coords)
    dataset.to_netcdf(path, engine="h5netcdf")


def other(path: Path) -> Path:
    """Another file, of numbers that must not be seen."""
    elsewhere = path.with_name("other.h5")
    with h5py.File(elsewhere, "w") as file:
        file["v"] = np.full((4, 2, 3), CANARY, np.float32)
        file["deep/er/v"] = file["v"][...]
    return elsewhere


def replaced(file: h5py.File, make) -> None:
    """A new u, on the old one's dims."""
    scales = [file[name] for name in ("time", "lat", "lon")]
    del file["u"]
    made = make()
    if made is not None:
        for number, scale in enumerate(scales):
            made.dims[number].attach_scale(scale)


def external_link(file, path) -> None:
    replaced(file, lambda: file.__setitem__("u", h5py.ExternalLink(other(path).name, "/v")))


def link_through_a_link(file, path) -> None:
    file["way"] = h5py.ExternalLink(other(path).name, "/deep")
    replaced(file, lambda: file.__setitem__("u", h5py.SoftLink("/way/er/v")))


def link_in_a_group(file, path) -> None:
    file.create_group("a/b")["c"] = h5py.ExternalLink(str(other(path)), "/v")


def dangling(file, path) -> None:
    file["gone"] = h5py.SoftLink("/nothing/here")


def in_circles(file, path) -> None:
    file["round"] = h5py.SoftLink("/round")


def external_storage(file, path) -> None:
    raw = path.with_name("raw.bin")
    raw.write_bytes(np.full((4, 2, 3), CANARY, "<f4").tobytes())
    make = lambda: file.create_dataset(  # noqa: E731
        "u", (4, 2, 3), "<f4", external=[(str(raw), 0, h5py.h5f.UNLIMITED)]
    )
    replaced(file, make)


def virtual(file, path) -> None:
    layout = h5py.VirtualLayout((4, 2, 3), "f4")
    layout[...] = h5py.VirtualSource(str(other(path)), "v", (4, 2, 3))
    replaced(file, lambda: file.create_virtual_dataset("u", layout))


def plugin(file, path) -> None:
    """Filter 32015 (zstd) is no part of HDF5; it would be searched for in folders of plugins."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((4, 2, 3))
    plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((4, 2, 3))
    h5py.h5d.create(file.id, b"zipped", h5py.h5t.IEEE_F32LE, space, plan)


LEAVING = {
    external_link: "'/u' is a link to another file",
    link_through_a_link: "'/(u' is a link over other links|way' is a link to another file)",
    link_in_a_group: "'/a/b/c' is a link to another file",
    dangling: "'/gone' is a link to '/nothing/here', which is not there",
    in_circles: "'/round' is a link over other links",
    external_storage: "'/u' keeps its values in another file",
    virtual: "'/u' is put together from other files",
    plugin: "'/zipped' is compressed with filter 32015, which needs a plugin",
}


@pytest.mark.parametrize("harm", LEAVING)
@pytest.mark.parametrize("suffix", [".nc", ".h5"])
def test_nothing_outside_the_file_is_read(tmp_path, harm, suffix):
    path = tmp_path / f"bad{suffix}"
    whole(path)
    assert read(path).values.max() == 1
    with h5py.File(path, "a") as file:
        harm(file, path)
    opened = audited(path)
    assert re.search(LEAVING[harm], opened["error"])
    assert str(int(CANARY)) not in opened["error"]
    assert "bad" in opened["error"]
    assert not [name for name in opened["files"] if "other.h5" in name or "raw.bin" in name]


def audited(path: Path) -> dict:
    """The error of read(path), and the files that Python itself (not HDF5's C code) opened."""
    files: list[str] = []
    hooks.append(files)
    try:
        read(path)
    except StonetError as error:
        return {"error": str(error), "files": files}
    finally:
        hooks.clear()
    pytest.fail(f"{path} was read")


hooks: list[list[str]] = []


@sys.addaudithook
def _watch(event: str, arguments: tuple) -> None:
    if event == "open" and hooks:
        hooks[0].append(str(arguments[0]))


def test_soft_links_within_the_file_are_fine(tmp_path):
    whole(tmp_path / "good.nc")
    with h5py.File(tmp_path / "good.nc", "a") as file:
        file.create_group("g")["again"] = h5py.SoftLink("/lat")
    assert read(tmp_path / "good.nc").values.max() == 1


# Sizes


def declaring(path: Path, shape: tuple[int, int, int], chunks=None) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        axes = [np.arange(min(n, 2000)) * 0.01 for n in shape]
        for name, axis in zip(("time", "lat", "lon"), axes, strict=True):
            file[name] = axis
            file[name].make_scale(name)
        u = file.create_dataset("u", shape, "f4", chunks=chunks)
        for number, name in enumerate(("time", "lat", "lon")):
            u.dims[number].attach_scale(file[name])


def test_terabytes_that_were_never_written_are_refused(tmp_path):
    declaring(tmp_path / "bomb.nc", (10**6, 1000, 1000), (1, 100, 100))
    assert (tmp_path / "bomb.nc").stat().st_size < 50_000
    begin = time.monotonic()
    with pytest.raises(
        ResourceError, match=r"bomb.nc': variable 'u' declares 4 TB but holds 0 bytes; the file has"
    ):
        read(tmp_path / "bomb.nc")
    assert time.monotonic() - begin < 5


def test_a_tiny_file_with_an_endless_axis_is_refused(tmp_path):
    with h5py.File(tmp_path / "tiny.nc", "w", libver="latest") as file:
        axis = file.create_dataset("time", (2**39,), "f8", chunks=(2**10,))
        axis.make_scale("time")
    assert (tmp_path / "tiny.nc").stat().st_size < 2000
    with pytest.raises(ResourceError, match=r"tiny.nc': variable 'time' declares 4.4 TB"):
        read(tmp_path / "tiny.nc")


def test_a_giant_chunk_is_refused(tmp_path, monkeypatch):
    declaring(tmp_path / "chunk.nc", (100, 1000, 100), (100, 1000, 100))
    monkeypatch.setenv("STONET_MEMORY", "20M")
    with pytest.raises(ResourceError, match=r"a chunk of variable 'u' would take 40 MB .* 21 MB"):
        read(tmp_path / "chunk.nc")


def test_more_points_than_memory_are_refused(monkeypatch):
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
import numpy as np, xarray as xr, zarr, h5netcdf  # what reading needs, before the limit
from stonet.io.read import read
from stonet.io.arrays import dataset as xarrays
folder, name = sys.argv[1:]
axes = {"time": [0.0, 1], "x": [0.0, 1], "y": 0.0}
read(xr.Dataset({"u": (("time", "x"), np.ones((2, 2)))}, axes))
status = open("/proc/self/status").read().split()
now = int(status[status.index("VmData:") + 1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + 110 * 2**20,) * 2)
try:
    np.ones(120 * 2**20, np.uint8)
    sys.exit("the limit does not bite")
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
def test_what_is_larger_than_memory_is_streamed_to_disk(tmp_path, name):
    """120 MB of values come through a process that may take 110 MB more than it has."""
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


# The helper process


def test_the_helper_outlives_errors_and_not_a_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_probe, "PATIENCE", 1.0)
    whole(tmp_path / "good.nc")
    (tmp_path / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    hdf5_probe.check_survivable(tmp_path / "good.nc")
    first = hdf5_probe._helpers[0].process.pid
    hdf5_probe.check_survivable(tmp_path / "bad.nc")  # an error is not the end of the process
    assert hdf5_probe._helpers[0].process.pid == first
    os.mkfifo(tmp_path / "endless.nc")  # opening it never comes back
    for _ in range(2):  # it is looked at again: the machine may have been busy
        with pytest.raises(
            DataError, match=r"endless.nc' cannot be read: .* within 1 s. If .*slow"
        ):
            hdf5_probe.check_survivable(tmp_path / "endless.nc")
    whole(tmp_path / "next.nc")
    monkeypatch.setattr(hdf5_probe, "PATIENCE", 15.0)
    hdf5_probe.check_survivable(tmp_path / "next.nc")
    assert hdf5_probe._helpers[0].process.pid != first


def test_a_crash_is_told_as_one_and_remembered(tmp_path, monkeypatch):
    whole(tmp_path / "bad.nc")
    looks = []
    monkeypatch.setattr(hdf5_probe.Helper, "survives", lambda *given: bool(looks.append(given)))
    for _ in range(2):
        with pytest.raises(DataError, match=r"bad.nc' cannot be read: HDF5 crashed on it"):
            hdf5_probe.check_survivable(tmp_path / "bad.nc")
    assert len(looks) == 1


def test_patience_grows_with_what_is_read_and_that_has_an_end(tmp_path, monkeypatch):
    """Of many good variables that fit one by one, the first are read whole and all are touched."""
    waited = []
    monkeypatch.setattr(hdf5_probe.Helper, "survives", lambda *given: not waited.append(given[-1]))
    for size in (0, 2**24, hdf5_probe.MOST, 2**33):
        path = tmp_path / f"{size}.nc"
        path.touch()
        os.truncate(path, size)  # a hole: nothing is stored
        hdf5_probe.check_survivable(path)
    assert waited == [hdf5_probe.PATIENCE * n for n in (1, 2, 9, 9)]
    taken = []

    class Variable:
        shape, dtype = (2**22,), "f4"

        def __getitem__(self, key):
            taken.append(2**24 if key is ... else 4)

    left = hdf5_probe.MOST
    for _ in range(20):
        left -= hdf5_probe._taste(Variable(), left)
    assert sum(taken) == hdf5_probe.MOST + 12 * 2 * 4 and len(taken) == 8 + 12 * 2


def test_a_helper_that_died_is_started_anew(tmp_path):
    whole(tmp_path / "good.nc")
    hdf5_probe.check_survivable(tmp_path / "good.nc")
    process = hdf5_probe._helpers[0].process
    process.kill()  # as a segmentation fault would
    process.wait()
    whole(tmp_path / "next.nc")
    hdf5_probe.check_survivable(tmp_path / "next.nc")  # it is started anew
    assert hdf5_probe._helpers[0].process.pid != process.pid


def test_errors_keep_their_kind_and_name_the_file():
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
