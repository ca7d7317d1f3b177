"""The page in a real browser: nothing fails, nothing is loaded, and its script does its work."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.report_runs import CHANNELS, Report

pytestmark = pytest.mark.long
BROWSER = shutil.which("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no chromium")
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def shown(browser: Any, spherical: Report, tmp_path: Path) -> Iterator[Any]:
    """The page at the width of a phone, in dark; problems are collected in `problems`."""
    path = tmp_path / "report.html"
    path.write_text(spherical.text, encoding="utf-8")
    context = browser.new_context(viewport={"width": 375, "height": 800}, color_scheme="dark")
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
    page.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "data:")) else problems.append(r.url),
    )
    page.goto(path.as_uri())
    yield page
    assert not problems
    context.close()


def test_it_fits_a_phone_and_follows_the_theme(shown: Any) -> None:
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    shown.click("#theme")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def test_channels_stations_tables_and_values(shown: Any, spherical: Report) -> None:
    assert shown.locator('.picker[data-series="1"]').is_hidden()
    shown.select_option("#channels select", "1")
    picker = shown.locator('.picker[data-series="1"]')
    assert picker.is_visible() and shown.locator('.picker[data-series="0"]').is_hidden()
    assert CHANNELS[1] in (picker.locator(".plot svg").text_content() or "")
    before = picker.locator("path.ink").last.get_attribute("d")
    picker.locator("select").select_option("3")
    assert picker.locator("path.ink").last.get_attribute("d") != before
    names = spherical.results.task.dataset.points.names
    chosen = names[int(spherical.results.cases.points[3])]
    assert picker.locator(".picked-name").text_content() == chosen

    table = shown.locator("#scores table").first
    column = spherical.page.section("scores").find("table")[0].find("th")
    number = [head.text for head in column].index("MAE")
    table.locator("th button").nth(number).click()
    values = table.locator("tbody tr").evaluate_all(
        "(rows, n) => rows.map((row) => Number(row.cells[n].dataset.value))", number
    )
    assert values == sorted(values)

    plot = shown.locator("#scores figure .plot:visible svg").first
    plot.scroll_into_view_if_needed()
    plot.hover()
    assert shown.locator("#tip").is_visible()
    assert spherical.results.model in (shown.locator("#tip").text_content() or "")
