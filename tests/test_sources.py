"""Files in, Fields and Points out; whatever is wrong with a file, the message names it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.errors import DataError, UsageError
from stonet.field import Field
from stonet.geometry import Points
from stonet.sources import read
from stonet.sources.sites import parse_sites


def field(calendar: bool = True) -> Field:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(5, 3, 1)).astype(np.float32)
    values[2, 1] = np.nan
    points = Points(generator.uniform(-50, 50, (3, 2)), "sphere", ("a", "b", "c"))
    return Field(values, 10**9 * np.arange(5), points, calendar=calendar)


@pytest.fixture
def good(tmp_path):
    field().to_netcdf(str(tmp_path / "good.nc"))
    return tmp_path / "good.nc"


# Fields


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("suffix", [".nc", ".NC", ".nc4", ".h5"])
def test_a_file_gives_its_field(tmp_path, calendar, suffix):
    path = tmp_path / f"data{suffix}"
    field(calendar).to_netcdf(str(path))
    found, expected = read(str(path)), field(calendar)
    assert np.array_equal(found.values, expected.values)
    assert np.array_equal(found.observed, expected.observed)
    assert np.array_equal(found.times, expected.times)
    assert found.points == expected.points
    assert found.calendar is calendar


def test_packed_integers_and_fill_values_are_decoded(tmp_path):
    data = field().to_xarray()
    packed = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 0.5, "_FillValue": -9999}
    data.to_netcdf(tmp_path / "packed.nc", engine="h5netcdf", encoding={"u": packed})
    found = read(tmp_path / "packed.nc")
    assert np.array_equal(found.observed, field().observed)
    np.testing.assert_allclose(
        found.values[found.observed], field().values[found.observed], atol=6e-4
    )


def test_elapsed_time_in_words_is_decoded(tmp_path):
    data = field(calendar=False).to_xarray()
    data["time"] = ("time", np.arange(5), {"units": "hours"})
    data.to_netcdf(tmp_path / "hours.nc", engine="h5netcdf")
    found = read(tmp_path / "hours.nc")
    assert np.array_equal(found.times, np.arange(5) * 3600 * 10**9)
    assert not found.calendar


def test_wrong_paths_are_refused(tmp_path):
    (tmp_path / "table.xls").write_text("x")
    (tmp_path / "folder.nc").mkdir()
    with pytest.raises(UsageError, match=r"No file '.*nothing.nc'. Check the path"):
        read(tmp_path / "nothing.nc")
    with pytest.raises(
        DataError, match=r"table.xls' is of a kind that is not read \('.xls'\).*\.nc"
    ):
        read(tmp_path / "table.xls")
    with pytest.raises(DataError, match=r"folder.nc' is a folder"):
        read(tmp_path / "folder.nc")


@pytest.mark.parametrize("content", [b"", b"CDF\x01" + bytes(100), b"time,lat,lon\n1,2,3\n"])
def test_what_is_no_netcdf4_is_refused(tmp_path, content):
    (tmp_path / "bad.nc").write_bytes(content)
    with pytest.raises(DataError, match=r"bad.nc' cannot be read as NetCDF .*Is it whole"):
        read(tmp_path / "bad.nc")


def test_a_truncated_file_is_refused(good):
    whole = good.read_bytes()
    for share in (0.05, 0.3, 0.6, 0.9, 0.99):
        good.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(DataError, match=r"good.nc' cannot be read as NetCDF"):
            read(good)


def test_a_foreign_calendar_is_refused(tmp_path):
    data = field(calendar=False).to_xarray()
    units = {"units": "days since 2000-01-01", "calendar": "360_day"}
    data["time"] = ("time", np.array([29, 58, 59, 60, 61]), units)
    data.to_netcdf(tmp_path / "model.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"model.nc'.*(calendar|cftime)"):
        read(tmp_path / "model.nc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.where(False), "5 frames of u, and every value is missing"),
        (lambda d: d.drop_vars("lat"), "No coordinates among"),
        (lambda d: d.drop_vars("u"), "No variable of numbers .* there are: none"),
        (lambda d: d.isel(time=[0, 0, 1]), "Times must increase strictly"),
        (lambda d: d.assign(u=d.u / 0.0), "values are infinite"),
        (lambda d: d.assign_coords(lat=d.lat + 200), "latitude must be in"),
    ],
)
def test_wrong_contents_are_refused_with_the_path(tmp_path, change, message):
    change(field().to_xarray()).to_netcdf(tmp_path / "odd.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=rf"odd.nc'.*{message}"):
        read(tmp_path / "odd.nc")


# Sites


def test_sites_come_from_tables_and_pairs_in_their_order(tmp_path):
    table = tmp_path / "sites.csv"
    table.write_text("Name, Longitude ,latitude,height\nBern,7.44,46.95,540\n007,-0.1,51.5,11\n")
    sites = parse_sites(["46.52,6.63", str(table), " -33.9, 18.4"], "sphere")
    assert list(sites) == [
        ("46.52,6.63", 46.52, 6.63),
        ("Bern", 46.95, 7.44),
        ("007", 51.5, -0.1),
        (" -33.9, 18.4", -33.9, 18.4),
    ]


@settings(max_examples=50)
@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_pair_is_read_exactly(x, y):
    assert np.array_equal(parse_sites([f"{x!r},{y!r}"], "plane").coordinates, [[x, y]])


def test_names_are_optional(tmp_path):
    (tmp_path / "sites.csv").write_text("x,y\n1,2\n3,4.5\n")
    sites = parse_sites([str(tmp_path / "sites.csv")], "plane")
    assert list(sites) == [("0", 1.0, 2.0), ("1", 3.0, 4.5)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", r"has columns \['a', 'b'\]; expected 'lat' \(lat, latitude\)"),
        ("lat,lon\none,2\n", r"columns \['lat', 'lon'\] must hold numbers"),
        ("lat,lon\n1,\n", "1 of 1 points have no finite coordinates"),
        ("lat,lon\n", "at least one point"),
        ("lat,lon\n100,2\n", "seem to be swapped"),
        ("", "is no CSV table"),
        ("lat,lon\n1,2,3,4\n5,6\n7,8,9,1,2\n", "is no CSV table"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, content, message):
    (tmp_path / "sites.csv").write_text(content)
    with pytest.raises(DataError, match=rf"sites.csv'.*{message}"):
        parse_sites([str(tmp_path / "sites.csv")], "sphere")


@pytest.mark.parametrize("entry", ["Lausanne", "1", "1,2,3", "1;2", ""])
def test_wrong_pairs_are_refused(entry):
    with pytest.raises(
        UsageError, match=rf"'{entry}' is no place; write lat,lon, e.g. '46.52,6.63'"
    ):
        parse_sites([entry], "sphere")


def test_wrong_site_paths_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"No file '.*nothing.csv'. Check the path given to --at"):
        parse_sites([str(tmp_path / "nothing.csv")], "sphere")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is no CSV table"):
        parse_sites([str(tmp_path / "folder.csv")], "sphere")


def test_forecasts_can_be_read_again(tmp_path):
    forecast = replace(field(), reference_time=-(10**9))
    forecast.to_netcdf(str(tmp_path / "forecast.nc"))
    assert read(tmp_path / "forecast.nc").reference_time == -(10**9)
    with xr.open_dataset(tmp_path / "forecast.nc", decode_timedelta=True) as file:
        assert file.forecast_period.values[0] == np.timedelta64(1, "s")
