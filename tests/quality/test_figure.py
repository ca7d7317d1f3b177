"""The figure of a quality report shows what the report holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.weather_stations import STATIONS, with_value

from stonet.errors import DataError
from stonet.plotting.figures import png
from stonet.quality.figure import MAX_ROWS, merge_rows, quality_figure
from stonet.quality.report import check


def test_the_figure_shows_the_availability_of_every_station() -> None:
    field = with_value(np.nan, (slice(300, None), 3))
    report = check(field)
    figure = quality_figure(report, title="a check")
    stations, over_time = figure.axes[:2]
    assert len(stations.collections[0].get_offsets()) == STATIONS
    rows = over_time.images[0].get_array()
    assert rows.shape[0] == STATIONS
    assert rows[-1].mean() == pytest.approx(0.5, abs=0.02)  # the least complete record is last
    assert rows[-1, -10:].max() == 0 and rows[0].mean() > 0.97
    assert png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("nodes", [MAX_ROWS - 1, MAX_ROWS, MAX_ROWS + 1, 10 * MAX_ROWS + 7])
def test_merged_rows_keep_the_mean(nodes) -> None:
    rows = np.random.default_rng(0).uniform(size=(nodes, 4)).astype(np.float32)
    merged = merge_rows(rows)
    assert len(merged) == min(nodes, MAX_ROWS)
    np.testing.assert_allclose(merged.mean(0), rows.mean(0), atol=0.02)
    np.testing.assert_array_equal(merge_rows(np.ones_like(rows)), 1)


def test_data_that_cannot_be_read_cannot_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "broken.nc").write_bytes(b"not netcdf")
    with pytest.raises(DataError, match="nothing to draw"):
        quality_figure(check(tmp_path / "broken.nc"))
