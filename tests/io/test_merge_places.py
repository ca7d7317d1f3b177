"""Where the points of many files are: around the globe, in either way of writing longitudes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.station_files import HOUR, content, joined

from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.io.lazy_source import LazySource, inside_box


def test_a_box_may_cross_the_date_line_and_any_longitude_will_do() -> None:
    lon = np.array([170.0, 179, -179, 190, -170, 0, 359])
    points = Points(np.stack([np.zeros(7), lon], axis=1), "sphere")
    assert inside_box(points, (175.0, -1.0, -165.0, 1.0)).tolist() == [0, 1, 1, 1, 1, 0, 0]
    assert inside_box(points, (175.0, -1.0, 195.0, 1.0)).tolist() == [0, 1, 1, 1, 1, 0, 0]
    assert inside_box(points, (-5.0, -1.0, 5.0, 1.0)).tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert inside_box(points, (-180.0, -1.0, 180.0, 1.0)).all()
    with pytest.raises(UsageError, match="empty"):
        inside_box(points, (0.0, 5.0, 1.0, -5.0))


def test_the_edges_of_a_box_belong_to_it_whatever_the_precision() -> None:
    """A tenth of a degree is stored in float32 as a little less, or a little more."""
    tenths = np.arange(-1800, 3601) / 10
    stored = tenths.astype(np.float32).astype(np.float64)
    for lon, there in zip(tenths[::7], stored[::7], strict=True):
        lat = float(np.clip(lon / 5, -89, 89))
        points = Points(np.array([[np.float32(lat), there]], np.float64), "sphere")
        assert inside_box(points, (lon, lat, lon + 1, lat + 1)).all()
        assert inside_box(points, (lon - 1, lat - 1, lon, lat)).all()
        assert not inside_box(points, (lon + 1e-4, lat, lon + 1, lat + 1)).any()
    plane = Points(np.array([[0.1, 0.7]], np.float32).astype(np.float64))
    assert inside_box(plane, (0.1, 0.0, 1.0, 0.7)).all()
    assert inside_box(plane, (0.0, 0.7, 0.1, np.inf)).tolist() == [False]  # no size, no slack
    assert not inside_box(plane, (0.1001, 0.0, 1.0, 1.0)).any()


def on_meridians(lon: np.ndarray, times: list[int], grid: bool = True) -> LazySource:
    """A value is the longitude from 0 to 360 degrees, in two rows; the second one is a pole."""
    places = np.array([(lat, east) for lat in (50.0, 90.0) for east in lon])
    values = np.round(np.tile(places[:, 1] % 360, (len(times), 1)), 3)[..., None]
    return replace(
        content(times, "a", ("u",), np.empty((len(times), 1, 1))),
        points=Points(places, "sphere"),
        frames=lambda start, stop: values[start:stop].astype(np.float32),
        named=False,
        grid=grid,
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_longitudes_to_360_and_negative_ones_are_the_same(dtype: type) -> None:
    """The second file's values are not lost, and the first one's way of writing stays."""
    eastwards = np.arange(0.1, 360, 12.5).astype(dtype).astype(np.float64)
    around = np.arange(0.1, 360, 12.5)
    around = np.sort(np.where(around > 180, around - 360, around)).astype(dtype).astype(np.float64)
    for first, second in ((eastwards, around), (around, eastwards)):
        field = joined([on_meridians(first, [0, 1]), on_meridians(second, [2, 3])])
        row = field.points.coordinates[:, 0] == 50
        assert np.array_equal(field.points.coordinates[row, 1], first)
        assert row.sum() + 1 == len(field.points)  # and the pole, once
        assert field.observed.all()
        assert (field.values[:, row, 0] == np.round(first % 360, 3).astype(np.float32)).all()


def test_points_that_are_new_in_the_second_file_are_written_as_in_the_first() -> None:
    west, east = (
        on_meridians(np.array([-20.0, -10]), [0]),
        on_meridians(np.array([340.0, 355]), [1]),
    )
    for parts, lon in (([west, east], [-20, -10, -5]), ([east, west], [340, 355, 350])):
        field = joined(parts)
        row = field.points.coordinates[:, 0] == 50
        assert field.points.coordinates[row, 1].tolist() == lon
        assert field.observed[:, row].sum() == 4


def test_a_grid_that_closes_its_circle_joins_one_that_does_not() -> None:
    closed = on_meridians(np.arange(0.0, 361, 90), [0])
    field = joined([closed, on_meridians(np.arange(-180.0, 180, 90), [1])])
    row = field.points.coordinates[:, 0] == 50
    assert field.points.coordinates[row, 1].tolist() == [0, 90, 180, 270]
    assert field.observed[:, row].all()


def test_points_at_one_place_stay_apart_in_every_file() -> None:
    """Where they are to be kept; the second file has one of them less."""
    lon = np.array([180.0, -180.0])
    both = on_meridians(lon, [0], grid=False)
    less = replace(both.take(np.arange(3)), times=both.times + HOUR)
    kept = joined([both, less], same_place="keep")
    assert len(kept.points) == 4
    assert kept.observed[..., 0].sum(1).tolist() == [4, 3]


def test_a_station_may_be_written_in_either_way() -> None:
    made = content([0], "a", ("u",), [[[1]]])
    west, east, moved = (
        replace(
            made, times=made.times + n, points=Points(np.array([[50.0, lon]]), "sphere", ("a",))
        )
        for n, lon in enumerate((-10, 350, 340))
    )
    field = joined([west, east])
    assert list(field.points) == [("a", 50.0, -10.0)] and field.values.ravel().tolist() == [1, 1]
    with pytest.raises(
        DataError, match=r"station 'a' is at \[ 50. 340.\] here and at \[ 50. -10.\]"
    ):
        joined([west, moved])
