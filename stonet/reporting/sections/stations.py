"""Section on stations: their errors on a map and in a table, and the series of any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data.display import shortened
from stonet.evaluation.scoring import Group
from stonet.reporting.blocks import (
    Block,
    Cell,
    Figure,
    Figures,
    Picker,
    Row,
    Section,
    Table,
    value_cell,
)
from stonet.reporting.headline import best_reference
from stonet.reporting.maps import Canvas
from stonet.reporting.results import Results
from stonet.reporting.sections.common import (
    NAME_LENGTH,
    channels_shown,
    measured,
    unit_of,
    with_unit,
)
from stonet.reporting.sections.forecasts import series_figure
from stonet.reporting.series import stretch
from stonet.reporting.svg import ColourScale

MAX_ROWS = 400  # of the table
MIN_SHARE = 0.25  # of the usual number of values, that a best or worst station has


@dataclass(frozen=True)
class StationErrors:
    """Errors of all models at each point of the cases.

    Args:
        own: MAE of the trained model; NaN where nothing was observed.
        count: observed values.
        references: MAE of each reference.
    """

    own: Float64[np.ndarray, " point"]
    count: Float64[np.ndarray, " point"]
    references: dict[str, Float64[np.ndarray, " point"]]

    @property
    def order(self) -> Int64[np.ndarray, " point"]:
        """Positions of points with enough values, least error first."""
        usual = np.median(self.count[self.count > 0]) if (self.count > 0).any() else 0.0
        enough = np.isfinite(self.own) & (self.count >= MIN_SHARE * usual)
        order = np.argsort(np.where(enough, self.own, np.nan), kind="stable")
        return order[: int(enough.sum())]


def station_errors(results: Results, channel: int) -> StationErrors:
    """The errors of a channel at the points of the cases, in their order.

    Args:
        results: of the model.
        channel: its position.
    """
    groups: list[Group] = [group for group in results.groups if group != "unseen"]

    def mean(model: str) -> Float64[np.ndarray, " point"]:
        parts = []
        for group in groups:
            found = results.breakdowns.get((model, group))
            size = results.breakdown(group).points
            parts.append(np.full(size, np.nan) if found is None
                         else found.mean("station")[:, channel])  # fmt: skip
        return np.concatenate(parts)

    counts = [results.breakdown(g).sums["station"].count[:, channel] for g in groups]
    others = [model for model in results.models if model != results.model]
    return StationErrors(mean(results.model), np.concatenate(counts), {m: mean(m) for m in others})


def stations_section(results: Results, canvas: Canvas) -> Section:
    """Errors of all stations, and the series of single ones.

    Args:
        results: of the model.
        canvas: of all maps.
    """
    blocks: list[Block] = []
    shown = channels_shown(results)
    for channel, name in shown:
        errors = station_errors(results, channel)
        blocks.append(_maps(results, canvas, errors, channel))
        typical = errors.order[len(errors.order) // 2] if len(errors.order) else 0
        names = [results.task.dataset.points.names[i] for i in results.cases.points.tolist()]
        note = "Choose a station in the list, on a map above or in the table below."
        listed = sorted(enumerate(names), key=lambda pair: (pair[1], pair[0]))
        blocks.append(Picker(channel, listed, int(typical), note))
        blocks.append(_extremes(results, errors, channel, name, len(shown)))
        blocks.append(_table(results, errors, channel, name))
    lead = "Mean error of each station over all leads. Stations held out of training are outlined; "
    lead += "they are forecast without their own history."
    if not results.task.dataset.unseen:
        lead = "Mean error of each station over all leads."
    return Section("stations", "Stations", lead, blocks)


def _maps(results: Results, canvas: Canvas, errors: StationErrors, channel: int) -> Figures:
    """Maps of the error and of the skill."""
    unit, name = unit_of(results, channel), results.trained.channels[channel]
    count = len(results.task.dataset.points)

    def spread(values: Float64[np.ndarray, " point"]) -> Float64[np.ndarray, " station"]:
        everything = np.full(count, np.nan)
        everything[results.cases.points] = values
        return everything

    scale = ColourScale.of(errors.own, with_unit("MAE", unit), "viridis")
    title = f"Error of {name}"
    figures = [Figure(title, canvas.map(spread(errors.own), scale, title))]
    main = "all" if len(results.trained.channels) > 1 else name
    best = best_reference(results, main)
    for model in dict.fromkeys(("persistence", best)):
        reference = errors.references.get(model or "")
        if reference is None:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            skill = np.where(reference > 0, 1 - errors.own / reference, np.nan)
        colours = ColourScale.symmetric(skill, f"skill over {model}", "RdBu")
        title = f"Skill of {name} over {model}"
        note = f"Blue: better than {model}. Red: worse."
        figures.append(Figure(title, canvas.map(spread(skill), colours, title), note))
    return Figures(figures, "", channel)


def _extremes(
    results: Results, errors: StationErrors, channel: int, name: str, channels: int
) -> Figures:
    """Series of the best and the worst station."""
    figures = []
    cases, order = results.cases, errors.order
    ends: Sequence[tuple[str, int]] = ()
    if len(order):
        ends = (("Best", int(order[0])), ("Worst", int(order[-1])))
    for kind, point in ends:
        rows = stretch(results, channels, (point, channel))
        truth, made, low, high = (
            part[rows][..., point, channel].ravel().astype(np.float64)
            for part in (cases.truth, cases.forecast, cases.low, cases.high)
        )
        station = shortened(
            results.task.dataset.points.names[int(cases.points[point])], NAME_LENGTH
        )
        error = measured(float(errors.own[point]), unit_of(results, channel))
        held_out = "" if point < cases.seen else " (held out)"
        title = f"{kind} station: {station}{held_out}, MAE {error}"
        times = cases.times[rows].ravel()
        figures.append(series_figure(results, title, times, truth, made, (low, high), channel))
    return Figures(figures, f"Best and worst station of {name}", channel)


def _table(results: Results, errors: StationErrors, channel: int, name: str) -> Table:
    """All stations, the greatest error first."""
    points, cases = results.task.dataset.points, results.cases
    order = errors.order[::-1]
    note = "MAE of the model and of the reference forecasts, all leads together."
    if len(order) > MAX_ROWS:
        half = MAX_ROWS // 2
        note += f" The {half} best and the {half} worst of {len(order)} stations."
        order = np.concatenate([order[:half], order[-half:]])
    axes = points.geometry.axes
    rows = []
    for point in order.tolist():
        station = int(cases.points[point])
        first, second = points.coordinates[station].tolist()
        kind = "seen" if point < cases.seen else "held out"
        own, base = float(errors.own[point]), errors.references.get("persistence")
        skill = None if base is None or not base[point] else 1 - own / float(base[point])
        cells = [
            Cell(shortened(points.names[station], NAME_LENGTH)),
            Cell(kind),
            Cell(f"{first:.5g}", first),
            Cell(f"{second:.5g}", second),
            value_cell(own),
            *(value_cell(float(values[point])) for values in errors.references.values()),
            value_cell(skill),
        ]
        rows.append(Row(cells, {"station": str(point)}))
    columns = ("station", "kind", *axes, results.model, *errors.references, "skill")
    title = with_unit(f"All stations: MAE of {name}", unit_of(results, channel))
    return Table(title, columns, rows, note, channel, folded=len(rows) > 12, text_columns=2)
