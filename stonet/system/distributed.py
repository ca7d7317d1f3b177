"""The group of processes that torchrun or `launcher` started: rank, size and barriers."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

RENDEZVOUS = "STONET_RENDEZVOUS"  # the file by which processes of one machine find one another
TIMEOUT = timedelta(days=7)  # of collective operations: one process may have much more work


def rank() -> int:
    """Number of this process; rank 0 logs and writes shared files."""
    return int(os.environ.get("RANK", "0"))


def size() -> int:
    """Number of processes."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process has rank 0."""
    return rank() == 0


@contextmanager
def process_group(backend: str = "gloo") -> Iterator[None]:
    """Join the processes into a group, in which collective operations work.

    The group lasts until the processes end: another one in the same processes may fail to meet.

    Args:
        backend: "gloo" for processors, "nccl" for GPUs.
    """
    import torch.distributed as dist

    if size() > 1 and not dist.is_initialized():
        file = os.environ.get(RENDEZVOUS)
        address = None if file is None else f"file://{file}"
        dist.init_process_group(backend, address, TIMEOUT, size(), rank())
        atexit.register(dist.destroy_process_group)
    yield


def of_first(value: float, device: torch.device) -> float:
    """The number of the first process, in every process of the group.

    Args:
        value: a number, which may differ between processes.
        device: through which the processes exchange tensors.
    """
    if size() == 1:
        return value
    import torch
    import torch.distributed as dist

    shared = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)


def barrier() -> None:
    """Wait until all processes have reached this call."""
    import torch.distributed as dist

    if size() > 1:
        with process_group():
            dist.barrier()
