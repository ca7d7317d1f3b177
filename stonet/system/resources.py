"""What the machine offers and what a computation takes: processor cores, memory, Python itself."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path

from stonet.errors import UsageError

PYTHON = (sys.executable, "-P")  # -P: modules in the current folder are never imported
FIELD_MEMORY_SHARE = 0.25  # of the available memory, for the values of one field
ASSUMED_MEMORY = 4 * 2**30  # bytes, where the system does not report what is available
NO_MEMORY = re.compile(
    r"(can't|cannot|failed to|unable to) (allocate|map segment|map memory|start new thread)"
    r"|out of memory|std::bad_alloc|insufficient memory",
    re.IGNORECASE,
)
SIZE_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def import_paths() -> str:
    """PYTHONPATH of a child process that imports this very stonet."""
    package = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))


def cores() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Memory


def memory_budget() -> int:
    """Bytes that one field may take in memory: STONET_MEMORY such as '2G', else a quarter of it."""
    given = os.environ.get("STONET_MEMORY")
    return parse_size(given) if given else int(FIELD_MEMORY_SHARE * free_memory())


def parse_size(text: str) -> int:
    """Bytes of a size as users write it.

    Args:
        text: a number and an optional unit; K, M, G, T are powers of 1024.

    Returns:
        Bytes.

    Example:
        >>> parse_size("512M"), parse_size("1.5 GB")
        (536870912, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if not match:
        raise UsageError(f"'{text}' is not a size. Write e.g. 512M or 2G.")
    return int(float(match[1]) * SIZE_SUFFIXES[match[2]])


def size_label(size: int | float) -> str:
    """A number of bytes in decimal units.

    Args:
        size: in bytes.

    Example:
        >>> size_label(5e12)
        '5 TB'
    """
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(int(math.log(max(size, 1), 1000)), len(units) - 1)
    return f"{size / 1000**power:.3g} {units[power]}"


def free_memory() -> int:
    """Bytes of memory available without swapping; 4 GB where the system does not report it."""
    kilobytes = _proc_value("/proc/meminfo", "MemAvailable:")
    return ASSUMED_MEMORY if kilobytes is None else kilobytes * 1024


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory, or a limit of it such as `ulimit -v`, does not suffice.

    Libraries raise it as errors of many types.

    Args:
        error: raised by any library.
    """
    return isinstance(error, MemoryError) or bool(NO_MEMORY.search(str(error)))


def address_space() -> int | None:
    """Bytes that this process may map (`ulimit -v`); None without a limit."""
    with suppress(ImportError, OSError):  # not on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return None if limit == resource.RLIM_INFINITY else limit
    return None


def trim_memory() -> None:
    """Return freed memory to the system, which fragments after large temporary arrays (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def reset_peak() -> None:
    """Measure `peak_mb` from here on, where the system allows it (Linux)."""
    gc.collect()
    trim_memory()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Highest memory use of this process in MB, since the last `reset_peak`."""
    kilobytes = _proc_value("/proc/self/status", "VmHWM:")
    if kilobytes is not None:
        return kilobytes / 1e3
    import resource  # not on Windows

    scale = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def resident_mb() -> float:
    """Current memory use of this process in MB; its peak where the system does not report it."""
    kilobytes = _proc_value("/proc/self/status", "VmRSS:")
    return peak_mb() if kilobytes is None else kilobytes / 1e3


def describe() -> dict[str, str | int]:
    """What a measured time depends on: processor, cores, memory, load, versions."""
    import torch

    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gb": round((_proc_value("/proc/meminfo", "MemTotal:") or 0) / 2**20),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _proc_value(path: str, key: str) -> int | None:
    """The number behind a key in a file of /proc, in kB."""
    with suppress(OSError, IndexError, ValueError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    return None
