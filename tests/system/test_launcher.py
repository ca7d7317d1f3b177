"""Processes of one command: which are waited for, and which code they import."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import stonet
from stonet.system import launcher
from stonet.system.resources import PYTHON, import_paths


def sleeping(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"])


def test_the_first_process_is_waited_for() -> None:
    processes = [sleeping(1.0), sleeping(0.0)]
    launcher._wait(processes, grace=0.2)
    assert [process.poll() for process in processes] == [0, 0]


def test_other_processes_are_not_waited_for_after_the_first() -> None:
    processes = [sleeping(0.0), sleeping(60.0)]
    started = time.monotonic()
    launcher._wait(processes, grace=0.2)
    assert processes[1].poll() is None and time.monotonic() - started < 30
    processes[1].kill()
    processes[1].wait()


def test_a_child_imports_this_stonet_and_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("numpy", "stonet"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file executed code')")
    result = subprocess.run(
        [*PYTHON, "-c", "import numpy, stonet; print(stonet.__file__)"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": import_paths()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == stonet.__file__
