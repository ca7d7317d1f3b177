"""Repeated rows give what adding them one by one gives, with a number of steps linear in them."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.io.accumulator import Accumulator
from stonet.io.lazy_source import LazySource
from stonet.io.read import read, read_config

POINTS = Points(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))


def random_source(seed: int) -> LazySource:
    """40 frames at 7 times in any order, half of the values missing."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, (40, 3, 2)).astype(np.float32)
    values[rng.uniform(size=values.shape) < 0.5] = np.nan
    times = rng.integers(0, 7, 40)
    return LazySource("x", times, POINTS, ("a", "b"), ("1", "1"), lambda i, j: values[i:j])


def one_by_one(sources: list[LazySource], how: str) -> np.ndarray:
    """The cells by a loop over every value."""
    given: dict[tuple[int, int, int], list[float]] = {}
    for source in sources:
        block = source.frames(0, len(source.times))
        for frame, node, channel in np.argwhere(~np.isnan(block)):
            cell = int(source.times[frame]), int(node), int(channel)
            given.setdefault(cell, []).append(float(block[frame, node, channel]))
    reduced = {"mean": np.mean, "first": lambda row: row[0], "last": lambda row: row[-1]}[how]
    cells = np.full((7, 3, 2), np.nan)
    for cell, row in given.items():
        cells[cell] = reduced(row)
    return cells


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_repeats_within_and_between_sources_are_reduced_as_one_by_one(how: str) -> None:
    sources = [random_source(seed) for seed in (0, 1)]
    config = read_config({"duplicates": how})
    cells = Accumulator(np.arange(7), POINTS, ("a", "b"), config, False)
    for source in sources:
        cells.add(source)
    cells.mark_missing()
    np.testing.assert_allclose(cells.values, one_by_one(sources, how), rtol=1e-6)
    present = sum(int((~np.isnan(s.frames(0, 40))).sum()) for s in sources)
    assert cells.repeated == present - int(cells.mask.sum())


def test_repeats_that_differ_are_refused_and_name_both_values() -> None:
    cells = Accumulator(np.arange(7), POINTS, ("a", "b"), read_config({}), False)
    with pytest.raises(DataError, match=r"given twice and differ \('[ab]' at '\d', .*: \d and \d"):
        cells.add(random_source(0))


def line_count(table: pd.DataFrame, **options: str) -> int:
    """Executed Python lines of reading a table."""
    lines = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        read(table, **options)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("how", ["refuse", "mean", "last"])
def test_equal_rows_take_no_steps_of_their_own(how: str) -> None:
    def repeated(count: int) -> pd.DataFrame:
        row = {"station": "a", "time": pd.Timestamp("2020", tz="UTC"), "lat": 1.0, "lon": 2.0}
        other = row | {"station": "b", "lat": 2.0}
        return pd.DataFrame([row | {"v": 3.0}] * count + [other | {"v": 4.0}])

    few, many = (line_count(repeated(count), duplicates=how) for count in (100, 4000))
    assert many < 1.5 * few
    field = read(repeated(1000), duplicates=how)
    assert field.values.ravel().tolist() == [3.0, 4.0] and any(
        "100" in n or "999" in n for n in field.notes
    )


def test_many_equal_rows_of_one_of_many_stations_make_no_frames() -> None:
    """300,000 repeats at one of 3,000 stations would be 900 million cells."""
    stations = [f"s{i}" for i in range(3000)]
    names = stations + ["s0"] * 300_000
    lat = pd.Series(names).map({name: i / 100 for i, name in enumerate(stations)})
    time = pd.Timestamp("2020", tz="UTC")
    table = pd.DataFrame({"station": names, "time": time, "lat": lat, "lon": 0.0, "v": 1.0})
    assert read(table).values.shape == (1, 3000, 1)
