"""The documentation is true: examples run, and paths, commands, names and settings exist."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer
from helpers.paths import ROOT
from helpers.weather_stations import valid_field

import stonet
from stonet.cli import app
from stonet.config import settings_table

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GENERATED = {"results.md", "performance.md"}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for path in sorted((ROOT / "docs").glob("[!_]*.md")) if path.name not in GENERATED),
    *sorted((ROOT / "docs").glob("[!_]*/*.md")),
]
EXTENDING = ROOT / "docs" / "howto" / "extending.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in these languages; "" is a block without one."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [code for language, code in found if language in languages]


def run(*command: str | Path, folder: Path, path: Path | None = None) -> str:
    """What a command prints in a folder, with `path` to import from as well."""
    places = [str(ROOT), *([str(path)] if path else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "MPLBACKEND": "Agg"}
    environment["TUTORIAL"] = "small"
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    assert run("-W", "error", script, folder=tmp_path)
    if script.stem == "stations_to_map":
        grid = stonet.read(tmp_path / "map.nc")
        assert len(grid.points) == 21 * 41 and np.isfinite(grid.values).all()


def test_every_example_has_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "tutorials").glob("*.md"))
    assert EXAMPLES and all(f"gallery/{script.stem}.md" in pages for script in EXAMPLES)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_the_gallery_shows_the_code_of_the_scripts_and_small_figures(script: Path) -> None:
    page = ROOT / "docs" / "gallery" / f"{script.stem}.md"
    shown = [code.strip() for code in blocks(page, "python")]
    cells = re.split(r"^# %%.*\n", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    written = [re.sub(r"\A(#.*\n)*", "", cell).strip() for cell in cells]
    hint = f"the page is older than the script: make gallery ARGS={script.stem}"
    assert shown == [code for code in written if code], hint
    figures = re.findall(r"!\[.*\]\(\.\./(images/.*)\)", page.read_text(encoding="utf-8"))
    saved = re.findall(r"\"(\S+)\.png\"", script.read_text(encoding="utf-8"))
    assert {f"images/{script.stem}-{name}.png" for name in saved} == set(figures)
    for figure in figures:
        assert (ROOT / "docs" / figure).stat().st_size < 150_000


def test_the_documented_model_keeps_the_contract_and_joins_compare(tmp_path: Path) -> None:
    model, use, data = blocks(EXTENDING, "python")
    package = tmp_path / "site"
    info = package / "nearest-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "nearest.py").write_text(model)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nearest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stonet.models]\nnearest = nearest:Nearest\n")
    valid_field(frames=150, stations=12).to_csv(tmp_path / "data.csv")
    other_name = use.replace('register_model("nearest"', 'register_model("near"')
    (tmp_path / "use.py").write_text(f"{other_name}\n{data}")
    run("use.py", folder=tmp_path, path=package)
    command = "-m stonet compare data.csv --variables t2m --models nearest,persistence --epochs 1 "
    options = "--preset tiny --json"
    assert '"model": "nearest"' in run(*(command + options).split(), folder=tmp_path, path=package)


def known_commands() -> dict[tuple[str, ...], set[str]]:
    """The options of each command, by its words."""
    found = {}
    root = typer.main.get_command(app)
    waiting = [((name,), command) for name, command in root.commands.items()]
    for words, command in waiting:
        if hasattr(command, "commands"):
            waiting += [((*words, name), one) for name, one in command.commands.items()]
        found[words] = {option for parameter in command.params for option in parameter.opts}
    return found


def command_lines(page: Path) -> list[list[str]]:
    """The words after `stonet` of each command in the blocks of a page."""
    text = "\n".join(blocks(page, "", "bash", "sh")).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines() if "stonet " in line]
    programs = [[n for n, word in enumerate(line) if word == "stonet"] for line in lines]
    return [line[n[-1] + 1 :] for line, n in zip(lines, programs, strict=True) if n]


@EVERY_PAGE
def test_commands_and_options_exist(page: Path) -> None:
    known = known_commands()
    for words in command_lines(page):
        name = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in known), None)
        if words[:1] == ["COMMAND"] or not words:
            continue
        assert name is not None, f"no such command: stonet {' '.join(words)}"
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known[name] | {"-h", "--help"}, f"stonet {' '.join(words)}"


@EVERY_PAGE
def test_imported_names_exist(page: Path) -> None:
    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            match node:
                case ast.ImportFrom(module=str(module)) if module.startswith("stonet"):
                    assert all(hasattr(import_module(module), name.name) for name in node.names)
                case ast.Attribute(value=ast.Name(id="stonet"), attr=name):
                    assert hasattr(stonet, name), f"stonet.{name}"


def test_the_reference_shows_all_public_names() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    shown = {path.rpartition(".")[2] for path in re.findall(r"auto\w+:: ([\w.]+)", page)}
    assert {name for name in stonet.__all__ if not name.startswith("_")} <= shown


@EVERY_PAGE
def test_named_settings_exist(page: Path) -> None:
    keys = {f"{row.section}.{row.key}" for row in settings_table()}
    sections = "|".join(sorted({row.section for row in settings_table() if row.section}))
    named = re.findall(rf"(?:`|--set )((?:{sections})\.[a-z_]+)(?=[`=])", page.read_text())
    assert set(named) <= keys


@EVERY_PAGE
def test_paths_in_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = re.findall(
        r"`((?:stonet|tests|docs|benchmarks|examples)/[\w/]+\.(?:py|md|json))`", text
    )
    missing = [name for name in files if not (ROOT / name).exists()]
    links = re.findall(r"\]\(([^)#:]+\.(?:md|png))(?:#[^)]*)?\)", text)
    missing += [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_pages_named_in_the_code_exist() -> None:
    files = [ROOT / "Makefile", *ROOT.glob("stonet/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    named = set(re.findall(r"\bdocs/[\w/-]+\.(?:md|json)\b", text))
    assert named and all((ROOT / name).exists() for name in named)
