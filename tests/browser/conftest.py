"""The page of `stonet serve` in a real browser: two small runs, two servers, one Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.browser import Served, Visit, stonet_command
from helpers.weather_stations import valid_field

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium: that of STONET_CHROMIUM, or the first on the path."""
    from playwright.sync_api import sync_playwright

    named = os.environ.get("STONET_CHROMIUM")
    path = named or next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(f"no Chromium: install {NAMES[0]}, or set STONET_CHROMIUM to its path")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


def served(folder: Path, run: Path, data: str, *words: str) -> Iterator[Served]:
    """A server in its own process, until the tests are over."""
    command = [sys.executable, "-m", "stonet", "serve", str(run), data, "--port", "0", "--json"]
    command += words
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "serve.log").read_text()
        yield Served(json.loads(line)["url"], run, data)
        process.terminate()
        process.stdout.close()
        assert process.wait(30) in (0, -15)


@pytest.fixture(scope="session")
def europe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Forty stations in central Europe with four variables, by the hour."""
    folder = tmp_path_factory.mktemp("europe")
    data, run = folder / "stations.nc", folder / "run"
    valid_field().to_netcdf(data)
    stonet_command("fit", data, "-o", run, "--preset", "tiny")
    yield from served(folder, run, str(data))


@pytest.fixture
def guarded(tmp_path: Path, europe: Served) -> Iterator[Served]:
    """A server of its own that asks for the token "a-token-of-the-tests"; it outlives `visit`."""
    token = tmp_path / "token"
    token.write_text("a-token-of-the-tests\n")
    yield from served(tmp_path, europe.run, europe.data, "--token-file", str(token))


@pytest.fixture(scope="session")
def wave(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The embedded data on a plane, without a calendar."""
    folder = tmp_path_factory.mktemp("wave")
    stonet_command("fit", "wave", "-o", folder / "run", "--preset", "tiny")
    yield from served(folder, folder / "run", "wave")


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """visit(served): a new page; in the end, that nothing went wrong and nothing left it."""
    visits: list[Visit] = []

    def open_page(server: Served, address: str = "", **options: object) -> Visit:
        visits.append(Visit(browser, server, address, options))
        return visits[-1]

    yield open_page
    for each in visits:
        each.close()
    for each in visits:
        each.check()
