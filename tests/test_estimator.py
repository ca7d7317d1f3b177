"""STONet, the estimator: fit, predict and score."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.small import HOUR, QUICK, small_dataset, small_field
from rich.console import Console

import stonet
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.estimator import STONet
from stonet.evaluation.calibrated import calibrate_models
from stonet.evaluation.probabilistic import INTERVAL_METRICS
from stonet.evaluation.scoring import evaluate, reference_forecasts
from stonet.evaluation.task import scored_task
from stonet.io.write import write
from stonet.training import progress_bar
from stonet.training.run_folder import RunFolder


def estimator(**arguments: object) -> STONet:
    return STONet(**{"preset": "tiny", "settings": QUICK} | arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[STONet, Path]:
    folder = tmp_path_factory.mktemp("estimator") / "run"
    return estimator().fit(small_dataset(unseen=4), folder), folder


# Forecasts


def test_a_forecast_follows_the_last_time_at_any_point_and_time(
    fitted: tuple[STONet, Path],
) -> None:
    model, field = fitted[0], small_field(frames=60)
    ahead = model.predict(field)
    np.testing.assert_array_equal(ahead.times - field.times[-1], HOUR * np.arange(1, 5))
    assert ahead.points == field.points and ahead.reference_time == field.times[-1]
    site = Points(np.array([[0.5, 0.5]]), "plane", ("here",))
    between = model.predict(field, at=site, times=["+90min", "+2h"])
    assert (between.times - field.times[-1]).tolist() == [HOUR * 3 // 2, HOUR * 2]
    assert between.points.names == ("here",) and np.isfinite(between.values).all()


def test_times_may_be_leads_or_dates_of_many_types(fitted: tuple[STONet, Path]) -> None:
    model, field = fitted[0], small_field(frames=60)
    last = field.datetimes[-1]
    expected = model.predict(field, times=["+1h", "+2h"])
    for times in (
        pd.timedelta_range("1h", periods=2, freq="1h"),
        [timedelta(hours=1), pd.Timedelta("2h")],
        np.array([1, 2], "timedelta64[h]"),
        last + np.array([1, 2], "timedelta64[h]"),
        [pd.Timestamp(last) + pd.Timedelta("1h"), str(last + np.timedelta64(2, "h"))],
    ):
        np.testing.assert_array_equal(model.predict(field, times=times).values, expected.values)
    for single in (
        "+1h",
        timedelta(hours=1),
        np.timedelta64(1, "h"),
        last + np.timedelta64(1, "h"),
    ):
        found = model.predict(field, times=single)
        assert found.times.tolist() == [field.times[-1] + HOUR]
        np.testing.assert_allclose(found.values, expected.values[:1], atol=1e-5)


def test_query_points_may_be_points_a_table_a_file_or_pairs(
    fitted: tuple[STONet, Path], tmp_path: Path
) -> None:
    model, field = fitted[0], small_field(frames=60)
    table = pd.DataFrame({"station": ["a", "b"], "x": [0.5, 0.25], "y": [0.5, 0.75]})
    table.to_csv(tmp_path / "sites.csv", index=False)
    pairs = [(0.5, 0.5), (0.25, 0.75)]
    points = Points(np.array(pairs), "plane", ("a", "b"))
    expected = model.predict(field, at=points)
    for at in (table, tmp_path / "sites.csv", str(tmp_path / "sites.csv"), pairs, np.array(pairs)):
        np.testing.assert_array_equal(model.predict(field, at=at).values, expected.values)
    assert model.predict(field, at=table).points == points


# Training


def test_each_fit_starts_from_the_beginning(fitted: tuple[STONet, Path]) -> None:
    model, field = estimator(), small_field()
    forecasts = [model.fit(data).predict(field) for data in (field, small_dataset(4), field)]
    np.testing.assert_array_equal(forecasts[0].values, forecasts[2].values)
    assert not np.array_equal(forecasts[0].values, forecasts[1].values)
    np.testing.assert_array_equal(forecasts[1].values, fitted[0].predict(field).values)


def test_minutes_are_stored_with_the_model() -> None:
    model = estimator().fit(small_field(), minutes=0.01)
    assert model.trained.config.train.minutes == 0.01
    assert model.state is not None and 0 < model.state.begun <= model.state.spent


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_minutes_are_refused(minutes: float) -> None:
    with pytest.raises(UsageError, match="expected a number above 0"):
        estimator().fit(small_field(), minutes=minutes)


def test_a_horizon_may_be_a_duration() -> None:
    model = estimator(horizon="12h", past="8h").fit(small_field(frames=240))
    assert (model.trained.time_spec.horizon, model.trained.time_spec.past) == (12, 8)
    ahead = model.predict(small_field())
    assert len(ahead.times) == 12 and ahead.times[-1] - small_field().times[-1] == 12 * HOUR
    with pytest.raises(UsageError, match="whole number of"):
        estimator(horizon="90min").fit(small_field())


def test_a_folder_that_holds_a_run_is_not_overwritten(fitted: tuple[STONet, Path]) -> None:
    with pytest.raises(UsageError, match=r"holds a run already.*resume=True"):
        estimator().fit(small_dataset(4), fitted[1])
    resumed = estimator().fit(small_dataset(4), fitted[1], resume=True)
    field = small_field(frames=50)
    np.testing.assert_array_equal(resumed.predict(field).values, fitted[0].predict(field).values)


def test_files_are_read_as_for_training_but_of_any_time(tmp_path: Path) -> None:
    write(small_field(), tmp_path / "all.csv")
    settings = (*QUICK, "read.stop='2026-03-04'")
    model = estimator(settings=settings).fit(tmp_path / "all.csv")
    field = small_field()
    assert model.predict(tmp_path / "all.csv").reference_time == field.times[-1]
    assert model.score(tmp_path / "all.csv") == pytest.approx(
        model.score(field.between(0, 96)), abs=1e-6
    )
    both = two_channels(field)
    write(replace(both, channels=("t2m", "noise"), units=("degC", "1")), tmp_path / "more.csv")
    assert model.predict(tmp_path / "more.csv").channels == ("t2m",)


def test_an_estimator_without_training_is_refused() -> None:
    model = STONet()
    for act in (
        lambda: model.predict(small_field()),
        lambda: model.score(small_field()),
        lambda: model.save("nowhere"),
    ):
        with pytest.raises(
            UsageError, match=r"not trained yet\. Call fit\(data\), or STONet\.load"
        ):
            act()


def test_metrics_of_the_training_are_kept(fitted: tuple[STONet, Path]) -> None:
    metrics = json.loads(RunFolder(fitted[1]).read("metrics.json"))
    assert fitted[0].state is not None
    assert metrics["steps"] == fitted[0].state.step


# The progress bar


def bar(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> io.StringIO:
    """What a training shows; the console of the bar writes here."""
    text = io.StringIO()
    monkeypatch.setattr(
        progress_bar, "Console", lambda **options: Console(file=text, force_terminal=terminal)
    )
    return text


@pytest.mark.parametrize(
    ("progress", "terminal", "delay", "shown"),
    [
        (True, True, 99.0, True),
        (True, False, 99.0, True),
        (False, True, 0.0, False),
        (None, True, 0.0, True),
        (None, True, 99.0, False),
        (None, False, 0.0, False),
    ],
)
def test_the_bar_is_shown_on_request_or_in_a_terminal_after_a_delay(
    progress: bool | None,
    terminal: bool,
    delay: float,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = bar(monkeypatch, terminal)
    monkeypatch.setattr("stonet.estimator.DELAY", delay)
    seen: list[int] = []
    estimator().fit(small_field(), progress=progress, watch=lambda event: seen.append(event.step))
    assert ("training" in text.getvalue()) == shown
    assert ("6/6 steps" in text.getvalue()) == shown
    assert seen[-1] == 6
    assert shown or not text.getvalue()


# Scores


def test_the_score_is_the_skill_over_persistence_in_the_records(
    fitted: tuple[STONet, Path],
) -> None:
    model, data = fitted[0], small_dataset(unseen=4)
    records = model.records(data)
    chosen = records.query("points == 'seen' and channel == 't2m' and lead == 'all'")
    mae = chosen.query("metric == 'mae'").set_index("model").value
    assert model.score(data) == 1 - mae["stonet"] / mae["persistence"]
    assert model.score(data, part="validation") != model.score(data)
    assert set(records.points) == {"seen", "unseen", "unseen-no-history"}


def test_records_are_those_of_the_library_as_a_table(fitted: tuple[STONet, Path]) -> None:
    model, data = fitted[0], small_dataset(unseen=4)
    task = scored_task(model.trained, data)
    models = reference_forecasts(model.trained, task)
    calibrations = calibrate_models(models, model.trained, task, model._calibration)
    expected = evaluate(model.trained, task, models=models, calibrations=calibrations)
    found = model.records(data)
    assert list(found) == list(expected[0])
    assert found.drop(columns="value").to_dict("records") == [
        {key: value for key, value in record.items() if key != "value"} for record in expected
    ]
    values = [np.nan if record["value"] is None else record["value"] for record in expected]
    np.testing.assert_array_equal(found.value, values)


def test_the_score_table_is_the_same_for_estimator_model_and_folder(
    fitted: tuple[STONet, Path],
) -> None:
    model, data = fitted[0], small_dataset(unseen=4)
    table = stonet.evaluate(model, data)
    assert list(table) == ["mae", "rmse", "mape", "bias", "skill", *INTERVAL_METRICS]
    assert table.index.names == ["model", "points", "channel"]
    assert table.loc[("stonet", "seen", "t2m"), "skill"] == model.score(data)
    assert (table.loc["persistence", "skill"] == 0).all()
    for other in (fitted[1], str(fitted[1])):
        pd.testing.assert_frame_equal(stonet.evaluate(other, data), table)
    uncorrected = stonet.evaluate(model.trained, data)  # a model alone has no calibration
    assert uncorrected.index.equals(table.index)


def two_channels(field: Field) -> Field:
    noise = np.random.default_rng(1).normal(size=field.values.shape)
    return Field(
        np.concatenate([field.values, noise], axis=-1).astype(np.float32),
        field.times,
        field.points,
        ("wind", "noise"),
    )


def test_the_score_of_several_channels_is_over_all_of_them() -> None:
    data = two_channels(small_field())
    model = estimator().fit(data)
    table = stonet.evaluate(model, data)
    assert model.score(data) == table.loc[("stonet", "seen", "all"), "skill"]


def test_data_of_another_kind_cannot_be_scored(fitted: tuple[STONet, Path]) -> None:
    other = Dataset((two_channels(small_field()),))
    with pytest.raises(ValueError, match=r"The data hold \('wind', 'noise'\)"):
        fitted[0].score(other)
