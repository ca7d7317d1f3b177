"""The files of the page fit together, and ask for nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.paths import ROOT

FOLDER = ROOT / "stonet" / "serving" / "page"
FILES = sorted(FOLDER.iterdir())
MODULES = [path for path in FILES if path.suffix == ".js"]
MAX_LINES = 280


class Outline(HTMLParser):
    """Ids, references and inline code of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.labelled: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.references += [found[name] or "" for name in ("src", "href") if name in found]
        naming = ("for", "aria-labelledby", "aria-describedby", "list")
        self.labelled += [found[name] or "" for name in naming if name in found]
        coded = [name for name, _ in attrs if name == "style" or name.startswith("on")]
        if coded or tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(self.get_starttag_text() or tag)


INDEX = Outline((FOLDER / "index.html").read_text())


def test_the_policy_of_contents_can_be_strict():
    assert INDEX.inline == []


def test_every_reference_is_to_a_file_of_the_page():
    for reference in INDEX.references:
        if reference.startswith("/static/"):
            assert (FOLDER / reference.removeprefix("/static/")).is_file(), reference
        else:
            assert reference.startswith("#") or reference == "/openapi.json"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_taken_from_elsewhere(path: Path):
    found = re.findall(r"[a-z]+://[^\s\"'`)]+|@import|url\(", path.read_text())
    assert set(found) <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_ids_are_unique_and_those_that_are_used_exist():
    assert len(INDEX.ids) == len(set(INDEX.ids))
    assert set(INDEX.labelled) <= set(INDEX.ids)
    source = "".join(path.read_text() for path in MODULES)
    used = re.findall(r"(?:part|getElementById)\(\"([\w-]+)\"\)", source)
    assert used and set(used) <= set(INDEX.ids)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_imports_name_what_modules_export(path: Path):
    for names, module in re.findall(r"import \{([^}]+)\} from \"\./(\w+\.js)\"", path.read_text()):
        source = (FOLDER / module).read_text()
        for name in names.split(","):
            assert re.search(rf"export (async )?(function|class|const) {name.strip()}\b", source)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_are_short_and_run_no_text_as_code(path: Path):
    source = path.read_text()
    assert source.count("\n") <= MAX_LINES
    assert not re.search(
        r"\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write", source
    )
