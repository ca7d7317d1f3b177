"""From file to forecast at the command line: check, fit, predict, evaluate, compare, data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.command_line import alpine_field, json_result
from helpers.shell import Shell
from helpers.small import QUICK

from stonet.io.read import read
from stonet.io.write import write

SETTINGS = [word for setting in QUICK for word in ("--set", setting)]
FIT = ["--preset", "tiny", *SETTINGS]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.nc", "a.zarr"])
def test_the_forecast_does_not_depend_on_the_format_of_data_and_output(
    name: str, stonet: Shell
) -> None:
    write(alpine_field(), name)
    write(alpine_field(), "reference.nc")
    for source, run in ((name, "run"), ("reference.nc", "other")):
        json_result(stonet, "fit", source, "-o", run, *FIT)
        json_result(stonet, "predict", run, "-o", f"{run}.nc", "--at", "46.5,7.5")
    one, other = (xr.open_dataset(f"{run}.nc") for run in ("run", "other"))
    np.testing.assert_allclose(one["t2m"], other["t2m"], rtol=1e-5)
    json_result(stonet, "predict", "run", "-o", f"out_{name}")
    json_result(stonet, "predict", "run", "-o", "again.nc")
    ours, again = read(f"out_{name}", variables="t2m"), read("again.nc", variables="t2m")
    assert ours.points.names == again.points.names or set(ours.points.names) == set(
        again.points.names
    )
    np.testing.assert_allclose(np.sort(ours.values.ravel()), np.sort(again.values.ravel()))
    assert np.array_equal(ours.times, again.times)


def test_forecast_files_hold_issue_time_period_units_and_support(stonet: Shell) -> None:
    field = alpine_field()
    write(field, "a.nc")
    json_result(stonet, "fit", "a.nc", "-o", "run", *FIT)
    json_result(stonet, "predict", "run", "-o", "f.nc", "--at", "46.5,7.5", "--times", "+90min")
    with xr.open_dataset("f.nc") as found:
        last = field.times[-1].astype("datetime64[ns]")
        assert found["forecast_reference_time"].values == last
        assert found["time"].values == [last + np.timedelta64(90, "m")]
        assert found["forecast_period"].values == [np.timedelta64(90, "m")]
        assert found["t2m"].attrs["units"] == "degC" and found["t2m"].dims == ("time", "station")
        assert float(found["lat"][0]) == 46.5 and float(found["lon"][0]) == 7.5
        assert found["support"].attrs["flag_meanings"].split()[int(found["support"][0])]
        assert float(found["nearest_observation"][0]) > 0
    json_result(stonet, "predict", "run", "-o", "f.csv", "--at", "46.5,7.5", "--times", "+90min")
    row = pd.read_csv("f.csv").iloc[0]
    assert pd.Timestamp(row["time"]) == pd.Timestamp(last, tz="UTC") + pd.Timedelta("90min")
    assert pd.to_timedelta(row["forecast_period"]) == pd.Timedelta("90min")


def test_a_run_reads_data_as_in_training(stonet: Shell) -> None:
    both = alpine_field(240)
    write(both, "long.nc")
    words = ["--from", "2026-03-02", "--to", "2026-03-07", "--bbox", "6,46,11,47.5"]
    json_result(stonet, "fit", "long.nc", "-o", "run", *FIT, *words, "--unseen", "0.2")
    inside = both.points.coordinates[:, 0] <= 47.5
    nodes = json.loads(Path("run/points.json").read_text())
    assert len(nodes["names"]) == inside.sum() - round(0.2 * inside.sum())
    found = json_result(stonet, "evaluate", "run")
    assert {r["points"] for r in found["records"]} == {"seen", "unseen", "unseen-no-history"}
    facts = json_result(stonet, "predict", "run", "-o", "a.nc")
    assert facts["points"] == len(nodes["names"])
    with xr.open_dataset("a.nc") as own:
        assert str(own["forecast_reference_time"].values).startswith("2026-03-07T23:00")
    facts = json_result(
        stonet, "predict", "run", "long.nc", "-o", "b.nc"
    )  # other data: of any time,
    assert facts["points"] == inside.sum()  # and all points
    with xr.open_dataset("b.nc") as new:
        assert new["forecast_reference_time"].values == both.times[-1].astype("datetime64[ns]")


def test_check_prints_findings_and_draws(stonet: Shell) -> None:
    write(alpine_field(400), "a.csv")
    report = json_result(stonet, "check", "a.csv", "-o", "check.png")
    assert report["facts"]["points"] == 20 and Path("check.png").stat().st_size > 10_000
    result = stonet("check", "a.csv")
    assert result.code == 0 and "400 frames at 20 points" in result.out
    Path("bad.csv").write_text("station,time,lat,lon,u\na,2020-01-01,1,2,3\na,2020-01-01,1,2,4\n")
    result = stonet("check", "bad.csv")
    assert result.code == 2 and "error" in result.out


def test_data_sets_are_listed_described_and_fetched_by_name(
    stonet: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STONET_DATA", str(tmp_path / "nothing"))
    listed = {row["name"]: row for row in json_result(stonet, "data", "list")["datasets"]}
    assert listed["wave"]["ready"] and not listed["temperature"]["ready"]
    assert "WeatherBench" in json_result(stonet, "data", "info", "wind")["source"]
    assert "https://mediatum.ub.tum.de" in stonet.refused("data", "fetch", "cloud")
    assert "'waves'" in stonet.refused("data", "info", "waves")
    assert "mediatum" in stonet.refused("check", "temperature")


def test_observed_data_with_gaps_pass_through_all_commands(
    stonet: Shell, data: Callable[[str], Path]
) -> None:
    """Observations of four variables at 137 stations."""
    source = data("noaa-daily/stations.csv.gz")
    words = ["--variables", "Tmax,TDP", "--to", "1990-06", "--points", "30"]
    json_result(stonet, "fit", source, "-o", "run", *FIT, *words)
    records = json_result(stonet, "evaluate", "run")["records"]
    assert {"stonet", "persistence", "climatology"} <= {r["model"] for r in records}
    json_result(stonet, "predict", "run", "-o", "f.zarr", "--at", "39.3,-85")
    with xr.open_zarr("f.zarr") as found:
        assert str(found["forecast_reference_time"].values).startswith("1990-06-30")
        assert np.isfinite(found["Tmax"].values).all() and float(found["Tmax"].mean()) > 50


def test_compare_is_reproducible_and_prints_one_table(stonet: Shell) -> None:
    write(alpine_field(), "a.nc")
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
    once = json_result(stonet, *words, "--seeds", "2")
    result = stonet(*words, "-o", "two")
    twice = json.loads(Path("two/compare.json").read_text())
    assert [r for r in once["records"] if r["seed"] == 0] == twice["records"]  # bit by bit
    assert once["skipped"].keys() == {"daily"}  # a past of 6 h holds no day
    table = {line["model"]: line for line in once["tables"]["seen"]}
    assert table.keys() == {"persistence", "climatology", "linear", "gcgru", "agcrn"}
    assert table["persistence"]["skill"] == 0 and table["persistence"]["parameters"] == 0
    assert all(line["seeds"] == 2 for line in table.values())
    unseen = {line["model"]: line["mae"] for line in once["tables"]["unseen"]}
    assert unseen["agcrn"] is None and unseen["gcgru"] > 0
    assert result.code == 0 and "gcgru" in result.out
    assert "agcrn has weights" in result.err and "daily was skipped" in result.err
    assert Path("two/compare.png").stat().st_size > 10_000


def test_a_budget_of_minutes_is_one_of_cpu_time(stonet: Shell) -> None:
    write(alpine_field(), "a.nc")
    words = ["compare", "a.nc", "--models", "tgcn,persistence", "--budget", "0.02", *FIT]
    result = json_result(stonet, *words)
    row = result["rows"][0]
    assert result["budget"] == "0.02 min of CPU time" and row["minutes"] == 0.02
    assert row["steps"] > 0 and 0.6 < row["cpu_seconds"] < 4.0
    for words, message in (
        (["--models", "dcrn"], "Did you mean 'dcrnn'"),
        (["--budget", "1", "--epochs", "1"], "epochs"),
        (["--seeds", "0"], "at least 1"),
    ):
        assert message in stonet.refused("compare", "a.nc", *words)
