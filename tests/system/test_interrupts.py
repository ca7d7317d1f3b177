"""SIGTERM interrupts, saving is not interrupted, and handlers are restored."""

from __future__ import annotations

import signal
import threading

import pytest

from stonet.system.interrupts import sigterm_interrupts, stopping_once, uninterrupted

BOTH = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list:
    return [signal.getsignal(number) for number in BOTH]


def test_sigterm_is_a_keyboard_interrupt_inside_the_block() -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert handlers() == before


def test_other_processes_ignore_sigterm() -> None:
    with sigterm_interrupts(first=False):
        signal.raise_signal(signal.SIGTERM)


def test_nothing_interrupts_a_save() -> None:
    before = handlers()
    with uninterrupted():
        for number in BOTH:
            signal.raise_signal(number)
    assert handlers() == before


def test_another_thread_leaves_the_handlers_alone() -> None:
    seen = []

    def work() -> None:
        with sigterm_interrupts(), uninterrupted():
            seen.append(handlers())

    before, thread = handlers(), threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_sigterm_in_a_training_is_known_to_the_command_around_it() -> None:
    """Its exit code says which signal came; a second one does not interrupt the saving."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with stopping_once() as signals, sigterm_interrupts():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        assert signals == [signal.SIGTERM, signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
