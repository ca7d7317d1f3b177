"""Field and Dataset: round trips through files and tables, immutability, refused input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import config as shape_checks

from stonet.data.field import Dataset, Field, time_label
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError
from stonet.io.read import read

HOUR = 3600 * 10**9
START = int(np.datetime64("2024-02-28T18:00", "ns").astype(np.int64))


def make(
    kind="sphere", calendar=True, seed=0, frames=6, nodes=5, channels=("t2m", "wind")
) -> Field:
    """A field with gaps, irregular times and names of many kinds."""
    generator = np.random.default_rng(seed)
    shape = (frames, nodes, len(channels))
    values = generator.normal(280, 10, shape).astype(np.float32)
    names = tuple(f"Zürich {i}" for i in range(nodes))
    mask = generator.random(shape) < 0.8
    mask[0] = True  # a point without any value is dropped on reading
    steps = np.cumsum(generator.integers(1, 10**4, frames)) * 10**6
    return Field(
        values,
        (START if calendar else 0) + steps,
        Points(generator.uniform(-85, 85, (nodes, 2)), kind, names),
        channels,
        mask=mask,
        units=("K", "m s-1")[: len(channels)],
        calendar=calendar,
        attrs={"title": "made for a test"},
        sites={"altitude": generator.uniform(0, 4000, nodes), "support": np.arange(nodes) % 3.0},
    )


def assert_same(one: Field, other: Field) -> None:
    for name in ("values", "mask", "times"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs, name)
    assert one.points == other.points
    for name in ("channels", "units", "calendar", "reference_time", "attrs"):
        assert getattr(one, name) == getattr(other, name)
    assert one.sites.keys() == other.sites.keys()
    for name, row in one.sites.items():
        assert np.array_equal(row, other.sites[name]), name


# There and back


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("forecast", [True, False])
def test_netcdf_round_trip(kind, calendar, forecast, tmp_path):
    field = make(kind, calendar)
    if forecast:
        field = replace(field, reference_time=int(field.times[0]) - HOUR)
    field.to_netcdf(str(tmp_path / "field.nc"))
    assert_same(read(tmp_path / "field.nc"), field)
    assert [path.name for path in tmp_path.iterdir()] == ["field.nc"]


@settings(max_examples=30)
@given(
    st.sampled_from(["plane", "sphere"]),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_xarray_round_trip(kind, calendar, seed, frames, nodes):
    field = make(kind, calendar, seed, frames, nodes, ("t2m",))
    assert_same(read(field.to_xarray()), field)


def test_plain_xarray_reads_a_cf_forecast(tmp_path):
    field = make()
    field = replace(field, reference_time=int(field.times[0]) - HOUR)
    field.to_netcdf(str(tmp_path / "forecast.nc"))
    with xr.open_dataset(tmp_path / "forecast.nc", decode_timedelta=True) as file:
        assert file.attrs["featureType"] == "timeSeries"
        assert file.attrs["Conventions"].startswith("CF-")
        assert file.t2m.dims == ("time", "station")
        assert file.t2m.attrs["units"] == "K"
        assert file.lat.attrs == {"standard_name": "latitude", "units": "degrees_north"}
        assert file.lon.attrs == {"standard_name": "longitude", "units": "degrees_east"}
        assert file.station.attrs["cf_role"] == "timeseries_id"
        assert file.time.attrs["standard_name"] == "time"
        lead = file.time - file.forecast_reference_time
        assert np.array_equal(file.forecast_period, lead)
        assert file.forecast_period.attrs["standard_name"] == "forecast_period"
        assert np.array_equal(np.isnan(file.wind), ~field.observed[..., 1])


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "field.nc"
    make().to_netcdf(str(path))
    before = path.read_bytes()
    with pytest.raises(TypeError):
        replace(make(seed=1), attrs={"bad": object()}).to_netcdf(str(path))

    def no_space(self, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", no_space)
    with pytest.raises(ResourceError, match="No space"):
        make(seed=1).to_netcdf(str(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match=r"No folder '.*nowhere' to write 'field.nc' into"):
        make().to_netcdf(str(tmp_path / "nowhere" / "field.nc"))


@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv", "csv.gz"])
def test_every_export_is_read_again(tmp_path, suffix):
    field = replace(make(), sites={})
    export = {"nc": field.to_netcdf, "zarr": field.to_zarr}.get(suffix, field.to_csv)
    export(tmp_path / f"field.{suffix}")
    found = read(tmp_path / f"field.{suffix}")
    assert found.quantity == field.quantity
    order = [found.points.names.index(name) for name in field.points.names]
    np.testing.assert_array_equal(found.take(np.array(order)).values, field.values)
    np.testing.assert_array_equal(found.times, field.times)


def test_an_export_never_replaces_a_folder_or_guesses_a_format(tmp_path):
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="Choose another name"):
        make().to_zarr(tmp_path / "mine.zarr")
    assert (tmp_path / "mine.zarr" / "thesis.txt").exists()
    for export, name in ((make().to_csv, "a.nc"), (make().to_zarr, "a"), (make().to_netcdf, "a")):
        with pytest.raises(DataError, match="expected a name in"):
            export(tmp_path / name)


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_a_dataframe_has_one_row_for_each_time_and_station(kind, calendar):
    field = make(kind, calendar)
    table = field.to_dataframe()
    axes = ["lat", "lon"] if kind == "sphere" else ["x", "y"]
    assert list(table) == ["time", "station", *axes, "t2m", "wind", "altitude", "support"]
    assert len(table) == 6 * 5
    row = table.iloc[2 * 5 + 3]
    assert (row.time, row.station) == (field.datetimes[2], field.points.names[3])
    assert [row[axis] for axis in axes] == field.points.coordinates[3].tolist()
    np.testing.assert_array_equal(table.wind.to_numpy().reshape(6, 5), field.values[..., 1])
    np.testing.assert_array_equal(table.altitude[:5], field.sites["altitude"])


def test_a_dataframe_is_read_again():
    field = replace(make(), sites={}, units=("", ""))
    found = read(field.to_dataframe())
    order = [found.points.names.index(name) for name in field.points.names]
    assert_same(replace(found.take(np.array(order)), attrs=field.attrs), field)


def test_a_channel_may_have_the_name_of_a_column():
    table = replace(make(), channels=("time", "lat")).to_dataframe()
    assert table.columns.is_unique and "time_value" in table and "lat_value" in table


def test_times_are_datetime64_or_durations_without_a_calendar():
    dates, durations = make().datetimes, make(calendar=False).datetimes
    assert dates.dtype == "datetime64[ns]" and durations.dtype == "timedelta64[ns]"
    assert dates.astype(np.int64).tolist() == make().times.tolist()
    assert dates[0].astype("datetime64[D]") == np.datetime64("2024-02-28")


# The rules of a field


def test_missing_values_are_nan_and_masked():
    """NaN, a False in the mask, or both: the same field."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(4, 3, 2)).astype(np.float32)
    mask = generator.random(values.shape) < 0.6
    points, times = Points(generator.random((3, 2))), np.arange(4)
    by_mask = Field(np.where(mask, values, np.float32(7)), times, points, ("u", "v"), mask)
    by_nan = Field(np.where(mask, values, np.float32("nan")), times, points, ("u", "v"))
    hidden = Field(np.where(mask, values, np.float32("inf")), times, points, ("u", "v"), mask)
    assert_same(by_mask, by_nan)
    assert_same(by_mask, hidden)
    assert np.isnan(by_mask.values[~mask]).all()


def test_a_mean_over_a_gap_is_nan():
    values = np.array([np.nan, 10], dtype=np.float32)[:, None, None]
    field = Field(values, np.arange(2), Points(np.zeros((1, 2))))
    assert np.isnan(field.values.mean())
    assert np.nanmean(field.values) == 10
    assert field._filled().ravel().tolist() == [0, 10]
    assert field._filled(slice(0, 1)).ravel().tolist() == [0]


def test_a_field_is_immutable():
    values, times = np.ones((2, 1, 1), dtype=np.float32), np.arange(2)
    field = Field(values, times, Points(np.zeros((1, 2))))
    values[:], times[:] = 5, 0
    assert (field.values == 1).all()
    assert np.array_equal(field.times, [0, 1])
    for array in (field.values, field.observed, field.times):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        field.values = values


def test_joined_parts_are_the_field():
    field, order = make(nodes=5), np.array([4, 1, 0, 3, 2])
    assert_same(field.take(order[:2]).joined(field.take(order[2:])), field.take(order))
    parts = [field.between(0, 2), field.between(2, 6)]
    assert np.array_equal(np.concatenate([p.values for p in parts]), field.values, equal_nan=True)
    assert np.array_equal(np.concatenate([p.times for p in parts]), field.times)


def attempt(values=None, times=None, **others) -> Field:
    values = np.zeros((3, 2, 1), dtype=np.float32) if values is None else np.asarray(values)
    times = START + HOUR * np.arange(len(values)) if times is None else times
    points = Points(np.zeros((2, 2)), names=("here", "there"))
    return Field(values, times, points, **others)


INFINITE = np.zeros((3, 2, 1), dtype=np.float32)
INFINITE[1, 1] = -np.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": np.zeros((3, 2))}, r"shape \(3, 2\); expected \(time, node, channel\)"),
        ({"values": np.zeros((2, 3, 1))}, r"meaning 3 points and 1 channels; there are 2 points"),
        ({"values": np.full((3, 2, 1), "a")}, "expected real numbers"),
        ({"values": np.zeros((0, 2, 1)), "times": np.zeros(0, int)}, "The field has no frame"),
        (
            {"values": INFINITE},
            r"1 values are infinite .*'u' at point 'there', 2024-02-28T19:00:00Z",
        ),
        ({"values": np.full((3, 2, 1), 1e300)}, "6 values are infinite"),
        ({"channels": ()}, "expected at least one"),
        ({"values": np.zeros((3, 2, 2)), "channels": ("u", "u")}, "each with its own name"),
        ({"units": ("K", "m")}, "2 units for 1 channels"),
        ({"mask": np.ones((2, 1), dtype=bool)}, r"mask has shape \(2, 1\)"),
        ({"mask": np.ones((3, 2, 1))}, r"type float64; expected \(3, 2, 1\) like the values, True"),
        ({"times": np.arange(2)}, r"shape \(2,\) .*expected 3 integers"),
        ({"times": np.arange(3.0)}, "type float64; expected 3 integers"),
        (
            {"times": START + HOUR * np.array([0, 2, 1])},
            r"2024-02-28T19:00:00Z follows 2024-02-28T20:00:00Z \(frame 2; 1 such places\)",
        ),
        ({"times": np.zeros(3, int), "calendar": False}, r"0 s follows 0 s \(frame 1; 2 such"),
        ({"times": np.array(["NaT", "2000", "2001"], "datetime64[D]")}, "missing .NaT."),
        ({"times": np.array(["2000", "2001", "3000"], "datetime64[D]")}, "years 1678 to 2262"),
    ],
)
def test_invalid_fields_are_refused(arguments, message, monkeypatch):
    monkeypatch.setattr(shape_checks, "jaxtyping_disable", True)  # users run without them
    with pytest.raises(DataError, match=message):
        attempt(**arguments)


def test_other_types_are_converted(monkeypatch):
    monkeypatch.setattr(shape_checks, "jaxtyping_disable", True)
    field = attempt(np.zeros((3, 2, 1), dtype=np.int16), channels="t2m", units="K")
    assert field.quantity == (("t2m", "K"),)
    assert field.values.dtype == np.float32
    dates = np.array(["2024-01-01", "2024-01-02", "2024-01-04"], "datetime64[D]")
    assert attempt(times=dates).step == 36 * HOUR  # the median
    assert time_label(int(attempt(times=dates).times[0]), True) == "2024-01-01T00:00:00Z"


def test_wrong_parts_are_refused():
    field = attempt()
    with pytest.raises(DataError, match=r"Frames 2\.\.5 .* with 3 frames"):
        field.between(2, 5)
    with pytest.raises(DataError, match=r"same times, channels and units.*'K'"):
        field.joined(attempt(units=("K",)))


# Data sets


def test_seen_and_unseen_points_are_all_points():
    data = Dataset((make(), make()), unseen=(3, 1))
    assert np.array_equal(data.seen, [0, 2, 4])
    assert data.take(data.seen).points == data.points.take(data.seen)
    assert data.take(data.seen).unseen == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": ()}, "has no episode"),
        ({"episodes": (attempt(), attempt(units=("K",)))}, "Episode 1 of 'data' has other points"),
        ({"episodes": (make(), make(seed=1))}, "other points, channels or units than episode 0"),
        (
            {"episodes": (attempt(), attempt(calendar=False))},
            "one has dates and the other",
        ),
        ({"episodes": (attempt(),), "unseen": (2,)}, r"some, not all, of 0..1"),
        ({"episodes": (attempt(),), "unseen": (0, 1)}, "some, not all"),
    ],
)
def test_invalid_data_sets_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        Dataset(**arguments)


def test_times_beyond_the_range_of_differences_are_refused():
    times = np.array(["1678-01-01", "2261-01-01"], "M8[ns]").astype(np.int64)
    with pytest.raises(DataError, match=r"1678-01-01.* to 2261-01-01.*292 years"):
        Field(np.zeros((2, 1, 1), np.float32), times, Points(np.zeros((1, 2))))
