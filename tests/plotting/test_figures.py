"""Figures show what the fields and records hold."""

import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.figure_parts import (
    HOUR,
    SECOND,
    corners,
    mesh,
    panels,
    random_points,
    truth_and_forecast,
)
from matplotlib.collections import PathCollection
from matplotlib.dates import num2date
from matplotlib.image import imread

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.plotting import figures


def record(value, lead, model="stonet", points="seen", **other):
    blank = {"dataset": "d", "channel": "u", "metric": "mae", "seed": 0}
    return blank | {"model": model, "points": points, "lead": lead, "value": value} | other


def curves(figure):
    """Lines with a label, by label."""
    lines = figure.axes[0].lines
    return {line.get_label(): line for line in lines if not line.get_label().startswith("_")}


# Maps


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_truth_and_forecast_share_a_scale_and_the_error_is_symmetric(kind):
    figure = figures.snapshots(*truth_and_forecast(random_points(kind=kind)), leads=[0, 5, 11])
    grid = panels(figure)
    assert grid.shape == (3, 3)
    assert len({mesh(axes).norm for axes in grid[:2].flat}) == 1
    (norm,) = {mesh(axes).norm for axes in grid[2]}
    assert norm.vmin == -norm.vmax < 0
    assert [axes.get_ylabel() for axes in figure.axes[-2:]] == ["t2m (K)", "error (K)"]


def test_maps_interpolate_linearly_between_the_points():
    """A linear field is drawn exactly, also between its points."""
    points = random_points()
    plane = (points.coordinates @ [2.0, -3.0] + 1.0)[None, :, None].astype(np.float32)
    field = Field(plane, np.array([SECOND]), points, calendar=False)
    axes = panels(figures.snapshots(field, field, [0]))[0, 0]
    fine = mesh(axes)
    assert len(fine.get_array()) > 10 * len(points)
    triangles = corners(axes)
    values = fine.get_array()[fine._triangulation.triangles].ravel()
    np.testing.assert_allclose(triangles @ [2.0, -3.0] + 1.0, values, atol=1e-5)


def test_the_error_panel_shows_forecast_minus_truth_and_its_mae():
    points = random_points()
    truth, forecast = truth_and_forecast(points)
    axes = panels(figures.snapshots(truth, forecast, [3, 7]))[2, 1]
    error = forecast.values[7, :, 0].astype(float) - truth.values[7, :, 0]
    np.testing.assert_allclose(mesh(axes).get_array()[: len(points)], error, atol=1e-6)
    assert axes.get_title() == f"MAE {np.abs(error).mean():.3g} K"


def test_masked_nodes_are_not_drawn():
    far = Points(np.concatenate([random_points().coordinates, [[5.0, 5.0]]]))
    mask = np.ones((12, 41, 1), dtype=bool)
    mask[3, -1] = False
    truth, forecast = truth_and_forecast(far, mask=mask)
    grid = panels(figures.snapshots(truth, forecast, [3, 4]))
    reach = np.array([[corners(axes).max() for axes in row] for row in grid])
    assert (reach[[0, 2], 0] < 1.5).all()  # truth and error, where it is missing
    assert reach[1, 0] == reach[0, 1] == 5.0
    wild = np.where(mask, truth.values, 1e30).astype(np.float32)
    other = panels(figures.snapshots(replace(truth, values=wild), forecast, [3, 4]))
    for a, b in zip(grid.flat, other.flat, strict=True):
        np.testing.assert_array_equal(mesh(a).get_array(), mesh(b).get_array())
        assert (mesh(a).norm.vmin, mesh(a).norm.vmax) == (mesh(b).norm.vmin, mesh(b).norm.vmax)


def test_one_outlier_does_not_dominate_the_colour_scale():
    truth, forecast = truth_and_forecast(random_points(200))
    wild = truth.values.copy()
    wild[0, 0, 0] = 1e4
    axes = panels(figures.snapshots(replace(truth, values=wild), forecast, [0, 5]))[0, 0]
    assert mesh(axes).norm.vmax < 2


TRIANGLE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
COLLINEAR = [[float(i), 2.0 * i] for i in range(6)]


@pytest.mark.parametrize("positions", [TRIANGLE[:1], TRIANGLE, COLLINEAR, [[1.0, 1.0]] * 5])
def test_points_without_an_area_are_drawn_as_dots(positions):
    truth, forecast = truth_and_forecast(Points(np.array(positions)))
    figure = figures.snapshots(truth, forecast, [0])
    for axes in panels(figure).flat:
        (dots,) = axes.collections
        assert isinstance(dots, PathCollection)
        np.testing.assert_array_equal(dots.get_offsets(), positions)
    figures.png(figure)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_map_of_a_long_region_has_no_holes(seed):
    """Only slivers along the hull are left out; flatness is measured without rescaling."""
    points = Points(np.random.default_rng(seed).random((300, 2)) * [10.0, 1.0])
    drawn = mesh(panels(figures.snapshots(*truth_and_forecast(points), leads=[0]))[0, 0])
    inside = np.meshgrid(np.linspace(0.4, 9.6, 185), np.linspace(0.25, 0.75, 11))
    assert (drawn._triangulation.get_trifinder()(*inside) >= 0).all()


def test_two_sensors_at_one_position_can_be_drawn():
    points = random_points()
    twice = points.joined(points.take(np.array([0, 1])))
    assert len(figures.png(figures.snapshots(*truth_and_forecast(twice), leads=[0]))) > 1000


def test_a_frame_without_observations_is_labelled():
    mask = np.ones((12, 40, 1), dtype=bool)
    mask[2] = False
    truth, forecast = truth_and_forecast(random_points(), mask=mask)
    for leads in ([2, 3], [2]):
        figure = figures.snapshots(truth, forecast, leads)
        assert panels(figure)[2, 0].get_title() == "nothing observed"
        figures.png(figure)


def test_a_perfect_constant_forecast_can_be_shown():
    truth, _ = truth_and_forecast(random_points())
    same = replace(truth, values=np.full_like(truth.values, 3.0))
    grid = panels(figures.snapshots(same, same, [0]))
    assert grid[2, 0].get_title() == "MAE 0 K"
    assert mesh(grid[0, 0]).norm.vmin < 3 < mesh(grid[0, 0]).norm.vmax


@pytest.mark.parametrize(
    ("step", "calendar", "labels"),
    [
        (SECOND // 1000, False, ["+1 (0.001 s)", "+12 (0.012 s)"]),
        (HOUR, True, ["+1 h", "+12 h"]),
        (6 * HOUR, True, ["+1 (6 h)", "+12 (72 h)"]),
        (24 * HOUR, True, ["+1 d", "+12 d"]),
        (HOUR // 6, True, ["+1 (10 min)", "+12 (120 min)"]),
    ],
)
def test_leads_are_labelled_with_their_physical_time(step, calendar, labels):
    truth, forecast = truth_and_forecast(random_points(), step=step, calendar=calendar)
    grid = panels(figures.snapshots(truth, forecast, [0, 11]))
    assert [axes.get_title() for axes in grid[0]] == labels
    nameless = replace(forecast, reference_time=None)
    assert panels(figures.snapshots(truth, nameless, [4]))[0, 0].get_title() == "+5"


def test_sensors_are_drawn_in_every_panel():
    points = random_points()
    chosen = points.take(np.arange(7))
    for axes in panels(
        figures.snapshots(*truth_and_forecast(points), leads=[0, 1], nodes=chosen)
    ).flat:
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), chosen.coordinates)


def test_fields_that_cannot_be_compared_are_refused():
    truth, forecast = truth_and_forecast(random_points())
    with pytest.raises(DataError, match="share points, times and channels"):
        figures.snapshots(truth.between(0, 6), forecast, [0])
    for leads in ([12], [-1], []):
        with pytest.raises(UsageError, match=r"choose some of 0\.\.11"):
            figures.snapshots(truth, forecast, leads)
    with pytest.raises(DataError, match="Points on a sphere cannot be drawn on a map of a plane"):
        figures.snapshots(truth, forecast, [0], nodes=random_points(kind="sphere"))


# Error by lead


def test_lines_show_the_records():
    kinds = {"seen": "-", "unseen": "--", "unseen-no-history": ":"}
    values = {
        (model, points): [base * factor * lead for lead in range(1, 5)]
        for model, base in (("stonet", 1.0), ("persistence", 3.0))
        for factor, points in enumerate(kinds, start=1)
    }
    records = [
        record(value, lead, *key)
        for key, series in values.items()
        for lead, value in [("all", 99.0), *enumerate(series, start=1)]
    ]
    figure = figures.error_by_lead(records[::-1], title="Wave")
    lines = curves(figure)
    assert set(lines) == {f"{model}, {points}" for model, points in values}
    for (model, points), expected in values.items():
        line = lines[f"{model}, {points}"]
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
        np.testing.assert_array_equal(line.get_ydata(), expected)
        assert line.get_linestyle() == kinds[points]
    colours = {(name.split(",")[0], line.get_color()) for name, line in lines.items()}
    assert len(colours) == len({colour for _, colour in colours}) == 2  # one for each model
    axes = figure.axes[0]
    assert axes.get_ylim()[0] == 0
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(kinds)
    assert {text.get_text() for text in axes.texts} == {"stonet", "persistence"}


def test_lines_average_the_seeds_and_bands_span_them():
    records = [record(value, 1, seed=s) for s, value in enumerate((1.0, 2.0, 6.0))]
    figure = figures.error_by_lead(records)
    np.testing.assert_array_equal(curves(figure)["stonet, seen"].get_ydata(), [3.0])
    (band,) = figure.axes[0].collections
    assert band.get_datalim(figure.axes[0].transData).intervaly.tolist() == [1.0, 6.0]


def test_leads_without_observations_are_gaps():
    figure = figures.error_by_lead([record(1.0, 1), record(None, 2), record(2.0, 3)])
    np.testing.assert_array_equal(curves(figure)["stonet, seen"].get_ydata(), [1.0, np.nan, 2.0])
    figures.png(figures.error_by_lead([record(None, 1)]))


def test_several_channels_are_shown_by_the_channel_all():
    records = [record(1.0, 1, channel="u"), record(2.0, 1, channel="all")]
    lines = curves(figures.error_by_lead(records))
    np.testing.assert_array_equal(lines["stonet, seen"].get_ydata(), [2.0])


def test_the_axis_of_the_bias_includes_negative_values():
    figure = figures.error_by_lead([record(-1.0, 1, metric="bias")], "bias")
    assert figure.axes[0].get_ylim()[0] < -0.9


def test_records_of_several_data_sets_or_channels_are_refused():
    with pytest.raises(UsageError, match=r"channels \['u', 'v'\]; .* Filter them"):
        figures.error_by_lead([record(1.0, 1), record(1.0, 1, channel="v")])
    with pytest.raises(UsageError, match=r"data sets \['d', 'e'\]"):
        figures.error_by_lead([record(1.0, 1), record(1.0, 1, dataset="e")])
    with pytest.raises(UsageError, match=r"Unknown metric 'mea'.*Did you mean 'mae'"):
        figures.error_by_lead([record(1.0, 1)], "mea")


def test_names_at_line_ends_do_not_overlap_and_keep_their_order():
    values = {f"m{i}": v for i, v in enumerate([1.0, 1.01, 1.02, 1.0, 3.0, 0.5])}
    figure = figures.error_by_lead([record(v, 1, model) for model, v in values.items()])
    heights = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    in_order = [heights[name] for name in sorted(values, key=lambda name: values[name])]
    assert (np.diff(in_order) >= 0.06 * (1 - 1e-9)).all()  # in heights of the axes
    low, high = figure.axes[0].get_ylim()
    for name in ("m4", "m5"):  # not moved without need
        assert np.isclose(heights[name], (values[name] - low) / (high - low))


# Training curve and series


def test_the_best_validation_is_marked():
    losses = {10 * i: (1 / i, 1 / i + 0.01 * i) for i in range(1, 41)}
    history = [{"step": s, "train": t, "validation": v} for s, (t, v) in losses.items()]
    history[5]["validation"] = None
    lines = curves(figures.training_curve(history))
    np.testing.assert_array_equal(lines["train"].get_ydata(), [e["train"] for e in history])
    assert len(lines["validation"].get_ydata()) == 39
    (best,) = [line for name, line in lines.items() if name.startswith("best")]
    assert best.get_xydata().tolist() == [[100, 0.2]]
    assert best.get_label() == "best validation: 0.2 at step 100"


def test_the_loss_axis_is_logarithmic_for_a_wide_range():
    def scale(*losses):
        history = [{"step": i, "train": loss, "validation": None} for i, loss in enumerate(losses)]
        return figures.training_curve(history).axes[0].get_yscale()

    assert scale(1.0, 0.5) == "linear"
    assert scale(1.0, 0.01) == "log"
    assert scale(1.0, 0.0) == "linear"
    with pytest.raises(DataError, match="history is empty"):
        figures.training_curve([])


@pytest.mark.parametrize("calendar", [True, False])
def test_series_show_the_fields(calendar):
    mask = np.ones((12, 40, 1), dtype=bool)
    mask[4, 7] = False
    truth, forecast = truth_and_forecast(random_points(), calendar=calendar, mask=mask)
    past = replace(truth, times=truth.times - 12 * HOUR)
    figure = figures.series(past, forecast, 7, truth)
    lines = curves(figure)
    assert list(lines) == ["past", "truth", "forecast"]
    np.testing.assert_allclose(lines["forecast"].get_ydata(), forecast.values[:, 7, 0])
    expected = np.where(mask, truth.values, np.nan)[:, 7, 0]
    np.testing.assert_allclose(lines["truth"].get_ydata(), expected)
    first = lines["forecast"].get_xdata(orig=False)[0]
    assert (num2date(first).hour == 1) if calendar else (first == 3600.0)
    figures.png(figure)


def test_points_without_a_past_show_their_forecast_only():
    """Points are matched by both coordinates, not by position in the field."""
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    truth, forecast = truth_and_forecast(Points(grid))
    past = truth.take(np.arange(10, 20))
    assert list(curves(figures.series(past, forecast, 3))) == ["forecast"]
    found = curves(figures.series(past, forecast, 13))["past"].get_ydata()
    np.testing.assert_allclose(found, truth.values[:, 13, 0])


# Files and state


def test_png_has_the_size_of_the_figure():
    figure = figures.snapshots(*truth_and_forecast(random_points()), leads=[0, 1])
    width, height = figure.get_size_inches() * 150
    data = figures.png(figure)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    image = imread(io.BytesIO(data))
    assert image.shape[:2] == (int(height), int(width))
    assert image[..., :3].std() > 0.1  # not an empty image


def test_pyplot_is_never_imported():
    code = (
        "import sys, stonet.plotting.figures as p; "
        "p.png(p.training_curve([{'step': 1, 'train': 1.0}])); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_models_orders_of_magnitude_apart_get_a_logarithmic_axis():
    def axes(*values: float):
        records = [record(v, 1, f"m{i}") for i, v in enumerate(values)]
        return figures.error_by_lead(records).axes[0]

    assert axes(1.0, 40.0).get_yscale() == "linear"
    far = axes(1.0, 1000.0)
    assert far.get_yscale() == "log"
    low, high = np.log10(far.get_ylim())
    heights = {text.get_text(): text.get_position()[1] for text in far.texts}
    assert np.isclose(heights["m1"], (3 - low) / (high - low))
