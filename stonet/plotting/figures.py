"""Pictures of fields and of scores: maps, series, error by lead, training curves.

Each function takes Fields or tidy records and returns a matplotlib Figure; none touches pyplot or
any other global state, so they may be called from threads, servers and notebooks alike. Maps
interpolate linearly between the points, which invents no extremes; grey is where nothing is known.
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
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError, unknown_name
from stonet.evaluation.metrics import Record
from stonet.plotting.maps import AXES, MapProjection

DPI = 150
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PALETTE = (*OKABE_ITO, "#882255", "#999999", "#999933")  # and three of Tol's
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
STYLES: dict[str, Any] = {"seen": "-", "unseen": "--", "unseen-no-history": ":"}
DURATIONS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


def snapshots(
    truth: Field,
    forecast: Field,
    leads: Sequence[int],
    channel: int = 0,
    nodes: Points | None = None,
    title: str = "",
) -> Figure:
    """Maps of truth, forecast and error (forecast - truth), one column for each lead.

    Truth and forecast share points and times; `leads` are positions in the time axis, from 0;
    `nodes`, the sensors, are drawn as dots.
    """
    _check_alike(truth, forecast, leads)
    name, unit = forecast.channels[channel], forecast.units[channel]
    real, guess = (_known(field, channel)[list(leads)] for field in (truth, forecast))
    error = guess - real  # (lead, node), NaN where either is
    scale = {"norm": _robust(real if np.isfinite(real).any() else guess), "cmap": "viridis"}
    mistake = {"norm": _symmetric(error), "cmap": "RdBu_r"}
    sheet, (across, up) = MapProjection.of(forecast.points), AXES[forecast.points.kind]
    width, height = sheet.panel()
    size = (2.1 + width * len(leads), 1.2 + height * 3 + (0.3 if title else 0.0))
    figure = Figure(figsize=size, dpi=DPI, layout="compressed")
    grid = figure.subplots(3, len(leads), sharex=True, sharey=True, squeeze=False)
    rows = (("truth", real, scale), ("forecast", guess, scale), ("error", error, mistake))
    for row, (label, values, look) in enumerate(rows):
        for axes, frame in zip(grid[row], values, strict=True):
            sheet.draw(axes, forecast.points, frame, **look)
            if nodes is not None:
                axes.plot(*sheet.place(nodes).T, "o", color="black", ms=1.3, mew=0, alpha=0.6)
        grid[row, 0].set_ylabel(rf"$\bf{{{label}}}$" + f"\n{up}", fontsize=11)
    for column, lead in enumerate(leads):
        grid[0, column].set_title(_lead_label(forecast, lead), fontsize=12)
        grid[2, column].set_title(_mean_label(error[column], unit), fontsize=11)
        grid[2, column].set_xlabel(across, fontsize=11)
    _colour_bar(figure, grid[:2], height, _quantity(name, unit), **scale)
    _colour_bar(figure, grid[2:], height, _quantity("error", unit), **mistake)
    if title:
        figure.suptitle(title, fontsize=14)
    return figure


def error_by_lead(records: list[Record], metric: str = "mae", title: str = "") -> Figure:
    """One line for each model and kind of points: the metric over the lead, averaged over seeds.

    Several channels are shown by their "all"; where there are several seeds, a band spans them.
    """
    lines = _lines(records, metric)
    models = list(dict.fromkeys(model for model, _ in lines))
    figure, axes = _canvas("lead (steps)", metric.upper() + " (%)" * (metric == "mape"), title)
    ends: dict[str, tuple[float, str, str]] = {}
    for (model, points), by_lead in lines.items():
        rank, leads = models.index(model), sorted(by_lead)
        colour, marker = PALETTE[rank % len(PALETTE)], MARKERS[rank % len(MARKERS)]
        mean = np.array([np.mean(by_lead[lead]) for lead in leads])
        (line,) = axes.plot(leads, mean, STYLES[points], color=colour, label=f"{model}, {points}")
        line.set(marker=marker, markersize=4, linewidth=1.8)
        low, high = ([edge(by_lead[lead]) for lead in leads] for edge in (min, max))
        axes.fill_between(leads, low, high, color=colour, alpha=0.15, linewidth=0)
        if model not in ends and np.isfinite(mean).any():
            ends[model] = (float(mean[np.isfinite(mean)][-1]), colour, marker)
    if metric == "bias":
        axes.axhline(0.0, color="0.4", linewidth=1.0)
    elif _spans_orders(lines):
        axes.set_yscale("log")  # models orders of magnitude apart
    else:
        axes.set_ylim(bottom=0.0)
    _name_ends(axes, ends)
    kinds = [kind for kind in STYLES if any(points == kind for _, points in lines)]
    handles = [Line2D([], [], color="0.3", linestyle=STYLES[kind], label=kind) for kind in kinds]
    axes.legend(handles=handles, title="points", alignment="left", frameon=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def training_curve(history: list[dict[str, Any]], title: str = "") -> Figure:
    """Training and validation loss over the steps, the best validation marked.

    `history` has entries {"step": int, "train": float, "validation": float}, None where not taken.
    """
    if not history:
        raise DataError("The history is empty: no step of training has been recorded yet.")
    figure, axes = _canvas("step", "loss", title)
    step = np.array([entry["step"] for entry in history])
    names = ("train", "validation")
    losses = np.array([[entry.get(name) for entry in history] for name in names], dtype=np.float64)
    known = np.isfinite(losses)
    for name, loss, taken, colour in zip(names, losses, known, PALETTE[:2], strict=True):
        axes.plot(step[taken], loss[taken], color=colour, linewidth=1.8, label=name)
    if known[1].any():
        best = int(np.nanargmin(losses[1]))
        label = f"best validation: {losses[1, best]:.4g} at step {step[best]}"
        axes.plot(step[best], losses[1, best], "*", color=PALETTE[2], markersize=14, label=label)
    if known.any() and 0 < 10 * losses[known].min() < losses[known].max():
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
    """One point in time: what was known, what was forecast and, if given, what came.

    `node` is a position in `forecast.points`; past and truth are found by its coordinates, and not
    drawn if they lack it.
    """
    quantity = _quantity(forecast.channels[channel], forecast.units[channel])
    clock = "time (UTC)" if forecast.calendar else "time (s)"
    figure, axes = _canvas(clock, quantity, title or f"point {forecast.points.names[node]}")
    looks: list[tuple[str, Field | None, dict[str, Any]]] = [
        ("past", past, {"color": "0.2", "linewidth": 1.8}),
        ("truth", truth, {"color": "0.2", "linewidth": 1.2, "linestyle": "--"}),
        ("forecast", forecast, {"color": PALETTE[1], "linewidth": 2.2}),
    ]
    for name, field, look in looks:
        if field is None:
            continue
        same = (field.points.coordinates == forecast.points.coordinates[node]).all(axis=1)
        if same.any():
            values = _known(field, channel)[:, same.argmax()]
            axes.plot(_clock(field.times, field.calendar), values, marker=".", label=name, **look)
    if forecast.reference_time is not None:
        now = _clock(np.array([forecast.reference_time]), forecast.calendar)[0]
        axes.axvline(now, color="0.5", linewidth=1.0, linestyle=":")
    if forecast.calendar:
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.legend(frameon=False)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as a PNG file, at 150 dots per inch."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def _check_alike(truth: Field, forecast: Field, leads: Sequence[int]) -> None:
    same = truth.points == forecast.points and truth.channels == forecast.channels
    if not same or not np.array_equal(truth.times, forecast.times):
        raise DataError("Truth and forecast must share points, times and channels to be compared.")
    last = len(forecast.times) - 1
    if not leads or min(leads) < 0 or max(leads) > last:
        raise UsageError(f"Leads {list(leads)} cannot be shown; choose some of 0..{last}.")


def _known(field: Field, channel: int) -> Float64[np.ndarray, "time node"]:
    """One channel, NaN where it was not observed."""
    return field.values[:, :, channel].astype(np.float64)


def _robust(values: Float64[np.ndarray, "lead node"]) -> Normalize:
    """A colour scale over all but the outermost hundredth on either side."""
    known = values[np.isfinite(values)]
    low, high = np.percentile(known, [1, 99]) if len(known) else (0.0, 1.0)
    spare = 0.0 if high > low else 0.5 * abs(low) or 0.5
    return Normalize(float(low - spare), float(high + spare))


def _symmetric(error: Float64[np.ndarray, "lead node"]) -> Normalize:
    size = np.abs(error[np.isfinite(error)])
    limit = (float(np.percentile(size, 99)) if len(size) else 0.0) or 1.0
    return Normalize(-limit, limit)


def _colour_bar(figure: Figure, axes: np.ndarray, height: float, label: str, **look: Any) -> None:
    """One bar for these rows of panels; its arrows are for the values beyond the scale."""
    size: dict[str, Any] = {"aspect": height * len(axes) / 0.16, "extendfrac": 0.05 / len(axes)}
    place = list(axes.flat)
    bar = figure.colorbar(ScalarMappable(**look), ax=place, extend="both", pad=0.02, **size)
    bar.set_label(label, fontsize=11)


def _lead_label(forecast: Field, lead: int) -> str:
    """`+6 h`, or `+12 (0.012 s)` where a step is not one unit of time."""
    if forecast.reference_time is None:
        return f"+{lead + 1}"
    periods = forecast.times - forecast.reference_time
    common = int(np.gcd.reduce(periods))
    units = DURATIONS if forecast.calendar else {"s": 1}
    unit = next((unit for unit in units if common % (units[unit] * NANOSECONDS) == 0), "s")
    number = f"{int(periods[lead]) / (units[unit] * NANOSECONDS):g}"
    return f"+{number} {unit}" if number == str(lead + 1) else f"+{lead + 1} ({number} {unit})"


def _mean_label(error: Float64[np.ndarray, " node"], unit: str) -> str:
    known = np.abs(error[np.isfinite(error)])
    label = f"MAE {known.mean():.3g}" if len(known) else "nothing observed"
    return label if unit == "1" or not len(known) else f"{label} {unit}"


def _quantity(name: str, unit: str) -> str:
    return name if unit == "1" else f"{name} ({unit})"


def _clock(times: np.ndarray, calendar: bool) -> np.ndarray:
    return times.astype("datetime64[ns]") if calendar else times / NANOSECONDS


def _canvas(across: str, up: str, title: str) -> tuple[Figure, Axes]:
    """A figure for lines: light grid, no box."""
    figure = Figure(figsize=(7.5, 4.5), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.8)
    axes.tick_params(labelsize=11)
    axes.set_xlabel(across, fontsize=12)
    axes.set_ylabel(up, fontsize=12)
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
            f"The records are of data sets {datasets} and channels {channels}; one picture shows "
            "one data set and one channel (or 'all'). Filter them."
        )
    lines: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in chosen:
        if record["channel"] == channel:
            by_lead = lines.setdefault((record["model"], record["points"]), {})
            value = math.nan if record["value"] is None else float(record["value"])
            by_lead.setdefault(record["lead"], []).append(value)
    return lines


def _name_ends(axes: Axes, ends: Mapping[str, tuple[float, str, str]]) -> None:
    """Each model's name where its line ends, moved as little as keeps the names apart.

    Least squares under h[i + 1] >= h[i] + gap: isotonic regression, by its max-min formula.
    """
    straight = np.log10 if axes.get_yscale() == "log" else np.asarray
    low, high = straight(axes.get_ylim())
    names = sorted(ends, key=lambda name: ends[name][0])
    ladder = 0.06 * np.arange(len(names))  # in heights of the axes
    wish = (straight([ends[name][0] for name in names]) - low) / (high - low) - ladder
    beside = axes.transAxes
    for i, name in enumerate(names):
        starts, stops = range(i + 1), range(i + 1, len(names) + 1)
        height = max(min(wish[start:stop].mean() for stop in stops) for start in starts) + ladder[i]
        _, colour, marker = ends[name]
        axes.plot(1.03, height, marker, color=colour, markersize=5, transform=beside, clip_on=False)
        axes.text(1.05, height, name, color=colour, fontsize=11, va="center", transform=beside)


def _spans_orders(lines: Mapping[tuple[str, str], Mapping[int, list[float]]]) -> bool:
    """Whether the largest value is so far above the smallest that a straight axis would hide it."""
    values = np.array([v for by_lead in lines.values() for row in by_lead.values() for v in row])
    values = values[np.isfinite(values)]
    return len(values) > 0 and bool(0 < 50 * values.min() < values.max())
