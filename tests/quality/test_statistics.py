"""Statistics of one pass equal loops over the series, for any block size."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from helpers.weather_stations import HOUR, START, valid_field, with_value

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.quality.checks import CheckInput, Finding
from stonet.quality.report import CHECKS


@pytest.mark.parametrize("block", [1, 300, 2**21])
def test_statistics_equal_a_loop_over_every_series_for_any_block_size(block) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, (90, 5, 2)).astype(np.float32)  # many repeats, many zeros
    values[rng.uniform(size=values.shape) < 0.3] = np.nan
    values[20:50, 1], values[:, 2, 1] = np.nan, np.nan
    field = Field(values, HOUR * np.arange(90), Points(rng.uniform(size=(5, 2))), ("a", "b"))
    found = CheckInput.of(field, block=block).statistics
    for n in range(5):
        for c in range(2):
            series = values[:, n, c]
            at = np.flatnonzero(~np.isnan(series)).tolist()
            assert found.count[n, c] == len(at)
            assert (found.first[n, c], found.last[n, c]) == ((at[0], at[-1]) if at else (-1, -1))
            if not at:
                continue
            assert found.zeros[n, c] == (series == 0).sum()
            assert (found.low[n, c], found.high[n, c]) == (np.nanmin(series), np.nanmax(series))
            assert found.low_at[n, c] == np.nanargmin(series)
            gaps = {b: b - a - 1 for a, b in pairwise(at)}
            assert found.gap[n, c] == max(gaps.values())
            assert gaps[int(found.gap_end[n, c])] == found.gap[n, c]
            run, longest = 0, 0
            for t in range(1, 90):
                run = run + 1 if series[t] == series[t - 1] and series[t] != 0 else 0
                longest = max(longest, run)
            assert found.flat[n, c] == longest
    np.testing.assert_allclose(found.reporting, (~np.isnan(values)).any(2).mean(1), rtol=1e-6)
    np.testing.assert_allclose(
        found.availability.mean(0), (~np.isnan(values)).mean((0, 2)), rtol=1e-5
    )


def findings(data: CheckInput) -> list[Finding]:
    return [finding for run_check in CHECKS for finding in run_check(data)]


def test_findings_do_not_depend_on_the_block_size() -> None:
    field = with_value(-999.0, (slice(50, 60), 11, 0))
    expected = findings(CheckInput.of(field))
    assert expected and findings(CheckInput.of(field, block=1_000)) == expected


def test_a_field_larger_than_memory_is_checked_in_blocks(tmp_path) -> None:
    shape = (40_000, 50, 2)
    values = np.memmap(tmp_path / "values", np.float32, "w+", shape=shape)
    mask = np.memmap(tmp_path / "mask", bool, "w+", shape=shape)
    values[:] = np.random.default_rng(0).normal(size=(40_000, 1, 1))
    mask[:] = True
    model = valid_field(stations=50).take(np.arange(50))
    parts = {"values": values, "mask": mask, "times": START + HOUR * np.arange(shape[0])}
    parts |= {"channels": ("a", "b"), "units": ("1", "1")}
    field = Field.trusted(**(vars(model) | parts))
    tracemalloc.start()
    findings(CheckInput.of(field, max_sample=2**15, block=2**15))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes / 2
