r"""The covariance over space of the errors that a sensor would remove, from cross-fitted errors.

Stations are divided into folds. Each fold is forecast from the others, as if it had no sensors, and
once more with its own history. Mean products of the errors of two hidden stations, without history
minus with it, are what sensors at these places would remove. A stationary covariance

    C(h) = sill · exp(-h / range),    plus the nugget, which no two places share,

is fitted so that these products are most likely those of its kriging errors at the hidden stations,
given the others. With C_hh, C_hk, C_kk the covariances among hidden and known stations, these have
the covariance

    P = C_hh - C_hk (C_kk + nugget I)^-1 C_kh + nugget I

and the products D have the Gaussian log-likelihood -log|P| - tr(P^-1 D). Sill and nugget scale P,
so that for each range and each ratio of the two the best sill has a closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from stonet.calibration.past_forecasts import PastForecasts
from stonet.calibration.series import issues_within, series_of
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.evaluation.interpolation import Variogram
from stonet.graph.neighbours import nearest_nodes
from stonet.linear.kriging import evenly_spaced, mean_spacing
from stonet.system.progress import report_progress
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

NUM_FOLDS = 5
MIN_STATIONS = 10
MAX_HIDDEN = 64  # stations of a fold whose errors are used
MAX_WINDOWS = 60  # forecasts of each fold
NEAR = 12  # known stations around each hidden one that its kriging error is given
NUM_RANGES = 16  # candidates, from half a spacing between stations to MAX_RANGE of them
MAX_RANGE = 64.0
ROUNDS, OUTLIER = 2, 2.5  # of fitting; standard deviations beyond which an error is shrunk
RATIOS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)  # candidates of nugget / sill

Index = Int64[np.ndarray, "_"]  # positions of stations
Products = Float64[np.ndarray, "hidden hidden"]  # mean products of errors
Lags = tuple[
    np.ndarray, np.ndarray, np.ndarray
]  # among hidden stations, to known ones, among these


@dataclass(frozen=True)
class Fold:
    """Errors at stations that were hidden together.

    Args:
        known: positions of the stations whose history was given.
        hidden: positions of the others.
        without: mean products of their errors without their history.
        with_history: the same of errors with their history.
    """

    known: Index
    hidden: Index
    without: Products
    with_history: Products

    @property
    def removable(self) -> Products:
        """What own sensors would remove; NaN where too little was observed."""
        return self.without - self.with_history


def cross_fitted(
    trained: TrainedModel, task: Task, channel: int, part: str = "validation"
) -> list[Fold]:
    """Errors at every seen station, forecast without and with its own history.

    Args:
        trained: a model that forecasts at points without history.
        task: the data.
        channel: position of the channel.
        part: of the data; errors of the training part would be too small.

    Raises:
        UsageError: the model cannot forecast where it has no history.
        DataError: there are too few stations or windows.
    """
    seen = task.dataset.seen
    if not trained.model.inductive:
        raise UsageError(
            f"{trained.config.model} forecasts only at stations with a history, so that its errors "
            "elsewhere are unknown. Use a model that forecasts anywhere, such as stonet."
        )
    if len(seen) < MIN_STATIONS:
        raise DataError(
            f"{len(seen)} stations were given; errors between stations are estimated from at "
            f"least {MIN_STATIONS}."
        )
    order = np.random.default_rng(0).permutation(seen)
    split = [np.sort(order[number::NUM_FOLDS]) for number in range(NUM_FOLDS)]
    chosen = [fold[evenly_spaced(len(fold), MAX_HIDDEN)] for fold in split]
    targets = np.sort(np.concatenate(chosen))
    own = _errors(trained, task, part, seen, targets, channel)
    folds = []
    for number, (members, hidden) in enumerate(zip(split, chosen, strict=True)):
        report_progress(number + 1, NUM_FOLDS + 1, "errors at hidden stations")
        known = np.setdiff1d(seen, members)
        errors = _errors(trained, task, part, known, hidden, channel)
        columns = np.searchsorted(targets, hidden)
        both = np.isfinite(errors) & np.isfinite(own[:, columns])
        products = (_products(np.where(both, e, np.nan)) for e in (errors, own[:, columns]))
        folds.append(Fold(known, hidden, *products))
    report_progress(NUM_FOLDS + 1, NUM_FOLDS + 1)
    if not any(np.isfinite(fold.removable).any() for fold in folds):
        raise DataError(
            f"No error is known in the {part} part: it is too short, or nothing was observed in it."
        )
    return folds


def _errors(
    trained: TrainedModel, task: Task, part: str, nodes: Index, targets: Index, channel: int
) -> Float64[np.ndarray, "row target"]:
    """Errors of evenly spaced windows, one row for each window and lead."""
    rows, graphs = [], None
    for whole, issues in _chosen(task, part):
        past = PastForecasts(trained.model, trained, whole, nodes, targets, graphs)
        graphs = past.graphs
        errors = past.errors(issues)[..., channel].astype(np.float64)
        rows.append(errors.reshape(-1, len(targets)))
    return np.concatenate(rows) if rows else np.zeros((0, len(targets)))


def _chosen(task: Task, part: str) -> Iterator[tuple]:
    """Fields with some of their issue times, MAX_WINDOWS in all, evenly spaced."""
    series = [
        (whole, issues_within(task, field) + offset)
        for whole, offset, field in series_of(task, part)
    ]
    total = sum(len(issues) for _, issues in series)
    wanted = evenly_spaced(total, MAX_WINDOWS) if total else np.zeros(0, np.int64)
    start = 0
    for whole, issues in series:
        inside = wanted[(wanted >= start) & (wanted < start + len(issues))] - start
        start += len(issues)
        if len(inside):
            yield whole, issues[inside]


def _products(errors: Float64[np.ndarray, "row point"]) -> Float64[np.ndarray, "point point"]:
    """Mean products of two columns over the rows where both are known; NaN without any."""
    known = np.isfinite(errors).astype(np.float64)
    filled = np.where(known > 0, errors, 0.0)
    count = known.T @ known
    return np.where(count > 0, filled.T @ filled / np.maximum(count, 1.0), np.nan)


def fit_error_covariance(folds: Sequence[Fold], points: Points) -> Variogram:
    """The exponential covariance of which the removable errors are most likely kriging errors.

    Stations with errors far beyond those that the first fit expects are shrunk for a second one.

    Args:
        folds: as from `cross_fitted`.
        points: whose positions the folds name.

    Raises:
        DataError: stations with their own history are forecast no better than without it.

    Example:
        >>> fit_error_covariance(cross_fitted(trained, task, 0), task.dataset.points).range
    """
    spacing = mean_spacing(points)
    ranges = np.geomspace(0.5 * spacing, MAX_RANGE * spacing, NUM_RANGES).tolist()
    chosen = [np.isfinite(np.diagonal(fold.removable)) for fold in folds]
    products = [
        np.nan_to_num(f.removable[np.ix_(c, c)]) for f, c in zip(folds, chosen, strict=True)
    ]
    lags = [
        _lags(fold.known, fold.hidden[c], points) for fold, c in zip(folds, chosen, strict=True)
    ]
    candidates = [
        (length, ratio, [_expected(lag, length, ratio) for lag in lags])
        for length in ranges
        for ratio in RATIOS
    ]
    for _ in range(ROUNDS):
        scored = [
            (*_likelihood(expected, products), n) for n, (*_, expected) in enumerate(candidates)
        ]
        _, sill, best = max(scored)
        if sill <= 0:
            raise DataError(
                "At stations that were hidden the errors are no larger than with their own "
                "history: no sensor would reduce them. Train longer, or choose another channel."
            )
        length, ratio, expected = candidates[best]
        products = [_shrunk(d, sill * p) for d, p in zip(products, expected, strict=True)]
    return Variogram("exponential", ratio * sill, sill, length, points.kind)


def _likelihood(expected: Sequence[Products], products: Sequence[Products]) -> tuple[float, float]:
    """Log-likelihood of the products (twice, without constants), and the sill that maximises it."""
    trace = logarithms = 0.0
    size = sum(len(part) for part in products)
    for covariance, found in zip(expected, products, strict=True):
        trace += float(np.trace(np.linalg.solve(covariance, found)))
        logarithms += float(np.linalg.slogdet(covariance)[1])
    sill = trace / size
    return (-size * float(np.log(sill)) - logarithms if sill > 0 else -np.inf), sill


def _shrunk(found: Products, expected: Products) -> Products:
    """Products with the errors of outliers reduced to OUTLIER standard deviations."""
    ratio = np.sqrt(np.maximum(np.diagonal(found), 0.0) / np.diagonal(expected))
    factor = np.minimum(1.0, OUTLIER / np.maximum(ratio, 1e-12))
    return found * np.outer(factor, factor)


def kriging_products(
    among_hidden: Float64[np.ndarray, "hidden hidden"],
    across: Float64[np.ndarray, "hidden known"],
    among_known: Float64[np.ndarray, "known known"],
    nugget: float,
) -> Float64[np.ndarray, "hidden hidden"]:
    """Covariances of the errors of simple kriging at hidden stations, given the known ones.

    Args:
        among_hidden: covariances without the nugget.
        across: those between hidden and known stations.
        among_known: those among the known ones.
        nugget: variance that no two stations share.
    """
    noise = (nugget + 1e-9) * np.eye(len(among_known))
    weights = np.linalg.solve(among_known + noise, across.T)
    return among_hidden - across @ weights + nugget * np.eye(len(among_hidden))


def _expected(lags: Lags, length: float, ratio: float) -> Products:
    """Kriging products for a sill of one."""
    among_hidden, across, among_known = (np.exp(-lag / length) for lag in lags)
    return kriging_products(among_hidden, across, among_known, ratio)


def _lags(known: Index, hidden: Index, points: Points) -> Lags:
    """Distances among hidden stations, to the known ones near them, and among these."""
    unseen, others = points.take(hidden), points.take(known)
    near = nearest_nodes(unseen, others, min(NEAR, len(others)))[1]
    others = others.take(np.unique(near))

    def between(a: Points, b: Points) -> Float64[np.ndarray, "a b"]:
        return points.geometry.distance(a.embedded[:, None], b.embedded[None])

    return between(unseen, unseen), between(unseen, others), between(others, others)
