"""Calibration: scores |error| / scale of held-out times and points, and their quantiles.

A central interval of a level holds

    forecast +- quantile(level, bin) * scale(bin, lead, hour, month) * width factor(level, lead),

clipped to the physical range. Quantiles are those of the scores in the validation part, which the
model was not fitted to: split conformal prediction, without assumptions on the model. For small
samples they are widened by the ratio of Student's t to the normal distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy import stats

from stonet.calibration.bins import Bins
from stonet.calibration.feedback import Feedback
from stonet.calibration.online import TRACKED, Bounds
from stonet.calibration.scale import Scale
from stonet.errors import UsageError

LEVELS = np.array([*np.arange(0.02, 0.99, 0.02), 0.985, 0.99, 0.995])  # of the stored quantiles
MAX_LEVEL = float(LEVELS[-1])
BIN_PRIOR = 10.0  # points that the quantiles of a bin are shrunk by, towards those of all bins


@dataclass(frozen=True)
class Intervals:
    """Scores of a model's forecasts: their scale and their quantiles.

    Args:
        scale: expected absolute errors.
        quantiles: of the scores, at LEVELS.
        degrees: size of the sample in each bin, less one: independent windows, or points if there
            are fewer, at points without history. Less than 1: no interval is given.
    """

    scale: Scale
    quantiles: Float64[np.ndarray, "bin level channel"]
    degrees: tuple[float, ...]

    def score_at(self, level: float) -> Float64[np.ndarray, "bin channel"]:
        """The score at the end of a central interval; NaN in bins without intervals.

        Args:
            level: probability of the interval.

        Raises:
            UsageError: if the level is not in 0 to MAX_LEVEL.
        """
        if not 0 <= level <= MAX_LEVEL + 1e-9:
            raise UsageError(
                f"An interval of {100 * level:g} %; expected 0 to {100 * MAX_LEVEL:g} %."
            )
        return self._interpolated(level) * self._widening(level)[:, None]

    @property
    def bounds(self) -> Bounds:
        """The scores that online adaptation compares with: of intervals with history."""
        return np.stack([self.score_at(level)[0] for level in TRACKED])

    def _interpolated(self, level: float) -> Float64[np.ndarray, "bin channel"]:
        """The quantile at any level; 0 at level 0."""
        levels = np.append(0.0, LEVELS)
        upper = int(np.clip(np.searchsorted(levels, level), 1, len(LEVELS)))
        share = (level - levels[upper - 1]) / (levels[upper] - levels[upper - 1])
        table = np.concatenate([np.zeros_like(self.quantiles[:, :1]), self.quantiles], axis=1)
        return (1 - share) * table[:, upper - 1] + share * table[:, upper]

    def _widening(self, level: float) -> Float64[np.ndarray, " bin"]:
        """Student's t over the normal quantile, for the size of each bin's sample."""
        degrees = np.array(self.degrees)
        upper = (1 + max(level, 1e-3)) / 2
        ratio = stats.t.ppf(upper, np.maximum(degrees, 1)) / stats.norm.ppf(upper)
        return np.where(degrees >= 1, ratio, np.nan)


@dataclass(frozen=True)
class Calibration:
    """How the forecasts of one model are corrected and what intervals they have.

    Args:
        feedback: correction by recent errors.
        bins: of history and distance.
        corrected: intervals of forecasts that were corrected.
        uncorrected: intervals of forecasts that were not, as without feedback or known errors.
    """

    feedback: Feedback
    bins: Bins
    corrected: Intervals
    uncorrected: Intervals


def interval_levels(quantiles: Sequence[float]) -> Float64[np.ndarray, " quantile"]:
    """The levels of the central intervals that end at these quantiles.

    Args:
        quantiles: as the user gave them.

    Raises:
        UsageError: if quantiles do not increase, or are too close to 0 or 1.
    """
    taus = np.asarray(quantiles, dtype=np.float64)
    lowest = (1 - MAX_LEVEL) / 2
    valid = taus.ndim == 1 and len(taus) and np.isfinite(taus).all()
    if not valid or (np.diff(taus) <= 0).any() or (np.abs(2 * taus - 1) > MAX_LEVEL + 1e-9).any():
        raise UsageError(
            f"Quantiles {list(quantiles)}; expected increasing numbers from {lowest:g} to "
            f"{1 - lowest:g}, such as 0.05, 0.5, 0.95."
        )
    return np.abs(2 * taus - 1)


def weighted_quantiles(
    values: Float64[np.ndarray, " sample"],
    weights: Float64[np.ndarray, " sample"],
    levels: Float64[np.ndarray, " level"],
) -> Float64[np.ndarray, " level"]:
    """The smallest value whose cumulated weight reaches each level of the whole weight.

    Args:
        values: a sample; NaN is left out.
        weights: of each value, not negative.
        levels: 0 to 1.
    """
    known = np.isfinite(values) & (weights > 0)
    if not known.any():
        return np.full(len(levels), np.nan)
    order = np.argsort(values[known], kind="stable")
    cumulated = np.cumsum(weights[known][order])
    wanted = levels * cumulated[-1] * (1 - 1e-12)
    return values[known][order][np.searchsorted(cumulated, wanted).clip(max=len(order) - 1)]


def score_quantiles(
    scores: Float64[np.ndarray, "sample channel"],
    weights: Float64[np.ndarray, " sample"],
    bin_of: np.ndarray,
    points: Sequence[int],
    levels: Float64[np.ndarray, " level"] = LEVELS,
) -> Float64[np.ndarray, "bin level channel"]:
    """Quantiles in each bin; those of distance are shrunk towards those of all distances.

    Args:
        scores: NaN where unknown.
        weights: of each score.
        bin_of: the bin of each score.
        points: number of points in each bin of distance.
        levels: of the quantiles.
    """
    channels, bins = scores.shape[1], 1 + len(points)
    result = np.full((bins, len(levels), channels), np.nan)
    for channel in range(channels):
        members = [bin_of == number for number in range(bins)]
        for number, member in enumerate(members):
            found = weighted_quantiles(scores[member, channel], weights[member], levels)
            result[number, :, channel] = found
        if bins > 1:
            far = bin_of > 0
            parent = weighted_quantiles(scores[far, channel], weights[far], levels)
            share = np.array(points)[:, None] / (np.array(points)[:, None] + BIN_PRIOR)
            own = result[1:, :, channel]
            result[1:, :, channel] = np.where(
                np.isfinite(own), share * own + (1 - share) * parent, parent
            )
    return result
