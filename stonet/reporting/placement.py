"""Suggested sensors: candidates that reduce the error of a trained model most, and their panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stonet.data.display import shortened
from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.data.grid import Grid
from stonet.errors import UsageError
from stonet.evaluation.error_covariance import Fold, cross_fitted, fit_error_covariance
from stonet.evaluation.interpolation import Variogram
from stonet.evaluation.placement import Placement, inside_hull, place_sensors
from stonet.inference.places import region_grid
from stonet.plotting.fields import (
    PANEL_WIDTH,
    SERIES_HEIGHT,
    ColourScale,
    Tips,
    draw_colour_bar,
    map_size,
    with_unit,
)
from stonet.plotting.figures import PALETTE
from stonet.plotting.maps import MapProjection
from stonet.reporting.issued import map_grid
from stonet.reporting.panels import Panel
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

REGION_CELLS = 1_500  # of the grid over the region
MAX_CANDIDATES = 4_000  # covariances among them are kept


@dataclass(frozen=True)
class Suggestion:
    """Sensors that would help most, and what is expected of them.

    Args:
        placement: as from `place_sensors`.
        sensors: the chosen places, in the order of choice.
        stations: present sensors.
        region: places whose error counts.
        covariance: of the errors that sensors remove.
        floor: mean squared error where a sensor is.
        cross_fitted: root mean squared error at hidden stations without and with their history.
        channel: whose errors these are.
        unit: of the channel.
    """

    placement: Placement
    sensors: Points
    stations: Points
    region: Points
    covariance: Variogram
    floor: float
    cross_fitted: tuple[float, float]
    channel: str
    unit: str

    @property
    def rmse(self) -> Float64[np.ndarray, " stage"]:
        """Expected error over the region: before, and after each sensor."""
        return np.sqrt(self.placement.mean + self.floor)

    @property
    def range(self) -> float:
        """Distance over which errors are alike; km on a sphere."""
        unit = EARTH_RADIUS_KM if self.stations.kind == "sphere" else 1.0
        return self.covariance.range * unit

    def to_json(self) -> dict[str, Any]:
        """All results as numbers and names."""
        first, second = self.sensors.geometry.axes
        rmse = self.rmse.tolist()
        found = [
            {"name": name, first: a, second: b, "rmse_before": before, "rmse_after": after}
            for (name, a, b), before, after in zip(self.sensors, rmse[:-1], rmse[1:], strict=True)
        ]
        return {
            "channel": self.channel,
            "unit": self.unit,
            "sensors": found,
            "rmse": rmse,
            "range": self.range,
            "sill": self.covariance.sill,
            "nugget": self.covariance.nugget,
            "rmse_without_history": self.cross_fitted[0],
            "rmse_with_history": self.cross_fitted[1],
            "places_of_the_region": len(self.region),
        }


def suggest_sensors(
    trained: TrainedModel,
    task: Task,
    count: int,
    candidates: Points | None = None,
    channel: str | None = None,
    part: str = "validation",
) -> Suggestion:
    """The candidates that reduce the expected error of a model over its region most.

    The region is the convex hull of the stations and of the candidates that are given.

    Args:
        trained: a model that forecasts anywhere.
        task: its data, whose seen points are the present sensors.
        count: sensors to choose.
        candidates: places for them (None: a grid over the region).
        channel: whose errors are reduced (None: the first).
        part: of the data whose errors are used.

    Raises:
        UsageError: there are too few or too many candidates, or the model does not forecast
            without history.
        DataError: there are too few stations or errors, or sensors would not reduce them.

    Example:
        >>> suggest_sensors(trained, task, count=5).sensors.names
    """
    channel = trained.channels[0] if channel is None else channel
    number, stations = trained.channels.index(channel), task.nodes
    corners = stations if candidates is None else stations.joined(candidates)
    grid = map_grid(corners, cells=REGION_CELLS)
    region = grid.take(np.flatnonzero(inside_hull(grid, corners)))
    candidates = region if candidates is None else candidates
    if not count <= len(candidates) <= MAX_CANDIDATES:
        raise UsageError(
            f"There are {len(candidates):,} candidates; expected from {count} (as many as sensors "
            f"are requested) to {MAX_CANDIDATES:,}. Give other candidates, or a coarser grid."
        )
    folds = cross_fitted(trained, task, number, part)
    covariance = fit_error_covariance(folds, task.dataset.points)
    placement = place_sensors(covariance, stations, candidates, region, count)
    without, own = (_mean_square(folds, name) for name in ("without", "with_history"))
    chosen = candidates.take(placement.chosen)
    if all(name.isdigit() for name in chosen.names):  # a grid's
        names = tuple(f"sensor {rank}" for rank in range(1, count + 1))
        chosen = Points(chosen.coordinates, chosen.kind, names)
    return Suggestion(
        placement,
        chosen,
        stations,
        region,
        covariance,
        own,
        (float(np.sqrt(without)), float(np.sqrt(own))),
        channel,
        trained.units[number],
    )


def candidate_grid(step: float, stations: Points) -> Points:
    """Candidates on a grid within the hull of the stations.

    Args:
        step: in degrees or in the unit of the plane.
        stations: present sensors.
    """
    grid = region_grid(step, stations)
    inside = np.flatnonzero(inside_hull(grid, stations))
    if not len(inside):
        raise UsageError(f"A grid of step {step:g} has no point among the stations. Make it finer.")
    return grid.take(inside)


def _mean_square(folds: Sequence[Fold], name: str) -> float:
    """The mean squared error of all hidden stations."""
    squares = np.concatenate([np.diagonal(getattr(fold, name)) for fold in folds])
    return float(np.nanmean(squares))


def placement_panels(found: Suggestion, width: float = PANEL_WIDTH) -> list[Panel]:
    """A map of the expected error with the suggested sensors, and the error by their number.

    Args:
        found: as from `suggest_sensors`.
        width: of a panel, in inches.
    """
    projection = MapProjection.of(found.region.joined(found.stations).joined(found.sensors))
    size = (width, width * SERIES_HEIGHT / PANEL_WIDTH)
    return [
        Panel(
            "Map of suggested sensors",
            map_size(projection, width),
            lambda axes: _draw_map(axes, found, projection),
        ),
        Panel("Error by number of sensors", size, lambda axes: _draw_curve(axes, found)),
    ]


def _draw_map(axes: Axes, found: Suggestion, projection: MapProjection) -> Tips:
    """The expected error before, present stations, and numbered new ones."""
    error, unit = np.sqrt(found.placement.before + found.floor), with_unit(found.unit)
    scale = ColourScale.of(error)
    grid = Grid.of(found.region)
    if grid is None:
        projection.draw_dots(axes, found.region, error, **scale.drawn)
    else:
        projection.draw_grid(axes, grid, grid.scatter(error), **scale.drawn)
    present = projection.project(found.stations)
    axes.scatter(present[:, 0], present[:, 1], s=6, color="0.2", linewidths=0, zorder=4)
    x, y = projection.project(found.sensors).T
    style: dict[str, Any] = {"s": 130, "color": PALETTE[1], "edgecolors": "white", "zorder": 5}
    dots = axes.scatter(x, y, **style)
    for rank, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True), start=1):
        where: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 6}
        axes.text(a, b, str(rank), color="white", fontsize=8, fontweight="bold", **where)
    projection.format_axes(axes)
    x_label, y_label = projection.labels
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_title("Expected error today; numbers: suggested sensors", fontsize=10)
    draw_colour_bar(axes, scale, f"RMSE of {found.channel}{f' ({found.unit})' * bool(unit)}")
    return [(dots, _texts(found))]


def _draw_curve(axes: Axes, found: Suggestion) -> Tips:
    """The expected error over the region by the number of further sensors."""
    unit = with_unit(found.unit)
    x = np.arange(len(found.rmse))
    (line,) = axes.plot(x, found.rmse, marker="o", color=PALETTE[0], linewidth=1.8)
    axes.set(
        xlabel="further sensors", ylabel=f"RMSE over the region{f' ({found.unit})' * bool(unit)}"
    )
    axes.set_title(f"Expected error of {found.channel}", fontsize=10, parse_math=False)
    axes.grid(color="0.9", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    texts = [f"{n} sensors: {error:.4g}{unit}" for n, error in enumerate(found.rmse.tolist())]
    return [(line, texts)]


def _texts(found: Suggestion) -> list[str]:
    """Name and effect of each suggested sensor."""
    rmse, unit = found.rmse.tolist(), with_unit(found.unit)
    return [
        f"{shortened(name)}: {before:.4g} to {after:.4g}{unit}"
        for name, before, after in zip(found.sensors.names, rmse[:-1], rmse[1:], strict=True)
    ]
