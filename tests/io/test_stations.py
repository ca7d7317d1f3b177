"""Positions in every form that users have them give the same points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stonet
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.io.stations import as_points

PAIRS = np.array([[46.5, 6.25], [1.0, 2.0]])
TABLE = pd.DataFrame({"name": ["a", "b"], "lat": PAIRS[:, 0], "lon": PAIRS[:, 1]})


def found(at: object) -> Points:
    points = as_points(at, "sphere")
    assert points is not None
    return points


def test_pairs_may_be_written_in_many_ways() -> None:
    for given in (PAIRS, PAIRS.tolist(), list(zip(*PAIRS.T, strict=True)), [(46.5, 6.25), "1,2"]):
        np.testing.assert_array_equal(found(given).coordinates, PAIRS)
    for single in ((46.5, 6.25), PAIRS[0], "46.5,6.25", ["46.5,6.25"], [(46.5, 6.25)]):
        np.testing.assert_array_equal(found(single).coordinates, PAIRS[:1])
        assert found(single).names == ("46.5,6.25",)
    assert as_points(None, "sphere") is None


def test_tables_and_dictionaries_give_names(tmp_path: Path) -> None:
    expected = Points(PAIRS, "sphere", ("a", "b"))
    TABLE.to_csv(tmp_path / "sites.csv", index=False)
    coordinates = {"a": (46.5, 6.25), "b": (1.0, 2.0)}
    indexed = TABLE.set_index("name")
    for at in (
        expected,
        TABLE,
        indexed,
        coordinates,
        tmp_path / "sites.csv",
        [TABLE[:1], expected.take(np.array([1]))],
    ):
        assert found(at) == expected


def test_a_table_without_names_is_numbered() -> None:
    assert found(TABLE[["lat", "lon"]]).names == ("0", "1")


def test_coordinates_of_a_table_keep_every_digit() -> None:
    precise = TABLE.assign(lat=[1 / 3, np.nextafter(1, 2)])
    assert found(precise).coordinates[:, 0].tolist() == precise.lat.tolist()


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([(1.0, 2.0, 3.0)], "is not a position; give pairs"),
        ([None], "is not a position"),
        ([], "No query point"),
        (pd.DataFrame({"a": [1.0]}), "expected 'lat'"),
        ({"a": (1.0,)}, "is not a position"),
    ],
)
def test_what_holds_no_position_is_refused(at: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_points(at, "sphere")


VALUES = pd.DataFrame(
    {"time": pd.date_range("2024-01-01", periods=3, freq="h"), "a": [1.0, 2, 3], "b": [4.0, 5, 6]}
)


@pytest.mark.parametrize(
    "stations",
    [
        TABLE,
        TABLE.set_index("name"),
        TABLE.assign(name=["b", "a"], lat=PAIRS[::-1, 0], lon=PAIRS[::-1, 1]),
        Points(PAIRS, "sphere", ("a", "b")),
        {"a": (46.5, 6.25), "b": (1.0, 2.0), "elsewhere": (0.0, 0.0)},
    ],
)
def test_station_positions_may_be_a_table_points_or_a_dictionary(stations: object) -> None:
    field = stonet.read(VALUES, stations=stations)
    assert field.points == Points(PAIRS, "sphere", ("a", "b"))
    np.testing.assert_array_equal(field.values[..., 0], VALUES[["a", "b"]])


def test_station_positions_may_be_a_path(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "sites.csv", index=False)
    for path in (tmp_path / "sites.csv", str(tmp_path / "sites.csv")):
        assert stonet.read(VALUES, stations=path).points.names == ("a", "b")
    with pytest.raises(UsageError, match="No file"):
        stonet.read(VALUES, stations=tmp_path / "none.csv")


def test_station_positions_without_names_are_refused() -> None:
    with pytest.raises(UsageError, match="a dictionary of names and pairs"):
        stonet.read(VALUES, stations=[(1.0, 2.0), (3.0, 4.0)])
