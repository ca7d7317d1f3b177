"""The files of a data set: on this machine, or downloaded from their public source.

They are looked up in the folder STONET_DATA, then in the cache. Downloads go to the cache, over
https only, no larger than expected; a file appears there complete and verified, or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from stonet.datasets.card import Card, File
from stonet.errors import DataError, ResourceError
from stonet.system.atomic import replacing
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.system.resources import size_label
from stonet.system.spill import cache_folder

TIMEOUT = 30.0  # seconds without a byte
MAX_BYTES = 8 * 2**30  # of a file of unknown size
BLOCK_BYTES = 2**20  # read at a time
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class LocalFiles(NamedTuple):
    """The files of a data set that are on this machine, and those that are missing.

    Args:
        present: paths of the files.
        missing: files as the card describes them.
    """

    present: list[Path]
    missing: list[File]


def folders(name: str) -> list[Path]:
    """The folders in which the files of a data set are looked up, in order.

    Args:
        name: of the data set's folder.
    """
    given = os.environ.get("STONET_DATA")
    return [*([Path(given) / name] if given else []), cache_folder() / name]


def find_local(card: Card, files: Sequence[File] | None = None) -> LocalFiles:
    """Which files are on this machine; their content is not verified.

    Args:
        card: of the data set.
        files: to be looked up; None: all of the card.
    """
    present, missing = [], []
    for file in card.files if files is None else files:
        paths = [folder / file.name for folder in folders(card.folder_name)]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            missing.append(file)
        else:
            present.append(path)
    return LocalFiles(present, missing)


def obtain(
    card: Card,
    files: Sequence[File] | None = None,
    progress: ProgressCallback = ignore_progress,
    loopback: bool = False,
) -> list[Path]:
    """The verified files of a data set; missing ones are downloaded where that is possible.

    Args:
        card: of the data set.
        files: some of its files; None: all.
        progress: called with bytes done, bytes in all, and the file's name.
        loopback: whether plain http from this machine is allowed, as in tests.

    Raises:
        DataError: a file cannot be downloaded, or has another checksum.
    """
    wanted = list(card.files if files is None else files)
    missing = find_local(card, wanted).missing
    without_url = [file for file in missing if file.url is None]
    if without_url:
        raise missing_files(card, without_url)
    for file in missing:
        target = cache_folder() / card.folder_name / file.name
        try:
            download(file, target, progress, loopback)
        except DataError as error:
            raise DataError(f"{error} {missing_files(card, [file])}") from None
    paths = find_local(card, wanted).present
    for path, file in zip(paths, wanted, strict=True):
        if file not in missing:
            _verify(path, file, card, progress)
    return paths


def missing_files(card: Card, missing: Sequence[File]) -> DataError:
    """The error for files that must be downloaded by hand: from where, and into which folder.

    Args:
        card: of the data set.
        missing: at least one file.
    """
    names = ", ".join(f"'{file.name}'" for file in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    them = "it" if len(missing) == 1 else "them"
    return DataError(
        f"Data set '{card.name}' needs {names}{more}. Get {them} from {card.page} and put {them} "
        f"in the folder '{folders(card.folder_name)[0]}' (STONET_DATA names another one)."
    )


def _verify(path: Path, file: File, card: Card, progress: ProgressCallback) -> None:
    """Refuse a file with another checksum."""
    if file.sha256 is None:
        return
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            progress(done, file.size or 0, file.name)
    if digest.hexdigest() != file.sha256:
        raise DataError(
            f"'{path}' is not the file of data set '{card.name}': its SHA-256 is "
            f"{digest.hexdigest()[:12]}…, expected {file.sha256[:12]}…. Delete it and download it "
            f"again from {card.page}, or read it as it is with stonet.read('{path.name}')."
        )


class _CheckedRedirects(HTTPRedirectHandler):
    """Follows a redirection only to an allowed address."""

    def __init__(self, loopback: bool) -> None:
        self.loopback = loopback

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        try:
            _check_url(newurl, self.loopback)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_url(url: str, loopback: bool) -> None:
    parts = urlsplit(url)
    local = loopback and parts.scheme == "http" and parts.hostname in LOOPBACK
    if not local and (parts.scheme != "https" or not parts.hostname):
        raise DataError(f"'{url}' is not an https address, and no other is allowed.")


def download(
    file: File,
    target: Path,
    progress: ProgressCallback = ignore_progress,
    loopback: bool = False,
) -> None:
    """Download a file, complete and verified.

    Args:
        file: its address and, if known, its size and checksum.
        target: where it is put; the folder is created.
        progress: called with bytes done, bytes in all, and the file's name.
        loopback: whether plain http from this machine is allowed, as in tests.

    Raises:
        DataError: the source does not deliver the expected file.
        ResourceError: the folder is not writable.
    """
    url = file.url or ""
    _check_url(url, loopback)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(target.parent, error) from None
    try:
        with replacing(target) as stage:
            with _create(stage) as stream:
                digest = _stream(file, stream, progress, loopback)
            if file.sha256 not in (None, digest):
                raise DataError(
                    f"'{url}' gave a file with SHA-256 {digest[:12]}…, expected "
                    f"{str(file.sha256)[:12]}…: it was changed at its source or on the way."
                )
    except (HTTPError, URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        code = ""
        if isinstance(error, HTTPError):
            code = f"{error.code} "
            error.close()
        raise DataError(f"'{url}' cannot be downloaded ({code}{reason}).") from None


def _create(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise _not_writable(path.parent, error) from None


def _not_writable(folder: Path, error: OSError) -> ResourceError:
    return ResourceError(
        f"Cannot write in '{folder}' ({error.strerror}). STONET_CACHE names another folder for "
        "downloads."
    )


def _stream(file: File, stream: BinaryIO, progress: ProgressCallback, loopback: bool) -> str:
    """Copy the response, up to the size that it may have; returns its SHA-256."""
    digest, done, limit = hashlib.sha256(), 0, file.size or MAX_BYTES
    request = Request(file.url or "", headers={"User-Agent": "stonet"})
    with build_opener(_CheckedRedirects(loopback)).open(request, timeout=TIMEOUT) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else 0
        while done <= limit and total <= limit:
            block = response.read(BLOCK_BYTES)
            if not block:
                break
            done += stream.write(block)
            digest.update(block)
            progress(done, total or file.size or 0, file.name)
    if max(done, total) > limit:
        raise DataError(f"'{file.url}' is larger than the expected {size_label(limit)}.")
    if done < (total or file.size or 0):
        raise DataError(f"'{file.url}' ended after {done} of {total or file.size} bytes.")
    return digest.hexdigest()
