"""Room for values: in memory while they fit, else in a file on disk that vanishes by itself."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from stonet.errors import ResourceError, UsageError

SHARE = 0.25  # of the memory that is free, for the values of one field
SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def cache_folder() -> Path:
    """Where downloads and spilled values go: STONET_CACHE, or the user's cache."""
    given = os.environ.get("STONET_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "stonet"


def memory_budget() -> int:
    """Bytes that one field may take in memory: STONET_MEMORY such as '2G', or a share of it."""
    given = os.environ.get("STONET_MEMORY")
    return parse_size(given) if given else int(SHARE * free_memory())


def parse_size(text: str) -> int:
    """'512M', '2G', '1.5GB' in bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if not match:
        raise UsageError(f"'{text}' is no size; write e.g. 512M or 2G.")
    return int(float(match[1]) * SUFFIXES[match[2]])


def free_memory() -> int:
    """Bytes that can be had without swapping; 4 GB where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 * 2**30


def size_label(count: int | float) -> str:
    """Bytes as people say them."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(int(math.log(max(count, 1), 1000)), len(units) - 1)
    return f"{count / 1000**power:.3g} {units[power]}"


class Room:
    """Arrays of zeros of one shape, all in memory or all on disk."""

    def __init__(self, cells: int, bytes_each: int, what: str) -> None:
        need = cells * bytes_each
        self.on_disk = need > memory_budget()
        if self.on_disk:
            self.folder = cache_folder()
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
            if need > 0.9 * free:
                raise ResourceError(
                    f"{what} would take {size_label(need)}: more than the memory budget "
                    f"({size_label(memory_budget())}) and than the disk under '{self.folder}' has "
                    f"({size_label(free)} free). Take less: variables, a bbox, a time range, or "
                    "fewer points (--variables, --bbox, --from, --to, --points)."
                )

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A fresh array; on disk its file has no name and is gone with the array."""
        if not self.on_disk:
            return np.zeros(shape, dtype)
        with tempfile.TemporaryFile(dir=self.folder, prefix="stonet-") as file:
            return np.memmap(file, dtype=dtype, mode="w+", shape=shape)
