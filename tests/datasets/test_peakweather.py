"""PeakWeather, from files written in the publisher's form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stonet.datasets import find, open_dataset, peakweather
from stonet.errors import DataError, UsageError

HOUR = 3600 * 10**9
STATIONS = {"ABO": (46.49, 7.56, 1321.0), "KLO": (47.48, 8.54, 426.0), "XRG": (46.5, 7.0, 500.0)}


def observations(year: int, hours: int = 6) -> pd.DataFrame:
    """Two weather stations and a rain gauge, every ten minutes."""
    rng = np.random.default_rng(year)
    times = pd.date_range(f"{year}-01-01", periods=6 * hours, freq="10min", tz="UTC",
                          name="datetime")  # fmt: skip
    pairs = [(s, p) for s in ("ABO", "KLO") for p, _ in peakweather.QUANTITIES.values()]
    columns = pd.MultiIndex.from_tuples([*pairs, ("XRG", "rre150z0")])
    table = pd.DataFrame(rng.uniform(0, 30, (len(times), len(columns))), times, columns)
    table.loc[times[7], ("KLO", "tre200s0")] = np.nan
    return table


@pytest.fixture
def years(tmp_path, monkeypatch) -> dict[int, pd.DataFrame]:
    monkeypatch.setenv("STONET_DATA", str(tmp_path))
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "peakweather"
    (folder / "observations").mkdir(parents=True)
    about = pd.DataFrame(
        {"latitude": [p[0] for p in STATIONS.values()],
         "longitude": [p[1] for p in STATIONS.values()],
         "station_height": [p[2] for p in STATIONS.values()],
         "station_type": ["meteo_station", "meteo_station", "rain_gauge"]},
        index=pd.Index(STATIONS, name="nat_abbr"),
    )  # fmt: skip
    about.to_parquet(folder / "stations.parquet")
    made = {year: observations(year) for year in (2020, 2021)}
    for year, table in made.items():
        table.to_parquet(folder / "observations" / f"{year}.parquet")
    return made


def test_ten_minutes_are_read_as_they_are(years):
    field = open_dataset(
        "peakweather", variables="temperature, precipitation", years=2020, every=None
    ).episodes[0]
    assert field.quantity == (("temperature", "degC"), ("precipitation", "mm"))
    assert field.points.names == tuple(STATIONS) and (np.diff(field.times) == HOUR // 6).all()
    for node, (name, (lat, lon, height)) in enumerate(STATIONS.items()):
        assert field.points.coordinates[node].tolist() == [lat, lon]
        assert field.sites["altitude"][node] == height
        for channel, code in enumerate(("tre200s0", "rre150z0")):
            if (name, code) in years[2020]:
                expected = years[2020][name, code].to_numpy(np.float32)
                np.testing.assert_array_equal(field.values[:, node, channel], expected)
            else:
                assert not field.observed[:, node, channel].any()
    assert "CC BY" in field.attrs["licence"]


def test_hourly_means_of_all_years_without_the_gauges(years):
    field = open_dataset("peakweather").episodes[0]
    assert field.points.names == ("ABO", "KLO") and field.channels == ("temperature",)
    assert np.unique(field.datetimes.astype("datetime64[Y]").astype(int) + 1970).tolist() == [
        2020, 2021,
    ]  # fmt: skip
    again = open_dataset("peakweather", years=[2021]).episodes[0]
    same = field.sel(time="2021")
    assert np.array_equal(same.values, again.values, equal_nan=True)


def test_components_are_those_of_speed_and_direction(years):
    field = open_dataset(
        "peakweather", variables=["eastward_wind", "northward_wind", "wind_speed"], every=None
    ).episodes[0]
    east, north, speed = np.moveaxis(field.values, 2, 0)
    assert np.hypot(east, north) == pytest.approx(speed, rel=1e-5)
    direction = years[2020]["ABO", "dkl010z0"].to_numpy()
    towards = np.rad2deg(np.arctan2(east[: len(direction), 0], north[: len(direction), 0]))
    assert (direction + 180 - towards + 180) % 360 - 180 == pytest.approx(0, abs=1e-3)


def test_what_is_missing_or_unknown_is_named(years, tmp_path):
    assert not find("peakweather").missing
    with pytest.raises(DataError, match=r"observations/2019.parquet"):
        open_dataset("peakweather", years=2019)
    with pytest.raises(UsageError, match="Did you mean 'humidity'"):
        open_dataset("peakweather", variables="humidty")
    with pytest.raises(UsageError, match="eastward_wind"):
        open_dataset("peakweather", variables="wind_direction")
    (tmp_path / "peakweather" / "stations.parquet").unlink()
    assert find("peakweather").missing
    with pytest.raises(DataError, match=r"huggingface.co"):
        open_dataset("peakweather")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-50]), "cannot be read"),
        (lambda path: pd.DataFrame({"a": [1.0]}).to_parquet(path), "one column of times"),
        (
            lambda path: pd.DataFrame({"t": pd.date_range("2020", periods=2)}).to_parquet(path),
            "no column of a station",
        ),
    ],
)
def test_a_file_of_another_layout_is_named(years, tmp_path, change, words):
    path: Path = tmp_path / "peakweather" / "observations" / "2020.parquet"
    change(path)
    with pytest.raises(DataError, match=words) as error:
        open_dataset("peakweather", years=2020)
    assert "2020.parquet" in str(error.value)
