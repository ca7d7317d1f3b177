"""Interpolation in space by inverse distances or ordinary kriging, the alternative to a model.

    u(x) = Σ_j w_j(x) u(x_j),    Σ_j w_j = 1,    over the nearest nodes x_j

The weights depend on positions only, and are applied to all times as one sparse matrix. Where
values are missing, the weights are computed for each set of nodes observed at the same time: the
next nearest node replaces a missing one.

References:
    Shepard (1968), A two-dimensional interpolation function for irregularly-spaced data.
    Cressie (1993), Statistics for Spatial Data, chapters 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import nnls
from scipy.sparse import csr_array

from stonet.data.geometry import Kind, Points, curve_order
from stonet.errors import DataError, UsageError
from stonet.graph.neighbours import nearest_nodes, same_place
from stonet.linear.kriging import evenly_spaced, solve_kriging

FRAMES = 1024  # at most, evenly spread, to which a variogram is fitted
MAX_CENTRES = 400  # nodes whose pairs with all others enter the empirical variogram
NUM_BINS = 20  # of the empirical variogram
NUM_RANGES = 80  # candidates in a variogram fit
SOLVED = 4096  # queries whose systems are solved at a time
EPSILON = 1e-10  # of the sill, so that two sensors in one place have a solution
NUM_FOLDS, MAX_LEFT_OUT, MAX_FOLD_FRAMES = 5, 64, 32  # cross-validation: folds, nodes, frames
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of lag / range, from 0 to 1
    "exponential": lambda h: -np.expm1(-h),
    "spherical": lambda h: np.where(h < 1, 1.5 * h - 0.5 * h**3, 1.0),
    "gaussian": lambda h: -np.expm1(-np.square(h)),
}
Values = Float64[np.ndarray, "*times node channel"]  # NaN where missing
Interpolated = Float64[np.ndarray, "*times query channel"]


@dataclass(frozen=True)
class Variogram:
    """Half the mean squared difference of two values, as a function of their distance h.

        γ(h) = nugget + sill · shape(h / range)    for h > 0,    γ(0) = 0

    The nugget is measurement noise and is not interpolated: with a nugget, values at nodes are
    smoothed; without, they are reproduced. On a sphere h is the great-circle distance, except for
    the Gaussian shape, which is a valid covariance of the chord only.

    Args:
        shape: a name in SHAPES, such as "exponential".
        nugget: variance of the noise.
        sill: variance without the noise.
        range: the distance that scales h.
        kind: the geometry.
    """

    shape: str
    nugget: float
    sill: float
    range: float
    kind: Kind = "plane"

    def covariance(self, lag: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
        """The covariance without the nugget: sill · (1 - shape(h / range)).

        Args:
            lag: distances between points.
        """
        return self.sill * (1 - _shape(self.shape, self.kind, lag, self.range))


@dataclass(frozen=True)
class InverseDistance:
    """Shepard's method: weights 1 / distance^power of the nearest nodes; exact at nodes.

    Args:
        power: of the distance.
        nearest: number of nodes for each query.
    """

    power: float = 2.0
    nearest: int = 8

    def weights(self, nodes: Points, queries: Points) -> csr_array:
        """The sparse matrix of weights, (query, node).

        Args:
            nodes: points with values.
            queries: points to interpolate to.
        """
        lag, index = _near(nodes, queries, self.nearest)
        coincident = same_place(lag)
        inverse = (lag[:, :1] / np.maximum(lag, 1e-300)) ** self.power
        weight = np.where(coincident.any(1, keepdims=True), coincident, inverse)
        return _matrix(weight / weight.sum(1, keepdims=True), index, len(nodes))


@dataclass(frozen=True)
class Kriging:
    """Ordinary kriging: the best linear unbiased estimate, given a variogram.

    For the nearest nodes of each query, C and c being their covariances among each other and with
    the query, and λ the multiplier that keeps the weights' sum at 1:

        [C + nugget I   1] [w]   [c]
        [1ᵀ             0] [λ] = [1]

    It is solved by `stonet.linear.kriging.solve_kriging`, in units of the variance.

    Args:
        variogram: fitted to the values.
        nearest: number of nodes for each query.
    """

    variogram: Variogram
    nearest: int = 24

    def weights(self, nodes: Points, queries: Points) -> csr_array:
        """(query, node); solved for some thousand queries at a time.

        Args:
            nodes: where the values are.
            queries: where they are wanted.
        """
        lag, index = _near(nodes, queries, self.nearest)
        variogram, weight = self.variogram, np.empty(index.shape)
        variance = variogram.nugget + variogram.sill
        noise = (variogram.nugget / variance + EPSILON) * np.eye(index.shape[1])
        for start in range(0, len(queries), SOLVED):
            part = slice(start, start + SOLVED)
            place = nodes.embedded[index[part]]  # (query, near, m)
            apart = nodes.geometry.distance(place[:, :, None], place[:, None, :])
            among = variogram.covariance(apart) / variance + noise
            with_query = variogram.covariance(lag[part]) / variance
            present = np.ones_like(with_query)
            system = (torch.from_numpy(array) for array in (among, with_query, present))
            weight[part] = solve_kriging(*system).numpy()
        return _matrix(weight, index, len(nodes))


Method = InverseDistance | Kriging
M = TypeVar("M", bound=Method)


def interpolate(
    values: Values, nodes: Points, queries: Points, methods: Sequence[Method]
) -> Interpolated:
    """Interpolate from nodes to queries.

    Args:
        values: NaN where missing.
        nodes: where the values are.
        queries: where they are wanted.
        methods: one for all channels, or one for each.

    Returns:
        values at the queries; NaN at times without any value.

    Example:
        >>> method = fit_kriging(values[..., 0], nodes)
        >>> interpolate(values, nodes, queries, [method])
    """
    channels = values.shape[-1]
    if values.shape[-2] != len(nodes) or len(methods) not in (1, channels):
        raise UsageError(
            f"Values at {values.shape[-2]} nodes in {channels} channels; got {len(nodes)} nodes "
            f"and {len(methods)} methods. Give one method, or one per channel."
        )
    flat = values.reshape(-1, *values.shape[-2:])
    result = np.full((len(flat), len(queries), channels), np.nan)
    for channel in range(channels):
        series, method = flat[..., channel], methods[channel % len(methods)]
        for observed, times in _missing_patterns(np.isfinite(series)):
            if observed.any():
                index = np.flatnonzero(observed)
                matrix = method.weights(nodes.take(index), queries)
                result[times, :, channel] = (matrix @ series[np.ix_(times, index)].T).T
    return result.reshape(*values.shape[:-2], len(queries), channels)


def fit_inverse_distance(
    values: Float64[np.ndarray, "time node"], nodes: Points
) -> InverseDistance:
    """Choose power and number of neighbours by cross-validation over nodes.

    Args:
        values: of one channel; NaN where missing.
        nodes: where the values are.
    """
    return _best(
        [InverseDistance(power, near) for power in (1.0, 2.0, 3.0) for near in (4, 8, 16)],
        values,
        nodes,
    )


def fit_kriging(values: Float64[np.ndarray, "time node"], nodes: Points) -> Kriging:
    """Choose shape and number of neighbours by cross-validation over nodes.

    Args:
        values: of one channel; NaN where missing.
        nodes: where the values are.
    """
    fits = [fit_variogram(values, nodes, (shape,)) for shape in SHAPES]
    return _best([Kriging(fit, near) for fit in fits for near in (12, 24)], values, nodes)


def fit_variogram(
    values: Float64[np.ndarray, "time node"], nodes: Points, shapes: Sequence[str] = tuple(SHAPES)
) -> Variogram:
    """Fit a variogram by least squares, weighted by pairs / lag² (Cressie).

    Differences are taken within a frame and averaged over frames. For each shape and candidate
    range, nugget and sill are the solution of a non-negative linear least-squares problem.

    Args:
        values: of one channel; NaN where missing.
        nodes: where the values are.
        shapes: candidates among `SHAPES`.
    """
    lag, half, pairs = empirical_variogram(values, nodes)
    if not half.any():  # constant values, or one point: any weights with sum 1 are right
        return Variogram(shapes[0], 0.0, 1.0, 1.0, nodes.kind)
    root = np.sqrt(pairs) / lag
    fits = []
    for shape in shapes:
        for scale in np.geomspace(lag[0] / 2, 4 * lag[-1], NUM_RANGES):
            columns = np.stack([np.ones_like(lag), _shape(shape, nodes.kind, lag, scale)], axis=1)
            (nugget, sill), misfit = nnls(columns * root[:, None], half * root)
            fit = Variogram(shape, float(nugget), float(sill), float(scale), nodes.kind)
            fits.append((misfit, fit))
    return min(fits, key=lambda fit: fit[0])[1]


def empirical_variogram(
    values: Float64[np.ndarray, "time node"], nodes: Points
) -> tuple[Float64[np.ndarray, " bin"], Float64[np.ndarray, " bin"], Float64[np.ndarray, " bin"]]:
    """Mean lag, half the mean squared difference and number of pairs, in bins of equal log width.

    Lags reach to half the largest distance: beyond, pairs are few and at the margins.

    Args:
        values: of one channel; NaN where missing.
        nodes: where the values are.
    """
    chosen = values[evenly_spaced(len(values), FRAMES)]
    centre = evenly_spaced(len(nodes), MAX_CENTRES)
    observed = np.isfinite(chosen)
    mean = chosen[observed].mean() if observed.any() else 0.0
    centred = np.where(observed, chosen - mean, 0.0)
    squared, weight = np.square(centred), observed.astype(np.float64)
    total = squared[:, centre].T @ weight + weight[:, centre].T @ squared
    total = np.maximum(total - 2 * centred[:, centre].T @ centred, 0.0)  # Σ (u_i - u_j)²
    count = weight[:, centre].T @ weight
    lag = nodes.geometry.distance(nodes.embedded[centre][:, None], nodes.embedded[None])
    used = (lag > 0) & (count > 0)
    if not used.any():
        return np.ones(1), np.zeros(1), np.ones(1)
    lag, total, count = lag[used], total[used], count[used]
    longest = lag.max() / 2 if (lag <= lag.max() / 2).sum() >= NUM_BINS else lag.max()
    bins = np.searchsorted(np.geomspace(lag.min(), longest, NUM_BINS + 1)[1:-1], lag)
    bins[lag > longest] = NUM_BINS
    sums = [np.bincount(bins, w, NUM_BINS + 1)[:NUM_BINS] for w in (count, count * lag, total)]
    pairs, lags, squares = (s[sums[0] > 0] for s in sums)
    return lags / pairs, 0.5 * squares / pairs, pairs


def _best(candidates: Sequence[M], values: Float64[np.ndarray, "time node"], nodes: Points) -> M:
    """The candidate with the lowest absolute error in cross-validation over nodes."""
    if len(nodes) < 2:
        return candidates[0]
    frames = values[evenly_spaced(len(values), MAX_FOLD_FRAMES), :, None]
    fold = np.empty(len(nodes), dtype=np.int64)
    fold[curve_order(nodes)] = np.arange(len(nodes)) % NUM_FOLDS  # each spread over the region
    errors = np.zeros(len(candidates))
    for number in range(min(NUM_FOLDS, len(nodes))):
        left_out, kept = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        left_out = left_out[evenly_spaced(len(left_out), MAX_LEFT_OUT)]
        for i, method in enumerate(candidates):
            estimate = interpolate(
                frames[:, kept], nodes.take(kept), nodes.take(left_out), [method]
            )
            errors[i] += np.nansum(np.abs(estimate - frames[:, left_out]))
    return candidates[int(errors.argmin())]


def _shape(
    shape: str, kind: Kind, lag: Float64[np.ndarray, "..."], scale: float
) -> Float64[np.ndarray, "..."]:
    """The shape at some lags, on a plane or a sphere."""
    straight = shape == "gaussian" and kind == "sphere"
    return SHAPES[shape]((2 * np.sin(lag / 2) if straight else lag) / scale)


def _near(
    nodes: Points, queries: Points, nearest: int
) -> tuple[Float64[np.ndarray, "query near"], Int64[np.ndarray, "query near"]]:
    """Distances and positions of each query's nearest nodes, the nearest first."""
    if nearest < 1:
        raise UsageError(f"The nearest {nearest} nodes were requested; expected at least 1.")
    if nodes.kind != queries.kind:
        raise DataError(f"Nodes on a {nodes.kind}, queries on a {queries.kind}: give one kind.")
    _, index = nearest_nodes(queries, nodes, nearest)
    return nodes.geometry.distance(queries.embedded[:, None], nodes.embedded[index]), index


def _matrix(
    weight: Float64[np.ndarray, "query near"], index: Int64[np.ndarray, "query near"], nodes: int
) -> csr_array:
    """Weights of nearest nodes as a sparse matrix, (query, node)."""
    queries, near = weight.shape
    rows = np.arange(0, queries * near + 1, near)
    return csr_array((weight.ravel(), index.ravel(), rows), shape=(queries, nodes))


def _missing_patterns(
    observed: Bool[np.ndarray, "time node"],
) -> list[tuple[Bool[np.ndarray, " node"], Int64[np.ndarray, " chosen"]]]:
    """The distinct sets of observed nodes, and the times of each."""
    patterns, number = np.unique(observed, axis=0, return_inverse=True)
    return [(nodes, np.flatnonzero(number.ravel() == i)) for i, nodes in enumerate(patterns)]
