"""ecCodes at arm's length: what headers mean, where grids lie, and values in rare packings.

The library runs in `worker`, a process that may crash or hang without harm; it is started
once and kept for the next question.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from stonet.errors import DataError, UsageError
from stonet.io.safety import fitting

START_PATIENCE = 60.0  # seconds; a loaded machine is slow to start
PATIENCE = 10.0  # seconds for an answer, and as many again for each 16 MB asked about
LONGEST_LINE = 2**24
BYTES_PER_POINT = 200  # of a grid in memory: coordinates, embedding, name
INSTALL = "GRIB files are read with ecCodes, which is not installed: pip install 'stonet[grib]'."


class _Worker:
    """The process and its two pipes."""

    def __init__(self) -> None:
        if importlib.util.find_spec("eccodes") is None:
            raise UsageError(INSTALL)
        script = Path(__file__).with_name("eccodes_worker.py")
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script)],  # -P: the folder's modules hide no library
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._answer(START_PATIENCE) is None:
            self.stop()
            raise UsageError(f"{INSTALL} (It is there, but does not start.)")

    @property
    def ready(self) -> bool:
        """Whether it runs, and for this process: a fork must not share its pipes."""
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, what: str, messages: Sequence[bytes], kind: Any) -> Any:
        """The answer and its arrays; None where the process did not survive the question."""
        assert self.process.stdin is not None
        sizes = [len(message) for message in messages]
        line = json.dumps({"ask": what, "sizes": sizes}).encode()
        try:
            self.process.stdin.write(b"".join([line, b"\n", *messages]))
            self.process.stdin.flush()
        except OSError:
            return None
        return self._answer(PATIENCE * (1 + sum(sizes) / 2**24), np.dtype(kind))

    def _answer(self, patience: float, kind: Any = None) -> Any:
        alarm = Timer(patience, self.process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            assert self.process.stdout is not None
            line = self.process.stdout.readline(LONGEST_LINE)
            if not line.endswith(b"\n"):
                return None
            answer = json.loads(line)
            arrays = []
            for length in answer["arrays"]:
                fitting(length * kind.itemsize, f"a field of {length} values", "GRIB")
                block = self.process.stdout.read(length * kind.itemsize)
                if len(block) < length * kind.itemsize:
                    return None
                arrays.append(np.frombuffer(block, kind))
            return answer | {"arrays": arrays}
        finally:
            alarm.cancel()

    def stop(self) -> None:
        """End the process, if it is ours."""
        if self.owner != os.getpid():
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # about what was not sent yet
                pipe.close()  # type: ignore[union-attr]


_lock = Lock()
_workers: list[_Worker] = []  # one, or none


def _ask(origin: str, what: str, messages: Sequence[bytes], kind: Any = np.float64) -> Any:
    with _lock:
        if _workers and (
            _workers[0].owner != os.getpid() or _workers[0].process.poll() is not None
        ):
            _workers.pop().stop()
        if not _workers:
            _workers.append(_Worker())
        answer = None
        try:
            answer = _workers[0].ask(what, messages, kind)
        finally:
            if answer is None:  # dead, or in the middle of an answer
                _workers.pop().stop()
    if answer is None or "error" in answer:
        why = answer["error"] if answer else "ecCodes crashed or took too long"
        raise DataError(
            f"{origin} cannot be decoded ({why}). The message is damaged or of a rare kind; fetch "
            "the file again, or convert it: grib_to_netcdf or cdo -f nc copy."
        )
    return answer


@atexit.register
def _stop() -> None:
    while _workers:
        _workers.pop().stop()


def describe(origin: str, message: bytes) -> dict[str, Any]:
    """The header's keys, as `worker` lists them."""
    header: dict[str, Any] = _ask(origin, "describe", [message])["headers"][0]
    return header


def coordinates(origin: str, message: bytes, points: int) -> Float64[np.ndarray, "node 2"]:
    """Latitude and longitude of each value."""
    fitting(points * BYTES_PER_POINT, f"a grid of {points} points", origin)
    found = _ask(origin, "grid", [message])["arrays"]
    if [len(array) for array in found] != [points, points]:
        raise DataError(f"{origin} declares {points} points, and its grid has {len(found[0])}.")
    return np.stack(found, axis=1)


def decode(
    origin: str, messages: Sequence[bytes], points: int
) -> Float32[np.ndarray, "field node"]:
    """The values of messages in any packing that ecCodes knows, NaN where missing."""
    found = _ask(origin, "values", messages, np.float32)["arrays"]
    for array in found:
        if len(array) != points:
            raise DataError(f"{origin} holds {len(array)} values for a grid of {points} points.")
    return np.stack(found)
