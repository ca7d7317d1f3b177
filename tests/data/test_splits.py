"""Splits: exact counts, no overlap, the same draw for the same seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.small import small_dataset
from hypothesis import given
from hypothesis import strategies as st

from stonet.config import load_config
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points, curve_order
from stonet.data.scaling import Scaler
from stonet.data.splits import (
    at_random,
    chronological,
    every_second,
    hidden_at_random,
    hidden_by_block,
    hidden_by_outage,
    hold_out,
    in_regions,
    kept_labels,
    spread_alike,
)
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import cut, split
from stonet.errors import StonetError, UsageError
from stonet.training.task import Task

HOUR = 3600 * 10**9
SHARES = (0.7, 0.1, 0.2)


def test_the_papers_weather_windows() -> None:
    """2010 to 2018, hourly, a window each day: 2300, 329 and 657 windows that begin at midnight."""
    frames = 3286 * 24
    start = int(np.datetime64("2010-01-01", "ns").astype(np.int64))
    field = Field(
        np.zeros((frames, 1, 1), np.float32),
        start + HOUR * np.arange(frames),
        Points(np.zeros((1, 2))),
    )
    time_spec = TimeSpec(HOUR, 12, 12, calendar=True)
    parts = split(Dataset((field,)), time_spec, SHARES, stride=24)
    counts = []
    for fields in parts.values():
        windows = cut(fields, Scaler.identity(1), time_spec, stride=24)
        counts.append(len(windows))
        assert (time_spec.hour(windows.times[windows.starts]) == 0).all()
    assert counts == [2300, 329, 657]


@given(st.integers(0, 10_000))
def test_parts_are_consecutive_without_gap(length: int) -> None:
    parts = chronological(SHARES, length)
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == length
    assert all(
        abs(stop - start - share * length) <= 1
        for (start, stop), share in zip(parts, SHARES, strict=True)
    )


def test_the_papers_inductive_grid() -> None:
    seen, unseen = every_second(32, 64, 512, seed=0)
    assert len(seen) == len(unseen) == 512 and not set(seen) & set(unseen)
    rows, columns = np.divmod(seen, 64)
    assert set(rows) == set(range(0, 32, 2)) and set(columns) == set(range(0, 64, 2))


def test_the_solar_data_have_108_seen_and_29_unseen_plants() -> None:
    unseen = at_random(137, 29, seed=0)
    assert len(set(unseen)) == 29 and 137 - len(unseen) == 108
    assert np.array_equal(unseen, at_random(137, 29, seed=0))
    assert not np.array_equal(unseen, at_random(137, 29, seed=1))


@given(st.integers(2, 300), st.floats(0.01, 0.9), st.integers(0, 10))
def test_held_out_points_lie_between_the_others(count: int, share: float, seed: int) -> None:
    """Along the curve no two kinds cluster: any stretch holds its share, up to one point."""
    unseen = round(share * count)
    points = Points(np.random.default_rng(seed).uniform(size=(count, 2)))
    order = curve_order(points)
    seen, held_out = spread_alike(order, unseen)
    assert sorted([*seen, *held_out]) == list(range(count)) and len(held_out) == unseen
    cumulated = np.cumsum(np.isin(order, held_out))
    expected = np.arange(1, count + 1) * unseen / count
    assert (np.abs(cumulated - expected) < 1).all()


def test_a_share_of_any_points_can_be_held_out() -> None:
    dataset = small_dataset()
    assert hold_out(dataset, None) is dataset
    once = hold_out(dataset, 0.25)
    assert len(once.unseen) == 5
    assert hold_out(once, 0.25).unseen == once.unseen
    task = Task.of(dataset, load_config("tiny", settings=["data.unseen=0.25"]))
    assert task.dataset.unseen == once.unseen and len(task.nodes) == 15
    with pytest.raises(UsageError, match="leaves none"):
        hold_out(dataset, 0.01)


def test_regions_are_held_out_as_a_whole() -> None:
    """Most neighbours of an unseen point are unseen, too."""
    x, y = np.meshgrid(np.arange(20.0), np.arange(20.0))
    points = Points(np.stack([x.ravel(), y.ravel()], 1), "plane")
    for count in (1, 3, 80):
        assert len(np.unique(in_regions(points, count))) == count
    chosen = in_regions(points, 80)
    assert np.array_equal(chosen, in_regions(points, 80))
    hidden = np.zeros((22, 22), bool)
    hidden[points.coordinates[chosen, 1].astype(int) + 1, chosen % 20 + 1] = True
    around = sum(
        hidden[1 + i : 21 + i, 1 + j : 21 + j] for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0))
    )
    share = around[hidden[1:21, 1:21]].mean() / 4
    spread = hold_out(small_dataset(), 0.25)
    assert share > 0.7
    regions = hold_out(small_dataset(), 0.25, regions=True)
    assert len(regions.unseen) == len(spread.unseen) and regions.unseen != spread.unseen
    settings = ["data.unseen=0.25", "data.unseen_regions=true"]
    task = Task.of(small_dataset(), load_config("tiny", settings=settings))
    assert task.dataset.unseen == regions.unseen


@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 5))
def test_every_window_keeps_the_given_number_of_labels(windows: int, kept: int, seed: int) -> None:
    labels = kept_labels(windows, 12, kept, seed)
    assert (labels.sum(1) == kept).all()
    assert np.array_equal(labels, kept_labels(windows, 12, kept, seed))


def test_every_lead_is_kept_equally_often() -> None:
    labels = kept_labels(20_000, 12, 6, 0)
    assert np.abs(labels.mean(0) - 0.5).max() < 0.02  # every lead time is kept as often
    with pytest.raises(UsageError, match="1 to 12"):
        kept_labels(3, 12, 13, 0)


def test_labels_are_dropped_in_training_but_not_in_the_test() -> None:
    config = load_config("tiny", settings=["data.labels=1", "train.seed=3"])
    full, some = Task.of(small_dataset(), load_config("tiny")), Task.of(small_dataset(), config)
    for part in ("train", "validation", "test"):
        chosen = np.arange(len(some.windows(part)))
        mask, every = (task.windows(part).targets(chosen)[1] for task in (some, full))
        if part == "test":
            assert (mask == every).all()
        else:
            kept = mask.any(-1).any(-1).sum(1)  # times at which any point has a label
            assert (kept <= 1).all() and (mask <= every).all()
    again = Task.of(small_dataset(), config).windows("train")
    assert np.array_equal(again.labels, some.windows("train").labels)


SIZES = (400, 50)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75])
def test_the_share_of_hidden_inputs(share: float) -> None:
    points = Points(np.random.default_rng(0).uniform(size=(SIZES[1], 2)))
    for hidden in (
        hidden_at_random(*SIZES, share, seed=1),
        hidden_by_outage(*SIZES, share, length=24, seed=1),
        hidden_by_block(points, SIZES[0], share, length=24, seed=1),
    ):
        assert hidden.shape == SIZES and abs(hidden.mean() - share) < 0.05


def test_outages_of_a_sensor_have_the_given_length() -> None:
    hidden = hidden_by_outage(*SIZES, 0.3, length=24, seed=2)
    for column in hidden.T:
        edges = np.flatnonzero(np.diff(column.astype(int)))
        lengths = np.diff(edges)
        assert (lengths % 24 == 0).all()


def test_a_regional_outage_is_complete() -> None:
    points = Points(np.random.default_rng(0).uniform(size=(50, 2)))
    hidden = hidden_by_block(points, 100, 0.3, length=10, seed=0)
    distance = np.linalg.norm(points.coordinates[:, None] - points.coordinates, axis=-1)
    regions = {frozenset(row) for row in np.argsort(distance, axis=1)[:, :15].tolist()}
    assert all(frozenset(np.flatnonzero(row).tolist()) in regions for row in hidden)
    assert len({tuple(row) for row in hidden}) > 5


def test_hidden_inputs_are_missing_and_targets_stay() -> None:
    windows = Task.of(small_dataset(), load_config("tiny")).windows("test")
    hidden = hidden_at_random(len(windows.times), 20, 0.5, seed=0)
    masked, chosen = replace(windows, hidden=hidden), np.arange(len(windows))
    before, after = windows.inputs(chosen), masked.inputs(chosen)
    first = int(windows.starts[0])
    for frame in range(4):
        gone = hidden[first + frame]
        assert not after.observed[frame][gone].any() and (after.frames[frame][gone] == 0).all()
        assert (after.frames[frame][~gone] == before.frames[frame][~gone]).all()
    for one, other in zip(masked.targets(chosen), windows.targets(chosen), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(StonetError, match="expected 0 to less than 1"):
        hidden_at_random(3, 3, share, 0)
