"""Bins: points by history and by the distance to the nearest observation.

Bin 0 holds points with history. The others hold points without history, by distance; between the
middles of two bins their values are interpolated. A bin holds at least MIN_POINTS points: points,
not windows, count as the sample, since errors at one point are alike. Where there are too few
points, and farther away than any of them, there is no bin: no interval is given there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.spatial import cKDTree

from stonet.data.geometry import Points
from stonet.graph.neighbours import own_nodes

MIN_POINTS = 8  # in a bin
MAX_BINS = 6  # of distance
MARGIN = 1.25  # greatest distance with an interval, relative to the greatest one that was tested

Distances = Float64[np.ndarray, "issue query"]  # 0: with history; infinite: nothing was observed


@dataclass(frozen=True)
class Bins:
    """Bins of distance, beside the bin of points with history.

    Args:
        edges: between the bins of distance, one less than these.
        middles: median distance in each bin.
        points: number of points in each bin.
        limit: greatest distance with an interval.
    """

    edges: tuple[float, ...] = ()
    middles: tuple[float, ...] = ()
    points: tuple[int, ...] = ()
    limit: float = 0.0

    @staticmethod
    def fit(distance: Float64[np.ndarray, " sample"], point: Int64[np.ndarray, " sample"]) -> Bins:
        """Bins with equal shares of the samples, each with enough different points.

        Args:
            distance: of a point without history, in one of several networks.
            point: which point it is.
        """
        if len(np.unique(point)) < MIN_POINTS:
            return Bins()
        for count in range(MAX_BINS, 0, -1):
            edges = np.unique(np.quantile(distance, np.arange(1, count) / count))
            member = np.searchsorted(edges, distance, side="right")
            numbers = range(len(edges) + 1)
            points = [len(np.unique(point[member == number])) for number in numbers]
            if min(points) >= MIN_POINTS:
                break
        middles = [float(np.median(distance[member == number])) for number in numbers]
        limit = MARGIN * float(distance.max())
        return Bins(tuple(edges.tolist()), tuple(middles), tuple(points), limit)

    def __len__(self) -> int:
        return 1 + len(self.middles)

    def of(self, distance: Float64[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
        """The bin of each distance; 0 for a distance of 0.

        Args:
            distance: to the nearest observation.
        """
        member = 1 + np.searchsorted(np.array(self.edges), distance, side="right")
        return np.where(distance > 0, member, 0)

    def weights(self, distance: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape bin"]:
        """Weights of the bins at each distance; NaN where no interval can be given.

        Args:
            distance: to the nearest observation.
        """
        weights = np.zeros((*distance.shape, len(self)))
        weights[..., 0] = distance == 0
        if self.middles:
            number = np.arange(len(self.middles))
            place = np.interp(distance, self.middles, number)
            shares = np.clip(1 - np.abs(place[..., None] - number), 0, None)
            weights[..., 1:] = shares * (distance > 0)[..., None]
        weights[(distance > 0) & ~(distance <= self.limit)] = np.nan
        return weights


def distance_to_observed(
    nodes: Points, queries: Points, observed: Bool[np.ndarray, "issue node"]
) -> Distances:
    """The distance from each query to the nearest point with history.

    In the unit of the geometry: radians on a sphere.

    Args:
        nodes: points whose history is given.
        queries: points that are forecast.
        observed: whether a node has any value in the window of an issue time.
    """
    own = own_nodes(queries, nodes)
    result = np.full((len(observed), len(queries)), np.inf)
    patterns, rows = np.unique(observed, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        known = nodes.embedded[pattern]
        closest = cKDTree(known).query(queries.embedded)[1]
        distance = nodes.geometry.distance(queries.embedded, known[closest])
        has_history = np.append(pattern, False)[own]
        tiny = np.finfo(np.float64).tiny  # a place of its own is not history
        row = np.where(has_history, 0.0, np.maximum(distance, tiny))
        result[rows.ravel() == number] = row
    return result
