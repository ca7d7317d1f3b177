"""Several processes of one command on this machine, which meet in a file and talk over loopback.

torchrun does the same for several machines, but even on one it listens on every network interface.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stonet import errors
from stonet.errors import ResourceError, StonetError
from stonet.system.atomic import write_atomic
from stonet.system.distributed import RENDEZVOUS
from stonet.system.resources import PYTHON, cores, import_paths

REPORT = "STONET_REPORT"  # the file in which a launched process reports its error
POLL_INTERVAL = 0.05  # seconds between two checks of the processes
GRACE = 30.0  # seconds that the other processes have after the first one has ended


def launched() -> bool:
    """Whether this process was started by `launch`."""
    return REPORT in os.environ


def launch(command: list[str], count: int) -> None:
    """Run `python -m stonet COMMAND` in several processes that share the cores.

    Ctrl-C interrupts the first process only: it saves, and the others have nothing to save.

    Args:
        command: arguments of `stonet`.
        count: number of processes.

    Raises:
        StonetError: the first error of any process, once and with its own type.
    """
    with tempfile.TemporaryDirectory(prefix="stonet-") as folder:
        processes = [_start(command, rank, count, Path(folder)) for rank in range(count)]
        try:
            with _forwarding_signals(processes):
                _wait(processes)
            codes = [process.poll() for process in processes]
            if any(codes):
                raise _first_error(codes, Path(folder))
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()


@contextmanager
def reporting() -> Iterator[None]:
    """In a launched process, write an error to the report file instead of the screen."""
    if not launched():
        yield
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("STONET_DEBUG"):
            traceback.print_exc()
        stopped = isinstance(error, KeyboardInterrupt)
        code = 130 if stopped else getattr(error, "exit_code", StonetError.exit_code)
        report = {
            "kind": type(error).__name__,
            "message": "Stopped before training began." if stopped else str(error),
            "code": code,
            "time": time.time(),
        }
        write_atomic(Path(os.environ[REPORT]), json.dumps(report).encode())
        sys.stdout.flush()
        os._exit(code)  # immediately: other processes may never reply again


def _start(command: list[str], rank: int, count: int, folder: Path) -> subprocess.Popen[bytes]:
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(count),
        "WORLD_SIZE": str(count),
        RENDEZVOUS: str(folder / "rendezvous"),
        REPORT: str(folder / f"report-{rank}"),
    }
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores() // count)),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    return subprocess.Popen(
        [*PYTHON, "-m", "stonet", *command],
        env=defaults | os.environ | own | {"PYTHONPATH": import_paths()},
        stdin=subprocess.PIPE,  # closes when this process ends, however it ends
        start_new_session=True,  # Ctrl-C reaches the processes only through this one
    )


@contextmanager
def _forwarding_signals(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Forward SIGINT to the first process, SIGTERM to all."""

    def forward(number: int, frame: FrameType | None) -> None:
        for process in processes[:1] if number == signal.SIGINT else processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {s: signal.signal(s, forward) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(processes: list[subprocess.Popen[bytes]], grace: float = GRACE) -> None:
    """Until all have ended, or one has failed, or the first ended `grace` seconds ago.

    Only the first process saves the result, so it may take any time.
    """
    ended = None
    while None in (codes := [process.poll() for process in processes]):
        if any(codes):
            return
        if codes[0] == 0:
            ended = ended or time.monotonic()
            if time.monotonic() - ended > grace:
                return
        time.sleep(POLL_INTERVAL)


def _first_error(codes: list[int | None], folder: Path) -> BaseException:
    """The earliest error of the processes, with its own type."""
    reports = [json.loads(path.read_text()) for path in folder.glob("report-*")]
    killed = [(rank, -code) for rank, code in enumerate(codes) if code is not None and code < 0]
    if killed:  # the other processes then report only that they lost it
        return _killed(*killed[0], len(codes))
    if not reports:
        code = next(code for code in codes if code)
        error = StonetError(f"A process ended with exit code {code} and reported no error.")
        error.exit_code = code
        return error
    first = min(reports, key=lambda report: report["time"])
    kinds = {"MemoryError": MemoryError, "OSError": OSError} | vars(errors)
    kind, message = kinds.get(first["kind"]), first["message"]
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = StonetError
        if first["code"] == StonetError.exit_code:
            message = f"{first['kind']}: {message}. This is a bug; STONET_DEBUG=1 shows where."
    raised: Exception = kind(message)
    if isinstance(raised, StonetError):
        raised.exit_code = first["code"]
    return raised


def _killed(rank: int, number: int, count: int) -> StonetError:
    """The error for a process that a signal has ended."""
    if number == signal.SIGTERM:
        error = StonetError("Stopped. The same command with --resume continues from the last save.")
        error.exit_code = 128 + number
        return error
    return ResourceError(
        f"Process {rank} of {count} was ended by {signal.Signals(number).name}. Out of memory? Use "
        "fewer processes, fewer points or a smaller train.batch."
    )


def _end_with_parent() -> None:
    """Interrupt this process when its parent ends, which closes standard input."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGINT)
