"""Files, folders, patterns and objects are read into one Field; errors name the file."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.datasets import DATASETS
from stonet.errors import DataError, UsageError
from stonet.io.read import read


def field() -> Field:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(5, 3, 1)).astype(np.float32)
    values[2, 1] = np.nan
    points = Points(generator.uniform(-50, 50, (3, 2)), "sphere", ("a", "b", "c"))
    return Field(values, 10**9 * np.arange(5), points)


# Files, folders, patterns, lists


@pytest.fixture
def halves(tmp_path):
    """Two files of consecutive periods, and others that are not data."""
    field().between(0, 2).to_netcdf(str(tmp_path / "b.nc"))
    field().between(2, 5).to_netcdf(str(tmp_path / "a.nc"))
    (tmp_path / "notes.md").write_text("not data")
    (tmp_path / ".hidden.nc").write_text("not data")
    return tmp_path


@pytest.mark.parametrize(
    "source",
    [
        lambda folder: folder,
        lambda folder: str(folder / "*.nc"),
        lambda folder: [folder / "a.nc", str(folder / "b.nc")],
        lambda folder: [folder / "a.nc", field().between(0, 2).to_xarray()],
    ],
)
def test_parts_of_one_field_are_merged(halves, source):
    actual, expected = read(source(halves)), field()
    np.testing.assert_array_equal(actual.values, expected.values)
    assert np.array_equal(actual.observed, expected.observed)
    assert np.array_equal(actual.times, expected.times)
    assert actual.points == expected.points


def test_a_field_is_read_as_itself():
    original = field()
    assert read(original) is original


def test_invalid_paths_are_refused(tmp_path):
    (tmp_path / "table.xls").write_text("x")
    (tmp_path / "folder.nc").mkdir()
    with pytest.raises(UsageError, match=r"No file '.*nothing.nc'. Check the path"):
        read(tmp_path / "nothing.nc")
    with pytest.raises(DataError, match=r"table.xls' is of an unsupported kind \('.xls'\).*\.nc"):
        read(tmp_path / "table.xls")
    with pytest.raises(DataError, match=r"folder '.*folder.nc' holds no file that can be read"):
        read(tmp_path / "folder.nc")
    with pytest.raises(UsageError, match="Cannot read a int; expected a path"):
        read(7)


def test_the_name_of_a_data_set_gives_a_hint():
    for name in DATASETS:
        with pytest.raises(UsageError, match=rf"No file '{name}'.*stonet.open_dataset\('{name}'\)"):
            read(name)
    with pytest.raises(UsageError, match=r"No file 'wave.nc'. Check the path.$"):
        read("wave.nc")


NOT_TABLES = [
    lambda folder: str(folder / "a.nc"),
    lambda folder: field().to_xarray(),
    lambda folder: field(),
]


@pytest.mark.parametrize("source", NOT_TABLES)
def test_options_of_tables_are_noted_for_other_data(halves, source):
    """A time zone and a table of stations are checked, have no effect, and leave a note."""
    (halves / "places.txt").write_text("name,lat,lon\na,1,2\n")
    given = {"timezone": "Europe/Berlin", "stations": str(halves / "places.txt")}
    plain, noted = read(source(halves), points=3), read(source(halves), points=3, **given)
    assert np.array_equal(noted.times, plain.times) and noted.points == plain.points
    assert any("read.timezone and read.stations: without effect" in n for n in noted.notes)
    assert not any("without effect" in note for note in plain.notes)
    with pytest.raises(UsageError, match=r"Unknown time zone 'Europe/Berln'. Write e.g."):
        read(source(halves), timezone="Europe/Berln")
    with pytest.raises(UsageError, match=r"No file '.*none.csv'. Check the path of the table"):
        read(source(halves), stations=str(halves / "none.csv"))


def test_invalid_options_are_named():
    with pytest.raises(UsageError, match=r"Option colour = 'red' of read\(\) does not fit"):
        read(field().to_xarray(), colour="red")
