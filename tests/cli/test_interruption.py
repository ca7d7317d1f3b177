"""Ctrl-C, SIGTERM and too little address space end a command with a message and an exit code."""

from __future__ import annotations

import os
import signal

import pytest
from helpers.shell import Shell

from stonet.quality import report


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_without_a_traceback(number: int, code: int, stonet: Shell) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def interrupted(*arguments: object) -> None:
        os.kill(os.getpid(), number)

    stonet.patch.setattr(report, "check", interrupted)
    assert "Stopped." in stonet.refused("check", "data.csv", code=code)
    assert signal.getsignal(signal.SIGTERM) is before


def test_too_little_address_space_is_refused_before_libraries_are_loaded(stonet: Shell) -> None:
    from stonet.system import resources

    stonet.patch.setattr(resources, "address_space", lambda: 10**8)
    assert "ulimit -v" in stonet.refused("check", "data.csv", code=4)
    assert stonet("check", "--help").code == 0
    stonet.patch.setattr(resources, "address_space", lambda: 10**12)
    assert "data.csv" in stonet.refused("check", "data.csv")
