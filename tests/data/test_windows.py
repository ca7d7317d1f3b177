"""Windows: inputs and targets against direct slices of the fields."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.durations import SECOND
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import PARTS, cut, split
from stonet.errors import DataError

HOUR = 3600 * SECOND
SHARES = (0.7, 0.1, 0.2)
IDENTITY = Scaler.identity(1)


def time_spec(past: int = 3, horizon: int = 2, step: int = HOUR, calendar: bool = True) -> TimeSpec:
    return TimeSpec(step, past, horizon, calendar)


def episode(
    frames: int, seed: int = 0, missing: float = 0.0, times: np.ndarray | None = None
) -> Field:
    """Two nodes; every value is its own."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(frames, 2, 1)).astype(np.float32)
    times = np.arange(frames) * HOUR + seed * 10**4 * HOUR if times is None else times
    mask = generator.random(values.shape) >= missing
    return Field(values, times, Points(np.array([[0.0, 0.0], [1.0, 1.0]])), mask=mask)


def everything(windows) -> np.ndarray:
    return np.arange(len(windows))


# Which windows there are


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_every_window_is_a_slice_of_one_episode(lengths, past, horizon, stride):
    fields = tuple(episode(frames, seed) for seed, frames in enumerate(lengths))
    need = past + horizon
    slices = [
        (field.values[s : s + past], field.values[s + past : s + need])
        for field in fields
        for s in range(0, len(field.times) - need + 1, stride)
    ]
    if not slices:
        with pytest.raises(DataError, match=f"No window of {past} . {horizon} frames.*Give more"):
            cut(fields, IDENTITY, time_spec(past, horizon), stride)
        return
    windows = cut(fields, IDENTITY, time_spec(past, horizon), stride)
    batch, (target, observed) = (
        windows.inputs(everything(windows)),
        windows.targets(everything(windows)),
    )
    assert np.array_equal(batch.frames[batch.past], np.stack([seen for seen, _ in slices]))
    assert np.array_equal(target, np.stack([future for _, future in slices]))
    assert observed.all()


def test_values_are_normalised_and_missing_ones_zero():
    scaler, field = Scaler((280.0,), (7.0,)), episode(20, missing=0.3)
    windows = cut((field,), scaler, time_spec())
    batch = windows.inputs(np.array([4, 9]))
    expected = np.where(field.observed, scaler.normalise(field.values), 0)
    frames = [slice(4, 7), slice(9, 12)]
    assert np.array_equal(batch.frames[batch.past], np.stack([expected[f] for f in frames]))
    assert np.array_equal(batch.observed[batch.past], np.stack([field.observed[f] for f in frames]))
    values, observed = windows.targets(np.array([4, 9]))
    assert np.array_equal(values[1], expected[12:14])
    assert np.array_equal(observed[1], field.observed[12:14])
    assert np.array_equal(batch.present, batch.observed.any(-1))


def test_a_batch_without_gaps_has_no_mask():
    batch = cut((episode(20),), IDENTITY, time_spec()).inputs(np.arange(3))
    assert batch.observed is None
    assert batch.present is None


def test_windows_with_a_long_gap_are_dropped():
    times = HOUR * np.array([0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21, 22])
    windows = cut((episode(13, times=times),), IDENTITY, time_spec(3, 2))
    assert windows.starts.tolist() == [0, 1, 6, 7, 8]
    late = HOUR * np.array([0, 1, 2, 3, 5, 6, 7])  # one frame missing: a little longer, and kept
    assert cut((episode(7, times=late),), IDENTITY, time_spec(3, 2)).starts.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="without a long gap"):
        cut((episode(6, times=HOUR * np.arange(6) * 9),), IDENTITY, time_spec(3, 2))
    with pytest.raises(DataError, match="fits into 0 episodes"):
        cut((), IDENTITY, time_spec())


def test_thinning_keeps_the_ends_and_repeats_no_window():
    windows = cut((episode(40),), IDENTITY, time_spec())
    thin = windows.thin(7)
    assert len(set(thin.starts)) == len(thin) == 7
    assert (thin.starts[0], thin.starts[-1]) == (windows.starts[0], windows.starts[-1])
    assert windows.thin(1000) is windows


# Shared frames and times


def test_random_windows_are_distinct_and_reproducible():
    windows = cut((episode(600),), IDENTITY, time_spec(3, 2), stride=3)
    windows = replace(windows, labels=np.random.default_rng(0).random((len(windows), 2)) < 0.5)
    for most in (1, 7, 60, len(windows) - 1):
        drawn = windows.draw(most)
        place = np.searchsorted(windows.starts, drawn.starts)
        assert np.array_equal(windows.starts[place], drawn.starts)
        assert len(drawn) == most and (np.diff(drawn.starts) > 0).all()
        assert np.array_equal(drawn.labels, windows.labels[place])
        assert np.array_equal(drawn.starts, windows.draw(most).starts)
    assert windows.draw(len(windows)) is windows
    hours = {len(set((w.starts * 1) % 24)) for w in (windows.draw(50), windows.thin(25))}
    assert max(hours) == 8  # every third hour: the draw meets all of them


def test_shared_frames_are_stored_once():
    windows = cut((episode(30),), IDENTITY, time_spec(past=6))
    assert len(windows.inputs(np.arange(4)).frames) == 6 + 3
    assert len(windows.inputs(np.array([0, 10])).frames) == 12
    assert len(windows.inputs(np.array([5, 5, 5])).frames) == 6


def test_regular_times_are_stored_once_and_irregular_ones_per_window():
    regular = cut((episode(20),), IDENTITY, time_spec(3, 2)).inputs(np.array([1, 5]))
    assert regular.lag.tolist() == [[-2, -1, 0]]
    assert regular.lead.tolist() == [[1, 2]]
    times = HOUR * np.array([0, 1, 2, 3, 5, 6, 7])
    uneven = cut((episode(7, times=times),), IDENTITY, time_spec(3, 2)).inputs(np.arange(3))
    assert uneven.lag.tolist() == [[-2, -1, 0], [-2, -1, 0], [-3, -2, 0]]
    assert uneven.lead.tolist() == [[1, 3], [2, 3], [1, 2]]


def test_calendar_features_are_those_of_each_time():
    start = int(np.datetime64("2024-03-01T22:00", "ns").astype(np.int64))
    field = episode(12, times=start + HOUR * np.arange(12))
    batch = cut((field,), IDENTITY, time_spec(3, 2)).inputs(np.array([0, 1]))
    assert batch.hour.tolist() == [0, 1]
    np.testing.assert_allclose(batch.issue_time[:, 1] * 24, [0, 1], atol=24e-6)
    np.testing.assert_allclose(batch.future_time[..., 1] * 24, [[1, 2], [2, 3]], atol=24e-6)
    np.testing.assert_allclose(batch.frame_time[batch.past][0, :, 1] * 24, [22, 23, 0], atol=24e-6)
    plain = cut((field,), IDENTITY, time_spec(calendar=False)).inputs(np.array([0, 1]))
    assert plain.frame_time.numel() == plain.future_time.numel() == plain.issue_time.numel() == 0
    moved = batch.to(torch.device("cpu"))
    assert torch.equal(moved.frames, batch.frames)
    assert moved.observed is None


# The order of training


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 6), st.integers(0, 99))
def test_an_epoch_has_each_window_at_most_once_in_runs(number, size, run, seed):
    windows = cut((episode(number + 4),), IDENTITY, time_spec())
    batches = windows.order(size, run, seed, epoch=3)
    seen = np.concatenate(batches)
    assert len(set(seen)) == len(seen)
    assert seen.min() >= 0 and seen.max() < number
    assert all(len(batch) == min(size, len(seen)) for batch in batches)
    assert len(batches) == windows.batches(size, run)  # as many in every epoch
    assert number - len(seen) < size + 2 * run  # left out: less than a batch, and the two ends
    again = cut((episode(number + 4, seed=1),), IDENTITY, time_spec()).order(
        size, run, seed, epoch=3
    )
    assert all(np.array_equal(one, other) for one, other in zip(batches, again, strict=True))
    whole = min(run, size) if number >= 2 * size else 1
    breaks = np.count_nonzero(np.diff(seen) != 1) + 1
    assert breaks <= -(-len(seen) // whole)  # whole runs of consecutive windows


def test_epochs_and_seeds_differ_and_all_windows_occur():
    windows = cut((episode(104),), IDENTITY, time_spec())
    orders = {
        (seed, epoch): np.concatenate(windows.order(8, 4, seed, epoch)).tolist()
        for seed in range(3)
        for epoch in range(20)
    }
    assert len({tuple(order) for order in orders.values()}) == len(orders)
    for seed in range(3):
        seen = set().union(*(orders[seed, epoch] for epoch in range(20)))
        assert seen == set(range(100))


# The split


def test_complete_episodes_are_held_out_of_many():
    episodes = tuple(episode(10, seed) for seed in range(20))
    parts = split(Dataset(episodes), time_spec(), SHARES)
    assert [len(parts[part]) for part in PARTS] == [14, 2, 4]
    assert sum((parts[part] for part in PARTS), ()) == episodes


@pytest.mark.parametrize("number", [1, 3])
def test_few_episodes_are_split_in_time_without_overlap(number):
    episodes = tuple(episode(100 + 7 * seed, seed) for seed in range(number))
    parts = split(Dataset(episodes), time_spec(), SHARES)
    for i, whole in enumerate(episodes):
        pieces = [parts[part][i] for part in PARTS]
        assert np.array_equal(np.concatenate([p.times for p in pieces]), whole.times)
        assert np.array_equal(
            np.concatenate([p.values for p in pieces]), whole.values, equal_nan=True
        )
        shares = [len(piece.times) / len(whole.times) for piece in pieces]
        np.testing.assert_allclose(shares, SHARES, atol=0.01)


def test_a_part_without_a_share_is_empty():
    parts = split(Dataset((episode(50),)), time_spec(), (0.8, 0.2, 0.0))
    assert parts["test"] == ()


@settings(max_examples=60)
@given(st.integers(1, 30), st.integers(1, 30))
def test_the_error_for_a_short_series_names_the_length_needed(past, horizon):
    need = int(np.ceil((past + horizon) / SHARES[1]))
    ours = time_spec(past, horizon)
    parts = split(Dataset((episode(need),)), ours, SHARES)
    assert all(len(cut(parts[part], IDENTITY, ours)) for part in PARTS)
    with pytest.raises(DataError, match=rf"its validation part .*Give at least {need} frames"):
        split(Dataset((episode(past + horizon),)), ours, SHARES)


def test_wrong_splits_are_refused():
    many = Dataset(tuple(episode(4, seed) for seed in range(12)))
    with pytest.raises(
        DataError, match=r"too short.*12 episodes, the longest of 4 .*at least 5 frames"
    ):
        split(many, time_spec(3, 2), SHARES)
    for shares in ((0.5, 0.5, 0.5), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)):
        with pytest.raises(DataError, match="must be parts of 1 with some training"):
            split(Dataset((episode(50),)), time_spec(), shares)
