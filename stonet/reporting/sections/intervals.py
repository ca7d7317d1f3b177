"""Section on intervals: how often they hold the truth, and how wide they are."""

from __future__ import annotations

import numpy as np

from stonet.evaluation.reliability import LEVELS, PIT_BINS, By, Reliability
from stonet.reporting.axes import Axes
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
from stonet.reporting.charts import Line, bar_chart, line_chart
from stonet.reporting.results import GROUPS, Results
from stonet.reporting.sections.common import leads_of, unit_of, with_unit
from stonet.reporting.sections.scores import TICKS

STYLES = {0.5: "c1", 0.9: "c0 own"}
HEADINGS = {
    "coverage_50": "in 50 % interval",
    "coverage_90": "in 90 % interval",
    "width_90": "width of 90 % interval",
    "interval_score_90": "interval score",
    "crps": "CRPS",
}


def intervals_section(results: Results) -> Section:
    """The reliability of the intervals, or why there is none.

    Args:
        results: of the model.
    """
    title = "Reliability of intervals"
    found = results.reliability
    if found is None or not found.counts:
        text = (
            "No intervals: this run has no calibration. It was made by an older stonet, or its "
            "validation part is too short. Fit again with more data to have intervals."
        )
        return Section("intervals", title, "", [Note(text, "missing")])
    figures = [_coverage(results, found, "lead")]
    if len({by_value[1] for by_value in found.counts if by_value[0] == "distance"}) > 1:
        figures.append(_coverage(results, found, "distance"))
    if results.trained.time_spec.calendar:
        figures.append(_coverage(results, found, "month"))
    figures.append(_pit(found))
    figures += [_width(results, channel) for channel in range(len(results.trained.channels[:1]))]
    blocks: list[Block] = [_table(results), Figures(figures)]
    lead = (
        "A 90 % interval should hold the observed value nine times in ten, whatever the lead, the "
        "distance and the season. Lines near their dashed targets are reliable."
    )
    return Section("intervals", title, lead, blocks)


def _table(results: Results) -> Table:
    """Scores of intervals of all models."""
    channels = results.trained.channels
    rows = []
    for channel in channels:
        for group in results.groups:
            for model in results.models:
                values = {m: results.score(model, group, channel, m) for m in HEADINGS}
                if all(value is None for value in values.values()):
                    continue
                cells = [Cell(model), Cell(GROUPS[group]), *([Cell(channel)] * (len(channels) > 1))]
                for metric, value in values.items():
                    share = metric.startswith("coverage") and value is not None
                    cells.append(
                        value_cell(value, f"{100 * (value or 0):.1f} %" if share else None)
                    )
                keys = {"model": model, "points": group, "channel": channel}
                rows.append(Row(cells, keys, model == results.model))
    columns = ["model", "points", *(["channel"] * (len(channels) > 1)), *HEADINGS.values()]
    note = "Widths and scores are in the units of the data. References have intervals of the same "
    note += "kind, made from their own errors in validation."
    return Table("Scores of intervals", columns, rows, note, text_columns=len(columns) - 5)


def _coverage(results: Results, found: Reliability, by: By) -> Figure:
    """Shares of observed values within the 50 % and 90 % intervals."""
    leads, lead_label = leads_of(results)
    labels = {
        "lead": lead_label,
        "distance": "distance to the nearest station (bin; 0: with history)",
        "month": "month",
    }
    lines, targets = [], []
    for level in reversed(LEVELS):
        shares = found.coverage(by, level)
        x = np.array(list(shares), dtype=np.float64)
        if by == "lead":
            x = leads[np.array(list(shares), dtype=np.int64) - 1]
        y = 100 * np.array(list(shares.values()))
        lines.append(Line(f"{100 * level:g} % interval", x, y, STYLES[level]))
        targets.append(Line("target", x, np.full(len(x), 100 * level), "target"))
    legend = [(line.name, line.style) for line in lines] + [("target", "target")]
    ticks = TICKS["month"] if by == "month" else None
    axes = Axes(f"Coverage by {by}", labels[by], "values within (%)", ticks,
                y_limits=(0.0, 100.0))  # fmt: skip
    drawn = line_chart([*lines, *targets], axes)
    return Figure(f"Coverage by {by}", drawn, legend=legend)


def _pit(found: Reliability) -> Figure:
    """A histogram of the probability integral transform."""
    total = max(float(found.pit.sum()), 1.0)
    middles = (np.arange(PIT_BINS) + 0.5) / PIT_BINS
    axes = Axes("Histogram of the PIT", "forecast probability of the observed value",
                "relative frequency")  # fmt: skip
    drawn = bar_chart(middles, found.pit / total * PIT_BINS, axes, "frequency", 1.0)
    note = "Flat: reliable. A hump in the middle: too wide; high ends: too narrow."
    return Figure("Probability of observed values", drawn, note)


def _width(results: Results, channel: int) -> Figure:
    """The width of 90 % intervals by lead."""
    leads, label = leads_of(results)
    name, lines = results.trained.channels[channel], []
    styles = {"seen": "c0 own", "unseen": "c2", "unseen-no-history": "c4"}
    for group in results.groups:
        values = [results.score(results.model, group, name, "width_90", lead)
                  for lead in range(1, len(leads) + 1)]  # fmt: skip
        y = np.array([np.nan if v is None else v for v in values])
        lines.append(Line(GROUPS[group], leads, y, styles[group]))
    axes = Axes("Width of 90 % intervals by lead", label,
                with_unit("width", unit_of(results, channel)))  # fmt: skip
    legend = [(line.name, line.style) for line in lines]
    return Figure(f"Width of 90 % intervals: {name}", line_chart(lines, axes), legend=legend)
