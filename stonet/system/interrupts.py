"""Signals during long work: SIGTERM acts like Ctrl-C, and saving is not interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None


@contextmanager
def stopping_once() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt once; the cleaning up that follows is finished.

    A second signal is answered by a line on stderr, a third one ends the process at once. They
    stay in force after an interrupt, while the interpreter ends, so that no traceback is printed.

    Yields:
        the signals that came.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt
        if len(received) > 2:
            os._exit(128 + number)
        with suppress(OSError):
            os.write(2, b"stonet: cleaning up; once more ends it at once.\n")

    with _handled((signal.SIGINT, signal.SIGTERM), stop, lambda: not received):
        yield received


@contextmanager
def sigterm_interrupts(first: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM inside the block, unless a handler does so already.

    Args:
        first: whether this is the first of several processes. The others ignore SIGTERM: the first
            one saves, and they end with it.
    """
    former = signal.getsignal(signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not callable(former):
            raise KeyboardInterrupt
        former(number, frame)  # as of `stopping_once`, which decides on the exit code

    with _handled((signal.SIGTERM,), interrupt if first else signal.SIG_IGN):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM inside the block, which should be short."""
    with _handled((signal.SIGINT, signal.SIGTERM), signal.SIG_IGN):
        yield


@contextmanager
def _handled(
    numbers: tuple[signal.Signals, ...],
    handler: Handler,
    restores: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Another handler of these signals inside the block; only the main thread can have one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items() if restores() else ():
            signal.signal(number, signal.SIG_DFL if former is None else former)
