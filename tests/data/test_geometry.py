"""Points and distances against high-precision arithmetic and known distances on the globe."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import config as shape_checks

from stonet.data.geometry import EARTH_RADIUS_KM, GEOMETRIES, Plane, Points, Sphere
from stonet.errors import DataError

SPHERE, PLANE = Sphere(), Plane()
LATITUDES, LONGITUDES = st.floats(-90, 90), st.floats(-180, 180)


def on_sphere(*places: tuple[float, float]) -> np.ndarray:
    """Each place embedded, (place, 1, 3)."""
    return SPHERE.embed(np.array(places, dtype=np.float64))[:, None]


def scattered(number: int, seed: int = 0) -> np.ndarray:
    """Uniform on the globe, (point, 3)."""
    generator = np.random.default_rng(seed)
    lat = np.degrees(np.arcsin(generator.uniform(-1, 1, number)))
    return SPHERE.embed(np.stack([lat, generator.uniform(-180, 360, number)], axis=1))


def exact_distance(first: tuple[float, float], second: tuple[float, float]) -> mpmath.mpf:
    """The haversine formula in 50 digits."""
    with mpmath.workdps(50):
        lat1, lon1, lat2, lon2 = (mpmath.radians(mpmath.mpf(v)) for v in (*first, *second))
        half = mpmath.sin((lat2 - lat1) / 2) ** 2
        half += mpmath.cos(lat1) * mpmath.cos(lat2) * mpmath.sin((lon2 - lon1) / 2) ** 2
        return 2 * mpmath.asin(mpmath.sqrt(half))


# Distances on the sphere


@settings(max_examples=200)
@given(LATITUDES, LONGITUDES, LATITUDES, LONGITUDES)
def test_distance_equals_high_precision(lat, lon, other_lat, other_lon):
    first, second = on_sphere((lat, lon), (other_lat, other_lon))
    exact = float(exact_distance((lat, lon), (other_lat, other_lon)))
    assert SPHERE.distance(first, second) == pytest.approx(exact, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("lat", [0.0, 45.0, -60.0, 89.0])
@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, 1.0)])
def test_a_distance_of_one_metre_is_accurate_to_a_nanometre(lat, direction):
    degree = np.degrees(1e-3 / EARTH_RADIUS_KM)  # one metre
    other = (lat + degree * direction[0], 7.0 + degree * direction[1])
    first, second = on_sphere((lat, 7.0), other)
    exact = float(exact_distance((lat, 7.0), other))
    assert SPHERE.distance(first, second) == pytest.approx(exact, rel=1e-9)


def test_a_point_is_at_distance_zero_from_itself_and_pi_from_its_antipode():
    points = scattered(100_000)
    assert (SPHERE.distance(points, points) == 0).all()
    np.testing.assert_allclose(SPHERE.distance(points, -points), np.pi, rtol=1e-15)
    pairs = SPHERE.distance(points, np.roll(points, 1, axis=0))
    assert np.isfinite(pairs).all()
    assert pairs.min() > 0 and pairs.max() <= SPHERE.diameter


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_distance_is_a_metric(kind):
    geometry = GEOMETRIES[kind]
    x, y, z = (scattered(5000, seed)[:, : geometry.dimension] for seed in range(3))
    assert np.array_equal(geometry.distance(x, y), geometry.distance(y, x))
    longer = geometry.distance(x, y) + geometry.distance(y, z)
    assert (geometry.distance(x, z) <= longer * (1 + 1e-14)).all()


def test_quarter_turns_have_length_pi_over_two():
    pole, greenwich, east, south = on_sphere((90, 0), (0, 0), (0, 90), (-90, 0))
    for one, other in ((pole, greenwich), (greenwich, east), (east, south)):
        assert SPHERE.distance(one, other) == pytest.approx(np.pi / 2, rel=1e-15)


# One place, many coordinates


@given(LATITUDES, LONGITUDES, st.integers(-5, 5))
def test_full_turns_of_longitude_change_nothing(lat, lon, turns):
    first, second = on_sphere((lat, lon), (lat, lon + 360.0 * turns))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-12)


@given(LONGITUDES, LONGITUDES)
def test_a_pole_is_one_point_for_any_longitude(lon, other):
    for lat in (90.0, -90.0):
        first, second = on_sphere((lat, lon), (lat, other))
        assert np.array_equal(first, second)
        assert SPHERE.distance(first, second) == 0


# The chord: a ball in the embedding is a ball on the sphere


@given(st.floats(1e-6, np.pi), st.integers(0, 50))
def test_within_the_chord_is_within_the_radius(radius, seed):
    x, y = scattered(400, seed), scattered(400, seed + 1000)
    distance, straight = SPHERE.distance(x, y), np.linalg.norm(x - y, axis=1)
    clear = np.abs(distance - radius) > 1e-9
    inside = straight <= SPHERE.chord(radius)
    assert np.array_equal(inside[clear], distance[clear] <= radius)


def test_a_chord_of_more_than_half_a_turn_is_the_diameter():
    assert SPHERE.chord(10.0) == SPHERE.chord(np.pi) == 2.0
    assert PLANE.chord(3.5) == 3.5


# Offsets


def test_the_length_of_the_offset_is_the_distance():
    x, y = scattered(100_000, 1), scattered(100_000, 2)
    length = np.linalg.norm(SPHERE.offset(x, y), axis=1)
    np.testing.assert_allclose(length, SPHERE.distance(x, y), rtol=1e-14)
    opposite = np.linalg.norm(SPHERE.offset(x, -x), axis=1)
    np.testing.assert_allclose(opposite, np.pi, rtol=1e-14)
    assert not SPHERE.offset(x, x).any()
    north, south = on_sphere((90, 0), (-90, 0))
    assert np.linalg.norm(SPHERE.offset(north, south)) == pytest.approx(np.pi)


@pytest.mark.parametrize(
    ("place", "other", "expected"),
    [
        ((0, 10), (0, 11), (np.radians(1), 0)),  # along the equator: east
        ((0, 179.5), (0, -179.5), (np.radians(1), 0)),  # east across the date line
        ((50, 10), (52, 10), (0, np.radians(2))),  # along a meridian: north
        ((-50, 10), (-52, 10), (0, -np.radians(2))),
        ((40, 20), (90, 123), (0, np.radians(50))),  # the pole lies north of every place
        ((80, 0), (80, 180), (0, np.radians(20))),  # and the shortest way may lead across it
    ],
)
def test_offset_directions(place, other, expected):
    x, y = on_sphere(place, other)
    np.testing.assert_allclose(SPHERE.offset(x, y)[0], expected, atol=1e-15)


def test_initial_heading_of_a_great_circle():
    """From Zurich to Los Angeles one sets out to the north-west, though it lies to the south."""
    zurich, angeles = on_sphere((47.46, 8.55), (33.94, -118.4))
    east, north = SPHERE.offset(zurich, angeles)[0]
    d_lon = np.radians(-118.4 - 8.55)  # the textbook formula of the initial bearing
    lat, other = np.radians(47.46), np.radians(33.94)
    bearing = np.arctan2(
        np.sin(d_lon) * np.cos(other),
        np.cos(lat) * np.sin(other) - np.sin(lat) * np.cos(other) * np.cos(d_lon),
    )
    assert np.arctan2(east, north) == pytest.approx(bearing, abs=1e-14)
    assert north > 0 > east


def test_offset_on_the_plane_is_the_difference():
    x, y = np.array([[1.0, 2.0]]), np.array([[4.0, -2.0]])
    assert np.array_equal(PLANE.offset(x, y), [[3.0, -4.0]])
    assert np.array_equal(PLANE.distance(x, y), [5.0])
    assert PLANE.embed(x) is x


# Points


def test_points_are_immutable_copies():
    given_coordinates = np.array([[1.0, 2.0], [3.0, 4.0]])
    points = Points(given_coordinates, names=("a", "b"))
    given_coordinates[:] = 0
    assert list(points) == [("a", 1.0, 2.0), ("b", 3.0, 4.0)]
    with pytest.raises(ValueError, match="read-only"):
        points.coordinates[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        points.embedded[0] = 0
    with pytest.raises(AttributeError):
        points.kind = "sphere"


def test_take_and_joined_undo_each_other():
    points = Points(np.random.default_rng(0).uniform(-80, 80, (7, 2)), "sphere")
    order = np.array([5, 0, 3, 1, 2, 6, 4])
    assert points.names == tuple("0123456")
    assert points.take(order[:3]).joined(points.take(order[3:])) == points.take(order)
    assert points.take(order).take(np.argsort(order)) == points
    assert points != Points(points.coordinates, "plane")
    assert points != points.take(order)


@pytest.mark.parametrize(
    ("coordinates", "kind", "names", "message"),
    [
        ([[100.0, 50.0]], "sphere", ("a",), r"'a' is at lat=100, lon=50.*seem to be swapped"),
        ([[5e5, 4e6]], "sphere", ("a",), r"'a' is at lat=500000.*use geometry 'plane'"),
        ([[0.0, 400.0]], "sphere", (), r"longitude in \[-360, 360\]"),
        ([[0.0, 0.0], [np.nan, 1.0]], "plane", ("a", "b"), r"1 of 2 points.*first: 'b'.*Drop"),
        ([[0.0, np.inf]], "sphere", (), "no finite coordinates"),
        ([0.0, 1.0], "plane", (), r"shape \(2,\); expected \(points, 2\).*x and y"),
        ([[0.0, 1.0, 2.0]], "sphere", (), r"shape \(1, 3\).*lat and lon"),
        (np.zeros((0, 2)), "plane", (), "at least one point"),
        ([[0.0, 1.0]], "plane", ("a", "b"), "2 names for 1 points"),
        ([[0.0, 1.0]], "torus", (), "Geometry 'torus' is unknown. Choose 'plane' or 'sphere'"),
    ],
)
def test_invalid_coordinates_are_refused(coordinates, kind, names, message, monkeypatch):
    monkeypatch.setattr(shape_checks, "jaxtyping_disable", True)  # users run without them
    with pytest.raises(DataError, match=message):
        Points(np.array(coordinates), kind, names)


def test_geometries_do_not_mix():
    plane, sphere = Points(np.zeros((1, 2))), Points(np.zeros((1, 2)), "sphere")
    with pytest.raises(DataError, match="Cannot join points on a sphere to points on a plane"):
        plane.joined(sphere)
