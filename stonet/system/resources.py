"""What the machine is, and what a piece of work took of it: time, memory, threads."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

PYTHON = (sys.executable, "-P")  # never imports what lies in the current folder


def import_paths() -> str:
    """PYTHONPATH of a child that is to find this very stonet."""
    package = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))


def forget_peak() -> None:
    """Start to count the peak memory anew, as far as the system lets us (Linux)."""
    gc.collect()
    give_back()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Return memory that is free but kept for later: large temporaries leave ever more holes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def peak_mb() -> float:
    """The process's highest memory in MB since then."""
    found = _status("VmHWM:")
    if found is not None:
        return found
    import resource  # not on Windows

    scale = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def resident_mb() -> float:
    """The process's memory now, in MB; its peak where the system does not tell."""
    found = _status("VmRSS:")
    return peak_mb() if found is None else found


def describe() -> dict[str, str | int]:
    """Enough to judge a figure by: processor, cores, memory, load, versions."""
    import torch

    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gb": _total_gb(),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _total_gb() -> int:
    try:
        first = Path("/proc/meminfo").read_text().splitlines()[0]
        return round(int(first.split()[1]) / 2**20)
    except (OSError, IndexError, ValueError):
        return 0


def _status(key: str) -> float | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1e3
    except OSError:
        pass
    return None


def commit() -> str:
    """Which commit of stonet this is; "+" where its code differs, "unknown" without git."""
    import subprocess

    def git(*command: str) -> str:
        here = Path(__file__).parent
        done = subprocess.run(["git", *command], cwd=here, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        found = git("rev-parse", "--short", "HEAD")
        differs = bool(found) and git("status", "--porcelain", "-uno", "--", ".")
        return found + ("+" if differs else "") or "unknown"
    except OSError:
        return "unknown"
