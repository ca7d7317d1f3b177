"""The reference forecasts: daily persistence and climatology, also with missing values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import HOUR, START, forecast, small_points, small_task

from stonet.config import load_config
from stonet.data.batch import Batch, make_batch
from stonet.data.durations import DAY
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows, cut
from stonet.errors import UsageError
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import evaluate
from stonet.models.baselines.climatology import Climatology
from stonet.models.baselines.persistence import Daily, persistence
from stonet.models.forecaster import Forecaster
from stonet.training.trained_model import TrainedModel

CONFIG = load_config()
POINTS = small_points("sphere", 9)
TIMES = TimeSpec(HOUR, past=24, horizon=30, calendar=True)


def batch_of(
    frames: np.ndarray,
    leads: list[float],
    time_spec: TimeSpec = TIMES,
    observed: np.ndarray | None = None,
) -> Batch:
    """One window (past, node, channel) with these leads in steps."""
    values = torch.from_numpy(frames)
    mask = torch.ones_like(values, dtype=torch.bool) if observed is None else torch.tensor(observed)
    times = START + time_spec.step * np.arange(len(frames))
    future = times[-1] + np.rint(time_spec.step * np.array(leads)).astype(np.int64)
    past = np.arange(len(frames))[None]
    return make_batch(lambda i: (values[i], mask[i]), times, past, future[None], time_spec)


def random_past(time_spec: TimeSpec = TIMES, nodes: int = len(POINTS)) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(time_spec.past, nodes, 2))


def daily(time_spec: TimeSpec = TIMES) -> Daily:
    return Daily(CONFIG, time_spec, 2, POINTS).double()


def forecast_at(
    model: Forecaster, batch: Batch, nodes: Points = POINTS, queries=None
) -> np.ndarray:
    return forecast(model, batch, nodes, queries)[0].numpy()


# Daily persistence.


@pytest.mark.parametrize("past", [24, 31])
def test_daily_persistence_repeats_the_newest_day(past: int) -> None:
    time_spec = replace(TIMES, past=past)
    frames, leads = random_past(time_spec), list(range(1, 55))
    expected = np.stack([frames[past - 24 :][(lead - 1) % 24] for lead in leads])
    np.testing.assert_array_equal(
        forecast_at(daily(time_spec), batch_of(frames, leads, time_spec)), expected
    )


@pytest.mark.parametrize("step", [HOUR, HOUR // 6, 7 * HOUR // 5])
def test_daily_persistence_has_the_time_of_day_of_any_lead(step: int) -> None:
    """Exact for values that rise linearly through the day."""
    time_spec = TimeSpec(step, past=-(-DAY // step) + 1, horizon=3, calendar=True)
    rising = np.arange(1.0 - time_spec.past, 1) * step / HOUR  # hours since the issue time
    frames = np.tile(rising[:, None, None], (1, len(POINTS), 2))
    hours = np.array([0.1, 1.0, 5.25, 23.9, 24.0, 24.7, 49.5])
    found = forecast_at(
        daily(time_spec), batch_of(frames, (hours * HOUR / step).tolist(), time_spec)
    )
    expected = hours - 24 * np.ceil(hours / 24 - 1e-9)
    np.testing.assert_allclose(found[:, 3, 0], expected, atol=1e-4)


def test_gaps_of_the_day_before_are_filled_in_time() -> None:
    frames, observed = random_past(), np.ones((24, 9, 2), bool)
    observed[5:7, 2, 0] = False
    found = forecast_at(daily(), batch_of(frames * observed, [5, 6, 7, 8], observed=observed))
    expected = frames[4:8].copy()
    expected[1:3, 2, 0] = frames[4, 2, 0] + np.array([1, 2]) / 3 * (
        frames[7, 2, 0] - frames[4, 2, 0]
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_point_without_history_is_forecast_from_its_neighbours() -> None:
    """As a query at the same place; a constant field is reproduced."""
    frames, observed = random_past(), np.ones((24, 9, 2), bool)
    frames[:, :, 1] = frames[:, :1, 1]
    observed[:, 4] = False
    leads = [1, 2.5, 24]
    found = forecast_at(daily(), batch_of(frames * observed, leads, observed=observed))
    np.testing.assert_allclose(found[:, 4, 1], found[:, 3, 1], atol=1e-6)
    others = np.delete(np.arange(9), 4)
    without = forecast_at(daily(), batch_of(frames[:, others], leads), POINTS.take(others), POINTS)
    np.testing.assert_allclose(found, without, atol=1e-6)
    last = persistence(CONFIG, TIMES, 2, POINTS).double()
    now = forecast_at(last, batch_of(frames * observed, [24], observed=observed))
    np.testing.assert_allclose(found[2:], now, atol=1e-12)  # a lead of a day repeats the present


@pytest.mark.parametrize(
    ("time_spec", "message"),
    [
        (replace(TIMES, past=23), r"data.past of at least a day, 24 steps; it is 23"),
        (replace(TIMES, step=HOUR // 6, past=24), r"at least a day, 144 steps; it is 24"),
        (replace(TIMES, calendar=False), r"needs dates and a step of at most 6 h"),
        (replace(TIMES, step=DAY), r"needs dates and a step of at most 6 h"),
    ],
)
def test_daily_persistence_needs_hours_and_a_day_of_inputs(
    time_spec: TimeSpec, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        daily(time_spec)


# Climatology.


def field_of(values: np.ndarray, step: int = HOUR, calendar: bool = True) -> Field:
    times = START * calendar + step * np.arange(len(values))
    names = tuple(f"u{i}" for i in range(values.shape[2]))
    return Field(values.astype(np.float32), times, POINTS, names, calendar=calendar)


def windows_of(field: Field, time_spec: TimeSpec = TIMES) -> Windows:
    scaler = Scaler.identity(len(field.channels))
    return cut((field,), scaler, replace(time_spec, calendar=field.calendar, step=field.step))


def fitted(windows: Windows, workspace: int | None = None) -> Climatology:
    first = windows.fields[0]
    model = Climatology(CONFIG, windows.time_spec, len(first.channels), first.points)
    model.workspace = workspace or model.workspace
    model.fit_closed_form(windows, windows, first.points)
    return model.double()


def gappy(frames: int = 200) -> np.ndarray:
    generator = np.random.default_rng(2)
    values = generator.normal(size=(frames, 9, 2)).astype(np.float32)
    values[generator.random(values.shape) < 0.3] = np.nan
    return values


def test_climatology_is_the_mean_of_the_hour_at_each_point() -> None:
    values = gappy()
    field = field_of(values)
    hour = (field.times // HOUR) % 24
    expected = np.stack([np.nanmean(values[hour == h].astype(np.float64), 0) for h in range(24)])
    model = fitted(windows_of(field))
    np.testing.assert_allclose(model.mean.numpy(), expected, atol=1e-12)
    leads = [1, 1.5, 8, 30]
    issue = (START + 23 * HOUR) // HOUR
    hours = [(issue + int(lead)) % 24 for lead in leads]
    np.testing.assert_allclose(
        forecast_at(model, batch_of(random_past(), leads)), expected[hours], atol=1e-12
    )
    by_frame = fitted(windows_of(field), workspace=1)  # one frame at a time
    torch.testing.assert_close(by_frame.mean, model.mean, rtol=0, atol=1e-12)


def test_climatology_without_hours_is_the_overall_mean() -> None:
    values = gappy()
    expected = np.nanmean(values.astype(np.float64), 0)
    for field in (field_of(values, calendar=False), field_of(values, DAY)):
        model = fitted(windows_of(field))
        batch = batch_of(random_past(), [1, 7.3], windows_of(field).time_spec)
        found = forecast_at(model, batch)
        np.testing.assert_allclose(found, np.stack([expected] * 2), atol=1e-12)


def test_hours_without_data_are_interpolated() -> None:
    """Linearly between six-hourly data, also across midnight."""
    values = np.tile(np.array([0.0, 6.0, 12.0, 6.0])[:, None, None], (40, 9, 2))
    model = fitted(windows_of(field_of(values, 6 * HOUR)))
    first = START // HOUR % 24
    hour = (np.arange(24) - first) % 24
    expected = np.minimum(hour, 24 - hour)
    np.testing.assert_allclose(model.mean[:, 3, 0].numpy(), expected, atol=1e-12)


def test_climatology_at_other_places_is_that_of_the_nearest_training_points() -> None:
    model = fitted(windows_of(field_of(gappy())))
    queries, batch = small_points("sphere", 5, seed=4).joined(POINTS), batch_of(random_past(), [3])
    found = forecast_at(model, batch, queries=queries)[0]
    at_nodes = forecast_at(model, batch)[0]
    np.testing.assert_array_equal(found[5:], at_nodes)
    for query in range(5):
        distance = np.linalg.norm(POINTS.embedded - queries.embedded[query], axis=1)
        near = np.argsort(distance)[:4]
        expected = np.average(at_nodes[near], axis=0, weights=distance[near] ** -2.0)
        np.testing.assert_allclose(found[query], expected, atol=1e-12)


def test_a_point_or_channel_without_data_has_the_climatology_of_others() -> None:
    values = gappy()
    values[:, 5, 0] = np.nan
    constant = fitted(windows_of(field_of(np.where(np.isnan(values), np.nan, 3.0))))
    np.testing.assert_allclose(constant.mean.numpy(), 3.0, atol=1e-12)
    values[:, :, 1] = np.nan
    mean = fitted(windows_of(field_of(values))).mean.numpy()
    assert np.isfinite(mean).all() and not mean[:, :, 1].any()
    low, high = np.delete(mean[..., 0], 5, 1).min(1), np.delete(mean[..., 0], 5, 1).max(1)
    assert (low < mean[:, 5, 0]).all() and (mean[:, 5, 0] < high).all()


def test_targets_that_are_not_labelled_have_no_influence() -> None:
    """Adjacent windows with one labelled target each."""
    time_spec = TimeSpec(HOUR, past=4, horizon=4, calendar=False)
    values = gappy(80)
    labels = np.zeros((10, 4), bool)
    labels[:, 1] = True
    kept = np.arange(80) % 8
    kept = (kept < 4) | (kept == 5)
    models = []
    for other in (0.0, 1e3):
        field = field_of(np.where(kept[:, None, None], values, other), calendar=False)
        windows = cut((field,), Scaler.identity(2), time_spec, stride=8)
        models.append(fitted(replace(windows, labels=labels)))
    expected = np.nanmean(values[kept].astype(np.float64), 0)
    for model in models:
        np.testing.assert_allclose(model.mean[0].numpy(), expected, atol=1e-12)


def test_daily_persistence_and_climatology_are_exact_for_a_daily_cycle() -> None:
    hours = np.arange(330)
    values = 5 * np.sin(2 * np.pi * hours / 24)[:, None, None] + np.arange(9)[:, None]
    task = small_task(field_of(values), "data.past=24", "model=linear")
    records = evaluate(TrainedModel.untrained(task), task)
    maes = {
        name: find(records, model=name, points="seen", channel="u0", lead="all", metric="mae")
        for name in ("persistence", "daily", "climatology")
    }
    assert maes["persistence"] > 1
    assert maes["daily"] < 1e-4 and maes["climatology"] < 1e-4
