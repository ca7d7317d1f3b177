"""A hostile run folder reads and changes nothing outside, does not block, and fills no memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from stonet.errors import ModelFileError, ResourceError
from stonet.training.run_folder import RunFolder

NEW = {"model.json": b"new", "weights": b"new" * 555, "figures/lead.png": b"n"}


def old_folder(path: Path) -> Path:
    old = {"model.json": b"old", "weights": b"old" * 999, "figures/lead.png": b"o"}
    RunFolder(path).publish(old)
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


@pytest.mark.parametrize("link", ["figures", "trainer", ".commit", ".lock", ".stage-1"])
def test_links_in_a_folder_change_nothing_outside(tmp_path: Path, link: str) -> None:
    path, outside = old_folder(tmp_path / "run"), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    shutil.rmtree(path / link, ignore_errors=True)
    (path / link).unlink(missing_ok=True)
    (path / link).symlink_to(outside / "precious" if link == ".lock" else outside)
    (path / ".stage-2").mkdir()
    with suppress(ModelFileError, ResourceError):
        RunFolder(path)
    for act in (lambda: RunFolder(path).publish(NEW), lambda: RunFolder(path).save_state(b"")):
        with pytest.raises((ModelFileError, ResourceError)):
            act()
    assert tree(outside) == {"precious": b"precious"}


def hostile_commit(path: Path, victim: Path, name: str) -> None:
    """A commit that would overwrite `victim` through links."""
    (path / ".commit" / name).parent.mkdir(parents=True)
    (path / ".commit" / name).write_bytes(b"attack")
    parts = Path(name).parent.parts
    if parts:  # a link of that name leads to the victim's folder
        (path / Path(*parts[:-1])).mkdir(parents=True, exist_ok=True)
        (path / Path(*parts)).symlink_to(victim.parent)


@pytest.mark.parametrize("name", ["a/b/.bashrc", "a/.bashrc", "a/b/c/.bashrc", ".bashrc", "extra"])
@pytest.mark.parametrize("listed", [False, True])
def test_an_unfinished_commit_of_a_foreign_folder_overwrites_nothing(
    tmp_path: Path, name: str, listed: bool
) -> None:
    path, victim = old_folder(tmp_path / "run"), tmp_path / "home" / ".bashrc"
    victim.parent.mkdir()
    victim.write_bytes(b"precious")
    hostile_commit(path, victim, name)
    if listed:
        files = {name: sha256(b"attack").hexdigest()}
        manifest = json.dumps({"format": 1, "files": files})
        (path / ".commit" / "manifest.json").write_text(manifest)
    before = tree(path)
    with suppress(ModelFileError):
        RunFolder(path)
    assert tree(path) == before  # opening never writes
    refused = not (listed and name == "extra")
    with pytest.raises(ModelFileError) if refused else nullcontext():
        RunFolder(path).publish(NEW)
    assert victim.read_bytes() == b"precious" and list(victim.parent.iterdir()) == [victim]


@pytest.mark.parametrize("name", ["weights", "figures/lead.png", "trainer/last.safetensors"])
def test_a_link_in_place_of_a_file_is_never_read(tmp_path: Path, name: str) -> None:
    path, secret = old_folder(tmp_path / "run"), tmp_path / "secret"
    RunFolder(path).save_state(b"state")
    data = (path / name).read_bytes()
    secret.write_bytes(data)  # with the content that the manifest lists
    (path / name).unlink()
    (path / name).symlink_to(secret)
    folder = RunFolder(path)
    with pytest.raises(ModelFileError, match="got a link"):
        folder.read(name) if name in folder.files else list(folder.states())


@contextmanager
def time_limit(seconds: int = 10) -> Iterator[None]:
    """Fail instead of waiting for a pipe that nobody writes to."""

    def fail(*_: object) -> None:
        raise AssertionError("blocked")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def commit_of(path: Path, listed: list[str], make: Callable[[Path], object], name: str) -> None:
    """A commit whose manifest lists these names, and a file in it made by `make`."""
    place = path / ".commit" / name
    place.parent.mkdir(parents=True)
    files = dict.fromkeys(listed, sha256(b"attack").hexdigest())
    (path / ".commit" / "manifest.json").write_text(json.dumps({"format": 1, "files": files}))
    make(place)


ATTACKS: dict[str, Callable[[Path, Path], object]] = {
    "hard link as lock": lambda run, victim: os.link(victim, run / ".lock"),
    "pipe as lock": lambda run, _: os.mkfifo(run / ".lock"),
    "pipe in a commit": lambda run, _: commit_of(run, ["x"], os.mkfifo, "x"),
    "pipe as state": lambda run, _: os.mkfifo(run / ".commit-state"),
    "pipe as manifest": lambda run, _: commit_of(run, [], os.mkfifo, "manifest.json"),
    "other content": lambda run, _: commit_of(run, ["x"], lambda f: f.write_bytes(b"y"), "x"),
    "link below a file": lambda run, victim: (run / "figures/extra").symlink_to(victim.parent),
    "link to a new place": lambda run, victim: (run / "trainer").symlink_to(victim.parent / "new"),
    "name above": lambda run, _: commit_of(run, ["../x"], lambda f: f.write_bytes(b"y"), "x"),
    "absolute name": lambda run, victim: commit_of(
        run, [str(victim)], lambda f: f.write_bytes(b"attack"), "x"
    ),
    "hard link in a commit": lambda run, victim: commit_of(
        run, ["x"], lambda f: os.link(victim, f), "x"
    ),
    "folder as manifest": lambda run, _: (run / ".commit/manifest.json").mkdir(parents=True),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_folder_neither_changes_other_files_nor_blocks(
    tmp_path: Path, attack: str
) -> None:
    path, home = old_folder(tmp_path / "run"), tmp_path / "home"
    home.mkdir()
    (home / "victim").write_bytes(b"precious")
    (path / ".lock").unlink()
    with suppress(FileExistsError):  # "pipe as manifest" makes the manifest itself
        ATTACKS[attack](path, home / "victim")
    before = {f: f.lstat() for f in tmp_path.rglob("*")}
    with time_limit():
        for look in (RunFolder, lambda p: list(RunFolder(p).states())):
            with suppress(ModelFileError):
                look(path)
        after = {f: f.lstat() for f in tmp_path.rglob("*")}
        assert {f: s.st_mtime_ns for f, s in after.items()} == {
            f: s.st_mtime_ns for f, s in before.items()
        }  # opening never writes
        for write in (
            lambda: RunFolder(path).publish(NEW),
            lambda: RunFolder(path).save_state(b""),
        ):
            with suppress(ModelFileError, ResourceError):
                write()
    assert tree(home) == {"victim": b"precious"}


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = old_folder(tmp_path / "run")
    for name, error in (("weights", ResourceError), ("manifest.json", ModelFileError)):
        os.truncate(path / name, 1 << 42)  # takes no space on the disk
        with pytest.raises(error, match=r"4\.4 TB"):
            RunFolder(path).read("weights")
