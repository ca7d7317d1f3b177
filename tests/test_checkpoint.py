"""Sealed blobs never return other values than were packed; a run folder is the old set or the new.

Crashes are rehearsed as SQLite does it: fail the first file operation, then the second, and so on
until nothing is left to fail; and then with real SIGKILLs.
"""

import errno
import io
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.torch
import torch

import stonet
from stonet import checkpoint
from stonet.checkpoint import RunFolder, pack, unpack, write_atomic
from stonet.errors import ModelFileError, ResourceError, UsageError

OLD = {"model.json": b"old", "weights": b"old" * 999, "figures/lead.png": b"o"}
NEW = {"model.json": b"new", "weights": b"new" * 555, "figures/lead.png": b"n"}
KEPT = {"notes.txt": b"published before, replaced by neither"}


# Sealed blobs


def some_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weight": torch.randn(3, 5, generator=generator),
        "transposed": torch.randn(3, 5, generator=generator).T,
        "double": torch.randn(4, generator=generator, dtype=torch.float64),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "step": torch.tensor(7),
        "rate": torch.tensor(1e-300, dtype=torch.float64),
        "flag": torch.tensor(True),
        "flags": torch.tensor([True, False, True]),
        "rng state": torch.randint(0, 256, (17,), generator=generator, dtype=torch.uint8),
        "empty": torch.zeros(0, 3),
        "température": torch.tensor([-0.0, 5e-324]),
    }


def some_document() -> dict:
    return {
        "config": {"lr": 0.1, "name": 'a "quoted" \\ π \ud800'},
        "history": [1, 2.5, None, True],
    }


def test_what_is_packed_comes_back_bit_for_bit() -> None:
    tensors, document = unpack(pack(some_tensors(), some_document()), "blob")
    assert document == some_document()
    assert list(tensors) == sorted(some_tensors())
    for name, expected in some_tensors().items():
        assert tensors[name].dtype == expected.dtype and tensors[name].shape == expected.shape
        got, wanted = (t.contiguous().reshape(-1) for t in (tensors[name], expected))
        assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8)), name


def test_equal_content_packs_to_equal_bytes_in_any_order() -> None:
    shuffled = dict(reversed(some_tensors().items()))
    assert {pack(some_tensors(), {"a": 1}) for _ in range(9)} == {pack(shuffled, {"a": 1})}


def test_tensors_that_share_memory_or_need_gradients_can_be_packed_and_come_back_apart() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0))
    tensors, _ = unpack(pack({"a": parameter, "b": parameter[2:], "c": parameter}, {}), "blob")
    tensors["a"].zero_()
    assert tensors["b"].tolist() == [2, 3, 4, 5] and tensors["c"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_blob_is_an_ordinary_safetensors_file() -> None:
    blob = pack({"a": torch.ones(2)}, {"b": 3})
    assert safetensors.torch.load(blob)["a"].tolist() == [1, 1]


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    blob = pack({"a": torch.arange(4.0), "n": torch.tensor(3)}, {"history": [1.5, "é"]})
    for position, bit in itertools.product(range(len(blob)), range(8)):
        mutant = bytearray(blob)
        mutant[position] ^= 1 << bit
        with pytest.raises(ModelFileError):
            unpack(bytes(mutant), "mutant")
    for length in range(len(blob)):
        with pytest.raises(ModelFileError):
            unpack(blob[:length], "mutant")


def test_random_splices_are_noticed() -> None:
    blob, rng = pack(some_tensors(), some_document()), random.Random(0)
    for _ in range(500):
        start, stop = sorted(rng.sample(range(len(blob) + 1), 2))
        mutant = blob[:start] + rng.randbytes(rng.choice([0, 1, stop - start])) + blob[stop:]
        with pytest.raises(ModelFileError):
            unpack(mutant, "mutant")


class Payload:
    """Unpickled, it would create the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return Path.touch, (self.canary,)


def test_foreign_files_are_refused_and_never_executed(tmp_path: Path) -> None:
    pickled = pickle.dumps(Payload(tmp_path / "canary"))
    pickle.loads(pickled)  # noqa: S301  the payload does work
    (tmp_path / "canary").unlink()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("archive/data.pkl", pickled)
    plain = safetensors.torch.save({"a": torch.ones(2)})
    for foreign in (pickled, archive.getvalue(), plain, b"", b"{}", b"lead,rmse\n1,0.3\n" * 99):
        with pytest.raises(ModelFileError, match=r"weights\.pt is not sound: .*good copy"):
            unpack(foreign, "weights.pt")
    assert not (tmp_path / "canary").exists()


def sealed(header: object, body: bytes = b"", document: str = "{}") -> bytes:
    """A hostile blob: whatever content, with a seal that is right."""
    opening = {"__metadata__": {"stonet": "0" * 64 + document}}
    text = json.dumps(opening | header if isinstance(header, dict) else header, separators=",:")
    blob = len(text).to_bytes(8, "little") + text.encode() + body
    seal = checkpoint._seal(blob)
    return blob[: checkpoint.SEAL.start] + seal + blob[checkpoint.SEAL.stop :]


def one(dtype: str, shape: list[int], stop: int) -> dict:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, stop]}}


def test_a_right_seal_does_not_make_content_right() -> None:
    nan, nothing = torch.tensor(float("nan")).numpy().tobytes(), {"shape": [0], "dtype": "F32"}
    many = {str(n): nothing | {"data_offsets": [0, 0]} for n in range(4097)}
    unpack(sealed(one("F32", [2], 8), bytes(8)), "sound")
    for hostile in (
        sealed(one("F32", [], 4), nan),
        sealed(one("F32", [10**12], 8), bytes(8)),
        sealed(one("F32", [2], 80), bytes(8)),
        sealed(one("F7", [2], 8), bytes(8)),
        sealed(one("F8_E8M0", [8], 8), bytes(8)),
        sealed({"a": 3}),
        sealed(many),
        sealed({}, document='{"loss": NaN}'),
        sealed({}, document='{"loss": 1e999}'),
        sealed({}, document='[["loss", 1]]' * 2),
        sealed({}, document="[" * 10**5),
        sealed({}, document='{"a":' * 10**5 + "1" + "}" * 10**5),
        sealed({}, document="1" * 10**5),
        sealed({}, document="7"),
        sealed({}, document='{"a": "' + "x" * (16 << 20) + '"}'),
        sealed({}, document='{"a": "' + "x" * (40 << 20) + '"}'),
        sealed({"x" * (34 << 20): nothing | {"data_offsets": [0, 0]}}),
        sealed("x" * 200),
    ):
        with pytest.raises(ModelFileError, match=r"^hostile is not sound"):
            unpack(hostile, "hostile")


def test_what_could_not_be_read_is_not_written() -> None:
    wild = {"bias": torch.ones(1), "weight": torch.tensor([1.0, float("inf")])}
    with pytest.raises(ModelFileError, match=r"NaN or infinity in tensor 'weight'.*diverged"):
        pack(wild, {})
    with pytest.raises(ModelFileError, match="not JSON compliant"):
        pack({}, {"loss": float("nan")})
    with pytest.raises(ModelFileError, match="4097 tensors"):
        pack({str(n): torch.zeros(1) for n in range(4097)}, {})
    with pytest.raises(ModelFileError, match="bytes of document"):
        pack({}, {"history": "x" * (16 << 20)})
    quotes = {"history": '"' * (7 << 20)}  # twice escaped, and still within the caps
    assert unpack(pack({}, quotes), "blob")[1] == quotes


# Faults, one operation after the other


class Crash(BaseException):
    """Death of the process: nothing done from here on has any effect."""


class Faults:
    """Lets `nth - 1` file operations pass; the next one fails, and if `onwards` all that follow."""

    def __init__(self, nth: int, error: BaseException, onwards: bool) -> None:
        self.left, self.error, self.onwards = nth - 1, error, onwards

    def wrap(self, operation):
        def checked(*args, **kwargs):
            self.left -= 1
            if self.left == -1 or (self.left < 0 and self.onwards):
                if operation is Path.write_bytes:
                    operation(args[0], args[1][: len(args[1]) // 2])
                raise self.error
            return operation(*args, **kwargs)

        return checked

    @property
    def struck(self) -> bool:
        return self.left < 0


@contextmanager
def faults(nth: int, error: BaseException, onwards: bool):
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
    """A quick folder: a process that dies loses nothing it wrote, so the disk may rest."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def attempt(action, nth: int, error: BaseException, onwards: bool) -> tuple[bool, bool]:
    """Whether the fault struck, and whether the action says that it succeeded."""
    with faults(nth, error, onwards) as fault:
        try:
            action()
        except (ResourceError, Crash, KeyboardInterrupt) as raised:
            assert fault.struck
            if isinstance(error, OSError):
                assert isinstance(raised, ResourceError) and error.strerror in str(raised)
            return True, False
    return fault.struck, True


def hidden(path: Path) -> set[str]:
    return {file.name for file in path.rglob(".*")} - {".lock"}


def content(path: Path) -> dict[str, bytes]:
    folder = RunFolder(path)
    return {name: folder.read(name) for name in folder.files}


def old_folder(path: Path) -> Path:
    folder = RunFolder(path)
    folder.publish(OLD | KEPT)
    for state in (b"1", b"2"):
        folder.save_state(state)
    return path


@each_fault
def test_a_file_is_old_or_new_whichever_operation_fails(memory, error, onwards) -> None:
    file = memory / "file"
    for nth in itertools.count(1):
        file.write_bytes(b"old")
        struck, done = attempt(lambda: write_atomic(file, b"new"), nth, error, onwards)
        assert file.read_bytes() in ([b"new"] if done else [b"old", b"new"])
        assert onwards or not hidden(memory)
        if not struck:
            break
    assert nth > 5 and done


@each_fault
def test_a_set_is_old_or_new_whichever_operation_fails(memory, error, onwards) -> None:
    template, seen = old_folder(memory / "template"), set()
    for nth in itertools.count(1):
        path = shutil.copytree(template, memory / str(nth))
        struck, done = attempt(lambda p=path: RunFolder(p).publish(NEW), nth, error, onwards)
        assert onwards or not list(path.glob(".stage-*"))
        got = content(path)
        assert got == NEW | KEPT or (got == OLD | KEPT and not done)
        assert not hidden(path)
        seen.add(got["weights"])
        if not struck:
            break
    assert nth > 20 and done and len(seen) == 2


@each_fault
def test_states_are_old_or_new_whichever_operation_fails(memory, error, onwards) -> None:
    template, seen = old_folder(memory / "template"), set()
    for nth in itertools.count(1):
        path = shutil.copytree(template, memory / str(nth))
        struck, done = attempt(lambda p=path: RunFolder(p).save_state(b"3"), nth, error, onwards)
        folder = RunFolder(path)
        states = tuple(state for _, state in folder.states())
        assert states == (b"3", b"2") or (states == (b"2", b"1") and not done)
        assert not hidden(path) and content(path) == OLD | KEPT
        seen.add(states)
        if not struck:
            break
    assert nth > 10 and done and len(seen) == 2


@pytest.mark.parametrize("onwards", [False, True])
def test_a_writer_may_go_on_whichever_operation_failed(memory: Path, onwards: bool) -> None:
    template, error = old_folder(memory / "template"), OSError(errno.ENOSPC, "disk full")
    for nth in itertools.count(1):
        folder = RunFolder(shutil.copytree(template, memory / str(nth)))
        with folder.lock():
            struck, _ = attempt(lambda f=folder: f.publish(NEW), nth, error, onwards)
            attempt(lambda f=folder: f.save_state(b"3"), nth, error, onwards)
            folder.publish(later := {"later.csv": b"1"})
            folder.save_state(b"4")
        assert content(folder.path) in (OLD | KEPT | later, NEW | KEPT | later)
        states = [state for _, state in folder.states()]
        assert states in ([b"4", b"3"], [b"4", b"2"]) and not hidden(folder.path)
        if not struck:
            break
    assert nth > 20


def test_a_crash_while_recovering_from_a_crash_loses_nothing(memory: Path) -> None:
    template, most = old_folder(memory / "template"), 0
    for nth in itertools.count(1):
        crashed = shutil.copytree(template, memory / f"{nth}")
        struck, _ = attempt(lambda c=crashed: RunFolder(c).publish(NEW), nth, Crash(), True)
        committed = (crashed / ".commit").exists()
        for again in itertools.count(1):
            path = shutil.copytree(crashed, memory / f"{nth}-{again}")
            interrupted, _ = attempt(lambda p=path: RunFolder(p), again, Crash(), True)
            assert content(path) == (NEW if committed or not struck else OLD) | KEPT
            assert not hidden(path)
            if not interrupted:
                break
        most = max(most, again)
        if not struck:
            break
    assert most > 10


def test_data_reach_the_disk_before_their_name_and_the_set_before_its_files(
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


# Real deaths


def script(text: str, *arguments: object) -> subprocess.Popen:
    root = str(Path(stonet.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from stonet.checkpoint import RunFolder

path, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
done = saved = unsettled = 0
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
    unsettled += any(file.name != ".lock" for file in path.glob(".*"))
    folder = RunFolder(path)
    marks = {n for name in folder.files for n in folder.read(name).split()}
    assert len(marks) == 1, marks
    done = int(marks.pop())
    assert done in (promised, promised + 1), (done, promised)
    states = [int(state) for _, state in folder.states()] or [0]
    assert states == sorted(states, reverse=True) and saved <= states[0] <= done, (saved, states)
    assert [file.name for file in path.rglob(".*")] == [".lock"]
print(kills, unsettled)
"""


def test_sigkill_at_any_moment_leaves_one_whole_set_and_all_that_was_promised(memory) -> None:
    with script(KILLS, memory / "run", 30) as process:
        output, _ = process.communicate()
    assert process.returncode == 0 and output.split()[0] == "30"


HOLDER = """
import os, sys, time
from stonet.checkpoint import RunFolder

with RunFolder(sys.argv[1]).lock():
    worker = os.fork()  # as a data loader does; it outlives its parent
    if worker:
        print(worker, flush=True)
    time.sleep(60)
"""


def test_a_lock_keeps_other_processes_out_and_dies_with_its_holder_alone(tmp_path: Path) -> None:
    path = old_folder(tmp_path / "run")
    with script(HOLDER, path) as process:
        worker = int(process.stdout.readline())
        try:
            for action in (lambda f: f.publish(NEW), lambda f: f.save_state(b"3")):
                with pytest.raises(ResourceError, match=rf"in use by process {process.pid}\b"):
                    action(RunFolder(path))
            assert content(path) == OLD | KEPT
            process.kill()
            process.wait()
            os.kill(worker, 0)  # it is still there, and holds nothing
            RunFolder(path).publish(NEW)
        finally:
            os.kill(worker, signal.SIGKILL)
            process.kill()
    assert content(path) == NEW | KEPT


def test_a_lock_may_be_nested_and_is_free_again_afterwards(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    with pytest.raises(OSError, match="the caller's own"), first.lock(), first.lock():
        first.publish(OLD)
        with pytest.raises(ResourceError, match=f"process {os.getpid()}"), second.lock():
            pass
        first.save_state(b"1")
        raise OSError("the caller's own")
    assert second.files == {}  # as it was when opened
    with second.lock(), pytest.raises(ResourceError, match="in use"):
        assert second.files == first.files != {}
        first.publish(NEW)


# The run folder


def die_at_move(nth: int, action) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(os, "replace", Faults(nth, Crash(), True).wrap(os.replace))
        action()


def committed_only(path: Path) -> Path:
    """A folder whose writer died between two moves after its commit, and another before it."""
    die_at_move(2, lambda: RunFolder(path).publish(NEW))
    (path / ".stage-1").mkdir()
    (path / ".stage-1" / "model.json").write_bytes(b"never committed")
    assert (path / ".commit").exists()
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


@contextmanager
def reading_only(path: Path):
    """Take away the right to write, from root too."""
    folders = [path, *(file for file in path.rglob("*") if file.is_dir())]
    user = os.geteuid()
    for folder in folders:
        folder.chmod(0o555)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for folder in folders:
            folder.chmod(0o755)


def test_a_read_only_folder_reads_as_committed_and_stays_as_it_is() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        path = old_folder(Path(name) / "run")
        with reading_only(path):
            assert content(path) == OLD | KEPT and RunFolder(path).load_state() == b"2"
        die_at_move(3, lambda: RunFolder(path).save_state(b"3"))
        with reading_only(path):
            assert [state for _, state in RunFolder(path).states()] == [b"3", b"2"]
        before = tree(committed_only(path))
        with reading_only(path):
            assert content(path) == NEW | KEPT and RunFolder(path).load_state() == b"3"
            with pytest.raises(ResourceError, match=r"Permission denied.*your rights"):
                RunFolder(path).publish(OLD)
        assert tree(path) == before
        assert content(path) == NEW | KEPT and not hidden(path)


def test_a_reader_beside_a_living_writer_sees_what_is_committed_and_sweeps_nothing(
    tmp_path: Path,
) -> None:
    path = old_folder(tmp_path / "run")
    with RunFolder(path).lock():
        (path / ".stage-1").mkdir()
        assert content(path) == OLD | KEPT and hidden(path) == {".stage-1"}
    committed_only(path)
    with open(path / ".lock") as lock:
        checkpoint.fcntl.flock(lock, checkpoint.fcntl.LOCK_EX)
        before = tree(path)
        assert content(path) == NEW | KEPT and tree(path) == before


def test_a_reader_never_mixes_two_sets(tmp_path: Path) -> None:
    path = old_folder(tmp_path / "run")
    reader = RunFolder(path)
    assert reader.read("model.json") == b"old"
    RunFolder(path).publish(NEW)
    with pytest.raises(ModelFileError):
        reader.read("weights")
    assert reader.read("notes.txt") == KEPT["notes.txt"]
    assert RunFolder(path).read("weights") == NEW["weights"]


def test_the_manifest_lists_what_is_present_from_all_publishings(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new" / "run")
    folder.publish({"a": b"1", "b": b"2"})
    (folder.path / "b").unlink()
    folder.publish({"c": b"3"})
    listed = json.loads((folder.path / "manifest.json").read_bytes())
    assert listed == {"format": 1, "files": folder.files} and sorted(folder.files) == ["a", "c"]


def test_a_changed_lost_or_unlisted_file_is_refused_in_words(tmp_path: Path) -> None:
    path = old_folder(tmp_path / "run")
    (path / "stray").write_bytes(b"never published")
    (path / "weights").write_bytes(b"new" * 999)
    (path / "model.json").unlink()
    folder = RunFolder(path)
    with pytest.raises(ModelFileError, match=r"weights is not sound: expected \w{64}, got \w{64}"):
        folder.read("weights")
    with pytest.raises(ModelFileError, match=r"model\.json .*got no such file.*fit again"):
        folder.read("model.json")
    for name in ("stray", "../run/stray", str(path / "stray"), ".lock", "trainer/last.safetensors"):
        with pytest.raises(ModelFileError, match=r"expected one of \['figures/lead.png', "):
            folder.read(name)


def test_where_there_is_no_run_the_way_to_one_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("missing", "file", "empty"):
        folder = RunFolder(str(tmp_path / name))
        assert folder.files == {} and folder.load_state() is None and not list(folder.states())
        with pytest.raises(UsageError, match=rf"Run `stonet fit DATA -o .*{name}` first"):
            folder.read("model.json")
    assert sorted(tree(tmp_path)) == ["file"] and not list((tmp_path / "empty").iterdir())
    with pytest.raises(ResourceError):
        RunFolder(tmp_path / "file").publish(NEW)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 10**5,
        b'{"format": 2, "files": {}}',
        b'{"format": 1, "files": ["a"]}',
        *(json.dumps({"format": 1, "files": {n: "0" * 64}}).encode()
          for n in ("../a", "/etc/passwd", "a/../b", "a/b/c", ".lock", "a\\b", "a\0", "", "a/")),
    ],
)  # fmt: skip
def test_a_foreign_manifest_or_one_that_leads_away_is_refused(tmp_path, manifest) -> None:
    (tmp_path / "manifest.json").write_bytes(manifest)
    with pytest.raises(ModelFileError, match=r"manifest\.json is not sound: expected format 1"):
        RunFolder(tmp_path)


@pytest.mark.parametrize(
    "name", ["../a", "/tmp/a", "a/b/c", ".a", "a/.b", "", "manifest.json", "trainer/a", "a\n"]
)
def test_names_that_lead_away_or_are_taken_cannot_be_published(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="Cannot publish"):
        RunFolder(tmp_path / "run").publish({"good": b"", name: b""})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("link", ["figures", "trainer", ".commit", ".lock", ".stage-1"])
def test_links_planted_in_a_folder_change_nothing_outside(tmp_path: Path, link: str) -> None:
    path, outside = old_folder(tmp_path / "run"), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    shutil.rmtree(path / link, ignore_errors=True)
    (path / link).unlink(missing_ok=True)
    (path / link).symlink_to(outside / "precious" if link == ".lock" else outside)
    (path / ".stage-2").mkdir()
    for act in (
        RunFolder,
        lambda p: RunFolder(p).publish(NEW),
        lambda p: RunFolder(p).save_state(b""),
    ):
        try:
            act(path)
        except (ModelFileError, ResourceError):
            continue
        assert act is RunFolder
    assert tree(outside) == {"precious": b"precious"}


def test_the_previous_state_stands_in_for_a_damaged_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.load_state() is None
    for step in (1, 2, 3):
        folder.save_state(pack({"step": torch.tensor(step)}, {}))
        assert unpack(folder.load_state(), "state")[0]["step"] == step
    last = folder.path / "trainer" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    sound = []
    for source, data in folder.states():
        try:
            sound.append(int(unpack(data, source)[0]["step"]))
        except ModelFileError as error:
            assert str(last) in str(error)
    assert sound == [2]
