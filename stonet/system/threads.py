"""Threads that share the windows of one training step.

PyTorch's own threads split one operation after another, synchronise after each and leave much to
one thread: gathering rows, small products. Windows are independent of one another, so complete
windows are distributed instead, and the gradients are added at the end.
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
MAX_THREADS = 4  # each holds its own copy of what does not depend on windows, e.g. a learned graph


def count(device: torch.device) -> int:
    """Number of threads to use: 1 on a GPU, or where several processes share the machine.

    Args:
        device: of the training.
    """
    alone = device.type == "cpu" and distributed.size() == 1
    return min(torch.get_num_threads(), MAX_THREADS) if alone else 1


def each(function: Callable[[S], T], parts: Sequence[S]) -> list[T]:
    """`function` of every part, all in parallel, each with its share of PyTorch's threads.

    Args:
        function: called once for each part.
        parts: at least one.
    """
    if len(parts) == 1:
        return [function(parts[0])]
    threads = torch.get_num_threads()

    def with_share(part: S) -> T:
        torch.set_num_threads(max(1, threads // len(parts)))  # of this thread only
        return function(part)

    try:
        return list(_pool(len(parts)).map(with_share, parts))
    finally:
        torch.set_num_threads(threads)  # the default of threads that start later


@lru_cache(1)
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "stonet-worker")
