"""Ctrl-C, SIGTERM and too little address space end a command with a message and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from helpers.shell import Shell

from stonet.quality import report


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_without_a_traceback(number: int, code: int, stonet: Shell) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}

    def interrupted(*arguments: object) -> None:
        os.kill(os.getpid(), number)

    stonet.patch.setattr(report, "check", interrupted)
    try:
        assert "Stopped." in stonet.refused("check", "data.csv", code=code)
    finally:
        for each, handler in before.items():  # after an interrupt they stay until the process ends
            signal.signal(each, handler)


CLEANING = """
import os, signal, sys, threading, time
from stonet import cli
from stonet.quality import report

def interrupted(*arguments):
    try:
        os.kill(os.getpid(), NUMBER)
        time.sleep(60)
    finally:  # cleaning up, when the second signal comes
        os.kill(os.getpid(), signal.SIGINT)
        print("cleaned")

report.check = interrupted
threading._register_atexit(lambda: os.kill(os.getpid(), signal.SIGINT)) if LATE else None
cli.main()
"""


@pytest.mark.parametrize(("number", "late"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_second_signal_neither_stops_the_cleaning_up_nor_shows_a_traceback(
    number: int, late: bool
) -> None:
    code = CLEANING.replace("LATE", str(late)).replace("NUMBER", str(int(number)))
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "data.csv"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == (128 + signal.SIGINT if late else 128 + number)
    assert "cleaned" in done.stdout and "Traceback" not in done.stderr, done.stderr
    assert "Stopped." in done.stderr and "cleaning up" in done.stderr


def test_too_little_address_space_is_refused_before_libraries_are_loaded(stonet: Shell) -> None:
    from stonet.system import resources

    stonet.patch.setattr(resources, "address_space", lambda: 10**8)
    assert "ulimit -v" in stonet.refused("check", "data.csv", code=4)
    assert stonet("check", "--help").code == 0
    stonet.patch.setattr(resources, "address_space", lambda: 10**12)
    assert "data.csv" in stonet.refused("check", "data.csv")
