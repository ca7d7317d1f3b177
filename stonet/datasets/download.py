"""Where a data set's files are: on this machine, or else fetched from their public source.

Looked up in the folder STONET_DATA, then in the cache. What is fetched goes to the cache, over
https only, no larger than it should be, and appears there whole, with the right checksum, or not
at all.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from stonet.datasets.card import Card, File
from stonet.errors import DataError, ResourceError
from stonet.system.spill import cache_folder, size_label

Watch = Callable[[str, int, int | None], None]  # the file's name, bytes so far, bytes in all
TIMEOUT = 30.0  # seconds without a byte
LARGEST = 8 * 2**30  # bytes of a file whose size is not known
CHUNK = 2**20
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class Found(NamedTuple):
    """A data set's files that are here, and those that are not."""

    found: list[Path]
    missing: list[File]


def folders(place: str) -> list[Path]:
    """Where a data set's files may be, the first choice first."""
    given = os.environ.get("STONET_DATA")
    return [*([Path(given) / place] if given else []), cache_folder() / place]


def look_up(card: Card, files: Sequence[File] | None = None) -> Found:
    """Which files are here; their content is not looked at."""
    found, missing = [], []
    for file in card.files if files is None else files:
        paths = [folder / file.name for folder in folders(card.place)]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            missing.append(file)
        else:
            found.append(path)
    return Found(found, missing)


def obtain(
    card: Card,
    files: Sequence[File] | None = None,
    watch: Watch | None = None,
    loopback: bool = False,
) -> list[Path]:
    """The paths of the files, checked; those that are missing are fetched if that is possible."""
    wanted = list(card.files if files is None else files)
    missing = look_up(card, wanted).missing
    by_hand = [file for file in missing if file.url is None]
    if by_hand:
        raise how_to_get(card, by_hand)
    for file in missing:
        assert file.url is not None
        target = cache_folder() / card.place / file.name
        try:
            download(file.url, target, file, watch, loopback)
        except DataError as error:
            raise DataError(f"{error} {how_to_get(card, [file])}") from None
    paths = look_up(card, wanted).found
    for path, file in zip(paths, wanted, strict=True):
        if file not in missing:
            _verify(path, file, card, watch)
    return paths


def how_to_get(card: Card, missing: Sequence[File]) -> DataError:
    """What to do by hand."""
    names = ", ".join(f"'{file.name}'" for file in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return DataError(
        f"Data set '{card.name}' needs {names}{more}. Get {'it' if len(missing) == 1 else 'them'} "
        f"from {card.page} and put {'it' if len(missing) == 1 else 'them'} in the folder "
        f"'{folders(card.place)[0]}' (STONET_DATA names another one)."
    )


def _verify(path: Path, file: File, card: Card, watch: Watch | None) -> None:
    if file.sha256 is None:
        return
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
            done += len(block)
            if watch:
                watch(file.name, done, file.size)
    if digest.hexdigest() != file.sha256:
        raise DataError(
            f"'{path}' is not the file that data set '{card.name}' is made of: its SHA-256 is "
            f"{digest.hexdigest()[:12]}…, expected {file.sha256[:12]}…. Delete it and fetch it "
            f"again from {card.page}, or open what it is with stonet.read('{path.name}')."
        )


class _SameTerms(HTTPRedirectHandler):
    """Follows a redirection only to where a download may begin."""

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
    here = loopback and parts.scheme == "http" and parts.hostname in LOOPBACK
    if not here and (parts.scheme != "https" or not parts.hostname):
        raise DataError(f"'{url}' is not an https address, and nothing else is fetched.")


def download(
    url: str, target: Path, file: File, watch: Watch | None = None, loopback: bool = False
) -> None:
    """Fetch a file to `target`, whole and checked.

    Args:
        url: an https address.
        target: where it goes; its folder is made.
        file: what is known of it: size and checksum.
        watch: called as the bytes come.
        loopback: whether plain http from this very machine will do, as for tests.
    """
    _check_url(url, loopback)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(".part", f".{target.name}.", target.parent)
    except OSError as error:
        raise ResourceError(
            f"Cannot write in '{target.parent}' ({error.strerror}). STONET_CACHE names another "
            "folder for downloads."
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            digest = _stream(url, stream, file, watch, loopback)
        if file.sha256 not in (None, digest):
            raise DataError(
                f"'{url}' gave a file with SHA-256 {digest[:12]}…, expected "
                f"{str(file.sha256)[:12]}…: it was changed at its source or on the way."
            )
        os.chmod(part, 0o644)
        os.replace(part, target)
    except (HTTPError, URLError, HTTPException, OSError) as error:
        why = getattr(error, "reason", None) or str(error) or type(error).__name__
        code = ""
        if isinstance(error, HTTPError):
            code = f"{error.code} "
            error.close()
        raise DataError(f"'{url}' cannot be fetched ({code}{why}).") from None
    finally:
        Path(part).unlink(missing_ok=True)


def _stream(url: str, stream: Any, file: File, watch: Watch | None, loopback: bool) -> str:
    """Copy what comes, up to the size it may have; its SHA-256."""
    digest, done, limit = hashlib.sha256(), 0, file.size or LARGEST
    request = Request(url, headers={"User-Agent": "stonet"})
    with build_opener(_SameTerms(loopback)).open(request, timeout=TIMEOUT) as answer:
        told = answer.headers.get("LazySource-Length", "")
        total = int(told) if told.isdigit() else None
        while done <= limit and (total or 0) <= limit:
            block = answer.read(CHUNK)
            if not block:
                break
            done += stream.write(block)
            digest.update(block)
            if watch:
                watch(file.name, done, total or file.size)
    if max(done, total or 0) > limit:
        raise DataError(f"'{url}' is larger than the {size_label(limit)} it should be.")
    if done < (total or file.size or 0):
        raise DataError(f"'{url}' broke off after {done} of {total or file.size} bytes.")
    return digest.hexdigest()
