"""STONet, the estimator: what it fits, forecasts and scores is what the library does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.small import HOUR, QUICK, small_dataset, small_field

import stonet
from stonet.config import load_config
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.splits import hold_out
from stonet.errors import UsageError
from stonet.estimator import STONet, as_points, held_out
from stonet.evaluation.metrics import find
from stonet.io.write import write
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel


def estimator(**arguments: object) -> STONet:
    return STONet(**{"preset": "tiny", "settings": QUICK} | arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[STONet, Path]:
    folder = tmp_path_factory.mktemp("estimator") / "run"
    return estimator().fit(small_dataset(unseen=4), folder), folder


def test_it_is_the_public_name() -> None:
    assert stonet.STONet is STONet


def test_a_forecast_follows_the_last_time_anywhere_and_at_any_time(
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


def test_each_fit_starts_anew(fitted: tuple[STONet, Path]) -> None:
    model, field = estimator(), small_field()
    forecasts = [model.fit(data).predict(field) for data in (field, small_dataset(4), field)]
    np.testing.assert_array_equal(forecasts[0].values, forecasts[2].values)
    assert not np.array_equal(forecasts[0].values, forecasts[1].values)
    np.testing.assert_array_equal(forecasts[1].values, fitted[0].predict(field).values)


def test_minutes_become_steps_once_and_then_the_same_ones_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runs = [estimator().fit(small_field(), minutes=0.03).run for _ in range(2)]
    assert runs[0].config == runs[1].config
    assert runs[0].config.train.steps is not None
    before, after = (run.model.state_dict() for run in runs)
    assert all(before[name].equal(after[name]) for name in before)


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_no_length_of_a_training_is_refused(minutes: float) -> None:
    with pytest.raises(UsageError, match="expected a number above 0"):
        estimator().fit(small_field(), minutes=minutes)


def test_the_score_is_the_skill_over_persistence_of_the_records(
    fitted: tuple[STONet, Path],
) -> None:
    model, data = fitted[0], small_dataset(unseen=4)
    records = model.records(data)
    chosen = {"points": "seen", "channel": "t2m", "lead": "all", "metric": "mae"}
    mae, reference = (find(records, model=m, **chosen) for m in ("stonet", "persistence"))
    assert model.score(data) == 1 - mae / reference
    assert model.score(data, part="validation") != model.score(data)
    groups = {record["points"] for record in records}
    assert groups == {"seen", "unseen", "unseen-no-history"}


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
    chosen = {"points": "seen", "channel": "all", "lead": "all", "metric": "mae"}
    mae, reference = (
        find(model.records(data), model=m, **chosen) for m in ("stonet", "persistence")
    )
    assert model.score(data) == 1 - mae / reference


def test_what_is_loaded_forecasts_and_scores_as_what_was_fitted(
    fitted: tuple[STONet, Path],
) -> None:
    model, loaded = fitted[0], STONet.load(fitted[1])
    field = small_field(frames=50)
    np.testing.assert_array_equal(loaded.predict(field).values, model.predict(field).values)
    assert loaded.score(small_dataset(4)) == model.score(small_dataset(4))
    assert loaded.get_params()["horizon"] == 4 and loaded.config == model.run.config


def test_a_horizon_may_be_a_duration() -> None:
    model = estimator(horizon="12h", past="8h").fit(small_field(frames=240))
    assert (model.run.time_spec.horizon, model.run.time_spec.past) == (12, 8)
    ahead = model.predict(small_field())
    assert len(ahead.times) == 12 and ahead.times[-1] - small_field().times[-1] == 12 * HOUR
    with pytest.raises(UsageError, match=r"no whole number of the data's steps"):
        estimator(horizon="90min").fit(small_field())


def test_parameters_are_the_constructors_and_make_the_same_estimator() -> None:
    given = {"horizon": 3, "past": 5, "preset": "tiny", "seed": 7, "settings": ("train.lr=1e-3",)}
    model = STONet(**given)
    assert model.get_params() == given
    assert STONet(**model.get_params()).config == model.config
    config = model.config
    assert (config.data.horizon, config.data.past, config.train.seed) == (3, 5, 7)
    assert config.train.lr == 1e-3


def test_a_seed_among_the_settings_counts_unless_another_is_given() -> None:
    assert STONet(settings=["train.seed=3"]).config.train.seed == 3
    assert STONet(settings=["train.seed=3"], seed=0).config.train.seed == 0


def test_wrong_parameters_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"Unknown preset 'tinny'.*Did you mean 'tiny'"):
        STONet(preset="tinny")
    with pytest.raises(UsageError, match=r"Did you mean 'lr'"):
        STONet(settings=["train.lrr=1"])


def test_what_was_never_fitted_says_so() -> None:
    model = STONet()
    for act in (lambda: model.predict(small_field()), lambda: model.score(small_field())):
        with pytest.raises(
            UsageError, match=r"not trained yet\. Call fit\(data\), or STONet\.load"
        ):
            act()


def test_a_folder_that_holds_a_run_is_not_overwritten(fitted: tuple[STONet, Path]) -> None:
    with pytest.raises(UsageError, match=r"holds a run already.*resume=True"):
        estimator().fit(small_dataset(4), fitted[1])
    resumed = estimator().fit(small_dataset(4), fitted[1], resume=True)
    field = small_field(frames=50)
    np.testing.assert_array_equal(resumed.predict(field).values, fitted[0].predict(field).values)


def test_other_data_cannot_be_scored(fitted: tuple[STONet, Path]) -> None:
    other = Dataset((two_channels(small_field()),))
    with pytest.raises(ValueError, match=r"The data hold \('wind', 'noise'\)"):
        fitted[0].score(other)


def test_unseen_is_what_training_never_saw_whoever_else_is_there() -> None:
    whole = Dataset((small_field(),), "small")
    run = TrainedModel.untrained(
        Task.of(whole, load_config("tiny", settings=("data.unseen=0.25",)))
    )
    never = set(held_out(run, whole).unseen)
    assert len(never) == 5 and len(run.nodes) == 15
    for lost in range(20):  # a station that reports no more
        left = np.setdiff1d(np.arange(20), lost)
        found = left[list(held_out(run, whole.take(left)).unseen)]
        assert set(found.tolist()) == never - {lost}
    elsewhere = Dataset((small_field(seed=1),), "other")  # it knows none of these points
    assert held_out(run, elsewhere).unseen == hold_out(elsewhere, 0.25).unseen


def test_files_are_read_for_a_run_as_for_training_but_of_any_time(tmp_path: Path) -> None:
    write(small_field(), tmp_path / "all.csv")
    settings = (*QUICK, "read.stop='2026-03-04'")
    model = estimator(settings=settings).fit(tmp_path / "all.csv")
    field = small_field()
    assert model.predict(tmp_path / "all.csv").reference_time == field.times[-1]
    cut = field.between(0, 96)
    assert model.score(tmp_path / "all.csv") == pytest.approx(model.score(cut), abs=1e-6)
    both = two_channels(field)
    write(replace(both, channels=("t2m", "noise"), units=("degC", "1")), tmp_path / "more.csv")
    assert model.predict(tmp_path / "more.csv").channels == ("t2m",)


def test_places_may_be_written_in_many_ways() -> None:
    expected = np.array([[46.5, 6.25], [1.0, 2.0]])
    for given in (expected, expected.tolist(), list(zip(*expected.T, strict=True))):
        found = as_points(given, "plane")
        assert found is not None
        np.testing.assert_array_equal(found.coordinates, expected)
    for lone in ((46.5, 6.25), expected[0], "46.5,6.25", ["46.5,6.25"]):
        found = as_points(lone, "plane")
        assert found is not None
        np.testing.assert_array_equal(found.coordinates, expected[:1])
    with pytest.raises(UsageError, match="is no place; give pairs"):
        as_points([(1.0, 2.0, 3.0)], "plane")
