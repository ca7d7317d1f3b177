"""Every discrete sampling geometry of CF gives the same Field."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError
from stonet.io.read import read

START = np.datetime64("2024-01-01", "ns")
MINUTE = np.timedelta64(1, "m")


def stations(seed: int = 0, count: int = 3, frames: int = 6) -> Field:
    """Stations with missing values at irregular times; each station and each time has a value."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(frames, count, 2)).astype(np.float32)
    observed = generator.random((frames, count)) < 0.6
    observed[np.arange(frames), generator.integers(0, count, frames)] = True
    observed[generator.integers(0, frames, count), np.arange(count)] = True
    values[~observed] = np.nan
    values[..., 1][generator.random(observed.shape) < 0.3] = np.nan
    times = START + np.cumsum(generator.integers(1, 90, frames)) * MINUTE
    names = tuple(f"Zürich {i}" for i in range(count))
    points = Points(generator.uniform(-85, 85, (count, 2)), "sphere", names)
    sites = {"altitude": generator.uniform(0, 4000, count)}
    return Field(values, times.astype(int), points, ("t", "rain"), units=("K", "mm"), sites=sites)


def rows(field: Field) -> tuple[np.ndarray, np.ndarray]:
    """Frame and station of every value of the first channel, station by station."""
    station, frame = np.nonzero(field.observed[..., 0].T)
    return frame, station


def base(field: Field, dim: str = "station") -> xr.Dataset:
    names = np.array(field.points.names, dtype=object)
    return xr.Dataset(
        coords={
            "station_name": (dim, names, {"cf_role": "timeseries_id"}),
            "lat": (dim, field.points.coordinates[:, 0]),
            "lon": (dim, field.points.coordinates[:, 1]),
            "alt": (dim, field.sites["altitude"], {"standard_name": "altitude"}),
        },
        attrs={"featureType": "timeSeries"},
    )


def with_values(dataset: xr.Dataset, field: Field, dims, frame, station) -> xr.Dataset:
    missing = np.where(field.observed, field.values, np.nan)
    for number, (name, unit) in enumerate(field.quantity):
        dataset[name] = (dims, missing[frame, station, number], {"units": unit})
    return dataset


def contiguous(field: Field) -> xr.Dataset:
    frame, station = rows(field)
    dataset = with_values(base(field), field, "obs", frame, station)
    counts = np.bincount(station, minlength=len(field.points))
    dataset["row_size"] = ("station", counts, {"sample_dimension": "obs"})
    return dataset.assign_coords(time=("obs", field.times[frame].astype("M8[ns]")))


def indexed(field: Field) -> xr.Dataset:
    frame, station = rows(field)
    mixed = np.random.default_rng(1).permutation(len(frame))
    frame, station = frame[mixed], station[mixed]
    dataset = with_values(base(field), field, "obs", frame, station)
    dataset["where"] = ("obs", station, {"instance_dimension": "station"})
    return dataset.assign_coords(time=("obs", field.times[frame].astype("M8[ns]")))


def incomplete(field: Field) -> xr.Dataset:
    frame, station = rows(field)
    column = np.concatenate([np.arange(n) for n in np.bincount(station)])
    shape = (len(field.points), column.max() + 1)
    dataset, missing = base(field), np.where(field.observed, field.values, np.nan)
    times = np.full(shape, np.datetime64("NaT", "ns"))
    times[station, column] = field.times[frame].astype("M8[ns]")
    for number, (name, unit) in enumerate(field.quantity):
        block = np.full(shape, np.nan)
        block[station, column] = missing[frame, station, number]
        dataset[name] = (("station", "obs"), block, {"units": unit})
    return dataset.assign_coords(time=(("station", "obs"), times))


def in_points(field: Field) -> xr.Dataset:
    frame, station = rows(field)
    dataset = xr.Dataset(
        coords={
            "time": ("obs", field.times[frame].astype("M8[ns]")),
            "lat": ("obs", field.points.coordinates[station, 0]),
            "lon": ("obs", field.points.coordinates[station, 1]),
            "station_id": ("obs", np.array(field.points.names, dtype=object)[station]),
        },
        attrs={"featureType": "point"},
    )
    return with_values(dataset, field, "obs", frame, station)


def orthogonal(field: Field) -> xr.Dataset:
    missing = np.where(field.observed, field.values, np.nan)
    dataset = base(field).assign_coords(time=field.times.astype("M8[ns]"))
    for number, (name, unit) in enumerate(field.quantity):
        dataset[name] = (("station", "time"), missing[..., number].T, {"units": unit})
    return dataset


FORMS = [contiguous, indexed, incomplete, in_points, orthogonal]


def assert_same(actual: Field, expected: Field, with_altitude: bool = True) -> None:
    order = [actual.points.names.index(name) for name in expected.points.names]
    actual = actual.take(np.array(order))
    assert np.array_equal(actual.times, expected.times)
    assert actual.points == expected.points
    assert actual.quantity == expected.quantity
    rows = expected.observed & expected.observed[..., :1]  # rows exist where t was observed
    assert np.array_equal(actual.observed & actual.observed[..., :1], rows)
    np.testing.assert_array_equal(
        np.where(rows, actual.values, 0), np.where(rows, expected.values, 0)
    )
    if with_altitude:
        assert np.array_equal(actual.sites["altitude"], expected.sites["altitude"])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 8))
def test_every_form_gives_the_same_field(form, seed, count, frames):
    field = stations(seed, count, frames)
    assert_same(read(form(field)), field, with_altitude=form is not in_points)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=1000)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12))
def test_many_examples_of_every_form_agree(form, seed, count, frames):
    field = stations(seed, count, frames)
    assert_same(read(form(field)), field, with_altitude=form is not in_points)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_be_stored_in_a_file(form, tmp_path):
    dataset = form(stations())
    dataset.to_netcdf(tmp_path / "stations.nc", engine="h5netcdf")
    assert_same(read(tmp_path / "stations.nc"), stations(), with_altitude=form is not in_points)


def test_names_may_be_characters_numbers_or_absent():
    dataset = orthogonal(stations())
    letters = np.array([list("Bern "), list("Genf "), list("Basel")], "S1")
    role = {"cf_role": "timeseries_id"}
    as_characters = dataset.assign_coords(station_name=(("station", "letter"), letters, role))
    assert read(as_characters).points.names == ("Bern", "Genf", "Basel")
    numbers = dataset.assign_coords(station_name=("station", [3.0, 7.0, 66.0], role))
    assert read(numbers).points.names == ("3", "7", "66")
    assert "station_name" not in read(numbers).sites
    twice = read(dataset.assign_coords(station_name=("station", ["a", "b", "a"], role)))
    assert twice.points.names == ("0", "1", "2")
    assert any("not unique ('a')" in note for note in twice.notes)
    assert read(dataset.drop_vars("station_name")).points.names == ("0", "1", "2")


def test_unnamed_stations_are_distinguished_by_position():
    field = stations()
    actual = read(in_points(field).drop_vars("station_id"))
    expected = field.points.coordinates
    order = [int(np.flatnonzero((actual.points.coordinates == c).all(1))[0]) for c in expected]
    np.testing.assert_array_equal(actual.values[:, order, 0], field.values[..., 0])


def test_repeated_observations_must_agree():
    dataset = indexed(stations())
    again = dataset.isel(obs=[*range(dataset.sizes["obs"]), 0])
    assert_same(read(again), stations())
    again["t"] = again.t + np.eye(again.sizes["obs"])[-1]
    with pytest.raises(DataError, match=r"1 values are given twice and differ \('t' at 'Zürich"):
        read(again)
    mean = read(again, duplicates="mean")
    assert np.isclose(np.nanmax(np.abs(mean.values - read(dataset).values)), 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.assign(row_size=("station", [1, 1, 1], {"sample_dimension": "obs"})),
            r"'row_size' counts 3 rows, and the dim 'obs' has",
        ),
        (
            lambda d: d.assign(
                row_size=("obs", [9] * d.sizes["obs"], {"instance_dimension": "station"})
            ),
            r"'row_size' of row 0 is 9; expected 0 to 2",
        ),
        (lambda d: d.assign_coords(time=d.time.where(False)), "No observation has a time"),
    ],
)
def test_rows_without_a_station_or_time_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        read(change(contiguous(stations())))


def test_moving_sensors_are_refused():
    dataset = in_points(stations())
    with pytest.raises(DataError, match="the sensors move"):
        read(dataset.assign_attrs(featureType="trajectory"))
    moved = dataset.assign_coords(station_id=("obs", ["a"] * dataset.sizes["obs"]))
    with pytest.raises(DataError, match="Station 'a' has several positions"):
        read(moved)


def test_rows_must_fit_in_memory(monkeypatch):
    monkeypatch.setenv("STONET_MEMORY", "100")
    with pytest.raises(ResourceError, match="in memory, and the budget is 100 bytes"):
        read(contiguous(stations(count=5, frames=40)))
