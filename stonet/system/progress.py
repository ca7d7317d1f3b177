"""How far reading or fitting is, for whoever wants to watch, without passing them everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watch = Callable[[int, int], None]  # what is done, of how much in all

_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Whatever long work is done in here tells how far it is."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def tell(done: int, total: int) -> None:
    """Say how far it is."""
    watch = _watch.get()
    if watch is not None:
        watch(done, total)
