"""Mean ranks, critical differences and adjusted probabilities against published values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stonet.errors import UsageError
from stonet.evaluation.ranks import rank
from stonet.evaluation.significance import holm

# Demsar (2006), table 5a: q at 0.05 for 2 to 10 models.
CRITICAL_Q = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


@pytest.mark.parametrize(("models", "q"), list(enumerate(CRITICAL_Q, 2)))
def test_the_critical_difference_is_the_published_one(models: int, q: float) -> None:
    errors = np.random.default_rng(0).random((models, 14))
    found = rank({f"m{i}": row for i, row in enumerate(errors)})
    expected = q * np.sqrt(models * (models + 1) / (6 * 14))
    assert found.difference == pytest.approx(expected, rel=1e-3)


def test_ranks_agree_with_those_of_scipy_and_share_ties() -> None:
    errors = {"a": np.array([1.0, 2.0, 1.0]), "b": np.array([1.0, 1.0, 3.0]), "c": np.full(3, 9.0)}
    found = rank(errors)
    assert found.ranks == pytest.approx({"a": (1.5 + 2 + 1) / 3, "b": (1.5 + 1 + 2) / 3, "c": 3.0})
    assert list(found.ranks)[-1] == "c" and found.tasks == 3
    assert found.p == pytest.approx(stats.friedmanchisquare(*errors.values()).pvalue)


def test_groups_hold_all_neighbours_within_the_difference() -> None:
    errors = {name: np.full(40, float(i)) for i, name in enumerate("abcde")}
    found = rank(errors)
    assert 0.9 < found.difference < 1.0 and found.groups == []  # ranks differ by 1
    few = rank({name: row[:9] for name, row in errors.items()})
    assert 2 <= few.difference < 3 and few.groups == [tuple("abc"), tuple("bcd"), tuple("cde")]


def test_one_model_or_a_missing_error_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 2 models"):
        rank({"a": np.array([1.0, 2.0])})
    with pytest.raises(UsageError, match="none missing"):
        rank({"a": np.array([1.0, 2.0]), "b": np.array([1.0, np.nan])})


def test_holm_adjusts_step_by_step() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert holm({"a": 0.6, "b": 0.7}) == pytest.approx({"a": 1.0, "b": 1.0}) and holm({}) == {}


def test_holm_errs_as_rarely_as_stated() -> None:
    """With ten true hypotheses, any is rejected in at most 5 % of the trials."""
    rng = np.random.default_rng(3)
    trials = rng.random((2000, 10))
    wrong = [min(holm({str(i): p for i, p in enumerate(row)}).values()) < 0.05 for row in trials]
    assert np.mean(wrong) < 0.065
