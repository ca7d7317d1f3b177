"""Online adaptation: coverage is kept when the size of the errors changes."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.calibration.feedback import Feedback
from stonet.calibration.online import WidthFactor, replay

BOUND = np.array([1.6448536])  # of |normal| scores at 90 %


def coverage(errors: np.ndarray, memory: int) -> float:
    """Share of errors within the adapted intervals around forecasts without feedback."""
    earlier = np.arange(len(errors))[:, None] - np.arange(1, memory + 1)
    earlier = np.where(earlier >= 0, earlier, -1)
    scale = np.full(errors.shape, np.sqrt(2 / np.pi), np.float32)  # mean of |normal|
    known = replay(errors, earlier, Feedback.none(1), scale, BOUND / np.sqrt(2 / np.pi))
    inside = np.abs(errors) <= known.factor[:, :, None] * BOUND
    return float(inside[memory:].mean())


@pytest.mark.parametrize("spread", [0.4, 1.0, 2.5])
def test_coverage_is_kept_whatever_the_spread(spread: float):
    generator = np.random.default_rng(0)
    errors = (spread * generator.normal(size=(200, 2, 30, 1))).astype(np.float32)
    assert coverage(errors, 28) == pytest.approx(0.9, abs=0.04)


def test_the_factor_stays_near_one_where_scores_are_as_expected():
    generator = np.random.default_rng(1)
    errors = generator.normal(size=(100, 1, 50, 1)).astype(np.float32)
    factor = WidthFactor((1, 1, 1))
    for error in errors:
        factor.add(np.abs(error[None]) / np.float32(np.sqrt(2 / np.pi)),
                   (BOUND / np.sqrt(2 / np.pi)).astype(np.float32))  # fmt: skip
    assert factor.value.item() == pytest.approx(1.0, abs=0.15)


def test_forecasts_without_known_scores_change_nothing():
    factor = WidthFactor((2, 3, 1))
    factor.add(np.full((2, 3, 4, 1), np.nan, np.float32), BOUND.astype(np.float32))
    assert (factor.value == 1).all()
