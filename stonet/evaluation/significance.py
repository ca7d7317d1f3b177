"""Whether one model is significantly better than another: a paired block bootstrap.

Both models forecast the same windows, so their errors are compared window by window. The errors of
neighbouring windows are correlated: resampling single windows would underestimate the variance and
report differences that are due to chance. Blocks of consecutive windows are resampled instead.

References:
    Politis and Romano (1992), A circular block-resampling procedure for stationary data.
    Holm (1979), A simple sequentially rejective multiple test procedure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from stonet.errors import UsageError

MIN_BLOCKS = 4  # where there are few windows, blocks are shorter than requested
COVERAGE = 0.95  # of the interval


@dataclass(frozen=True)
class Difference:
    """Mean error of the first model minus that of the second; negative: the first is better.

    Args:
        mean: over all blocks.
        low: end of the 95 % interval.
        high: the other end.
        p: two-sided.
    """

    mean: float
    low: float
    high: float
    p: float


def paired_block_bootstrap(
    first: Float64[np.ndarray, " window"],
    second: Float64[np.ndarray, " window"],
    block: int = 8,
    draws: int = 2000,
    seed: int = 0,
) -> Difference:
    """The mean of `first - second`, with interval and p value.

    A series as long as the differences d is put together from random blocks of them, `draws` times.
    Blocks may start anywhere and wrap around the end, so that all windows have the same weight:

        interval = quantiles of mean + m,    p = P(|m| >= |mean|),    m = √(n / (n - b)) (d* - mean)

    with d* the mean of a drawn series, n windows in blocks of b. The root corrects for blocks that
    are centred on the sample mean. Windows without an error (NaN) are left out.

    Args:
        first: errors of one model, in the order of the windows.
        second: errors of the other model on the same windows.
        block: windows of a block.
        draws: number of resampled series.
        seed: of the draws.

    Raises:
        UsageError: if fewer than 2 windows have both errors, or an argument is below 1.

    Example:
        >>> errors = np.arange(40) % 5 + 1.0
        >>> paired_block_bootstrap(errors, errors + 0.5).mean
        -0.5
    """
    if first.shape != second.shape or block < 1 or draws < 1:
        raise UsageError(
            f"{first.size} and {second.size} windows, blocks of {block}, {draws} draws; expected "
            "the errors of two models on the same windows, and at least 1 for block and draws."
        )
    differences = first - second
    differences = differences[np.isfinite(differences)]
    count = len(differences)
    if count < 2:
        raise UsageError(
            f"{count} of {first.size} windows have an error of both models; expected at least 2. "
            "Score more windows."
        )
    block = max(1, min(block, count // MIN_BLOCKS))
    mean = float(differences.mean())
    scale = np.sqrt(count / (count - block))
    deviations = _block_means(differences - mean, block, draws, seed) * scale
    low, high = mean + np.quantile(deviations, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    extreme = int((np.abs(deviations) >= abs(mean)).sum())
    return Difference(mean, float(low), float(high), (1 + extreme) / (1 + draws))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Probabilities of several tests, adjusted so that one error among all is as unlikely.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none falls below the one
    before it, and none exceeds 1.

    Args:
        p: by name of the test.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted, largest = dict[str, float](), 0.0
    for number, (name, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        largest = min(1.0, max(largest, (len(p) - number) * value))
        adjusted[name] = largest
    return adjusted


def _block_means(
    values: Float64[np.ndarray, " window"], block: int, draws: int, seed: int
) -> Float64[np.ndarray, " draw"]:
    """Means of drawn series, from the sums of all blocks."""
    count = len(values)
    full, rest = divmod(count, block)
    cumulative = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:block]]))])
    starts = np.random.default_rng(seed).integers(count, size=(draws, full + 1))
    sums = (cumulative[block:] - cumulative[:-block])[starts[:, :-1]].sum(1)
    last = starts[:, -1]  # a shorter block, so that the series has as many windows
    return (sums + cumulative[last + rest] - cumulative[last]) / count
