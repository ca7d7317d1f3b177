"""Splits: training, validation and test times; held-out points; dropped targets and inputs.

Times are split in order. Points are held out for inductive experiments. Targets and inputs are
dropped for experiments with irregular times and missing data. Each draw depends on its seed only.
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
REGIONS = 4  # that are held out as a whole


def chronological(shares: tuple[float, float, float], length: int) -> list[tuple[int, int]]:
    """Consecutive (start, stop) for training, validation and test.

    Args:
        shares: of training, validation and test.
        length: number of frames or episodes.

    Example:
        >>> chronological((0.7, 0.1, 0.2), 3286)  # the paper's weather windows: 2300, 329, 657
        [(0, 2300), (2300, 2629), (2629, 3286)]
    """
    ends = np.rint(np.cumsum((0.0, *shares)) * length).astype(int).tolist()
    return list(pairwise(ends))


def spread_alike(order: Index, unseen: int) -> tuple[Index, Index]:
    """Seen and unseen points, evenly spread along a space-filling curve.

    Both groups then have the same spatial distribution, so that their errors can be compared.

    Args:
        order: positions along the curve.
        unseen: number of points to hold out.
    """
    held_out = np.diff(np.arange(len(order) + 1) * unseen // len(order)) > 0
    return order[~held_out], order[held_out]


def at_random(count: int, unseen: int, seed: int) -> Index:
    """Positions of `unseen` of `count` points, drawn at random, such as 29 of 137 solar plants.

    Args:
        count: number of all points.
        unseen: number of points to hold out.
        seed: of the draw.
    """
    _check_unseen(unseen, count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:unseen])


def every_second(rows: int, columns: int, unseen: int, seed: int) -> tuple[Index, Index]:
    """Every second row and column of a grid as seen points, and unseen points among the others.

    The paper's weather grid of 32 x 64 has 16 x 32 = 512 seen points and 1536 others.

    Args:
        rows: of the grid.
        columns: of the grid.
        unseen: number of points to hold out.
        seed: of the draw.
    """
    number = np.arange(rows * columns).reshape(rows, columns)
    seen = number[::2, ::2].ravel()
    others = np.setdiff1d(number, seen)
    _check_unseen(unseen, len(others) + 1)
    return seen, np.sort(np.random.default_rng(seed).permutation(others)[:unseen])


def in_regions(points: Points, unseen: int, regions: int = REGIONS) -> Index:
    """Positions of `unseen` points that fill a few regions, each as compact as the points allow.

    Forecasts inside a region without a sensor are harder than between sensors. The centres are
    spread evenly along a space-filling curve; each region has the points nearest to its centre.

    Args:
        points: all points.
        unseen: number of points to hold out.
        regions: their number; fewer if there are fewer unseen points.
    """
    regions = min(regions, unseen)
    order, place = curve_order(points), points.embedded
    centres = order[(2 * np.arange(regions) + 1) * len(order) // (2 * regions)]
    free = np.ones(len(points), dtype=bool)
    for number, centre in enumerate(centres):
        count = unseen * (number + 1) // regions - unseen * number // regions
        distance = np.where(free, ((place - place[centre]) ** 2).sum(1), np.inf)
        free[np.argsort(distance, kind="stable")[:count]] = False
    return np.flatnonzero(~free)


def hold_out(dataset: Dataset, share: float | None, regions: bool = False) -> Dataset:
    """The data set with this share of its points unseen; None leaves it unchanged.

    Args:
        dataset: all points.
        share: of the points.
        regions: hold out whole regions, see `in_regions`; otherwise the unseen points are spread
            evenly along a space-filling curve.
    """
    if share is None:
        return dataset
    count = len(dataset.points)
    unseen = round(share * count)
    if share and not 0 < unseen < count:
        raise UsageError(
            f"data.unseen = {share:g} of {count} points leaves none to hold out or none to train."
        )
    if regions:
        chosen = in_regions(dataset.points, unseen)
    else:
        _, chosen = spread_alike(curve_order(dataset.points), unseen)
    return replace(dataset, unseen=tuple(np.sort(chosen).tolist()))


def kept_labels(
    windows: int, horizon: int, kept: int, seed: int
) -> Bool[np.ndarray, "window future"]:
    """The target times of each window that are given in training: `kept` of them, at random.

    Args:
        windows: number of windows.
        horizon: target times of a window.
        kept: target times that are given.
        seed: of the draw.

    Raises:
        UsageError: `kept` is not between 1 and the horizon.
    """
    if not 1 <= kept <= horizon:
        raise UsageError(f"data.labels = {kept}; expected 1 to {horizon}, the horizon.")
    rank = np.random.default_rng((seed, 77)).random((windows, horizon)).argsort(1).argsort(1)
    return rank < kept


def hidden_at_random(times: int, nodes: int, share: float, seed: int) -> Hidden:
    """Values missing at random, independently of each other.

    Args:
        times: number of frames.
        nodes: number of sensors.
        share: of the values that are missing.
        seed: of the draw.
    """
    _check_share(share)
    return np.random.default_rng(seed).random((times, nodes)) < share


def hidden_by_outage(times: int, nodes: int, share: float, length: int, seed: int) -> Hidden:
    """Outages of single sensors of `length` frames; `share` of all values is missing.

    The time of each sensor is divided into intervals of that length, with a random phase.

    Args:
        times: number of frames.
        nodes: number of sensors.
        share: of the values that are missing.
        length: of an outage, in frames.
        seed: of the draw.
    """
    _check_share(share)
    generator = np.random.default_rng(seed)
    phase = generator.integers(length, size=nodes)
    interval = (np.arange(times)[:, None] + phase) // length
    fails = generator.random((times // length + 2, nodes)) < share
    return np.take_along_axis(fails, interval, axis=0)


def hidden_by_block(points: Points, times: int, share: float, length: int, seed: int) -> Hidden:
    """Outages of regions: the `share` of the sensors nearest to a random sensor.

    The region changes every `length` frames.

    Args:
        points: the sensors.
        times: number of frames.
        share: of the sensors in a region.
        length: of an outage, in frames.
        seed: of the draw.
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
