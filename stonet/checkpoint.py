"""Files that survive: sealed tensors, and a run folder that is whole after a crash at any moment.

Nothing here knows of models, and nothing here can run code: safetensors and JSON, never pickle.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from stonet.errors import ModelFileError, ResourceError, UsageError

MAX_TENSORS, MAX_DOCUMENT, MAX_HEADER = 4096, 16 << 20, 33 << 20  # escaping at most doubles
SEAL = slice(len('12345678{"__metadata__":{"stonet":"'), 99)  # its 64 characters in a blob
FORMAT, MANIFEST, COMMIT, STAGE, LOCK = 1, "manifest.json", ".commit", ".stage-", ".lock"
STATES = [".commit-state", "trainer/last.safetensors", "trainer/previous.safetensors"]
NAME = re.compile(r"(?!manifest\.json$|trainer/)([\w-][\w. -]*/)?[\w-][\w. -]*")  # never hidden
_LOCKS: list[int] = []  # open lock files; a forked child drops them: a lock dies with its holder
os.register_at_fork(after_in_child=lambda: [os.dup2(0, file) for file in _LOCKS])


def pack(tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> bytes:
    """One sealed blob of tensors and a JSON document; equal content gives equal bytes."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One key of metadata, since safetensors writes several in no fixed order.
    blob = safetensors.torch.save(own, {"stonet": "0" * 64 + json.dumps(dict(document))})
    blob = b"".join((blob[: SEAL.start], _seal(blob), blob[SEAL.stop :]))
    unpack(blob, "The file to be written")  # what could not be read is never written
    return blob


def unpack(data: bytes, source: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the document of a blob, exactly as packed; `source` names it in errors."""
    if data[SEAL] != (got := _seal(data)):
        raise _damage(source, f"sealed {data[SEAL]!r}, got {got!r}, so changed, cut or not ours")
    try:  # what is sealed may still be hostile, and the parsers have many ways to say so
        header = json.loads(data[8 : 8 + min(int.from_bytes(data[:8], "little"), MAX_HEADER)])
        text = header.pop("__metadata__")["stonet"][64:]
        if len(header) > MAX_TENSORS or len(text) > MAX_DOCUMENT:
            raise ValueError(f"{len(header)} tensors and {len(text)} bytes of document, too many")
        tensors = dict(sorted(safetensors.torch.load(data).items()))
        json.dumps(document := dict(json.loads(text)), allow_nan=False)
        if wild := [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
            raise ValueError(f"NaN or infinity in tensor '{wild[0]}', so the training diverged")
    except Exception as error:
        raise _damage(source, f"expected finite tensors and a document, got {error!r}") from error
    return tensors, document


def _seal(blob: bytes) -> bytes:
    return sha256(blob[: SEAL.start] + blob[SEAL.stop :]).hexdigest().encode()  # of all but itself


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file so that whoever looks, whenever, finds all of the old or all of the new."""
    stage = path.with_name(f"{STAGE}{os.getpid()}-{os.urandom(4).hex()}")
    with _explained(path):
        try:
            stage.write_bytes(data)
            _sync(stage)
            os.replace(stage, path)
        finally:
            stage.unlink(missing_ok=True)
        _sync(path.parent)


class RunFolder:
    """The files of one run. They change together, by one rename, or not at all.

    `files` (name → sha256; empty where there is no run) is the set as it was at opening. Reads are
    verified against it, so nobody mixes two sets: after another publishing, open again. Opening
    finishes or sweeps what a killed writer left; where one may only read, reading sees through it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self._holder = Path(path), 0
        if any(self.path.glob(f"{COMMIT}*")) or any(self.path.glob(f"{STAGE}*")):
            with suppress(ResourceError), self.lock():  # not while another writer lives
                pass
        self.files = self._manifest()

    def read(self, name: str) -> bytes:
        """The bytes of a published file, verified."""
        if not self.files:
            raise UsageError(f"No run in {self.path}. Run `stonet fit DATA -o {self.path}` first.")
        expected = self.files.get(name, f"one of {sorted(self.files)}")
        data = self._bytes(name) if name in self.files else None
        got = "no such file" if data is None else sha256(data).hexdigest()
        if data is None or got != expected:
            raise _damage(self.path / name, f"expected {expected}, got {got}, so lost or changed")
        return data

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Replace these files as one; others published before stay."""
        if not all(map(NAME.fullmatch, files)):
            raise UsageError(f"Cannot publish as {sorted(files)}. Use names like a.json, b/c.png.")
        stage = self.path / f"{STAGE}{os.getpid()}"
        with self.lock(), _explained(self.path):
            self._settle()
            listed = {name: s for name, s in self.files.items() if (self.path / name).is_file()}
            listed |= {name: sha256(data).hexdigest() for name, data in files.items()}
            manifest = json.dumps({"format": FORMAT, "files": listed}, indent=1, sort_keys=True)
            try:
                for name, data in {**files, MANIFEST: manifest.encode()}.items():
                    (file := stage / name).parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data)
                    _sync(file)
                _sync(stage, *{(stage / name).parent for name in files})
                os.rename(stage, self.path / COMMIT)  # from here on the new set holds
            finally:
                shutil.rmtree(stage, ignore_errors=True)
            self._settle()

    def save_state(self, data: bytes) -> None:
        """Keep what training needs to go on, and the one before, in case this one goes bad."""
        with self.lock(), _explained(self.path):
            write_atomic(self.path / STATES[0], data)
            self._settle()

    def states(self) -> Iterator[tuple[str, bytes]]:
        """The kept states, newest first, each with the file it came from, for `unpack`."""
        for name in STATES:
            if (data := self._bytes(name)) is not None:
                yield str(self.path / name), data

    def load_state(self) -> bytes | None:
        return next((data for _, data in self.states()), None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer, with `files` as now. May be nested; dies with its process."""
        with ExitStack() as stack:
            if self._holder != os.getpid():
                with _explained(self.path):
                    self.path.mkdir(parents=True, exist_ok=True)
                    file = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
                    _LOCKS.append(file)
                    stack.callback(os.close, file)
                    stack.callback(_LOCKS.remove, file)
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.pwrite(file, f"{os.getpid():<20}".encode(), 0)
                    self._settle()
                self._holder = os.getpid()
                stack.callback(setattr, self, "_holder", 0)
            yield

    def _settle(self) -> None:
        """Finish what a dead writer had committed, sweep what it had not. The lock is ours."""
        for entry in self.path.iterdir():
            if entry.is_symlink() and (entry.is_dir() or entry.name.startswith(".")):
                raise _damage(entry, "expected a plain folder, got a link that leads away")
        _sync(self.path)  # no file moves before the commit itself would survive a power cut
        commit = self.path / COMMIT
        files = [file.relative_to(commit) for file in commit.rglob("*") if not file.is_dir()]
        for file in files:
            (self.path / file).parent.mkdir(exist_ok=True)
            os.replace(commit / file, self.path / file)
        _sync(*{(self.path / file).parent for file in files}, self.path)
        newest, last, previous = (self.path / name for name in STATES)
        if newest.exists():
            last.parent.mkdir(exist_ok=True)
            if last.exists():
                os.replace(last, previous)
            os.replace(newest, last)
        for leftover in (*self.path.glob(COMMIT), *self.path.glob(f"{STAGE}*")):
            (shutil.rmtree if leftover.is_dir() else os.unlink)(leftover)
        self.files = self._manifest()

    def _bytes(self, name: str) -> bytes | None:
        """A file as last committed: what waits in the commit folder is newer than what is not."""
        for file in (self.path / COMMIT / name, self.path / name):
            with _explained(file), suppress(FileNotFoundError):  # it may just have been moved
                if file.is_file():
                    return file.read_bytes()
        return None

    def _manifest(self) -> dict[str, str]:
        if (data := self._bytes(MANIFEST)) is None:
            return {}
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            manifest = json.loads(data)
            files = {str(name): str(seal) for name, seal in manifest["files"].items()}
            if manifest["format"] == FORMAT and all(map(NAME.fullmatch, files)):
                return files
        raise _damage(self.path / MANIFEST, "expected format 1 (if later, upgrade) and plain names")


def _sync(*paths: Path) -> None:  # files, and the names in folders, then outlive a power cut
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        pid = (path / LOCK).read_text(errors="replace").strip()
        raise ResourceError(f"{path} is in use by process {pid}. Wait for its end.") from error
    except OSError as error:
        raise ResourceError(f"{path}: {error}. Check the space and your rights there.") from error


def _damage(source: Path | str, meaning: str) -> ModelFileError:
    return ModelFileError(f"{source} is not sound: {meaning}. Go back to a good copy or fit again.")
