"""NetCDF files of many producers are read; damaged ones are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.io.arrays import hdf5_safety
from stonet.io.read import read

ENGINES = [("h5netcdf", "NETCDF4"), ("scipy", "NETCDF3_CLASSIC"), ("scipy", "NETCDF3_64BIT")]


def field(calendar: bool = True) -> Field:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(5, 3, 1)).astype(np.float32)
    values[2, 1] = np.nan
    points = Points(generator.uniform(-50, 50, (3, 2)), "sphere", ("a", "b", "c"))
    return Field(values, 10**9 * np.arange(5), points, calendar=calendar)


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch):
    monkeypatch.setattr(hdf5_safety, "TIMEOUT", 3.0)


# Formats


def wfde5(year: int = 1979) -> xr.Dataset:
    """A file like those of WFDE5: half degrees, northwards, land only, 1e20 over the sea."""
    lat, lon = np.arange(-89.75, 90, 10.5), np.arange(-179.75, 180, 20.5)
    hours = np.arange(24)
    values = np.random.default_rng(year).uniform(230, 310, (24, len(lat), len(lon)))
    land = np.random.default_rng(0).random((len(lat), len(lon))) < 0.3
    dataset = xr.Dataset(
        {"Tair": (("time", "lat", "lon"), np.where(land, values, np.nan).astype(np.float32))},
        {
            "time": ("time", hours, {"units": f"hours since {year}-01-01", "axis": "T"}),
            "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": ("lon", lon, {"units": "degrees_east", "standard_name": "longitude"}),
        },
    )
    dataset.Tair.attrs = {"long_name": "Near-Surface Air Temperature", "units": "K"}
    dataset.Tair.encoding = {"_FillValue": np.float32(1e20), "zlib": True}
    return dataset


def test_wfde5_has_values_on_land_only(tmp_path):
    dataset = wfde5()
    dataset.to_netcdf(tmp_path / "Tair_WFDE5_CRU_197901_v2.1.nc", engine="h5netcdf")
    actual = read(tmp_path / "Tair_WFDE5_CRU_197901_v2.1.nc")
    land = ~np.isnan(dataset.Tair.values[0])
    assert len(actual.points) == land.sum()
    assert actual.observed.all()
    np.testing.assert_array_equal(actual.values[..., 0], dataset.Tair.values[:, land])
    assert actual.quantity == (("Tair", "K"),)
    assert actual.times[0] == np.datetime64("1979-01-01", "ns").astype(int)
    assert actual.step == 3600 * 10**9
    assert any("have no value" in note for note in actual.notes)


def test_a_level_and_region_of_weatherbench_are_selected(tmp_path):
    """5.625 degrees, longitudes from 0 to 354.375; r over 13 levels."""
    lat, lon = np.arange(-87.1875, 90, 5.625), np.arange(0, 360, 5.625)
    level = np.array([50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 850, 925, 1000])
    time = np.datetime64("2018-01-01", "ns") + np.arange(3) * np.timedelta64(1, "h")
    r = np.random.default_rng(0).uniform(0, 100, (3, 13, 32, 64)).astype(np.float32)
    dims = ("time", "level", "lat", "lon")
    dataset = xr.Dataset(
        {"r": (dims, r, {"units": "%"}), "t2m": (("time", "lat", "lon"), r[:, 0], {"units": "K"})},
        {"time": time, "level": ("level", level, {"units": "millibars"}), "lat": lat, "lon": lon},
    )
    dataset.to_netcdf(tmp_path / "2018.nc", engine="h5netcdf")
    actual = read(tmp_path / "2018.nc", variables="r_1000", bbox=(-10, 35, 30, 60))
    rows, columns = (lat >= 35) & (lat <= 60), (lon <= 30) | (lon >= 350)
    np.testing.assert_array_equal(
        actual.values[..., 0], r[:, 12][:, rows][:, :, columns].reshape(3, -1)
    )
    assert np.array_equal(np.unique(actual.points.coordinates[:, 1]), lon[columns])
    assert read(tmp_path / "2018.nc").channels == (*(f"r_{v}" for v in level), "t2m")


@pytest.mark.parametrize(("engine", "version"), ENGINES)
def test_classic_and_hdf5_files_agree(tmp_path, engine, version):
    dataset = wfde5()
    dataset.Tair.encoding = {"_FillValue": np.float32(1e20)}
    dataset.to_netcdf(tmp_path / "data.nc", engine=engine, format=version)
    actual, expected = read(tmp_path / "data.nc"), read(wfde5())
    np.testing.assert_array_equal(actual.values, expected.values)
    assert np.array_equal(actual.times, expected.times)
    assert actual.points == expected.points


def test_cdf5_files_are_refused(tmp_path):
    (tmp_path / "new.nc").write_bytes(b"CDF\x05" + bytes(100))
    with pytest.raises(DataError, match=r"new.nc' is NetCDF in the 64-bit data format.*nccopy -k"):
        read(tmp_path / "new.nc")


@pytest.mark.parametrize("suffix", [".nc", ".NC", ".nc4", ".cdf", ".h5", ".hdf5", ".data"])
@pytest.mark.parametrize("forecast", [True, False])
def test_written_files_are_read_back(tmp_path, suffix, forecast):
    expected = replace(field(), reference_time=-(10**9) if forecast else None)
    expected.to_netcdf(str(tmp_path / "own.nc"))
    path = (tmp_path / "own.nc").rename(tmp_path / f"own{suffix}")
    actual = read(path)
    for name in ("values", "mask", "times"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    assert (actual.points, actual.quantity) == (expected.points, expected.quantity)
    assert actual.reference_time == expected.reference_time


# Decoding


def test_packed_integers_and_fill_values_are_decoded(tmp_path):
    data = field().to_xarray()
    packed = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 0.5, "_FillValue": -9999}
    data.to_netcdf(tmp_path / "packed.nc", engine="h5netcdf", encoding={"u": packed})
    actual = read(tmp_path / "packed.nc")
    assert np.array_equal(actual.observed, field().observed)
    np.testing.assert_allclose(
        actual.values[actual.observed], field().values[actual.observed], atol=6e-4
    )


@pytest.mark.parametrize(
    "limits",
    [
        {"valid_range": np.array([0, 100], "int16")},
        {"valid_min": np.int16(0), "valid_max": np.int16(100)},
        {"valid_range": np.array([10.0, 20.0])},  # in the unpacked unit
    ],
)
def test_values_outside_the_valid_range_are_missing(tmp_path, limits):
    """Packed as 10 + 0.1 n: stored -1 and 101 lie outside, 0 and 100 inside."""
    dataset = field().to_xarray().isel(time=slice(0, 4), station=[0])
    stored = np.array([[-1], [0], [100], [101]], "int16")
    dataset["u"] = (("time", "station"), stored, {"scale_factor": 0.1, "add_offset": 10.0} | limits)
    dataset.to_netcdf(tmp_path / "limits.nc", engine="h5netcdf")
    for source in (tmp_path / "limits.nc", dataset):
        actual = read(source)
        assert np.array_equal(actual.observed.ravel(), [False, True, True, False])
        assert np.allclose(actual.values[1:3].ravel(), [10, 20])


def test_unusual_missing_values_and_epochs_cause_no_warning(tmp_path):
    dataset = field().to_xarray()
    values = dataset.u.fillna(-99.0).values.copy()
    values[0, 0] = -77.0
    attrs = {"_FillValue": np.float32(-99), "missing_value": np.float32(-77)}
    dataset["u"] = (("time", "station"), values.astype(np.float32), attrs)
    dataset["time"] = ("time", np.arange(5.0), {"units": "days since 1-1-1 0:0:0.0"})
    dataset["time"].attrs["units"] = "hours since 1900-1-1 0:0:0.0"
    dataset.to_netcdf(tmp_path / "odd.nc", engine="h5netcdf")
    actual = read(tmp_path / "odd.nc")
    assert np.count_nonzero(~actual.observed) == 2
    assert actual.times[1] == np.datetime64("1900-01-01T01", "ns").astype(int)


def test_elapsed_time_in_hours_is_decoded(tmp_path):
    data = field(calendar=False).to_xarray()
    data["time"] = ("time", np.arange(5), {"units": "hours"})
    data.to_netcdf(tmp_path / "hours.nc", engine="h5netcdf")
    actual = read(tmp_path / "hours.nc")
    assert np.array_equal(actual.times, np.arange(5) * 3600 * 10**9)
    assert not actual.calendar


@pytest.mark.parametrize("calendar", ["360_day", "noleap", "julian"])
def test_other_calendars_are_refused(tmp_path, calendar):
    data = field(calendar=False).to_xarray()
    units = {"units": "days since 2000-01-01", "calendar": calendar}
    data["time"] = ("time", np.array([29, 58, 59, 60, 61]), units)
    data.to_netcdf(tmp_path / "model.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=rf"model.nc'.*calendar '{calendar}'.*convert_calendar"):
        read(tmp_path / "model.nc")


def test_files_of_a_folder_are_merged_in_time(tmp_path):
    for year in (1981, 1979, 1980):
        wfde5(year).to_netcdf(tmp_path / f"Tair_{year}.nc", engine="h5netcdf")
    actual = read(tmp_path)
    single = [read(wfde5(year)) for year in (1979, 1980, 1981)]
    np.testing.assert_array_equal(actual.values, np.concatenate([f.values for f in single]))
    assert np.array_equal(actual.times, np.concatenate([f.times for f in single]))


# Damage


@pytest.mark.parametrize(
    "content", [b"", b"CDF\x01" + bytes(100), b"CDF\x02\xff", b"time,lat,lon\n1,2,3\n"]
)
def test_files_that_are_not_netcdf_are_refused(tmp_path, content):
    (tmp_path / "bad.nc").write_bytes(content)
    with pytest.raises(DataError, match=r"bad.nc'"):
        read(tmp_path / "bad.nc")


@pytest.mark.parametrize(("engine", "version"), ENGINES[:2])
def test_a_truncated_file_is_refused(tmp_path, engine, version):
    dataset = wfde5()
    dataset.Tair.encoding = {}
    dataset.to_netcdf(tmp_path / "good.nc", engine=engine, format=version)
    complete = (tmp_path / "good.nc").read_bytes()
    for share in (0.0005, 0.05, 0.3, 0.6, 0.9, 0.99):
        (tmp_path / "good.nc").write_bytes(complete[: int(share * len(complete))])
        with pytest.raises(DataError, match=r"good.nc' cannot be read"):
            read(tmp_path / "good.nc")


def check_mutant(folder, seed: int, count: int) -> None:
    if not (folder / "complete.nc").exists():
        field().to_netcdf(str(folder / "complete.nc"))
    content = bytearray((folder / "complete.nc").read_bytes())
    for place in np.random.default_rng(seed).integers(0, len(content), count):
        content[place] ^= 255
    (folder / "mutant.nc").write_bytes(content)
    try:
        assert isinstance(read(folder / "mutant.nc"), Field)
    except DataError as error:
        assert "mutant.nc" in str(error)


MUTATIONS = given(st.integers(0, 10**9), st.integers(1, 6))


@settings(max_examples=20)
@MUTATIONS
def test_changed_bytes_give_a_field_or_a_data_error(tmp_path_factory, seed, count):
    check_mutant(tmp_path_factory.getbasetemp(), seed, count)


@pytest.mark.long
@settings(max_examples=3000)
@MUTATIONS
def test_many_changed_bytes_give_a_field_or_a_data_error(tmp_path_factory, seed, count):
    check_mutant(tmp_path_factory.getbasetemp(), seed, count)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.where(False), "5 frames of u, and every value is missing"),
        (lambda d: d.drop_vars("lat"), "No coordinates among"),
        (lambda d: d.drop_vars("u"), "No numeric variable .* there are: none"),
        (lambda d: d.assign(u=d.u / 0.0), "values are infinite"),
        (lambda d: d.assign_coords(lat=d.lat + 200), "latitude must be in"),
    ],
)
def test_invalid_content_is_refused_by_name(tmp_path, change, message):
    change(field().to_xarray()).to_netcdf(tmp_path / "odd.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=rf"odd.nc'.*{message}"):
        read(tmp_path / "odd.nc")
