"""Sections on single forecasts: maps of a typical one, and the best and the worst."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from stonet.data.display import shortened
from stonet.reporting.axes import Axes, time_axis
from stonet.reporting.blocks import Block, Drawing, Figure, Figures, Note, Section
from stonet.reporting.charts import Band, Line, line_chart
from stonet.reporting.maps import Canvas
from stonet.reporting.results import Results
from stonet.reporting.sections.common import (
    NAME_LENGTH,
    channels_shown,
    date,
    lead_text,
    measured,
    unit_of,
    with_unit,
)
from stonet.reporting.svg import ColourScale

SERIES_LEGEND = (("observed", "ink"), ("forecast", "c0 own"), ("90 % interval", "band"))
WIDE = 860.0  # of the drawing of a long series


def maps_section(results: Results, canvas: Canvas) -> Section:
    """Maps of truth, forecast and error at some leads of the window with the median error.

    Args:
        results: of the model.
        canvas: of all maps.
    """
    blocks: list[Block] = []
    horizon = results.cases.times.shape[1]
    leads = sorted({0, horizon // 2, horizon - 1})
    for channel, name in channels_shown(results):
        _, row, _ = results.cases.ranked(channel)
        figures = window_maps(results, canvas, row, leads, channel)
        issue = date(results, int(results.cases.issue[row]))
        error = measured(float(results.cases.errors(channel)[row]), unit_of(results, channel))
        title = f"{name}, issued {issue}: MAE {error}"
        blocks.append(Figures(figures, title, channel))
    lead = "Observed values, their forecast and its error: the forecast with the median error."
    return Section("maps", "A typical forecast", lead, blocks)


def cases_section(results: Results, canvas: Canvas) -> Section:
    """The forecasts with the least and the greatest error, as maps and as series.

    Args:
        results: of the model.
        canvas: of all maps.
    """
    blocks: list[Block] = []
    last = results.cases.times.shape[1] - 1
    for channel, name in channels_shown(results):
        best, _, worst = results.cases.ranked(channel)
        for kind, row in (("Best", best), ("Worst", worst)):
            issue = date(results, int(results.cases.issue[row]))
            error = measured(float(results.cases.errors(channel)[row]), unit_of(results, channel))
            title = f"{kind} forecast of {name}, issued {issue}: MAE {error}"
            figures = window_maps(results, canvas, row, [last], channel)
            blocks.append(Figures(figures, title, channel))
            point = _telling_point(results, row, channel, worst=kind == "Worst")
            blocks.append(Figures([window_series(results, row, point, channel)], "", channel))
    count = len(results.cases.windows)
    lead = f"Of {count} forecasts of all stations, the one with the least mean error and the one "
    lead += "with the greatest."
    if count < len(results.windows):
        blocks.append(
            Note(f"{count} of {len(results.windows)} forecasts, evenly spread, were kept.")
        )
    return Section("cases", "Best and worst forecasts", lead, blocks)


def window_maps(
    results: Results, canvas: Canvas, row: int, leads: list[int], channel: int
) -> list[Figure]:
    """Maps of truth, forecast and error at each lead of a window.

    Args:
        results: of the model.
        canvas: of all maps.
        row: of the window among the cases.
        leads: positions of the leads.
        channel: its position.
    """
    cases, unit = results.cases, unit_of(results, channel)
    truth, forecast = (
        values[row][leads, :, channel].astype(np.float64)
        for values in (cases.truth, cases.forecast)
    )
    both = np.where(np.isfinite(truth), truth, forecast)
    scale = ColourScale.of(both, unit)
    errors = ColourScale.symmetric(forecast - truth, unit)
    figures = []
    for number, lead in enumerate(leads):
        text = lead_text(results, lead)
        shown = {
            "observed": (truth[number], scale),
            "forecast": (forecast[number], scale),
            "error": (forecast[number] - truth[number], errors),
        }
        for kind, (values, colours) in shown.items():
            title = f"{kind.capitalize()}, {text}"
            figures.append(Figure(title, canvas.map(_spread(results, values), colours, title)))
    return figures


def _spread(
    results: Results, values: Float64[np.ndarray, " point"]
) -> Float64[np.ndarray, " station"]:
    """Values of the cases' points in the order of the data set."""
    everything = np.full(len(results.task.dataset.points), np.nan)
    everything[results.cases.points] = values
    return everything


def _telling_point(results: Results, row: int, channel: int, worst: bool) -> int:
    """The point with the greatest error of a window, or with the median one."""
    error = np.abs(results.cases.forecast[row] - results.cases.truth[row])[..., channel]
    known = np.isfinite(error).sum(0)
    enough = known >= max(1, 0.5 * error.shape[0])
    with np.errstate(invalid="ignore"):
        mean = np.where(enough, np.nansum(error, 0) / np.maximum(known, 1), np.nan)
    order = np.argsort(mean, kind="stable")[: max(1, int(np.isfinite(mean).sum()))]
    return int(order[-1] if worst else order[len(order) // 2])


def window_series(results: Results, row: int, point: int, channel: int) -> Figure:
    """Past, truth and forecast of one window at one point.

    Args:
        results: of the model.
        row: of the window among the cases.
        point: position among the points of the cases.
        channel: its position.
    """
    cases, raw = results.cases, results.windows
    spec = results.task.time_spec
    frames = raw.starts[cases.windows[row]] + np.arange(spec.past)
    values, observed = raw.take(np.array([point])).at(frames)
    past = np.where(observed, values, np.nan)[:, 0, channel].astype(np.float64)
    times = np.concatenate([raw.times[frames], cases.times[row]])
    column = (row, slice(None), point, channel)
    truth, made, low, high = (
        part[column].astype(np.float64)
        for part in (cases.truth, cases.forecast, cases.low, cases.high)
    )
    unknown = np.full(spec.past, np.nan)
    names = results.task.dataset.points.names
    name = shortened(names[int(cases.points[point])], NAME_LENGTH)
    kind = "" if point < cases.seen else ", without history"
    return series_figure(
        results,
        f"{name}{kind}",
        times,
        np.concatenate([past, truth]),
        np.concatenate([unknown, made]),
        (np.concatenate([unknown, low]), np.concatenate([unknown, high])),
        channel,
    )


def series_figure(
    results: Results,
    title: str,
    times: np.ndarray,
    truth: Float64[np.ndarray, " time"],
    forecast: Float64[np.ndarray, " time"],
    interval: tuple[Float64[np.ndarray, " time"], Float64[np.ndarray, " time"]],
    channel: int,
) -> Figure:
    """Observed values and forecasts at one point over time.

    Args:
        results: of the model.
        title: above the drawing.
        times: in nanoseconds.
        truth: NaN where nothing was observed.
        forecast: NaN where there is none.
        interval: ends of the 90 % interval.
        channel: its position.
    """
    calendar = results.trained.time_spec.calendar
    place, ticks = time_axis(times, calendar)
    name, unit = results.trained.channels[channel], unit_of(results, channel)
    label = "time (UTC)" if calendar else "time (s)"
    axes = Axes(f"Series: {title}", label, with_unit(name, unit), ticks, False, width=WIDE)
    lines = [Line("forecast", place, forecast, "c0 own"), Line("observed", place, truth, "ink")]
    labels = [date(results, int(time)) for time in times]
    has_band = bool(np.isfinite(interval[0]).any())
    drawn: Drawing = line_chart(lines, axes, labels, Band(place, *interval) if has_band else None)
    return Figure(title, drawn, "", SERIES_LEGEND[: 3 if has_band else 2], "wide")
