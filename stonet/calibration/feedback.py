r"""Feedback: forecasts corrected by the exponentially weighted mean of recent errors.

With the errors e_k of the forecasts from t - k S (k = 1 is the newest), at one point and lead,

    b = shrink * sum_k rate^(k-1) e_k / sum_k rate^(k-1),   shrink = n / (n + PRIOR),
    correction = region * mean(b) + point * (b - mean(b)),

where n is the denominator and the mean is over all points. At a point without errors of its own,
b is that mean. Rate and gains are chosen on validation windows, for each channel.

This is slow, and where errors were no guide in validation it does nothing. After a change that
validation has not seen, such as of a regime, errors are large and alike. What the LATEST newest
errors, corrected, have in common (the smallest of them, if all have one sign) is therefore added as
far as it exceeds LIMIT times the usual error of that lead, unless this costs more than MAX_COST in
validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.calibration.past_forecasts import AllErrors, Errors

PRIOR = 2.0  # forecasts without error that the mean is shrunk by
RATES = (0.8, 0.9, 0.95)
POINT_GAINS = (0.0, 0.3, 0.5, 0.7)
REGION_GAINS = (0.0, 0.3, 0.5, 0.7, 0.9)
MAX_COST = 0.001  # relative increase of the MAE in validation up to which common errors are used
LATEST, LIMIT = 2, 2.0  # errors in a row, and usual errors that each must exceed
MIN_GAIN = 0.005  # relative reduction of the MAE below which no correction is made

PerChannel = Float64[np.ndarray, " channel"]


@dataclass(frozen=True)
class Feedback:
    """Rate and gains of the correction, for each channel.

    Args:
        rate: weight of an error relative to that of the next newer one.
        point: gain at a point, relative to the mean over all points.
        region: gain of that mean.
        usual: mean absolute error by lead and channel, from which on common errors are corrected
            (empty: none is).
    """

    rate: tuple[float, ...]
    point: tuple[float, ...]
    region: tuple[float, ...]
    usual: tuple[tuple[float, ...], ...] = ()

    @staticmethod
    def none(channels: int) -> Feedback:
        """No correction.

        Args:
            channels: number of channels.
        """
        return Feedback((RATES[-1],) * channels, (0.0,) * channels, (0.0,) * channels)

    @property
    def active(self) -> bool:
        """Whether any channel is corrected."""
        return any(self.point) or any(self.region) or bool(self.usual)

    def correction(
        self, mean: Float32[np.ndarray, "issue lead point channel"]
    ) -> Float32[np.ndarray, "issue lead point channel"]:
        """What is added to a forecast.

        Args:
            mean: shrunk mean errors; NaN at points without errors.
        """
        region = region_mean(mean)
        own = np.nan_to_num(mean - region)
        gains = np.array([self.region, self.point], dtype=np.float32)
        return gains[0] * region + gains[1] * own


class ErrorMean:
    """The running weighted mean of errors, the oldest first; it adds one forecast at a time.

    Args:
        shape: of the errors.
        rate: weight of an error relative to that of the next newer one, by channel.
    """

    def __init__(self, shape: tuple[int, ...], rate: tuple[float, ...]) -> None:
        self.rate = np.array(rate, dtype=np.float32)
        self.total, self.weight = (np.zeros(shape, np.float32) for _ in range(2))

    def add(self, error: Errors) -> None:
        """Add newer errors; NaN adds nothing.

        Args:
            error: of one forecast, newer than all before.
        """
        known = np.isfinite(error)
        self.total = self.rate * self.total + np.where(known, error, 0)
        self.weight = self.rate * self.weight + known

    @property
    def shrunk(self) -> Float32[np.ndarray, "issue lead point channel"]:
        """The mean times n / (n + PRIOR); NaN where no error is known."""
        with np.errstate(invalid="ignore"):
            return np.where(self.weight > 0, self.total / (self.weight + np.float32(PRIOR)), np.nan)


class RunningCorrection:
    """The correction after some forecasts, the oldest first; it adds one forecast at a time.

    Args:
        shape: of the errors: (issue, lead, point, channel).
        feedback: rate, gains and usual errors.
    """

    def __init__(self, shape: tuple[int, ...], feedback: Feedback) -> None:
        self.feedback, self.mean = feedback, ErrorMean(shape, feedback.rate)
        self.latest = np.full((LATEST, *shape), np.nan, np.float32) if feedback.usual else None

    def add(self, error: Errors) -> None:
        """Add newer errors; NaN adds nothing.

        Args:
            error: of one forecast, newer than all before.
        """
        self.mean.add(error)
        if self.latest is not None:
            newer = np.concatenate([self.latest[1:], error[None]])
            self.latest = np.where(np.isfinite(error), newer, self.latest)

    @property
    def everywhere(self) -> Float32[np.ndarray, "issue lead more channel"]:
        """The correction at each point, and last at any other."""
        mean = self.mean.shrunk
        unknown = np.full((*mean.shape[:2], 1, mean.shape[3]), np.nan, np.float32)
        slow = self.feedback.correction(np.concatenate([mean, unknown], axis=2))
        return slow if self.latest is None else slow + self._common(slow[:, :, :-1])

    def _common(
        self, slow: Float32[np.ndarray, "issue lead point channel"]
    ) -> Float32[np.ndarray, "issue lead more channel"]:
        """What the latest errors have in common beyond the limit; elsewhere the mean of that."""
        assert self.latest is not None
        left = self.latest - slow  # NaN where fewer than LATEST errors are known
        with np.errstate(invalid="ignore"):
            alike = np.abs(np.sign(left).sum(0)) == LATEST
        shared = np.where(alike, np.sign(left[0]) * np.abs(left).min(0), np.float32(0))
        limit = np.float32(LIMIT) * np.array(self.feedback.usual, np.float32)[:, None]
        excess = shared - np.clip(shared, -limit, limit)
        known = np.where(np.isfinite(left).all(0), excess, np.float32("nan"))
        return np.concatenate([excess, region_mean(known)], axis=2)


def region_mean(
    mean: Float32[np.ndarray, "issue lead point channel"],
) -> Float32[np.ndarray, "issue lead 1 channel"]:
    """The mean over the points whose errors are known; 0 if there are none.

    Args:
        mean: of the errors at each point; NaN where unknown.
    """
    known = np.isfinite(mean)
    count = known.sum(2, keepdims=True)
    return np.nan_to_num(mean).sum(2, keepdims=True) / np.maximum(count, 1).astype(np.float32)


def oldest_first(
    errors: AllErrors, earlier: Int64[np.ndarray, "issue memory"]
) -> Iterator[tuple[Int64[np.ndarray, " issue"], Errors]]:
    """The earlier forecasts of some issue times, one for each at a time.

    Args:
        errors: of all forecasts.
        earlier: positions among `errors` of the earlier forecasts, the newest first; -1: none.

    Yields:
        those positions, and the errors with NaN where there is none.
    """
    for column in earlier.T[::-1]:
        known = errors if len(errors) else np.zeros((1, *errors.shape[1:]), np.float32)
        found = known[column]
        yield column, np.where((column >= 0)[:, None, None, None], found, np.float32("nan"))


def choose_feedback(
    errors: AllErrors,
    earlier: Int64[np.ndarray, "issue memory"],
    scored: Int64[np.ndarray, " issue"],
) -> Feedback:
    """The rate and gains with the smallest mean absolute error on validation windows.

    Args:
        errors: of all forecasts, uncorrected.
        earlier: positions among `errors` of the earlier forecasts of each scored one.
        scored: positions among `errors` of the validation forecasts.
    """
    truth = errors[scored]
    channels = errors.shape[-1]
    best = _mae(truth) * (1 - MIN_GAIN)
    chosen = [(RATES[-1], 0.0, 0.0)] * channels
    for rate in RATES:
        running = ErrorMean(truth.shape, (rate,) * channels)
        for _, error in oldest_first(errors, earlier):
            running.add(error)
        mean = running.shrunk
        for point, region in product(POINT_GAINS, REGION_GAINS):
            gains = (point,) * channels, (region,) * channels
            trial = _mae(truth - Feedback((rate,) * channels, *gains).correction(mean))
            for channel in np.flatnonzero(trial < best):
                best[channel], chosen[channel] = trial[channel], (rate, point, region)
    rates, points, regions = zip(*chosen, strict=True)
    slow = Feedback(rates, points, regions)
    sudden = replace(slow, usual=_usual(truth))
    plain, common = (_mae(truth - _correction(each, errors, earlier, truth.shape))
                     for each in (slow, sudden))  # fmt: skip
    return sudden if (common <= (1 + MAX_COST) * plain).all() else slow


def _correction(
    feedback: Feedback,
    errors: AllErrors,
    earlier: Int64[np.ndarray, "issue memory"],
    shape: tuple[int, ...],
) -> Errors:
    """What is added to the scored forecasts, from the errors before each."""
    running = RunningCorrection(shape, feedback)
    for _, error in oldest_first(errors, earlier):
        running.add(error)
    return running.everywhere[:, :, :-1]


def _usual(errors: Errors) -> tuple[tuple[float, ...], ...]:
    """The mean absolute error by lead and channel; that of all leads where one has no error."""
    known = np.isfinite(errors)
    total = np.abs(np.where(known, errors, 0)).sum((0, 2), dtype=np.float64)
    count = known.sum((0, 2))
    overall = np.broadcast_to(total.sum(0) / np.maximum(count.sum(0), 1), total.shape)
    mean = np.where(count > 0, total / np.maximum(count, 1), overall)
    return tuple(tuple(row) for row in mean.tolist())


def _mae(errors: Errors) -> PerChannel:
    """The mean absolute error of each channel; infinite if nothing was observed."""
    known = np.isfinite(errors)
    total = np.abs(np.where(known, errors, 0)).sum((0, 1, 2), dtype=np.float64)
    count = known.sum((0, 1, 2))
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)
