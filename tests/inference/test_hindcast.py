"""Hindcasts equal single forecasts, also if several processes share them or one is interrupted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from helpers.contracts import HOUR, small_field, small_points, stirred_run
from helpers.paths import ROOT

from stonet.calibration.bins import Bins
from stonet.calibration.conformal import LEVELS, Calibration, Intervals
from stonet.calibration.feedback import Feedback
from stonet.calibration.scale import MONTHS, PHASES, Scale
from stonet.data.batch import Batch
from stonet.data.cf import outline
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError, UsageError
from stonet.inference.forecast import forecast
from stonet.inference.hindcast import Limits, hindcast
from stonet.inference.session import Session
from stonet.io.read import read
from stonet.io.zarr_writer import ZarrWriter, check_unfinished
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
PAST, HORIZON = 6, 4
SMALL_CHUNKS = Limits(chunk_values=8 * HORIZON * 24)  # 8 forecasts at 24 points


@pytest.fixture(scope="module")
def field() -> Field:
    """Hourly from midnight, with gaps, seven empty frames and a long interruption."""
    whole = small_field("sphere", channels=2).between(0, 60)
    mask = np.random.default_rng(0).random(whole.values.shape) < 0.8
    mask[20:27] = False
    times = whole.times - whole.times[0] % (24 * HOUR)
    times[45:] += 27 * HOUR
    return replace(whole, mask=mask, times=times)


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return stirred_run()


def opened(path: Path) -> xr.Dataset:
    return xr.open_zarr(path, decode_timedelta=True, chunks=None).load()


@pytest.mark.parametrize("settings", [(), ("model=gcgru",)], ids=["stonet", "gcgru"])
def test_each_forecast_equals_that_of_the_field_up_to_its_issue_time(
    tmp_path: Path, field: Field, settings: tuple[str, ...]
) -> None:
    """With several chunks, groups of encoded windows and groups of decoded queries."""
    trained = stirred_run(*settings)
    limits = replace(SMALL_CHUNKS, encoded_sensors=5 * 24, decoded_queries=60)
    shape = hindcast(trained, field, tmp_path / "h.zarr", limits=limits)
    assert shape == (55, HORIZON, 24)
    file = opened(tmp_path / "h.zarr")
    issue_times = file.forecast_reference_time.values.astype("datetime64[ns]").astype(np.int64)
    np.testing.assert_array_equal(issue_times, field.times[PAST - 1 :])
    assert file.u0.dims == ("forecast_reference_time", "forecast_period", "station")
    for number in (0, 1, 7, 13, 18, 20, 21, 22, 39, 40, 42, 45, 46, 54):
        got = np.stack([file[name].values[number] for name in field.channels], axis=-1)
        so_far = field.between(0, number + PAST)
        if number in (20, 21):  # six frames without any value
            assert np.isnan(got).all()
            continue
        np.testing.assert_allclose(got, forecast(trained, so_far).values, rtol=0, atol=1e-4)


def test_a_store_follows_the_cf_conventions(
    tmp_path: Path, trained: TrainedModel, field: Field
) -> None:
    sites = small_points("sphere", 5, seed=7)
    shape = hindcast(trained, field, tmp_path / "h.zarr", step=6 * HOUR, at=sites)
    file = opened(tmp_path / "h.zarr")
    hours = file.forecast_reference_time.dt.hour.values
    assert shape == (10, HORIZON, 5) and set(hours.tolist()) == {0, 6, 12, 18}
    np.testing.assert_array_equal(
        file.forecast_period.values.astype("timedelta64[h]").astype(int), [1, 2, 3, 4]
    )
    assert file.forecast_reference_time.attrs["standard_name"] == "forecast_reference_time"
    assert file.forecast_period.attrs["standard_name"] == "forecast_period"
    assert set(file.coords) == {*file.u0.dims, "time", "lat", "lon"}
    assert file.attrs["Conventions"] == "CF-1.11" and "featureType" not in file.attrs
    assert file.u0.attrs["units"] == "K" and np.isnan(file.u0.encoding["_FillValue"])
    back = read(tmp_path / "h.zarr")  # forecasts that do not overlap are a field again
    assert len(back.times) == 10 * HORIZON and back.points.names == sites.names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h.zarr"]


def test_forecasts_without_any_observed_input_are_missing(
    tmp_path: Path, trained: TrainedModel, field: Field
) -> None:
    mask = field.observed.copy()
    mask[: PAST + 1] = False
    late = replace(field.between(0, 14), mask=mask[:14])
    hindcast(trained, late, tmp_path / "late.zarr")
    values = opened(tmp_path / "late.zarr").u0.values
    assert np.isnan(values[:2]).all() and np.isfinite(values[2:]).all()


def test_points_that_are_held_out_have_no_influence(
    tmp_path: Path, trained: TrainedModel, field: Field
) -> None:
    seen, few = np.arange(2, 24), field.between(0, 12)
    hindcast(trained, few, tmp_path / "seen.zarr", seen=seen)
    hindcast(trained, few.take(seen), tmp_path / "taken.zarr")
    xr.testing.assert_identical(opened(tmp_path / "seen.zarr"), opened(tmp_path / "taken.zarr"))


def test_a_resumed_hindcast_equals_an_uninterrupted_one(
    tmp_path: Path, trained: TrainedModel, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    hindcast(trained, field, tmp_path / "expected.zarr", limits=SMALL_CHUNKS)
    write, written = ZarrWriter.write, []

    def interrupted(self: ZarrWriter, where: tuple[int, ...], values: np.ndarray) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(where)
        write(self, where, values)

    path = tmp_path / "h.zarr"
    monkeypatch.setattr(ZarrWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hindcast(trained, field, path, limits=SMALL_CHUNKS)
    assert not path.exists()  # it appears when it is complete
    with pytest.raises(UsageError, match=r"h.zarr.part'.*--resume"):
        hindcast(trained, field, path, limits=SMALL_CHUNKS)
    with pytest.raises(UsageError, match=r"h.zarr.part' is of another"):
        hindcast(trained, field.between(1, 60), path, resume=True, limits=SMALL_CHUNKS)
    warmer = replace(field, values=field.values + field.observed)
    with pytest.raises(UsageError, match=r"h.zarr.part' is of another"):
        hindcast(trained, warmer, path, resume=True, limits=SMALL_CHUNKS)
    later: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        ZarrWriter, "write", lambda self, where, v: later.append(where) or write(self, where, v)
    )
    hindcast(trained, field, path, resume=True, limits=SMALL_CHUNKS)
    assert not set(later) & set(written) and len(later) + len(written) == 7
    xr.testing.assert_identical(opened(path), opened(tmp_path / "expected.zarr"))


def test_unsuitable_paths_and_short_series_are_refused(
    tmp_path: Path, trained: TrainedModel, field: Field
) -> None:
    with pytest.raises(UsageError, match=r"ends in .zarr"):
        hindcast(trained, field, tmp_path / "h.nc")
    with pytest.raises(DataError, match=r"have 5 frames; this model needs 6 before each"):
        hindcast(trained, field.between(0, 5), tmp_path / "h.zarr")
    with pytest.raises(DataError, match=r"No issue time has 6 frames before it"):
        hindcast(trained, field.between(0, 8), tmp_path / "h.zarr", step=24 * HOUR)
    with pytest.raises(UsageError, match=r"step is 0; expected a positive"):
        hindcast(trained, field, tmp_path / "h.zarr", step=0)
    assert not list(tmp_path.iterdir())
    (tmp_path / "h.zarr.part").mkdir()
    with pytest.raises(UsageError, match=r"h.zarr.part'"):
        hindcast(trained, field, tmp_path / "h.zarr", resume=True)


BOTH = """
import sys
from stonet.cli import main
for words in (["hindcast", "-o", "two.zarr"], ["predict", "-o", "ahead.zarr"]):
    sys.argv = ["stonet", *words, "run", "data.nc", "--json"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
"""


def test_two_processes_write_what_one_does(
    tmp_path: Path, trained: TrainedModel, field: Field
) -> None:
    """They share the issue times and queries; only the first process prints."""
    RunFolder(tmp_path / "run").publish(trained.files({}))
    field.to_netcdf(str(tmp_path / "data.nc"))
    (tmp_path / "both.py").write_text(BOTH)
    done = subprocess.run(
        [sys.executable, *TORCHRUN, "both.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [p.get("issues") for p in printed] == [55, None] and printed[1]["points"] == 24
    back = read(tmp_path / "data.nc")
    hindcast(trained, back, tmp_path / "one.zarr")
    one, two = opened(tmp_path / "one.zarr"), opened(tmp_path / "two.zarr")
    xr.testing.assert_allclose(one, two, rtol=0, atol=1e-4)
    xr.testing.assert_identical(one.coords.to_dataset(), two.coords.to_dataset())
    expected, got = forecast(trained, back).to_xarray(), opened(tmp_path / "ahead.zarr")
    for name in (*field.channels, "nearest_observation", "support"):
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=1e-4)
    assert not [p.name for p in tmp_path.iterdir() if "part" in p.name or p.name.startswith(".")]


def test_few_queries_of_many_sensors_are_decoded_in_groups_of_windows(
    tmp_path: Path, trained: TrainedModel, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decoder's memory grows with the number of sensors, too."""
    decode, together = Session.decode, []

    def counted(self: Session, encoded: object, batch: Batch, queries: Points) -> torch.Tensor:
        together.append(len(batch.past))
        return decode(self, encoded, batch, queries)

    monkeypatch.setattr(Session, "decode", counted)
    site = small_points("sphere", 1, seed=7)
    hindcast(trained, field, tmp_path / "h.zarr", at=site, limits=Limits(decoded_queries=48))
    assert max(together) == 2 and sum(together) == 53


def test_a_failure_of_the_last_rename_loses_nothing(
    tmp_path: Path, trained: TrainedModel, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = tmp_path / "h.zarr", field.between(0, 20)
    hindcast(trained, field.between(0, 12), path)
    before, move = opened(path), os.replace

    def fails(source: Path, target: Path) -> None:
        if Path(target) == path and Path(source).name == "store.zarr":
            raise OSError("the disk is gone")
        move(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        hindcast(trained, few, path)
    xr.testing.assert_identical(opened(path), before)
    monkeypatch.setattr(os, "replace", move)
    monkeypatch.setattr(ZarrWriter, "write", None)  # there is nothing left to compute
    hindcast(trained, few, path, resume=True)
    assert len(opened(path).forecast_reference_time) == 15
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h.zarr"]


def test_a_store_has_one_writer(tmp_path: Path, trained: TrainedModel, field: Field) -> None:
    archive, (outlined, variables) = ZarrWriter(tmp_path / "x.zarr", (6, 24)), outline(field)
    archive.begin(outlined, variables)
    other = ZarrWriter(tmp_path / "x.zarr", (6, 24))
    for resume in (None, True):
        with pytest.raises(ResourceError, match=r"Another process is writing '.*x.zarr'. Wait"):
            other.begin(outlined, variables, resume=resume)
    with pytest.raises(ResourceError, match=r"Another process is writing"):
        check_unfinished(tmp_path / "x.zarr")  # nobody is told to delete it
    archive.abandon()
    other.begin(outlined, variables)  # now it is free
    other.abandon()
    assert not list(tmp_path.iterdir())


def a_calibration() -> Calibration:
    """Intervals of constant width for the two channels of the field."""
    scale = Scale(np.ones((2, HORIZON, 2)), np.ones((2, PHASES, 2)), np.ones((MONTHS, 2)))
    quantiles = np.tile(LEVELS[:, None], (2, 1, 2))
    intervals = Intervals(scale, quantiles, (20.0, 20.0))
    return Calibration(Feedback.none(2), Bins((), (0.1,), (9,), 10.0), intervals, intervals)


@pytest.mark.parametrize("quantiles", [(), (0.05, 0.95)])
def test_forecasts_on_a_grid_are_written_as_a_grid(
    tmp_path: Path, field: Field, quantiles: tuple[float, ...]
) -> None:
    """The same numbers as at single places; time is the valid time."""
    trained = stirred_run()
    cells = [(lat, lon) for lat in (47.5, 47.0, 46.5) for lon in (7.0, 7.5, 8.0, 8.5)]
    grid, places = Points(np.array(cells), "sphere"), [f"place {n}" for n in range(12)]
    calibration = a_calibration() if quantiles else None
    found = []
    for name, queries in (("grid", grid), ("places", replace(grid, names=tuple(places)))):
        limits = Limits(chunk_values=5 * HORIZON * 4)  # chunks of some rows
        path = tmp_path / f"{name}.zarr"
        hindcast(
            trained, field, path, 6 * HOUR, queries, limits=limits,
            calibration=calibration, quantiles=quantiles,
        )  # fmt: skip
        found.append(opened(path))
    on_grid, at_places = found
    assert on_grid.u0.dims[-2:] == ("lat", "lon") and on_grid.lat.values.tolist() == [
        47.5,
        47,
        46.5,
    ]
    assert "station" not in on_grid.dims and "featureType" not in on_grid.attrs
    for name in field.channels:
        flat = on_grid[name].values.reshape(*on_grid[name].shape[:-2], 12)
        np.testing.assert_allclose(flat, at_places[name].values, rtol=0, atol=1e-5)
    valid = on_grid.forecast_reference_time + on_grid.forecast_period
    np.testing.assert_array_equal(on_grid.time.values, valid.values)
    assert on_grid.time.attrs["standard_name"] == "time"
