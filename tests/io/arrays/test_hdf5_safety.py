"""HDF5 files that point to other files, declare false sizes, or crash the library are refused."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from stonet.errors import DataError, ResourceError, StonetError
from stonet.io.arrays import hdf5_safety
from stonet.io.read import read
from stonet.system.sandbox import CrashError

CANARY = 4242.0  # a value of another file only


def write_grid(path: Path) -> None:
    """A valid NetCDF file."""
    time_axis = np.datetime64("2024-01-01", "ns") + np.arange(4) * np.timedelta64(1, "h")
    coords = {"time": time_axis, "lat": [0.0, 1.0], "lon": [0.0, 1.0, 2.0]}
    dims = ("time", "lat", "lon")
    dataset = xr.Dataset({"u": (dims, np.ones((4, 2, 3), np.float32))}, coords)
    dataset.to_netcdf(path, engine="h5netcdf")


def other_file(path: Path) -> Path:
    """Another file, whose values must not be read."""
    elsewhere = path.with_name("other.h5")
    with h5py.File(elsewhere, "w") as file:
        file["v"] = np.full((4, 2, 3), CANARY, np.float32)
        file["deep/er/v"] = file["v"][...]
    return elsewhere


def replace_u(file: h5py.File, make) -> None:
    """Replace u by another object with the same dims."""
    scales = [file[name] for name in ("time", "lat", "lon")]
    del file["u"]
    new = make()
    if new is not None:
        for number, scale in enumerate(scales):
            new.dims[number].attach_scale(scale)


def external_link(file, path) -> None:
    replace_u(file, lambda: file.__setitem__("u", h5py.ExternalLink(other_file(path).name, "/v")))


def link_through_a_link(file, path) -> None:
    file["way"] = h5py.ExternalLink(other_file(path).name, "/deep")
    replace_u(file, lambda: file.__setitem__("u", h5py.SoftLink("/way/er/v")))


def link_in_a_group(file, path) -> None:
    file.create_group("a/b")["c"] = h5py.ExternalLink(str(other_file(path)), "/v")


def dangling(file, path) -> None:
    file["gone"] = h5py.SoftLink("/nothing/here")


def link_to_itself(file, path) -> None:
    file["round"] = h5py.SoftLink("/round")


def external_storage(file, path) -> None:
    raw = path.with_name("raw.bin")
    raw.write_bytes(np.full((4, 2, 3), CANARY, "<f4").tobytes())
    make = lambda: file.create_dataset(  # noqa: E731
        "u", (4, 2, 3), "<f4", external=[(str(raw), 0, h5py.h5f.UNLIMITED)]
    )
    replace_u(file, make)


def virtual(file, path) -> None:
    layout = h5py.VirtualLayout((4, 2, 3), "f4")
    layout[...] = h5py.VirtualSource(str(other_file(path)), "v", (4, 2, 3))
    replace_u(file, lambda: file.create_virtual_dataset("u", layout))


def plugin(file, path) -> None:
    """Filter 32015 (zstd) is not part of HDF5, which would search for it in folders of plugins."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((4, 2, 3))
    plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((4, 2, 3))
    h5py.h5d.create(file.id, b"zipped", h5py.h5t.IEEE_F32LE, space, plan)


REFUSED = {
    external_link: "'/u' is a link to another file",
    link_through_a_link: "'/(u' is a link over other links|way' is a link to another file)",
    link_in_a_group: "'/a/b/c' is a link to another file",
    dangling: "'/gone' is a link to '/nothing/here', which does not exist",
    link_to_itself: "'/round' is a link over other links",
    external_storage: "'/u' keeps its values in another file",
    virtual: "'/u' takes its values from other files",
    plugin: "'/zipped' is compressed with filter 32015, which needs a plugin",
}


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("suffix", [".nc", ".h5"])
def test_nothing_outside_the_file_is_read(tmp_path, change, suffix):
    path = tmp_path / f"bad{suffix}"
    write_grid(path)
    assert read(path).values.max() == 1
    with h5py.File(path, "a") as file:
        change(file, path)
    opened = audited(path)
    assert re.search(REFUSED[change], opened["error"])
    assert str(int(CANARY)) not in opened["error"]
    assert "bad" in opened["error"]
    assert not [name for name in opened["files"] if "other.h5" in name or "raw.bin" in name]


def audited(path: Path) -> dict:
    """The error of read(path), and the files that Python (not HDF5's C code) opened."""
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


def test_soft_links_within_the_file_are_followed(tmp_path):
    write_grid(tmp_path / "good.nc")
    with h5py.File(tmp_path / "good.nc", "a") as file:
        file.create_group("g")["again"] = h5py.SoftLink("/lat")
    assert read(tmp_path / "good.nc").values.max() == 1


# Sizes


def declare(path: Path, shape: tuple[int, int, int], chunks=None) -> None:
    """A file that declares a shape and stores no values."""
    with h5py.File(path, "w", libver="latest") as file:
        axes = [np.arange(min(n, 2000)) * 0.01 for n in shape]
        for name, axis in zip(("time", "lat", "lon"), axes, strict=True):
            file[name] = axis
            file[name].make_scale(name)
        u = file.create_dataset("u", shape, "f4", chunks=chunks)
        for number, name in enumerate(("time", "lat", "lon")):
            u.dims[number].attach_scale(file[name])


def test_declared_terabytes_without_values_are_refused(tmp_path):
    declare(tmp_path / "bomb.nc", (10**6, 1000, 1000), (1, 100, 100))
    assert (tmp_path / "bomb.nc").stat().st_size < 50_000
    begin = time.monotonic()
    with pytest.raises(
        ResourceError,
        match=r"bomb.nc': variable 'u' declares 4 TB but stores 0 bytes",
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
    declare(tmp_path / "chunk.nc", (100, 1000, 100), (100, 1000, 100))
    monkeypatch.setenv("STONET_MEMORY", "20M")
    with pytest.raises(ResourceError, match=r"a chunk of variable 'u' would take 40 MB .* 21 MB"):
        read(tmp_path / "chunk.nc")


# The helper process


def test_the_helper_survives_errors_but_not_a_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_safety, "TIMEOUT", 1.0)
    write_grid(tmp_path / "good.nc")
    (tmp_path / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    hdf5_safety.check_survivable(tmp_path / "good.nc")
    first = hdf5_safety.SANDBOX._process.pid
    hdf5_safety.check_survivable(tmp_path / "bad.nc")  # an error does not end the process
    assert hdf5_safety.SANDBOX._process.pid == first
    os.mkfifo(tmp_path / "endless.nc")  # opening it never returns
    for _ in range(2):  # a timeout is not remembered: the machine may have been busy
        with pytest.raises(DataError, match=r"endless.nc' cannot be read: .* 1 s. If .*slow"):
            hdf5_safety.check_survivable(tmp_path / "endless.nc")
    write_grid(tmp_path / "next.nc")
    monkeypatch.setattr(hdf5_safety, "TIMEOUT", 15.0)
    hdf5_safety.check_survivable(tmp_path / "next.nc")
    assert hdf5_safety.SANDBOX._process.pid != first


def test_a_crash_is_reported_and_remembered(tmp_path, monkeypatch):
    write_grid(tmp_path / "bad.nc")
    requests = []

    def crash(content, *, timeout):
        requests.append(content)
        raise CrashError

    monkeypatch.setattr(hdf5_safety.SANDBOX, "request", crash)
    for _ in range(2):
        with pytest.raises(DataError, match=r"bad.nc' cannot be read: HDF5 crashed on it"):
            hdf5_safety.check_survivable(tmp_path / "bad.nc")
    assert len(requests) == 1


def test_the_timeout_grows_with_the_bytes_that_are_read_up_to_a_limit(tmp_path, monkeypatch):
    """Of many variables that each fit, the first are read completely and all are sampled."""
    timeouts = []
    monkeypatch.setattr(
        hdf5_safety.SANDBOX, "request", lambda content, *, timeout: timeouts.append(timeout)
    )
    for size in (0, 2**24, hdf5_safety.MAX_READ, 2**33):
        path = tmp_path / f"{size}.nc"
        path.touch()
        os.truncate(path, size)  # a hole: nothing is stored
        hdf5_safety.check_survivable(path)
    assert timeouts == [hdf5_safety.TIMEOUT * n for n in (1, 2, 9, 9)]
    sizes = []

    class Variable:
        shape, dtype = (2**22,), "f4"

        def __getitem__(self, key):
            sizes.append(2**24 if key is ... else 4)

    left = hdf5_safety.MAX_READ
    for _ in range(20):
        left -= hdf5_safety._read_sample(Variable(), left)
    assert sum(sizes) == hdf5_safety.MAX_READ + 12 * 2 * 4 and len(sizes) == 8 + 12 * 2


def test_a_helper_that_died_is_restarted(tmp_path):
    write_grid(tmp_path / "good.nc")
    hdf5_safety.check_survivable(tmp_path / "good.nc")
    process = hdf5_safety.SANDBOX._process
    process.kill()  # as a segmentation fault would
    process.wait()
    write_grid(tmp_path / "next.nc")
    hdf5_safety.check_survivable(tmp_path / "next.nc")
    assert hdf5_safety.SANDBOX._process.pid != process.pid
