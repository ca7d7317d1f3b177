"""Many contents, one Field: equal to a dictionary that is filled cell by cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.small import small_dataset, small_field
from helpers.station_files import HOUR, content, joined
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError, UsageError
from stonet.io.accumulator import cells_at_once
from stonet.io.lazy_source import LazySource
from stonet.io.read import narrow, read
from stonet.system.spill import Room, parse_size, size_label

A_FILE = st.tuples(
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcdef"), min_size=1, unique=True).map("".join),
    st.lists(st.sampled_from(["u", "v"]), min_size=1, unique=True).map(tuple),
    st.integers(0, 9),
)


def contents_of(files: list[tuple]) -> list[LazySource]:
    """Files that overlap as they like but agree: a value is a function of its cell."""
    made = []
    for number, (times, names, channels, seed) in enumerate(files):
        values = [[[truth(t, n, c) for c in channels] for n in names] for t in times]
        cell = np.arange(np.size(values)).reshape(np.shape(values))
        array = np.where((cell * 7919 + seed) % 10 < 3, np.nan, values)
        array[:, 0, 0] = [truth(t, names[0], channels[0]) for t in times]  # someone is alive
        made.append(content(times, names, channels, array, f"file {number}"))
    return made


def truth(time: int, name: str, channel: str) -> float:
    return time + 100 * ord(name) + (0.5 if channel == "v" else 0)


@settings(max_examples=200)
@given(st.lists(A_FILE, min_size=1, max_size=4))
def test_a_field_holds_what_its_files_hold_and_nothing_else(files: list[tuple]) -> None:
    contents = contents_of(files)
    cells: dict[tuple[int, str, str], float] = {}
    for one in contents:
        for t, frame in zip(one.times, one.frames(0, len(one.times)), strict=True):
            for name, row in zip(one.points.names, frame, strict=True):
                for channel, value in zip(one.channels, row, strict=True):
                    if not np.isnan(value):
                        cells[int(t), name, channel] = float(value)
    field = joined(contents)
    found = {
        (int(field.times[t]), field.points.names[n], field.channels[c]): float(
            field.values[t, n, c]
        )
        for t, n, c in np.argwhere(field.observed)
    }
    assert found == cells
    assert (np.diff(field.times) > 0).all() and np.isnan(field.values[~field.observed]).all()
    shuffled = joined(contents[::-1])
    order = [shuffled.points.names.index(name) for name in field.points.names]
    assert np.array_equal(shuffled.observed.sum(), field.observed.sum())
    assert np.array_equal(shuffled.points.coordinates[order], field.points.coordinates)


def test_a_large_field_lives_on_disk_and_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).normal(size=(50, 4, 2))
    values[:, 2] = np.nan  # never observed: dropped
    values[3, 1] = np.nan
    contents = [content(list(range(50)), "abcd", ("u", "v"), values)]
    here = joined(contents)
    monkeypatch.setenv("STONET_MEMORY", "100")
    monkeypatch.setenv("STONET_CACHE", str(tmp_path))
    there = joined(contents)
    assert isinstance(there.values, np.memmap) and not isinstance(here.values, np.memmap)
    assert np.array_equal(here.values, there.values, equal_nan=True)
    assert np.array_equal(here.observed, there.observed)
    assert isinstance(there.between(10, 20).values, np.memmap)  # a part is not loaded either
    assert not list(tmp_path.iterdir())  # the file has no name: nothing is left behind
    with pytest.raises(ValueError, match="read-only"):
        there.values[0] = 1


def test_what_no_disk_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STONET_CACHE", str(tmp_path))
    with pytest.raises(ResourceError, match=r"5 EB.*--bbox"):
        Room(10**18, 5, "a field")


@pytest.mark.parametrize(("policy", "expected"), [("mean", 3.0), ("first", 1.0), ("last", 5.0)])
def test_values_given_twice_are_settled_as_wished(policy: str, expected: float) -> None:
    twice = content([0, 1, 1], "a", ("u",), [[[7]], [[1]], [[5]]])
    apart = [content([0, 1], "a", ("u",), [[[7]], [[1]]]), content([1], "a", ("u",), [[[5]]])]
    for contents in ([twice], apart):
        field = joined(contents, duplicates=policy)
        assert field.values[:, 0, 0].tolist() == [7, expected]
        assert "1 values were given more than once" in field.notes[-1]
        with pytest.raises(DataError, match=r"'u' at 'a', 1970-01-01T01:00:00Z: 1 and 5"):
            joined(contents)


def test_the_mean_of_many_is_their_mean() -> None:
    values = np.random.default_rng(1).normal(size=(9, 2, 1))
    field = joined([content([0] * 9, "ab", ("u",), values)], duplicates="mean")
    np.testing.assert_allclose(field.values[0], values.mean(0), rtol=1e-6)


def test_averages_around_whole_hours() -> None:
    """From half an hour before to half an hour after."""
    minutes = np.arange(-30, 150, 10)
    made = content([0], "a", ("u",), [[[0]]])
    made = replace(
        made,
        times=minutes * (HOUR // 60),
        frames=lambda a, b: minutes[a:b, None, None].astype(np.float32),
    )
    field = joined([made], every="1h")
    assert (field.times // HOUR).tolist() == [0, 1, 2]
    np.testing.assert_allclose(field.values[:, 0, 0], [-5, 55, 115])
    with pytest.raises(UsageError, match="too short"):
        joined([made], every="1us")


def test_an_average_has_no_first_and_no_last() -> None:
    for policy in ("first", "last"):
        with pytest.raises(UsageError, match=rf"read.every = '1h' averages .*there is no {policy}"):
            read(small_field(), every="1h", duplicates=policy)


def test_unsorted_times_are_sorted() -> None:
    field = joined([content([2, 0, 1], "ab", ("u",), [[[2], [2]], [[0], [0]], [[1], [1]]])])
    assert field.values[:, 1, 0].tolist() == [0, 1, 2]


@given(st.lists(st.sampled_from(["variables", "bbox", "start", "stop"]), unique=True))
def test_a_selection_is_what_is_left_of_the_whole(kinds: list[str]) -> None:
    options = {"variables": ("v",), "bbox": (6, 50.5, 30, 54), "start": "1970-01-01T02", "stop":
               "1970-01-01T05"}  # fmt: skip
    chosen = {kind: options[kind] for kind in kinds}
    values = np.random.default_rng(0).normal(size=(9, 6, 2))
    made = content(list(range(9)), "abcdef", ("u", "v"), values)
    field = joined([made], **chosen)
    keep_t = slice(2 if "start" in kinds else 0, 6 if "stop" in kinds else 9)
    keep_n = slice(1, 5) if "bbox" in kinds else slice(None)
    keep_c = slice(1, 2) if "variables" in kinds else slice(None)
    assert np.array_equal(field.values, values[keep_t, keep_n, keep_c].astype(np.float32))
    from_field = read(joined([made]), **chosen)
    assert np.array_equal(from_field.values, field.values, equal_nan=True)
    assert from_field.points == field.points and from_field.units == field.units


def test_times_that_are_not_in_one_piece_can_be_selected() -> None:
    made = content([5, 0, 3, 4, 1, 2], "a", ("u",), np.array([5, 0, 3, 4, 1, 2])[:, None, None])
    field = joined([made], start="1970-01-01T01", stop="1970-01-01T03")
    assert field.values[:, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variables": "w"}, "No variable 'w' in the data; there are: u, v"),
        ({"variables": "u,w"}, "No variable 'w'"),
        ({"bbox": (0, 0, 1, 1)}, r"lat 50 to 51, lon 0 to 7"),
        ({"start": "2020"}, "times 1970-01-01T00:00:00 to 1970-01-01T01:00:00"),
    ],
)
def test_a_selection_of_nothing_says_what_there_is(options: dict, message: str) -> None:
    made = content([0, 1], "ab", ("u", "v"), np.zeros((2, 2, 2)))
    with pytest.raises(UsageError, match=message):
        joined([made], **options)


def test_sampled_points_are_spread() -> None:
    """In every quarter of the square about a quarter of them."""
    places = np.random.default_rng(0).uniform(size=(4000, 2))
    field = Field(np.zeros((2, 4000, 1), np.float32), np.array([0, HOUR]), Points(places))
    some = read(field, points=100).points.coordinates
    quarters = np.bincount((some > 0.5) @ [1, 2], minlength=4)
    assert len(some) == 100 and quarters.min() >= 20
    assert len(read(field, points=9999).points) == 4000


def test_several_stations_at_one_place() -> None:
    made = content([0], "ab", ("u",), [[[1], [2]]])
    same = replace(made, points=Points(np.array([[50.0, 180], [50, -180]]), "sphere", ("a", "b")))
    with pytest.raises(DataError, match=r"'a' and 'b'.*read.same_place"):
        joined([same])
    assert joined([same], same_place="keep").values.ravel().tolist() == [1, 2]
    assert joined([same], same_place="first").points.names == ("a",)
    assert joined([replace(same, grid=True)]).points.names == ("a",)  # a grid's own seam


def test_a_moved_station_and_other_units_are_refused() -> None:
    made = content([0], "a", ("u",), [[[1]]])
    moved = replace(made, points=Points(np.array([[10.0, 10]]), "sphere", ("a",)), origin="g")
    with pytest.raises(DataError, match="'g': station 'a' is at"):
        joined([made, moved])
    with pytest.raises(DataError, match="'unit of u' in 'f' and in 'K' in 'g'"):
        joined([made, replace(made, units=("K",), origin="g")])
    plane = replace(made, points=Points(np.zeros((1, 2))), origin="g")
    with pytest.raises(DataError, match="cannot be joined"):
        joined([made, plane])


@pytest.mark.parametrize(
    "options", [{"points": 7}, {"bbox": (0, 0, 0.1, 0.1)}, {"variables": "v", "points": 7}]
)
def test_a_block_is_as_large_as_what_is_read_for_it(
    options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few points of many are wanted; all are read, so not many frames at a time."""
    monkeypatch.setenv("STONET_MEMORY", "1M")
    places = np.random.default_rng(0).uniform(size=(20_000, 2))
    blocks = []

    def frames(start: int, stop: int) -> np.ndarray:
        blocks.append(stop - start)
        return np.ones((stop - start, 20_000, 2), np.float32)

    made = content(list(range(9)), "a", ("u", "v"), np.empty((9, 1, 2)))
    joined([replace(made, points=Points(places), frames=frames, named=False, cells=0)], **options)
    assert sum(blocks) == 9 and max(blocks) == cells_at_once() // 40_000 == 1


def test_marks_for_missing_values() -> None:
    made = content([0, 1, 2], "a", ("u",), np.array([-9999, 999, 1])[:, None, None])
    assert joined([made]).observed.ravel().tolist() == [False, True, True]
    field = joined([made], missing="999")
    assert field.observed.ravel().tolist() == [False, False, True]
    assert "2 values equal to -9999, 999 count as missing" in field.notes[0]


def test_infinite_values_are_named_or_missing() -> None:
    made = content([0, 1], "a", ("u",), np.array([1, np.inf])[:, None, None])
    with pytest.raises(DataError, match=r"'u' at 'a', 1970-01-01T01:00:00Z.*read.infinite"):
        joined([made])
    assert joined([made], infinite="missing").observed.ravel().tolist() == [True, False]


def test_points_never_observed_are_dropped_and_told() -> None:
    values = np.array([[[1], [np.nan]], [[2], [np.nan]]])
    field = joined([content([0, 1], "ab", ("u",), values)])
    assert field.points.names == ("a",) and "1 of 2 points" in field.notes[0]
    with pytest.raises(DataError, match="every value is missing"):
        joined([content([0], "a", ("u",), [[[np.nan]]])])


def test_a_data_set_is_narrowed_with_its_held_out_points() -> None:
    dataset = small_dataset(unseen=5)
    half = narrow(dataset, ReadConfig(bbox=(0, 0, 0.5, 1)))
    names = {dataset.points.names[i] for i in dataset.unseen}
    inside = {n for n, x, _ in dataset.points if x <= 0.5}
    assert set(half.points.names) == inside
    assert {half.points.names[i] for i in half.unseen} == names & inside
    assert narrow(dataset, ReadConfig()) is dataset


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match=r"Option bbox = .*Options are: variables"):
        read(small_field(), bbox="1,2,3")
    with pytest.raises(UsageError, match="Option colour"):
        read(small_field(), colour="red")
    with pytest.raises(UsageError, match="Cannot read a int"):
        read(3)


def test_sizes() -> None:
    assert [parse_size(t) for t in ("100", "2k", "1.5 MB", "3GiB")] == [
        100, 2048, 1.5 * 2**20, 3 * 2**30,
    ]  # fmt: skip
    assert [size_label(n) for n in (0, 999, 1000, 5e12)] == ["0 bytes", "999 bytes", "1 kB", "5 TB"]
    with pytest.raises(UsageError, match="no size"):
        parse_size("much")
