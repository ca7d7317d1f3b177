r"""Ridge regression from sums: every solution, its error and the whitening follow from X'X and X'Y.

beta = argmin |Y - X beta|^2 + ridge |beta - prior|^2,     beta_hour drawn towards the pooled beta
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STRONG = (1.0, 10.0, 1e9)  # towards a prior, the last one stands for infinity
PULLS = (1e-3, 1e-2, 1e-1, 1.0, 1e6)  # of an hour's coefficients towards the pooled ones
BLOCK = 96  # columns of X'X that are made at a time
Beta = Float64[np.ndarray, "hour column lead channel"]


class Choice(NamedTuple):
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
        self.xy[hour] += product(x.T, targets).reshape(self.xy[hour].shape)
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
        return replace(self, xx=self.xx[:, keep][:, :, keep], xy=self.xy[:, keep])

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


def best_choice(folds: Sequence[tuple[Moments, Moments]], prior: Beta | None = None) -> Choice:
    """Of all ridges and pulls those that err least.

    Coefficients are fitted to the first of each pair and judged by the second; where that is empty,
    by the first.
    """
    errors: dict[Choice, float] = {}
    ridges = RIDGES if prior is None else (*RIDGES, *STRONG)
    for train, judge in folds:
        for pull, betas in _solutions(train, ridges, PULLS, prior):
            by_ridge = (judge if judge.count.sum() else train).error(betas).mean((1, 2))
            for ridge, error in zip(ridges, by_ridge.tolist(), strict=True):
                choice = Choice(ridge, pull)
                errors[choice] = errors.get(choice, 0.0) + error
    return min(errors, key=lambda choice: errors[choice])


def solve(train: Moments, choice: Choice, prior: Beta | None = None) -> Beta:
    """The coefficients, held back as chosen."""
    pulls = (choice.pull, PULLS[-1])
    return next(_solutions(train, (choice.ridge,), pulls, prior))[1][:, :, 0]


def _solutions(
    train: Moments, ridges: Sequence[float], pulls: Sequence[float], prior: Beta | None
) -> Iterator[tuple[float, Float64[np.ndarray, "hour column ridge lead channel"]]]:
    """For every pull the coefficients of all ridges; the last pull stands for infinity."""
    rest = train if prior is None else train.without(prior)
    xx, (hours, columns, *target) = rest.xx, rest.xy.shape
    size = np.trace(xx.sum(0)) / columns + 1e-12
    flat, one = rest.xy.reshape(hours, columns, -1), np.eye(columns)
    pooled = np.stack(
        [np.linalg.solve(xx.sum(0) + ridge * size * one, flat.sum(0)) for ridge in ridges], axis=1
    )  # column ridge target
    for pull in pulls if hours > 1 else pulls[-1:]:
        betas = np.repeat(pooled[None], hours, axis=0)
        if pull < pulls[-1]:  # one factorisation of each hour's matrix serves all ridges
            grip = pull * size / hours
            wanted = (flat[:, :, None] + grip * pooled).reshape(hours, columns, -1)
            betas = np.linalg.solve(xx + grip * one, wanted).reshape(betas.shape)
        betas = betas.reshape(hours, columns, len(ridges), *target)
        yield pull, betas if prior is None else betas + prior[:, :, None]
