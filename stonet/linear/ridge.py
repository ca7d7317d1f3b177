r"""Ridge regression from sums: every solution and its error follow from X'X and X'Y.

    pooled beta   argmin |Y - X beta|^2 + ridge s |beta - prior|^2           over all hours
    hourly beta   argmin |Y_h - X_h beta|^2 + pull s/H |beta - pooled|^2     for each of H hours

s is the mean of the diagonal of X'X, so that ridge and pull have no unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # candidates
PRIOR_RIDGES = (1.0, 10.0, 1e9)  # further candidates if there is a prior; 1e9 stands for infinity
PULLS = (1e-3, 1e-2, 1e-1, 1.0, 1e6)  # candidates; from the last one on, hours are pooled
INFINITE_PULL = PULLS[-1]
GRAM_COLUMNS = 96  # columns of X'X that are computed together
Beta = Float64[np.ndarray, "hour column lead channel"]


class Penalty(NamedTuple):
    """The strengths of the two penalties.

    Args:
        ridge: on the distance to the prior.
        pull: on the distance of hourly to pooled coefficients.
    """

    ridge: float
    pull: float


@dataclass(frozen=True)
class Moments:
    """Sums over rows, for each hour of the day: X'X, X'Y, Y'Y and the number of rows.

    Args:
        xx: X'X.
        xy: X'Y.
        yy: sums of squares of Y.
        count: number of rows.
    """

    xx: Float64[np.ndarray, "hour column column"]
    xy: Float64[np.ndarray, "hour column lead channel"]
    yy: Float64[np.ndarray, "hour lead channel"]
    count: Float64[np.ndarray, " hour"]

    @staticmethod
    def zeros(hours: int, columns: int, leads: int, channels: int) -> Moments:
        """The sums of no rows.

        Args:
            hours: of the day; 1 without a daily cycle.
            columns: of X.
            leads: number of leads.
            channels: number of channels.
        """
        return Moments(
            np.zeros((hours, columns, columns)),
            np.zeros((hours, columns, leads, channels)),
            np.zeros((hours, leads, channels)),
            np.zeros(hours),
        )

    def add(
        self,
        hour: int,
        x: Float64[np.ndarray, "row column"],
        y: Float64[np.ndarray, "row lead channel"],
    ) -> None:
        """Add rows of one hour.

        Args:
            hour: of all these rows.
            x: regressors.
            y: targets.
        """
        self.xx[hour] += gram(x)
        targets = y.reshape(len(y), self.yy[hour].size)
        self.xy[hour] += product(targets.T, x).T.reshape(self.xy[hour].shape)
        self.yy[hour] += np.square(y).sum(0)
        self.count[hour] += len(x)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.xx + other.xx, self.xy + other.xy, self.yy + other.yy, self.count + other.count
        )

    def with_noise(self, noise: Float64[np.ndarray, " column"]) -> Moments:
        """The expected sums if each column had independent errors of this variance.

        Args:
            noise: variance in each column.
        """
        return replace(self, xx=self.xx + self.count[:, None, None] * np.diag(noise))

    def take(self, keep: Int64[np.ndarray, " kept"]) -> Moments:
        """The sums of these columns, in this order; a column may appear more than once.

        Args:
            keep: positions of columns.
        """
        return replace(self, xx=self.xx[:, keep[:, None], keep], xy=self.xy[:, keep])

    def replaced(
        self, columns: Int64[np.ndarray, " some"], change: Float64[np.ndarray, "column some"]
    ) -> Moments:
        """The sums if these columns were X `change`, linear combinations of all columns.

        Args:
            columns: positions of the columns to replace.
            change: coefficients of the combinations.
        """
        xx, xy = self.xx.copy(), self.xy.copy()
        mixed = xx @ change
        xx[:, :, columns] = mixed
        xx[:, columns] = np.swapaxes(mixed, 1, 2)
        xx[:, columns[:, None], columns] = change.T @ mixed
        xy[:, columns] = np.einsum("cs,hcld->hsld", change, xy)
        return replace(self, xx=xx, xy=xy)

    @property
    def pooled(self) -> Moments:
        """The sums over all hours."""
        return Moments(*(part.sum(0, keepdims=True) for part in vars(self).values()))

    def without(self, prior: Beta) -> Moments:
        """X'X and X'(Y - X prior); Y'Y is unchanged.

        Args:
            prior: coefficients.
        """
        fitted = product(self.xx, prior.reshape(*prior.shape[:2], -1)).reshape(prior.shape)
        return replace(self, xy=self.xy - fitted)

    def error(
        self, beta: Float64[np.ndarray, "hour column *more lead channel"]
    ) -> Float64[np.ndarray, "*more lead channel"]:
        """The mean squared error of these coefficients over the rows.

        Args:
            beta: coefficients; several sets of them may follow the columns.
        """
        fitted = product(self.xx, beta.reshape(*beta.shape[:2], -1)).reshape(beta.shape)
        xy = self.xy.reshape(*beta.shape[:2], *(1,) * (beta.ndim - 4), *beta.shape[-2:])
        squared = self.yy.sum(0) + ((fitted - 2 * xy) * beta).sum((0, 1))
        return squared / max(self.count.sum(), 1.0)


def gram(x: Float64[np.ndarray, "row column"]) -> Float64[np.ndarray, "column column"]:
    """X'X; the lower blocks are copied from the upper ones.

    Args:
        x: one row for each observation.
    """
    columns = x.shape[1]
    result = np.empty((columns, columns))
    for start in range(0, columns, GRAM_COLUMNS):
        stop = min(start + GRAM_COLUMNS, columns)
        result[start:stop, start:] = product(x[:, start:stop].T, x[:, start:])
        result[stop:, start:stop] = result[start:stop, stop:].T
    return result


def product(a: Float64[np.ndarray, "..."], b: Float64[np.ndarray, "..."]) -> np.ndarray:
    """The matrix product by torch: threads of numpy and of torch would compete for the cores.

    Args:
        a: the left factor.
        b: the right factor.
    """
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def best_penalty(folds: Sequence[tuple[Moments, Moments]], prior: Beta | None = None) -> Penalty:
    """The penalty with the least validation error.

    First the ridge of pooled coefficients, then the pull with this ridge, then the ridge again.

    Args:
        folds: pairs (training, validation); an empty validation part is replaced by the training.
        prior: coefficients that the ridge draws towards; None: zero.
    """
    pairs = [(train, test if test.count.sum() else train) for train, test in folds]
    if prior is not None:
        pairs = [(train.without(prior), test.without(prior)) for train, test in pairs]
    ridges = RIDGES if prior is None else (*RIDGES, *PRIOR_RIDGES)
    pooled = [(train.pooled, test.pooled) for train, test in pairs]
    alone = [Penalty(ridge, INFINITE_PULL) for ridge in ridges]
    best = min(zip(_errors(pooled, ridges, INFINITE_PULL), alone, strict=True))[1]
    if len(pairs[0][0].count) == 1:
        return best
    by_pull = [(_errors(pairs, (best.ridge,), pull)[0], pull) for pull in PULLS]
    pull = min(by_pull)[1]
    return Penalty(min(zip(_errors(pairs, ridges, pull), ridges, strict=True))[1], pull)


def solve(train: Moments, penalty: Penalty, prior: Beta | None = None) -> Beta:
    """The coefficients of every hour.

    Args:
        train: sums of the training rows.
        penalty: strengths of ridge and pull.
        prior: coefficients that the ridge draws towards; None: zero.
    """
    rest = train if prior is None else train.without(prior)
    beta = _solutions(rest, (penalty.ridge,), penalty.pull)[:, :, 0]
    return beta if prior is None else beta + prior


def _errors(
    pairs: Sequence[tuple[Moments, Moments]], ridges: Sequence[float], pull: float
) -> list[float]:
    """The mean squared error for every ridge, up to a constant if a prior was subtracted."""
    errors = [test.error(_solutions(train, ridges, pull)).mean((1, 2)) for train, test in pairs]
    return np.sum(errors, axis=0).tolist()


def _solutions(
    train: Moments, ridges: Sequence[float], pull: float
) -> Float64[np.ndarray, "hour column ridge lead channel"]:
    """The coefficients for every ridge."""
    xx, (hours, columns, *target) = train.xx, train.xy.shape
    size = np.trace(xx.sum(0)) / columns + 1e-12
    flat, one = train.xy.reshape(hours, columns, -1), np.eye(columns)
    pooled = np.stack(
        [np.linalg.solve(xx.sum(0) + ridge * size * one, flat.sum(0)) for ridge in ridges], axis=1
    )  # column ridge target
    betas = np.repeat(pooled[None], hours, axis=0)
    if hours > 1 and pull < INFINITE_PULL:  # one factorisation per hour serves all ridges
        strength = pull * size / hours
        right = (flat[:, :, None] + strength * pooled).reshape(hours, columns, -1)
        betas = np.linalg.solve(xx + strength * one, right)
    return betas.reshape(hours, columns, len(ridges), *target)
