r"""Ridge regression from sums: every solution, its error and the whitening follow from X'X and X'Y.

beta = argmin |Y - X beta|^2 + ridge |beta - prior|^2,     beta_hour drawn towards the pooled beta
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STRONG = (1.0, 10.0, 1e9)  # towards a prior, the last one stands for infinity
PULLS = (1e-3, 1e-2, 1e-1, 1.0, 1e6)  # of an hour's towards the pooled ones; the last: infinity
BLOCK = 96  # columns of X'X that are made at a time
Beta = Float64[np.ndarray, "hour column lead channel"]


class Penalty(NamedTuple):
    """How strongly coefficients are held back, and an hour's drawn towards the pooled ones."""

    ridge: float
    pull: float


@dataclass(frozen=True)
class Moments:
    """Sums from which every ridge solution and its error follow."""

    xx: Float64[np.ndarray, "hour column column"]
    xy: Float64[np.ndarray, "hour column lead channel"]
    yy: Float64[np.ndarray, "hour lead channel"]
    count: Float64[np.ndarray, " hour"]

    @staticmethod
    def zeros(hours: int, columns: int, leads: int, channels: int) -> Moments:
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
        self.xx[hour] += gram(x)
        targets = y.reshape(len(y), self.yy[hour].size)
        self.xy[hour] += product(targets.T, x).T.reshape(self.xy[hour].shape)
        self.yy[hour] += np.square(y).sum(0)
        self.count[hour] += len(x)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.xx + other.xx, self.xy + other.xy, self.yy + other.yy, self.count + other.count
        )

    def blurred(self, noise: Float64[np.ndarray, " column"]) -> Moments:
        """As they would be if each column had errors of this variance, unlike anything else."""
        return replace(self, xx=self.xx + self.count[:, None, None] * np.diag(noise))

    def take(self, keep: Int64[np.ndarray, " kept"]) -> Moments:
        """As if there were these columns only, in this order; one may stand for another, too."""
        return replace(self, xx=self.xx[:, keep[:, None], keep], xy=self.xy[:, keep])

    def replaced(
        self, columns: Int64[np.ndarray, " some"], change: Float64[np.ndarray, "column some"]
    ) -> Moments:
        """As if these columns were mixtures of the others."""
        xx, xy = self.xx.copy(), self.xy.copy()
        mixed = xx @ change
        xx[:, :, columns] = mixed
        xx[:, columns] = np.swapaxes(mixed, 1, 2)
        xx[:, columns[:, None], columns] = change.T @ mixed
        xy[:, columns] = np.einsum("cs,hcld->hsld", change, xy)
        return replace(self, xx=xx, xy=xy)

    @property
    def pooled(self) -> Moments:
        """As if all hours were one."""
        return Moments(*(part.sum(0, keepdims=True) for part in vars(self).values()))

    def without(self, prior: Beta) -> Moments:
        """As they would be if the prior's forecast were taken from the targets (but for Y'Y)."""
        told = product(self.xx, prior.reshape(*prior.shape[:2], -1)).reshape(prior.shape)
        return replace(self, xy=self.xy - told)

    def error(
        self, beta: Float64[np.ndarray, "hour column *more lead channel"]
    ) -> Float64[np.ndarray, "*more lead channel"]:
        """The mean squared error of these coefficients, from the sums alone."""
        fitted = product(self.xx, beta.reshape(*beta.shape[:2], -1)).reshape(beta.shape)
        xy = self.xy.reshape(*beta.shape[:2], *(1,) * (beta.ndim - 4), *beta.shape[-2:])
        squared = self.yy.sum(0) + ((fitted - 2 * xy) * beta).sum((0, 1))
        return squared / max(self.count.sum(), 1.0)

    def whitening(self, ridge: float, width: int) -> Float64[np.ndarray, "column {width}"]:
        """Maps [regressors, 1] to uncorrelated numbers of order one, those of largest variance.

        Directions that vary less than the ridge are left small: the ridge says they are noise.
        """
        xx, count = self.xx.sum(0), max(self.count.sum(), 1.0)
        mean = xx[-1, :-1] / count
        covariance = xx[:-1, :-1] / count - np.outer(mean, mean)
        variance, direction = np.linalg.eigh(covariance)
        chosen = np.argsort(variance)[::-1][:width]
        floor = ridge * np.trace(xx) / len(xx) / count
        scaled = direction[:, chosen] / np.sqrt(np.maximum(variance[chosen], 0) + floor)
        result = np.zeros((len(xx), width))
        result[:, : len(chosen)] = np.concatenate([scaled, -mean[None] @ scaled])
        return result


def gram(x: Float64[np.ndarray, "row column"]) -> Float64[np.ndarray, "column column"]:
    """X'X, whose lower blocks are its upper ones turned over."""
    columns = x.shape[1]
    result = np.empty((columns, columns))
    for start in range(0, columns, BLOCK):
        stop = min(start + BLOCK, columns)
        result[start:stop, start:] = product(x[:, start:stop].T, x[:, start:])
        result[stop:, start:stop] = result[start:stop, stop:].T
    return result


def product(a: Float64[np.ndarray, "..."], b: Float64[np.ndarray, "..."]) -> np.ndarray:
    """The matrix product by torch: numpy has threads of its own, which fight with torch's."""
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def best_penalty(folds: Sequence[tuple[Moments, Moments]], prior: Beta | None = None) -> Penalty:
    """The ridge that errs least without hours, then the pull with it, then the ridge once more.

    Coefficients are fitted to the first of each pair and judged by the second; where that is empty,
    by the first.
    """
    pairs = [(train, judge if judge.count.sum() else train) for train, judge in folds]
    if prior is not None:
        pairs = [(train.without(prior), judge.without(prior)) for train, judge in pairs]
    ridges = RIDGES if prior is None else (*RIDGES, *STRONG)
    pooled = [(train.pooled, judge.pooled) for train, judge in pairs]
    alone = [Penalty(ridge, PULLS[-1]) for ridge in ridges]
    best = min(zip(_errors(pooled, ridges, PULLS[-1]), alone, strict=True))[1]
    if len(pairs[0][0].count) == 1:
        return best
    by_pull = [(_errors(pairs, (best.ridge,), pull)[0], pull) for pull in PULLS]
    pull = min(by_pull)[1]
    return Penalty(min(zip(_errors(pairs, ridges, pull), ridges, strict=True))[1], pull)


def solve(train: Moments, choice: Penalty, prior: Beta | None = None) -> Beta:
    """The coefficients, held back as chosen."""
    rest = train if prior is None else train.without(prior)
    beta = _solutions(rest, (choice.ridge,), choice.pull)[:, :, 0]
    return beta if prior is None else beta + prior


def _errors(
    pairs: Sequence[tuple[Moments, Moments]], ridges: Sequence[float], pull: float
) -> list[float]:
    """For every ridge; up to what the targets themselves have, if these are what a prior left."""
    errors = [judge.error(_solutions(train, ridges, pull)).mean((1, 2)) for train, judge in pairs]
    return np.sum(errors, axis=0).tolist()


def _solutions(
    train: Moments, ridges: Sequence[float], pull: float
) -> Float64[np.ndarray, "hour column ridge lead channel"]:
    """The coefficients of all ridges."""
    xx, (hours, columns, *target) = train.xx, train.xy.shape
    size = np.trace(xx.sum(0)) / columns + 1e-12
    flat, one = train.xy.reshape(hours, columns, -1), np.eye(columns)
    pooled = np.stack(
        [np.linalg.solve(xx.sum(0) + ridge * size * one, flat.sum(0)) for ridge in ridges], axis=1
    )  # column ridge target
    betas = np.repeat(pooled[None], hours, axis=0)
    if hours > 1 and pull < PULLS[-1]:  # one factorisation of each hour's matrix serves all ridges
        grip = pull * size / hours
        wanted = (flat[:, :, None] + grip * pooled).reshape(hours, columns, -1)
        betas = np.linalg.solve(xx + grip * one, wanted)
    return betas.reshape(hours, columns, len(ridges), *target)
