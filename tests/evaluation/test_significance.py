"""The paired block bootstrap: honest on dependent windows, and blind to who comes first."""

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
    """How often the interval holds the true difference, which is 0."""
    noise = [dependent(windows, memory, seed) for seed in range(trials)]
    found = [paired_block_bootstrap(1 + e, np.ones(windows), block, 300) for e in noise]
    return float(np.mean([d.low <= 0 <= d.high for d in found]))


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    assert coverage(0.0, block=1) == pytest.approx(0.95, abs=0.03)
    assert coverage(0.0, block=8) == pytest.approx(0.95, abs=0.04)
    assert coverage(0.5, block=8) == pytest.approx(0.95, abs=0.05)


def test_drawing_dependent_windows_one_by_one_would_be_too_sure() -> None:
    assert coverage(0.5, block=1) < 0.8


def test_p_is_uniform_where_there_is_no_difference() -> None:
    p = [
        paired_block_bootstrap(dependent(160, 0.3, s), np.zeros(160), seed=s, draws=300).p
        for s in range(400)
    ]
    for level in (0.1, 0.5, 0.9):
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=0.07)


def test_a_shift_is_found_and_its_size_lies_in_the_interval() -> None:
    second = 1 + dependent(200, 0.6, 1) ** 2
    first = second + 0.2 + 0.3 * dependent(200, 0.4, 2)
    found = paired_block_bootstrap(first, second)
    assert 0 < found.low < 0.2 < found.high and found.p < 0.01
    assert found.mean == pytest.approx((first - second).mean())


def test_pairing_finds_what_two_separate_means_could_not() -> None:
    """The windows differ by far more than the models do."""
    hard = 10 * dependent(120, 0.8, 3)
    found = paired_block_bootstrap(hard + 0.1 + 0.05 * dependent(120, 0, 4), hard)
    assert found.low > 0 and hard.std() > 10 * (found.high - found.low)


def test_it_does_not_matter_who_comes_first() -> None:
    first, second = dependent(101, 0.5, 5), dependent(101, 0.5, 6)
    one, other = paired_block_bootstrap(first, second), paired_block_bootstrap(second, first)
    assert (other.mean, other.p) == (-one.mean, one.p)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), rel=1e-12)


def test_the_draws_depend_on_the_seed_alone_and_the_unit_does_not_matter() -> None:
    first, second = dependent(90, 0.5, 7), dependent(90, 0.5, 8)
    one = paired_block_bootstrap(first, second, seed=3)
    assert one == paired_block_bootstrap(first, second, seed=3)
    assert one != paired_block_bootstrap(first, second, seed=4)
    scaled = paired_block_bootstrap(8 * first, 8 * second, seed=3)
    assert (scaled.mean, scaled.low, scaled.high, scaled.p) == pytest.approx(
        (8 * one.mean, 8 * one.low, 8 * one.high, one.p)
    )


def test_a_drawn_series_is_made_of_blocks_as_by_hand() -> None:
    """The quick sums against blocks that are written out; 50 windows are no multiple of 8."""
    apart, block, draws = dependent(50, 0.5, 9), 8, 500
    begin = np.random.default_rng(0).integers(50, size=(draws, 7))
    index = (begin[..., None] + np.arange(block)) % 50
    means = (apart - apart.mean())[index.reshape(draws, -1)[:, :50]].mean(1) * np.sqrt(50 / 42)
    found = paired_block_bootstrap(apart, np.zeros(50), block, draws)
    low, high = apart.mean() + np.quantile(means, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
    assert found.p == (1 + (np.abs(means) >= abs(apart.mean())).sum()) / (1 + draws)


def test_the_same_forecasts_do_not_differ_and_a_sure_shift_is_sure() -> None:
    errors = dependent(64, 0.5, 10)
    same = paired_block_bootstrap(errors, errors)
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)
    sure = paired_block_bootstrap(errors + 1, errors, draws=999)
    assert (sure.low, sure.high) == pytest.approx((1, 1)) and sure.p == 1 / 1000


def test_windows_without_an_error_are_left_out() -> None:
    first, second = dependent(80, 0.5, 11), dependent(80, 0.5, 12)
    kept = np.arange(80) % 7 > 0
    holes = np.where(kept, first, np.nan)
    found = paired_block_bootstrap(holes, second)
    assert found == paired_block_bootstrap(first[kept], second[kept])


@pytest.mark.parametrize("count", [2, 5, 9])
def test_few_windows_get_shorter_blocks(count: int) -> None:
    apart = dependent(count, 0.0, 13)
    short = max(1, count // 4)
    assert paired_block_bootstrap(apart, np.zeros(count)) == paired_block_bootstrap(
        apart, np.zeros(count), block=short
    )


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="1 of 3 windows have an error of both"):
        paired_block_bootstrap(np.array([1.0, np.nan, 2.0]), np.array([np.nan, 1.0, 2.0]))
    with pytest.raises(UsageError, match="blocks of 0"):
        paired_block_bootstrap(np.ones(9), np.ones(9), block=0)
