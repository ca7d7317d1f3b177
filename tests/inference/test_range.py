"""No forecast leaves the range of its channel, and inputs of another quantity are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from helpers.contracts import fitted_model, perturbed_model, small_field, small_points, small_task

from stonet.data.field import Field
from stonet.errors import DataError
from stonet.evaluation.scoring import scored_batches
from stonet.inference.forecast import forecast, forecast_to_file
from stonet.inference.hindcast import hindcast
from stonet.inference.inputs import InputWarning, check_inputs
from stonet.inference.stream import Stream
from stonet.training.trained_model import TrainedModel


@pytest.fixture(scope="module")
def field() -> Field:
    return small_field("sphere", channels=2)


@pytest.fixture(scope="module")
def wild() -> TrainedModel:
    """A model whose output is a thousand times too large, and one declared end."""
    trained = perturbed_model().with_bounds({"u1": ":21.5"})
    scaler = replace(trained.scaler, std=tuple(1000 * std for std in trained.scaler.std))
    return replace(trained, scaler=scaler)


def within_range(trained: TrainedModel, values: np.ndarray) -> bool:
    """Whether all values lie in the range, and some on each end of each channel."""
    values = values.reshape(-1, len(trained.channels)).astype(np.float64)
    low, high = np.array(trained.scaler.low), np.array(trained.scaler.high)
    touched = np.isclose(values.max(0), high) | np.isclose(values.min(0), low)
    return bool((values >= low).all() and (values <= high).all() and touched.all())


def from_file(path: Path, trained: TrainedModel) -> np.ndarray:
    opener = xr.open_zarr if path.suffix == ".zarr" else xr.open_dataset
    with opener(path) as file:
        return np.stack([file[name].values for name in trained.channels], axis=-1)


@pytest.mark.filterwarnings("ignore::stonet.inference.inputs.InputWarning")
def test_no_forecast_of_any_path_leaves_the_range(tmp_path, wild, field) -> None:
    queries = small_points("sphere", 7)
    assert within_range(wild, forecast(wild, field).values)
    assert within_range(wild, forecast(wild, field, queries, ["+90min"]).values)
    for name in ("forecast.nc", "forecast.zarr"):
        forecast_to_file(wild, field, tmp_path / name)
        assert within_range(wild, from_file(tmp_path / name, wild))
    hindcast(wild, field.between(0, 40), tmp_path / "hindcast.zarr")
    assert within_range(wild, from_file(tmp_path / "hindcast.zarr", wild))
    stream = Stream(wild, field.points)
    for frame in range(8):
        stream.observe(int(field.times[frame]), field.values[frame])
    assert within_range(wild, stream.forecast().values)
    task = small_task(field)
    windows, truth = task.windows("test"), task.windows("test", raw=True)
    graphs = wild.model.graphs(wild.nodes)
    scored = [b.forecast.numpy() for b in scored_batches(wild.model, wild, graphs, windows, truth)]
    assert within_range(wild, np.concatenate(scored))


def test_the_range_is_kept_in_the_run_folder_and_named_by_its_card(tmp_path, field) -> None:
    trained = fitted_model(small_task(field, "data.bounds=u0=5:", "model=persistence"))
    files = trained.files({})
    assert json.loads(files["scaler.json"])["low"][0] == 5.0
    assert "forecasts stay within u0 5 to" in files["README.md"].decode()


@pytest.mark.parametrize("change", [lambda v: v + 273.15, lambda v: 1000 * v])
def test_data_of_another_unit_or_quantity_are_refused(tmp_path, field, change) -> None:
    trained = perturbed_model()
    other = replace(field, values=change(field.values).astype(np.float32))
    stream = Stream(trained, field.points)
    stream.observe(int(other.times[0]), other.values[0])
    for action in (
        lambda: forecast(trained, other),
        lambda: hindcast(trained, other, tmp_path / "h.zarr"),
        lambda: stream.forecast(),
    ):
        with pytest.raises(DataError, match="another unit"):
            action()
    with pytest.raises(DataError, match="trained in"):
        trained.check_compatible(replace(field, units=("degC", "K")))
    trained.check_compatible(replace(field, units=("", "kelvin")))  # unknown, and the same


def test_a_faulty_sensor_is_named_and_its_values_count_as_missing(tmp_path, field) -> None:
    trained = perturbed_model()
    values, mask = field.values.copy(), field.observed.copy()
    values[-40:, 3, 0], mask[-40:, 3, 0] = 8e4, False
    faulty, missing = replace(field, values=values), replace(field, mask=mask)
    with pytest.warns(InputWarning, match=r"count as missing, at 3\."):
        made = forecast(trained, faulty)
    np.testing.assert_array_equal(made.values, forecast(trained, missing).values)
    assert made.notes == check_inputs(trained, faulty.between(len(field.times) - 6, 120))
    paths = tmp_path / "faulty.zarr", tmp_path / "missing.zarr"
    for path, observed in zip(paths, (faulty, missing), strict=True):
        hindcast(trained, observed.between(70, 120), path)
    np.testing.assert_array_equal(*(from_file(path, trained) for path in paths))


def test_the_training_data_and_a_season_beyond_them_are_accepted(field) -> None:
    trained = perturbed_model()
    assert check_inputs(trained, field) == ()
    warmer = replace(field, values=field.values + np.float32(6))
    notes = check_inputs(trained, warmer)
    assert len(notes) == 2 and all("--bounds" in note for note in notes)
