"""Sources of many files merge into one Field, equal to a dictionary filled cell by cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.small import small_dataset, small_field
from helpers.station_files import HOUR, make_source, merged
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.io.accumulator import block_cells
from stonet.io.lazy_source import LazySource
from stonet.io.read import narrow, read

A_FILE = st.tuples(
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcdef"), min_size=1, unique=True).map("".join),
    st.lists(st.sampled_from(["u", "v"]), min_size=1, unique=True).map(tuple),
    st.integers(0, 9),
)


def agreeing_sources(files: list[tuple]) -> list[LazySource]:
    """Sources that may overlap but agree: a value is a function of its cell."""
    sources = []
    for number, (times, names, channels, seed) in enumerate(files):
        values = [[[value_of(t, n, c) for c in channels] for n in names] for t in times]
        cell = np.arange(np.size(values)).reshape(np.shape(values))
        array = np.where((cell * 7919 + seed) % 10 < 3, np.nan, values)
        array[:, 0, 0] = [value_of(t, names[0], channels[0]) for t in times]  # at least one value
        sources.append(make_source(times, names, channels, array, f"file {number}"))
    return sources


def value_of(time: int, name: str, channel: str) -> float:
    return time + 100 * ord(name) + (0.5 if channel == "v" else 0)


@settings(max_examples=200)
@given(st.lists(A_FILE, min_size=1, max_size=4))
def test_a_field_has_exactly_the_values_of_its_files(files: list[tuple]) -> None:
    sources = agreeing_sources(files)
    cells: dict[tuple[int, str, str], float] = {}
    for source in sources:
        for t, frame in zip(source.times, source.frames(0, len(source.times)), strict=True):
            for name, row in zip(source.points.names, frame, strict=True):
                for channel, value in zip(source.channels, row, strict=True):
                    if not np.isnan(value):
                        cells[int(t), name, channel] = float(value)
    field = merged(sources)
    merged_cells = {
        (int(field.times[t]), field.points.names[n], field.channels[c]): float(
            field.values[t, n, c]
        )
        for t, n, c in np.argwhere(field.observed)
    }
    assert merged_cells == cells
    assert (np.diff(field.times) > 0).all() and np.isnan(field.values[~field.observed]).all()
    shuffled = merged(sources[::-1])
    order = [shuffled.points.names.index(name) for name in field.points.names]
    assert np.array_equal(shuffled.observed.sum(), field.observed.sum())
    assert np.array_equal(shuffled.points.coordinates[order], field.points.coordinates)


def test_a_large_field_is_stored_on_disk_with_the_same_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).normal(size=(50, 4, 2))
    values[:, 2] = np.nan  # never observed: dropped
    values[3, 1] = np.nan
    sources = [make_source(list(range(50)), "abcd", ("u", "v"), values)]
    in_memory = merged(sources)
    monkeypatch.setenv("STONET_MEMORY", "100")
    monkeypatch.setenv("STONET_CACHE", str(tmp_path))
    on_disk = merged(sources)
    assert isinstance(on_disk.values, np.memmap) and not isinstance(in_memory.values, np.memmap)
    np.testing.assert_array_equal(in_memory.values, on_disk.values)
    assert np.array_equal(in_memory.observed, on_disk.observed)
    assert isinstance(on_disk.between(10, 20).values, np.memmap)  # a part is not loaded
    assert not list(tmp_path.iterdir())  # the file has no name
    with pytest.raises(ValueError, match="read-only"):
        on_disk.values[0] = 1


@pytest.mark.parametrize(("policy", "expected"), [("mean", 3.0), ("first", 1.0), ("last", 5.0)])
def test_repeated_values_are_resolved_as_configured(policy: str, expected: float) -> None:
    twice = make_source([0, 1, 1], "a", ("u",), [[[7]], [[1]], [[5]]])
    apart = [
        make_source([0, 1], "a", ("u",), [[[7]], [[1]]]),
        make_source([1], "a", ("u",), [[[5]]]),
    ]
    for sources in ([twice], apart):
        field = merged(sources, duplicates=policy)
        assert field.values[:, 0, 0].tolist() == [7, expected]
        assert "1 values were given more than once" in field.notes[-1]
        with pytest.raises(DataError, match=r"'u' at 'a', 1970-01-01T01:00:00Z: 1 and 5"):
            merged(sources)


def test_repeated_values_are_averaged() -> None:
    values = np.random.default_rng(1).normal(size=(9, 2, 1))
    field = merged([make_source([0] * 9, "ab", ("u",), values)], duplicates="mean")
    np.testing.assert_allclose(field.values[0], values.mean(0), rtol=1e-6)


def test_values_are_averaged_around_hours() -> None:
    """Over half an hour before to half an hour after."""
    minutes = np.arange(-30, 150, 10)
    source = make_source([0], "a", ("u",), [[[0]]])
    source = replace(
        source,
        times=minutes * (HOUR // 60),
        frames=lambda a, b: minutes[a:b, None, None].astype(np.float32),
    )
    field = merged([source], every="1h")
    assert (field.times // HOUR).tolist() == [0, 1, 2]
    np.testing.assert_allclose(field.values[:, 0, 0], [-5, 55, 115])
    with pytest.raises(UsageError, match="too short"):
        merged([source], every="1us")


def test_averaging_excludes_first_and_last() -> None:
    for policy in ("first", "last"):
        with pytest.raises(UsageError, match=rf"read.every = '1h' averages .*there is no {policy}"):
            read(small_field(), every="1h", duplicates=policy)


def test_unsorted_times_are_sorted() -> None:
    field = merged([make_source([2, 0, 1], "ab", ("u",), [[[2], [2]], [[0], [0]], [[1], [1]]])])
    assert field.values[:, 1, 0].tolist() == [0, 1, 2]


@given(st.lists(st.sampled_from(["variables", "bbox", "start", "stop"]), unique=True))
def test_a_selection_equals_a_part_of_the_complete_field(kinds: list[str]) -> None:
    options = {"variables": ("v",), "bbox": (6, 50.5, 30, 54), "start": "1970-01-01T02", "stop":
               "1970-01-01T05"}  # fmt: skip
    chosen = {kind: options[kind] for kind in kinds}
    values = np.random.default_rng(0).normal(size=(9, 6, 2))
    source = make_source(list(range(9)), "abcdef", ("u", "v"), values)
    field = merged([source], **chosen)
    keep_t = slice(2 if "start" in kinds else 0, 6 if "stop" in kinds else 9)
    keep_n = slice(1, 5) if "bbox" in kinds else slice(None)
    keep_c = slice(1, 2) if "variables" in kinds else slice(None)
    np.testing.assert_array_equal(field.values, values[keep_t, keep_n, keep_c].astype(np.float32))
    from_field = read(merged([source]), **chosen)
    np.testing.assert_array_equal(from_field.values, field.values)
    assert from_field.points == field.points and from_field.units == field.units


def test_frames_that_are_not_consecutive_can_be_selected() -> None:
    source = make_source(
        [5, 0, 3, 4, 1, 2], "a", ("u",), np.array([5, 0, 3, 4, 1, 2])[:, None, None]
    )
    field = merged([source], start="1970-01-01T01", stop="1970-01-01T03")
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
def test_an_empty_selection_names_what_is_available(options: dict, message: str) -> None:
    source = make_source([0, 1], "ab", ("u", "v"), np.zeros((2, 2, 2)))
    with pytest.raises(UsageError, match=message):
        merged([source], **options)


def test_sampled_points_are_spread() -> None:
    """About a quarter of them in every quarter of the square."""
    positions = np.random.default_rng(0).uniform(size=(4000, 2))
    field = Field(np.zeros((2, 4000, 1), np.float32), np.array([0, HOUR]), Points(positions))
    chosen = read(field, points=100).points.coordinates
    quarters = np.bincount((chosen > 0.5) @ [1, 2], minlength=4)
    assert len(chosen) == 100 and quarters.min() >= 20
    assert len(read(field, points=9999).points) == 4000


def test_coincident_stations_are_refused_kept_or_dropped() -> None:
    source = make_source([0], "ab", ("u",), [[[1], [2]]])
    same = replace(source, points=Points(np.array([[50.0, 180], [50, -180]]), "sphere", ("a", "b")))
    with pytest.raises(DataError, match=r"'a' and 'b'.*read.same_place"):
        merged([same])
    assert merged([same], same_place="keep").values.ravel().tolist() == [1, 2]
    assert merged([same], same_place="first").points.names == ("a",)
    assert merged([replace(same, grid=True)]).points.names == ("a",)  # the seam of a grid


def test_a_moved_station_and_other_units_are_refused() -> None:
    source = make_source([0], "a", ("u",), [[[1]]])
    moved = replace(source, points=Points(np.array([[10.0, 10]]), "sphere", ("a",)), origin="g")
    with pytest.raises(DataError, match="'g': station 'a' is at"):
        merged([source, moved])
    with pytest.raises(DataError, match="'unit of u' in 'f' and in 'K' in 'g'"):
        merged([source, replace(source, units=("K",), origin="g")])
    plane = replace(source, points=Points(np.zeros((1, 2))), origin="g")
    with pytest.raises(DataError, match="cannot be merged"):
        merged([source, plane])


@pytest.mark.parametrize(
    "options", [{"points": 7}, {"bbox": (0, 0, 0.1, 0.1)}, {"variables": "v", "points": 7}]
)
def test_the_size_of_a_block_counts_all_values_that_are_read(
    options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All points of a frame are read to select some, so few frames are read at a time."""
    monkeypatch.setenv("STONET_MEMORY", "1M")
    positions = np.random.default_rng(0).uniform(size=(20_000, 2))
    blocks = []

    def frames(start: int, stop: int) -> np.ndarray:
        blocks.append(stop - start)
        return np.ones((stop - start, 20_000, 2), np.float32)

    source = make_source(list(range(9)), "a", ("u", "v"), np.empty((9, 1, 2)))
    merged(
        [replace(source, points=Points(positions), frames=frames, named=False, cells=0)], **options
    )
    assert sum(blocks) == 9 and max(blocks) == block_cells() // 40_000 == 1


def test_sentinels_are_missing_values() -> None:
    source = make_source([0, 1, 2], "a", ("u",), np.array([-9999, 999, 1])[:, None, None])
    assert merged([source]).observed.ravel().tolist() == [False, True, True]
    field = merged([source], missing="999")
    assert field.observed.ravel().tolist() == [False, False, True]
    assert "2 values equal to -9999, 999 count as missing" in field.notes[0]


def test_infinite_values_are_refused_or_missing() -> None:
    source = make_source([0, 1], "a", ("u",), np.array([1, np.inf])[:, None, None])
    with pytest.raises(DataError, match=r"'u' at 'a', 1970-01-01T01:00:00Z.*read.infinite"):
        merged([source])
    assert merged([source], infinite="missing").observed.ravel().tolist() == [True, False]


def test_points_without_values_are_dropped_with_a_note() -> None:
    values = np.array([[[1], [np.nan]], [[2], [np.nan]]])
    field = merged([make_source([0, 1], "ab", ("u",), values)])
    assert field.points.names == ("a",) and "1 of 2 points" in field.notes[0]
    with pytest.raises(DataError, match="every value is missing"):
        merged([make_source([0], "a", ("u",), [[[np.nan]]])])


def test_a_narrowed_data_set_keeps_its_unseen_points() -> None:
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
