"""Intervals in the estimator, on the command line and in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.shell import Shell

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.errors import DataError, UsageError
from stonet.estimator import STONet
from stonet.io.write import write
from stonet.models.contract import small_field

SETTINGS = ('model="linear"', "data.past=8", "data.horizon=4")
INTERVALS = (0.05, 0.25, 0.5, 0.75, 0.95)


@pytest.fixture(scope="module")
def data() -> Field:
    return small_field("sphere", frames=500)


@pytest.fixture(scope="module")
def fitted(data: Field, tmp_path_factory: pytest.TempPathFactory) -> tuple[STONet, Path]:
    folder = tmp_path_factory.mktemp("intervals") / "run"
    write(data, folder.parent / "data.nc")
    model = STONet(preset="tiny", settings=SETTINGS)
    return model.fit(folder.parent / "data.nc", folder), folder


def test_quantiles_of_the_estimator_survive_saving(fitted: tuple[STONet, Path], data: Field):
    model, folder = fitted
    result = model.predict(data, quantiles=INTERVALS)
    lower, upper = result.interval(90)
    assert (lower.values <= result.field.values).all() and (
        result.field.values <= upper.values
    ).all()
    model.save(folder.parent / "copy")
    for place in (folder, folder.parent / "copy"):
        again = STONet.load(place).predict(data, quantiles=INTERVALS)
        np.testing.assert_allclose(again.values, result.values, rtol=1e-6)


def test_the_xarray_form_follows_cf(fitted: tuple[STONet, Path], data: Field):
    result = fitted[0].predict(data, quantiles=INTERVALS)
    dataset = result.to_xarray()
    assert dataset["u0"].dims == ("quantile", "time", "station")
    assert dataset["u0"].attrs["units"] == "K"
    np.testing.assert_allclose(dataset["quantile"], INTERVALS)
    np.testing.assert_array_equal(dataset["u0"].sel(quantile=0.05), result.at(0.05).values[..., 0])
    table = result.to_dataframe()
    assert len(table) == len(INTERVALS) * result.field.values[..., 0].size


@pytest.mark.parametrize("suffix", [".nc", ".zarr", ".csv", ".csv.gz", ".parquet"])
def test_predict_writes_quantiles_in_every_format(
    fitted: tuple[STONet, Path], data: Field, stonet: Shell, suffix: str, tmp_path: Path
):
    out = tmp_path / f"forecast{suffix}"
    arguments = "predict", fitted[1], fitted[1].parent / "data.nc", "--intervals", "50,90"
    done = stonet(*arguments, "-o", out)
    assert done.code == 0, done.err
    expected = fitted[0].predict(data, quantiles=INTERVALS)
    if suffix in (".nc", ".zarr"):
        with xr.open_dataset(out, engine="zarr" if suffix == ".zarr" else "h5netcdf") as stored:
            np.testing.assert_allclose(stored["quantile"], INTERVALS)
            found = stored["u0"].transpose("quantile", "time", "station").to_numpy()
            assert stored["u0"].attrs["units"] == "K"
    else:
        table = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out)
        assert sorted(set(table["quantile"])) == list(INTERVALS)
        found = table["u0 (K)"].to_numpy().reshape(expected.values.shape[:3])
    np.testing.assert_allclose(found, expected.values[..., 0], rtol=1e-4)


def test_feedback_is_an_option(fitted: tuple[STONet, Path], stonet: Shell, tmp_path: Path):
    values = {}
    for name, words in (("with", []), ("without", ["--no-feedback"])):
        out = tmp_path / f"{name}.nc"
        source = fitted[1].parent / "data.nc"
        assert stonet("predict", fitted[1], source, *words, "-o", out).code == 0
        with xr.open_dataset(out) as stored:
            values[name] = stored["u0"].to_numpy()
    assert fitted[0]._calibration is not None
    feedback = fitted[0]._calibration.feedback
    corrected = any(feedback.point) or any(feedback.region)
    assert np.array_equal(values["with"], values["without"]) is not corrected


def test_hindcasts_hold_quantiles_and_evaluations_their_scores(
    fitted: tuple[STONet, Path], stonet: Shell, tmp_path: Path
):
    out, source = tmp_path / "h.zarr", fitted[1].parent / "data.nc"
    done = stonet("hindcast", fitted[1], source, "--step", "12h", "--intervals", "90", "-o", out)
    assert done.code == 0, done.err
    with xr.open_zarr(out) as stored:
        assert stored["u0"].dims == (
            "forecast_reference_time", "forecast_period", "quantile", "station"
        )  # fmt: skip
        assert (stored["u0"].diff("quantile").to_numpy() >= 0).all()
    result = stonet("evaluate", fitted[1], "--json")
    records = json.loads(result.out)["records"]
    for model in ("linear", "persistence"):
        covered = [
            r["value"]
            for r in records
            if (r["model"], r["metric"], r["lead"]) == (model, "coverage_90", "all")
        ]
        assert len(covered) == 1 and 0.6 < covered[0] <= 1


@pytest.mark.parametrize("text", ["", "ninety", "0", "100", "-5", "99.9"])
def test_impossible_intervals_are_refused(
    fitted: tuple[STONet, Path], stonet: Shell, text: str, tmp_path: Path
):
    source = fitted[1].parent / "data.nc"
    done = stonet("predict", fitted[1], source, "--intervals", text, "-o", tmp_path / "x.nc")
    assert done.code == 2 and not (tmp_path / "x.nc").exists()


def test_a_run_without_calibration_still_forecasts(fitted: tuple[STONet, Path], data: Field):
    model = STONet(preset="tiny", settings=SETTINGS)
    model._trained = fitted[0].trained
    np.testing.assert_array_equal(
        model.predict(data).values, fitted[0].predict(data, feedback=False).values
    )
    with pytest.raises(UsageError, match="calibration"):
        model.predict(data, quantiles=[0.5])


def test_quantiles_that_were_not_forecast_are_refused(fitted: tuple[STONet, Path], data: Field):
    result = fitted[0].predict(data, quantiles=[0.25, 0.75])
    with pytest.raises(UsageError, match=r"0\.05"):
        result.interval(90)
    with pytest.raises(DataError):
        QuantileField(result.field, (0.5,), result.values)


def test_places_without_a_station_have_intervals_too(fitted: tuple[STONet, Path], data: Field):
    middle = Points(data.points.coordinates.mean(0, keepdims=True), "sphere")
    result = fitted[0].predict(data, at=middle, quantiles=[0.05, 0.95])
    width = result.values[1] - result.values[0]
    assert np.isfinite(width).all() and (width > 0).all()
