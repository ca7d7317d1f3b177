"""Boosting within a budget: candidates compete, and the best goes on growing its trees.

The budget is CPU time, or a number of rounds. A round adds one tree for each group of leads. The
learning rate falls over the budget; the trees after the lowest validation error are left out. The
library `lightgbm` is imported here only, when a forest is grown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from stonet.errors import DataError, UsageError
from stonet.system.progress import report_progress

PATIENCE = 300  # rounds without a lower validation error after which a group of leads is complete
LAST_RATE = 0.05  # the last learning rate, relative to the first
ROWS_PER_LEAF = 30  # at least, and fewer where there are few rows
COMMON = {  # parameters of every candidate
    "verbosity": -1,
    "objective": "regression_l1",
    "metric": "l1",
    "feature_fraction": 0.5,
    "bagging_fraction": 0.5,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
}
Tree = Mapping[str, Any]  # as `lightgbm.Booster.dump_model` describes it


@dataclass(frozen=True)
class Rows:
    """A table to learn from.

    Args:
        x: features; NaN is missing.
        y: what the trees are to give.
        weight: of the error of each row.
        lead: of each row, from 0.
    """

    x: Float32[np.ndarray, "row feature"]
    y: Float64[np.ndarray, " row"]
    weight: Float64[np.ndarray, " row"]
    lead: Int64[np.ndarray, " row"]

    def take(self, chosen: Bool[np.ndarray, " row"]) -> Rows:
        """Some of the rows.

        Args:
            chosen: which.
        """
        return Rows(self.x[chosen], self.y[chosen], self.weight[chosen], self.lead[chosen])


@dataclass(frozen=True)
class Candidate:
    """Settings that compete.

    Args:
        leaves: of a tree, at most.
        groups: of consecutive leads, each with trees of its own.
        rate: first learning rate.
    """

    leaves: int
    groups: int
    rate: float

    def group(self, horizon: int) -> Int64[np.ndarray, " lead"]:
        """The group of each lead.

        Args:
            horizon: number of leads.
        """
        return np.arange(horizon) * self.groups // horizon


@dataclass(frozen=True)
class Limit:
    """How long to grow.

    Args:
        amount: CPU seconds, or rounds.
        timed: whether these are seconds.
    """

    amount: float
    timed: bool


@dataclass(frozen=True)
class _Table:
    """The rows of a group of leads in the library's own form; None: it has no row."""

    train: Any
    validation: Any
    parameters: Mapping[str, Any]
    share: float  # of the validation weight
    error: float  # mean |y| of the validation rows: without any tree


@dataclass
class _Group:
    """The booster of one group of leads, and its best round."""

    booster: Any
    share: float  # of the validation weight
    best: float  # error without any tree
    best_round: int = 0
    rounds: int = 0
    complete: bool = False

    def step(self, rate: float) -> None:
        self.booster.reset_parameter({"learning_rate": rate})
        self.complete = bool(self.booster.update())
        self.rounds += 1
        error = float(self.booster.eval_valid()[0][2])
        if error < self.best:
            self.best, self.best_round = error, self.rounds
        elif self.rounds - self.best_round >= PATIENCE:
            self.complete = True

    def trees(self) -> list[Tree]:
        if not self.best_round:
            return []
        described = self.booster.dump_model(num_iteration=self.best_round)
        return [tree["tree_structure"] for tree in described["tree_info"]]


@dataclass
class Growth:
    """The trees of one channel under one candidate.

    Args:
        candidate: its settings.
        groups: one booster for each group of leads.
        limit: of the growth, if it is the only one.
        spent: of the limit.
    """

    candidate: Candidate
    groups: list[_Group]
    limit: Limit
    spent: float = field(default=0.0)

    @property
    def error(self) -> float:
        """The lowest mean absolute validation error."""
        return sum(group.share * group.best for group in self.groups)

    def grow(self, until: float, description: str) -> None:
        """Add trees until so much of the limit is spent, or more of them do not help.

        Args:
            until: seconds or rounds.
            description: for the progress bar.
        """
        while self.spent < until and not all(group.complete for group in self.groups):
            before = time.process_time()
            falling = 0.5 + 0.5 * math.cos(math.pi * min(self.spent / self.limit.amount, 1.0))
            rate = self.candidate.rate * (LAST_RATE + (1 - LAST_RATE) * falling)
            for group in self.groups:
                if not group.complete:
                    group.step(rate)
            self.spent += time.process_time() - before if self.limit.timed else 1
            report_progress(min(int(self.spent), int(until)), int(until), description)

    def trees(self) -> list[list[Tree]]:
        """The trees of every group."""
        return [group.trees() for group in self.groups]


def race(
    train: Rows,
    validation: Rows,
    candidates: Sequence[Candidate],
    limit: Limit,
    share: float,
    seed: int,
    threads: int,
) -> Growth:
    """Grow every candidate for its part of a share of the limit, then the best to the end.

    Args:
        train: rows to learn from.
        validation: rows that decide.
        candidates: at least one.
        limit: of all together.
        share: of the limit, for the candidates.
        seed: of the random choices.
        threads: of the library.

    Raises:
        DataError: if there is no row in one of the tables.
    """
    if not (len(train.y) and len(validation.y)):
        raise DataError(
            "LightGBM needs observed targets in the training part and in the validation part; one "
            "has none. Choose other shares with data.split, or give data with fewer gaps."
        )
    each = share * limit.amount / len(candidates)
    alone = len(candidates) == 1 or each == 0
    total = limit if alone else Limit((1 - share) * limit.amount + each, limit.timed)
    growths, tables = [], dict[int, list[_Table]]()
    for candidate in candidates[:1] if alone else candidates:
        before = time.process_time()
        if candidate.groups not in tables:  # candidates share what the library makes of the rows
            tables[candidate.groups] = _tables(candidate, train, validation, threads)
        growth = _start(candidate, tables[candidate.groups], total, seed)
        growth.spent = time.process_time() - before if limit.timed else 0.0
        if not alone:
            growth.grow(each, "race")
        growths.append(growth)
    best = min(growths, key=lambda growth: growth.error)
    best.grow(total.amount, "trees")
    return best


def _tables(candidate: Candidate, train: Rows, validation: Rows, threads: int) -> list[_Table]:
    """The rows of each group of leads, as the library stores them."""
    library = library_of_trees()
    group = candidate.group(int(max(train.lead.max(), validation.lead.max())) + 1)
    total, tables = validation.weight.sum(), []
    for number in range(candidate.groups):
        some, judges = (part.take(group[part.lead] == number) for part in (train, validation))
        if not (len(some.y) and len(judges.y)):  # no tree: the newest value
            tables.append(_Table(None, None, {}, 0.0, 0.0))
            continue
        least = min(ROWS_PER_LEAF, 1 + len(some.y) // 50)
        parameters = {**COMMON, "min_data_in_leaf": least, "num_threads": threads}
        data = library.Dataset(some.x, some.y, weight=some.weight, params=parameters)
        check = data.create_valid(judges.x, judges.y, weight=judges.weight)
        zero = float(np.average(np.abs(judges.y), weights=judges.weight))
        share = float(judges.weight.sum() / total)
        tables.append(_Table(data, check, parameters, share, zero))
    return tables


def _start(candidate: Candidate, tables: list[_Table], limit: Limit, seed: int) -> Growth:
    """One booster for each group of leads, without trees."""
    own = {"num_leaves": candidate.leaves, "learning_rate": candidate.rate, "seed": seed}
    groups = []
    for table in tables:
        if table.train is None:
            groups.append(_Group(None, 0.0, 0.0, complete=True))
            continue
        booster = library_of_trees().Booster({**table.parameters, **own}, table.train)
        booster.add_valid(table.validation, "validation")
        groups.append(_Group(booster, table.share, table.error))
    return Growth(candidate, groups, limit)


def library_of_trees() -> Any:
    """The package `lightgbm`, an optional dependency.

    Raises:
        UsageError: if it is not installed.
    """
    try:
        import lightgbm
    except ImportError:
        raise UsageError(
            "Training the model 'lightgbm' needs the package lightgbm: pip install 'stonet[peers]'."
        ) from None
    return lightgbm
