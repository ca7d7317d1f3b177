"""Equal Earth: equal areas, symmetry, and the published size of the map."""

import itertools

import numpy as np
import pytest

from stonet.plotting.projections import equal_earth, graticule, outline


def area(polygon):
    x, y = polygon.T
    return 0.5 * abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))


@pytest.mark.parametrize("south", [-85.0, -40.0, 0.0, 55.0])
def test_areas_are_those_of_the_sphere(south):
    """A cell of 20 by 10 degrees has the area that it has on the unit sphere."""
    share = np.linspace(0, 1, 400)[:, None]
    corners = np.array([[10, south], [30, south], [30, south + 5], [10, south + 5], [10, south]])
    edge = np.concatenate([a + share * (b - a) for a, b in itertools.pairwise(corners)])
    low, high = np.deg2rad([south, south + 5])
    expected = np.deg2rad(20) * (np.sin(high) - np.sin(low))
    assert area(equal_earth(edge)) == pytest.approx(expected, rel=1e-4)


def test_the_whole_map_has_the_area_of_the_sphere():
    assert area(outline()) == pytest.approx(4 * np.pi, rel=1e-3)


def test_the_map_is_symmetric():
    place = np.array([[73.0, 41.0]])
    ((x, y),) = equal_earth(place)
    np.testing.assert_allclose(equal_earth(-place), [[-x, -y]])
    np.testing.assert_allclose(equal_earth(place * (1, -1)), [[x, -y]])


def test_the_size_is_the_published_one():
    """Equator to pole and centre to edge, of the authors' table: 1.3173627591574 and 2.7066."""
    assert equal_earth(np.array([[0.0, 90.0]]))[0, 1] == pytest.approx(1.3173627591574, abs=1e-9)
    assert equal_earth(np.array([[180.0, 0.0]]))[0, 0] == pytest.approx(2.7066299836, abs=1e-9)


def test_the_graticule_lies_within_the_outline():
    limit = np.abs(outline()).max(axis=0)
    assert all((np.abs(line) <= limit + 1e-9).all() for line in graticule())
