"""Plots of an estimator show its own forecasts, observations and scores."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.small import QUICK, small_dataset, small_field
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure

from stonet.data.field import Field
from stonet.data.grid import Grid
from stonet.errors import UsageError
from stonet.estimator import STONet
from stonet.evaluation.metrics import find
from stonet.reporting.issued import map_grid

ISSUE = "2026-03-05T00"


@pytest.fixture(scope="module")
def model() -> STONet:
    return STONet(preset="tiny", settings=QUICK).fit(small_dataset(unseen=4))


@pytest.fixture(scope="module")
def field() -> Field:
    return small_field()


def test_the_map_is_the_forecast_at_the_grid(model: STONet, field: Field) -> None:
    axes = model.plot_map(field, lead="+2h", grid=0.25)
    grid = map_grid(field.points, 0.25)
    made = model.predict(field, at=grid, times="+2h", snap=False)
    cells = Grid.of(grid)
    assert cells is not None
    (mesh,) = [part for part in axes.collections if isinstance(part, QuadMesh)]
    drawn = np.ma.filled(mesh.get_array(), np.nan)
    expected = cells.scatter(made.values[0, :, 0].astype(np.float64))
    supported = np.isfinite(drawn)
    assert supported.any()
    np.testing.assert_allclose(drawn[supported], expected[supported], rtol=1e-5)
    beyond = cells.scatter(made.sites["support"]) == 2.0
    np.testing.assert_array_equal(~supported, beyond)


def test_stations_of_a_past_issue_have_their_observations(model: STONet, field: Field) -> None:
    axes = model.plot_map(field, lead="+2h", issue=ISSUE, grid=0.25)
    dots = next(part for part in axes.collections if isinstance(part, PathCollection))
    observed = field.sel(time="2026-03-05T02").values[0, :, 0]
    np.testing.assert_allclose(dots.get_array(), observed[np.isfinite(observed)])
    assert "observed" in axes.get_title()


def test_a_forecast_of_the_past_uses_nothing_later(model: STONet, field: Field) -> None:
    cut = field.sel(time=slice(None, ISSUE))
    late, early = (
        model.plot_series(data, at="3", issue=ISSUE).get_lines()[0].get_ydata()
        for data in (field, cut)
    )
    np.testing.assert_array_equal(late, early)


def test_series_show_past_forecast_and_truth(model: STONet, field: Field) -> None:
    axes = model.plot_series(field, at="3", issue=ISSUE)
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
    start = int(np.flatnonzero(field.times == field.sel(time=ISSUE).times[0])[0])
    past, horizon = model.trained.time_spec.past, model.trained.time_spec.horizon
    values = field.values[:, 3, 0]
    np.testing.assert_array_equal(lines["observed"], values[start - past + 1 : start + 1])
    np.testing.assert_array_equal(lines["observed later"], values[start + 1 : start + 1 + horizon])
    expected = model.predict(field.sel(time=slice(None, ISSUE)), at="3").values[:, 0, 0]
    np.testing.assert_allclose(lines["forecast"], expected, rtol=1e-5)


def test_errors_are_those_of_the_records(model: STONet) -> None:
    data = small_dataset(unseen=4)
    lines = {line.get_label(): line for line in model.plot_errors(data).lines}
    records = model.records(data).to_dict("records")
    chosen = {"model": "stonet", "points": "seen", "channel": "t2m", "metric": "mae"}
    expected = [find(records, lead=lead, **chosen) for lead in range(1, 5)]  # type: ignore[arg-type]
    np.testing.assert_allclose(lines["stonet, seen"].get_ydata(), expected)


def test_plots_are_drawn_on_given_axes(model: STONet, field: Field) -> None:
    grid = Figure().subplots(2, 2).ravel()
    assert model.plot_series(field, ax=grid[0]) is grid[0]
    assert model.plot_map(field, grid=0.25, ax=grid[1]) is grid[1]
    assert model.plot_reliability(small_dataset(), by="pit", ax=grid[2]) is grid[2]
    assert grid[2].patches


def test_what_does_not_exist_is_refused(model: STONet, field: Field) -> None:
    with pytest.raises(UsageError, match="pit"):
        model.plot_reliability(field, by="pot")
    with pytest.raises(UsageError, match="2 places"):
        model.plot_series(field, at=["1", "2"])
    with pytest.raises(UsageError, match="reach from"):
        model.plot_map(field, issue="2031")
    with pytest.raises(UsageError, match="not trained"):
        STONet().plot_map(field)
