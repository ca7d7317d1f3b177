"""Whether one model is better than another, or only luckier: a paired block bootstrap.

Both forecast the same windows, so their errors are compared window by window. Neighbouring windows
share their weather: drawing them one by one would count the same luck many times over and find
differences that are none. Whole blocks of consecutive windows are drawn instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from stonet.errors import UsageError

FEWEST = 4  # blocks at least; where there are few windows, blocks are shorter than asked for
COVERED = 0.95


@dataclass(frozen=True)
class Difference:
    """How far the first model's mean error lies above the second's; negative: the first is better.

    `low` and `high` are the ends of the 95 % interval, `p` is two-sided.
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
    """The mean of `first - second`, errors of two models on the same windows in their order.

    A series as long as the differences d is put together from random blocks of them, `draws` times;
    blocks may begin anywhere, and the end goes on at the beginning, so every window counts alike:

        interval = quantiles of mean + m,    p = P(|m| >= |mean|),    m = √(n / (n - b)) (d* - mean)

    with d* the mean of a drawn series, n windows in blocks of b. The root makes up for blocks being
    measured from the mean that they have themselves. Windows without an error (NaN) are left out.

    Example:
        >>> errors = np.arange(40) % 5 + 1.0
        >>> paired_block_bootstrap(errors, errors + 0.5).mean
        -0.5
    """
    if first.shape != second.shape or block < 1 or draws < 1:
        raise UsageError(
            f"{first.size} and {second.size} windows, blocks of {block}, {draws} draws; expected "
            "the errors of two models on the same windows, and at least 1 of each of the others."
        )
    apart = first - second
    apart = apart[np.isfinite(apart)]
    count = len(apart)
    if count < 2:
        raise UsageError(
            f"{count} of {first.size} windows have an error of both models; expected at least 2. "
            "Score more windows."
        )
    block = max(1, min(block, count // FEWEST))
    mean = float(apart.mean())
    moved = _block_means(apart - mean, block, draws, seed) * np.sqrt(count / (count - block))
    low, high = mean + np.quantile(moved, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    beyond = int((np.abs(moved) >= abs(mean)).sum())
    return Difference(mean, float(low), float(high), (1 + beyond) / (1 + draws))


def _block_means(
    values: Float64[np.ndarray, " window"], block: int, draws: int, seed: int
) -> Float64[np.ndarray, " draw"]:
    """Means of drawn series; a block's sum is made once, wherever it begins."""
    count = len(values)
    whole, rest = divmod(count, block)
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:block]]))])
    begin = np.random.default_rng(seed).integers(count, size=(draws, whole + 1))
    sums = (total[block:] - total[:-block])[begin[:, :-1]].sum(1)
    last = begin[:, -1]  # cut short, so that the series is as long as the windows
    return (sums + total[last + rest] - total[last]) / count
