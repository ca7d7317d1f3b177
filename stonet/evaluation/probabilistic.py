r"""Scores of quantile forecasts: coverage, width, interval score, CRPS and PIT.

For a central interval [l, u] of level 1 - a and an observed value y (Gneiting and Raftery 2007),

    interval score = (u - l) + 2/a max(l - y, 0) + 2/a max(y - u, 0),
    CRPS = 2 * integral of the pinball loss over all quantiles,

where the integral is the mean over `CRPS_QUANTILES`. A value whose interval is this very value,
such as power at night, is certain: it counts in neither coverage nor width. Where the model gives
no interval, nothing is scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float64

from stonet.evaluation.metrics import Record

CRPS_QUANTILES = tuple(round(0.025 + 0.05 * i, 3) for i in range(20))
QUANTILES = tuple(sorted({*CRPS_QUANTILES, 0.05, 0.25, 0.75, 0.95}))  # that scores need
INTERVAL_METRICS = ("coverage_50", "coverage_90", "width_90", "interval_score_90", "crps")
WITHOUT_UNIT = ("coverage_50", "coverage_90")  # these are averaged over channels, too

Array = Float64[np.ndarray, "..."]


def covered(lower: Array, upper: Array, truth: Array) -> Array:
    """1 where the truth lies in the interval, 0 where not, NaN where unknown or certain.

    Args:
        lower: lower ends of the intervals.
        upper: upper ends of the intervals.
        truth: observed values; NaN where missing.
    """
    inside = ((lower <= truth) & (truth <= upper)).astype(np.float64)
    unknown = np.isnan(lower) | np.isnan(upper) | np.isnan(truth)
    certain = (lower == upper) & (truth == lower)
    return np.where(unknown | certain, np.nan, inside)


def interval_score(lower: Array, upper: Array, truth: Array, level: float) -> Array:
    """The interval score of a central interval of this level; smaller is better.

    Args:
        lower: lower ends of the intervals.
        upper: upper ends of the intervals.
        truth: observed values; NaN where missing.
        level: probability of the interval, such as 0.9.
    """
    outside = np.maximum(lower - truth, 0) + np.maximum(truth - upper, 0)
    return np.asarray(upper - lower + 2 / (1 - level) * outside)


def pinball(quantile: Array, truth: Array, tau: float) -> Array:
    """The quantile loss, max(tau (y - q), (tau - 1) (y - q)).

    Args:
        quantile: forecasts of the quantile.
        truth: observed values; NaN where missing.
        tau: probability of the quantile.
    """
    error = truth - quantile
    return np.maximum(tau * error, (tau - 1) * error)


def crps(quantiles: Float64[np.ndarray, "quantile ..."], truth: Array) -> Array:
    """The CRPS from the quantiles `CRPS_QUANTILES`.

    Args:
        quantiles: forecasts of these quantiles, in their order.
        truth: observed values; NaN where missing.
    """
    losses = [pinball(q, truth, tau) for q, tau in zip(quantiles, CRPS_QUANTILES, strict=True)]
    return 2 * np.mean(losses, axis=0)


def pit(
    quantiles: Float64[np.ndarray, "quantile ..."], taus: Sequence[float], truth: Array
) -> Array:
    """The probability integral transform: the forecast probability of values up to the truth.

    Linear between the quantiles, 0 below the first and 1 above the last; uniform if calibrated.

    Args:
        quantiles: forecasts, increasing.
        taus: their probabilities.
        truth: observed values; NaN where missing.
    """
    result = np.where(np.isnan(truth) | np.isnan(quantiles).any(0), np.nan, 0.0)
    result = np.where(truth > quantiles[-1], 1.0, result)
    pairs = zip(quantiles[:-1], quantiles[1:], taus[:-1], taus[1:], strict=True)
    for lower, upper, first, last in pairs:
        width = np.where(upper > lower, upper - lower, 1.0)
        share = np.clip((truth - lower) / width, 0, 1)
        within = (truth >= lower) & (truth <= upper)
        result = np.where(within, first + share * (last - first), result)
    return result


class IntervalStatistics:
    """Running sums and counts of the scores, for each lead and channel.

    Args:
        leads: number of leads.
        channels: number of channels.
    """

    sums: Float64[np.ndarray, "metric lead channel"]
    counts: Float64[np.ndarray, "metric lead channel"]

    def __init__(self, leads: int, channels: int) -> None:
        shape = (len(INTERVAL_METRICS), leads, channels)
        self.sums, self.counts = np.zeros(shape), np.zeros(shape)

    def add(
        self,
        quantiles: Float64[np.ndarray, "quantile batch future node channel"],
        truth: Float[np.ndarray, "batch future node channel"],
        observed: Bool[np.ndarray, "batch future node channel"],
    ) -> None:
        """Add forecasts of `QUANTILES` and the truth.

        Args:
            quantiles: forecasts of `QUANTILES`, in the data's units.
            truth: in the data's units.
            observed: the mask of the truth.
        """
        truth = np.where(observed, truth.astype(np.float64), np.nan)
        by_tau = dict(zip(QUANTILES, quantiles, strict=True))
        wide = by_tau[0.05], by_tau[0.95]
        hits = covered(*wide, truth)
        scores = (
            covered(by_tau[0.25], by_tau[0.75], truth),
            hits,
            np.where(np.isnan(hits), np.nan, wide[1] - wide[0]),
            interval_score(*wide, truth, 0.9),
            crps(np.stack([by_tau[tau] for tau in CRPS_QUANTILES]), truth),
        )
        for number, score in enumerate(scores):
            known = np.isfinite(score)
            self.sums[number] += np.where(known, score, 0).sum((0, 2))
            self.counts[number] += known.sum((0, 2))

    def value(self, metric: str, lead: int | None = None, channel: int | None = None) -> float:
        """One score; NaN if nothing was scored.

        Args:
            metric: one of INTERVAL_METRICS.
            lead: position, from 0 (None: over all leads).
            channel: position, from 0 (None: over all channels).
        """
        row = INTERVAL_METRICS.index(metric)
        leads = slice(None) if lead is None else slice(lead, lead + 1)
        channels = slice(None) if channel is None else slice(channel, channel + 1)
        count = self.counts[row, leads, channels].sum()
        return float(self.sums[row, leads, channels].sum() / count) if count else math.nan

    def records(
        self,
        dataset: str,
        model: str,
        points: Literal["seen", "unseen", "unseen-no-history"],
        channels: Sequence[str],
        seed: int,
    ) -> list[Record]:
        """Tidy records as of `stonet.evaluation.metrics.Statistics.records`.

        Over several channels only coverages are averaged: other scores have units.

        Args:
            dataset: its name.
            model: its name.
            points: the group of points that was scored.
            channels: names.
            seed: of the training.
        """
        names: dict[str, int | None] = {"all": None} if len(channels) > 1 else {}
        names |= {name: number for number, name in enumerate(channels)}
        leads: dict[str | int, int | None] = {"all": None}
        leads |= {number + 1: number for number in range(self.sums.shape[1])}
        return [
            {
                "dataset": dataset,
                "model": model,
                "points": points,
                "channel": name,
                "lead": lead,
                "metric": metric,
                "value": None if math.isnan(value := self.value(metric, row, column)) else value,
                "seed": seed,
            }
            for name, column in names.items()
            for lead, row in leads.items()
            for metric in INTERVAL_METRICS
            if name != "all" or metric in WITHOUT_UNIT
        ]
