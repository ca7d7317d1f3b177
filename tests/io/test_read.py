"""Files in, Fields and Points out; whatever is wrong with a file, the message names it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.datasets import DATASETS
from stonet.errors import DataError, UsageError
from stonet.io.read import read
from stonet.io.sites import parse_sites


def field() -> Field:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(5, 3, 1)).astype(np.float32)
    values[2, 1] = np.nan
    points = Points(generator.uniform(-50, 50, (3, 2)), "sphere", ("a", "b", "c"))
    return Field(values, 10**9 * np.arange(5), points)


# Files, folders, patterns, lists


@pytest.fixture
def halves(tmp_path):
    """Two files that follow one another in time, and a third of another kind."""
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
def test_parts_of_one_field_are_joined(halves, source):
    found, expected = read(source(halves)), field()
    assert np.array_equal(found.values, expected.values, equal_nan=True)
    assert np.array_equal(found.observed, expected.observed)
    assert np.array_equal(found.times, expected.times)
    assert found.points == expected.points


def test_a_field_is_read_as_itself():
    whole = field()
    assert read(whole) is whole


def test_wrong_paths_are_refused(tmp_path):
    (tmp_path / "table.xls").write_text("x")
    (tmp_path / "folder.nc").mkdir()
    with pytest.raises(UsageError, match=r"No file '.*nothing.nc'. Check the path"):
        read(tmp_path / "nothing.nc")
    with pytest.raises(
        DataError, match=r"table.xls' is of a kind that is not read \('.xls'\).*\.nc"
    ):
        read(tmp_path / "table.xls")
    with pytest.raises(DataError, match=r"folder '.*folder.nc' holds no file that can be read"):
        read(tmp_path / "folder.nc")
    with pytest.raises(UsageError, match="Cannot read a int; expected a path"):
        read(7)


def test_the_name_of_a_data_set_is_told_how_to_open_it():
    for name in DATASETS:
        with pytest.raises(UsageError, match=rf"No file '{name}'.*stonet.open_dataset\('{name}'\)"):
            read(name)
    with pytest.raises(UsageError, match=r"No file 'wave.nc'. Check the path.$"):
        read("wave.nc")


NO_TABLES = [
    lambda folder: str(folder / "a.nc"),
    lambda folder: field().to_xarray(),
    lambda folder: field(),
]


@pytest.mark.parametrize("source", NO_TABLES)
def test_what_only_tables_heed_is_checked_and_told_elsewhere(halves, source):
    """A zone and a table of places change nothing here, and nobody is left to believe they do."""
    (halves / "places.txt").write_text("name,lat,lon\na,1,2\n")
    given = {"timezone": "Europe/Berlin", "stations": str(halves / "places.txt")}
    plain, found = read(source(halves), points=3), read(source(halves), points=3, **given)
    assert np.array_equal(found.times, plain.times) and found.points == plain.points
    assert "read.timezone and read.stations: of no effect on data that are no table." in found.notes
    assert not any("no effect" in note for note in plain.notes)
    with pytest.raises(UsageError, match=r"Unknown time zone 'Europe/Berln'. Write e.g."):
        read(source(halves), timezone="Europe/Berln")
    with pytest.raises(UsageError, match=r"No file '.*none.csv'. Check the path of the table"):
        read(source(halves), stations=str(halves / "none.csv"))


def test_wrong_options_are_named():
    with pytest.raises(UsageError, match=r"Option colour = 'red' of read\(\) does not fit"):
        read(field().to_xarray(), colour="red")


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


def test_a_grid_covers_the_globe_once_or_a_box_with_its_edges():
    globe = parse_sites(["grid:30"], "sphere").coordinates
    assert len(globe) == len({tuple(row) for row in globe.tolist()}) == 7 * 12
    assert globe.min(0).tolist() == [-90, -180] and globe.max(0).tolist() == [90, 150]
    box = parse_sites(["grid:0.1,-10,50,-9.5,50.3"], "sphere").coordinates
    assert len(box) == 6 * 4 and np.allclose(box[[0, -1]], [[50, -10], [50.3, -9.5]])
    plane = parse_sites(["grid:1,0,10,2,11"], "plane").coordinates
    assert plane.tolist() == [[0, 10], [1, 10], [2, 10], [0, 11], [1, 11], [2, 11]]


@pytest.mark.parametrize("entry", ["0", "-1", "x", "1,2,3", "1,2,3,1,5", "1e-9", "nan", "", "inf"])
def test_what_is_no_grid_is_refused(entry):
    with pytest.raises(UsageError, match=r"is no grid; write grid:STEP \(on the sphere\) or"):
        parse_sites([f"grid:{entry}"], "sphere")


def test_a_plane_has_no_grid_without_a_box():
    with pytest.raises(UsageError, match=r"'grid:1' is no grid"):
        parse_sites(["grid:1"], "plane")


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
