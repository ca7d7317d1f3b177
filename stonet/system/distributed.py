"""The processes that torchrun started: which of them this is, and how they wait for one another."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

MEETING = "STONET_MEETING"  # the file where processes of one machine find one another
PATIENCE = timedelta(days=7)  # one process may have much more to do than another


def rank() -> int:
    """This process's number; 0 talks, and makes what there is only one of."""
    return int(os.environ.get("RANK", "0"))


def size() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that writes and talks."""
    return rank() == 0


@contextmanager
def together(backend: str = "gloo") -> Iterator[None]:
    """In here the processes are a group.

    They stay one until they end: another group in the same processes may fail to meet.
    """
    import torch.distributed as dist

    if size() > 1 and not dist.is_initialized():
        meeting = os.environ.get(MEETING)
        where = None if meeting is None else f"file://{meeting}"
        dist.init_process_group(backend, where, PATIENCE, size(), rank())
        atexit.register(dist.destroy_process_group)
    yield


def wait() -> None:
    """Go on when all have come here."""
    import torch.distributed as dist

    if size() > 1:
        with together():
            dist.barrier()
