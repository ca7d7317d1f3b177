"""Panels: one page without a network, whose symbols have their values."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.figure_parts import random_points, truth_and_forecast
from matplotlib.axes import Axes
from matplotlib.image import imread

from stonet.errors import UsageError
from stonet.plotting.fields import Tips, draw_lines, draw_map
from stonet.reporting.panels import Panel, check_panels, drawing, figure_of, page, write_panels

SVG = "{http://www.w3.org/2000/svg}"
FIELD, FORECAST = truth_and_forecast(random_points(count=12, kind="sphere"))


def draw_stations(axes: Axes) -> Tips:
    return draw_map(axes, FIELD, 0, 0)


def draw_series(axes: Axes) -> Tips:
    return draw_lines(axes, FIELD.take(np.arange(2)), 0)


MAP = Panel("a map", (4.0, 3.0), draw_stations)
SERIES = Panel("series", (4.0, 2.0), draw_series)


def test_every_symbol_has_its_value() -> None:
    root = ElementTree.fromstring(drawing(MAP))
    titles = [node.text for node in root.iter(f"{SVG}title")]
    assert titles == [f"{i}: {FIELD.values[0, i, 0]:.4g} K" for i in range(12)]
    assert root.get("aria-label") == "a map" and root.get("viewBox")
    assert root.get("width") is None  # as wide as the page
    marks = ElementTree.fromstring(drawing(SERIES)).iter(f"{SVG}title")
    assert len(list(marks)) == 2 * len(FIELD.times)


def test_a_page_needs_no_network_and_names_nothing_twice() -> None:
    made = page([MAP, SERIES, MAP], "<Title> & more", "a caption")
    assert not re.findall(r'(?:href|src)="(?!#|data:)|url\((?!#)|@import', made)
    assert "&lt;Title&gt; &amp; more" in made and made.count("<svg") == 3
    groups = re.findall(r'id="(values-[\w-]+)"', made)
    assert len(set(groups)) == len(groups) == 4


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_panels_are_written_in_the_format_of_the_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    write_panels([MAP, SERIES], path, "title")
    content = path.read_bytes()
    assert b"<svg" in content if suffix != ".png" else imread(path).shape[1] > 1000
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_panels_stand_beside_each_other_in_a_figure() -> None:
    figure = figure_of([SERIES, SERIES, SERIES], "title")
    assert len([axes for axes in figure.axes if axes.lines]) == 3
    assert figure.get_figwidth() == pytest.approx(8.0)


@pytest.mark.parametrize("name", ["x.jpg", "x", "missing/x.png"])
def test_names_that_cannot_be_drawn_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        check_panels(tmp_path / name)
