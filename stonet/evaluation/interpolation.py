"""Interpolation in space: what one does at a place without a sensor if no model answers there.

    u(x) = Σ_j w_j(x) u(x_j),    Σ_j w_j = 1,    over the nearest nodes x_j

Weights follow from the places alone. They are found once and applied to all times as one sparse
matrix. A node without a value leaves them: its place is taken by the next nearest one, and the
weights are made anew for each set of nodes that have a value at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import nnls
from scipy.sparse import csr_array

from stonet.data.geometry import Kind, Points, curve_order
from stonet.errors import DataError, UsageError
from stonet.graph.neighbours import nearest_nodes, same_place
from stonet.linear.kriging import evenly

FRAMES = 1024  # at most, evenly spread, that a variogram is fitted to
CENTRES = 400  # nodes at most whose distances to all others are looked at
BINS = 20
RANGES = 80  # that are tried
SOLVED = 4096  # queries whose systems are solved at a time
EPSILON = 1e-10  # of the sill, so that two sensors in one place have a solution
FOLDS, LEFT, JUDGED = 5, 64, 32  # of the nodes, left out in each, and frames: to choose settings
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # from 0 to 1, of the lag over the range
    "exponential": lambda h: -np.expm1(-h),
    "spherical": lambda h: np.where(h < 1, 1.5 * h - 0.5 * h**3, 1.0),
    "gaussian": lambda h: -np.expm1(-np.square(h)),
}
Values = Float64[np.ndarray, "*times node channel"]  # NaN where missing
Answer = Float64[np.ndarray, "*times query channel"]


@dataclass(frozen=True)
class Variogram:
    """Half the mean squared difference of two values, by the distance of their places.

        γ(h) = nugget + sill · shape(h / range)    for h > 0,    γ(0) = 0

    The nugget counts as noise of the sensors: it is not interpolated, so that with it a value at a
    node is smoothed and without it is exact. On a sphere h is the great circle; the Gaussian, which
    would be no covariance there, takes the chord.
    """

    shape: str
    nugget: float
    sill: float
    range: float
    kind: Kind = "plane"

    def covariance(self, lag: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
        """What two places share, without the nugget: sill · (1 - shape)."""
        return self.sill * (1 - _shape(self.shape, self.kind, lag, self.range))


@dataclass(frozen=True)
class InverseDistance:
    """Shepard's method: weights 1 / distance^power of the nearest nodes; a node itself is exact."""

    power: float = 2.0
    nearest: int = 8

    def weights(self, nodes: Points, queries: Points) -> csr_array:
        """(query, node)."""
        lag, index = _near(nodes, queries, self.nearest)
        here = same_place(lag)
        inverse = (lag[:, :1] / np.maximum(lag, 1e-300)) ** self.power
        weight = np.where(here.any(1, keepdims=True), here, inverse)
        return _matrix(weight / weight.sum(1, keepdims=True), index, len(nodes))


@dataclass(frozen=True)
class Kriging:
    """Ordinary kriging: the best linear unbiased estimate, given a variogram.

    For the nearest nodes of each query, C and c being their covariances among each other and with
    the query, and λ the multiplier that keeps the weights' sum at 1:

        [C + nugget I   1] [w]   [c]
        [1ᵀ             0] [λ] = [1]
    """

    variogram: Variogram
    nearest: int = 24

    def weights(self, nodes: Points, queries: Points) -> csr_array:
        """(query, node); solved for some thousand queries at a time."""
        lag, index = _near(nodes, queries, self.nearest)
        near, known = index.shape[1], self.variogram
        noise = known.nugget + EPSILON * (known.nugget + known.sill)
        weight = np.empty(index.shape)
        for start in range(0, len(queries), SOLVED):
            part = slice(start, start + SOLVED)
            place = nodes.embedded[index[part]]  # (query, near, m)
            among = nodes.geometry.distance(place[:, :, None], place[:, None, :])
            system = np.ones((len(place), near + 1, near + 1))
            system[:, :near, :near] = known.covariance(among) + noise * np.eye(near)
            system[:, near, near] = 0.0
            right = np.ones((len(place), near + 1, 1))
            right[:, :near, 0] = known.covariance(lag[part])
            weight[part] = np.linalg.solve(system, right)[:, :near, 0]
        return _matrix(weight, index, len(nodes))


Method = InverseDistance | Kriging
M = TypeVar("M", bound=Method)


def inverse_distance(
    values: Values, nodes: Points, queries: Points, power: float = 2.0, nearest: int = 8
) -> Answer:
    """From the nodes to the queries by Shepard's method."""
    return interpolate(values, nodes, queries, [InverseDistance(power, nearest)])


def ordinary_kriging(
    values: Values,
    nodes: Points,
    queries: Points,
    variograms: Sequence[Variogram],
    nearest: int = 24,
) -> Answer:
    """From the nodes to the queries by ordinary kriging, with a variogram for each channel."""
    return interpolate(values, nodes, queries, [Kriging(v, nearest) for v in variograms])


def interpolate(
    values: Values, nodes: Points, queries: Points, methods: Sequence[Method]
) -> Answer:
    """Each channel by its own method, or all by one; NaN where no node has a value at all."""
    channels = values.shape[-1]
    if values.shape[-2] != len(nodes) or len(methods) not in (1, channels):
        raise UsageError(
            f"Values at {values.shape[-2]} nodes in {channels} channels; there are places of "
            f"{len(nodes)} nodes and {len(methods)} methods. Give one method, or one per channel."
        )
    flat = values.reshape(-1, *values.shape[-2:])
    answer = np.full((len(flat), len(queries), channels), np.nan)
    for channel in range(channels):
        rows, method = flat[..., channel], methods[channel % len(methods)]
        for known, times in _patterns(np.isfinite(rows)):
            if known.any():
                index = np.flatnonzero(known)
                matrix = method.weights(nodes.take(index), queries)
                answer[times, :, channel] = (matrix @ rows[np.ix_(times, index)].T).T
    return answer.reshape(*values.shape[:-2], len(queries), channels)


def fit_inverse_distance(
    values: Float64[np.ndarray, "time node"], nodes: Points
) -> InverseDistance:
    """Power and neighbours as they suit these values best at nodes that are left out."""
    return _best(
        [InverseDistance(power, near) for power in (1.0, 2.0, 3.0) for near in (4, 8, 16)],
        values,
        nodes,
    )


def fit_kriging(values: Float64[np.ndarray, "time node"], nodes: Points) -> Kriging:
    """The shape of the variogram and the neighbours that suit best at nodes that are left out."""
    fits = [fit_variogram(values, nodes, (shape,)) for shape in SHAPES]
    return _best([Kriging(fit, near) for fit in fits for near in (12, 24)], values, nodes)


def fit_variogram(
    values: Float64[np.ndarray, "time node"], nodes: Points, shapes: Sequence[str] = tuple(SHAPES)
) -> Variogram:
    """The best of some shapes by least squares, weighted by pairs / lag² as geostatisticians do.

    Differences are taken within a frame and averaged over all of them. For a shape and a range,
    nugget and sill are a linear problem with a sign; ranges are tried one after the other.
    """
    lag, half, pairs = empirical_variogram(values, nodes)
    if not half.any():  # nothing varies, or there is one point: any weights with sum 1 are right
        return Variogram(shapes[0], 0.0, 1.0, 1.0, nodes.kind)
    root = np.sqrt(pairs) / lag
    fits = []
    for shape in shapes:
        for scale in np.geomspace(lag[0] / 2, 4 * lag[-1], RANGES):
            columns = np.stack([np.ones_like(lag), _shape(shape, nodes.kind, lag, scale)], axis=1)
            (nugget, sill), misfit = nnls(columns * root[:, None], half * root)
            found = Variogram(shape, float(nugget), float(sill), float(scale), nodes.kind)
            fits.append((misfit, found))
    return min(fits, key=lambda fit: fit[0])[1]


def empirical_variogram(
    values: Float64[np.ndarray, "time node"], nodes: Points
) -> tuple[Float64[np.ndarray, " bin"], Float64[np.ndarray, " bin"], Float64[np.ndarray, " bin"]]:
    """Mean lag, half the mean squared difference and number of pairs, in bins that grow with h.

    Lags reach to half the largest distance, beyond which few pairs lie, and those at the rim.
    """
    chosen, centre = values[evenly(len(values), FRAMES)], evenly(len(nodes), CENTRES)
    known = np.isfinite(chosen)
    centred = np.where(known, chosen - (chosen[known].mean() if known.any() else 0.0), 0.0)
    squared, there = np.square(centred), known.astype(np.float64)
    total = squared[:, centre].T @ there + there[:, centre].T @ squared
    total = np.maximum(total - 2 * centred[:, centre].T @ centred, 0.0)  # Σ (u_i - u_j)²
    count = there[:, centre].T @ there
    lag = nodes.geometry.distance(nodes.embedded[centre][:, None], nodes.embedded[None])
    used = (lag > 0) & (count > 0)
    if not used.any():
        return np.ones(1), np.zeros(1), np.ones(1)
    lag, total, count = lag[used], total[used], count[used]
    reach = lag.max() / 2 if (lag <= lag.max() / 2).sum() >= BINS else lag.max()
    place = np.searchsorted(np.geomspace(lag.min(), reach, BINS + 1)[1:-1], lag)
    place[lag > reach] = BINS
    sums = [np.bincount(place, w, BINS + 1)[:BINS] for w in (count, count * lag, total)]
    pairs, far, apart = (s[sums[0] > 0] for s in sums)
    return far / pairs, 0.5 * apart / pairs, pairs


def _best(candidates: Sequence[M], values: Float64[np.ndarray, "time node"], nodes: Points) -> M:
    """The candidate with the least error where a fifth of the nodes is left out, each in turn."""
    if len(nodes) < 2:
        return candidates[0]
    some = values[evenly(len(values), JUDGED), :, None]
    fold = np.empty(len(nodes), dtype=np.int64)
    fold[curve_order(nodes)] = np.arange(len(nodes)) % FOLDS  # so that no region goes as a whole
    errors = np.zeros(len(candidates))
    for number in range(min(FOLDS, len(nodes))):
        left, kept = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        left = left[evenly(len(left), LEFT)]
        for i, method in enumerate(candidates):
            guess = interpolate(some[:, kept], nodes.take(kept), nodes.take(left), [method])
            errors[i] += np.nansum(np.abs(guess - some[:, left]))
    return candidates[int(errors.argmin())]


def _shape(
    shape: str, kind: Kind, lag: Float64[np.ndarray, "..."], scale: float
) -> Float64[np.ndarray, "..."]:
    straight = shape == "gaussian" and kind == "sphere"
    return SHAPES[shape]((2 * np.sin(lag / 2) if straight else lag) / scale)


def _near(
    nodes: Points, queries: Points, nearest: int
) -> tuple[Float64[np.ndarray, "query near"], Int64[np.ndarray, "query near"]]:
    """Distances and positions of each query's nearest nodes, the nearest first."""
    if nearest < 1:
        raise UsageError(f"The nearest {nearest} nodes were asked for; expected at least 1.")
    if nodes.kind != queries.kind:
        raise DataError(f"Nodes on a {nodes.kind}, queries on a {queries.kind}: give one kind.")
    _, index = nearest_nodes(queries, nodes, nearest)
    return nodes.geometry.distance(queries.embedded[:, None], nodes.embedded[index]), index


def _matrix(
    weight: Float64[np.ndarray, "query near"], index: Int64[np.ndarray, "query near"], nodes: int
) -> csr_array:
    queries, near = weight.shape
    rows = np.arange(0, queries * near + 1, near)
    return csr_array((weight.ravel(), index.ravel(), rows), shape=(queries, nodes))


def _patterns(
    known: Bool[np.ndarray, "time node"],
) -> list[tuple[Bool[np.ndarray, " node"], Int64[np.ndarray, " chosen"]]]:
    """The sets of nodes that have a value at the same time, and the times of each."""
    sets, number = np.unique(known, axis=0, return_inverse=True)
    return [(one, np.flatnonzero(number.ravel() == i)) for i, one in enumerate(sets)]
