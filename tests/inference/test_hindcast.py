"""Hindcasts: every forecast is the one of its time, whoever writes it and however often stopped."""

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

from stonet.data.batch import Batch
from stonet.data.cf import outline
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError, UsageError
from stonet.inference import hindcast as module
from stonet.inference.forecast import forecast
from stonet.inference.hindcast import hindcast
from stonet.inference.session import Session
from stonet.io.read import read
from stonet.io.zarr_writer import ZarrWriter, check_unfinished
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
PAST, HORIZON = 6, 4


@pytest.fixture(scope="module")
def field() -> Field:
    """Hourly from midnight, with gaps, a silent stretch and a long jump in time."""
    whole = small_field("sphere", channels=2).between(0, 60)
    mask = np.random.default_rng(0).random(whole.values.shape) < 0.8
    mask[20:27] = False
    times = whole.times - whole.times[0] % (24 * HOUR)
    times[45:] += 27 * HOUR
    return replace(whole, mask=mask, times=times)


@pytest.fixture(scope="module")
def run() -> TrainedModel:
    return stirred_run()


def opened(path: Path) -> xr.Dataset:
    return xr.open_zarr(path, decode_timedelta=True, chunks=None).load()


@pytest.mark.parametrize("settings", [(), ("model=gcgru",)], ids=["stonet", "gcgru"])
def test_each_is_the_forecast_of_its_time(
    tmp_path: Path, field: Field, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stirred_run(*settings)
    monkeypatch.setattr(module, "CHUNK", 8 * HORIZON * 24)  # several pieces
    monkeypatch.setattr(module, "QUERIES", 60)  # several windows and queries at a time
    monkeypatch.setattr(module, "SEEN", 5 * 24)  # whose frames are encoded by the handful
    assert hindcast(run, field, tmp_path / "h.zarr") == (55, HORIZON, 24)
    file = opened(tmp_path / "h.zarr")
    issued = file.forecast_reference_time.values.astype("datetime64[ns]").astype(np.int64)
    np.testing.assert_array_equal(issued, field.times[PAST - 1 :])
    assert file.u0.dims == ("forecast_reference_time", "forecast_period", "station")
    for number in (0, 1, 7, 13, 18, 20, 21, 22, 39, 40, 42, 45, 46, 54):
        got = np.stack([file[name].values[number] for name in field.channels], axis=-1)
        so_far = field.between(0, number + PAST)
        if number in (20, 21):  # six frames without any value
            assert np.isnan(got).all()
            continue
        np.testing.assert_allclose(got, forecast(run, so_far).values, rtol=0, atol=1e-4)


def test_a_store_tells_what_it_is(tmp_path: Path, run: TrainedModel, field: Field) -> None:
    sites = small_points("sphere", 5, seed=7)
    shape = hindcast(run, field, tmp_path / "h.zarr", step=6 * HOUR, at=sites)
    file = opened(tmp_path / "h.zarr")
    hours = file.forecast_reference_time.dt.hour.values
    assert shape == (10, HORIZON, 5) and set(hours.tolist()) == {0, 6, 12, 18}
    np.testing.assert_array_equal(
        file.forecast_period.values.astype("timedelta64[h]").astype(int), [1, 2, 3, 4]
    )
    assert file.forecast_reference_time.attrs["standard_name"] == "forecast_reference_time"
    assert file.forecast_period.attrs["standard_name"] == "forecast_period"
    assert set(file.coords) == {*file.u0.dims, "lat", "lon"}
    assert file.attrs["Conventions"] == "CF-1.11" and "featureType" not in file.attrs
    assert file.u0.attrs["units"] == "K" and np.isnan(file.u0.encoding["_FillValue"])
    back = read(tmp_path / "h.zarr")  # forecasts that do not overlap are a field again
    assert len(back.times) == 10 * HORIZON and back.points.names == sites.names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h.zarr"]


def test_a_silent_beginning_is_missing(tmp_path: Path, run: TrainedModel, field: Field) -> None:
    mask = field.observed.copy()
    mask[: PAST + 1] = False
    late = replace(field.between(0, 14), mask=mask[:14])
    hindcast(run, late, tmp_path / "late.zarr")
    values = opened(tmp_path / "late.zarr").u0.values
    assert np.isnan(values[:2]).all() and np.isfinite(values[2:]).all()


def test_points_that_are_held_out_have_no_influence(
    tmp_path: Path, run: TrainedModel, field: Field
) -> None:
    seen, few = np.arange(2, 24), field.between(0, 12)
    hindcast(run, few, tmp_path / "seen.zarr", seen=seen)
    hindcast(run, few.take(seen), tmp_path / "taken.zarr")
    xr.testing.assert_identical(opened(tmp_path / "seen.zarr"), opened(tmp_path / "taken.zarr"))


def test_what_was_interrupted_goes_on(
    tmp_path: Path, run: TrainedModel, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 8 * HORIZON * 24)
    hindcast(run, field, tmp_path / "whole.zarr")
    write, written = ZarrWriter.write, []

    def stops(self: ZarrWriter, where: tuple[int, ...], values: np.ndarray) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(where)
        write(self, where, values)

    path = tmp_path / "h.zarr"
    monkeypatch.setattr(ZarrWriter, "write", stops)
    with pytest.raises(KeyboardInterrupt):
        hindcast(run, field, path)
    assert not path.exists()  # never half-written under its own name
    with pytest.raises(UsageError, match=r"h.zarr.part' exists: unfinished work. Continue it with --r"):
        hindcast(run, field, path)
    with pytest.raises(UsageError, match=r"is of another run, other data, points or times"):
        hindcast(run, field.between(1, 60), path, resume=True)
    warmer = replace(field, values=field.values + field.observed)
    with pytest.raises(UsageError, match=r"is of another run, other data, points or times"):
        hindcast(run, warmer, path, resume=True)
    later: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        ZarrWriter, "write", lambda self, where, v: later.append(where) or write(self, where, v)
    )
    hindcast(run, field, path, resume=True)
    assert not set(later) & set(written) and len(later) + len(written) == 7
    xr.testing.assert_identical(opened(path), opened(tmp_path / "whole.zarr"))


def test_what_cannot_be_done_is_refused(tmp_path: Path, run: TrainedModel, field: Field) -> None:
    with pytest.raises(UsageError, match=r"piece by piece. Give a name that ends in .zarr"):
        hindcast(run, field, tmp_path / "h.nc")
    with pytest.raises(DataError, match=r"have 5 frames; this model looks at 6 before each"):
        hindcast(run, field.between(0, 5), tmp_path / "h.zarr")
    with pytest.raises(DataError, match=r"No issue time has 6 frames before it"):
        hindcast(run, field.between(0, 8), tmp_path / "h.zarr", step=24 * HOUR)
    assert not list(tmp_path.iterdir())
    (tmp_path / "h.zarr.part").mkdir()
    with pytest.raises(UsageError, match=r"h.zarr.part' exists and was not created by stonet"):
        hindcast(run, field, tmp_path / "h.zarr", resume=True)


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


def test_two_processes_write_what_one_does(tmp_path: Path, run: TrainedModel, field: Field) -> None:
    """Issue times and queries are shared out; only the first process talks."""
    RunFolder(tmp_path / "run").publish(run.files({}))
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
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [t.get("issues") for t in told] == [55, None] and told[1]["points"] == 24
    back = read(tmp_path / "data.nc")
    hindcast(run, back, tmp_path / "one.zarr")
    one, two = opened(tmp_path / "one.zarr"), opened(tmp_path / "two.zarr")
    xr.testing.assert_allclose(one, two, rtol=0, atol=1e-4)
    xr.testing.assert_identical(one.coords.to_dataset(), two.coords.to_dataset())
    expected, got = forecast(run, back).to_xarray(), opened(tmp_path / "ahead.zarr")
    for name in (*field.channels, "nearest_observation", "support"):
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=1e-4)
    assert not [p.name for p in tmp_path.iterdir() if "part" in p.name or p.name.startswith(".")]


def test_few_places_of_many_sensors_are_asked_for_a_few_windows_at_a_time(
    tmp_path: Path, run: TrainedModel, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a decoder holds grows with the sensors, too."""
    decode, together = Session.decode, []

    def counted(self: Session, encoded: object, batch: Batch, queries: Points) -> torch.Tensor:
        together.append(len(batch.past))
        return decode(self, encoded, batch, queries)

    monkeypatch.setattr(module, "QUERIES", 48)
    monkeypatch.setattr(Session, "decode", counted)
    hindcast(run, field, tmp_path / "h.zarr", at=small_points("sphere", 1, seed=7))
    assert max(together) == 2 and sum(together) == 53


def test_a_failure_at_the_very_end_loses_nothing(
    tmp_path: Path, run: TrainedModel, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = tmp_path / "h.zarr", field.between(0, 20)
    hindcast(run, field.between(0, 12), path)
    before, move = opened(path), os.replace

    def fails(source: Path, target: Path) -> None:
        if Path(target) == path and Path(source).name == "store.zarr":
            raise OSError("the disk is gone")
        move(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        hindcast(run, few, path)
    xr.testing.assert_identical(opened(path), before)
    monkeypatch.setattr(os, "replace", move)
    monkeypatch.setattr(ZarrWriter, "write", None)  # there is nothing left to compute
    hindcast(run, few, path, resume=True)
    assert len(opened(path).forecast_reference_time) == 15
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h.zarr"]


def test_only_one_writes(tmp_path: Path, run: TrainedModel, field: Field) -> None:
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
