"""The README is short and its code blocks run in order, on a table of stations made here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from helpers.weather_stations import valid_field

import stonet

README = Path(__file__).parents[1] / "README.md"
MAX_LINES = 120
SECONDS = 300

BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\s*\n)?^```(?P<language>python|bash)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def commands(code: str) -> list[list[str]]:
    """The `stonet ...` lines of a bash block, split into words; make, git and pip are left out."""
    lines = code.replace("\\\n", " ").splitlines()
    words = (shlex.split(line, comments=True) for line in lines)
    return [line for line in words if line and line[0] in ("stonet", ".venv/bin/stonet")]


def program(text: str) -> str:
    """One script out of all blocks in order; a command becomes a call that must succeed."""
    parts = ["import subprocess as _run, sys as _sys"]
    for block in BLOCK.finditer(text):
        if block["skip"]:
            continue
        if block["language"] == "python":
            parts.append(block["code"])
            continue
        for _, *arguments in commands(block["code"]):
            words = ", ".join(map(repr, ["-m", "stonet", *arguments]))
            parts.append(f"_run.run([_sys.executable, {words}], check=True)")
    return "\n".join(parts)


def test_blocks_become_one_program_in_order():
    text = (
        "```bash\nmake demo\nstonet fit 'a b.csv' \\\n  -o run  # train\n```\n"
        "```python\nx = 1\n```\n"
        "<!-- not run: needs a GPU -->\n```python\nfail()\n```\n"
        "```text\nnot code\n```\n"
    )
    assert program(text).splitlines()[1:] == [
        "_run.run([_sys.executable, '-m', 'stonet', 'fit', 'a b.csv', '-o', 'run'], check=True)",
        "x = 1",
    ]


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_readme_runs(tmp_path: Path):
    text = README.read_text(encoding="utf-8")
    shown = {block["language"] for block in BLOCK.finditer(text)}
    assert shown == {"python", "bash"}, "the README shows both the Python and the command line"
    stations = stonet.read(valid_field(frames=400, stations=12), variables="t2m")
    stations.to_csv(tmp_path / "stations.csv")
    done = subprocess.run(
        [sys.executable, "-"],
        input=program(text),
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
