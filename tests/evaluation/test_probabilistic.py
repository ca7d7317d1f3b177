"""Scores of quantiles: definitions, agreement with the packages scores and conformalforecast."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stonet.calibration.conformal import LEVELS, weighted_quantiles
from stonet.evaluation.probabilistic import (
    CRPS_QUANTILES,
    QUANTILES,
    IntervalStatistics,
    covered,
    crps,
    interval_score,
    pinball,
    pit,
)


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    truth, centre = generator.normal(size=(2, 400))
    width = generator.uniform(0.5, 3, 400)
    return centre - width, centre + width, truth


def normal_quantiles(shape: tuple[int, ...]) -> np.ndarray:
    ends = stats.norm.ppf(QUANTILES).reshape(-1, *(1 for _ in shape))
    return np.broadcast_to(ends, (len(QUANTILES), *shape))


def test_the_interval_score_is_that_of_the_package_scores(sample):
    scores, xr = pytest.importorskip("scores"), pytest.importorskip("xarray")
    lower, upper, truth = sample
    arrays = [xr.DataArray(part, dims="i") for part in (lower, upper, truth)]
    for level in (0.5, 0.9):
        expected = scores.continuous.interval_score(
            *arrays, interval_range=level, preserve_dims="all"
        )
        found = interval_score(lower, upper, truth, level)
        np.testing.assert_allclose(found, expected["total"], rtol=1e-12)


def test_the_quantile_loss_is_that_of_the_package_scores(sample):
    scores, xr = pytest.importorskip("scores"), pytest.importorskip("xarray")
    lower, _, truth = sample
    arrays = [xr.DataArray(part, dims="i") for part in (lower, truth)]
    for tau in CRPS_QUANTILES:
        expected = scores.continuous.quantile_score(*arrays, alpha=tau, preserve_dims="all")
        np.testing.assert_allclose(pinball(lower, truth, tau), expected, rtol=1e-12)


def test_the_weighted_quantile_is_that_of_conformalforecast():
    conformal = pytest.importorskip("conformalforecast._quantiles")
    values, decay = np.random.default_rng(2).uniform(size=200), 0.99
    weights = decay ** np.arange(200)[::-1]  # the oldest first
    for level in (0.5, 0.8, 0.9):
        expected = conformal.weighted_conformal_quantile(values[None, :, None], 1 - level, decay)
        # theirs counts the new value as one more of weight 1, at infinity
        rescaled = np.array([level * (weights.sum() + 1) / weights.sum()])
        assert weighted_quantiles(values, weights, rescaled) == expected


def test_the_interval_score_is_smallest_for_the_true_quantiles():
    truth = np.random.default_rng(1).normal(size=100_000)
    true = stats.norm.ppf(0.95)
    best = interval_score(np.full_like(truth, -true), np.full_like(truth, true), truth, 0.9).mean()
    for half in (0.8 * true, 1.2 * true):
        other = interval_score(np.full_like(truth, -half), np.full_like(truth, half), truth, 0.9)
        assert other.mean() > best


def test_the_crps_of_a_normal_forecast_has_its_closed_form():
    truth = np.linspace(-2, 2, 9)
    quantiles = np.broadcast_to(stats.norm.ppf(CRPS_QUANTILES)[:, None], (20, 9))
    exact = truth * (2 * stats.norm.cdf(truth) - 1) + 2 * stats.norm.pdf(truth) - np.pi**-0.5
    np.testing.assert_allclose(crps(quantiles, truth), exact, atol=0.02)


def test_the_crps_of_a_certain_forecast_is_its_absolute_error():
    truth = np.array([-1.0, 0.5, 3.0])
    np.testing.assert_allclose(crps(np.zeros((20, 3)), truth), np.abs(truth))


def test_the_pit_of_a_calibrated_forecast_is_uniform():
    truth = np.random.default_rng(3).normal(size=20_000)
    probability = pit(normal_quantiles(truth.shape), QUANTILES, truth)
    inner = (probability > 0.05) & (probability < 0.95)
    uniform = stats.uniform(0.05, 0.9).cdf
    assert stats.kstest(probability[inner], uniform).statistic < 0.02


def test_certain_and_unknown_values_do_not_count():
    lower, upper = np.array([0.0, 0, 0, 0, np.nan]), np.array([0.0, 0, 1, 1, 1])
    truth = np.array([0.0, 1, 1, 2, 0])  # certain, missed, hit, missed, no interval
    np.testing.assert_array_equal(covered(lower, upper, truth), [np.nan, 0, 1, 0, np.nan])


def test_statistics_are_means_over_all_batches():
    generator = np.random.default_rng(4)
    truth = generator.normal(size=(6, 3, 5, 2)).astype(np.float32)
    observed = generator.random(truth.shape) < 0.8
    quantiles = normal_quantiles(truth.shape)
    whole, parts = IntervalStatistics(3, 2), IntervalStatistics(3, 2)
    whole.add(quantiles, truth, observed)
    for part in (slice(0, 2), slice(2, 6)):
        parts.add(quantiles[:, part], truth[part], observed[part])
    np.testing.assert_allclose(parts.sums, whole.sums)
    inside = (np.abs(truth[:, 1, :, 0]) <= stats.norm.ppf(0.95))[observed[:, 1, :, 0]]
    assert whole.value("coverage_90", 1, 0) == pytest.approx(inside.mean())
    records = whole.records("data", "model", "seen", ("a", "b"), 0)
    metrics = {record["metric"] for record in records if record["channel"] == "all"}
    assert metrics == {"coverage_50", "coverage_90"}  # others have units
    assert LEVELS[-1] < 1
