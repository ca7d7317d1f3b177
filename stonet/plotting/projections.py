"""Equal Earth, the equal-area projection of the whole globe, and its outline and graticule.

After Savric, Patterson and Jenny (2018), "The Equal Earth map projection".
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

Positions = Float64[np.ndarray, "_ 2"]  # longitude and latitude, or x and y

COEFFICIENTS = (1.340264, -0.081106, 0.000893, 0.003796)  # of theta, theta^3, theta^7, theta^9
POWERS = np.array([1, 3, 7, 9])
PARALLELS = (-60.0, -30.0, 0.0, 30.0, 60.0)
MERIDIANS = (-120.0, -60.0, 0.0, 60.0, 120.0)


def equal_earth(positions: Positions) -> Positions:
    """Longitudes and latitudes in degrees as x and y on a unit sphere's equal-area map.

    Longitudes beyond 180 lie beyond the outline.

    Args:
        positions: degrees east and degrees north of each place.

    Example:
        >>> equal_earth(np.array([[0.0, 0.0]]))
        array([[0., 0.]])
    """
    longitude, latitude = np.deg2rad(positions).T
    theta = np.arcsin(np.sqrt(3.0) / 2.0 * np.sin(latitude))
    powers = theta[:, None] ** (POWERS - 1)
    coefficients = np.array(COEFFICIENTS)
    slope = powers @ (coefficients * POWERS)
    x = 2.0 * np.sqrt(3.0) / 3.0 * longitude * np.cos(theta) / slope
    return np.stack([x, theta * (powers @ coefficients)], axis=1)


def outline() -> Positions:
    """The edge of the map: both sides of the meridian of 180 degrees, and the poles."""
    latitude = np.linspace(-90.0, 90.0, 91)
    east = np.stack([np.full(91, 180.0), latitude], axis=1)
    return equal_earth(np.concatenate([east, east[::-1] * (-1.0, 1.0)]))


def graticule() -> list[Positions]:
    """Meridians and parallels, each 60 and 30 degrees."""
    steps = np.linspace(-1.0, 1.0, 61)
    lines = [np.stack([180.0 * steps, np.full(61, latitude)], axis=1) for latitude in PARALLELS]
    lines += [np.stack([np.full(61, longitude), 90.0 * steps], axis=1) for longitude in MERIDIANS]
    return [equal_earth(line) for line in lines]
