"""Coastlines and borders: truths of geography, clipping, and the file itself."""

import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stonet.errors import UsageError
from stonet.plotting import natural_earth
from stonet.plotting.natural_earth import clipped, lines

WORLD = (-180.0, -90.0, 180.0, 90.0)
BOXES = [WORLD, (-75, -35, -33, 7), (5.5, 45.5, 10.5, 48), (160, -50, 200, 75), (-10, 30, 40, 70)]


def nearest_km(kind, lat, lon):
    """Distance of a place to the nearest line in a box of four degrees."""
    scale = np.array([np.cos(np.deg2rad(lat)), 1.0])
    nearest = np.inf
    for line in lines(kind, (lon - 2, lat - 2, lon + 2, lat + 2), tolerance=0.012):
        share = np.linspace(0, 1, 51)[:, None, None]
        points = (1 - share) * line[:-1] + share * line[1:]
        nearest = min(nearest, np.linalg.norm((points - (lon, lat)) * scale, axis=-1).min())
    return 111.2 * nearest


@pytest.mark.parametrize(
    ("kind", "lat", "lon"),
    [
        ("coast", 50.066, -5.715),  # Land's End
        ("coast", -34.357, 18.472),  # Cape of Good Hope
        ("coast", 36.000, -5.610),  # Tarifa
        ("border", 47.27, 9.53),  # Liechtenstein's corner at the Rhine
        ("border", 49.0, -110.0),  # the 49th parallel
    ],
)
def test_known_places_lie_on_the_lines(kind, lat, lon):
    assert nearest_km(kind, lat, lon) < 15.0


@pytest.mark.parametrize("kind", ["coast", "border"])
@pytest.mark.parametrize("box", BOXES)
def test_lines_stay_in_their_box_without_jumps(kind, box):
    for line in lines(kind, box):
        assert line.ndim == 2 and line.shape[1] == 2 and len(line) >= 2
        assert (line >= np.array(box[:2])).all() and (line <= np.array(box[2:])).all()
        assert np.abs(np.diff(line[:, 0])).max() < 40.0


def test_a_box_across_the_date_line_is_the_two_boxes_at_its_sides():
    whole, east = (
        lines("coast", (170, -50, 190, -30), 0.06),
        lines("coast", (170, -50, 180, -30), 0.06),
    )
    west = lines("coast", (-180, -50, -170, -30), 0.06)
    assert length(whole) == pytest.approx(length(east) + length(west))
    for same in ((170, -50, -170, -30), (-190, -50, -170, -30)):
        assert length(lines("coast", same, 0.06)) == pytest.approx(length(whole))


def length(found):
    return sum(float(np.hypot(*np.diff(line, axis=0).T).sum()) for line in found)


def test_no_artificial_lines_at_the_date_line_and_the_pole():
    for line in lines("coast", WORLD, tolerance=0.012):
        on_edge = np.abs(line[:, 0]) > 179.99
        assert not (on_edge[:-1] & on_edge[1:] & (np.abs(np.diff(line[:, 1])) > 0.3)).any()
        assert line[:, 1].min() > -89.0


def test_a_finer_tolerance_gives_more_points_and_a_longer_coast():
    found = [lines("coast", (-10, 50, 2, 60), tolerance) for tolerance in (0.25, 0.06, 0.012)]
    assert len({sum(map(len, part)) for part in found}) == 3
    assert length(found[0]) < length(found[1]) < length(found[2])


@given(st.integers(0, 10_000))
def test_clipping_keeps_exactly_what_is_inside(seed):
    """The length of the parts is that of the line's finely sampled points inside the box."""
    line = np.random.default_rng(seed).uniform(-2, 2, (12, 2))
    low, high = np.array([-1.0, -0.7]), np.array([0.8, 1.0])
    share = np.linspace(0, 1, 2001)[:-1] + 1 / 4000
    dense = line[:-1, None] + share[:, None] * np.diff(line, axis=0)[:, None]
    inside = ((dense >= low) & (dense <= high)).all(axis=2).mean(axis=1)
    expected = (inside * np.hypot(*np.diff(line, axis=0).T)).sum()
    assert length(clipped(line, low, high)) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "box"),
    [
        ("lake", WORLD),
        ("coast", (0, 10, 20, 5)),
        ("coast", (0, 0, np.nan, 5)),
        ("coast", (3, 0, 3, 1)),
    ],
)
def test_unknown_kinds_and_empty_boxes_are_refused(kind, box):
    with pytest.raises(UsageError):
        lines(kind, box)


def test_the_file_is_small_and_holds_numbers_only():
    assert natural_earth.FILE.stat().st_size < 350_000
    assert natural_earth.FILE.with_suffix(".txt").read_text().count("public domain")
    with zipfile.ZipFile(natural_earth.FILE) as archive:
        assert sum(member.file_size for member in archive.infolist()) < 2_000_000
