"""A run folder holds the old set of files or the new, whichever operation fails or is killed.

Crashes are simulated as in SQLite's tests: the first file operation fails, then the second, and so
on until all have failed once; then with real SIGKILLs.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stonet
from stonet.errors import ResourceError
from stonet.system.atomic import write_atomic
from stonet.training.run_folder import RunFolder

OLD = {"model.json": b"old", "weights": b"old" * 999, "figures/lead.png": b"o"}
NEW = {"model.json": b"new", "weights": b"new" * 555, "figures/lead.png": b"n"}
KEPT = {"notes.txt": b"published before, replaced by neither"}


class Crash(BaseException):
    """Death of the process: no later operation has any effect."""


class Faults:
    """Makes the nth file operation fail, and with `onwards` all that follow."""

    def __init__(self, nth: int, error: BaseException, onwards: bool) -> None:
        self.left, self.error, self.onwards = nth - 1, error, onwards

    def wrap(self, operation: Callable) -> Callable:
        def checked(*args: object, **kwargs: object) -> object:
            self.left -= 1
            if self.left == -1 or (self.left < 0 and self.onwards):
                if operation is Path.write_bytes:
                    operation(args[0], args[1][: len(args[1]) // 2])
                raise self.error
            return operation(*args, **kwargs)

        return checked

    @property
    def occurred(self) -> bool:
        return self.left < 0


@contextmanager
def faults(nth: int, error: BaseException, onwards: bool) -> Iterator[Faults]:
    fault = Faults(nth, error, onwards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", fault.wrap(Path.write_bytes))
        for name in ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "pwrite"):
            patch.setattr(os, name, fault.wrap(getattr(os, name)))
        yield fault


FAULTS = {
    "full": (OSError(errno.ENOSPC, "No space left on device"), False),
    "broken for good": (OSError(errno.EIO, "Input/output error"), True),
    "forbidden": (PermissionError(errno.EACCES, "Permission denied"), False),
    "killed": (Crash(), True),
    "interrupted": (KeyboardInterrupt(), False),
}
each_fault = pytest.mark.parametrize(("error", "onwards"), FAULTS.values(), ids=list(FAULTS))


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, for speed: a killed process loses nothing that it wrote."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def attempt(action: Callable, nth: int, error: BaseException, onwards: bool) -> tuple[bool, bool]:
    """Whether the fault occurred, and whether the action reported success."""
    with faults(nth, error, onwards) as fault:
        try:
            action()
        except (ResourceError, Crash, KeyboardInterrupt) as raised:
            assert fault.occurred
            if isinstance(error, OSError):
                assert isinstance(raised, ResourceError) and error.strerror in str(raised)
            return True, False
    return fault.occurred, True


def hidden(path: Path) -> set[str]:
    return {file.name for file in path.rglob(".*")} - {".lock"}


def content(path: Path) -> dict[str, bytes]:
    folder = RunFolder(path)
    return {name: folder.read(name) for name in folder.files}


def recover(path: Path) -> Path:
    """Complete or remove what a killed writer left, as the next writer does."""
    with RunFolder(path).lock():
        return path


def old_folder(path: Path) -> Path:
    folder = RunFolder(path)
    folder.publish(OLD | KEPT)
    for state in (b"1", b"2"):
        folder.save_state(state)
    return path


@each_fault
def test_a_file_is_old_or_new_whichever_operation_fails(
    memory: Path, error: BaseException, onwards: bool
) -> None:
    file = memory / "file"
    for nth in itertools.count(1):
        file.write_bytes(b"old")
        failed, done = attempt(lambda: write_atomic(file, b"new"), nth, error, onwards)
        assert file.read_bytes() in ([b"new"] if done else [b"old", b"new"])
        assert onwards or not hidden(memory)
        if not failed:
            break
    assert nth > 5 and done


@each_fault
def test_a_set_is_old_or_new_whichever_operation_fails(
    memory: Path, error: BaseException, onwards: bool
) -> None:
    template, seen = old_folder(memory / "template"), set()
    for nth in itertools.count(1):
        path = shutil.copytree(template, memory / str(nth))
        failed, done = attempt(lambda p=path: RunFolder(p).publish(NEW), nth, error, onwards)
        assert onwards or not list(path.glob(".stage-*"))
        got = content(path)
        assert got == NEW | KEPT or (got == OLD | KEPT and not done)
        assert content(recover(path)) == got and not hidden(path)
        seen.add(got["weights"])
        if not failed:
            break
    assert nth > 20 and done and len(seen) == 2


@each_fault
def test_states_are_old_or_new_whichever_operation_fails(
    memory: Path, error: BaseException, onwards: bool
) -> None:
    template, seen = old_folder(memory / "template"), set()
    for nth in itertools.count(1):
        path = shutil.copytree(template, memory / str(nth))
        failed, done = attempt(lambda p=path: RunFolder(p).save_state(b"3"), nth, error, onwards)
        folder = RunFolder(path)
        states = tuple(state for _, state in folder.states())
        recover(path)
        recovered = tuple(state for _, state in folder.states())
        assert recovered == (b"3", b"2") or (recovered == (b"2", b"1") and not done)
        assert states[:2] == recovered
        assert not hidden(path) and content(path) == OLD | KEPT
        seen.add(recovered)
        if not failed:
            break
    assert nth > 10 and done and len(seen) == 2


@pytest.mark.parametrize("onwards", [False, True])
def test_a_writer_can_continue_whichever_operation_failed(memory: Path, onwards: bool) -> None:
    template, error = old_folder(memory / "template"), OSError(errno.ENOSPC, "disk full")
    for nth in itertools.count(1):
        folder = RunFolder(shutil.copytree(template, memory / str(nth)))
        with folder.lock():
            failed, _ = attempt(lambda f=folder: f.publish(NEW), nth, error, onwards)
            attempt(lambda f=folder: f.save_state(b"3"), nth, error, onwards)
            folder.publish(later := {"later.csv": b"1"})
            folder.save_state(b"4")
        assert content(folder.path) in (OLD | KEPT | later, NEW | KEPT | later)
        states = [state for _, state in folder.states()]
        assert states in ([b"4", b"3"], [b"4", b"2"]) and not hidden(folder.path)
        if not failed:
            break
    assert nth > 20


def test_a_crash_while_recovering_from_a_crash_loses_nothing(memory: Path) -> None:
    template, most = old_folder(memory / "template"), 0
    for nth in itertools.count(1):
        crashed = shutil.copytree(template, memory / f"{nth}")
        failed, _ = attempt(lambda c=crashed: RunFolder(c).publish(NEW), nth, Crash(), True)
        committed = (crashed / ".commit").exists()
        for again in itertools.count(1):
            path = shutil.copytree(crashed, memory / f"{nth}-{again}")
            interrupted, _ = attempt(lambda p=path: recover(p), again, Crash(), True)
            expected = (NEW if committed or not failed else OLD) | KEPT
            assert content(path) == expected == content(recover(path))
            assert not hidden(path)
            if not interrupted:
                break
        most = max(most, again)
        if not failed:
            break
    assert most > 10


def test_data_are_synced_before_the_rename_and_the_commit_before_its_files_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    folder = RunFolder(tmp_path / "run")
    folder.publish(KEPT)

    def noted(operation, name):
        def note(source, *target, **kwargs):
            path = (
                os.readlink(f"/proc/self/fd/{source}") if name == "fsync" else [source, *target][-1]
            )
            log.append(f"{name} {os.path.relpath(path, folder.path)}")
            return operation(source, *target, **kwargs)

        return note

    for name in ("fsync", "replace", "rename", "rmdir"):
        monkeypatch.setattr(os, name, noted(getattr(os, name), name))
    folder.publish({"figures/lead.png": b"1"})
    commit, stage = log.index("rename .commit"), f"fsync .stage-{os.getpid()}"
    written = {stage + part for part in ("", "/figures", "/figures/lead.png", "/manifest.json")}
    assert written <= set(log[:commit])
    moves = [log.index(f"replace {name}") for name in ("figures/lead.png", "manifest.json")]
    assert "fsync ." in log[commit : min(moves)]
    gone = log.index("rmdir .commit")
    assert {"fsync .", "fsync figures"} <= set(log[max(moves) : gone])
    log.clear()
    write_atomic(folder.path / "file", b"1")
    assert log[0].startswith(stage + "-") and log[1:] == ["replace file", "fsync ."]


def committed_only(path: Path) -> Path:
    """A folder with a commit half moved, and staged files that were never committed."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(os, "replace", Faults(2, Crash(), True).wrap(os.replace))
        RunFolder(path).publish(NEW)
    (path / ".stage-1").mkdir()
    (path / ".stage-1" / "model.json").write_bytes(b"never committed")
    assert (path / ".commit").exists()
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_a_reader_reads_what_is_committed_and_changes_nothing(memory: Path) -> None:
    path = committed_only(old_folder(memory / "run"))
    with open(path / ".lock") as lock:  # another writer holds the lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = tree(path)
        assert content(path) == NEW | KEPT and tree(path) == before
    forbidden = OSError(errno.EROFS, "Read-only file system")
    with faults(1, forbidden, True):
        assert content(path) == NEW | KEPT and next(RunFolder(path).states())[1] == b"2"
        with pytest.raises(ResourceError, match=r"Read-only.*your permissions"):
            RunFolder(path).publish(OLD)
    assert content(path) == NEW | KEPT and tree(path) == before  # readers never complete a commit
    assert content(recover(path)) == NEW | KEPT and not hidden(path)


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from stonet.training.run_folder import RunFolder

path, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
done = saved = unrecovered = 0
for _ in range(kills):
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        folder = RunFolder(path)
        for n in range(done + 1, sys.maxsize):
            mark = f"{n} ".encode()
            folder.publish({"weights": mark * 9999, "figures/map": mark * 99, "model": mark})
            os.write(write_end, mark)
            folder.save_state(mark)
            os.write(write_end, b"saved ")
    os.close(write_end)
    acknowledged = os.read(read_end, 1)
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(read_end, 9999):
        acknowledged += more
    os.close(read_end)
    words = acknowledged.split()
    promised = int([word for word in words if word != b"saved"][-1])
    saved = max([saved, *(int(n) for n, word in zip(words, words[1:]) if word == b"saved")])
    unrecovered += any(file.name != ".lock" for file in path.glob(".*"))
    folder = RunFolder(path)
    marks = {n for name in folder.files for n in folder.read(name).split()}
    assert len(marks) == 1, marks
    done = int(marks.pop())
    assert done in (promised, promised + 1), (done, promised)
    states = [int(state) for _, state in folder.states()] or [0]
    assert states == sorted(states, reverse=True) and saved <= states[0] <= done, (saved, states)
    with folder.lock():
        pass
    assert [file.name for file in path.rglob(".*")] == [".lock"]
print(kills, unrecovered)
"""


def test_sigkill_at_any_moment_leaves_one_complete_set_of_files(memory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(memory / "run"), "20"],
        env=os.environ | {"PYTHONPATH": str(Path(stonet.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.split()[0] == "20", done.stderr
