"""A helper process for C libraries that a damaged file can crash or hang.

`Sandbox` is the client: it starts the process at the first request, keeps it for the next ones and
replaces it after a crash. `serve` runs in the helper process. Nothing in a reply is trusted beyond
its size.

    request, reply:   {"sizes": [bytes of each block], ...}  newline  blocks
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock, Timer
from typing import Any, BinaryIO

from stonet.errors import ResourceError
from stonet.system.resources import PYTHON, import_paths, memory_budget, size_label

START_TIMEOUT = 60.0  # seconds; a loaded machine starts processes slowly
MAX_LINE = 2**24  # bytes of the first line of a reply

Message = tuple[dict[str, Any], list[bytes]]  # JSON content, binary blocks
Handler = Callable[[dict[str, Any], list[bytes]], Message]


class StartError(Exception):
    """The helper process did not start."""


class CrashError(Exception):
    """The helper process ended before it replied."""


class Sandbox:
    """The client of one helper process, which ends with this process.

    Args:
        module: a module that calls `serve` when it is run with `python -m`.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # a fork must not share the pipes of its parent
        self._lock = Lock()
        atexit.register(self.stop)

    def request(
        self, content: Mapping[str, Any], blocks: Sequence[bytes] = (), *, timeout: float
    ) -> Message:
        """Send a request and wait for the reply.

        Args:
            content: what can be written as JSON.
            blocks: binary data.
            timeout: seconds after which the process is ended.

        Raises:
            StartError: the process did not start.
            CrashError: it ended before it replied.
            TimeoutError: it did not reply in time.
            ResourceError: the reply exceeds the memory budget.
        """
        with self._lock:
            process = self._running()
            completed = False
            try:
                reply = _exchange(process, (dict(content), list(blocks)), timeout)
                completed = True
            finally:
                if not completed:
                    self.stop()
            return reply

    def stop(self) -> None:
        """End the process, even if it hangs."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # of data that could not be sent
                pipe.close()  # type: ignore[union-attr]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and (
            self._owner != os.getpid() or self._process.poll() is not None
        ):
            self.stop()
        if self._process is None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [*PYTHON, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # where libraries comment on damaged files
                env=os.environ | {"PYTHONPATH": import_paths()},
            )
            try:
                _exchange(self._process, None, START_TIMEOUT)
            except (CrashError, TimeoutError) as error:
                self.stop()
                raise StartError from error
        return self._process


def _exchange(process: subprocess.Popen[bytes], request: Message | None, timeout: float) -> Message:
    """Send the request, if there is one, and receive the next reply."""
    assert process.stdin is not None and process.stdout is not None
    expired = Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        if request is not None:
            _send(process.stdin, *request)  # type: ignore[arg-type]
        return _receive(process.stdout)  # type: ignore[arg-type]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        raise (TimeoutError if expired.is_set() else CrashError) from None
    finally:
        timer.cancel()


def _send(pipe: BinaryIO, content: dict[str, Any], blocks: list[bytes]) -> None:
    line = json.dumps(content | {"sizes": [len(block) for block in blocks]})
    pipe.write(b"".join([line.encode(), b"\n", *blocks]))
    pipe.flush()


def _receive(pipe: BinaryIO) -> Message:
    line = pipe.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        raise EOFError
    content = json.loads(line)
    sizes = content.pop("sizes")
    if min(sizes, default=0) < 0:
        raise ValueError
    if sum(sizes) > memory_budget():
        raise ResourceError(
            f"A reply of {size_label(sum(sizes))} exceeds the memory budget "
            f"({size_label(memory_budget())}). Read less, or set STONET_MEMORY, e.g. 8G."
        )
    blocks = [pipe.read(size) for size in sizes]
    if [len(block) for block in blocks] != sizes:
        raise EOFError
    return content, blocks


def serve(prepare: Callable[[], Handler], memory: int) -> None:
    """Reply to requests on standard input until it is closed; runs in the helper process.

    Args:
        prepare: imports the library and returns the function that replies to a request.
        memory: address space of the process in bytes, where the system can limit it.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # no output of the library may enter the replies
    with suppress(ImportError, OSError, ValueError):  # not on every system; the timeout remains
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    handler = prepare()
    _send(replies, {}, [])  # ready
    for line in sys.stdin.buffer:
        content = json.loads(line)
        blocks = [sys.stdin.buffer.read(size) for size in content.pop("sizes")]
        _send(replies, *handler(content, blocks))
