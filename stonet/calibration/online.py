r"""Online adaptation: widths of intervals follow the model's recent errors.

The earlier forecasts of an issue time are replayed, the oldest first. At each of them, for each
lead and channel, with s the scores |corrected error| / scale at all points,

    width factor = ratio * exp(shift),
    ratio = (PRIOR + sum of means of s) / (PRIOR + number of forecasts), exponentially weighted,
    shift <- shift + STEP (share of s above the interval's bound - 0.1).

The second rule is adaptive conformal inference (Gibbs and Candès 2021) on a logarithmic scale: it
keeps the long-run coverage of the 90 % intervals whatever the data do. The first follows changes
of the error's size faster; it needs scales with a mean score of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.calibration.feedback import ErrorMean, Feedback, oldest_first
from stonet.calibration.past_forecasts import AllErrors, Errors

TRACKED = 0.9  # level of the intervals whose coverage is kept
STEP = 0.1  # change of the logarithm of a width for a forecast that misses everywhere
RATE = 0.9  # weight of a forecast's scores relative to the next newer ones
PRIOR = 3.0  # forecasts with mean score 1 that the ratio is shrunk by

Factors = Float32[np.ndarray, "issue lead channel"]


@dataclass(frozen=True)
class KnownErrors:
    """What the earlier forecasts tell about the forecasts from some issue times.

    Args:
        correction: at the points themselves.
        region: at all other points.
        factor: of the widths of intervals.
    """

    correction: Float32[np.ndarray, "issue lead point channel"]
    region: Float32[np.ndarray, "issue lead channel"]
    factor: Factors


class WidthFactor:
    """Width factors, for some issue times at once; adds one earlier forecast at a time.

    Args:
        shape: of the factors.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.total, self.weight, self.shift = (np.zeros(shape, np.float32) for _ in range(3))

    @property
    def value(self) -> Factors:
        """The present factor."""
        ratio = (self.total + np.float32(PRIOR)) / (self.weight + np.float32(PRIOR))
        return ratio * np.exp(self.shift)

    def add(self, scores: Errors, bound: Float32[np.ndarray, " channel"]) -> None:
        """Add the scores of a newer forecast.

        Args:
            scores: |corrected error| / scale; NaN where unknown.
            bound: the score at the end of a 90 % interval with factor 1.
        """
        known = np.isfinite(scores)
        count = known.sum(2)
        each = np.maximum(count, 1).astype(np.float32)
        filled = np.where(known, scores, 0)
        missed = (filled > (bound * self.value)[:, :, None]).sum(2) / each
        self.shift += np.where(count > 0, STEP * (missed - (1 - TRACKED)), 0).astype(np.float32)
        self.total = RATE * self.total + filled.sum(2) / each
        self.weight = RATE * self.weight + (count > 0)


def replay(
    errors: AllErrors,
    earlier: Int64[np.ndarray, "issue memory"],
    feedback: Feedback,
    scale: Float32[np.ndarray, "forecast lead point channel"] | None = None,
    bound: Float64[np.ndarray, " channel"] | None = None,
) -> KnownErrors:
    """Replay the earlier forecasts of some issue times.

    Args:
        errors: of all forecasts, uncorrected.
        earlier: positions among `errors` of the earlier forecasts of each issue time.
        feedback: of the correction.
        scale: expected absolute errors; NaN where scores are left out (None: no adaptation).
        bound: the score at the end of a 90 % interval with factor 1.
    """
    shape = (len(earlier), *errors.shape[1:])
    running = ErrorMean(shape, feedback.rate)
    factor = WidthFactor((shape[0], shape[1], shape[3]))
    for rows, error in oldest_first(errors, earlier):
        if scale is not None and bound is not None and len(scale):
            corrected = error - feedback.correction(running.shrunk)
            factor.add(np.abs(corrected) / scale[rows], bound.astype(np.float32))
        running.add(error)
    mean = running.shrunk
    correction = feedback.correction(mean)
    elsewhere = feedback.correction(_appended_unknown(mean))[:, :, -1]
    return KnownErrors(correction, elsewhere, factor.value)


def _appended_unknown(
    mean: Float32[np.ndarray, "issue lead point channel"],
) -> Float32[np.ndarray, "issue lead more channel"]:
    """The means with a further point whose errors are unknown."""
    unknown = np.full_like(mean[:, :, :1], np.nan)
    if not mean.shape[2]:
        unknown = np.full((*mean.shape[:2], 1, mean.shape[3]), np.nan, np.float32)
    return np.concatenate([mean, unknown], axis=2)
