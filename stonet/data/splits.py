"""Splits: parts of the time, held-out points, kept labels and hidden inputs.

Times are divided in their order. Points are held out for the inductive experiments, labels are
dropped for the irregular ones, inputs are hidden for those with missing data. All draws are made
once and depend on their seed alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64

from stonet.data.field import Dataset
from stonet.data.geometry import Points, curve_order
from stonet.errors import DataError, UsageError

Index = Int64[np.ndarray, "_"]  # positions of points
Hidden = Bool[np.ndarray, "time node"]


def chronological(shares: tuple[float, float, float], length: int) -> list[tuple[int, int]]:
    """Consecutive (start, stop) for training, validation and test.

    Example:
        >>> chronological((0.7, 0.1, 0.2), 3286)  # the paper's weather windows: 2300, 329, 657
        [(0, 2300), (2300, 2629), (2629, 3286)]
    """
    ends = np.rint(np.cumsum((0.0, *shares)) * length).astype(int).tolist()
    return list(pairwise(ends))


def spread_alike(order: Index, unseen: int) -> tuple[Index, Index]:
    """Seen and unseen points, alternating along `order`, a curve that fills their region.

    Both groups are then spread alike, and their errors can be compared.
    """
    held_out = np.diff(np.arange(len(order) + 1) * unseen // len(order)) > 0
    return order[~held_out], order[held_out]


def at_random(count: int, unseen: int, seed: int) -> Index:
    """Positions of `unseen` of `count` points, drawn at random, such as 29 of Solar's 137."""
    _check_unseen(unseen, count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:unseen])


def every_second(rows: int, columns: int, unseen: int, seed: int) -> tuple[Index, Index]:
    """Seen points on a coarser grid, and unseen points drawn from the other nodes of the grid.

    The paper's weather grid of 32 x 64 gives 16 x 32 = 512 and leaves 1536 to choose from.
    """
    number = np.arange(rows * columns).reshape(rows, columns)
    seen = number[::2, ::2].ravel()
    others = np.setdiff1d(number, seen)
    _check_unseen(unseen, len(others) + 1)
    return seen, np.sort(np.random.default_rng(seed).permutation(others)[:unseen])


def hold_out(dataset: Dataset, share: float | None) -> Dataset:
    """Hold out a share of the points, spread over the region like the others.

    Args:
        dataset: any unseen points that it has are replaced.
        share: of the points (None: the data set is returned unchanged).

    Raises:
        UsageError: the share leaves no point to hold out or none to train on.

    Example:
        >>> hold_out(dataset, 0.2)
    """
    if share is None:
        return dataset
    count = len(dataset.points)
    unseen = round(share * count)
    if share and not 0 < unseen < count:
        raise UsageError(
            f"data.unseen = {share:g} of {count} points leaves none to hold out or none to train."
        )
    _, chosen = spread_alike(curve_order(dataset.points), unseen)
    return replace(dataset, unseen=tuple(np.sort(chosen).tolist()))


def with_ratio(dataset: Dataset, ratio: float, seed: int = 0) -> Dataset:
    """Keep a random part of the unseen points, such that unseen / seen is `ratio`.

    Args:
        dataset: with unseen points.
        ratio: number of unseen points over number of seen ones.
        seed: of the draw.

    Raises:
        UsageError: the data set has too few unseen points.
    """
    seen, unseen = dataset.seen, np.asarray(dataset.unseen, dtype=np.int64)
    count = round(ratio * len(seen))
    if not 0 < count <= len(unseen):
        raise UsageError(
            f"A ratio of {ratio:g} asks for {count} unseen points beside {len(seen)} seen ones; "
            f"'{dataset.name}' has {len(unseen)}."
        )
    chosen = np.sort(np.random.default_rng(seed).permutation(unseen)[:count])
    kept = dataset.take(np.concatenate([seen, chosen]))
    return replace(kept, unseen=tuple(range(len(seen), len(seen) + count)))


def kept_labels(
    windows: int, horizon: int, kept: int, seed: int
) -> Bool[np.ndarray, "window future"]:
    """Targets that a training on sparse labels keeps, drawn once for each window.

    Args:
        windows: number of windows.
        horizon: target times of a window.
        kept: number of them that are kept.
        seed: of the draw.

    Raises:
        UsageError: `kept` is not within 1 and `horizon`.
    """
    if not 1 <= kept <= horizon:
        raise UsageError(f"data.labels = {kept}; expected 1 to {horizon}, the horizon.")
    rank = np.random.default_rng((seed, 77)).random((windows, horizon)).argsort(1).argsort(1)
    return rank < kept


def hidden_at_random(times: int, nodes: int, share: float, seed: int) -> Hidden:
    """Inputs to hide: single values, independently of each other.

    Args:
        times: number of frames.
        nodes: number of points.
        share: of the values that are hidden.
        seed: of the draw.
    """
    _check_share(share)
    return np.random.default_rng(seed).random((times, nodes)) < share


def hidden_by_outage(times: int, nodes: int, share: float, length: int, seed: int) -> Hidden:
    """Inputs to hide: sensors fail for `length` consecutive frames.

    The time of each sensor is divided into periods of that length, with a phase of its own.

    Args:
        times: number of frames.
        nodes: number of points.
        share: of the values that are hidden.
        length: of an outage, in frames.
        seed: of the draw.
    """
    _check_share(share)
    generator = np.random.default_rng(seed)
    phase = generator.integers(length, size=nodes)
    stretch = (np.arange(times)[:, None] + phase) // length
    fails = generator.random((times // length + 2, nodes)) < share
    return np.take_along_axis(fails, stretch, axis=0)


def hidden_by_block(points: Points, times: int, share: float, length: int, seed: int) -> Hidden:
    """Inputs to hide: all sensors of a region, another region every `length` frames.

    Args:
        points: positions of the sensors.
        times: number of frames.
        share: of the sensors: those nearest to a random one.
        length: of an outage, in frames.
        seed: of the draws.
    """
    _check_share(share)
    generator = np.random.default_rng(seed)
    lost = round(share * len(points))
    hidden = np.zeros((times, len(points)), dtype=bool)
    for start in range(0, times, length):
        centre = points.embedded[generator.integers(len(points))]
        near = np.argsort(points.geometry.distance(points.embedded, centre), kind="stable")[:lost]
        hidden[start : start + length, near] = True
    return hidden


def _check_unseen(unseen: int, count: int) -> None:
    if not 0 <= unseen < count:
        raise DataError(f"{unseen} unseen points of {count}; at least one must be left to train.")


def _check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise UsageError(f"A share of {share:g} to hide; expected 0 to less than 1.")
