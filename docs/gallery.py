"""The gallery: each script of examples/ with what it prints and draws, as a page of Markdown.

A line `# %%` begins a cell: comment lines, which become text, then code, which is run. What it
prints and the figures it saves follow the code. The scripts take minutes, so the pages are kept
in docs/gallery and the figures in docs/images: `make gallery` writes them anew, and a test sees
to it that their code is that of the scripts.

    python docs/gallery.py [NAME ...]
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
SMALL = os.environ.get("TUTORIAL") == "small"
NOTE = (
    "*Output and figures below are of the small run that the tests make (`TUTORIAL=small`): few "
    "stations, seconds of training. `make gallery ARGS={name}` writes those of the full one.*\n\n"
)
CELL = re.compile(r"^# %%.*\n", re.MULTILINE)


def cells(script: Path) -> list[tuple[str, str]]:
    """The text and the code of each cell of a script.

    Args:
        script: with cells that begin with `# %%`.
    """
    _, *parts = CELL.split(script.read_text(encoding="utf-8"))
    return [_text_and_code(part) for part in parts]


def _text_and_code(cell: str) -> tuple[str, str]:
    """The comment that opens a cell, without its signs, and the code."""
    lines = cell.splitlines()
    count = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    text = "\n".join(line.removeprefix("#").strip() for line in lines[:count])
    return text, "\n".join(lines[count:]).strip()


def tutorial(script: Path, images: Path) -> str:
    """Run an example cell by cell; text, code, output and figures as Markdown.

    Args:
        script: to run, in an empty folder.
        images: folder for its figures.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for comment, code in cells(script):
            before = set(Path().glob("*.png"))
            printed = _run(code, script.name, namespace)
            parts += [comment, fenced(code, "python"), fenced(printed, "text")]
            for path in sorted(set(Path().glob("*.png")) - before):
                name = f"{script.stem}-{path.name}"
                shutil.copy(path, images / name)
                parts.append(f"![{path.stem}](../images/{name})")
    return "\n\n".join(part for part in parts if part) + "\n"


def _run(code: str, name: str, namespace: dict[str, Any]) -> str:
    """Run code of this repository and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), namespace)
    return "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())


def fenced(content: str, language: str) -> str:
    """A block of code, or nothing if there is none.

    Args:
        content: of the block.
        language: of the block.
    """
    return f"```{language}\n{content}\n```" if content else ""


def write(names: Sequence[str]) -> None:
    """Write the pages of some examples.

    Args:
        names: of scripts, without suffix; all of them if there are none.
    """
    pages, images = DOCS / "gallery", DOCS / "images"
    for folder in (pages, images):
        folder.mkdir(exist_ok=True)
    for script in [EXAMPLES / f"{n}.py" for n in names] or sorted(EXAMPLES.glob("*.py")):
        print(script.stem, flush=True)
        page = NOTE.format(name=script.stem) * SMALL + tutorial(script, images)
        (pages / f"{script.stem}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])
