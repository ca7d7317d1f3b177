"""Map projections: regions in one piece, a globe without a seam."""

import math

import numpy as np
import pytest
from helpers.figure_parts import corners, mesh, panels, random_points, truth_and_forecast
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.tri import LinearTriInterpolator

from stonet.data.geometry import Points
from stonet.plotting import figures, maps
from stonet.plotting.projections import equal_earth


@pytest.mark.parametrize("centre", [0.0, 180.0, -100.0, 300.0])
def test_regions_stay_in_one_piece(centre):
    """Twenty degrees of longitude stay twenty degrees, also across Greenwich and the date line."""
    random = np.random.default_rng(0)
    lon = np.remainder(centre + random.uniform(-10, 10, 60), 360.0)
    points = Points(np.stack([random.uniform(40, 50, 60), lon], axis=1), "sphere")
    outside = Points(np.array([[45.0, centre - 12.0]]), "sphere")
    axes = panels(figures.snapshots(*truth_and_forecast(points), leads=[0], nodes=outside))[0, 0]
    west, east = axes.get_xlim()
    assert 15 < east - west < 22
    assert np.ptp(corners(axes)[:, 0]) < 20
    assert -5 < axes.lines[0].get_xdata()[0] - west < 0  # the sensor just west of the region
    assert axes.get_aspect() == pytest.approx(1 / math.cos(math.radians(45)), rel=0.01)


def test_the_globe_has_no_seam():
    """Both edges are the same meridian and show the same values."""
    truth, forecast = truth_and_forecast(random_points(400, "sphere"))
    axes = panels(figures.snapshots(truth, forecast, [0]))[0, 0]
    fine = mesh(axes)
    surface = LinearTriInterpolator(fine._triangulation, fine.get_array())
    lat = np.linspace(-60, 60, 25)
    edges = (
        equal_earth(np.stack([np.full(25, side), lat], axis=1)) for side in (-179.999, 179.999)
    )
    west, east = (surface(*edge.T) for edge in edges)
    assert not np.ma.is_masked(west) and not np.ma.is_masked(east)
    np.testing.assert_allclose(west, east, atol=0.02)  # triangles are bent by the projection
    assert axes.get_xlim()[1] == pytest.approx(
        equal_earth(np.array([[180.0, 0.0]]))[0, 0], abs=0.01
    )


def test_dots_lie_at_the_points_and_have_their_values():
    points, values = random_points(50, "sphere"), np.arange(50.0)
    values[3] = np.nan
    projection = maps.MapProjection.of(points)
    axes = Figure().subplots()
    projection.draw_dots(axes, points, values)
    dots, hollow = (part for part in axes.collections if isinstance(part, PathCollection))
    known = np.isfinite(values)
    np.testing.assert_allclose(dots.get_offsets(), projection.project(points)[known])
    np.testing.assert_array_equal(dots.get_array(), values[known])
    np.testing.assert_allclose(hollow.get_offsets(), projection.project(points)[~known])


@pytest.mark.parametrize("centre", [8.0, 175.0])
def test_coastlines_lie_in_the_box_of_a_region(centre):
    coordinates = np.stack([np.linspace(-48, -34, 20), np.linspace(centre - 6, centre + 6, 20)], 1)
    projection = maps.MapProjection.of(Points(coordinates, "sphere"))
    west, east, south, north = projection.box
    lines = projection.country_lines()["coast"]
    assert bool(lines) == (centre == 175.0)  # New Zealand; the South Atlantic has no coast there
    for line in lines:
        assert (line >= (west, south)).all() and (line <= (east, north)).all()


def test_a_plane_has_no_coast():
    assert maps.MapProjection.of(random_points()).country_lines() == {}
