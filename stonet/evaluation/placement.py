r"""Placement: where further sensors reduce the expected error of a region most.

The error that sensors can remove is a random field with covariance C(h), of which each sensor
observes the local value with the nugget as noise. Given the sensors S, the kriging variance at x is

    v(x) = C(0) - c(x, S) (C(S, S) + nugget I)^-1 c(S, x) + nugget

A sensor at s reduces the mean of v over the region, with weights w, by

    Σ_x w(x) C(x, s | S)² / (C(s, s | S) + nugget),

C(. | S) being the covariance given the sensors. The next sensor is the candidate with the greatest
reduction; C(. | S) follows by a rank-one update, so that no system is solved again. Such a greedy
choice reduces a submodular variance by at least 63 % of what the best choice does.

References:
    A. Krause, A. Singh, C. Guestrin, Near-optimal sensor placements in Gaussian processes, 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial import Delaunay, QhullError

from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.evaluation.interpolation import Variogram

MAX_SENSORS = 8192  # present ones: a system of this size is solved once
TINY = 1e-9  # of the sill: a candidate with less variance left is of no use
HEMISPHERE = 0.1  # cosine: stations farther than this from their middle surround the globe


@dataclass(frozen=True)
class Placement:
    """Chosen candidates and the variance of the error before and after them.

    Args:
        chosen: positions among the candidates, in the order of choice.
        mean: of the variance over the region: before, and after each sensor.
        before: variance at each place of the region.
        after: variance with all chosen sensors.
    """

    chosen: Int64[np.ndarray, " sensor"]
    mean: Float64[np.ndarray, " stage"]
    before: Float64[np.ndarray, " place"]
    after: Float64[np.ndarray, " place"]

    @property
    def reduction(self) -> Float64[np.ndarray, " sensor"]:
        """By how much each sensor reduces the mean variance, given those before it."""
        return -np.diff(self.mean)


def place_sensors(
    covariance: Variogram,
    sensors: Points,
    candidates: Points,
    region: Points,
    count: int,
    weights: Float64[np.ndarray, " place"] | None = None,
) -> Placement:
    """Choose candidates one by one, each time the one that reduces the mean variance most.

    Args:
        covariance: of the errors that sensors remove.
        sensors: present ones.
        candidates: places for further ones.
        region: places whose error matters.
        count: sensors to choose.
        weights: of the places (None: equal areas, see `area_weights`).

    Raises:
        UsageError: more sensors are requested than there are candidates.
        DataError: there are too many present sensors.

    Example:
        >>> place_sensors(covariance, stations, grid, grid, count=3).chosen
    """
    if not 0 < count <= len(candidates):
        raise UsageError(
            f"{count} sensors were requested of {len(candidates)} candidates. Give a number from "
            f"1 to {len(candidates)}."
        )
    if len(sensors) > MAX_SENSORS:
        raise DataError(
            f"{len(sensors):,} sensors are present, and covariances among at most "
            f"{MAX_SENSORS:,} are computed. Select a region."
        )
    share = area_weights(region) if weights is None else weights / weights.sum()
    across, among, variance = _given(covariance, sensors, candidates, region)
    mean: list[float] = [float(share @ variance)]
    chosen: list[int] = []
    before, least = variance.copy(), TINY * covariance.sill
    for _ in range(count):
        left = np.diagonal(among) + covariance.nugget  # variance of each candidate's observation
        gain = np.where(left > least, share @ np.square(across) / np.maximum(left, least), 0.0)
        gain[chosen] = -1.0
        best = int(gain.argmax())
        chosen.append(best)
        if left[best] > least:
            column, row = across[:, best].copy(), among[best].copy()
            variance -= np.square(column) / left[best]
            across -= np.outer(column, row / left[best])
            among -= np.outer(row, row / left[best])
        mean.append(float(share @ variance))
    return Placement(np.array(chosen), np.array(mean), before, variance)


def _given(
    covariance: Variogram, sensors: Points, candidates: Points, region: Points
) -> tuple[
    Float64[np.ndarray, "place candidate"],
    Float64[np.ndarray, "candidate candidate"],
    Float64[np.ndarray, " place"],
]:
    """Covariances of region and candidates, among candidates, and variances, given the sensors."""

    def between(a: Points, b: Points) -> Float64[np.ndarray, "a b"]:
        lag = a.geometry.distance(a.embedded[:, None], b.embedded[None])
        return covariance.covariance(lag)

    noise = max(covariance.nugget, TINY * covariance.sill) * np.eye(len(sensors))
    system = cho_factor(between(sensors, sensors) + noise, lower=True, overwrite_a=True)
    to_region, to_candidates = between(sensors, region), between(sensors, candidates)
    weights = cho_solve(system, to_candidates)
    across = between(region, candidates) - to_region.T @ weights
    among = between(candidates, candidates) - to_candidates.T @ weights
    explained = np.einsum("sp,sp->p", to_region, cho_solve(system, to_region))
    variance = covariance.sill - explained + covariance.nugget
    return across, among, variance


def area_weights(region: Points) -> Float64[np.ndarray, " place"]:
    """Weights that sum to 1; of a grid of longitudes and latitudes, by the area of its cells.

    Args:
        region: places of a regular grid.
    """
    area = np.ones(len(region))
    if region.kind == "sphere":
        area = np.maximum(np.cos(np.deg2rad(region.coordinates[:, 0])), 1e-6)
    return area / area.sum()


def inside_hull(places: Points, stations: Points) -> Bool[np.ndarray, " place"]:
    """Whether places lie within the convex hull of the stations; all of them around the globe.

    On the sphere the hull is bounded by great circles. Stations on a line have no area: all places
    count as inside.

    Args:
        places: of the same geometry.
        stations: that span the region.
    """
    flat, inner = stations.embedded, places.embedded
    visible = np.ones(len(places), dtype=bool)
    if stations.kind == "sphere":
        middle = flat.mean(axis=0)
        middle /= max(float(np.linalg.norm(middle)), 1e-12)
        if (flat @ middle).min() < HEMISPHERE:
            return visible
        visible = inner @ middle > HEMISPHERE / 2
        axes = np.linalg.svd(middle[None])[2][1:].T  # two directions across the middle
        flat = flat @ axes / (flat @ middle)[:, None]  # gnomonic: great circles are straight
        inner = inner @ axes / np.where(visible, inner @ middle, 1.0)[:, None]
    try:
        hull = Delaunay(flat)
    except (QhullError, ValueError):
        return visible
    return visible & (hull.find_simplex(inner, tol=1e-9) >= 0)
