"""Files that survive: sealed tensors, and a run folder that is whole after a crash at any moment.

Nothing here knows of models, and nothing here can run code: safetensors and JSON, never pickle.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from stonet.errors import ModelFileError, ResourceError, UsageError

FORMAT = 1  # of the manifest
MAX_TENSORS, MAX_DOCUMENT = 4096, 16 << 20
MAX_HEADER = 2 * MAX_DOCUMENT + (1 << 20)  # the document is escaped in it, which at most doubles it
OPENING = b'{"__metadata__":{"stonet":"'  # of each header; then the seal, then the document
SEAL = slice(8 + len(OPENING), 8 + len(OPENING) + 64)
MANIFEST, COMMIT, STAGE = "manifest.json", ".commit", ".stage-"
STATES = [f"trainer/{age}.safetensors" for age in ("next", "last", "previous")]
NAME = re.compile(r"([\w-][\w. -]*/)?[\w-][\w. -]*")  # a file, perhaps in a subfolder; not hidden
_LOCKS: set[int] = set()  # open files; a forked child closes them, so a lock dies with its holder
os.register_at_fork(after_in_child=lambda: [*map(os.close, _LOCKS), _LOCKS.clear()])


def pack(tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> bytes:
    """One sealed blob of tensors and a JSON document; equal content gives equal bytes."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = _checked_text(own, document, "The file to be written")
    # One key of metadata, since safetensors writes several in no fixed order.
    blob = safetensors.torch.save(own, {"stonet": "0" * 64 + text})
    return b"".join((blob[: SEAL.start], _seal(blob), blob[SEAL.stop :]))


def unpack(data: bytes, source: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the document of a blob, exactly as packed; `source` names it in errors."""
    if not data.startswith(OPENING, 8):
        raise _damage(source, "expected a file written by stonet, got something else or nothing")
    if (sealed := data[SEAL]) != (got := _seal(data)):
        raise _damage(source, f"expected sha256 {sealed!r}, got {got!r}, so its bytes have changed")
    try:  # what is sealed may still be hostile, and the parsers have many ways to say so
        header = json.loads(data[8 : 8 + min(int.from_bytes(data[:8], "little"), MAX_HEADER)])
        document = dict(json.loads(header["__metadata__"]["stonet"][64:]))
        if len(header) > MAX_TENSORS + 1:
            raise ValueError(f"more than {MAX_TENSORS} tensors")
        tensors = dict(sorted(safetensors.torch.load(data).items()))
    except Exception as error:
        raise _damage(source, f"expected tensors and a document, got {error!r}") from error
    _checked_text(tensors, document, source)
    return tensors, document


def _seal(blob: bytes) -> bytes:
    """The sha256, in hex, of every byte but those of the seal itself."""
    digest = sha256(memoryview(blob)[: SEAL.start])
    digest.update(memoryview(blob)[SEAL.stop :])
    return digest.hexdigest().encode()


def _checked_text(tensors: Mapping[str, Tensor], document: Mapping[str, Any], source: str) -> str:
    """The document as JSON, where it and the tensors are finite and within the caps."""
    try:
        text = json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{source}: the document is not plain JSON: {error}.") from error
    if len(tensors) > MAX_TENSORS or len(text) > MAX_DOCUMENT:
        got = f"{len(tensors)} tensors and a document of {len(text)} bytes"
        raise ModelFileError(f"{source}: {got}; at most {MAX_TENSORS} and {MAX_DOCUMENT} may be.")
    if wild := [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
        meaning = "so the training has diverged. Go back to an earlier state or lower the rate."
        raise ModelFileError(f"{source}: tensor '{wild[0]}' holds NaN or infinity, {meaning}")
    return text


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file so that whoever looks, whenever, finds all of the old or all of the new."""
    stage = path.with_name(f"{STAGE}{os.getpid()}-{secrets.token_hex(4)}")
    with _explained(path):
        try:
            stage.write_bytes(data)
            _sync(stage)
            os.replace(stage, path)
        finally:
            _remove(stage)
        _sync(path.parent)


class RunFolder:
    """The files of one run. They change together, by one rename, or not at all.

    `files` (name → sha256, empty where there is no run) is the set as it was at opening, and reads
    are verified against it, so that nobody mixes two sets. What a killed writer left behind is
    finished or swept at the next opening, or looked through where one may only read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self._holder = Path(path), 0
        if (self.path / COMMIT).exists() or any(self.path.rglob(f"{STAGE}*")):
            with suppress(ResourceError, OSError), self.lock():  # not while another writer lives
                self._settle()
        self.files = self._manifest()

    def read(self, name: str) -> bytes:
        """The bytes of a published file, verified."""
        if not self.files:
            remedy = f"Run `stonet fit DATA -o {self.path}` first."
            raise UsageError(f"{self.path} holds no run. {remedy}")
        expected = self.files.get(name, f"one of {sorted(self.files)}")
        data = self._bytes(name) if name in self.files else None
        got = "no such file" if data is None else sha256(data).hexdigest()
        if data is None or got != expected:
            meaning = f"expected {expected}, got {got}: lost, changed or published anew meanwhile"
            raise _damage(str(self.path / name), meaning)
        return data

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Replace these files as one; others published before stay."""
        for name in files:
            if not NAME.fullmatch(name) or name == MANIFEST or name.startswith("trainer/"):
                raise UsageError(f"Cannot publish '{name}'. Name a file, or a file in a subfolder.")
        stage = self.path / f"{STAGE}{os.getpid()}"
        with self.lock(), _explained(self.path):
            self._settle()
            kept = {name: seal for name, seal in self.files.items() if (self.path / name).is_file()}
            listed = kept | {name: sha256(data).hexdigest() for name, data in files.items()}
            manifest = json.dumps({"format": FORMAT, "files": listed}, indent=1, sort_keys=True)
            try:
                for name, data in {**files, MANIFEST: manifest.encode()}.items():
                    (stage / name).parent.mkdir(parents=True, exist_ok=True)
                    (stage / name).write_bytes(data)
                    _sync(stage / name, (stage / name).parent, stage)
                os.rename(stage, self.path / COMMIT)  # from here on the new set holds
            finally:
                _remove(stage)
            self._settle()

    def save_state(self, data: bytes) -> None:
        """Keep what training needs to go on, and the one before, in case this one goes bad."""
        newest, last, previous = (self.path / name for name in STATES)
        with self.lock(), _explained(self.path):
            self._settle()
            newest.parent.mkdir(exist_ok=True)
            write_atomic(newest, data)
            if last.exists():
                os.replace(last, previous)
            os.replace(newest, last)
            _sync(newest.parent)

    def states(self) -> Iterator[tuple[str, bytes]]:
        """The kept states, newest first, each with the file it came from, for `unpack`."""
        for name in STATES:  # "next" is there only if a writer died before its two renames
            if (data := self._bytes(name)) is not None:
                yield str(self.path / name), data

    def load_state(self) -> bytes | None:
        """The newest state, if there is one."""
        return next((data for _, data in self.states()), None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer. May be nested; dies with its process, however that ends."""
        if self._holder == (owner := os.getpid()):
            yield
            return
        with _explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        _LOCKS.add(file)
        try:
            with _explained(self.path, f"pid {os.pread(file, 20, 0).decode('ascii', 'replace')}"):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, 0)
                os.pwrite(file, str(owner).encode(), 0)
            self._holder = owner
            yield
        finally:
            if os.getpid() == owner:  # a child forked meanwhile has closed it already
                self._holder = 0
                _LOCKS.discard(file)
                os.close(file)

    def _settle(self) -> None:
        """Finish what a dead writer had committed, sweep what it had not. The lock is ours."""
        for entry in os.scandir(self.path):
            if entry.is_symlink() and (entry.is_dir() or entry.name.startswith(".")):
                raise _damage(entry.path, "expected a plain folder, got a link that leads away")
        _sync(self.path)  # no file moves before the commit itself would survive a power cut
        commit = self.path / COMMIT
        for file in [file for file in commit.rglob("*") if not file.is_dir()]:
            target = self.path / (name := file.relative_to(commit).as_posix())
            if not NAME.fullmatch(name):
                raise _damage(str(file), "expected a published file, got what stonet never writes")
            target.parent.mkdir(exist_ok=True)
            os.replace(file, target)
            _sync(target.parent, self.path)
        for leftover in [commit, *self.path.rglob(f"{STAGE}*")]:
            _remove(leftover)
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
        meaning = f"expected format {FORMAT} (a later one needs a later stonet) and plain names"
        raise _damage(str(self.path / MANIFEST), meaning)


def _sync(*paths: Path) -> None:
    """Make files, and the names in folders, survive a power cut."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _remove(leftover: Path) -> None:
    """Remove a file or a folder, if it is there and lets itself be removed."""
    shutil.rmtree(leftover, ignore_errors=True)
    with suppress(OSError):
        leftover.unlink()


@contextmanager
def _explained(path: Path, holder: str = "another process") -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        raise ResourceError(f"{path} is being written by {holder}. Wait for its end.") from error
    except OSError as error:
        remedy = "Nothing is half written. Check the space and your rights there, and run again."
        raise ResourceError(f"{path}: {error.strerror} ({error}). {remedy}") from error


def _damage(source: str, meaning: str) -> ModelFileError:
    remedy = "Open it again, restore it from a copy, or fit again."
    return ModelFileError(f"{source} is damaged or foreign: {meaning}. {remedy}")
