r"""Ridge regression from sums: every solution, its error and the whitening follow from X'X and X'Y.

beta = argmin |Y - X beta|^2 + ridge |beta|^2,     beta_hour drawn towards the pooled beta
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

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
        self.xx[hour] += x.T @ x
        self.xy[hour] += np.einsum("rc,rld->cld", x, y, optimize=True)
        self.yy[hour] += np.square(y).sum(0)
        self.count[hour] += len(x)

    def error(
        self, beta: Float64[np.ndarray, "hour column lead channel"], keep: np.ndarray
    ) -> Float64[np.ndarray, "lead channel"]:
        """The mean squared error of these coefficients, from the sums alone."""
        xx, xy = self.xx[:, keep][:, :, keep], self.xy[:, keep]
        fitted = np.einsum("hcld,hce,held->ld", beta, xx, beta, optimize=True)
        crossed = np.einsum("hcld,hcld->ld", beta, xy)
        return (self.yy.sum(0) - 2 * crossed + fitted) / max(self.count.sum(), 1.0)

    def whitening(self, keep: np.ndarray, ridge: float, columns: int, width: int) -> np.ndarray:
        """(columns, width): maps [regressors, 1] to uncorrelated numbers of order one.

        Directions that vary less than the ridge are left small: the ridge says they are noise.
        """
        xx, count = self.xx.sum(0)[np.ix_(keep, keep)], max(self.count.sum(), 1.0)
        mean = xx[-1, :-1] / count
        covariance = xx[:-1, :-1] / count - np.outer(mean, mean)
        variance, direction = np.linalg.eigh(covariance)
        chosen = np.argsort(variance)[::-1][:width]
        floor = ridge * np.trace(xx) / len(keep) / count
        scaled = direction[:, chosen] / np.sqrt(np.maximum(variance[chosen], 0) + floor)
        result = np.zeros((columns, width))
        result[keep[:-1], : len(chosen)] = scaled
        result[-1, : len(chosen)] = -mean @ scaled
        return result


def best_ridge(
    train: Moments, validation: Moments, keep: np.ndarray
) -> tuple[
    Float64[np.ndarray, "hour column lead channel"], Float64[np.ndarray, "lead channel"], float
]:
    """The coefficients that err least on validation, over all ridges and pulls; and the ridge."""
    judge = validation if validation.count.sum() else train
    xx, xy = train.xx[:, keep][:, :, keep], train.xy[:, keep]
    hours, columns = xy.shape[:2]
    size = np.trace(xx.sum(0)) / columns + 1e-12
    best: tuple[float, np.ndarray, np.ndarray, float] | None = None
    flat = xy.reshape(hours, columns, -1)
    for ridge in RIDGES:
        pooled = np.linalg.solve(xx.sum(0) + ridge * size * np.eye(columns), flat.sum(0))
        for pull in PULLS if hours > 1 else PULLS[-1:]:
            beta = np.repeat(pooled[None], hours, axis=0)
            if hours > 1 and pull < PULLS[-1]:
                grip = pull * size / hours * np.eye(columns)
                beta = np.linalg.solve(xx + grip, flat + grip @ pooled)
            shaped = beta.reshape(xy.shape)
            error = judge.error(shaped, keep)
            if best is None or float(error.mean()) < best[0]:
                best = float(error.mean()), shaped, error, ridge
    assert best is not None
    return best[1:]
