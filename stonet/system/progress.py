"""Progress of long work: one callback type, and a way to reach it from deep inside a computation.

Functions that a user calls take a `ProgressCallback`, or report to the one that is active in the
current context (`reporting_to`), so that inner functions need no argument for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ProgressCallback = Callable[[int, int, str], None]
"""Called with the units done, their total (0 if unknown), and a description of the current one."""

_active: ContextVar[ProgressCallback | None] = ContextVar("progress", default=None)


@contextmanager
def reporting_to(callback: ProgressCallback) -> Iterator[None]:
    """Send all progress that is reported inside the block to `callback`.

    Args:
        callback: called in the thread that reports.

    Example:
        >>> with reporting_to(lambda done, total, what: print(f"{done}/{total}")):
        ...     report_progress(3, 4)
        3/4
    """
    token = _active.set(callback)
    try:
        yield
    finally:
        _active.reset(token)


def report_progress(done: int, total: int, description: str = "") -> None:
    """Report to the active callback, if there is one.

    Args:
        done: steps that are complete.
        total: all steps.
        description: what is being done.
    """
    callback = _active.get()
    if callback is not None:
        callback(done, total, description)


def ignore_progress(done: int, total: int, description: str = "") -> None:
    """The default callback: does nothing.

    Args:
        done: not used.
        total: not used.
        description: not used.
    """
