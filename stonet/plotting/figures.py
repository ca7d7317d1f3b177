"""Figures of fields and scores: maps, time series, error by lead, training curves.

Each function takes Fields or tidy records and returns a matplotlib Figure. None uses pyplot or
other global state, so all may be called from threads, servers and notebooks.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from stonet.data.cf import NANOSECONDS
from stonet.data.durations import UNITS
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError, unknown_name
from stonet.evaluation.metrics import Record
from stonet.plotting.maps import MapProjection

DPI = 150
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PALETTE = (*OKABE_ITO, "#882255", "#999999", "#999933")  # the last three: Paul Tol
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINE_STYLES: dict[str, Any] = {"seen": "-", "unseen": "--", "unseen-no-history": ":"}
UNIT_SECONDS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
METRIC_LABELS = {
    "mae": "MAE (units of the data)",
    "rmse": "RMSE (units of the data)",
    "mape": "MAPE (%)",
    "bias": "bias (units of the data)",
}
UNKNOWN = "units of the data"
TIME_LABELS = {True: "time (UTC)", False: "time (s)"}  # with and without a calendar
LOG_RATIO = 50.0  # largest over smallest error from which the axis is logarithmic
LABEL_SPACING = 0.06  # between the names of models, in heights of the axes


def snapshots(
    truth: Field,
    forecast: Field,
    leads: Sequence[int],
    channel: int = 0,
    nodes: Points | None = None,
    title: str = "",
) -> Figure:
    """Maps of truth, forecast and error (forecast - truth), one column per lead.

    Args:
        truth: at the points and times of the forecast.
        forecast: what to draw.
        leads: positions in the time axis, from 0.
        channel: position of the channel.
        nodes: sensors, drawn as dots.
        title: of the figure.

    Raises:
        DataError: truth and forecast differ in points, times or channels.
        UsageError: a lead is out of range.

    Example:
        >>> snapshots(truth, model.predict(past), leads=[0, 5, 11]).savefig("maps.png")
        ... # doctest: +SKIP
    """
    _check_comparable(truth, forecast, leads)
    name, unit = forecast.channels[channel], forecast.units[channel]
    expected, predicted = (_observed(field, channel)[list(leads)] for field in (truth, forecast))
    error = predicted - expected  # (lead, node), NaN where either is
    scaled = expected if np.isfinite(expected).any() else predicted
    value_scale = {"norm": robust_scale(scaled), "cmap": "viridis"}
    error_scale = {"norm": _symmetric_scale(error), "cmap": "RdBu_r"}
    projection = MapProjection.of(forecast.points)
    x_label, y_label = projection.labels
    width, height = projection.panel()
    size = (2.1 + width * len(leads), 1.2 + height * 3 + (0.3 if title else 0.0))
    figure = Figure(figsize=size, dpi=DPI, layout="compressed")
    grid = figure.subplots(3, len(leads), sharex=True, sharey=True, squeeze=False)
    rows = (
        ("truth", expected, value_scale),
        ("forecast", predicted, value_scale),
        ("error", error, error_scale),
    )
    for row, (label, values, scale) in enumerate(rows):
        for axes, frame in zip(grid[row], values, strict=True):
            projection.draw(axes, forecast.points, frame, **scale)
            if nodes is not None:
                dots = projection.project(nodes).T
                axes.plot(*dots, "o", color="black", ms=1.3, mew=0, alpha=0.6)
        grid[row, 0].set_ylabel(rf"$\bf{{{label}}}$" + f"\n{y_label}", fontsize=11)
    for column, lead in enumerate(leads):
        grid[0, column].set_title(_lead_label(forecast, lead), fontsize=12)
        grid[2, column].set_title(_mae_label(error[column], unit), fontsize=11)
        grid[2, column].set_xlabel(x_label, fontsize=11)
    _colour_bar(figure, grid[:2], height, quantity_label(name, unit), **value_scale)
    _colour_bar(figure, grid[2:], height, quantity_label("error", unit), **error_scale)
    if title:
        figure.suptitle(title, fontsize=14)
    return figure


def error_by_lead(
    records: list[Record],
    metric: str = "mae",
    title: str = "",
    step: int | None = None,
    unit: str = "",
) -> Figure:
    """A metric over the lead: one line per model and kind of points, the mean over the seeds.

    Several channels are shown by their "all"; a band spans several seeds.

    Args:
        records: of one data set, as from `stonet.evaluation.scoring.evaluate`.
        metric: "mae", "rmse", "mape" or "bias".
        title: of the figure.
        step: between two leads, in nanoseconds; None: leads are counted in steps.
        unit: of the errors.

    Raises:
        UsageError: the metric is unknown, or the records are of several data sets or channels.
    """
    figure, axes = _line_figure("", "", title)
    draw_error_by_lead(axes, records, metric, step, unit)
    return figure


def draw_error_by_lead(
    axes: Axes, records: list[Record], metric: str = "mae", step: int | None = None, unit: str = ""
) -> list[tuple[Line2D, list[str]]]:
    """The lines of `error_by_lead` on axes.

    Args:
        axes: to draw on.
        records: of one data set.
        metric: "mae", "rmse", "mape" or "bias".
        step: between two leads, in nanoseconds; None: leads are counted in steps.
        unit: of the errors.

    Returns:
        The lines, and a text for each of their marks.
    """
    lines = _lines(records, metric)
    drawn: list[tuple[Line2D, list[str]]] = []
    models = list(dict.fromkeys(model for model, _ in lines))
    name, size = lead_unit(step, max(lead for by_lead in lines.values() for lead in by_lead))
    y_label = METRIC_LABELS.get(metric, metric).replace("units of the data", unit or UNKNOWN)
    axes.set(xlabel=f"lead ({name})", ylabel=y_label)
    ends: dict[str, tuple[float, str, str]] = {}
    for (model, points), by_lead in lines.items():
        rank, leads = models.index(model), sorted(by_lead)
        colour, marker = PALETTE[rank % len(PALETTE)], MARKERS[rank % len(MARKERS)]
        mean = np.array([np.mean(by_lead[lead]) for lead in leads])
        label = f"{model}, {points}"
        lengths = np.array(leads) * size
        (line,) = axes.plot(lengths, mean, LINE_STYLES[points], color=colour, label=label)
        line.set(marker=marker, markersize=4, linewidth=1.8)
        drawn.append(
            (line, [f"{label}, {x:g} {name}: {y:.4g}" for x, y in zip(lengths, mean, strict=True)])
        )
        low, high = ([edge(by_lead[lead]) for lead in leads] for edge in (min, max))
        axes.fill_between(lengths, low, high, color=colour, alpha=0.15, linewidth=0)
        if model not in ends and np.isfinite(mean).any():
            ends[model] = (float(mean[np.isfinite(mean)][-1]), colour, marker)
    if metric == "bias":
        axes.axhline(0.0, color="0.4", linewidth=1.0)
    elif _spans_orders(lines):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
    _label_ends(axes, ends)
    kinds = [kind for kind in LINE_STYLES if any(points == kind for _, points in lines)]
    handles = [Line2D([], [], color="0.3", linestyle=LINE_STYLES[k], label=k) for k in kinds]
    axes.legend(handles=handles, title="points", alignment="left", frameon=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def lead_unit(step: int | None, last: int) -> tuple[str, float]:
    """The unit in which leads are shown, and the length of a step in it.

    Args:
        step: in nanoseconds; None: leads are counted in steps.
        last: longest lead, in steps.
    """
    if step is None:
        return "steps", 1.0
    for name, short in (("days", "d"), ("h", "h"), ("min", "min"), ("s", "s")):
        if step * last >= 2 * UNITS[short] and (short != "d" or step >= UNITS["h"]):
            return name, step / UNITS[short]
    return "s", step / UNITS["s"]


def training_curve(history: list[dict[str, Any]], title: str = "") -> Figure:
    """Training and validation loss over the steps, the best validation marked.

    Args:
        history: entries {"step": int, "train": float, "validation": float}; None where a loss was
            not computed.
        title: of the figure.

    Raises:
        DataError: the history is empty.
    """
    if not history:
        raise DataError("The history is empty: no training step has been recorded yet.")
    figure, axes = _line_figure("step", "loss (normalised units)", title)
    step = np.array([entry["step"] for entry in history])
    names = ("train", "validation")
    losses = np.array([[entry.get(name) for entry in history] for name in names], dtype=np.float64)
    computed = np.isfinite(losses)
    for name, loss, mask, colour in zip(names, losses, computed, PALETTE[:2], strict=True):
        axes.plot(step[mask], loss[mask], color=colour, linewidth=1.8, label=name)
    if computed[1].any():
        best = int(np.nanargmin(losses[1]))
        label = f"best validation: {losses[1, best]:.4g} at step {step[best]}"
        axes.plot(step[best], losses[1, best], "*", color=PALETTE[2], markersize=14, label=label)
    if computed.any() and 0 < 10 * losses[computed].min() < losses[computed].max():
        axes.set_yscale("log")
    axes.legend(frameon=False)
    return figure


def series(
    past: Field,
    forecast: Field,
    node: int,
    truth: Field | None = None,
    channel: int = 0,
    title: str = "",
) -> Figure:
    """The time series at one point: past, forecast and, if given, truth.

    Args:
        past: observations before the forecast; drawn if they hold the point.
        forecast: what to draw.
        node: position in `forecast.points`.
        truth: observations during the forecast; drawn if they hold the point.
        channel: position of the channel.
        title: of the figure; by default the name of the point.
    """
    quantity = quantity_label(forecast.channels[channel], forecast.units[channel])
    title = title or f"point {forecast.points.names[node]}"
    figure, axes = _line_figure(TIME_LABELS[forecast.calendar], quantity, title)
    lines: list[tuple[str, Field | None, dict[str, Any]]] = [
        ("past", past, {"color": "0.2", "linewidth": 1.8}),
        ("truth", truth, {"color": "0.2", "linewidth": 1.2, "linestyle": "--"}),
        ("forecast", forecast, {"color": PALETTE[1], "linewidth": 2.2}),
    ]
    for name, field, style in lines:
        if field is None:
            continue
        same = (field.points.coordinates == forecast.points.coordinates[node]).all(axis=1)
        if same.any():
            values = _observed(field, channel)[:, same.argmax()]
            times = _time_values(field.times, field.calendar)
            axes.plot(times, values, marker=".", label=name, **style)
    if forecast.reference_time is not None:
        issue = _time_values(np.array([forecast.reference_time]), forecast.calendar)[0]
        axes.axvline(issue, color="0.5", linewidth=1.0, linestyle=":")
    format_time_axis(axes, forecast.calendar)
    axes.legend(frameon=False)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as the content of a PNG file, at 150 dots per inch.

    Args:
        figure: to be drawn.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def format_time_axis(axes: Axes, calendar: bool) -> None:
    """Give the x axis concise dates, if times have a calendar.

    Args:
        axes: whose x axis is time.
        calendar: whether times are dates.
    """
    if calendar:
        locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def quantity_label(name: str, unit: str) -> str:
    """An axis label: the name, with its unit if there is one.

    Args:
        name: of the channel.
        unit: "" is unknown.
    """
    return name if unit in ("1", "") else f"{name} ({unit})"


def _check_comparable(truth: Field, forecast: Field, leads: Sequence[int]) -> None:
    """Refuse fields that differ in points, times or channels, and leads out of range."""
    same = truth.points == forecast.points and truth.channels == forecast.channels
    if not same or not np.array_equal(truth.times, forecast.times):
        raise DataError("Truth and forecast must share points, times and channels to be compared.")
    last = len(forecast.times) - 1
    if not leads or min(leads) < 0 or max(leads) > last:
        raise UsageError(f"Leads {list(leads)} cannot be drawn; choose some of 0..{last}.")


def _observed(field: Field, channel: int) -> Float64[np.ndarray, "time node"]:
    """One channel, NaN where it was not observed."""
    return field.values[:, :, channel].astype(np.float64)


def robust_scale(values: Float64[np.ndarray, "*shape"]) -> Normalize:
    """A colour scale from the 1 % to the 99 % quantile.

    Args:
        values: NaN where there are none.
    """
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, [1, 99]) if len(finite) else (0.0, 1.0)
    margin = 0.0 if high > low else 0.5 * abs(low) or 0.5
    return Normalize(float(low - margin), float(high + margin))


def _symmetric_scale(error: Float64[np.ndarray, "lead node"]) -> Normalize:
    """A colour scale around zero, up to the 99 % quantile of the absolute error."""
    absolute = np.abs(error[np.isfinite(error)])
    limit = (float(np.percentile(absolute, 99)) if len(absolute) else 0.0) or 1.0
    return Normalize(-limit, limit)


def _colour_bar(figure: Figure, axes: np.ndarray, height: float, label: str, **scale: Any) -> None:
    """One colour bar for some rows of panels; arrows stand for values beyond the scale."""
    size: dict[str, Any] = {"aspect": height * len(axes) / 0.16, "extendfrac": 0.05 / len(axes)}
    panels = list(axes.flat)
    bar = figure.colorbar(ScalarMappable(**scale), ax=panels, extend="both", pad=0.02, **size)
    bar.set_label(label, fontsize=11)


def _lead_label(forecast: Field, lead: int) -> str:
    """`+6 h`, or `+12 (0.012 s)` where a step is not one unit of time."""
    if forecast.reference_time is None:
        return f"+{lead + 1}"
    periods = forecast.times - forecast.reference_time
    common = int(np.gcd.reduce(periods))
    units = UNIT_SECONDS if forecast.calendar else {"s": 1}
    unit = next((unit for unit in units if common % (units[unit] * NANOSECONDS) == 0), "s")
    number = f"{int(periods[lead]) / (units[unit] * NANOSECONDS):g}"
    return f"+{number} {unit}" if number == str(lead + 1) else f"+{lead + 1} ({number} {unit})"


def _mae_label(error: Float64[np.ndarray, " node"], unit: str) -> str:
    """The mean absolute error with its unit."""
    absolute = np.abs(error[np.isfinite(error)])
    if not len(absolute):
        return "nothing observed"
    return f"MAE {absolute.mean():.3g}" + ("" if unit == "1" else f" {unit}")


def _time_values(times: np.ndarray, calendar: bool) -> np.ndarray:
    """Times as matplotlib draws them: dates, or seconds without a calendar."""
    return times.astype("datetime64[ns]") if calendar else times / NANOSECONDS


def _line_figure(x_label: str, y_label: str, title: str) -> tuple[Figure, Axes]:
    """A figure for lines: light grid, no box."""
    figure = Figure(figsize=(7.5, 4.5), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.8)
    axes.tick_params(labelsize=11)
    axes.set_xlabel(x_label, fontsize=12)
    axes.set_ylabel(y_label, fontsize=12)
    axes.set_title(title, fontsize=14)
    return figure, axes


def _lines(records: list[Record], metric: str) -> dict[tuple[str, str], dict[int, list[float]]]:
    """(model, points) -> lead -> the values of all seeds."""
    chosen = [r for r in records if r["metric"] == metric and r["lead"] != "all"]
    if not chosen:
        raise unknown_name("metric", metric, {str(r["metric"]) for r in records})
    datasets, channels = (sorted({r[key] for r in chosen}) for key in ("dataset", "channel"))
    channel = "all" if "all" in channels else channels[0]
    if len(datasets) > 1 or (len(channels) > 1 and channel != "all"):
        raise UsageError(
            f"The records are of data sets {datasets} and channels {channels}; a figure shows one "
            "data set and one channel (or 'all'). Filter them."
        )
    lines: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in chosen:
        if record["channel"] == channel:
            by_lead = lines.setdefault((record["model"], record["points"]), {})
            value = math.nan if record["value"] is None else float(record["value"])
            by_lead.setdefault(record["lead"], []).append(value)
    return lines


def _label_ends(axes: Axes, ends: Mapping[str, tuple[float, str, str]]) -> None:
    """Write each model's name beside the end of its line, moved as little as avoids overlaps.

    Least squares under h[i + 1] >= h[i] + spacing: isotonic regression, by its max-min formula.
    """
    straight = np.log10 if axes.get_yscale() == "log" else np.asarray
    low, high = straight(axes.get_ylim())
    names = sorted(ends, key=lambda name: ends[name][0])
    offset = LABEL_SPACING * np.arange(len(names))
    wanted = (straight([ends[name][0] for name in names]) - low) / (high - low) - offset
    position: dict[str, Any] = {"transform": axes.transAxes}
    for i, name in enumerate(names):
        starts, stops = range(i + 1), range(i + 1, len(names) + 1)
        isotonic = max(min(wanted[start:stop].mean() for stop in stops) for start in starts)
        height = isotonic + offset[i]
        _, colour, marker = ends[name]
        axes.plot(1.03, height, marker, color=colour, markersize=5, clip_on=False, **position)
        axes.text(1.05, height, name, color=colour, fontsize=11, va="center", **position)


def _spans_orders(lines: Mapping[tuple[str, str], Mapping[int, list[float]]]) -> bool:
    """Whether the largest value is more than LOG_RATIO times the smallest."""
    values = np.array([v for by_lead in lines.values() for row in by_lead.values() for v in row])
    values = values[np.isfinite(values)]
    return len(values) > 0 and bool(0 < LOG_RATIO * values.min() < values.max())
