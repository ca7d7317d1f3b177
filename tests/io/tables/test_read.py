"""Long tables give the same Field whatever their names, order and separators."""

from __future__ import annotations

import bz2
import gzip
import lzma

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.errors import DataError
from stonet.io.read import read
from stonet.io.tables import dataframe

HOURS = pd.date_range("2019-03-30 20:00", periods=12, freq="h")


def table(seed: int = 0, stations: int = 5) -> pd.DataFrame:
    """Stations at random positions, with missing values and missing rows."""
    generator = np.random.default_rng(seed)
    positions = generator.uniform(-80, 80, (stations, 3)).round(4)
    rows = [
        (f"s{number}", time.strftime("%Y-%m-%dT%H:%M:%SZ"), *positions[number], *values)
        for number in range(stations)
        for time, values in zip(HOURS, generator.normal(size=(12, 2)).round(5), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["station", "time", "lat", "lon", "alt", "T", "wind"])
    frame.loc[frame.sample(frac=0.2, random_state=seed).index, "T"] = np.nan
    return frame.drop(frame.sample(frac=0.1, random_state=seed + 1).index)


def written(frame: pd.DataFrame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


def assert_same(actual: Field, expected: Field, names: bool = True):
    np.testing.assert_array_equal(actual.values, expected.values)
    assert np.array_equal(actual.observed, expected.observed)
    assert np.array_equal(actual.times, expected.times)
    assert np.array_equal(actual.points.coordinates, expected.points.coordinates)
    assert actual.calendar == expected.calendar
    if names:
        assert actual.points.names == expected.points.names
        assert actual.channels == expected.channels


@pytest.fixture
def expected(tmp_path) -> Field:
    return read(written(table(), tmp_path / "expected.csv"))


def test_every_value_is_stored_in_its_cell(expected):
    frame = table()
    assert expected.points.names == ("s0", "s1", "s2", "s3", "s4")
    assert expected.channels == ("T", "wind")
    count = 0
    for row in frame.itertuples():
        node = expected.points.names.index(row.station)
        time = np.searchsorted(expected.times, pd.Timestamp(row.time).value)
        assert tuple(expected.points.coordinates[node]) == (row.lat, row.lon)
        assert expected.sites["altitude"][node] == row.alt
        for channel, value in enumerate((row.T, row.wind)):
            observed = bool(expected.observed[time, node, channel])
            assert observed == (not np.isnan(value))
            if observed:
                assert expected.values[time, node, channel] == np.float32(value)
                count += 1
    assert count == expected.observed.sum() > 80  # and there are no other values


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_and_columns_does_not_matter(tmp_path, expected, seed):
    frame = table().sample(frac=1, random_state=seed)
    columns = np.random.default_rng(seed).permutation(frame.columns)
    field = read(written(frame[columns], tmp_path / "t.csv"), variables=("T", "wind"))
    assert_same(field, expected)


@pytest.mark.parametrize(
    "names",
    [
        "unique_id ds Latitude Longitude elevation T wind",
        "SITE_ID TIMESTAMP LAT LNG Elev T wind",
        "City,datetime,lat_deg,long,height (m),T,wind",
        "Station ID,Valid Time,latitude [deg],longitude [deg],z,T,wind",
        "name,Date,lat,lon,Altitude,T,wind",
        "location,last_updated,Latitude,Longitude,alt,T,wind",
    ],
)
def test_aliases_are_recognised(tmp_path, expected, names):
    split = names.split("," if "," in names else " ")
    field = read(written(table().set_axis(split, axis=1), tmp_path / "t.csv"))
    assert_same(field, expected)
    assert np.array_equal(field.sites["altitude"], expected.sites["altitude"])


def waves(name: str, heights: np.ndarray) -> pd.DataFrame:
    """Two buoys with a height at every time."""
    hours = len(heights)
    frame = pd.DataFrame({"station": ["a", "b"] * hours, "time": HOURS[:hours].repeat(2)})
    return frame.assign(lat=[1.0, 2.0] * hours, lon=3.0, T=0.5, **{name: heights.ravel()})


@pytest.mark.parametrize("name", ["height", "Elevation", "alt", "z", "height (m)"])
@pytest.mark.parametrize("late", [False, True])
def test_a_height_that_changes_is_a_channel(name, late, monkeypatch):
    """However late it changes; a constant one is the altitude of the station."""
    monkeypatch.setattr(dataframe, "BLOCK_ROWS", 4)
    heights = np.tile([7.0, 8.0], (12, 1))
    fixed = read(waves(name, heights))
    assert (fixed.channels, fixed.sites["altitude"].tolist()) == (("T",), [7, 8])
    heights[1, 0], heights[2, 1] = np.nan, -9999  # missing values are not a change
    assert read(waves(name, heights)).sites["altitude"].tolist() == [7, 8]
    heights[11 if late else 0, 1] = 9.0
    field = read(waves(name, heights))
    unit = "m" if "(" in name else ""
    assert field.quantity == (("T", ""), (name.partition(" ")[0], unit))
    np.testing.assert_array_equal(
        field.values[..., 1][field.observed[..., 1]], heights[heights > 0]
    )
    assert "altitude" not in field.sites
    assert f"'{name}' changes at a station, so it is not an altitude but a channel." in field.notes
    without = read(waves(name, heights), variables="T")
    assert (without.channels, dict(without.sites)) == (("T",), {})


def test_of_several_heights_the_constant_one_is_the_altitude(tmp_path):
    heights = np.arange(24.0).reshape(12, 2)
    frame = waves("elevation", heights).assign(height=5.0)  # of the sea, and of the station
    field = read(frame)
    assert (field.channels, field.sites["altitude"].tolist()) == (("T", "elevation"), [5, 5])
    alone = waves("height", heights).drop(columns="T")
    np.testing.assert_array_equal(read(alone).values[..., 0], heights)
    constant = alone.assign(height=5.0)
    with pytest.raises(DataError, match=r"'height' never changes at a station, so it is the alt"):
        read(constant)
    assert read(constant, variables="height").channels == ("height",)
    unnamed = read(alone.drop(columns="station"))  # each position is a station
    np.testing.assert_array_equal(unnamed.values[..., 0], heights)
    buoy = alone[alone.station == "a"].drop(columns=["station", "lat", "lon"])
    field = read(written(buoy, tmp_path / "buoy_1.5_2.5.csv"))  # a file of one station
    np.testing.assert_array_equal(field.values[:, 0, 0], heights[:, 0])


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_separators_and_line_endings_do_not_matter(tmp_path, expected, sep, ending):
    field = read(written(table(), tmp_path / "t.csv", sep=sep, lineterminator=ending))
    assert_same(field, expected)


@pytest.mark.parametrize("sep", [";", "\t"])
def test_a_decimal_comma_is_recognised(tmp_path, expected, sep):
    assert_same(read(written(table(), tmp_path / "t.csv", sep=sep, decimal=",")), expected)


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_compressed_tables_are_read(tmp_path, expected, suffix, pack):
    packed = tmp_path / f"t.csv{suffix}"
    packed.write_bytes(pack((tmp_path / "expected.csv").read_bytes()))
    assert_same(read(packed), expected)


def test_zstandard_is_read(tmp_path, expected):
    arrow = pytest.importorskip("pyarrow")
    data = (tmp_path / "expected.csv").read_bytes()
    (tmp_path / "t.csv.zst").write_bytes(arrow.compress(data, codec="zstd", asbytes=True))
    assert_same(read(tmp_path / "t.csv.zst"), expected)


def test_quotes_comments_blank_lines_and_a_bom_change_nothing(tmp_path, expected):
    text = written(table(), tmp_path / "t.csv", quoting=1).read_text()
    lines = text.splitlines()
    lines[3:3] = ["# a remark, with a comma", "", "   "]
    (tmp_path / "t.csv").write_text("\ufeff# made by hand\n" + "\n".join(lines) + "\n\n")
    assert_same(read(tmp_path / "t.csv"), expected)


def test_without_names_each_position_is_a_station(tmp_path, expected):
    field = read(written(table().drop(columns="station"), tmp_path / "t.csv"))
    order = np.lexsort(expected.points.coordinates.T[::-1])
    assert_same(field, expected.take(order), names=False)


def test_names_keep_their_zeros_and_numbers_their_order(tmp_path):
    rows = [
        f"{name},2019-01-0{day},{i},1,{i}"
        for i, name in enumerate(("10", "007", "9"))
        for day in (1, 2)
    ]
    (tmp_path / "t.csv").write_text("id,time,lat,lon,v\n" + "\n".join(rows))
    assert read(tmp_path / "t.csv").points.names == ("007", "9", "10")


def test_units_are_split_off_if_names_stay_unique(tmp_path):
    (tmp_path / "t.csv").write_text(
        "site,time,lat,lon,Power(MW),temp [degC],T (min),T (max)\na,2019-01-01,1,2,3,4,5,6\n"
    )
    field = read(tmp_path / "t.csv")
    assert field.quantity == (
        ("Power", "MW"), ("temp", "degC"), ("T (min)", ""), ("T (max)", ""),
    )  # fmt: skip


def test_y_is_a_value_unless_there_is_an_x(tmp_path):
    (tmp_path / "stations.csv").write_text("name,lat,lon\na,1,2\nb,3,4\n")
    frame = pd.DataFrame({"unique_id": ["a", "b"], "ds": "2020-01-01", "y": [5.0, 6.0]})
    field = read(frame, stations=str(tmp_path / "stations.csv"))
    assert (field.channels, field.points.kind) == (("y",), "sphere")
    assert field.values.ravel().tolist() == [5, 6]
    plane = read(frame.assign(x=[0.0, 1.0], u=[7.0, 8.0]))
    assert (plane.channels, plane.points.kind) == (("u",), "plane")
    assert plane.points.coordinates.tolist() == [[0, 5], [1, 6]]


def test_booleans_and_marks_of_missing_values(tmp_path):
    marks = ["1.5", "", "NA", "-", "--", "M", "null", "nan", "NaN", "-9999", "2e1"]
    rows = [f"a,2019-01-{i + 1:02d},1,2,{mark},{i % 2 == 0}" for i, mark in enumerate(marks)]
    (tmp_path / "t.csv").write_text("station,time,lat,lon,v,on\n" + "\n".join(rows))
    field = read(tmp_path / "t.csv")
    assert field.observed[:, 0, 0].tolist() == [True, *[False] * 9, True]
    assert field.values[[0, 10], 0, 0].tolist() == [1.5, 20]
    assert field.values[:, 0, 1].tolist() == [float(i % 2 == 0) for i in range(11)]


def test_a_text_column_is_left_out_but_text_among_numbers_is_an_error(tmp_path):
    frame = table().assign(sky="clear").reset_index(drop=True)
    field = read(written(frame, tmp_path / "t.csv"))
    assert field.channels == ("T", "wind")
    assert any("'sky'" in note for note in field.notes)
    frame["wind"] = frame["wind"].astype(object)
    frame.loc[17, "wind"] = "calm"
    with pytest.raises(DataError, match=r"column 'wind' has 'calm' in line 19; expected a number"):
        read(written(frame, tmp_path / "t.csv"))
    assert read(tmp_path / "t.csv", variables="T").channels == ("T",)  # wind is not requested
    with pytest.raises(DataError, match=r"column 'sky' has 'clear' in line 2"):
        read(tmp_path / "t.csv", variables="sky")


@pytest.mark.parametrize(("duplicates", "result"), [("mean", 3.0), ("first", 1.0), ("last", 5.0)])
def test_a_value_given_twice_is_resolved_or_refused(tmp_path, duplicates, result):
    head = "station,time,lat,lon,v\na,2019-01-01,1,2,1\na,2019-01-02,1,2,7\n"
    (tmp_path / "t.csv").write_text(head + "a,2019-01-02,1,2,7\n")
    merged = read(tmp_path / "t.csv")
    assert merged.values.ravel().tolist() == [1, 7]
    assert any("equal, merged" in note for note in merged.notes)
    (tmp_path / "t.csv").write_text(head + "a,2019-01-01,1,2,5\n")
    with pytest.raises(DataError, match=r"'v' at 'a', 2019-01-01T00:00:00Z: 1 and 5"):
        read(tmp_path / "t.csv")
    assert read(tmp_path / "t.csv", duplicates=duplicates).values[0, 0, 0] == result


def test_a_station_must_have_one_position(tmp_path):
    head = "station,time,lat,lon,v\na,2019-01-01,1,2,3\n"
    (tmp_path / "t.csv").write_text(head + "a,2019-01-02,1.00005,2,3\n")
    assert read(tmp_path / "t.csv").points.coordinates.tolist() == [[1, 2]]
    (tmp_path / "t.csv").write_text(head + "a,2019-01-02,1.5,2,3\n")
    with pytest.raises(DataError, match=r"t.csv': station 'a' is at \(1, 2\) and \(1.5, 2\)"):
        read(tmp_path / "t.csv")


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.integers(0, 30),
            st.none() | st.floats(-(2.0**99), 2.0**99, width=32).filter(lambda v: v != -9999),
        ),
        min_size=1,
        unique_by=lambda row: row[:2],
    ).filter(lambda rows: any(value is not None for *_, value in rows))
)
def test_random_tables_keep_every_value(rows):
    frame = pd.DataFrame(rows, columns=["station", "hour", "v"])
    frame["time"] = pd.Timestamp("2020-01-01", tz="UTC") + pd.to_timedelta(frame.hour, unit="h")
    frame["lat"] = frame.station.map({"a": 0.0, "b": 10.0, "c": -20.5, "d": 30.25})
    field = read(frame.assign(lon=5.0).drop(columns="hour"))
    cells = {
        (field.points.names[n], int(field.times[t] - field.times[0])): field.values[t, n, 0]
        for t, n, _ in np.argwhere(field.observed)
    }
    start = frame.time.min()
    assert cells == {
        (row.station, (row.time - start).value): np.float32(row.v)
        for row in frame.itertuples()
        if not (row.v is None or np.isnan(row.v))
    }


def test_noaa_stations(data):
    field = read(data("noaa-daily"))
    assert field.values.shape == (1461, 137, 4)
    assert field.channels == ("Tmax", "Tmin", "TDP", "Precip")
    assert np.array_equal(np.diff(field.times), np.full(1460, 86_400 * 10**9))
    assert np.datetime64(int(field.times[0]), "ns") == np.datetime64("1990-01-01")
    rows = 196_350  # 98 % of stations times days
    missing = 1 - field.observed.sum((0, 1)) / rows
    np.testing.assert_allclose(missing, [0.0005, 0.0060, 0.2626, 0.0161], atol=1e-4)
    both = field.observed[..., :2].all(-1)
    assert (field.values[..., 0] >= field.values[..., 1])[both].mean() > 0.999  # Tmax >= Tmin
