"""Runs `stonet` commands as a user would."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stonet.cli import main


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class Shell:
    """Calls `stonet ...` in this process, in the current folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.capsys, self.patch = capsys, patch

    def __call__(self, *words: str | Path) -> CommandResult:
        self.patch.setattr(sys, "argv", ["stonet", *map(str, words)])
        self.capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return CommandResult(code, *self.capsys.readouterr())

    def refused(self, *words: str | Path, code: int = 2) -> str:
        """The message of a command that must fail, the same with --json."""
        plain, as_json = self(*words), self(*words, "--json")
        assert plain.code == as_json.code == code, plain.err
        assert plain.out == "" and "Traceback" not in plain.err
        error = json.loads(as_json.out)["error"]
        assert error["exit_code"] == code and plain.err.endswith(f"stonet: {error['message']}\n")
        return str(error["message"])
