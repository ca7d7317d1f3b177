"""The page's own mathematics, against Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.browser import Served, Visit
from matplotlib import colormaps

from stonet.plotting.projections import equal_earth


def computed(page: Visit, module: str, code: str, argument: object = None) -> Any:
    """What JavaScript gives; `m` is a module of the page and `x` the argument."""
    found = f"async (x) => {{ const m = await import('/static/{module}.js'); return {code}; }}"
    return page.page.evaluate(found, argument)


def test_equal_earth_is_that_of_the_figures(visit, europe: Served):
    page = visit(europe)
    latitude, longitude = np.random.default_rng(0).uniform((-90, -180), (90, 180), (200, 2)).T
    there = computed(
        page, "projection", "x.map((p) => new m.EqualEarth().forward(p))",
        np.stack([latitude, longitude], 1).tolist(),
    )  # fmt: skip
    expected = equal_earth(np.stack([longitude, latitude], 1))
    assert np.abs(np.array(there) - expected).max() < 1e-9
    back = computed(page, "projection", "x.map((p) => new m.EqualEarth().inverse(...p))", there)
    assert np.abs(np.array(back) - np.stack([latitude, longitude], 1)).max() < 1e-6


def test_a_region_across_the_date_line_comes_back(visit, europe: Served):
    page = visit(europe)
    code = """x.map((p) => {
      const made = m.projectionFor("sphere", { lat: [-48, -10], lon: [165, 195] });
      return made.inverse(...made.forward(p));
    })"""
    points = [[-41.3, 174.8], [-18.1, 178.4], [-13.8, -171.8], [-21.1, -175.2]]
    assert np.allclose(computed(page, "projection", code, points), points, atol=1e-9)


def test_colours_are_viridis(visit, europe: Served):
    table = np.array(computed(visit(europe), "colour", "m.TABLE"))
    expected = colormaps["viridis"](np.arange(256))[:, :3] * 255
    assert np.abs(table - expected).max() <= 3  # of 255


@pytest.mark.parametrize(
    ("seconds", "words", "query"),
    [
        (21600, "+6 h", "+21600s"),
        (5400, "+1 h 30 min", "+5400s"),
        (0.00025, "+250 µs", "+0.00025s"),
        (345600, "+4 d", "+345600s"),
    ],
)
def test_leads_in_words_and_for_the_service(
    visit, europe: Served, seconds: float, words: str, query: str
):
    page = visit(europe)
    assert computed(page, "clock", "[m.leadWords(x), m.leadQuery(x)]", seconds) == [words, query]


def test_units_are_written_as_people_write_them(visit, europe: Served):
    given = ["degC", "m s-1", "W m-2", "1", "%", "kg m**-2", "hPa"]
    shown = ["°C", "m s⁻¹", "W m⁻²", "", "%", "kg m⁻²", "hPa"]
    assert computed(visit(europe), "words", "x.map(m.unitWords)", given) == shown
