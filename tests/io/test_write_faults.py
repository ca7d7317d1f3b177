"""A full or unwritable disk is an error with a message, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.paths import ROOT

from stonet.errors import ResourceError
from stonet.io import write, zarr_writer
from stonet.system import atomic
from stonet.system.error_keeping_file import ErrorKeepingFile

FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from stonet.data.cf import outline
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import ResourceError
from stonet.io.write import write
from stonet.io.zarr_writer import open_writer

def whole(field, path):
    write(field, path)

def pieces(field, path):
    with open_writer(path, (50, 10), *outline(field)) as put:
        for start in range(0, 40, 10):
            put((0, start), values[:, start : start + 10])

values = np.random.default_rng(0).normal(size=(50, 40, 1)).astype(np.float32)
points = Points(np.random.default_rng(1).uniform(size=(40, 2)))
field = Field(values, np.arange(50) * 10**9, points, calendar=False)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
names = ["x.nc", "x.zarr", "x.csv", "x.csv.gz", "x.parquet"]
cases = [(name, whole) for name in names] + [("x.nc", pieces), ("x.zarr", pieces)]
for name, act in cases:
    path = Path(sys.argv[1], name)
    act(field, path)
    before = sorted(path.parent.iterdir())
    for limit in (200, 1500):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            act(field, path)
            sys.exit(f"{name} was written in spite of the limit")
        except ResourceError as error:
            assert error.exit_code == 4
            assert f"Cannot write '{path}' (File too large)" in str(error), error
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert sorted(path.parent.iterdir()) == before, list(path.parent.iterdir())
"""


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FULL, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])  # -11: a crash of HDF5
    assert done.stderr == ""


def test_a_file_behaves_as_one_of_the_system(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "a").touch()
    with ErrorKeepingFile(tmp_path / "a") as ours, (tmp_path / "b").open("w+b") as theirs:
        for _ in range(300):
            start, size = (int(n) for n in rng.integers(0, 500, 2))
            content = rng.bytes(size)
            for file in (ours, theirs):
                file.seek(start)
                file.write(content)
                file.seek(int(size // 2))
            assert ours.read(300).rstrip(b"\0") == theirs.read(300).rstrip(b"\0")
            assert ours.seek(0, os.SEEK_END) == theirs.seek(0, os.SEEK_END)
        ours.check()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("room", [0, 900, 3000, 20_000])
def test_hdf5_reads_back_what_the_disk_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    values, system = np.random.default_rng(0).normal(size=(40, 1000)), os.pwrite

    def pwrite(file: int, data: memoryview, position: int) -> int:
        if position + len(data) > room:
            raise OSError(28, "No space left on device")
        return system(file, data, position)

    (tmp_path / "x.h5").touch()
    monkeypatch.setattr(os, "pwrite", pwrite)
    with ErrorKeepingFile(tmp_path / "x.h5") as file:
        with h5py.File(file, "w") as store:
            store.create_dataset("u", data=values, chunks=(1, 100), compression="gzip")
            np.testing.assert_array_equal(store["u"][:], values)
        with pytest.raises(OSError, match="No space left"):
            file.check()


@pytest.mark.parametrize("name", ["x.nc", "x.zarr"])
def test_a_folder_without_permission_is_a_lack_of_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(write.os, "access", lambda *_: False)  # the tests may run as root
    with pytest.raises(ResourceError, match="not writable"):
        write.check_writable(tmp_path / name)


def test_the_work_of_another_process_is_not_deleted(tmp_path: Path) -> None:
    from helpers.forecast_files import make_forecast

    from stonet.data.cf import outline

    field, path = make_forecast(), tmp_path / "x.zarr"
    first = zarr_writer.ZarrWriter(path, (2, 2))
    first.begin(*outline(field))
    with (
        pytest.raises(ResourceError, match="Another process"),
        zarr_writer.open_writer(path, (2, 2), *outline(field)),
    ):
        pass
    assert first.part.exists()
    first.release()


def test_chunks_are_on_the_disk_before_their_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers.forecast_files import make_forecast

    from stonet.data.cf import outline

    field, events = make_forecast(), []
    writer = zarr_writer.ZarrWriter(tmp_path / "x.zarr", (2, 2))
    writer.begin(*outline(field))
    real = zarr_writer.sync
    monkeypatch.setattr(zarr_writer, "sync", lambda *paths: (events.append([*paths]), real(*paths)))
    monkeypatch.setattr(Path, "touch", lambda self: (events.append(self), self.write_bytes(b"")))
    shape = len(field.times), len(field.points), len(field.channels)
    writer.write((0, 0), np.ones(shape, np.float32))
    mark = writer.part / zarr_writer.MARKERS / "0-0"
    before, after = events[: events.index(mark)], events[events.index(mark) + 1 :]
    synced = {path for paths in before for path in paths}
    chunks = {
        path
        for name in outline(field)[1]
        for path in (writer.part / zarr_writer.STORE / name).iterdir()
        if not path.name.startswith(".")
    }
    assert chunks and chunks <= synced
    assert mark in after[0] and mark.parent in after[0]
    writer.abandon()


def test_a_store_that_cannot_be_begun_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers.forecast_files import make_forecast

    from stonet.data.cf import outline

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zarr_writer, "write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        zarr_writer.ZarrWriter(tmp_path / "x.zarr", (2, 2)).begin(*outline(make_forecast()))
    assert not list(tmp_path.iterdir())


def test_files_that_a_failed_writer_adds_later_are_deleted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, pauses = tmp_path / "part" / "late", []

    def pause(seconds: float) -> None:  # in which threads of the writer add a file
        if len(pauses) < 2:
            late.mkdir(parents=True)
        pauses.append(seconds)

    monkeypatch.setattr(atomic.time, "sleep", pause)
    late.mkdir(parents=True)
    atomic.remove(late.parent, looks=3)
    assert list(tmp_path.iterdir()) == [] and len(pauses) == 5
