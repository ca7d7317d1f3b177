"""The task: scaler and graph depend on training points and training times only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stonet.config import load_config
from stonet.data.durations import DAY, SECOND
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.time_spec import resolve_time_spec
from stonet.errors import DataError, UsageError
from stonet.training.task import Task

HOUR = 3600 * SECOND
TINY = load_config("tiny")
UNSEEN = (1, 4, 5)


def dataset(frames: int = 120, step: int = HOUR, calendar: bool = True, nodes: int = 16) -> Dataset:
    generator = np.random.default_rng(0)
    values = generator.normal(280, 5, (frames, nodes, 2)).astype(np.float32)
    points = Points(generator.random((nodes, 2)))
    field = Field(values, np.arange(frames) * step, points, ("u", "v"), calendar=calendar)
    return Dataset((field,), unseen=UNSEEN)


def changed(data: Dataset, frames: slice, nodes: list[int]) -> Dataset:
    values = data.episodes[0].values.copy()
    values[frames, nodes] += 1e6
    return replace(data, episodes=(replace(data.episodes[0], values=values, mask=None),))


def test_unseen_points_and_later_times_do_not_change_the_scaler():
    data = dataset()
    task, part = Task.of(data, TINY), data.episodes[0].values[:84][:, data.seen]
    np.testing.assert_allclose(task.scaler.mean, part.mean((0, 1), dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(task.scaler.std, part.std((0, 1), dtype=np.float64), rtol=1e-9)
    assert Task.of(changed(data, slice(None), list(UNSEEN)), TINY).scaler == task.scaler
    assert Task.of(changed(data, slice(84, None), list(range(16))), TINY).scaler == task.scaler
    assert Task.of(changed(data, slice(83, 84), [0]), TINY).scaler != task.scaler


def test_unseen_points_do_not_change_the_graph():
    data = dataset()
    alone = Task.of(data.take(data.seen), TINY)
    task = Task.of(data, TINY)
    assert task.config == alone.config
    assert task.nodes == alone.nodes == data.points.take(data.seen)
    assert task.config.graph.decoder_radius is not None


def test_a_resolved_configuration_stays_the_same():
    task = Task.of(dataset(), TINY)
    assert Task.of(dataset(), task.config).config == task.config


def test_windows_hold_the_chosen_points():
    data = dataset()
    task = Task.of(data, TINY)
    chosen, first = np.array(UNSEEN), np.array([0])
    raw = task.windows("test", points=chosen, raw=True)
    values, _ = raw.targets(first)
    start = 96 + task.time_spec.past
    expected = data.episodes[0].values[start : start + task.time_spec.horizon, chosen]
    assert np.array_equal(values[0], expected)  # to the bit: never scaled
    scaled, _ = task.windows("test", points=chosen).targets(first)
    assert np.array_equal(scaled[0], task.scaler.normalise(expected))
    seen, _ = task.windows("train", stride=5).targets(np.array([1]))
    start = 5 + task.time_spec.past
    expected = data.episodes[0].values[start : start + task.time_spec.horizon, data.seen]
    assert np.array_equal(seen[0], task.scaler.normalise(expected))


@pytest.mark.parametrize(
    ("step", "calendar", "past"),
    [
        (HOUR, True, 24),  # a day
        (HOUR // 2, True, 48),
        (HOUR // 6, True, 12),  # 144 steps a day are too many
        (6 * HOUR, True, 12),  # four are too few
        (DAY, True, 12),
        (HOUR, False, 12),  # no calendar, no days
    ],
)
def test_the_past_is_a_day_where_the_data_have_a_daily_cycle(step, calendar, past):
    assert resolve_time_spec(dataset(step=step, calendar=calendar), load_config()).past == past


def test_lengths_may_be_durations():
    config = load_config(settings=["data.past=6h", "data.horizon=90min"])
    time_spec = resolve_time_spec(dataset(step=HOUR // 2), config)
    assert (time_spec.past, time_spec.horizon, time_spec.step) == (12, 3, HOUR // 2)
    task = Task.of(dataset(400, HOUR // 2), load_config("tiny", settings=["data.past=6h"]))
    assert task.config.data.past == task.time_spec.past == 12
    with pytest.raises(UsageError, match="no whole number of the data's steps of 3600 s"):
        Task.of(dataset(), config)


def test_data_too_short_or_without_values_are_refused():
    with pytest.raises(DataError, match=r"series is too short.*Give at least 100 frames"):
        Task.of(dataset(20), TINY)
    empty = dataset()
    values = np.full_like(empty.episodes[0].values, np.nan)
    field = replace(empty.episodes[0], values=values, mask=None)
    with pytest.raises(DataError, match="Channel 'u' has no observed value"):
        Task.of(replace(empty, episodes=(field,)), TINY)


@pytest.mark.parametrize(("days", "features"), [(30, 1), (480, 1), (600, 2)])
def test_the_season_is_a_feature_only_if_training_spans_a_year(days: int, features: int) -> None:
    data = dataset(frames=days * 4, step=6 * HOUR)  # the first 70 % of it are the training part
    assert Task.of(data, load_config("tiny")).time_spec.features == features
