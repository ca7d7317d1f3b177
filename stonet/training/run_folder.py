"""Run folders: checksummed files that are complete after a crash at any moment.

A blob holds tensors and a JSON document (`pack`, `unpack`). A `RunFolder` replaces its files as
one set: they are staged, committed by one rename, and then moved to their places. Formats are
safetensors and JSON, never pickle: no file can run code.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from stonet.errors import ModelFileError, ResourceError, UsageError
from stonet.system.resources import free_memory, size_label
from stonet.training.documents import parse_document

MAX_TENSORS = 4096
MAX_DOCUMENT, MAX_HEADER = 16 << 20, 33 << 20  # bytes; JSON escapes at most double the document
MAX_TEXT = 1 << 27  # bytes of a JSON file, such as the positions of a million points

# A blob begins with the header's length in 8 bytes, then this text, then 64 characters of sha256.
OPENING = '{"__metadata__":{"stonet":"'
CHECKSUM = slice(8 + len(OPENING), 8 + len(OPENING) + 64)

FORMAT, MANIFEST, LOCK = 1, "manifest.json", ".lock"
COMMIT, STAGE = ".commit", ".stage-"  # folders of committed files and of files not yet committed
NEWEST, LAST, PREVIOUS = ".commit-state", "trainer/last.safetensors", "trainer/previous.safetensors"
NAME = re.compile(
    r"(?!manifest\.json$|trainer/)([\w-][\w. -]*/)?[\w-][\w. -]*"
)  # of published files: none is hidden


def pack(tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> bytes:
    """Tensors and a JSON document as one checksummed blob; equal content gives equal bytes.

    Args:
        tensors: by name, on any device.
        document: what JSON can hold; no NaN.

    Raises:
        ModelFileError: if `unpack` would refuse it, such as for NaN.
    """
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One key of metadata, since safetensors writes several in no fixed order.
    blob = safetensors.torch.save(copies, {"stonet": "0" * 64 + json.dumps(dict(document))})
    blob = blob[: CHECKSUM.start] + _checksum(blob) + blob[CHECKSUM.stop :]
    unpack(blob, "The file to be written")  # refuses what could not be read again
    return blob


def unpack(data: bytes, source: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the document of a blob, exactly as packed.

    Args:
        data: the blob.
        source: its name in error messages.

    Raises:
        ModelFileError: if it was changed, truncated, or not made by `pack`.
    """
    if data[CHECKSUM] != (got := _checksum(data)):
        reason = f"expected checksum {data[CHECKSUM]!r}, got {got!r}"
        raise _invalid(source, f"{reason}: it was changed, truncated, or not made by stonet")
    try:
        return _parse(data)
    except Exception as error:  # parsers raise many kinds for hostile content
        raise _invalid(source, f"expected finite tensors and a document, got {error!r}") from error


def _checksum(blob: bytes) -> bytes:
    """The sha256 of all but the checksum itself."""
    return sha256(blob[: CHECKSUM.start] + blob[CHECKSUM.stop :]).hexdigest().encode()


def _parse(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors and document of a blob whose checksum is right."""
    header = json.loads(data[8 : 8 + min(int.from_bytes(data[:8], "little"), MAX_HEADER)])
    text = header.pop("__metadata__")["stonet"][64:]
    if len(header) > MAX_TENSORS or len(text) > MAX_DOCUMENT:
        raise ValueError(f"{len(header)} tensors and {len(text)} bytes of document, too many")
    document = dict(json.loads(text))
    json.dumps(document, allow_nan=False)  # raises for NaN, which json.loads accepts
    tensors = dict(sorted(safetensors.torch.load(data).items()))
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"NaN or infinity in tensor '{name}': the training diverged")
    return tensors, document


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader finds the old content or the new, never a part.

    Args:
        path: of the file.
        data: its new content.
    """
    stage = path.with_name(f"{STAGE}{os.getpid()}-{os.urandom(4).hex()}")
    with _os_errors_explained(path):
        try:
            stage.write_bytes(data)
            _sync(stage)
            os.replace(stage, path)
        finally:
            stage.unlink(missing_ok=True)
        _sync(path.parent)


class RunFolder:
    """The files of one run. They change together, by one rename, or not at all.

    `files` (name → sha256; empty if there is no run) lists the set at opening. Reads are verified
    against it, so that two sets are never mixed: after another `publish`, open the folder again.

    Opening and reading never write: a folder may come from an untrusted source. Files that a
    killed writer had committed are read from the commit; the next writer completes it, and
    removes uncommitted files. Links below the folder are never followed.

    Args:
        path: of the folder; it need not exist.

    Raises:
        ModelFileError: if the manifest is not valid.

    Example:
        >>> folder = RunFolder("runs/uk")
        >>> folder.publish({"notes.txt": b"trained on hourly data"})
        >>> folder.read("notes.txt")
        b'trained on hourly data'
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self._locked = Path(path), False
        self.files = self._manifest()

    def read(self, name: str) -> bytes:
        """The bytes of a published file, verified against the manifest.

        Args:
            name: of the file, relative to the folder.

        Raises:
            UsageError: if there is no run.
            ModelFileError: if the file is missing, changed or was not published.
        """
        if not self.files:
            raise UsageError(f"No run in {self.path}. Run `stonet fit DATA -o {self.path}` first.")
        expected = self.files.get(name, f"one of {sorted(self.files)}")
        data = self._bytes(name) if name in self.files else None
        got = "no such file" if data is None else sha256(data).hexdigest()
        if data is None or got != expected:
            raise _invalid(self.path / name, f"expected {expected}, got {got}")
        return data

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Replace these files as one set; other published files stay.

        Args:
            files: content by name.

        Raises:
            UsageError: for a name that is hidden, reserved or outside the folder.
            ResourceError: if another process writes, or the disk fails.
        """
        if not all(map(NAME.fullmatch, files)):
            raise UsageError(f"Cannot publish as {sorted(files)}. Use names like a.json, b/c.png.")
        stage = self.path / f"{STAGE}{os.getpid()}"
        with self.lock(), _os_errors_explained(self.path):
            self._recover()
            listed = {name: s for name, s in self.files.items() if (self.path / name).is_file()}
            listed |= {name: sha256(data).hexdigest() for name, data in files.items()}
            manifest = json.dumps({"format": FORMAT, "files": listed}, indent=1, sort_keys=True)
            try:
                for name, data in {**files, MANIFEST: manifest.encode()}.items():
                    file = stage / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data)
                    _sync(file)
                _sync(stage, *{(stage / name).parent for name in files})
                os.rename(stage, self.path / COMMIT)  # from here on the new set is valid
            finally:
                shutil.rmtree(stage, ignore_errors=True)
            self._recover()

    def save_state(self, data: bytes) -> None:
        """Save a state to resume from; the previous one is kept beside it.

        Args:
            data: as `pack` returns it.

        Raises:
            ResourceError: if another process writes, or the disk fails.
        """
        with self.lock(), _os_errors_explained(self.path):
            write_atomic(self.path / NEWEST, data)  # from here on the new state is valid
            self._recover()

    def states(self) -> Iterator[tuple[str, bytes]]:
        """The saved states, newest first: (name of the file, content)."""
        for name in (NEWEST, LAST, PREVIOUS):
            if (data := self._bytes(name)) is not None:
                yield str(self.path / name), data

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's only write lock, and update `files`. Locks may be nested.

        The lock ends with the process, or with the last of its forked children.

        Raises:
            ResourceError: if another process holds it.
        """
        if self._locked:
            yield
            return
        with _os_errors_explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:  # also a file elsewhere
                raise _invalid(self.path / LOCK, "expected a plain file with one name")
            with _os_errors_explained(self.path):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.pwrite(file, f"{os.getpid():<20}".encode(), 0)
                self._recover()
            self._locked = True
            yield
        finally:
            self._locked = False
            os.close(file)

    def _recover(self) -> None:
        """Complete a commit, remove uncommitted files, update `files`; the lock must be held."""
        for entry in self.path.iterdir():
            if entry.is_symlink() and (entry.is_dir() or entry.name.startswith(".")):
                raise _invalid(entry, "expected a plain folder, got a link")
        _sync(self.path)  # no file moves before the commit itself would survive a power cut
        self._move_files()
        self._move_state()
        for leftover in (*self.path.glob(COMMIT), *self.path.glob(f"{STAGE}*")):
            (shutil.rmtree if leftover.is_dir() else os.unlink)(leftover)
        self.files = self._manifest()

    def _move_files(self) -> None:
        """Move committed files to their places, after all of them have been checked."""
        commit = self.path / COMMIT
        listed = self._manifest() if commit.exists() else {}  # of the commit
        entries = [entry for entry in commit.rglob("*") if entry.is_symlink() or not entry.is_dir()]
        files = [entry.relative_to(commit).as_posix() for entry in entries]
        for name in files:
            self._check_committed(name, listed)
        for name in files:
            (self.path / name).parent.mkdir(exist_ok=True)
            os.replace(commit / name, self.path / name)
        _sync(*{(self.path / name).parent for name in files}, self.path)

    def _check_committed(self, name: str, listed: Mapping[str, str]) -> None:
        """Refuse to move a file that the commit's manifest does not list with this content."""
        self._refuse_links(self.path / COMMIT / name)
        self._refuse_links((self.path / name).parent)
        if name == MANIFEST:
            return
        data = _read_plain(self.path / COMMIT / name)
        if data is None or listed.get(name) != sha256(data).hexdigest():
            raise _invalid(self.path / COMMIT / name, "the manifest does not list this file")

    def _refuse_links(self, path: Path) -> None:
        """Refuse a link at any level below the run folder: it may lead out of it."""
        while path != self.path:
            if path.is_symlink():
                raise _invalid(path, "expected a plain file or folder, got a link")
            path = path.parent

    def _move_state(self) -> None:
        """Move a committed state to its place, and the state before to the second place."""
        newest, last, previous = (self.path / name for name in (NEWEST, LAST, PREVIOUS))
        if newest.exists():
            last.parent.mkdir(exist_ok=True)
            if last.exists():
                os.replace(last, previous)
            os.replace(newest, last)

    def _bytes(self, name: str) -> bytes | None:
        """A file as last committed: one in the commit folder is newer; None: there is none."""
        for file in (self.path / COMMIT / name, self.path / name):
            with _os_errors_explained(file):
                self._refuse_links(file)
                if (data := _read_plain(file)) is not None:
                    return data
        return None

    def _manifest(self) -> dict[str, str]:
        """Names and sha256 of the published files; empty if there is no manifest."""
        if (data := self._bytes(MANIFEST)) is None:
            return {}
        with suppress(ModelFileError, LookupError, TypeError, AttributeError):
            manifest = parse_document(data, MANIFEST)
            files = {str(name): str(digest) for name, digest in manifest["files"].items()}
            if manifest["format"] == FORMAT and all(map(NAME.fullmatch, files)):
                return files
        raise _invalid(
            self.path / MANIFEST, "expected format 1 (if later, upgrade) and plain names"
        )


def _read_plain(path: Path) -> bytes | None:
    """The bytes of a plain file; None for anything else, such as a pipe, which would block.

    Raises:
        ModelFileError: if the file is too large to be part of a run.
        ResourceError: if the memory does not suffice.
    """
    with suppress(FileNotFoundError, NotADirectoryError):  # a writer may just have moved it
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return None
        if path.suffix == ".json" and status.st_size > MAX_TEXT:
            raise _invalid(path, f"{size_label(status.st_size)} are too much for such a file")
        if status.st_size > free_memory():
            raise ResourceError(f"{path} has {size_label(status.st_size)}, more than free memory.")
        return path.read_bytes()
    return None


def _sync(*paths: Path) -> None:
    """Flush files, or the entries of folders, to the disk."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def _os_errors_explained(path: Path) -> Iterator[None]:
    """Raise operating-system errors as ResourceError with a remedy."""
    try:
        yield
    except BlockingIOError as error:
        pid = (path / LOCK).read_text(errors="replace").strip()
        raise ResourceError(f"{path} is in use by process {pid}. Wait until it ends.") from error
    except OSError as error:
        raise ResourceError(
            f"{path}: {error}. Check the free space and your permissions there."
        ) from error


def _invalid(source: Path | str, reason: str) -> ModelFileError:
    """The error for a damaged or foreign file."""
    return ModelFileError(f"{source} is not valid: {reason}. Use an intact copy or fit again.")
