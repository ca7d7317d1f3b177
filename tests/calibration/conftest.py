"""Calibration on the command line, run in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.shell import Shell


@pytest.fixture
def stonet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "cache"))
    return Shell(capsys, monkeypatch)
