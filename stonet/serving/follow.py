"""Follow: files are read again when they change, and forecasts start from their new rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from glob import glob
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

from stonet.data.field import Field
from stonet.errors import StonetError, UsageError
from stonet.serving.service import Service

LOGGER = logging.getLogger(__name__)
SECONDS = 2.0  # between two looks
PATIENCE = 5.0  # seconds that the thread has to end
MAX_FILES = 10_000
Signature = tuple[tuple[str, int, int], ...]  # name, time of the last change and size of each file


class Follower:
    """Watches the files of a service in a thread, inside a `with` block.

    A file that cannot be read, such as one that is being written, is read again after its next
    change; until then the service keeps what it has.

    Args:
        service: takes the new observations.
        source: file, folder or pattern.
        read: reads it.
        active: whether anything is watched.
        seconds: between two looks.
    """

    def __init__(
        self,
        service: Service,
        source: str,
        read: Callable[[], Field],
        active: bool = True,
        seconds: float = SECONDS,
    ) -> None:
        self.service, self.source, self.read = service, source, read
        self.active, self.seconds = active, seconds
        self._seen = signature(source) if active else ()
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="stonet-follow", daemon=True)

    def __enter__(self) -> Follower:
        if self.active:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self.active:
            self._thread.join(PATIENCE)

    def look(self) -> bool:
        """Take new rows if the files have changed; returns whether there were any."""
        now = signature(self.source)
        if now == self._seen or not now:
            return False
        self._seen = now
        try:
            self.service.replace(self.read())
            self.service.issue()
        except (StonetError, OSError) as error:
            LOGGER.warning("%s has changed but was not taken: %s", self.source, error)
            return False
        return True

    def _watch(self) -> None:
        while not self._stop.wait(self.seconds):
            self.look()


def signature(source: str) -> Signature:
    """Sizes and times of the files that a source stands for.

    Args:
        source: file, folder or pattern.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(entry for entry in path.rglob("*") if entry.is_file())
    else:
        files = [path] if path.exists() else [Path(name) for name in sorted(glob(source))]
    found = []
    for file in files[:MAX_FILES]:
        try:
            status = file.stat()
        except OSError:  # removed meanwhile
            continue
        found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)


def check_followable(source: str) -> None:
    """Refuse what is no file.

    Args:
        source: as given.

    Raises:
        UsageError: if there is no such file, folder or pattern.
    """
    if not signature(source):
        raise UsageError(
            f"--follow watches files, and '{source}' is none. Give the file, folder or pattern "
            "that new rows are written to."
        )
