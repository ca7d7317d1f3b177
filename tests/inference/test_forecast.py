"""Forecasts at any times and points, with missing values, in the data's units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import HOUR, fitted_run, small_field, small_points, small_task, stirred_run

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.inference.forecast import forecast, latest_frames
from stonet.inference.session import Session
from stonet.training.trained_model import TrainedModel


@pytest.fixture(scope="module")
def field() -> Field:
    """Hourly, on a sphere, two channels."""
    return small_field("sphere", channels=2)


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return stirred_run()


@pytest.fixture(scope="module")
def plain() -> tuple[TrainedModel, Field]:
    """Without a calendar, on a plane."""
    field = small_field("plane")
    return fitted_run(small_task(field, "model=linear")), field


def same(one: Field, other: Field, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(one.values, other.values, rtol=0, atol=tolerance)


def hidden(field: Field, mask: np.ndarray, value: float = 0.0) -> Field:
    """The field with values missing where the mask is False; `value` stands there."""
    return replace(field, values=np.where(mask, field.values, np.float32(value)), mask=mask)


def test_a_forecast_has_the_trained_leads_and_the_metadata_of_the_data(trained, field) -> None:
    made = forecast(trained, field)
    np.testing.assert_array_equal(made.times, field.times[-1] + HOUR * np.arange(1, 5))
    assert made.reference_time == field.times[-1]
    assert made.points == field.points and made.calendar
    assert (made.channels, made.units) == (field.channels, field.units)
    assert made.observed.all()


def test_a_forecast_is_the_model_output_in_the_data_s_units(trained, field) -> None:
    """Compared with windows, graphs, model and scaler, step by step."""
    task = small_task(field)
    windows = task.windows("test")
    batch, graphs = windows.inputs(np.array([0])), trained.model.graphs(trained.nodes)
    with torch.no_grad():
        by_hand = trained.scaler.denormalise(trained.model(batch, graphs).forecast[0].numpy())
    issue = int(np.flatnonzero(field.times == windows.times[trained.time_spec.past - 1])[0])
    np.testing.assert_allclose(
        forecast(trained, field.between(0, issue + 1)).values, by_hand, atol=1e-4
    )


def test_a_time_may_be_a_lead_a_date_or_nanoseconds(trained, field) -> None:
    later = int(field.times[-1]) + 3 * HOUR // 2
    date = np.datetime64(later, "ns")
    every = [
        forecast(trained, field, times=[t])
        for t in ("+1h30min", f"{date}Z", str(date), date, later)
    ]
    for made in every:
        assert made.times.tolist() == [later]
        np.testing.assert_array_equal(made.values, every[0].values)
    both = forecast(trained, field, times=["+1h30min", "+5h"])  # a little beyond the horizon, too
    same(both.between(0, 1), every[0])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["+1h", "+7h"], r"1 of 2 requested times are out of reach "
         r"\(first: 2020-09-18T18:00:00Z\).*after 2020-09-18T11:00:00Z .* 2020-09-18T16:00:00Z\."),
        (["2020-09-18T11:00"], r"1 of 1 requested times are out of reach"),
        ([], r"0 of 0 requested times"),
        (["+2h", "+1h"], r"Requested times must increase; sort them"),
        (["+1h", "+60min"], r"Requested times must increase; .*duplicates"),
        (["tomorrow"], r"'tomorrow' is not a date; write .* Or write a lead such as '\+1h30min'"),
        (["20200918"], r"1 of 1 requested times are out of reach \(first: 2020-09-18T00"),
        (["+soon"], r"'soon' is not a duration"),
    ],
)  # fmt: skip
def test_times_out_of_reach_or_unreadable_are_refused(trained, field, times, message) -> None:
    with pytest.raises(UsageError, match=message):
        forecast(trained, field, times=times)


def test_without_a_calendar_dates_are_refused(plain) -> None:
    trained, field = plain
    same(
        forecast(trained, field, times=["+1s", "+2.5s"]).between(0, 1),
        forecast(trained, field).between(0, 1),
    )
    with pytest.raises(UsageError, match=r"not a time of a field without a calendar; write a lead"):
        forecast(trained, field, times=["2020-01-01"])
    with pytest.raises(UsageError, match=r"after 119 s and up to 124 s"):
        forecast(trained, field, times=["+6s"])


def test_query_points_are_free_and_nodes_among_them_are_forecast_as_nodes(trained, field) -> None:
    sites = field.points.take(np.array([3, 11])).joined(small_points("sphere", 3, seed=7))
    made, every = forecast(trained, field, at=sites), forecast(trained, field)
    assert made.points == sites and np.isfinite(made.values).all()
    np.testing.assert_allclose(made.values[:, :2], every.values[:, [3, 11]], atol=1e-4)
    with pytest.raises(UsageError, match=r"query points lie on a plane; the data lie on a sphere"):
        forecast(trained, field, at=Points(np.zeros((1, 2))))


def test_queries_decoded_in_chunks_give_the_same_forecast(trained, field) -> None:
    sites = small_points("sphere", 18, seed=7)
    session = Session(trained, field.points, max_queries=7)
    same(forecast(trained, field, at=sites, session=session), forecast(trained, field, at=sites))


def test_a_session_saves_building_graphs_and_changes_nothing(trained, field, monkeypatch) -> None:
    session, expected = Session(trained, field.points), forecast(trained, field)
    forecast(trained, field, session=session)
    monkeypatch.setattr(trained.model, "node_graph", None)  # neither is built again
    monkeypatch.setattr(trained.model, "query_graph", None)
    again = forecast(trained, field, session=session)
    np.testing.assert_array_equal(again.values, expected.values)
    with pytest.raises(UsageError, match=r"session is of another model or of other points"):
        forecast(trained, field.take(np.arange(5)), session=session)


def test_new_points_with_history_join_the_graph(trained, field) -> None:
    new = replace(field.take(np.arange(3)), points=small_points("sphere", 3, seed=7))
    joined = field.joined(new)
    made = forecast(trained, joined)
    assert made.points == joined.points and np.isfinite(made.values).all()
    without = forecast(trained, field, at=joined.points)
    assert np.abs(made.values[:, 24:] - without.values[:, 24:]).max() > 0.1


def test_missing_values_have_no_influence(trained, field) -> None:
    mask = np.random.default_rng(0).random(field.values.shape) < 0.7
    mask[-6:, 2] = False  # a point without history
    made = forecast(trained, hidden(field, mask))
    assert np.isfinite(made.values).all()
    for value in (1e30, np.nan):
        np.testing.assert_array_equal(
            forecast(trained, hidden(field, mask, value)).values, made.values
        )


def test_frames_before_the_start_of_the_field_count_as_missing(trained, field) -> None:
    mask = np.ones(field.values.shape, bool)
    mask[:-3] = False
    short = field.between(len(field.times) - 3, len(field.times))
    same(forecast(trained, short), forecast(trained, hidden(field, mask)))
    single = field.between(len(field.times) - 1, len(field.times))
    assert np.isfinite(forecast(trained, single).values).all()


def test_frames_older_than_the_past_have_no_influence(trained, field) -> None:
    values = field.values.copy()
    values[:-6] = 1e3
    np.testing.assert_array_equal(
        forecast(trained, replace(field, values=values)).values, forecast(trained, field).values
    )
    times = field.times.copy()
    times[:-2] -= 100 * HOUR  # a long gap: frames before it are too old
    late = field.between(len(times) - 2, len(times))
    same(forecast(trained, replace(field, times=times)), forecast(trained, late))


def test_irregular_times_change_the_forecast_of_a_smooth_field_little(trained, field) -> None:
    """Times are shifted by up to 2 % of a step."""
    shift = np.random.default_rng(0).integers(-HOUR // 50, HOUR // 50, len(field.times))
    shift[-1] = 0
    moved = forecast(trained, replace(field, times=field.times + shift))
    error = np.abs(moved.values - forecast(trained, field).values).mean()
    assert 0 < error < 0.2 * field.values.std()


def test_data_of_another_kind_are_refused(trained, field, plain) -> None:
    def wrong(message: str, **changes: object) -> None:
        with pytest.raises(DataError, match=message):
            forecast(trained, replace(field, **changes))

    wrong(r"hold \('t', 'q'\); this model forecasts \('u0', 'u1'\).*rename", channels=("t", "q"))
    wrong(r"in \('K', 'C'\); this model was trained in \('K', 'K'\)\. Convert", units=("K", "C"))
    wrong(r"times are seconds from zero; this model was trained on dates", calendar=False)
    wrong(r"lie on a plane; this model was trained on a sphere", points=small_points("plane", 24))
    dense = field.times[-1] - (field.times[-1] - field.times) // 6
    wrong(r"a frame every 600 s; .* every 3600 s, .* Read them with --every 3600s", times=dense)
    lonlat = replace(plain[1], points=small_points("sphere", 24))
    with pytest.raises(DataError, match=r"lie on a sphere; this model was trained on a plane"):
        forecast(plain[0], lonlat)


@pytest.mark.parametrize("dense", [False, True], ids=["as trained", "twice as dense"])
def test_a_field_without_recent_values_is_refused(trained, field, dense: bool) -> None:
    mask = np.ones(field.values.shape, bool)
    mask[-6 if dense else -9 :] = False
    times = field.times[-1] - (field.times[-1] - field.times) // (2 if dense else 1)
    with pytest.raises(
        DataError, match=r"No value was observed in the last 6 steps before 2020-09"
    ):
        forecast(trained, replace(hidden(field, mask), times=times))


def test_a_change_of_units_of_the_data_changes_the_forecast_alike() -> None:
    celsius = small_field("plane")
    fahrenheit = replace(celsius, values=celsius.values * np.float32(1.8) + np.float32(32))
    here, there = (forecast(fitted_run(small_task(f)), f) for f in (celsius, fahrenheit))
    np.testing.assert_allclose(here.values * 1.8 + 32, there.values, atol=0.02)


def test_frames_a_nanosecond_apart_are_not_too_old(trained: TrainedModel) -> None:
    """As floating-point numbers of nanoseconds all of them would be the same time."""
    spec = replace(trained.time_spec, step=1)
    start = int(np.datetime64("2026-03-01", "ns").astype(np.int64))
    field = small_field("sphere", channels=2)
    field = replace(field, times=start + np.arange(len(field.times)))
    frames = latest_frames(replace(trained, time_spec=spec), field)
    np.testing.assert_array_equal(frames.times, field.times[-spec.past :])
