"""The page by keyboard, with a screen reader, in the dark, on a phone."""

from __future__ import annotations

import pytest
from helpers.browser import Served

# Elements that can be used but have no name, and pairs of colours with too little contrast.
UNNAMED = """() => [...document.querySelectorAll("button, input, select, a, canvas[tabindex]")]
  .filter((one) => one.offsetParent && !(one.ariaLabel || one.textContent?.trim()
    || one.labels?.length)).map((one) => one.outerHTML)"""
CONTRAST = """() => {
  const light = (text) => {
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    probe.fillStyle = text;
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    const colour = getComputedStyle(one).backgroundColor;
    const opaque = !/, 0\\)$|\\/ |rgba/.test(colour);
    return opaque || !one.parentElement ? colour : ground(one.parentElement);
  };
  const poor = [];
  for (const one of document.querySelectorAll("header *, aside *, .timeline *, .legend *")) {
    const own = [...one.childNodes].some((part) => part.nodeType === 3 && part.data.trim());
    if (!own || !one.checkVisibility() || one.closest("svg, :disabled, .hidden, option")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${one.outerHTML.slice(0, 80)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def test_the_keyboard_is_enough(visit, europe: Served):
    page = visit(europe)
    keys = page.page.keyboard
    for _ in range(12):
        keys.press("Tab")
        if page.page.evaluate("document.activeElement.id") == "canvas":
            break
    else:
        raise AssertionError("the map is not reached by Tab")
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowDown", "ArrowUp"):
        keys.press(key)
    assert page.text("spoken")  # a place, or a station with its value
    keys.press("Enter")
    page.page.wait_for_selector("#chart svg .curve")
    before = page.permalink()["point"]
    keys.press("Shift+ArrowLeft")
    keys.press("Enter")
    page.until(f"!location.hash.includes('{before}')")
    keys.press("+")
    keys.press("0")
    keys.press("Space")
    page.page.get_by_role("button", name="Pause").wait_for()
    keys.press("Space")
    page.page.get_by_role("button", name="Play").wait_for()
    page.page.focus("#time")
    value = int(page.page.input_value("#time"))
    keys.press("ArrowLeft" if value > 0 else "ArrowRight")
    assert abs(int(page.page.input_value("#time")) - value) == 1
    assert "UTC" in (page.page.get_attribute("#time", "aria-valuetext") or "")


def test_a_screen_reader_is_told_everything(visit, europe: Served):
    page = visit(europe)
    page.ask("50.5, 9.25")
    assert page.page.evaluate(UNNAMED) == []
    assert page.page.get_attribute("#spoken", "aria-live") == "polite"
    assert page.text("spoken") == page.text("point-words")
    assert page.page.get_attribute("#alert", "role") == "alert"
    assert page.page.get_by_role("application", name="Map of stations and forecast").count() == 1
    chart = page.page.get_by_role("img", name="forecast with 50 and 90 percent bands")
    assert chart.count() == 1
    assert page.page.locator("html").get_attribute("lang") == "en"
    page.page.click("#point-table-box summary")
    table = page.page.get_by_role("table", name="t2m at 50.50° N, 9.25° E")
    assert table.get_by_role("columnheader").count() == 5
    assert table.get_by_role("rowheader").count() == 16


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(visit, europe: Served, scheme: str):
    page = visit(europe, color_scheme=scheme)
    page.ask("50.5, 9.25")
    assert page.page.evaluate(CONTRAST) == []


def test_dark_follows_the_system_and_the_button(visit, europe: Served):
    ground = "getComputedStyle(document.body).backgroundColor"
    page = visit(europe, color_scheme="dark")
    dark = page.page.evaluate(ground)
    page.page.get_by_role("button", name="Switch to light colours").click()
    light = page.page.evaluate(ground)
    assert light != dark
    page.page.reload()
    page.page.wait_for_selector("#legend-ticks span", state="attached")
    assert page.page.evaluate(ground) == light
    page.page.get_by_role("button", name="Switch to dark colours").click()
    assert page.page.evaluate(ground) == dark


def test_a_phone_shows_it_all(visit, europe: Served):
    phone = {"viewport": {"width": 375, "height": 720}, "has_touch": True, "is_mobile": True}
    page = visit(europe, **phone)
    page.wait_for_field()
    page.page.tap("#canvas", position={"x": 180, "y": 180})
    page.page.wait_for_selector("#chart svg .curve")
    wide = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    assert page.page.evaluate(wide) <= 375
    boxes = page.page.locator("button:visible, select:visible, #place, #issue").all()
    for box in boxes:
        shape = box.bounding_box()
        assert shape and shape["x"] >= 0 and shape["x"] + shape["width"] <= 375.5
        assert shape["height"] >= 30
