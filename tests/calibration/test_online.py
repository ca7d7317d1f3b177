"""Online adaptation: coverage is kept when the size of the errors changes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stonet.calibration.feedback import Feedback
from stonet.calibration.online import TRACKED, WidthFactor, replay

BOUNDS = stats.norm.ppf((1 + np.array(TRACKED)) / 2)[:, None]  # of |normal| scores
MEAN = np.sqrt(2 / np.pi)  # of |normal|


def coverage(errors: np.ndarray, memory: int, level: float) -> float:
    """Share of errors within the adapted intervals around forecasts without feedback."""
    earlier = np.arange(len(errors))[:, None] - np.arange(1, memory + 1)
    earlier = np.where(earlier >= 0, earlier, -1)
    scale = np.full(errors.shape, MEAN, np.float32)
    known = replay(errors, earlier, Feedback.none(1), scale, BOUNDS / MEAN)
    bound = stats.norm.ppf((1 + level) / 2)
    inside = np.abs(errors) <= known.factor(level)[:, :, None] * bound
    return float(inside[memory:].mean())


@pytest.mark.parametrize("level", [0.3, 0.5, 0.7, 0.9, 0.98])
@pytest.mark.parametrize("spread", [0.4, 1.0, 2.5])
def test_coverage_is_kept_whatever_the_spread(spread: float, level: float):
    generator = np.random.default_rng(0)
    errors = (spread * generator.normal(size=(200, 2, 30, 1))).astype(np.float32)
    assert coverage(errors, 28, level) == pytest.approx(level, abs=0.04)


def test_the_factor_stays_near_one_where_scores_are_as_expected():
    generator = np.random.default_rng(1)
    errors = generator.normal(size=(100, 1, 50, 1)).astype(np.float32)
    factor = WidthFactor((1, 1, 1))
    for error in errors:
        factor.add(np.abs(error[None]) / np.float32(MEAN), (BOUNDS / MEAN).astype(np.float32))
    assert factor.value.ravel() == pytest.approx(np.ones(len(TRACKED)), abs=0.2)


def test_each_level_adapts_to_the_shape_of_the_errors():
    generator = np.random.default_rng(2)
    errors = generator.uniform(-2, 2, size=(300, 2, 40, 1)).astype(np.float32)  # no tails
    for level in TRACKED:
        assert coverage(errors, 28, level) == pytest.approx(level, abs=0.05)


def test_forecasts_without_known_scores_change_nothing():
    factor = WidthFactor((2, 3, 1))
    factor.add(np.full((2, 3, 4, 1), np.nan, np.float32), BOUNDS.astype(np.float32))
    assert (factor.value == 1).all()
