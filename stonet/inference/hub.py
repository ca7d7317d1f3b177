"""Runs from the Hugging Face Hub, or from a snapshot of it on this machine.

Only the files of a run are downloaded, by an allow-list of names, and they are read as any other
run: JSON and safetensors with checksums, never code. A snapshot of the Hub's cache holds links to
the contents, which `RunFolder` does not follow; so its files are copied first.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stonet.calibration.document import FILE as CALIBRATION_FILE
from stonet.errors import ModelFileError, ResourceError, UsageError

FILES = (
    "manifest.json",
    "config.json",
    "model.safetensors",
    "points.json",
    "scaler.json",
    "metrics.json",
    "estimator.json",
    "README.md",
    CALIBRATION_FILE,
)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")  # owner/name


@contextmanager
def run_folder(source: str | Path, revision: str | None = None) -> Iterator[Path]:
    """A plain run folder with the files of a folder, or of a model on the Hub.

    Args:
        source: a folder, or "owner/name" on the Hub.
        revision: branch, tag or commit on the Hub; None: the newest.

    Raises:
        UsageError: if it is neither, or the package huggingface_hub is not installed.
        ResourceError: if the Hub cannot be reached, or has no such model.
        ModelFileError: if a file leads out of the snapshot.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _downloaded(str(source), revision)
    if not any((folder / name).is_symlink() for name in FILES):
        yield folder
        return
    with TemporaryDirectory(prefix="stonet-") as name:
        for file in FILES:
            if (folder / file).exists():
                shutil.copyfile(_content(folder, file), Path(name, file))
        yield Path(name)


def _content(folder: Path, name: str) -> Path:
    """The plain file behind a name: in the snapshot, or among the contents of its cache.

    The cache has the folders blobs/ and snapshots/REVISION/ beside each other.
    """
    root, path = folder.resolve(), (folder / name).resolve()
    contents = root.parent.parent / "blobs"
    allowed = [root, *([contents] if root.parent.name == "snapshots" else [])]
    if path.parent not in allowed or not path.is_file():
        raise ModelFileError(
            f"'{folder / name}' leads to '{path}', out of the snapshot; expected a file of its own "
            "or of the cache. Download the model again."
        )
    return path


def _downloaded(source: str, revision: str | None) -> Path:
    """The snapshot of a model, with the allowed files only."""
    if not HUB_ID.fullmatch(source):
        raise UsageError(
            f"'{source}' is neither a folder nor a model on the Hub. Give the folder of a run, or "
            "OWNER/NAME."
        )
    hub = _library()
    try:
        return Path(hub.snapshot_download(source, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # the library raises those of the network and of the disk, too
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ResourceError(
            f"'{source}' cannot be downloaded from the Hugging Face Hub ({reason}). There is no "
            "folder of this name either. Check the name and the network."
        ) from error


def _library() -> Any:
    """The package `huggingface_hub`, an optional dependency."""
    try:
        import huggingface_hub
    except ImportError:
        raise UsageError(
            "Models on the Hub need the package huggingface_hub: pip install 'stonet[hub]'."
        ) from None
    return huggingface_hub
