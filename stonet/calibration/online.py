r"""Online adaptation: widths of intervals follow the model's recent errors.

The earlier forecasts of an issue time are replayed, the oldest first. At each of them, for each
lead and channel, with s the scores |corrected error| / scale at all points,

    width factor(level) = ratio * exp(shift(level)),
    ratio = (PRIOR + sum of means of s) / (PRIOR + number of forecasts), exponentially weighted,
    shift(level) <- shift(level) + STEP (share of s above the interval's bound - (1 - level)).

The second rule is adaptive conformal inference (Gibbs and Candès 2021) on a logarithmic scale: it
keeps the long-run coverage of the intervals whatever the data do. It runs for the levels TRACKED;
between them shifts are interpolated. The first rule follows changes of the error's size faster; it
needs scales with a mean score of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.calibration.feedback import Feedback, RunningCorrection, oldest_first
from stonet.calibration.past_forecasts import AllErrors, Errors

TRACKED = (0.5, 0.8, 0.9, 0.95)  # levels of the intervals whose coverage is kept
STEP = 0.1  # change of the logarithm of a width for a forecast that misses everywhere
RATE = 0.9  # weight of a forecast's scores relative to the next newer ones
PRIOR = 3.0  # forecasts with mean score 1 that the ratio is shrunk by

Factors = Float32[np.ndarray, "issue lead channel"]
LevelFactors = Float32[np.ndarray, "level issue lead channel"]  # of the levels TRACKED
Bounds = Float64[np.ndarray, "level channel"]


@dataclass(frozen=True)
class KnownErrors:
    """What the earlier forecasts tell about the forecasts from some issue times.

    Args:
        correction: at the points themselves.
        region: at all other points.
        factors: of the widths of intervals.
    """

    correction: Float32[np.ndarray, "issue lead point channel"]
    region: Float32[np.ndarray, "issue lead channel"]
    factors: LevelFactors

    def factor(self, level: float) -> Factors:
        """The factor of the widths of intervals of any level.

        Args:
            level: probability of the intervals.
        """
        place = float(np.interp(level, TRACKED, np.arange(len(TRACKED))))
        lower = min(int(place), len(TRACKED) - 2)
        share = np.float32(place - lower)
        return self.factors[lower] ** (1 - share) * self.factors[lower + 1] ** share


class WidthFactor:
    """Width factors, for some issue times at once; adds one earlier forecast at a time.

    Args:
        shape: of the factors.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.total, self.weight = (np.zeros(shape, np.float32) for _ in range(2))
        self.shift = np.zeros((len(TRACKED), *shape), np.float32)

    @property
    def value(self) -> LevelFactors:
        """The present factor of each level."""
        ratio = (self.total + np.float32(PRIOR)) / (self.weight + np.float32(PRIOR))
        return ratio * np.exp(self.shift)

    def add(self, scores: Errors, bounds: Float32[np.ndarray, "level channel"]) -> None:
        """Add the scores of a newer forecast.

        Args:
            scores: |corrected error| / scale; NaN where unknown.
            bounds: the scores at the ends of the intervals TRACKED with factor 1.
        """
        known = np.isfinite(scores)
        count = known.sum(2)
        each = np.maximum(count, 1).astype(np.float32)
        filled = np.where(known, scores, 0)
        limits = bounds[:, None, None] * self.value
        for number, (level, limit) in enumerate(zip(TRACKED, limits, strict=True)):
            missed = (filled > limit[:, :, None]).sum(2) / each
            change = np.where(count > 0, STEP * (missed - (1 - level)), 0)
            self.shift[number] += change.astype(np.float32)
        self.total = RATE * self.total + filled.sum(2) / each
        self.weight = RATE * self.weight + (count > 0)


def replay(
    errors: AllErrors,
    earlier: Int64[np.ndarray, "issue memory"],
    feedback: Feedback,
    scale: Float32[np.ndarray, "forecast lead point channel"] | None = None,
    bounds: Bounds | None = None,
) -> KnownErrors:
    """Replay the earlier forecasts of some issue times.

    Args:
        errors: of all forecasts, uncorrected.
        earlier: positions among `errors` of the earlier forecasts of each issue time.
        feedback: of the correction.
        scale: expected absolute errors; NaN where scores are left out (None: no adaptation).
        bounds: the scores at the ends of the intervals TRACKED with factor 1.
    """
    shape = (len(earlier), *errors.shape[1:])
    running = RunningCorrection(shape, feedback)
    factor = WidthFactor((shape[0], shape[1], shape[3]))
    for rows, error in oldest_first(errors, earlier):
        if scale is not None and bounds is not None and len(scale):
            corrected = error - running.everywhere[:, :, :-1]
            factor.add(np.abs(corrected) / scale[rows], bounds.astype(np.float32))
        running.add(error)
    correction = running.everywhere
    return KnownErrors(correction[:, :, :-1], correction[:, :, -1], factor.value)
