"""Solar position: the direction of the sun at any time.

The sine of the solar elevation at a point is the scalar product of this direction and the unit
vector of the point. Low-precision formulae, accurate to 0.01 degrees from 1950 to 2050.

References:
    The Astronomical Almanac, section C: The Sun.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

from stonet.data.durations import DAY

J2000 = 946_728_000 * 1_000_000_000  # 1 January 2000, 12 UTC, in nanoseconds since 1970


def sun_direction(times: Int64[np.ndarray, "..."]) -> Float32[np.ndarray, "... 3"]:
    """The unit vector from the Earth's centre to the sun, in coordinates fixed to the Earth.

    Args:
        times: nanoseconds since 1970 UTC.
    """
    days = (times - J2000) / DAY
    anomaly = np.deg2rad(357.528 + 0.9856003 * days)
    longitude = np.deg2rad(
        280.460 + 0.9856474 * days + 1.915 * np.sin(anomaly) + 0.020 * np.sin(2 * anomaly)
    )
    tilt = np.deg2rad(23.439 - 4e-7 * days)
    ascension = np.arctan2(np.cos(tilt) * np.sin(longitude), np.cos(longitude))
    declination = np.arcsin(np.sin(tilt) * np.sin(longitude))
    # sidereal time in turns: counted from the equinox, as the ascension is
    turned = ((times - J2000) % DAY) / DAY + (0.7790572733 + 0.002737909350795 * days) % 1
    east = ascension - 2 * np.pi * turned
    flat = np.cos(declination)
    vector = [flat * np.cos(east), flat * np.sin(east), np.sin(declination)]
    return np.stack(vector, axis=-1).astype(np.float32)
