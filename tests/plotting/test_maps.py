"""Map projections: regions in one piece, a globe without a seam."""

import math

import numpy as np
import pytest
from helpers.figure_parts import corners, mesh, panels, random_points, truth_and_forecast
from matplotlib.tri import LinearTriInterpolator

from stonet.data.geometry import Points
from stonet.plotting import figures, maps


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
    assert axes.get_xlim() == (-180.0, 180.0)
    fine = mesh(axes)
    surface = LinearTriInterpolator(fine._triangulation, fine.get_array())
    lat = np.linspace(-60, 60, 25)
    west, east = (surface(np.full(25, side), lat) for side in (-179.999, 179.999))
    assert not np.ma.is_masked(west) and not np.ma.is_masked(east)
    np.testing.assert_allclose(west, east, atol=1e-3)


def test_degrees_are_labelled_as_on_maps():
    written = [maps._degrees(value, "WE") for value in (-30.0, 0.0, 200.0, 370.0)]
    assert written == ["30°W", "0°", "160°W", "10°E"]
