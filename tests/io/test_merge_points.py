"""Points of many files: around the globe, with longitudes in either convention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.station_files import HOUR, make_source, merged

from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.io.lazy_source import LazySource, inside_box
from stonet.io.merge import shortest_decimals


def test_a_box_may_cross_the_date_line_in_either_convention() -> None:
    lon = np.array([170.0, 179, -179, 190, -170, 0, 359])
    points = Points(np.stack([np.zeros(7), lon], axis=1), "sphere")
    assert inside_box(points, (175.0, -1.0, -165.0, 1.0)).tolist() == [0, 1, 1, 1, 1, 0, 0]
    assert inside_box(points, (175.0, -1.0, 195.0, 1.0)).tolist() == [0, 1, 1, 1, 1, 0, 0]
    assert inside_box(points, (-5.0, -1.0, 5.0, 1.0)).tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert inside_box(points, (-180.0, -1.0, 180.0, 1.0)).all()
    with pytest.raises(UsageError, match="empty"):
        inside_box(points, (0.0, 5.0, 1.0, -5.0))


def test_the_edges_of_a_box_belong_to_it_in_any_precision() -> None:
    """A tenth of a degree is stored in float32 as a slightly smaller or larger number."""
    tenths = np.arange(-1800, 3601) / 10
    stored = tenths.astype(np.float32).astype(np.float64)
    for lon, value in zip(tenths[::7], stored[::7], strict=True):
        lat = float(np.clip(lon / 5, -89, 89))
        points = Points(np.array([[np.float32(lat), value]], np.float64), "sphere")
        assert inside_box(points, (lon, lat, lon + 1, lat + 1)).all()
        assert inside_box(points, (lon - 1, lat - 1, lon, lat)).all()
        assert not inside_box(points, (lon + 1e-4, lat, lon + 1, lat + 1)).any()
    plane = Points(np.array([[0.1, 0.7]], np.float32).astype(np.float64))
    assert inside_box(plane, (0.1, 0.0, 1.0, 0.7)).all()
    assert inside_box(plane, (0.0, 0.7, 0.1, np.inf)).tolist() == [False]  # no size, no tolerance
    assert not inside_box(plane, (0.1001, 0.0, 1.0, 1.0)).any()


def on_meridians(lon: np.ndarray, times: list[int], grid: bool = True) -> LazySource:
    """Values equal to the longitude from 0 to 360 degrees, in two rows; the second is a pole."""
    positions = np.array([(lat, east) for lat in (50.0, 90.0) for east in lon])
    values = np.round(np.tile(positions[:, 1] % 360, (len(times), 1)), 3)[..., None]
    return replace(
        make_source(times, "a", ("u",), np.empty((len(times), 1, 1))),
        points=Points(positions, "sphere"),
        frames=lambda start, stop: values[start:stop].astype(np.float32),
        named=False,
        grid=grid,
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_longitudes_of_both_conventions_are_merged(dtype: type) -> None:
    """No values of the second file are lost, and the convention of the first is kept."""
    eastwards = np.arange(0.1, 360, 12.5).astype(dtype).astype(np.float64)
    around = np.arange(0.1, 360, 12.5)
    around = np.sort(np.where(around > 180, around - 360, around)).astype(dtype).astype(np.float64)
    for first, second in ((eastwards, around), (around, eastwards)):
        field = merged([on_meridians(first, [0, 1]), on_meridians(second, [2, 3])])
        row = field.points.coordinates[:, 0] == 50
        assert np.array_equal(field.points.coordinates[row, 1], first)
        assert row.sum() + 1 == len(field.points)  # and the pole, once
        assert field.observed.all()
        assert (field.values[:, row, 0] == np.round(first % 360, 3).astype(np.float32)).all()


def test_new_points_follow_the_convention_of_the_first_file() -> None:
    west, east = (
        on_meridians(np.array([-20.0, -10]), [0]),
        on_meridians(np.array([340.0, 355]), [1]),
    )
    for parts, lon in (([west, east], [-20, -10, -5]), ([east, west], [340, 355, 350])):
        field = merged(parts)
        row = field.points.coordinates[:, 0] == 50
        assert field.points.coordinates[row, 1].tolist() == lon
        assert field.observed[:, row].sum() == 4


def test_a_grid_with_a_repeated_meridian_merges_with_one_without() -> None:
    closed = on_meridians(np.arange(0.0, 361, 90), [0])
    field = merged([closed, on_meridians(np.arange(-180.0, 180, 90), [1])])
    row = field.points.coordinates[:, 0] == 50
    assert field.points.coordinates[row, 1].tolist() == [0, 90, 180, 270]
    assert field.observed[:, row].all()


def test_coincident_points_stay_distinct_in_every_file() -> None:
    """With same_place=keep; the second file has one point less."""
    lon = np.array([180.0, -180.0])
    both = on_meridians(lon, [0], grid=False)
    less = replace(both.take(np.arange(3)), times=both.times + HOUR)
    kept = merged([both, less], same_place="keep")
    assert len(kept.points) == 4
    assert kept.observed[..., 0].sum(1).tolist() == [4, 3]


def test_a_station_may_have_either_longitude() -> None:
    source = make_source([0], "a", ("u",), [[[1]]])
    west, east, moved = (
        replace(
            source, times=source.times + n, points=Points(np.array([[50.0, lon]]), "sphere", ("a",))
        )
        for n, lon in enumerate((-10, 350, 340))
    )
    field = merged([west, east])
    assert list(field.points) == [("a", 50.0, -10.0)] and field.values.ravel().tolist() == [1, 1]
    with pytest.raises(
        DataError, match=r"station 'a' is at \[ 50. 340.\] here and at \[ 50. -10.\]"
    ):
        merged([west, moved])


def test_shortest_decimals_are_those_of_printed_numbers() -> None:
    """The same numbers as printing and parsing every float32, within the rounding of positions."""
    generator = np.random.default_rng(0)
    for values in (
        generator.uniform(-360, 360, 20_000),
        generator.uniform(-360, 360, 20_000).round(1),
        generator.uniform(-360, 360, 20_000).round(4),
        generator.uniform(-2e7, 2e7, 20_000),
    ):
        single = values.astype(np.float32)
        printed = single.astype(str).astype(np.float64)
        assert np.array_equal(np.round(shortest_decimals(single), 5), np.round(printed, 5))
    assert shortest_decimals(np.array([349.9, -0.1], np.float32)).tolist() == [349.9, -0.1]
