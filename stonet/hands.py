"""Hands: threads that take a step together, each with some of its windows.

PyTorch's own threads share one operation after another, wait for each other every time, and leave
much to one of them: gathering rows, small products. Windows do not influence each other, so whole
windows are shared instead, and gradients are added in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

from stonet import crew

S = TypeVar("S")
T = TypeVar("T")


def count(device: torch.device) -> int:
    """How many there are: PyTorch's threads, if this is the only process and has no GPU."""
    return torch.get_num_threads() if device.type == "cpu" and crew.size() == 1 else 1


def each(do: Callable[[S], T], parts: Sequence[S]) -> list[T]:
    """`do` for every part, all at once, each by a thread that works alone."""
    if len(parts) == 1:
        return [do(parts[0])]
    threads = torch.get_num_threads()

    def alone(part: S) -> T:
        torch.set_num_threads(1)  # of this thread
        return do(part)

    try:
        return list(_pool(len(parts)).map(alone, parts))
    finally:
        torch.set_num_threads(threads)  # of threads that are yet to come


@lru_cache(1)
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "stonet-hand")
