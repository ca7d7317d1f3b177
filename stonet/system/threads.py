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

from stonet.system import distributed

S = TypeVar("S")
T = TypeVar("T")
MOST = 4  # each holds what does not depend on windows, such as a graph that is learned, once more


def count(device: torch.device) -> int:
    """How many there are, if this is the only process and has no GPU."""
    alone = device.type == "cpu" and distributed.size() == 1
    return min(torch.get_num_threads(), MOST) if alone else 1


def each(do: Callable[[S], T], parts: Sequence[S]) -> list[T]:
    """`do` for every part, all at once; each has its share of PyTorch's threads."""
    if len(parts) == 1:
        return [do(parts[0])]
    threads = torch.get_num_threads()

    def alone(part: S) -> T:
        torch.set_num_threads(max(1, threads // len(parts)))  # of this one
        return do(part)

    try:
        return list(_pool(len(parts)).map(alone, parts))
    finally:
        torch.set_num_threads(threads)  # of threads that are yet to come


@lru_cache(1)
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "stonet-hand")
