"""The paired block bootstrap covers correlated errors and is antisymmetric in its arguments."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.errors import UsageError
from stonet.evaluation.significance import paired_block_bootstrap


def dependent(count: int, memory: float, seed: int) -> np.ndarray:
    """AR(1) noise of mean 0 and variance 1."""
    rng = np.random.default_rng(seed)
    series = np.empty(count)
    series[0] = rng.normal()
    for i in range(1, count):
        series[i] = memory * series[i - 1] + np.sqrt(1 - memory**2) * rng.normal()
    return series


def coverage(memory: float, block: int, trials: int = 400, windows: int = 160) -> float:
    """How often the interval covers the true difference, which is 0."""
    noise = [dependent(windows, memory, seed) for seed in range(trials)]
    results = [paired_block_bootstrap(1 + e, np.ones(windows), block, 300) for e in noise]
    return float(np.mean([d.low <= 0 <= d.high for d in results]))


def test_the_interval_has_its_nominal_coverage() -> None:
    assert coverage(0.0, block=1) == pytest.approx(0.95, abs=0.03)
    assert coverage(0.0, block=8) == pytest.approx(0.95, abs=0.04)
    assert coverage(0.5, block=8) == pytest.approx(0.95, abs=0.05)


def test_single_correlated_windows_would_give_too_narrow_intervals() -> None:
    assert coverage(0.5, block=1) < 0.8


def test_p_is_uniform_where_there_is_no_difference() -> None:
    p = [
        paired_block_bootstrap(dependent(160, 0.3, s), np.zeros(160), seed=s, draws=300).p
        for s in range(400)
    ]
    for level in (0.1, 0.5, 0.9):
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=0.07)


def test_a_shift_is_significant_and_the_interval_covers_it() -> None:
    second = 1 + dependent(200, 0.6, 1) ** 2
    first = second + 0.2 + 0.3 * dependent(200, 0.4, 2)
    result = paired_block_bootstrap(first, second)
    assert 0 < result.low < 0.2 < result.high and result.p < 0.01
    assert result.mean == pytest.approx((first - second).mean())


def test_pairing_detects_differences_far_below_the_spread_of_windows() -> None:
    """The windows differ by far more than the models do."""
    hard = 10 * dependent(120, 0.8, 3)
    result = paired_block_bootstrap(hard + 0.1 + 0.05 * dependent(120, 0, 4), hard)
    assert result.low > 0 and hard.std() > 10 * (result.high - result.low)


def test_exchanging_the_models_changes_the_sign_only() -> None:
    first, second = dependent(101, 0.5, 5), dependent(101, 0.5, 6)
    one, other = paired_block_bootstrap(first, second), paired_block_bootstrap(second, first)
    assert (other.mean, other.p) == (-one.mean, one.p)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), rel=1e-12)


def test_results_depend_on_the_seed_and_scale_with_the_unit() -> None:
    first, second = dependent(90, 0.5, 7), dependent(90, 0.5, 8)
    one = paired_block_bootstrap(first, second, seed=3)
    assert one == paired_block_bootstrap(first, second, seed=3)
    assert one != paired_block_bootstrap(first, second, seed=4)
    scaled = paired_block_bootstrap(8 * first, 8 * second, seed=3)
    assert (scaled.mean, scaled.low, scaled.high, scaled.p) == pytest.approx(
        (8 * one.mean, 8 * one.low, 8 * one.high, one.p)
    )


def test_results_equal_a_direct_computation_with_blocks() -> None:
    """50 windows are not a multiple of the block of 8."""
    differences, block, draws = dependent(50, 0.5, 9), 8, 500
    starts = np.random.default_rng(0).integers(50, size=(draws, 7))
    index = (starts[..., None] + np.arange(block)) % 50
    means = (differences - differences.mean())[index.reshape(draws, -1)[:, :50]].mean(1) * np.sqrt(
        50 / 42
    )
    result = paired_block_bootstrap(differences, np.zeros(50), block, draws)
    low, high = differences.mean() + np.quantile(means, [0.025, 0.975])
    assert (result.low, result.high) == pytest.approx((low, high), rel=1e-9)
    assert result.p == (1 + (np.abs(means) >= abs(differences.mean())).sum()) / (1 + draws)


def test_equal_errors_have_p_1_and_a_constant_shift_the_smallest_p() -> None:
    errors = dependent(64, 0.5, 10)
    same = paired_block_bootstrap(errors, errors)
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)
    shifted = paired_block_bootstrap(errors + 1, errors, draws=999)
    assert (shifted.low, shifted.high) == pytest.approx((1, 1)) and shifted.p == 1 / 1000


def test_windows_without_an_error_are_left_out() -> None:
    first, second = dependent(80, 0.5, 11), dependent(80, 0.5, 12)
    kept = np.arange(80) % 7 > 0
    with_gaps = np.where(kept, first, np.nan)
    result = paired_block_bootstrap(with_gaps, second)
    assert result == paired_block_bootstrap(first[kept], second[kept])


@pytest.mark.parametrize("count", [2, 5, 9])
def test_few_windows_have_shorter_blocks(count: int) -> None:
    differences = dependent(count, 0.0, 13)
    short = max(1, count // 4)
    assert paired_block_bootstrap(differences, np.zeros(count)) == paired_block_bootstrap(
        differences, np.zeros(count), block=short
    )


def test_too_few_windows_and_empty_blocks_are_refused() -> None:
    with pytest.raises(UsageError, match="1 of 3 windows have an error of both"):
        paired_block_bootstrap(np.array([1.0, np.nan, 2.0]), np.array([np.nan, 1.0, 2.0]))
    with pytest.raises(UsageError, match="blocks of 0"):
        paired_block_bootstrap(np.ones(9), np.ones(9), block=0)
