"""From a file to a forecast at the shell: check, fit, predict, evaluate, compare, data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.command_line import answer, on_earth
from helpers.shell import Shell
from helpers.small import QUICK

from stonet.io.read import read
from stonet.io.write import write

SETTINGS = [word for setting in QUICK for word in ("--set", setting)]
FIT = ["--preset", "tiny", *SETTINGS]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.nc", "a.zarr"])
def test_from_any_file_to_any_forecast(name: str, stonet: Shell) -> None:
    """The same data in another format give the same forecast, in whatever format it is written."""
    write(on_earth(), name)
    write(on_earth(), "reference.nc")
    for source, run in ((name, "run"), ("reference.nc", "other")):
        answer(stonet, "fit", source, "-o", run, *FIT)
        answer(stonet, "predict", run, "-o", f"{run}.nc", "--at", "46.5,7.5")
    one, other = (xr.open_dataset(f"{run}.nc") for run in ("run", "other"))
    np.testing.assert_allclose(one["t2m"], other["t2m"], rtol=1e-5)
    answer(stonet, "predict", "run", "-o", f"out_{name}")
    answer(stonet, "predict", "run", "-o", "again.nc")
    ours, again = read(f"out_{name}", variables="t2m"), read("again.nc", variables="t2m")
    assert ours.points.names == again.points.names or set(ours.points.names) == set(
        again.points.names
    )
    np.testing.assert_allclose(np.sort(ours.values.ravel()), np.sort(again.values.ravel()))
    assert np.array_equal(ours.times, again.times)


def test_a_forecast_is_what_a_meteorologist_expects(stonet: Shell) -> None:
    field = on_earth()
    write(field, "a.nc")
    answer(stonet, "fit", "a.nc", "-o", "run", *FIT)
    answer(stonet, "predict", "run", "-o", "f.nc", "--at", "46.5,7.5", "--times", "+90min")
    with xr.open_dataset("f.nc") as found:
        last = field.times[-1].astype("datetime64[ns]")
        assert found["forecast_reference_time"].values == last
        assert found["time"].values == [last + np.timedelta64(90, "m")]
        assert found["forecast_period"].values == [np.timedelta64(90, "m")]
        assert found["t2m"].attrs["units"] == "degC" and found["t2m"].dims == ("time", "station")
        assert float(found["lat"][0]) == 46.5 and float(found["lon"][0]) == 7.5
        assert found["support"].attrs["flag_meanings"].split()[int(found["support"][0])]
        assert float(found["nearest_observation"][0]) > 0
    answer(stonet, "predict", "run", "-o", "f.csv", "--at", "46.5,7.5", "--times", "+90min")
    row = pd.read_csv("f.csv").iloc[0]
    assert pd.Timestamp(row["time"]) == pd.Timestamp(last, tz="UTC") + pd.Timedelta("90min")
    assert pd.to_timedelta(row["forecast_period"]) == pd.Timedelta("90min")


def test_a_run_remembers_how_its_data_were_read(stonet: Shell) -> None:
    both = on_earth(240)
    write(both, "long.nc")
    words = ["--from", "2026-03-02", "--to", "2026-03-07", "--bbox", "6,46,11,47.5"]
    answer(stonet, "fit", "long.nc", "-o", "run", *FIT, *words, "--unseen", "0.2")
    inside = both.points.coordinates[:, 0] <= 47.5
    known = json.loads(Path("run/points.json").read_text())
    assert len(known["names"]) == inside.sum() - round(0.2 * inside.sum())
    found = answer(stonet, "evaluate", "run")
    assert {r["points"] for r in found["records"]} == {"seen", "unseen", "unseen-no-history"}
    told = answer(stonet, "predict", "run", "-o", "a.nc")
    assert told["points"] == len(known["names"])
    with xr.open_dataset("a.nc") as own:
        assert str(own["forecast_reference_time"].values).startswith("2026-03-07T23:00")
    told = answer(stonet, "predict", "run", "long.nc", "-o", "b.nc")  # a new file: of any time,
    assert told["points"] == inside.sum()  # and whole
    with xr.open_dataset("b.nc") as new:
        assert new["forecast_reference_time"].values == both.times[-1].astype("datetime64[ns]")


def test_check_tells_the_doctors_findings(stonet: Shell) -> None:
    write(on_earth(400), "a.csv")
    report = answer(stonet, "check", "a.csv", "-o", "check.png")
    assert report["facts"]["points"] == 20 and Path("check.png").stat().st_size > 10_000
    told = stonet("check", "a.csv")
    assert told.code == 0 and "400 frames at 20 points" in told.out
    Path("bad.csv").write_text("station,time,lat,lon,u\na,2020-01-01,1,2,3\na,2020-01-01,1,2,4\n")
    told = stonet("check", "bad.csv")
    assert told.code == 2 and "given twice" in told.out


def test_named_data_sets(stonet: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STONET_DATA", str(tmp_path / "nothing"))
    listed = {row["name"]: row for row in answer(stonet, "data", "list")["datasets"]}
    assert listed["wave"]["ready"] and not listed["temperature"]["ready"]
    assert "WeatherBench" in answer(stonet, "data", "info", "wind")["source"]
    assert "https://mediatum.ub.tum.de" in stonet.refused("data", "fetch", "cloud")
    assert "Unknown data set 'waves'" in stonet.refused("data", "info", "waves")
    assert "mediatum" in stonet.refused("check", "temperature")


def test_real_files_through_all_verbs(stonet: Shell, data: Callable[[str], Path]) -> None:
    """Stations with gaps: observations of four quantities at 137 places."""
    source = data("noaa-daily/stations.csv.gz")
    words = ["--variables", "Tmax,TDP", "--to", "1990-06", "--points", "30"]
    answer(stonet, "fit", source, "-o", "run", *FIT, *words)
    records = answer(stonet, "evaluate", "run")["records"]
    assert {"stonet", "persistence", "climatology"} <= {r["model"] for r in records}
    answer(stonet, "predict", "run", "-o", "f.zarr", "--at", "39.3,-85")
    with xr.open_zarr("f.zarr") as found:
        assert str(found["forecast_reference_time"].values).startswith("1990-06-30")
        assert np.isfinite(found["Tmax"].values).all() and float(found["Tmax"].mean()) > 50


def test_compare_is_one_table_and_the_same_twice(stonet: Shell) -> None:
    write(on_earth(), "a.nc")
    words = [
        "compare",
        "a.nc",
        "--models",
        "references,gcgru,agcrn",
        "--epochs",
        "1",
        "--inductive",
    ]
    words += [*FIT, "--set", "train.steps=2"]
    once = answer(stonet, *words, "--seeds", "2")
    told = stonet(*words, "-o", "two")
    twice = json.loads(Path("two/compare.json").read_text())
    assert [r for r in once["records"] if r["seed"] == 0] == twice["records"]  # to the last bit
    assert once["skipped"].keys() == {"daily"}  # a past of 6 h holds no day
    table = {line["model"]: line for line in once["tables"]["seen"]}
    assert table.keys() == {"persistence", "climatology", "linear", "gcgru", "agcrn"}
    assert table["persistence"]["skill"] == 0 and table["persistence"]["parameters"] == 0
    assert all(line["seeds"] == 2 for line in table.values())
    unseen = {line["model"]: line["mae"] for line in once["tables"]["unseen"]}
    assert unseen["agcrn"] is None and unseen["gcgru"] > 0
    assert told.code == 0 and "gcgru" in told.out
    assert "agcrn has weights of its own" in told.err and "daily was left out" in told.err
    assert Path("two/compare.png").stat().st_size > 10_000


def test_a_budget_of_minutes_is_remembered(stonet: Shell) -> None:
    write(on_earth(), "a.nc")
    words = ["compare", "a.nc", "--models", "tgcn,persistence", "--budget", "0.02", *FIT]
    once, twice = (answer(stonet, *words) for _ in range(2))
    assert once["records"] == twice["records"] and once["budget"] == "0.02 min of wall time"
    assert once["rows"][0]["steps"] == twice["rows"][0]["steps"] > 0
    for wrong, told in (
        (["--models", "dcrn"], "Did you mean 'dcrnn'"),
        (["--budget", "1", "--epochs", "1"], "either"),
        (["--seeds", "0"], "at least 1"),
    ):
        assert told in stonet.refused("compare", "a.nc", *wrong)
