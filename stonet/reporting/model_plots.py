"""Panels on a trained model: maps, series, errors by lead and reliability (`stonet plot`).

Comes in: an `Issued` model, or a model with its task. Goes out: panels, one for each lead, place or
kind of error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from stonet.calibration.conformal import Calibration
from stonet.data.dates import Time
from stonet.data.display import short_time, shortened
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import UsageError, unknown_name
from stonet.evaluation.calibrated import calibrate_models
from stonet.evaluation.metrics import METRICS
from stonet.evaluation.reliability import reliability
from stonet.evaluation.scoring import evaluate, reference_forecasts
from stonet.evaluation.task import ALL
from stonet.graph.neighbours import own_nodes
from stonet.plotting.fields import (
    PANEL_WIDTH,
    SERIES_HEIGHT,
    ColourScale,
    Tips,
    channel_number,
    draw_colour_bar,
    draw_forecast,
    draw_map,
    map_size,
)
from stonet.plotting.figures import draw_error_by_lead, quantity_label
from stonet.plotting.maps import MapProjection
from stonet.plotting.reliability import PANELS, PanelName, draw_reliability
from stonet.reporting.issued import Issued, map_grid
from stonet.reporting.panels import Panel
from stonet.system.progress import report_progress
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

BEYOND = 2.0  # level of `support` where a forecast is an extrapolation
HELD_OUT = "s"  # symbol of stations that the model is not given
DEFAULT_PLACES, MAX_PLACES = 4, 12  # with a series each


def map_panels(
    issued: Issued,
    leads: Sequence[Time] | None = None,
    channel: str | None = None,
    step: float | None = None,
    width: float = PANEL_WIDTH,
) -> list[Panel]:
    """The forecast field at a grid, with the stations coloured by what was observed.

    Where nothing was observed yet, stations have the colour of their own forecasts, which know
    their history. Cells beyond the decoder's reach of any observation are grey.

    Args:
        issued: the model at an issue time.
        leads: one panel each: leads or dates (None: the end of the horizon).
        channel: name (None: the first).
        step: of the grid, in degrees or in the unit of the plane (None: fine enough).
        width: of a panel, in inches.
    """
    number = channel_number(issued.past, channel)
    times = sorted(set(issued.leads(leads)))
    nanoseconds = np.array(times, dtype=np.int64)
    made = issued.forecast(map_grid(issued.whole.points, step), nanoseconds.tolist())
    values = np.array(made.values)
    values[:, made.sites["support"] == BEYOND] = np.nan
    made = Field.trusted(**vars(made) | {"values": values, "mask": np.isfinite(values)})
    own = issued.forecast(times=nanoseconds.tolist())
    dots = [_stations(issued, own, frame) for frame in range(len(times))]
    shown = [field.values[:, :, number].astype(np.float64) for fields in dots for field in fields]
    scale = ColourScale.of(values[..., number].astype(np.float64), *shown)
    projection = MapProjection.of(made.points)

    def panel(frame: int) -> Panel:
        def draw(axes: Axes) -> Tips:
            draw_map(axes, made, frame, number, scale, projection, colour_bar=False)
            tips: Tips = []
            for field, marker in zip(dots[frame], ("o", HELD_OUT), strict=False):
                tips += draw_map(axes, field, 0, number, scale, projection, marker, False)
            draw_colour_bar(axes, scale, quantity_label(*made.quantity[number]))
            axes.set_title(_map_title(issued, times[frame], dots[frame]), fontsize=10)
            return tips

        return Panel(f"Map of {made.channels[number]}", map_size(projection, width), draw)

    return [panel(frame) for frame in range(len(times))]


def _stations(issued: Issued, own: Field, frame: int) -> list[Field]:
    """What the dots show: observations of seen and held-out stations, or forecasts."""
    at = issued.frame(int(own.times[frame]))
    if at is None:
        return [own.between(frame, frame + 1)]
    observed = issued.observed(at)
    held_out = own_nodes(observed.points, issued.past.points) == len(issued.past.points)
    parts = [np.flatnonzero(~held_out), np.flatnonzero(held_out)]
    return [observed.take(part) for part in parts if len(part)]


def _map_title(issued: Issued, time: int, dots: Sequence[Field]) -> str:
    """The time, the lead, and what the symbols are."""
    calendar = issued.past.calendar
    first = f"{issued.lead_label(time)}: {short_time(time, calendar)}{' UTC' * calendar}"
    kind = "forecast at stations" if dots[0].reference_time is not None else "observed"
    return f"{first}\ndots: {kind}" + "; squares: held out" * (len(dots) > 1)


def series_panels(
    issued: Issued,
    places: Points | None = None,
    channel: str | None = None,
    leads: Sequence[Time] | None = None,
    width: float = PANEL_WIDTH,
) -> list[Panel]:
    """The past, the forecast with its intervals, and what was observed later, at some places.

    Args:
        issued: the model at an issue time.
        places: one panel each (None: the first four seen stations with recent values).
        channel: name (None: the first).
        leads: times of the forecast (None: the trained leads).
        width: of a panel, in inches.

    Raises:
        UsageError: too many places are given.
    """
    number = channel_number(issued.past, channel)
    if places is None:
        recent = issued.past.observed[-issued.trained.time_spec.past :, :, number].any(0)
        places = issued.past.points.take(np.argsort(~recent, kind="stable")[:DEFAULT_PLACES])
    if len(places) > MAX_PLACES:
        raise UsageError(
            f"{len(places)} places were given, and each has a panel of its own. Give at most "
            f"{MAX_PLACES}."
        )
    found = issued.intervals(places, issued.leads(leads) if leads else None)

    def panel(node: int) -> Panel:
        past, truth = issued.series_at(places.take(np.array([node])))
        return Panel(
            f"Forecast at {shortened(places.names[node], 40)}",
            (width, width * SERIES_HEIGHT / PANEL_WIDTH),
            lambda axes: draw_forecast(axes, found, node, number, past, truth),
        )

    return [panel(node) for node in range(len(places))]


def error_panels(
    trained: TrainedModel,
    calibration: Calibration | None,
    task: Task,
    part: str = "test",
    metric: str = "mae",
    channel: str | None = None,
    width: float = PANEL_WIDTH,
) -> list[Panel]:
    """The error by lead of the model and of the reference forecasts.

    Args:
        trained: the model.
        calibration: of the model (None: no correction by recent errors).
        task: the data.
        part: "test", "validation", "train" or "all".
        metric: "mae", "rmse", "mape" or "bias".
        channel: name (None: all channels together).
        width: of the panel, in inches.

    Raises:
        UsageError: there is no such metric or channel.
    """
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    if channel is not None:
        channel_number(task.dataset.episodes[0], channel)
    models = reference_forecasts(trained, task, fitted=part != ALL)
    found = None
    if calibration is not None:
        found = calibrate_models(models, trained, task, calibration)
    arguments = trained, task, part, models, report_progress, found
    records = evaluate(*arguments, feedback=part != ALL)
    chosen = [r for r in records if channel is None or r["channel"] == channel]
    single = channel or (trained.channels[0] if len(trained.channels) == 1 else None)
    unit = "" if single is None else trained.units[trained.channels.index(single)]

    def draw(axes: Axes) -> Tips:
        lines = draw_error_by_lead(axes, chosen, metric, trained.time_spec.step, unit)
        return [(line, texts) for line, texts in lines]

    return [Panel(f"{metric.upper()} by lead", (1.15 * width, 0.8 * width), draw)]


def reliability_panels(
    trained: TrainedModel,
    calibration: Calibration,
    task: Task,
    part: str = "test",
    width: float = PANEL_WIDTH,
) -> list[Panel]:
    """How often intervals hold the observed value: by lead, distance and month, and the PIT.

    Args:
        trained: the model.
        calibration: of the model.
        task: the data.
        part: "test", "validation" or "train".
        width: of a panel, in inches.
    """
    counted = reliability(trained, task, calibration, part)
    size = (width, width * SERIES_HEIGHT / PANEL_WIDTH)

    def panel(name: PanelName) -> Panel:
        return Panel(
            f"Reliability by {name}",
            size,
            lambda axes: draw_reliability(axes, counted, name, trained.time_spec.step),
        )

    return [panel(name) for name in PANELS]
