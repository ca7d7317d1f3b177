r"""Ridge regression from sums: every solution, its error and the whitening follow from X'X and X'Y.

beta = argmin |Y - X beta|^2 + ridge |beta|^2,     beta_hour drawn towards the pooled beta
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64, Int64

RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
PULLS = (1e-3, 1e-2, 1e-1, 1.0, 1e6)  # of an hour's coefficients towards the pooled ones


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
        self.xx[hour] += product(x.T, x)
        targets = y.reshape(len(y), self.yy[hour].size)
        self.xy[hour] += product(x.T, targets).reshape(self.xy[hour].shape)
        self.yy[hour] += np.square(y).sum(0)
        self.count[hour] += len(x)

    def blurred(self, noise: Float64[np.ndarray, " column"]) -> Moments:
        """As they would be if each column had errors of this variance, unlike anything else."""
        return replace(self, xx=self.xx + self.count[:, None, None] * np.diag(noise))

    def take(self, keep: Int64[np.ndarray, " kept"]) -> Moments:
        """As if there were these columns only."""
        return replace(self, xx=self.xx[:, keep][:, :, keep], xy=self.xy[:, keep])

    def error(
        self, beta: Float64[np.ndarray, "hour column lead channel"]
    ) -> Float64[np.ndarray, "lead channel"]:
        """The mean squared error of these coefficients, from the sums alone."""
        fitted = product(self.xx, beta.reshape(*beta.shape[:2], -1)).reshape(beta.shape)
        squared = self.yy.sum(0) + ((fitted - 2 * self.xy) * beta).sum((0, 1))
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


def product(a: Float64[np.ndarray, "..."], b: Float64[np.ndarray, "..."]) -> np.ndarray:
    """The matrix product by torch: numpy has threads of its own, which fight with torch's."""
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def best_ridge(
    train: Moments, validation: Moments
) -> tuple[
    Float64[np.ndarray, "hour column lead channel"], Float64[np.ndarray, "lead channel"], float
]:
    """The coefficients that err least on validation, over all ridges and pulls; and the ridge."""
    judge = validation if validation.count.sum() else train
    xx, xy = train.xx, train.xy
    hours, columns = xy.shape[:2]
    size = np.trace(xx.sum(0)) / columns + 1e-12
    flat, one = xy.reshape(hours, columns, -1), np.eye(columns)
    pooled = np.stack(
        [np.linalg.solve(xx.sum(0) + ridge * size * one, flat.sum(0)) for ridge in RIDGES], axis=1
    )  # column ridge target
    best: tuple[float, np.ndarray, np.ndarray, float] | None = None
    for pull in PULLS if hours > 1 else PULLS[-1:]:
        betas = np.repeat(pooled[None], hours, axis=0)
        if pull < PULLS[-1]:  # one factorisation of each hour's matrix serves all ridges
            grip = pull * size / hours
            wanted = (flat[:, :, None] + grip * pooled).reshape(hours, columns, -1)
            betas = np.linalg.solve(xx + grip * one, wanted).reshape(betas.shape)
        for number, ridge in enumerate(RIDGES):
            beta = betas[:, :, number].reshape(xy.shape)
            error = judge.error(beta)
            if best is None or float(error.mean()) < best[0]:
                best = float(error.mean()), beta, error, ridge
    assert best is not None
    return best[1:]
