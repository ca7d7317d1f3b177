"""NREL's HDF5: the real file of Rhode Island, and small files of the same kinds."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from stonet.errors import DataError
from stonet.io.read import read

RHODE_ISLAND = "nrel-pv-rhode-island/gen_ri_pv_2012_x000.h5"


def test_the_file_of_rhode_island_is_read(data):
    field = read(data(RHODE_ISLAND))
    assert field.values.shape == (17520, 100, 1)
    assert field.quantity == (("cf_profile", "1"),)
    assert field.observed.all()
    assert field.step == 1800 * 10**9
    days = np.unique(field.times.astype("M8[ns]").astype("M8[D]"))
    assert (str(days[0]), str(days[-1]), len(days)) == ("2012-01-01", "2012-12-31", 365)
    assert np.datetime64("2012-02-29") not in days
    assert any("29 February" in note for note in field.notes)
    assert any("cf_mean" in note for note in field.notes)
    with h5py.File(data(RHODE_ISLAND)) as file:
        stored, meta = file["cf_profile"][...], file["meta"][...]
        assert file["cf_profile"].attrs["scale_factor"] == 1000
    np.testing.assert_array_equal(field.values[..., 0], (stored / 1000).astype(np.float32))
    assert field.values.min() == 0
    assert 0.5 < field.values.max() <= 1
    assert np.array_equal(field.points.coordinates[:, 0], meta["latitude"].astype(float))
    assert np.array_equal(field.sites["altitude"], meta["elevation"].astype(float))
    assert field.points.names == tuple(map(str, meta["gid"]))
    day = field.values[:, :, 0].mean(1).reshape(-1, 48).mean(0)[10:]
    middle = (day * np.arange(5, 24, 0.5)).sum() / day.sum()
    assert abs(middle - (12 + 71.6 / 15)) < 0.25  # UTC hour of the sun's noon at 71.6 W


def test_a_selection_equals_a_part_of_the_complete_file(data):
    complete = read(data(RHODE_ISLAND))
    box, start, stop = (-71.7, 41.3, -71.5, 41.7), "2012-06", "2012-06"
    part = read(data(RHODE_ISLAND), bbox=box, start=start, stop=stop)
    lat, lon = complete.points.coordinates.T
    inside = (lon >= box[0]) & (lat >= box[1]) & (lon <= box[2]) & (lat <= box[3])
    june = complete.times.astype("M8[ns]").astype("M8[M]") == np.datetime64("2012-06")
    assert 0 < inside.sum() < 100
    assert len(part.times) == 30 * 48
    np.testing.assert_array_equal(part.values, complete.values[june][:, inside])
    assert part.points == complete.points.take(np.flatnonzero(inside))


def write_file(path, meta_as="records", zone=False, names="gid", **attrs):
    """A small file of the same kind; returns the stored values of ghi."""
    stored = np.random.default_rng(0).integers(0, 1000, (6, 3)).astype(np.int16)
    zone_text = "+00:00" if zone else ""
    times = [f"2019-07-01 {hour:02d}:30:00{zone_text}" for hour in range(6)]
    columns = {
        "latitude": np.array([40.0, 41.0, 42.0]),
        "longitude": np.array([-105.0, -104.0, -103.0]),
        names: np.array([7, 9, 11]),
        "state": np.array([b"Colorado"] * 3),
    }
    with h5py.File(path, "w") as file:
        file["time_index"] = np.array(times, "S") if meta_as == "records" else times
        if meta_as == "records":
            types = [(name, column.dtype) for name, column in columns.items()]
            meta = np.zeros(3, types)
            for name, column in columns.items():
                meta[name] = column
            file["meta"] = meta
        else:
            for name, column in columns.items():
                file[f"meta/{name}"] = column
        file["ghi"] = stored
        file["ghi"].attrs.update(attrs)
        file["windspeed_100m"] = stored.astype(np.float32)
        file["coordinates"] = np.zeros((3, 2))
    return stored


@pytest.mark.parametrize(
    ("attrs", "expected", "unit"),
    [
        ({}, lambda v: v, ""),
        ({"scale_factor": 10.0, "units": "W/m2"}, lambda v: v / 10, "W/m2"),
        ({"psm_scale_factor": 100, "psm_units": b"W/m2"}, lambda v: v / 100, "W/m2"),
        ({"scale_factor": 0.5, "add_offset": -40.0}, lambda v: v * 0.5 - 40, ""),
    ],
)
@pytest.mark.parametrize("meta_as", ["records", "group"])
def test_values_are_scaled_by_their_attributes(tmp_path, attrs, expected, unit, meta_as):
    stored = write_file(tmp_path / "nsrdb.h5", meta_as, zone=meta_as == "group", **attrs)
    field = read(tmp_path / "nsrdb.h5")
    assert field.channels == ("ghi", "windspeed_100m")
    assert field.units == (unit, "")
    np.testing.assert_array_equal(
        field.values[..., 0], expected(stored.astype(float)).astype(np.float32)
    )
    np.testing.assert_array_equal(field.values[..., 1], stored.astype(np.float32))
    assert field.times[0] == np.datetime64("2019-07-01T00:30", "ns").astype(int)
    assert field.points.names == ("7", "9", "11")
    assert any("coordinates" in note for note in field.notes)


def test_the_file_is_closed_after_reading(tmp_path):
    """It is open only while a block is read."""
    write_file(tmp_path / "data.h5", names="sc_point_gid")
    field = read(tmp_path / "data.h5", variables="ghi")
    with h5py.File(tmp_path / "data.h5", "a") as file:  # would fail if it were still open
        file["ghi"][...] = 0
    assert field.values.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("ghi") and f.pop("windspeed_100m"), "no data set of 6 times x 3 sites"),
        (lambda f: f["ghi"].attrs.update(scale_factor=0), "scale_factor is 0"),
        (lambda f: f["time_index"].write_direct(np.array([b"x"] * 6, "S19")), "holds no dates"),
        (lambda f: f["meta"].pop("latitude"), "'meta' has .*expected latitude"),
    ],
)
def test_invalid_files_are_refused(tmp_path, change, message):
    grouped = "latitude" in message
    write_file(tmp_path / "odd.h5", "group" if grouped else "records")
    with h5py.File(tmp_path / "odd.h5", "a") as file:
        change(file)
    with pytest.raises(DataError, match=rf"odd.h5'.*{message}"):
        read(tmp_path / "odd.h5")
