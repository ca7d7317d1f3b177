"""Data as users have them: wide files, other names and units, other quantities, directions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.command_line import json_result
from helpers.shell import Shell

NAMES = [f"City {letter}" for letter in "ABCDEFGHIJ"]
TIMES = pd.date_range("2024-01-01", periods=160, freq="h")
FIT = ("--model", "persistence", "--preset", "tiny", "-o", "run")


def temperatures() -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(len(TIMES), len(NAMES)))
    return 10 + 5 * np.sin(2 * np.pi * np.arange(len(TIMES)) / 24)[:, None] + noise


def write_wide(path: str, values: np.ndarray) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    table = pd.DataFrame(values, TIMES, NAMES).rename_axis("time")
    table.to_csv(path)


@pytest.fixture
def wide(stonet: Shell) -> Shell:
    """A run fitted on a wide file with a table of stations beside it."""
    write_wide("data/temperature.csv", temperatures())
    places = {"station": NAMES, "lat": np.arange(10) / 10 + 46, "lon": np.arange(10) % 3 + 7.0}
    pd.DataFrame(places).to_csv("data/stations.csv", index=False)
    assert stonet("fit", "data/temperature.csv", *FIT).code == 0
    return stonet


def test_fresh_wide_files_need_no_table_of_stations(wide: Shell) -> None:
    write_wide("fresh/newest.csv", temperatures())
    assert json_result(wide, "predict", "run", "fresh/newest.csv", "-o", "f.csv")["points"] == 10
    made = pd.read_csv("f.csv")
    assert set(made["station"]) == set(NAMES)
    assert (made["support"] == "observed").all()


def test_another_quantity_or_unit_is_refused(wide: Shell) -> None:
    write_wide("fresh/humidity.csv", temperatures())
    message = wide.refused("predict", "run", "fresh/humidity.csv", "-o", "f.nc")
    assert "humidity" in message and "--rename humidity=temperature" in message
    renamed = ("--rename", "humidity=temperature")
    assert wide("predict", "run", "fresh/humidity.csv", *renamed, "-o", "f.nc").code == 0
    write_wide("fresh/kelvin.csv", temperatures() + 273.15)
    for words in (("predict", "-o", "f.nc"), ("hindcast", "-o", "h.zarr"), ("evaluate",)):
        command, *options = words
        assert "unit" in wide.refused(command, "run", "fresh/kelvin.csv", *options)


def test_a_faulty_station_is_named(wide: Shell) -> None:
    values = temperatures()
    values[-20:, 3] = 8000.0
    write_wide("fresh/fault.csv", values)
    result = wide("predict", "run", "fresh/fault.csv", "-o", "f.nc")
    assert result.code == 0 and "City D" in result.err
    with xr.open_dataset("f.nc") as file:
        assert float(file["temperature"].max()) < 30


def test_bounds_of_the_command_line_hold(wide: Shell) -> None:
    words = ("predict", "run", "data/temperature.csv", "-o", "f.nc")
    assert wide(*words, "--bounds", "temperature=9:11").code == 0
    with xr.open_dataset("f.nc") as file:
        assert 9 <= float(file["temperature"].min()) <= float(file["temperature"].max()) <= 11
    assert "NAME=LOW:HIGH" in wide.refused(*words, "--bounds", "temperature=9")
    assert "temperature" in wide.refused(*words, "--bounds", "t2m=0:")


def test_stations_by_name_grids_and_all_of_the_data(wide: Shell) -> None:
    data = "data/temperature.csv"
    assert wide("predict", "run", data, "--at", "city b", "-o", "f.csv").code == 0
    assert set(pd.read_csv("f.csv")["lat"]) == {46.1}
    beside = wide("predict", "run", data, "--at", "46.10003,8.0", "-o", "f.csv")
    assert "City B" in beside.err and set(pd.read_csv("f.csv")["lat"]) == {46.1}
    wide("predict", "run", data, "--at", "46.10003,8.0", "--no-snap", "-o", "f.csv")
    assert set(pd.read_csv("f.csv")["lat"]) == {46.10003}
    assert wide("predict", "run", data, "--grid", "0.5", "-o", "grid.nc").code == 0
    with xr.open_dataset("grid.nc") as file:
        assert file["temperature"].dims == ("time", "lat", "lon")
    words = ("evaluate", "run", data, "--json", "--part")
    assert wide(*words, "all").code == wide(*words, "test").code == 0


def test_columns_get_names_and_units(stonet: Shell) -> None:
    stations, size = np.arange(10), len(TIMES) * 10
    long = {
        "Datum": np.repeat(TIMES.astype(str), 10),
        "station": np.tile(NAMES, len(TIMES)),
        "lat": np.tile(46 + stations / 10, len(TIMES)),
        "lon": np.tile(7 + stations % 3, len(TIMES)),
        "T": temperatures().ravel(),
        "wind_direction": np.random.default_rng(0).uniform(0, 360, size),
    }
    pd.DataFrame(long).to_csv("long.csv", index=False)
    options = ("--rename", "Datum=time,T=temperature", "--units", "temperature=degC")
    message = stonet.refused("fit", "long.csv", *FIT, *options)
    assert "wind_direction" in message and "--variables temperature" in message
    lengths = ("--past", "5", "--horizon", "3h")
    chosen = ("--variables", "temperature")
    assert stonet("fit", "long.csv", *FIT, *options, *chosen, *lengths).code == 0
    assert json_result(stonet, "predict", "run", "long.csv", "-o", "f.nc")["times"] == 3
    with xr.open_dataset("f.nc") as file:
        assert file["temperature"].attrs["units"] == "degC"
    assert "Nothing" in stonet.refused("check", "long.csv", "--rename", "Nothing=x,Datum=time")


def test_speed_and_direction_are_forecast_as_components(stonet: Shell) -> None:
    rng, stations, size = np.random.default_rng(0), np.arange(10), len(TIMES) * 10
    long = {
        "time": np.repeat(TIMES.astype(str), 10),
        "station": np.tile(NAMES, len(TIMES)),
        "lat": np.tile(46 + stations / 10, len(TIMES)),
        "lon": np.tile(7 + stations % 3, len(TIMES)),
        "temperature": temperatures().ravel(),
        "wind_speed (m/s)": rng.gamma(2, 2, size),
        "wind_direction (degree)": rng.uniform(0, 360, size),
    }
    pd.DataFrame(long).to_csv("wind.csv", index=False)
    assert "--wind-components" in stonet.refused("fit", "wind.csv", *FIT)
    words = ("--wind-components", "wind_speed,wind_direction")
    assert stonet("fit", "wind.csv", *FIT, *words).code == 0
    assert stonet("predict", "run", "wind.csv", "-o", "f.nc").code == 0
    assert stonet("evaluate", "run", "--json").code == 0
    with xr.open_dataset("f.nc") as file:
        assert float(file["eastward_wind"].min()) < 0 < float(file["northward_wind"].max())
        assert file["eastward_wind"].attrs["standard_name"] == "eastward_wind"
        assert file["eastward_wind"].attrs["units"] == "m/s"
