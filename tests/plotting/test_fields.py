"""Maps and series of fields: what is drawn are the values, on axes that are given or new."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers.figure_parts import HOUR, START, random_points, truth_and_forecast
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.errors import UsageError
from stonet.plotting.fields import draw_map
from stonet.plotting.projections import equal_earth
from stonet.plotting.surfaces import cell_edges


def grid_field(kind: str = "plane", rows: int = 5, columns: int = 8) -> Field:
    """Two channels on a grid, at two times."""
    y, x = np.meshgrid(np.linspace(10, 14, rows), np.linspace(170, 184, columns), indexing="ij")
    pairs = (y, x) if kind == "sphere" else (x, y)
    points = Points(np.stack([part.ravel() for part in pairs], axis=1), kind)  # type: ignore[arg-type]
    values = np.random.default_rng(0).normal(size=(2, rows * columns, 2)).astype(np.float32)
    units = {"channels": ("t2m", "wind"), "units": ("K", "m s-1")}
    return Field(values, START + HOUR * np.arange(2), points, **units)  # type: ignore[arg-type]


def only(axes: Axes, kind: type) -> object:
    (found,) = [artist for artist in axes.collections if isinstance(artist, kind)]
    return found


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_stations_are_dots_coloured_by_their_values(kind: str) -> None:
    field, _ = truth_and_forecast(random_points(kind=kind))
    axes = field.plot(time="2020-01-01T03")
    dots = only(axes, PathCollection)
    np.testing.assert_allclose(dots.get_array(), field.values[2, :, 0])  # type: ignore[attr-defined]
    assert axes.get_title().startswith("2020-01-01 03:00")
    bar = axes.figure.axes[-1]
    assert bar.get_xlabel() == "t2m (K)"


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_a_grid_is_drawn_as_cells_around_its_points(kind: str) -> None:
    """Also across the date line: each cell has the value of the point in its middle."""
    field = grid_field(kind)
    axes = field.plot(channel="wind")
    mesh = only(axes, QuadMesh)
    corners = mesh.get_coordinates()  # type: ignore[attr-defined]
    middles = (corners[1:, 1:] + corners[:-1, :-1]).reshape(-1, 2) / 2
    x, y = field.points.coordinates.T[:: -1 if kind == "sphere" else 1]
    np.testing.assert_allclose(middles[:, 1], y, atol=1e-9)
    np.testing.assert_allclose(np.remainder(middles[:, 0] - x + 180, 360), 180, atol=1e-9)
    drawn = mesh.get_array()  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.ravel(drawn), field.values[-1, :, 1])
    assert axes.figure.axes[-1].get_xlabel() == "wind (m s-1)"


def test_a_grid_around_the_globe_reaches_both_edges() -> None:
    latitude, longitude = np.meshgrid(np.arange(-80, 81, 20), np.arange(-180, 180, 30))
    points = Points(np.stack([latitude.ravel(), longitude.ravel()], 1).astype(float), "sphere")
    values = np.arange(len(points), dtype=np.float32)[None, :, None]
    axes = Field(values, np.array([START]), points).plot()
    x = only(axes, QuadMesh).get_coordinates()[..., 0]  # type: ignore[attr-defined]
    east = equal_earth(np.array([[180.0, 0.0]]))[0, 0]
    assert x.min() <= -east and x.max() >= east


def test_missing_cells_are_empty() -> None:
    field = grid_field()
    values = np.array(field.values)
    values[-1, 3, 0] = np.nan
    axes = Field(values, field.times, field.points, field.channels).plot()
    drawn = np.ma.ravel(only(axes, QuadMesh).get_array())  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.flatnonzero(np.ma.getmaskarray(drawn)), [3])


def test_named_stations_are_drawn_as_series() -> None:
    field, _ = truth_and_forecast(random_points())
    axes = field.plot(stations=["3", "1"])
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert list(lines) == ["3", "1"]
    np.testing.assert_allclose(lines["3"], field.values[:, 3, 0])
    assert axes.get_xlabel() == "time (UTC)" and axes.get_ylabel() == "t2m (K)"


def test_a_single_station_is_a_series() -> None:
    field, _ = truth_and_forecast(random_points(count=1))
    assert len(field.plot().lines) == 1


def test_intervals_are_bands_around_the_forecast() -> None:
    _, forecast = truth_and_forecast(random_points())
    spread = np.array([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=np.float32)[:, None, None, None]
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    axes = QuantileField(forecast, levels, forecast.values + spread).plot(stations="4")
    wide, narrow = axes.collections
    for band, half in ((wide, 2.0), (narrow, 1.0)):
        y = band.get_paths()[0].vertices[:, 1]
        values = forecast.values[:, 4, 0]
        assert y.max() == pytest.approx(values.max() + half, abs=1e-5)
        assert y.min() == pytest.approx(values.min() - half, abs=1e-5)
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == ["90 % interval", "50 % interval", "forecast"]


def test_given_axes_are_used_and_returned() -> None:
    field, _ = truth_and_forecast(random_points())
    left, right = Figure().subplots(1, 2)
    assert field.plot(ax=left) is left and field.plot(ax=right, stations="0") is right
    assert left.collections and right.lines


def test_texts_name_each_station_and_its_value() -> None:
    field = truth_and_forecast(random_points(count=20))[0]
    values = np.array(field.values)
    values[0, 7] = np.nan
    field = Field(values, field.times, field.points, ("t2m",), units=("K",))
    ((_, texts),) = draw_map(Figure().subplots(), field, 0, 0)
    assert len(texts) == 19 and texts[0] == f"0: {values[0, 0, 0]:.4g} K"
    assert texts[7].startswith("8:")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"channel": "t2"}, "t2m"),
        ({"time": "2021"}, "nearest"),
        ({"stations": "nowhere"}, "nowhere"),
        ({"stations": [str(i) for i in range(9)]}, "9 series"),
        ({"stations": "1", "time": "2020-01-01T03"}, "map"),
    ],
)
def test_what_does_not_exist_is_refused(options: dict, word: str) -> None:
    field, _ = truth_and_forecast(random_points())
    with pytest.raises(UsageError, match=word):
        field.plot(**options)


def test_cell_edges_lie_half_way() -> None:
    np.testing.assert_allclose(cell_edges(np.array([0.0, 1.0, 3.0])), [-0.5, 0.5, 2.0, 4.0])


def test_plots_leave_no_figure_in_pyplot() -> None:
    code = (
        "import numpy as np, sys\n"
        "from stonet.data.field import Field\n"
        "from stonet.data.geometry import Points\n"
        "points = Points(np.random.default_rng(0).random((5, 2)))\n"
        "Field(np.ones((2, 5, 1), np.float32), np.arange(2) * 10**9, points).plot()\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
