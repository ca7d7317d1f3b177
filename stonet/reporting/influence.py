"""The figure of an influence: a map of the stations, their past hours, and the shares of both."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from stonet.data.display import short_time, shortened
from stonet.data.durations import UNITS
from stonet.inference.influence import Influence
from stonet.plotting.figures import DPI, PALETTE
from stonet.plotting.maps import MapProjection
from stonet.reporting.figures import draw_region

MAX_ROWS = 12  # stations whose past hours are shown
MAX_NAME = 22  # characters of a station's name
LARGEST = 500.0  # area of the symbol of the most influential station, in square points
NEARLY_ALL = 0.98  # share of the influence that the map shows


def influence_figure(found: Influence) -> Figure:
    """Where and when the observations are that drive a forecast.

    Left the stations: area by influence, colour by response. Right the derivatives by every past
    value of the most influential stations, and the share of each past time.

    Args:
        found: as from `stonet.inference.influence.influence`.

    Example:
        >>> influence_figure(influence(trained, field, place)).savefig("influence.png")
    """
    figure = Figure(figsize=(12.0, 6.0), dpi=DPI, layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.0, 1.1))  # type: ignore[misc]
    panel = left.subplots()
    upper, lower = right.subplots(2, 1, sharex=True, height_ratios=(3.0, 1.0))
    _draw_map(panel, left, found)
    _draw_hours(upper, right, found)
    _draw_shares(lower, found)
    place, first = shortened(found.place.names[0], 40), found.past_times[-1]
    figure.suptitle(
        f"Influence on the forecast of {found.channel} at {place}, "
        f"issued {short_time(int(first), found.calendar)}{' UTC' * found.calendar}",
        fontsize=13,
        parse_math=False,
    )
    return figure


def _draw_map(axes: Axes, figure: Any, found: Influence) -> None:
    """The stations that matter, and the place."""
    share, response = found.by_station, found.response.mean(0)
    order = found.order
    needed = int(np.searchsorted(np.cumsum(share[order]), NEARLY_ALL)) + 1
    chosen = order[: max(needed, 3)]
    near = found.stations.take(chosen)
    projection = MapProjection.of(near.joined(found.place))
    inside = projection.project(found.stations)
    axes.scatter(inside[:, 0], inside[:, 1], s=4, color="0.65", linewidths=0, zorder=2)
    scale: dict[str, Any] = {"cmap": "RdBu_r", "norm": _symmetric(response)}
    area = LARGEST * share[chosen] / max(float(share.max()), 1e-12)
    x, y = projection.project(near).T
    axes.scatter(
        x, y, s=area, c=response[chosen], edgecolors="0.25", linewidths=0.6, zorder=3, **scale
    )
    at = projection.project(found.place)[0]
    axes.plot(*at, "*", color="black", markersize=13, markeredgecolor="white", zorder=4)
    draw_region(axes, projection, f"Stations with {100 * NEARLY_ALL:.0f} % of the influence")
    bar = figure.colorbar(ScalarMappable(**scale), ax=axes, shrink=0.75, pad=0.02)
    bar.set_label(f"response ({_unit_label(found)})")


def _draw_hours(axes: Axes, figure: Any, found: Influence) -> None:
    """Derivatives by each past value of the most influential stations."""
    rows = found.order[:MAX_ROWS]
    values = found.profile[rows]
    scale: dict[str, Any] = {"cmap": "RdBu_r", "norm": _symmetric(values)}
    edges = _edges(found)
    axes.pcolormesh(edges, np.arange(len(rows) + 1), values, rasterized=True, **scale)
    names = [shortened(found.stations.names[i], MAX_NAME) for i in rows.tolist()]
    axes.set_yticks(np.arange(len(rows)) + 0.5, names, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.set_title("Derivative of the forecast by each past value", fontsize=11)
    bar = figure.colorbar(ScalarMappable(**scale), ax=axes, pad=0.02)
    bar.set_label(_unit_label(found))


def _draw_shares(axes: Axes, found: Influence) -> None:
    """The share of each past time, all stations and channels together."""
    edges = _edges(found)
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    axes.bar(middles, 100 * found.by_past, width=0.9 * widths, color=PALETTE[0])
    axes.set_ylabel("influence (%)")
    axes.set_xlabel(f"time before the issue time ({_lag_unit(found)[0]})")
    axes.spines[["top", "right"]].set_visible(False)


def _lag_unit(found: Influence) -> tuple[str, float]:
    """The unit of lags on the axis, and its nanoseconds."""
    span = int(found.past_times[-1] - found.past_times[0])
    for name, short in (("days", "d"), ("h", "h"), ("min", "min"), ("s", "s")):
        if span >= 3 * UNITS[short]:
            return name, float(UNITS[short])
    return "s", float(UNITS["s"])


def _edges(found: Influence) -> np.ndarray:
    """Limits of the past times on the axis: lags <= 0 and half a step around."""
    lag = (found.past_times - found.past_times[-1]) / _lag_unit(found)[1]
    middles = (lag[1:] + lag[:-1]) / 2
    step = float(np.diff(lag).mean()) if len(lag) > 1 else 1.0
    return np.concatenate([[lag[0] - step / 2], middles, [lag[-1] + step / 2]])


def _symmetric(values: np.ndarray) -> Normalize:
    """A colour scale around zero."""
    limit = float(np.abs(values).max(initial=0.0)) or 1.0
    return Normalize(-limit, limit)


def _unit_label(found: Influence) -> str:
    """The unit of derivatives by the forecast's own channel."""
    return f"{found.unit} per {found.unit}" if found.unit not in ("", "1") else "unit per unit"
