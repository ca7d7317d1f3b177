"""Feedback: the correction against its formula, and its choice on data with a known bias."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.calibration.feedback import PRIOR, ErrorMean, Feedback, choose_feedback, region_mean
from stonet.calibration.online import replay

SHAPE = (3, 2, 25, 1)  # issue, lead, point, channel


def random_errors(count: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, *SHAPE[1:])).astype(np.float32)


def test_the_mean_is_that_of_the_formula():
    errors = [random_errors(3, seed) for seed in range(5)]  # the oldest first
    running = ErrorMean(SHAPE, (0.8,))
    for error in errors:
        running.add(error)
    weights = 0.8 ** np.arange(5)[::-1]
    total = sum(weight * error for weight, error in zip(weights, errors, strict=True))
    np.testing.assert_allclose(running.shrunk, total / (weights.sum() + PRIOR), rtol=1e-5)


def test_unknown_errors_do_not_count():
    first, second = random_errors(3), random_errors(3, 1)
    with_gap = second.copy()
    with_gap[:, :, 0] = np.nan
    running = ErrorMean(SHAPE, (0.9,))
    running.add(first)
    running.add(with_gap)
    alone = ErrorMean(SHAPE, (0.9,))
    alone.add(first)
    mean, expected = running.shrunk, alone.shrunk
    weight = 0.9 / (0.9 + PRIOR) * (1 + PRIOR)  # the older error has lost weight
    np.testing.assert_allclose(mean[:, :, 0], expected[:, :, 0] * weight, rtol=1e-5)


def test_points_without_errors_get_the_regional_correction():
    mean = random_errors(3)
    mean[:, :, 2] = np.nan
    feedback = Feedback((0.9,), (0.5,), (0.7,))
    region = np.nanmean(mean, axis=2)
    np.testing.assert_allclose(region_mean(mean)[:, :, 0], region, rtol=1e-5)
    correction = feedback.correction(mean)
    np.testing.assert_allclose(correction[:, :, 2], 0.7 * region, rtol=1e-5)
    own = 0.7 * region + 0.5 * (mean[:, :, 0] - region)
    np.testing.assert_allclose(correction[:, :, 0], own, rtol=1e-4)


@pytest.mark.parametrize(("bias", "corrected"), [(2.0, True), (0.0, False)])
def test_a_correction_is_chosen_where_errors_persist(bias: float, corrected: bool):
    errors = random_errors(60) + np.float32(bias)
    earlier = np.arange(60)[:, None] - np.arange(1, 11)
    earlier = np.where(earlier >= 0, earlier, -1)
    scored = np.arange(20, 60)
    feedback = choose_feedback(errors, earlier[scored], scored)
    assert bool(feedback.point[0] or feedback.region[0]) is corrected
    if corrected:
        known = replay(errors, earlier[scored], feedback)
        before = np.abs(errors[scored]).mean()
        assert np.abs(errors[scored] - known.correction).mean() < 0.6 * before


def test_forecasts_without_earlier_ones_are_not_corrected():
    feedback = Feedback((0.9,), (0.5,), (0.7,))
    known = replay(random_errors(4), np.full((3, 5), -1), feedback)
    assert not known.correction.any() and not known.region.any()
    assert (known.factors == 1).all()


def shifted_errors(shift: float, rows: int) -> np.ndarray:
    """Errors without any bias, and with this one in the last rows."""
    errors = random_errors(60)
    errors[-rows:] += np.float32(shift)
    return errors


@pytest.mark.parametrize(("shift", "corrected"), [(12.0, True), (0.0, False)])
def test_a_change_that_validation_has_not_seen_is_corrected(shift: float, corrected: bool):
    earlier = np.arange(60)[:, None] - np.arange(1, 11)
    earlier = np.where(earlier >= 0, earlier, -1)
    feedback = choose_feedback(random_errors(40), earlier[20:40], np.arange(20, 40))
    known = replay(shifted_errors(shift, 10), earlier, feedback)
    last = known.correction[-1]
    if corrected:
        assert (last > 0.6 * shift).mean() > 0.9 and (last < 1.1 * shift).all()
        assert known.region[-1] == pytest.approx(last.mean(axis=1), rel=0.05)
    else:
        assert np.abs(last).max() < 1.5


def test_one_outlier_is_no_change():
    errors, earlier = random_errors(20), np.arange(19, 9, -1)[None]
    feedback = Feedback((0.9,), (0.0,), (0.0,), ((1.0,), (1.0,)))
    errors[19] += 1000
    assert np.abs(replay(errors, earlier, feedback).correction).max() < 2


def test_common_errors_that_mislead_in_validation_are_not_used():
    """Bursts of large errors whose sign turns after two, beside those that last."""
    number = np.arange(120)
    earlier = number[:, None] - np.arange(1, 11)
    earlier = np.where(earlier >= 0, earlier, -1)
    scored = np.arange(20, 120)
    burst = 10.0 * (number % 20 < 4)
    turning = np.where(number % 4 < 2, burst, -burst).astype(np.float32)
    lasting = np.where(number < 100, 0.0, 10.0).astype(np.float32)
    for pattern, used in ((turning, False), (lasting, True)):
        errors = 0.1 * random_errors(120) + pattern[:, None, None, None]
        assert bool(choose_feedback(errors, earlier[scored], scored).usual) == used
