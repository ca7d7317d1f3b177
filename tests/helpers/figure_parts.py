"""Fields to draw, and the parts of a matplotlib figure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.collections import TriMesh

from stonet.data.field import Field
from stonet.data.geometry import Points

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
START = 438_288 * HOUR  # 2020-01-01


def random_points(count=40, kind="plane", seed=0):
    """Points on the unit square or on the sphere."""
    random = np.random.default_rng(seed)
    if kind == "plane":
        return Points(random.random((count, 2)))
    lat = np.rad2deg(np.arcsin(random.uniform(-1, 1, count)))
    return Points(np.stack([lat, random.uniform(0, 360, count)], axis=1), "sphere")


def truth_and_forecast(points, frames=12, step=HOUR, calendar=True, mask=None):
    """A smooth field, and the same with noise."""
    random = np.random.default_rng(1)
    lead = np.arange(1, frames + 1)
    across = points.embedded @ np.arange(1.0, points.embedded.shape[1] + 1)
    values = np.sin(across + 0.2 * lead[:, None])[..., None].astype(np.float32)
    origin = START if calendar else 0
    about = {"channels": ("t2m",), "units": ("K",), "calendar": calendar}
    truth = Field(values, origin + lead * step, points, mask=mask, **about)
    noisy = (values + random.normal(0, 0.1, values.shape)).astype(np.float32)
    return truth, replace(truth, values=noisy, mask=None, reference_time=origin)


def panels(figure):
    """Axes by (row, column); the colour bars come last in the figure."""
    return np.array(figure.axes[:-2], dtype=object).reshape(3, -1)


def mesh(axes):
    """The triangles of a map."""
    (found,) = [artist for artist in axes.collections if isinstance(artist, TriMesh)]
    return found


def corners(axes):
    """Positions of the corners of a map's triangles: (corner, 2)."""
    return np.concatenate([path.vertices for path in mesh(axes).get_paths()])
