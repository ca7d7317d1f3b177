"""Section on influence: which stations and past times drive a forecast."""

from __future__ import annotations

import numpy as np

from stonet.data.display import shortened
from stonet.inference.influence import Influence
from stonet.reporting.axes import Axes, lead_unit
from stonet.reporting.blocks import (
    Block,
    Cell,
    Figure,
    Figures,
    Note,
    Row,
    Section,
    Table,
    value_cell,
)
from stonet.reporting.charts import bar_chart
from stonet.reporting.maps import MAX_SIZE, Canvas
from stonet.reporting.results import Results
from stonet.reporting.sections.common import NAME_LENGTH, date, unit_of
from stonet.reporting.svg import ColourScale

NEARLY_ALL, MIN_SHOWN = 0.98, 12  # share of the influence, and least stations, on the map
WIDE = 780.0  # of the drawing of past times
LARGEST = 2.4 * MAX_SIZE  # diameter of the most influential station
MAX_ROWS = 10
KINDS = ("a station seen in training", "a place held out, without history")


def influence_section(results: Results) -> Section:
    """The influence on the last forecast at typical points.

    Args:
        results: of the model.
    """
    blocks: list[Block] = []
    for found in results.influences:
        if found.by_station.any():
            blocks += _blocks(results, found)
    if not blocks:
        text = next((n for n in results.notes if "influence" in n), "") or (
            "No influence: this forecast does not react to the observations."
        )
        blocks.append(Note(text, "missing"))
    lead = (
        "How much each observation changes the last forecast of the scored part, by exact "
        "derivatives of the whole model; sizes are shares of all effects of one standard deviation."
    )
    return Section("influence", "Influence", lead, blocks)


def _blocks(results: Results, found: Influence) -> list[Block]:
    """A map, the shares of past times and a table for one place."""
    seen = found.place.names[0] in found.stations.names
    place = shortened(found.place.names[0], NAME_LENGTH)
    channel = found.channels.index(found.channel)
    unit = unit_of(results, channel)
    needed = int(np.searchsorted(np.cumsum(found.by_station[found.order]), NEARLY_ALL)) + 1
    chosen = found.order[: max(needed, MIN_SHOWN)]
    share, response = found.by_station[chosen], found.response.mean(0)[chosen]
    canvas = Canvas.of(found.stations.take(chosen).joined(found.place), shared=False)
    sizes = LARGEST * np.sqrt(share / max(float(share.max()), 1e-12))
    label = f"response ({unit} per {unit})" if unit else "response"
    scale = ColourScale.symmetric(response[share >= share.max() / 100], label)
    title = "Stations by influence"
    values, diameters = np.append(response, np.nan), np.append(sizes, 0.0)
    drawn = canvas.map(values, scale, title, found.place, diameters)
    note = f"The stations with {100 * NEARLY_ALL:.0f} % of the influence. "
    note += "Area: influence. Colour: change of the forecast if the station had read one unit "
    note += "higher in all of its past. Cross: the place of the forecast."
    issue = date(results, int(found.past_times[-1]))
    heading = f"{found.channel} at {place} ({KINDS[0] if seen else KINDS[1]}), issued {issue}"
    return [
        Figures([Figure(title, drawn, note), _past(found)], heading),
        _table(found),
    ]


def _past(found: Influence) -> Figure:
    """Shares of the past times."""
    lag = found.past_times - found.past_times[-1]
    step = int(-lag[-2]) if len(lag) > 1 else 1
    name, size = lead_unit(step, max(1, len(lag) - 1))
    x = lag / step * size if step else lag.astype(np.float64)
    axes = Axes("Influence of past times", f"time before the issue time ({name})", "influence (%)",
                width=WIDE)  # fmt: skip
    drawn = bar_chart(x.astype(np.float64), 100 * found.by_past, axes, "influence (%)")
    return Figure("Past times by influence", drawn, size="double")


def _table(found: Influence) -> Table:
    """The most influential stations."""
    share, response, distance = found.by_station, found.response.mean(0), found.distance
    rows = [
        Row(
            [
                Cell(shortened(found.stations.names[i], NAME_LENGTH)),
                value_cell(float(distance[i])),
                value_cell(float(100 * share[i])),
                value_cell(float(response[i])),
            ]
        )
        for i in found.order[:MAX_ROWS].tolist()
        if share[i] > 0
    ]
    km = " (km)" * (found.stations.kind == "sphere")
    columns = ("station", f"distance{km}", "influence (%)", "response")
    return Table("Most influential stations", columns, rows, folded=True)
