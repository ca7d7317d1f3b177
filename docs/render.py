"""Pages made at build time: the settings and the commands. `gallery.py` makes the tutorials."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from gallery import fenced

from stonet.cli import app
from stonet.config import settings_table


def write_pages(folder: Path) -> None:
    """Write all generated pages.

    Args:
        folder: to write into; its content is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "settings.md").write_text(settings(), encoding="utf-8")
    (folder / "commands.md").write_text(commands(), encoding="utf-8")


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
    lines = [f"## {path}", "", command.help, "", fenced(usage, "text"), ""]
    return [*lines, *_table(("argument or option", "meaning"), rows), ""]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a Markdown table; bars in cells are escaped."""
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
