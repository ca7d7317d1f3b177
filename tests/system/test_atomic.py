"""Atomic replacement of files and folders, and locks between processes.

tests/training/test_run_folder_faults.py rehearses faults in every operation of `write_atomic`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stonet.errors import ResourceError, UsageError
from stonet.system.atomic import acquire_lock, replacing, write_atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_text("old")
    with replacing(path) as stage:
        stage.write_text("new")
        assert stage.suffix == ".nc" and path.read_text() == "old"
    assert path.read_text() == "new" and names(tmp_path) == ["a.nc"]


def test_a_folder_is_replaced_by_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    (path / "old").mkdir(parents=True)
    with replacing(path) as stage:
        (stage / "new").mkdir(parents=True)
    assert names(path) == ["new"] and names(tmp_path) == ["a.zarr"]


@pytest.mark.parametrize("folder", [False, True])
def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "a"
    path.mkdir() if folder else path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as stage:
        stage.mkdir() if folder else stage.write_text("new")
        raise KeyboardInterrupt
    assert names(tmp_path) == ["a"] and (folder or path.read_text() == "old")


def test_a_folder_comes_back_if_it_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename = tmp_path / "a", os.replace
    path.mkdir()
    (path / "old").touch()

    def refuse_new(source: Path, target: Path) -> None:
        if target == path and not str(source).endswith("-old"):
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse_new)
    with pytest.raises(OSError, match="no"), replacing(path) as stage:
        stage.mkdir()
    assert names(path) == ["old"] and names(tmp_path) == ["a"]


def test_a_missing_folder_or_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="No folder"), replacing(tmp_path / "none" / "a"):
        pass
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(ResourceError, match=r"Cannot write .*a' \(full\)"):
        write_atomic(tmp_path / "a", b"new")
    assert names(tmp_path) == []


def test_a_lock_excludes_others_until_it_is_released_or_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = (
        "import sys; from pathlib import Path; from stonet.system.atomic import acquire_lock\n"
        "acquire_lock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
    with pytest.raises(BlockingIOError):
        acquire_lock(path)
    assert path.read_text().split()[0] == str(holder.pid)
    holder.communicate()
    descriptor = acquire_lock(path)
    with pytest.raises(BlockingIOError):
        acquire_lock(path)
    os.close(descriptor)
    os.close(acquire_lock(path))


def test_a_lock_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        acquire_lock(tmp_path / ".lock")
    assert (tmp_path / "target").read_text() == "precious"
