"""The HEALPix mesh and spherical harmonics, against integrals, symmetries and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import sph_harm_y

from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.graph.healpix import HARMONICS, healpix_centres, spherical_harmonics
from stonet.graph.neighbours import nearest_nodes


@pytest.mark.parametrize("sides", [1, 2, 3, 8])
def test_pixels_have_equal_areas(sides: int) -> None:
    """Means over the centres are integrals: exact for odd functions, close for z^2."""
    pixels = healpix_centres(sides).embedded
    assert len(pixels) == 12 * sides**2
    np.testing.assert_allclose(pixels.mean(0), 0, atol=1e-12)
    assert abs((pixels[:, 2] ** 2).mean() - 1 / 3) < 0.12 / sides**2
    assert len(np.unique(pixels.round(9), axis=0)) == len(pixels)


def test_known_centres() -> None:
    """Of the coarsest mesh: z = 2/3 at 45, 135, ... degrees, and the equator at 0, 90, ..."""
    pixels = healpix_centres(1)
    np.testing.assert_allclose(np.sin(np.deg2rad(pixels.coordinates[:4, 0])), 2 / 3)
    np.testing.assert_allclose(pixels.coordinates[:4, 1], [45, 135, 225, 315])
    np.testing.assert_allclose(pixels.coordinates[4:8, 0], 0, atol=1e-12)
    np.testing.assert_allclose(pixels.coordinates[4:8, 1], [0, 90, 180, 270])


def test_the_mesh_is_regular() -> None:
    """The distance to the nearest centre varies by a factor below 2 at any resolution."""
    pixels = healpix_centres(6)
    distance = nearest_nodes(pixels, pixels, 2)[0][:, 1]
    assert distance.max() / distance.min() < 2
    with pytest.raises(UsageError, match="at least 1"):
        healpix_centres(0)


def test_harmonics_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    points = Points(rng.uniform([-90, 0], [90, 360], (50, 2)), "sphere")
    polar, azimuth = np.deg2rad(90 - points.coordinates[:, 0]), np.deg2rad(points.coordinates[:, 1])
    columns = []
    for degree in range(3):
        for order in range(-degree, degree + 1):
            value = sph_harm_y(degree, abs(order), polar, azimuth) * (-1.0) ** order
            part = value.imag if order < 0 else value.real
            columns.append(part * (np.sqrt(2) if order else 1))
    np.testing.assert_allclose(spherical_harmonics(points), np.stack(columns, 1), atol=1e-12)


def test_harmonics_are_orthonormal() -> None:
    y = spherical_harmonics(healpix_centres(32))
    np.testing.assert_allclose(4 * np.pi * y.T @ y / len(y), np.eye(HARMONICS), atol=2e-3)
