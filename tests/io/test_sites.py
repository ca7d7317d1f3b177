"""Sites from pairs, tables and grids; errors name the entry or the file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.errors import DataError, UsageError
from stonet.io.sites import parse_sites


def test_sites_of_tables_and_pairs_keep_their_order(tmp_path):
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
    for entry in (f"{x!r},{y!r}", (x, y)):
        points = parse_sites([entry], "plane")
        assert np.array_equal(points.coordinates, [[x, y]]) and points.names == (f"{x!r},{y!r}",)


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
        ("", "is not a CSV table"),
        ("lat,lon\n1,2,3,4\n5,6\n7,8,9,1,2\n", "is not a CSV table"),
    ],
)
def test_invalid_tables_are_refused(tmp_path, content, message):
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
def test_invalid_grids_are_refused(entry):
    with pytest.raises(UsageError, match=r"is not a grid; write grid:STEP \(on the sphere\) or"):
        parse_sites([f"grid:{entry}"], "sphere")


def test_a_grid_on_a_plane_needs_a_box():
    with pytest.raises(UsageError, match=r"'grid:1' is not a grid"):
        parse_sites(["grid:1"], "plane")


@pytest.mark.parametrize("entry", ["Lausanne", "1", "1,2,3", "1;2", ""])
def test_invalid_pairs_are_refused(entry):
    with pytest.raises(
        UsageError, match=rf"'{entry}' is not a position; write lat,lon, e.g. '46.52,6.63'"
    ):
        parse_sites([entry], "sphere")


def test_invalid_paths_of_sites_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"No file '.*nothing.csv'. Check the path given to --at"):
        parse_sites([str(tmp_path / "nothing.csv")], "sphere")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is not a CSV table"):
        parse_sites([str(tmp_path / "folder.csv")], "sphere")
