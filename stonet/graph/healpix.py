r"""HEALPix: a mesh of equal-area pixels on the sphere, and spherical harmonics at its centres.

Pixel centres lie on 4 n - 1 rings of latitude. Ring i of the northern cap (i < n) has 4 i pixels,

    z = 1 - i^2 / (3 n^2),       longitude = (j + 1/2) pi / (2 i)

a ring of the equatorial belt (n <= i <= 3 n) has 4 n pixels, every second ring shifted by half one,

    z = 4/3 - 2 i / (3 n),       longitude = (j + s/2) pi / (2 n),   s = (i - n + 1) mod 2

and the southern cap mirrors the northern one; j counts from 0.

References:
    K. M. Gorski et al., HEALPix: A Framework for High-Resolution Discretization and Fast Analysis
    of Data Distributed on the Sphere, The Astrophysical Journal 622, 2005, equations 4 to 9.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from stonet.data.geometry import Points
from stonet.errors import UsageError

HARMONICS = 9  # real spherical harmonics of the degrees 0, 1 and 2


def healpix_centres(sides: int) -> Points:
    """The centres of all 12 n^2 pixels, in the order of rings from north to south.

    Args:
        sides: n, pixels along a side of each of the twelve basic pixels.

    Raises:
        UsageError: n is not positive.

    Example:
        >>> len(healpix_centres(2))
        48
    """
    if sides < 1:
        raise UsageError(f"A HEALPix mesh of {sides} pixels a side; expected at least 1.")
    heights, longitudes = [], []
    for ring in range(1, 4 * sides):
        mirrored = min(ring, 4 * sides - ring)
        if mirrored < sides:
            count, shift = mirrored, 1.0
            height = 1.0 - mirrored**2 / (3.0 * sides**2)
            height = height if ring < sides else -height
        else:
            count, shift = sides, float((ring - sides + 1) % 2)
            height = 4.0 / 3.0 - 2.0 * ring / (3.0 * sides)
        heights.append(np.full(4 * count, height))
        longitudes.append((np.arange(4 * count) + shift / 2.0) * 90.0 / count)
    latitude = np.rad2deg(np.arcsin(np.clip(np.concatenate(heights), -1.0, 1.0)))
    return Points(np.stack([latitude, np.concatenate(longitudes)], axis=1), "sphere")


def spherical_harmonics(points: Points) -> Float64[np.ndarray, "point harmonic"]:
    """The real spherical harmonics Y_lm of the degrees l = 0, 1, 2, by degree, then m = -l..l.

    Args:
        points: on a sphere.
    """
    x, y, z = points.embedded.T
    first, second = math.sqrt(3 / (4 * math.pi)), math.sqrt(15 / (4 * math.pi))
    columns = [
        np.full(len(x), math.sqrt(1 / (4 * math.pi))),
        first * y,
        first * z,
        first * x,
        second * x * y,
        second * y * z,
        math.sqrt(5 / (16 * math.pi)) * (3 * z**2 - 1),
        second * x * z,
        second / 2 * (x**2 - y**2),
    ]
    return np.stack(columns, axis=1)
