"""Pages made at build time: the tutorials with their output, the settings, the commands.

The tutorials are the scripts in examples/. A line `# %%` begins a cell: comment lines, which become
text, then code, which is run. What it prints and the figures it saves follow the code.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import tempfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from stonet.cli import app
from stonet.config import settings_table

ROOT = Path(__file__).parents[1]
CELL = re.compile(r"^# %%.*\n", re.MULTILINE)


def write_pages(folder: Path) -> None:
    """Write all generated pages.

    Args:
        folder: to write into; its content is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for script in sorted((ROOT / "examples").glob("*.py")):
        (folder / f"{script.stem}.md").write_text(tutorial(script, folder), encoding="utf-8")
    (folder / "settings.md").write_text(settings(), encoding="utf-8")
    (folder / "commands.md").write_text(commands(), encoding="utf-8")


def tutorial(script: Path, figures: Path) -> str:
    """Run an example cell by cell; text, code, output and figures as Markdown."""
    _, *cells = CELL.split(script.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in cells:
            comment, code = _text_and_code(cell)
            before = set(Path().glob("*.png"))
            printed = _run(code, script.name, namespace)
            parts += [comment, _fenced(code, "python"), _fenced(printed, "text")]
            for path in sorted(set(Path().glob("*.png")) - before):
                name = f"{script.stem}-{path.name}"
                shutil.copy(path, figures / name)
                parts.append(f"![{path.stem}](/_generated/{name})")
    return "\n\n".join(part for part in parts if part) + "\n"


def _text_and_code(cell: str) -> tuple[str, str]:
    """The comment that opens a cell, without its signs, and the code."""
    lines = cell.splitlines()
    count = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    text = "\n".join(line.removeprefix("#").strip() for line in lines[:count])
    return text, "\n".join(lines[count:]).strip()


def _run(code: str, name: str, namespace: dict[str, Any]) -> str:
    """Run code of this repository and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue().rstrip()


def _fenced(content: str, language: str) -> str:
    return f"```{language}\n{content}\n```" if content else ""


def settings() -> str:
    """A table of settings for each section of the configuration."""
    parts = []
    for section, rows in groupby(settings_table(), key=lambda row: row.section):
        table = (
            (f"`{row.key}`", f"`{row.default or '(empty)'}`", row.type, row.description)
            for row in rows
        )
        title = f"## {section}" if section else "## without a section"
        parts += [title, "", *_table(("key", "default", "type", "meaning"), table), ""]
    return "\n".join(parts)


def commands() -> str:
    """Usage and options of each command of the program."""
    return "\n".join(_command("stonet", typer.main.get_command(app)))


def _command(path: str, command: Any) -> list[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        return [
            line for name, one in subcommands.items() for line in _command(f"{path} {name}", one)
        ]
    context = command.context_class(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [(f"`{names}`", text) for names, text in filter(None, records)]
    lines = [f"## {path}", "", command.help, "", _fenced(usage, "text"), ""]
    return [*lines, *_table(("argument or option", "meaning"), rows), ""]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a Markdown table; bars in cells are escaped."""
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
