"""Quantiles of scores: their definition, small samples, and the document they are stored in."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from stonet.calibration.bins import MIN_POINTS, Bins, distance_to_observed
from stonet.calibration.conformal import (
    LEVELS,
    Calibration,
    Intervals,
    interval_levels,
    weighted_quantiles,
)
from stonet.calibration.document import from_bytes, to_bytes
from stonet.calibration.feedback import Feedback
from stonet.calibration.samples import recency, recent_and_seasonal
from stonet.calibration.scale import MONTHS, PHASES, Scale
from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.errors import ModelFileError, UsageError


def make_calibration(degrees: float = 1e6) -> Calibration:
    """Scores of standard normal errors at 3 leads of one channel, and one bin of distance."""
    normal = np.broadcast_to(stats.norm.ppf((1 + LEVELS) / 2)[None, :, None], (2, len(LEVELS), 1))
    scale = Scale(np.ones((2, 3, 1)), np.ones((2, PHASES, 1)), np.ones((MONTHS, 1)))
    intervals = Intervals(scale, normal.copy(), (degrees, degrees))
    bins = Bins((), (1.0,), (9,), 2.0)
    return Calibration(Feedback((0.9,), (0.5,), (0.7,)), bins, intervals, intervals)


def test_weighted_quantiles_invert_the_weighted_distribution():
    generator = np.random.default_rng(0)
    values, weights = generator.normal(size=200), generator.uniform(0.1, 1, 200)
    for level, found in zip(LEVELS, weighted_quantiles(values, weights, LEVELS), strict=True):
        below = weights[values < found].sum() / weights.sum()
        upto = weights[values <= found].sum() / weights.sum()
        assert below < level <= upto + 1e-9


def test_equal_weights_give_the_usual_quantile():
    values = np.random.default_rng(1).normal(size=101)
    found = weighted_quantiles(values, np.ones(101), LEVELS)
    np.testing.assert_array_equal(found, np.quantile(values, LEVELS, method="inverted_cdf"))


def test_large_samples_give_the_stored_quantile_small_ones_that_of_student():
    normal = stats.norm.ppf(0.95)
    assert make_calibration().corrected.score_at(0.9)[0, 0] == pytest.approx(normal, rel=1e-4)
    few = make_calibration(degrees=4.0).corrected.score_at(0.9)[0, 0]
    assert few == pytest.approx(stats.t.ppf(0.95, 4), rel=1e-4)
    assert np.isnan(make_calibration(degrees=0.0).corrected.score_at(0.9)).all()


def test_intervals_grow_with_their_level():
    intervals = make_calibration(degrees=7.0).corrected
    levels = np.linspace(0, 0.995, 60)
    assert (np.diff([intervals.score_at(level)[0, 0] for level in levels]) > 0).all()


@pytest.mark.parametrize("quantiles", [[], [0.5, 0.05], [0.0, 0.5], [np.nan], [0.9999]])
def test_invalid_quantiles_are_refused(quantiles: list[float]):
    with pytest.raises(UsageError):
        interval_levels(quantiles)


def test_bins_count_points_not_samples():
    few = np.repeat(np.arange(MIN_POINTS - 1), 100)
    assert len(Bins.fit(np.linspace(1, 2, len(few)), few)) == 1  # many windows, too few points
    many = np.repeat(np.arange(40), 3)
    bins = Bins.fit(np.random.default_rng(0).uniform(1, 2, 120), many)
    assert len(bins) > 2 and min(bins.points) >= MIN_POINTS


def test_no_interval_is_given_beyond_the_tested_distance():
    bins = Bins((2.0,), (1.0, 3.0), (9, 9), 4.0)
    weights = bins.weights(np.array([0.0, 1.0, 2.0, 3.5, 4.1, np.inf]))
    np.testing.assert_allclose(
        weights[:4], [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 1]], atol=1e-12
    )
    assert np.isnan(weights[4:]).all()
    assert np.isnan(Bins().weights(np.array([0.1]))).all()


def test_silent_stations_count_as_points_without_history():
    nodes = Points(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]))
    queries = nodes.joined(Points(np.array([[2.0, 0.0]])))
    observed = np.array([[True, True, True], [True, False, False]])
    distance = distance_to_observed(nodes, queries, observed)
    np.testing.assert_allclose(distance, [[0, 0, 0, 1], [0, 1, 5, 2]])


def test_a_document_is_read_as_it_was_written():
    calibration = make_calibration()
    read = from_bytes(to_bytes(calibration, ("t2m",)), ("t2m",), 3, "calibration.json")
    assert read.feedback == calibration.feedback and read.bins == calibration.bins
    np.testing.assert_array_equal(read.corrected.quantiles, calibration.corrected.quantiles)
    np.testing.assert_array_equal(read.corrected.scale.base, calibration.corrected.scale.base)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"channels": ["u10"]},
        {"leads": 10**6},
        {"rate": [1.5]},
        {"rate": [0.9, 0.9]},
        {"limit": -1.0},
        {"limit": 1e400},
        {"surprise": 1},
        {"corrected": None},
        {"middles": [1.0, 2.0]},
    ],
    ids=str,
)
def test_a_changed_document_is_refused(change: dict):
    content = json.loads(to_bytes(make_calibration(), ("t2m",))) | change
    with pytest.raises(ModelFileError, match=r"calibration\.json"):
        from_bytes(json.dumps(content).encode(), ("t2m",), 3, "calibration.json")


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"\xff\xfe", b"{}", b"1" * 100])
def test_other_content_is_refused(data: bytes):
    with pytest.raises(ModelFileError):
        from_bytes(data, ("t2m",), 3, "calibration.json")


def test_recent_windows_and_those_of_the_same_season_count_more():
    times = np.datetime64("2021-01-01", "ns").astype(np.int64) + DAY * np.arange(731)
    weights, recent = recent_and_seasonal(times), recency(731)
    assert weights[-1] == 1 and (weights <= recent).all()
    half, one = 731 - 183, 731 - 366  # half a year and a year before the end
    assert weights[half] == pytest.approx(0.5 * recent[half], rel=1e-3)
    assert weights[one] == pytest.approx(recent[one], rel=1e-3) and weights[one] > weights[half]
