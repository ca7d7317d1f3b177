"""A visit to the page of `stonet serve`, and what it must never do."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MINUS = "\N{MINUS SIGN}"  # as the page writes it
# Numbers of the pixels of the canvas: how many colours of stations and field it shows.
COLOURS = """() => {
  const canvas = document.getElementById("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let k = 0; k < data.length; k += 4) {
    found.add((data[k] << 16) | (data[k + 1] << 8) | data[k + 2]);
  }
  return found.size;
}"""


def stonet_command(*words: str | Path) -> None:
    """Run `stonet ...` in a process of its own."""
    command = [sys.executable, "-m", "stonet", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of forecasts; names of columns without units."""
    with path.open() as file:
        return [{name.partition(" (")[0]: cell for name, cell in row.items()}
                for row in csv.DictReader(file)]  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A server: its address, its run and its data."""

    url: str
    run: Path
    data: str

    def predicted(self, folder: Path, *words: str) -> list[dict[str, str]]:
        """The rows that `stonet predict` writes for the same run and data."""
        path = folder / "predicted.csv"
        stonet_command("predict", self.run, self.data, "-o", path, *words)
        return csv_rows(path)


@dataclass
class Visit:
    """A page in a context of its own, and what it asked for."""

    browser: Browser
    server: Served
    address: str
    options: dict[str, Any]
    requests: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    expected: str = "nothing"  # pattern of troubles that a test provokes
    token: str = ""  # that the page asks for

    def __post_init__(self) -> None:
        self.expected = self.options.pop("expected", self.expected)
        self.token = self.options.pop("token", self.token)
        settings = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True}
        self.context = self.browser.new_context(**(settings | self.options))
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._console)
        self.page.goto(self.server.url + self.address)
        if self.token:
            self.page.fill("#token", self.token)
            self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#legend-ticks span", state="attached")

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)

    def close(self) -> None:
        self.context.close()

    def check(self) -> None:
        """No error in the console, and no request to another place."""
        unexpected = [text for text in self.troubles if not re.search(self.expected, text)]
        assert not unexpected, unexpected
        own = urlsplit(self.server.url)[:2]
        assert {urlsplit(url)[:2] for url in self.requests if not url.startswith("blob:")} == {own}

    def text(self, name: str) -> str:
        """The text of the element with this id."""
        return self.page.locator(f"#{name}").inner_text()

    def number(self, name: str) -> str:
        """The first number of an element, with a plain minus."""
        found = re.search(r"-?\d+(\.\d+)?", self.text(name).replace(MINUS, "-"))
        assert found, self.text(name)
        return found.group()

    def colours(self) -> int:
        """How many colours the map shows."""
        return self.page.evaluate(COLOURS)

    def until(self, expression: str) -> None:
        """Wait until JavaScript is true. The CSP forbids the eval of Playwright's own wait."""
        for _ in range(1200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {expression}")

    def wait_for_field(self) -> None:
        """Until the field is drawn: far more colours than stations."""
        self.until(f"({COLOURS})() > 800")

    def ask(self, place: str) -> None:
        """Type a place, and wait for its forecast."""
        self.page.fill("#place", place)
        self.page.click("#place-form button")
        self.page.wait_for_selector("#chart svg .curve")
        self.until("document.getElementById('busy').hidden")

    def permalink(self) -> dict[str, str]:
        """The parts of the address after #."""
        parts = urlsplit(self.page.url).fragment.split("&")
        return dict(part.split("=", 1) for part in parts)  # type: ignore[misc]

    def table(self, name: str) -> list[list[str]]:
        """The cells of a table, with plain minus signs."""
        rows = self.page.locator(f"#{name} tr").all()
        return [
            [text.replace(MINUS, "-") for text in row.locator("th, td").all_text_contents()]
            for row in rows
        ]
