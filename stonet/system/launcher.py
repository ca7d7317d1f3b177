"""Many processes of one command on this machine, which meet in a file and talk over loopback.

torchrun does the same for many machines, but even alone it listens on every network interface.
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
from stonet.system.distributed import MEETING
from stonet.system.resources import PYTHON, cores, import_paths

REPORT = "STONET_REPORT"  # where a started process tells what went wrong
PAUSE = 0.05  # seconds between two looks at the processes
GRACE = 30.0  # seconds that the others have when one has ended


def launched() -> bool:
    """Whether this process was started by `launch`."""
    return REPORT in os.environ


def launch(command: list[str], count: int) -> None:
    """Run `python -m stonet COMMAND` as so many processes that share the cores.

    Only the first is interrupted by Ctrl-C: it saves, and the others have nothing to save. An
    error of any of them is raised here, once.
    """
    with tempfile.TemporaryDirectory(prefix="stonet-") as folder:
        processes = [_start(command, number, count, Path(folder)) for number in range(count)]
        try:
            with _passing_on(processes):
                _wait(processes)
            codes = [process.poll() for process in processes]
            if any(codes):
                raise _cause(codes, Path(folder))
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()


@contextmanager
def reporting() -> Iterator[None]:
    """In a process that `launch` started, an error is not shown but told to whoever started it."""
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
        message = "Stopped before training began." if stopped else str(error)
        told = {"kind": type(error).__name__, "message": message, "code": code, "time": time.time()}
        report = Path(os.environ[REPORT])
        unfinished = report.with_name(f"new-{report.name}")
        unfinished.write_text(json.dumps(told))
        os.replace(unfinished, report)  # whoever reads it finds all of it or nothing
        sys.stdout.flush()
        os._exit(code)  # at once: peers may never answer again


def _start(command: list[str], number: int, count: int, folder: Path) -> subprocess.Popen[bytes]:
    own = {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "LOCAL_WORLD_SIZE": str(count),
        "WORLD_SIZE": str(count),
        MEETING: str(folder / "meeting"),
        REPORT: str(folder / f"report-{number}"),
    }
    usual = {
        "OMP_NUM_THREADS": str(max(1, cores() // count)),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    return subprocess.Popen(
        [*PYTHON, "-m", "stonet", *command],
        env=usual | os.environ | own | {"PYTHONPATH": import_paths()},
        stdin=subprocess.PIPE,  # closes when this process ends, however it ends
        start_new_session=True,  # Ctrl-C reaches them through here only
    )


@contextmanager
def _passing_on(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """SIGINT goes to the first process, SIGTERM to all."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in processes[:1] if number == signal.SIGINT else processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {s: signal.signal(s, pass_on) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(processes: list[subprocess.Popen[bytes]]) -> None:
    """Until all have ended, or one has failed, or the first has ended long before the others.

    The first alone saves what was learned, and may take its time.
    """
    since = None
    while None in (codes := [process.poll() for process in processes]):
        if any(codes):
            return
        if codes[0] == 0:
            since = since or time.monotonic()
            if time.monotonic() - since > GRACE:
                return
        time.sleep(PAUSE)


def _cause(codes: list[int | None], folder: Path) -> BaseException:
    """What went wrong first, as an error of its kind."""
    reports = [json.loads(path.read_text()) for path in folder.glob("report-*")]
    killed = [(n, -code) for n, code in enumerate(codes) if code is not None and code < 0]
    if killed:  # what others report then is that they lost it
        number, by = killed[0]
        if by == signal.SIGTERM:
            ended = StonetError(
                "Stopped. The same command with --resume goes on from the last save."
            )
            ended.exit_code = 128 + by
            return ended
        return ResourceError(
            f"Process {number} of {len(codes)} was ended by {signal.Signals(by).name}. Out of "
            "memory? Use fewer processes, fewer points or a smaller train.batch."
        )
    if not reports:
        code = next(code for code in codes if code)
        error = StonetError(f"A process ended with exit code {code} and did not tell why.")
        error.exit_code = code
        return error
    first = min(reports, key=lambda report: report["time"])
    kinds = {"MemoryError": MemoryError, "OSError": OSError} | vars(errors)
    kind, message = kinds.get(first["kind"]), first["message"]
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = StonetError
        if first["code"] == StonetError.exit_code:
            message = f"{first['kind']}: {message}. This is a bug; STONET_DEBUG=1 shows where."
    found: Exception = kind(message)
    if isinstance(found, StonetError):
        found.exit_code = first["code"]
    return found


def _end_with_parent() -> None:
    """Standard input closes when the process that holds its other end is gone."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGINT)
