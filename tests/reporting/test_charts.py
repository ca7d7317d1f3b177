"""Charts and maps: markup is escaped, lines pass through their points, maps keep their shape."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.report_page import Page

from stonet.data.geometry import Points
from stonet.reporting.axes import (
    HEIGHT,
    WIDTH,
    Axes,
    Frame,
    lead_unit,
    round_numbers,
    tick_text,
    time_axis,
)
from stonet.reporting.blocks import Drawing
from stonet.reporting.charts import Band, Line, bar_chart, line_chart
from stonet.reporting.maps import MAX_POINTS, Canvas
from stonet.reporting.svg import ColourScale, dots_data, element, path_data

HOUR = 3600 * 10**9
AXES = Axes("title", "x <&>", "y")
NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def paths(drawing: Drawing, style: str) -> list[str]:
    """The `d` of all paths of a style."""
    return [e.attributes["d"] for e in Page(str(drawing.svg)).root.find("path", class_=style)]


def test_texts_and_values_of_elements_are_escaped() -> None:
    made = element("text", "a < b & c", class_='"><script>', x=1.0, text_anchor="end")
    (parsed,) = Page(str(made)).root.find("text")
    assert parsed.text == "a < b & c"
    assert parsed.attributes == {"class": '"><script>', "x": "1", "text-anchor": "end"}


def test_a_line_passes_through_its_points_and_breaks_where_one_is_missing() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0])
    y = np.array([1.0, np.nan, 3.0, 2.0])
    drawn = line_chart([Line("a", x, y, "c0")], AXES)
    frame = Frame.around(x, y, AXES)
    (d,) = paths(drawn, "line c0")
    assert d.count("M") == 2 and d.count("L") == 1
    places = np.array(list(map(float, NUMBERS.findall(d)))).reshape(-1, 2)
    known = [0, 2, 3]
    np.testing.assert_allclose(places[:, 0], frame.x(x)[known], atol=0.06)
    np.testing.assert_allclose(places[:, 1], frame.y(y)[known], atol=0.06)
    assert (places > 0).all() and (places < [WIDTH, HEIGHT]).all()
    assert "x <&>" in Page(str(drawn.svg)).root.text


def test_lines_of_different_positions_share_one_list_beside_the_pointer() -> None:
    one = Line("one", np.array([0.0, 2.0]), np.array([5.0, 6.0]))
    two = Line("two", np.array([1.0, 2.0]), np.array([7.0, np.nan]), "c1")
    hover = line_chart([one, two], AXES).hover
    assert hover["lines"] == [["one", "c0", [5.0, None, 6.0]], ["two", "c1", [None, 7.0, None]]]
    x = hover["x"]
    assert isinstance(x, list) and x == sorted(x) and len(x) == 3


def test_an_axis_is_logarithmic_where_errors_differ_by_orders() -> None:
    x = np.arange(4.0)
    frame = Frame.around(x, np.array([1e-5, 1e-4, 1e-3, 1e-2]), AXES)
    assert frame.log
    steps = np.diff(frame.y(np.array([1e-5, 1e-4, 1e-3, 1e-2])))
    np.testing.assert_allclose(steps, steps[0])
    assert not Frame.around(x, np.array([0.0, 1e-4, 1e-3, 1.0]), AXES).log
    assert all(frame.low[1] <= tick <= frame.high[1] for tick in frame.y_ticks())


def test_a_band_is_drawn_in_pieces_where_it_is_known() -> None:
    x = np.arange(6.0)
    low = np.array([0.0, 0.0, np.nan, 0.0, 0.0, np.nan])
    drawn = line_chart([Line("a", x, x)], AXES, band=Band(x, low, low + 1))
    (d,) = paths(drawn, "band")
    assert d.count("Z") == 2


def test_bars_have_the_heights_of_their_values() -> None:
    drawn = bar_chart(np.arange(3.0), np.array([1.0, 4.0, np.nan]), AXES, "n", 2.0)
    bars = Page(str(drawn.svg)).root.find("rect", class_="bar")
    first, second = (float(bar.attributes["height"]) for bar in bars)
    assert second == pytest.approx(4 * first, rel=1e-3)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 17.0), (1e-7, 3e-7), (5.0, 5.0)])
def test_round_numbers_lie_within_their_limits(low: float, high: float) -> None:
    ticks = round_numbers(low, high)
    assert 1 <= len(ticks) <= 8
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in ticks)


def test_ticks_and_leads_are_short_texts() -> None:
    assert [tick_text(v) for v in (0.0, 0.0001, 0.25, 120.0, -2e6)] == [
        "0", "1e-4", "0.25", "120", "-2e6",
    ]  # fmt: skip
    assert lead_unit(HOUR, 12) == ("h", 1.0) and lead_unit(24 * HOUR, 7) == ("days", 1.0)
    assert lead_unit(10**6, 4) == ("ms", 1.0) and lead_unit(15 * 60 * 10**9, 4) == ("min", 15.0)


def test_ticks_of_times_lie_at_their_dates() -> None:
    start = np.datetime64("2024-12-30", "ns").astype(np.int64)
    place, ticks = time_axis(start + HOUR * np.arange(96), True)
    labels = {text: at for at, text in ticks}
    assert labels["31 Dec"] == pytest.approx(place[24]) and "1 Jan" in labels
    seconds, _ = time_axis(np.array([0, 10**9]), False)
    assert seconds.tolist() == [0.0, 1.0]


def test_missing_points_have_no_dot() -> None:
    x = np.array([1.0, np.nan, 3.0])
    assert dots_data(x, x) == "M1.0 1.0h0M3.0 3.0h0" and path_data(x[1:2], x[1:2]) == ""


def test_maps_keep_distances_and_directions() -> None:
    places = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    points = Points(places, "plane")
    pixels = Canvas.of(points).pixels(points)
    scale = (pixels[1, 0] - pixels[0, 0]) / 3
    assert scale > 0
    expected = pixels[0] + scale * places * [1, -1]
    np.testing.assert_allclose(pixels, expected)
    lat_lon = Points(np.array([[60.0, 0.0], [60.0, 2.0], [61.0, 0.0], [59.0, 0.0]]), "sphere")
    pixels = Canvas.of(lat_lon).pixels(lat_lon)
    east, north = pixels[1, 0] - pixels[0, 0], pixels[0, 1] - pixels[2, 1]
    assert north == pytest.approx(east, rel=0.01)  # at 60 degrees, 2 of longitude are 1 of latitude


def test_a_map_shows_every_point_once_and_says_which_have_no_value() -> None:
    rng = np.random.default_rng(0)
    points = Points(rng.uniform(size=(50, 2)), "plane")
    values = np.where(np.arange(50) < 10, np.nan, np.arange(50.0))
    held_out = np.arange(50) % 2 == 0
    drawn = Canvas.of(points, held_out).map(values, ColourScale.of(values, "u"), "t")
    dots = [e for e in Page(str(drawn.svg)).root.find("path") if e.attributes["class"] == "dot"]
    assert sum(e.attributes["d"].count("M") for e in dots) == 40
    assert sum(d.count("M") for d in paths(drawn, "dot ring")) == 20
    assert (
        sum(d.count("M") for s in ("hollow", "hollow held-out") for d in paths(drawn, f"dot {s}"))
        == 10
    )
    shown = drawn.hover["values"]
    assert isinstance(shown, list) and shown[:10] == [None] * 10 and shown[49] == 49.0


def test_maps_of_very_many_points_stay_small() -> None:
    rng = np.random.default_rng(0)
    points = Points(rng.uniform([-80, -180], [80, 180], size=(20_000, 2)), "sphere")
    canvas = Canvas.of(points)
    assert len(canvas.shown) == MAX_POINTS
    values = rng.normal(size=20_000)
    drawn = canvas.map(values, ColourScale.symmetric(values, "K"), "t")
    assert len(str(drawn.svg)) < 150_000


def test_colours_end_at_the_ends_of_the_scale() -> None:
    scale = ColourScale(0.0, 1.0, "viridis", "u")
    low, high, beyond = scale.colours(np.array([0.0, 1.0, 9.0]), 10)
    assert low != high and high == beyond
    picture = scale.image(np.array([[0.0, np.nan]]))
    assert picture.startswith("data:image/png;base64,")
