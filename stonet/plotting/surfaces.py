"""Surfaces of a map: triangles between scattered points, and the corners of the cells of a grid."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from matplotlib import tri

MIN_TRIANGLE_RATIO = 0.02  # of inscribed to circumscribed circle; flatter ones are left out
MAX_TRIANGLES = 30_000  # of a refined map


def triangulation(position: Float64[np.ndarray, "node 2"]) -> tri.Triangulation | None:
    """Delaunay triangles without slivers along the hull; None if the points span no area.

    Args:
        position: x and y of each point.
    """
    if len(position) <= 3:
        return None
    extent = np.linalg.svd(position - position.mean(axis=0), compute_uv=False)
    if extent[1] <= 1e-6 * extent[0]:
        return None
    raw = tri.Triangulation(position[:, 0], position[:, 1])
    # Not rescaled to a square, in which good triangles of a long region would be flat.
    flat = tri.TriAnalyzer(raw).get_flat_tri_mask(MIN_TRIANGLE_RATIO, rescale=False)
    return tri.Triangulation(raw.x, raw.y, raw.triangles[~flat]) if not flat.all() else raw


def refined(
    triangles: tri.Triangulation, values: Float64[np.ndarray, " node"]
) -> tuple[tri.Triangulation, Float64[np.ndarray, " vertex"]]:
    """Smaller triangles of the same surface, so that colours follow the map instead of mixing.

    Args:
        triangles: between the points.
        values: at the points.
    """
    subdivisions = min(4, max(0, round(math.log(MAX_TRIANGLES / len(triangles.triangles), 4))))
    surface = tri.LinearTriInterpolator(triangles, values)
    fine, smooth = tri.UniformTriRefiner(triangles).refine_field(values, surface, subdivisions)
    return fine, np.asarray(smooth, dtype=np.float64)


def cell_edges(middles: Float64[np.ndarray, " cell"]) -> Float64[np.ndarray, " edge"]:
    """Limits of cells around increasing middles: half-way to the neighbours.

    Args:
        middles: at least two.

    Example:
        >>> cell_edges(np.array([0.0, 1.0, 3.0]))
        array([-0.5,  0.5,  2. ,  4. ])
    """
    between = (middles[1:] + middles[:-1]) / 2
    first, last = 2 * middles[0] - between[0], 2 * middles[-1] - between[-1]
    return np.concatenate([[first], between, [last]])
