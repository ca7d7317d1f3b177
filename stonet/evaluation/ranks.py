"""Ranks of models over several tasks, and the difference of mean ranks that is not chance.

References:
    Demsar (2006), Statistical comparisons of classifiers over multiple data sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy import stats

from stonet.errors import UsageError

MIN_MODELS, MIN_TASKS = 2, 2


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of models, the best first, and the critical difference.

    Args:
        ranks: mean rank by model, from 1; equal errors share their ranks.
        tasks: number of tasks.
        difference: mean ranks that differ by less are not significantly different (Nemenyi).
        p: of the Friedman test that all models are alike; None for two models.
    """

    ranks: dict[str, float]
    tasks: int
    difference: float
    p: float | None

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The largest groups of two or more neighbours within the critical difference."""
        names, groups, reached = list(self.ranks), list[tuple[str, ...]](), 0
        for first, name in enumerate(names):
            limit = self.ranks[name] + self.difference
            last = max(i for i, other in enumerate(names) if self.ranks[other] <= limit)
            if last > max(first, reached):
                groups.append(tuple(names[first : last + 1]))
                reached = last
        return groups


def rank(errors: Mapping[str, Float64[np.ndarray, " task"]], alpha: float = 0.05) -> Ranking:
    """Mean ranks over tasks, with Nemenyi's critical difference CD.

        CD = q(alpha, k) sqrt(k (k + 1) / (6 N))

    for k models on N tasks; q is the quantile of the studentised range over the square root of 2.

    Args:
        errors: of each model on every task, smaller is better.
        alpha: level of significance.

    Raises:
        UsageError: fewer than 2 models or tasks, or an error is missing.

    Example:
        >>> rank({"a": np.array([1.0, 1.0]), "b": np.array([2.0, 3.0])}).ranks
        {'a': 1.0, 'b': 2.0}
    """
    table = np.array(list(errors.values()), dtype=np.float64)
    if table.ndim != 2 or table.shape < (MIN_MODELS, MIN_TASKS) or not np.isfinite(table).all():
        raise UsageError(
            f"Errors of shape {table.shape}; expected those of at least {MIN_MODELS} models on at "
            f"least {MIN_TASKS} tasks, none missing."
        )
    models, tasks = table.shape
    means = stats.rankdata(table, axis=0).mean(1)
    quantile = stats.studentized_range.ppf(1 - alpha, models, np.inf) / np.sqrt(2)
    difference = quantile * np.sqrt(models * (models + 1) / (6 * tasks))
    p = float(stats.friedmanchisquare(*table).pvalue) if models > MIN_MODELS else None
    order = np.argsort(means, kind="stable")
    names = list(errors)
    ranks = {names[i]: float(means[i]) for i in order}
    return Ranking(ranks, tasks, float(difference), p)
