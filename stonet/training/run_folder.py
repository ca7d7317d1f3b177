"""Files that survive: sealed tensors, and a run folder that is whole after a crash at any moment.

Nothing here knows of models, and nothing here can run code: safetensors and JSON, never pickle.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from stonet.errors import ModelFileError, ResourceError, UsageError
from stonet.system.atomic import STAGE, acquire_lock, sync, write_atomic

MAX_TENSORS, MAX_DOCUMENT, MAX_HEADER = 4096, 16 << 20, 33 << 20  # escaping at most doubles

# A blob begins with the header's length in 8 bytes, then this text, then 64 characters of sha256.
OPENING = '{"__metadata__":{"stonet":"'
SEAL = slice(8 + len(OPENING), 8 + len(OPENING) + 64)

FORMAT, MANIFEST, LOCK = 1, "manifest.json", ".lock"
COMMIT = ".commit"  # files that hold already; those named STAGE do not hold yet
NEWEST, LAST, PREVIOUS = ".commit-state", "trainer/last.safetensors", "trainer/previous.safetensors"
NAME = re.compile(r"(?!manifest\.json$|trainer/)([\w-][\w. -]*/)?[\w-][\w. -]*")  # never hidden


def pack(tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> bytes:
    """One sealed blob of tensors and a JSON document; equal content gives equal bytes."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One key of metadata, since safetensors writes several in no fixed order.
    blob = safetensors.torch.save(own, {"stonet": "0" * 64 + json.dumps(dict(document))})
    blob = blob[: SEAL.start] + _seal(blob) + blob[SEAL.stop :]
    unpack(blob, "The file to be written")  # what could not be read is never written
    return blob


def unpack(data: bytes, source: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the document of a blob, exactly as packed; `source` names it in errors."""
    if data[SEAL] != (got := _seal(data)):
        raise _damage(source, f"sealed {data[SEAL]!r}, got {got!r}, so changed, cut or not ours")
    try:
        return _parse(data)
    except Exception as error:  # the parsers have many ways to refuse what is sealed but hostile
        raise _damage(source, f"expected finite tensors and a document, got {error!r}") from error


def _seal(blob: bytes) -> bytes:
    """The sha256 of all but the seal itself."""
    return sha256(blob[: SEAL.start] + blob[SEAL.stop :]).hexdigest().encode()


def _parse(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    header = json.loads(data[8 : 8 + min(int.from_bytes(data[:8], "little"), MAX_HEADER)])
    text = header.pop("__metadata__")["stonet"][64:]
    if len(header) > MAX_TENSORS or len(text) > MAX_DOCUMENT:
        raise ValueError(f"{len(header)} tensors and {len(text)} bytes of document, too many")
    document = dict(json.loads(text))
    json.dumps(document, allow_nan=False)  # raises for NaN, which json.loads lets through
    tensors = dict(sorted(safetensors.torch.load(data).items()))
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"NaN or infinity in tensor '{name}', so the training diverged")
    return tensors, document


class RunFolder:
    """The files of one run. They change together, by one rename, or not at all.

    `files` (name → sha256; empty where there is no run) is the set as it was at opening. Reads are
    verified against it, so nobody mixes two sets: after another publishing, open again.

    Opening and reading change nothing: a folder may come from a stranger. What a killed writer
    left is read where it lies; the next writer finishes or removes it. No link below the folder is
    ever followed.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self._locked = Path(path), False
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
                    file = stage / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data)
                    sync(file)
                sync(stage, *{(stage / name).parent for name in files})
                os.rename(stage, self.path / COMMIT)  # from here on the new set holds
            finally:
                shutil.rmtree(stage, ignore_errors=True)
            self._settle()

    def save_state(self, data: bytes) -> None:
        """Keep what training needs to go on, and the one before, in case this one goes bad."""
        with self.lock(), _explained(self.path):
            write_atomic(self.path / NEWEST, data)  # from here on the new state holds
            self._settle()

    def states(self) -> Iterator[tuple[str, bytes]]:
        """The kept states, newest first, each with the file it came from, for `unpack`."""
        for name in (NEWEST, LAST, PREVIOUS):
            if (data := self._bytes(name)) is not None:
                yield str(self.path / name), data

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer, with `files` as now. May be nested; the lock dies with its process.

        It belongs to forked children as well: a folder stays in use until the last one ends.
        """
        if self._locked:
            yield
            return
        with _explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = acquire_lock(self.path / LOCK)
        try:
            with _explained(self.path):
                self._settle()
            self._locked = True
            yield
        finally:
            self._locked = False
            os.close(lock)

    def _settle(self) -> None:
        """Finish what a dead writer had committed, sweep what it had not. The lock is ours."""
        for entry in self.path.iterdir():
            if entry.is_symlink() and (entry.is_dir() or entry.name.startswith(".")):
                raise _damage(entry, "expected a plain folder, got a link that leads away")
        sync(self.path)  # no file moves before the commit itself would survive a power cut
        self._settle_files()
        self._settle_state()
        for leftover in (*self.path.glob(COMMIT), *self.path.glob(f"{STAGE}*")):
            (shutil.rmtree if leftover.is_dir() else os.unlink)(leftover)
        self.files = self._manifest()

    def _settle_files(self) -> None:
        commit = self.path / COMMIT
        listed = self._manifest() if commit.exists() else {}  # the commit's own, moved or not
        entries = [entry for entry in commit.rglob("*") if entry.is_symlink() or not entry.is_dir()]
        files = [entry.relative_to(commit).as_posix() for entry in entries]
        for name in files:  # all are checked before the first is moved
            self._check_committed(name, listed)
        for name in files:
            (self.path / name).parent.mkdir(exist_ok=True)
            os.replace(commit / name, self.path / name)
        sync(*{(self.path / name).parent for name in files}, self.path)

    def _check_committed(self, name: str, listed: Mapping[str, str]) -> None:
        """Refuse to move a file that the commit's manifest does not list with this content."""
        self._refuse_links(self.path / COMMIT / name)
        self._refuse_links((self.path / name).parent)
        if name == MANIFEST:
            return
        if listed.get(name) != sha256((self.path / COMMIT / name).read_bytes()).hexdigest():
            raise _damage(self.path / COMMIT / name, "the manifest does not list this file")

    def _refuse_links(self, path: Path) -> None:
        """Refuse a link at any level below the run folder: it may lead out of it."""
        while path != self.path:
            if path.is_symlink():
                raise _damage(path, "expected a plain file or folder, got a link")
            path = path.parent

    def _settle_state(self) -> None:
        newest, last, previous = (self.path / name for name in (NEWEST, LAST, PREVIOUS))
        if newest.exists():
            last.parent.mkdir(exist_ok=True)
            if last.exists():
                os.replace(last, previous)
            os.replace(newest, last)

    def _bytes(self, name: str) -> bytes | None:
        """A file as last committed: what waits in the commit folder is newer than what is not."""
        for file in (self.path / COMMIT / name, self.path / name):
            with _explained(file), suppress(FileNotFoundError):  # it may just have been moved
                self._refuse_links(file)
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


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        pid = (path / LOCK).read_text(errors="replace").partition(" ")[0]
        raise ResourceError(f"{path} is in use by process {pid}. Wait for its end.") from error
    except OSError as error:
        raise ResourceError(f"{path}: {error}. Check the space and your rights there.") from error


def _damage(source: Path | str, meaning: str) -> ModelFileError:
    return ModelFileError(f"{source} is not sound: {meaning}. Go back to a good copy or fit again.")
