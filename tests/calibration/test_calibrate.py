"""A calibration: its coverage, no value from the future, one forecast for all ways to get it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stonet.calibration.conformal import Calibration
from stonet.calibration.fit import calibrate
from stonet.calibration.past_forecasts import MEMORY, PastForecasts, frames_needed, spacing
from stonet.calibration.samples import Collector
from stonet.calibration.stored import calibrate_run, load_calibration
from stonet.config import load_config
from stonet.data.durations import SECOND
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.evaluation.calibrated import calibrate_models
from stonet.evaluation.comparison import compare
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import evaluate
from stonet.inference.calibrated import calibrated_forecast, quantile_forecast
from stonet.inference.forecast import forecast
from stonet.inference.hindcast import hindcast
from stonet.inference.stream import Stream
from stonet.training.budget import Budget
from stonet.training.fit import fit_run
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

HOUR = 3600 * SECOND
START = 1_600_000_000 * SECOND // HOUR * HOUR
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def noisy_field(frames: int = 900, nodes: int = 40, seed: int = 0) -> Field:
    """An autoregression in time with a daily cycle, smooth in space, noisier at some points."""
    generator = np.random.default_rng(seed)
    unit = generator.uniform(0, 1, (nodes, 2))
    distance = np.linalg.norm(unit[:, None] - unit, axis=-1)
    root = np.linalg.cholesky(np.exp(-distance / 0.4) + 1e-6 * np.eye(nodes))
    state, values = np.zeros(nodes), np.empty((frames, nodes))
    for frame in range(frames):
        state = 0.9 * state + root @ generator.normal(size=nodes)
        values[frame] = state + 3 * np.sin(2 * np.pi * frame / 24)
    points = Points(unit * [8, 10] + [45, 5], "sphere")
    times = START + HOUR * np.arange(frames)
    return Field(values[..., None].astype(np.float32), times, points, ("t2m",), units=("K",))


@pytest.fixture(scope="module")
def task() -> Task:
    settings = ['model="linear"', "data.past=8", "data.horizon=4", "data.split=[0.5, 0.25, 0.25]"]
    config = load_config("tiny", settings=settings)
    unseen = tuple(range(0, 40, 5))
    return Task.of(Dataset((noisy_field(),), "noise", unseen), config)


@pytest.fixture(scope="module")
def trained(task: Task) -> TrainedModel:
    return fit_run(task, None, False, lambda progress: None)[0]


@pytest.fixture(scope="module")
def calibration(trained: TrainedModel, task: Task) -> Calibration:
    found = calibrate(trained, task)
    assert found is not None
    return found


def later_values_changed(field: Field, frame: int) -> Field:
    """The field with other values after a frame."""
    values = field.values.copy()
    values[frame + 1 :] = 1e3
    return replace(field, values=values, mask=None)


@pytest.mark.parametrize("points", ["seen", "unseen", "unseen-no-history"])
def test_intervals_cover_what_they_claim(
    trained: TrainedModel, task: Task, calibration: Calibration, points: str
):
    records = evaluate(
        trained, task, models={"linear": trained.model}, calibrations={"linear": calibration}
    )
    chosen = {"points": points, "channel": "t2m", "lead": "all"}
    assert find(records, metric="coverage_90", **chosen) == pytest.approx(0.9, abs=0.06)
    assert find(records, metric="coverage_50", **chosen) == pytest.approx(0.5, abs=0.12)
    assert find(records, metric="crps", **chosen) < find(records, metric="mae", **chosen)
    width = find(records, metric="width_90", **chosen)
    assert width < find(records, metric="interval_score_90", **chosen)


def test_every_model_is_calibrated_alike(
    trained: TrainedModel, task: Task, calibration: Calibration
):
    models = {"linear": trained.model, "again": trained.model}
    found = calibrate_models(models, trained, task, calibration)
    records = evaluate(trained, task, models=models, calibrations=found)
    one, other = ([r["value"] for r in records if r["model"] == name] for name in models)
    assert one == other


def test_no_later_value_enters(trained: TrainedModel, calibration: Calibration):
    """Neither into a forecast, nor into its correction, nor into its quantiles."""
    field, issue = noisy_field(), 860
    queries = Points(np.array([[48.0, 9.0]]), "sphere")
    for at in (None, queries):
        whole = hindcast_values(trained, calibration, field, issue, at)
        changed = later_values_changed(field, issue)
        np.testing.assert_array_equal(
            whole, hindcast_values(trained, calibration, changed, issue, at)
        )


def hindcast_values(
    trained: TrainedModel, calibration: Calibration, field: Field, issue: int, at: Points | None
) -> np.ndarray:
    """Quantiles at one issue time, where later frames are at hand."""
    from stonet.calibration.apply import Corrector, Request

    past = PastForecasts(trained.model, trained, field)
    times = field.times[issue] + trained.time_spec.step * np.arange(1, 5)[None]
    request = Request(np.array([issue]), field.points if at is None else at, times)
    values = np.zeros((1, 4, len(request.queries), 1))
    corrected, found = Corrector(calibration, past).apply(values, request, QUANTILES)
    gains = any(calibration.feedback.point) or any(calibration.feedback.region)
    assert corrected.any() == gains and found is not None
    return found


def test_earlier_forecasts_are_known_when_they_are_used(trained: TrainedModel):
    past = PastForecasts(trained.model, trained, noisy_field())
    time_spec, times = trained.time_spec, past.field.times
    issues = past.valid_issues()
    earlier = past.earlier(issues)
    last_target = times[earlier] + time_spec.horizon * time_spec.step
    assert (last_target <= times[issues][:, None])[earlier >= 0].all()
    assert (times[earlier] % (24 * HOUR) == times[issues][:, None] % (24 * HOUR))[
        earlier >= 0
    ].all()
    assert earlier.shape[1] == MEMORY and spacing(time_spec) == 24 * HOUR


def test_predict_hindcast_and_stream_agree(
    trained: TrainedModel, calibration: Calibration, tmp_path: Path
):
    import xarray as xr

    whole = noisy_field()
    field = whole.between(0, 890)
    expected = quantile_forecast(trained, calibration, field, QUANTILES)
    recent = field.between(890 - frames_needed(trained.time_spec), 890)
    same = quantile_forecast(trained, calibration, recent, QUANTILES)
    np.testing.assert_allclose(same.values, expected.values, atol=1e-4)

    arguments = dict(calibration=calibration, quantiles=QUANTILES)
    hindcast(trained, whole.between(0, 895), tmp_path / "h.zarr", step=HOUR, **arguments)
    with xr.open_zarr(tmp_path / "h.zarr") as stored:
        found = stored["t2m"].isel(forecast_reference_time=889 - 7).to_numpy()
        assert stored["t2m"].attrs["units"] == "K"
        np.testing.assert_allclose(stored["quantile"], QUANTILES)
    np.testing.assert_allclose(np.moveaxis(found, 1, 0), expected.values[..., 0], atol=1e-4)

    stream = Stream(trained, field.points, calibration)
    for frame in range(890 - frames_needed(trained.time_spec), 890):
        stream.observe(int(field.times[frame]), field.values[frame])
        if frame == 888:
            stream.quantiles(QUANTILES)  # whose errors are reused
    np.testing.assert_allclose(stream.quantiles(QUANTILES).values, expected.values, atol=1e-4)


def test_the_median_is_the_forecast_and_feedback_can_be_switched_off(
    trained: TrainedModel, calibration: Calibration
):
    field = noisy_field().between(0, 880)
    for feedback in (True, False):
        result = quantile_forecast(trained, calibration, field, QUANTILES, feedback=feedback)
        alone = calibrated_forecast(trained, calibration, field, feedback=feedback)
        np.testing.assert_allclose(result.at(0.5).values, alone.values, atol=1e-5)
        assert (np.diff(result.values, axis=0) > 0).all()
    np.testing.assert_array_equal(alone.values, forecast(trained, field).values)


def test_far_from_all_stations_there_is_no_interval(
    trained: TrainedModel, calibration: Calibration
):
    queries = Points(np.array([[49.0, 10.0], [-40.0, 100.0]]), "sphere")
    result = quantile_forecast(trained, calibration, noisy_field(), [0.05, 0.5, 0.95], queries)
    assert np.isfinite(result.values[:, :, 0]).all()
    assert np.isnan(result.values[[0, 2], :, 1]).all()
    assert np.isfinite(result.at(0.5).values).all()


def test_leads_between_the_trained_ones_have_intervals_between(
    trained: TrainedModel, calibration: Calibration
):
    times = ["+1h", "+90min", "+2h"]
    result = quantile_forecast(trained, calibration, noisy_field(), [0.05, 0.95], times=times)
    width = result.values[1] - result.values[0]
    assert (width[0] < width[2]).mean() > 0.9
    assert width[1].mean() == pytest.approx((width[0] + width[2]).mean() / 2, rel=0.15)


def test_points_without_history_are_hidden_from_the_inputs(trained: TrainedModel, task: Task):
    samples = Collector(trained.model, trained, task).collect()
    assert samples is not None and len(samples.without) >= 3
    assert not samples.history.distance.any()
    assert not {*task.dataset.unseen} & {*samples.history.target.tolist()}
    for part in samples.without:
        assert (part.distance > 0).all()
        assert not {*task.dataset.unseen} & {*part.target.tolist()}
    farthest = [part.distance.max() for part in samples.without]
    assert max(farthest) > farthest[0]  # thinner networks


def test_a_calibration_is_stored_in_the_run_folder(
    trained: TrainedModel, task: Task, calibration: Calibration, tmp_path: Path
):
    fit_run(task, tmp_path / "run", False, lambda progress: None)
    stored = calibrate_run(trained, task, tmp_path / "run")
    loaded = load_calibration(TrainedModel.load(tmp_path / "run"), tmp_path / "run")
    assert stored is not None and loaded is not None
    assert loaded.feedback == calibration.feedback
    np.testing.assert_array_equal(
        loaded.corrected.score_at(0.9), calibration.corrected.score_at(0.9)
    )


def test_quantiles_need_a_calibration(trained: TrainedModel):
    with pytest.raises(UsageError, match="calibration"):
        quantile_forecast(trained, None, noisy_field(), [0.05, 0.95])


def test_a_comparison_offers_feedback_to_every_model(task: Task):
    names = ["linear", "persistence"]
    arguments = task.dataset, task.config, names, Budget(epochs=0)
    plain, corrected = (compare(*arguments, feedback=feedback) for feedback in (False, True))
    for name in names:
        maes = [
            find(found.records, model=name, points="seen", metric="mae", lead="all")
            for found in (plain, corrected)
        ]
        assert maes[1] <= 1.02 * maes[0]
        coverage = find(
            corrected.records, model=name, points="seen", metric="coverage_90", lead="all"
        )
        assert coverage == pytest.approx(0.9, abs=0.08)
    assert {record["metric"] for record in plain.records} == {"mae", "rmse", "mape", "bias"}
