"""Written files are read back by xarray, pandas and stonet; writing is atomic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.contracts import fitted_run, small_field, small_points, small_task
from helpers.forecast_files import HOUR, START, make_forecast, open_file, with_nan
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.cf import SUPPORT, to_xarray
from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.errors import ResourceError, UsageError
from stonet.graph.neighbours import radius_for_degree
from stonet.inference.forecast import forecast, support
from stonet.io import write
from stonet.io.read import read

SUFFIXES = (".nc", ".zarr", ".csv", ".csv.gz", ".parquet")


# NetCDF and Zarr


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_xarray_reads_a_cf_forecast_with_its_site_attributes(tmp_path, suffix, kind) -> None:
    field = make_forecast(kind)
    write.write(field, tmp_path / f"out{suffix}")
    file = open_file(tmp_path / f"out{suffix}")
    axes = {"lat", "lon"} if kind == "sphere" else {"x", "y"}
    times = {"time", "forecast_reference_time", "forecast_period"}
    assert set(file.coords) == axes | times | {"station", "altitude"}
    assert set(file.data_vars) == {"t2m", "wind", "nearest_observation", "support"}
    assert file.attrs["featureType"] == "timeSeries"
    assert file.station.values.tolist() == list(field.points.names)
    assert file.station.attrs["cf_role"] == "timeseries_id"
    for i, (name, unit) in enumerate(field.quantity):
        np.testing.assert_array_equal(file[name].values, with_nan(field)[..., i])
        assert file[name].dtype == np.float32
        assert np.isnan(file[name].encoding["_FillValue"])
        assert file[name].attrs["units"] == unit
        assert file[name].attrs["ancillary_variables"] == "nearest_observation support"
    np.testing.assert_array_equal(file.altitude, field.sites["altitude"])
    assert file.altitude.attrs["standard_name"] == "altitude"
    assert (file.altitude.attrs["units"], file.altitude.attrs["positive"]) == ("m", "up")
    assert file.nearest_observation.attrs.get("units") == ("km" if kind == "sphere" else None)
    assert file.support.dtype == np.int8 and file.support.values.tolist() == [0, 1, 1, 2]
    flags = np.asarray(file.support.attrs["flag_values"])
    assert flags.tolist() == [0, 1, 2]
    assert flags.dtype == np.int8 or suffix == ".zarr"  # whose notes are JSON
    assert file.support.attrs["flag_meanings"] == "observed interpolated extrapolated"
    assert "standard_name" not in file.support.attrs


@settings(max_examples=20)
@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=4, unique=True),
    st.sampled_from([1, 1_000, 10**6, 10**9, HOUR, 24 * HOUR]),
)
def test_dates_are_exact_to_the_nanosecond(tmp_path_factory, times, unit) -> None:
    """Whatever unit the file counts them in."""
    exact = np.unique(np.array(times) // unit * unit)
    field = make_forecast(times=exact, reference=False)
    path = tmp_path_factory.mktemp("exact") / "out.nc"
    write.write(replace(field, reference_time=int(exact[0]) - unit), path)
    file = open_file(path)
    np.testing.assert_array_equal(file.time.astype("datetime64[ns]").astype(np.int64), exact)
    lead = file.forecast_period.values.astype("timedelta64[ns]").astype(np.int64)
    np.testing.assert_array_equal(lead, exact - exact[0] + unit)
    assert file.time.encoding["dtype"] == np.int64


def test_times_are_counted_in_the_largest_unit_that_fits() -> None:
    def units(times) -> str:
        return to_xarray(make_forecast(times=np.array(times), reference=False)).time.encoding[
            "units"
        ]

    assert units([START, START + 24 * HOUR]) == "days since 1970-01-01"
    assert units([START, START + HOUR]) == "hours since 1970-01-01"
    assert units([START, START + HOUR // 4]) == "minutes since 1970-01-01"
    assert units([START + 1]) == "nanoseconds since 1970-01-01"


@pytest.mark.parametrize("first", [0, 2**55 + 1])
def test_times_without_a_calendar_are_seconds_or_exact_integers(
    first,
) -> None:
    times = first + np.arange(3) * 1_250_000
    time = to_xarray(make_forecast(calendar=False, times=times, reference=False)).time
    size = {"s": 10**9, "ns": 1}[time.attrs["units"]]
    exact = time.values if size == 1 else np.rint(time.values * size)
    np.testing.assert_array_equal(exact.astype(np.int64), times)
    assert (size == 1) == (first > 0)


def test_files_are_compressed(tmp_path) -> None:
    field = make_forecast(times=START + HOUR * np.arange(5000), reference=False)
    smooth = replace(field, values=np.zeros(field.values.shape, np.float32), mask=None)
    write.write(smooth, tmp_path / "small.nc")
    assert (tmp_path / "small.nc").stat().st_size < smooth.values.nbytes / 2


def test_a_site_attribute_named_like_a_channel_is_renamed() -> None:
    file = to_xarray(replace(make_forecast(), sites={"wind": np.arange(4.0)}))
    assert file.wind.dims == ("time", "station")
    np.testing.assert_array_equal(file.wind_of_station, np.arange(4.0))


# Tables


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_a_table_has_a_row_for_each_time_and_station(tmp_path, suffix, calendar, kind) -> None:
    field = make_forecast(kind, calendar)
    path = tmp_path / f"out{suffix}"
    write.WRITERS[suffix](field, path, 8)  # two frames at a time
    file = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
    axes = ["lat", "lon"] if kind == "sphere" else ["x", "y"]
    unit = "" if calendar else " (s)"
    distance = "nearest_observation" + " (km)" * (kind == "sphere")
    times = ("forecast_reference_time", "forecast_period")
    assert list(file) == [
        *("station", f"time{unit}", *axes, *(name + unit for name in times)),
        *("t2m (K)", "wind (m s-1)", "altitude (m)", distance, "support"),
    ]
    file.columns = [name.partition(" ")[0] for name in file]
    names = ["a", "Zürich, HB", "=1+1" if suffix == ".parquet" else "'=1+1", "-7"]
    assert file.station.tolist() == names * 3
    values = file[["t2m", "wind"]].to_numpy(np.float32).reshape(field.values.shape)
    np.testing.assert_array_equal(values, with_nan(field))  # every bit of the float32
    np.testing.assert_array_equal(file[axes], np.tile(field.points.coordinates, (3, 1)))
    assert file.support.tolist() == ["observed", "interpolated", "interpolated", "extrapolated"] * 3
    if calendar:
        times = pd.to_datetime(file.time, utc=True).dt.tz_localize(None)
        lead = pd.to_timedelta(file.forecast_period).to_numpy("m8[ns]").astype(np.int64)
        issued = pd.to_datetime(file.forecast_reference_time, utc=True).dt.tz_localize(None)
        np.testing.assert_array_equal(times.to_numpy("M8[ns]") - lead, issued.to_numpy("M8[ns]"))
    else:
        times, lead = file.time, file.forecast_period * 10**9
        assert (file.time - file.forecast_period == file.forecast_reference_time).all()
    exact = np.repeat(field.times.astype("M8[ns]") if calendar else field.times / 1e9, 4)
    np.testing.assert_array_equal(times, exact)
    np.testing.assert_array_equal(lead, np.repeat(HOUR * np.arange(1, 4), 4))


def test_a_csv_has_iso_times_and_empty_missing_cells(tmp_path) -> None:
    field = make_forecast(times=START + HOUR * np.arange(1, 3) // 2)
    write.write(field, tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[1].startswith("a,2020-01-01T00:30:00Z,")
    assert ",2019-12-31T23:30:00Z,P0DT1H0M0S," in lines[1]
    assert ",,,,1.25,interpolated" in lines[2]  # no value, no altitude: empty cells
    exact = replace(field, times=field.times + 5_000_000)
    write.write(exact, tmp_path / "out.csv")
    assert "a,2020-01-01T00:30:00.005Z," in (tmp_path / "out.csv").read_text()


def test_no_text_is_executed_by_a_spreadsheet(tmp_path) -> None:
    field = make_forecast()
    names = ("=cmd|' /C calc'!A0", "@SUM(1)", "+1 way", "-46.5")
    field = replace(
        field,
        points=Points(field.points.coordinates, "sphere", names),
        channels=("-t", "u"),
    )
    write.write(field, tmp_path / "out.csv")
    file = pd.read_csv(tmp_path / "out.csv", dtype=str)
    text = [*file.columns, *file.station]
    assert not [cell for cell in text if cell.startswith(("=", "+", "@")) or cell.startswith("-t")]
    assert "-46.5" in text  # a number stays a number
    np.testing.assert_array_equal(
        file["'-t (K)"].astype(np.float32), with_nan(field)[..., 0].ravel()
    )


def test_the_same_forecast_gives_the_same_bytes(tmp_path) -> None:
    for name in ("one.csv.gz", "other.csv.gz"):
        write.write(make_forecast(), tmp_path / name)
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "other.csv.gz").read_bytes()


# Atomic writing


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, suffix) -> None:
    path = tmp_path / f"out{suffix}"
    write.write(make_forecast(), path)
    before = {p: p.read_bytes() for p in [path, *path.rglob("*")] if p.is_file()}

    def no_space(*args, **options):
        raise OSError(28, "No space left on device")

    for owner, name in ((xr.Dataset, "to_netcdf"), (xr.Dataset, "to_zarr"), (write, "_blocks")):
        monkeypatch.setattr(owner, name, no_space)
    with pytest.raises(ResourceError, match="No space"):
        write.write(make_forecast(seed=1), path)
    assert {p: p.read_bytes() for p in [path, *path.rglob("*")] if p.is_file()} == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_later_write_replaces_the_earlier_one(tmp_path, suffix) -> None:
    path, fresh = tmp_path / f"out{suffix}", tmp_path / f"fresh{suffix}"
    write.write(make_forecast(times=START + HOUR * np.arange(9)), path)
    write.write(make_forecast(seed=1), path)
    write.write(make_forecast(seed=1), fresh)
    if suffix in (".nc", ".zarr"):
        assert open_file(path).identical(open_file(fresh))
    else:
        assert path.read_bytes() == fresh.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [fresh.name, path.name]


def test_paths_that_cannot_be_written_are_refused(tmp_path, monkeypatch) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            write.check_writable(tmp_path / name)

    refused(
        "out.xls", r"Cannot write '.*out.xls': names end in .nc, .zarr, .csv, .csv.gz, .parquet"
    )
    refused("out", "names end in")
    refused("out.nc.gz", "names end in")
    refused("nowhere/out.nc", r"No folder '.*nowhere' to write 'out.nc' into. Make it first")
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.tex").write_text("years of work")
    refused("mine.zarr", r"mine.zarr' exists and is not a .zarr that could be replaced")
    (tmp_path / "folder.nc").mkdir()
    refused("folder.nc", "exists and is not")
    monkeypatch.setattr(write, "find_spec", lambda name: None)
    refused("out.zarr", r"needs the library zarr: pip install 'stonet\[io\]'")
    refused("out.parquet", r"needs the library pyarrow: pip install 'stonet\[io\]'")
    write.check_writable(tmp_path / "OUT.CSV")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.nc", "mine.zarr"]


# Support of a forecast


def distance(one: np.ndarray, other: np.ndarray, kind: str) -> float:
    """The Euclidean distance, or the haversine formula."""
    if kind == "plane":
        return math.dist(one, other)
    (lat, lon), (lat2, lon2) = np.deg2rad(one), np.deg2rad(other)
    square = math.sin((lat2 - lat) / 2) ** 2
    square += math.cos(lat) * math.cos(lat2) * math.sin((lon2 - lon) / 2) ** 2
    return 2 * math.asin(math.sqrt(square))


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_support_equals_a_double_loop_over_queries_and_observed_points(kind) -> None:
    field = small_field(kind, channels=2, nodes=30)
    mask = field.observed.copy()
    mask[:, 4:9] = False  # never observed in this window
    mask[:, 9, 0] = mask[1:, 9, 1] = False  # a single value counts as observed
    window = replace(field, mask=mask)
    far = Points(np.array([[80.0, 170.0], [-60.0, -100.0]]), kind)
    queries = field.points.joined(small_points(kind, 40, seed=5)).joined(far)
    radius = radius_for_degree(field.points, field.points, 4.0)
    sites = support(window, queries, radius)
    observed = [n for n in range(30) if mask[:, n].any()]
    for q, place in enumerate(queries.coordinates):
        lengths = [distance(place, field.points.coordinates[n], kind) for n in observed]
        expected = 0 if min(lengths) <= 1e-9 else 1 if min(lengths) <= radius else 2
        scale = EARTH_RADIUS_KM if kind == "sphere" else 1.0
        assert sites["support"][q] == expected
        nearest = sites["nearest_observation"][q]
        np.testing.assert_allclose(nearest, min(lengths) * scale, rtol=1e-9, atol=1e-4)
    assert set(sites["support"]) == {0.0, 1.0, 2.0}
    assert (sites["support"][4:9] > 0).all() and sites["support"][9] == 0


def test_a_forecast_and_its_file_state_the_support(tmp_path) -> None:
    field = small_field("sphere")
    trained = fitted_run(small_task(field, "model=linear"))
    sites = field.points.take(np.array([2])).joined(Points(np.array([[-80.0, 10.0]]), "sphere"))
    result = forecast(trained, field, at=sites, times=["+1h"])
    assert result.sites["support"].tolist() == [0.0, 2.0]
    assert result.sites["nearest_observation"][0] == 0
    assert result.sites["nearest_observation"][1] > 10_000  # km from the Sahara to Antarctica
    mask = field.observed.copy()
    mask[-trained.time_spec.past :, 2] = False
    later = forecast(trained, replace(field, mask=mask), at=sites, times=["+1h"])
    assert later.sites["support"][0] == 1 and later.sites["nearest_observation"][0] > 0
    write.write(result, tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").support.tolist() == [SUPPORT[0], SUPPORT[2]]


# Read by stonet


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_written_files_are_read_by_stonet(tmp_path, suffix, calendar, kind) -> None:
    table = suffix not in (".nc", ".zarr")
    field = make_forecast(kind, calendar, times=None if calendar else 1_250_000 * np.arange(1, 4))
    names = ("a", "Zürich, HB", "c", "d")
    field = replace(field, points=Points(field.points.coordinates, kind, names))
    write.write(field, tmp_path / f"out{suffix}")
    back = read(tmp_path / f"out{suffix}", variables=field.channels)
    if table:  # whose stations are sorted by name
        field = field.take(np.argsort(names))
    np.testing.assert_array_equal(back.times, field.times)
    np.testing.assert_array_equal(with_nan(back), with_nan(field))
    assert back.points == field.points and back.calendar is calendar
    assert back.quantity == field.quantity
    np.testing.assert_array_equal(back.sites["altitude"], field.sites["altitude"])
    if not table:
        assert back.reference_time == field.reference_time
        assert set(back.sites) == set(field.sites)
        for name, row in field.sites.items():
            np.testing.assert_array_equal(back.sites[name], row)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_slash_in_a_name_is_replaced(suffix: str, tmp_path) -> None:
    field = replace(make_forecast(), channels=("wind m/s", "wind m_s"))
    write.write(field, tmp_path / f"f{suffix}")
    file = open_file(tmp_path / f"f{suffix}")
    names = {file[name].attrs["long_name"]: name for name in ("wind m_s_", "wind m_s")}
    for number, channel in enumerate(field.channels):
        expected = with_nan(field)[..., number]
        np.testing.assert_array_equal(file[names[channel]].values, expected)
