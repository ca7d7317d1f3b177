"""Section on scores: a table beside the reference forecasts, and errors by lead, hour and month."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stonet.data.durations import DAY, UNITS
from stonet.evaluation.metrics import METRICS
from stonet.evaluation.probabilistic import INTERVAL_METRICS
from stonet.evaluation.scoring import Group
from stonet.reporting.axes import Axes, spans_orders
from stonet.reporting.blocks import (
    Block,
    Cell,
    Drawing,
    Figure,
    Figures,
    Note,
    Row,
    Section,
    Table,
    value_cell,
)
from stonet.reporting.breakdown import By
from stonet.reporting.charts import Line, line_chart
from stonet.reporting.results import GROUPS, Results
from stonet.reporting.sections.common import (
    channels_shown,
    leads_of,
    legend_of,
    style_of,
    unit_of,
    with_unit,
)

HEADINGS = {
    "mae": "MAE",
    "rmse": "RMSE",
    "mape": "MAPE (%)",
    "bias": "bias",
    "crps": "CRPS",
    "coverage_90": "in 90 %",
}
HIGHER = ("coverage_90",)  # of which the smallest is not the best
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
TICKS: dict[By, list[tuple[float, str]]] = {
    "hour": [(float(hour), str(hour)) for hour in range(0, 24, 3)],
    "month": [(float(number), name) for number, name in enumerate(MONTHS, start=1)],
}
FEW_HOURS = 4  # issue hours up to which hours and leads cannot be told apart
BY_LABELS: dict[By, str] = {"hour": "hour of the day (UTC)", "month": "month"}


def scores_section(results: Results) -> Section:
    """Scores of the model and of its reference forecasts.

    Args:
        results: of the model.
    """
    blocks: list[Block] = [_table(results), *_warnings(results)]
    groups: list[Group] = list(results.groups)
    for channel, name in channels_shown(results):
        title = name if len(results.trained.channels) > 1 else ""
        lead = [_by_lead(results, group, channel, groups) for group in groups]
        blocks.append(Figures(lead, with_title("Error by lead time", title), channel))
        by_time = [
            _by_time(results, group, channel, by)
            for by in BY_LABELS
            for group in groups
            if group != "unseen" and by in results.breakdown(group).sums
        ]
        found = [figure for figure in by_time if figure is not None]
        if found:
            blocks.append(
                Figures(found, with_title("Error by hour and month", title), channel, "pairs")
            )
    if not results.trained.time_spec.calendar:
        text = "Times of these data have no calendar, so that there are no hours and months."
        blocks.append(Note(text, "missing"))
    hidden = len(results.trained.channels) - len(channels_shown(results))
    if hidden:
        blocks.append(Note(f"{hidden} more channels are in the table only."))
    if len(groups) == 1:
        text = "No unseen points were scored: the data hold none out (fit with --unseen 0.2), or "
        text += "the model forecasts its training points only."
        blocks.append(Note(text, "missing"))
    lead_text = (
        "Mean errors over all forecasts of the scored part. A model is worth its cost where it is "
        "better than the reference forecasts beside it."
    )
    return Section("scores", "Scores", lead_text, blocks)


def with_title(text: str, channel: str) -> str:
    """A title, with the name of the channel where there are several.

    Args:
        text: the title.
        channel: its name, or empty.
    """
    return f"{text}: {channel}" if channel else text


def _table(results: Results) -> Table:
    """All scores over all leads; the best of each group stands out."""
    channels = list(results.trained.channels)
    names = (["all"] if len(channels) > 1 else []) + channels
    known = {record["metric"] for record in results.records}
    metrics = [m for m in (*METRICS, *INTERVAL_METRICS) if m in HEADINGS and m in known]
    rows = []
    for channel in names:
        for group in results.groups:
            models = [m for m in results.models if (m, group) in results.breakdowns]
            rows += [_row(results, m, group, channel, metrics, models) for m in models]
    columns = ["model", "points", *(["channel"] if len(names) > 1 else []),
               *(HEADINGS[m] for m in metrics), "skill"]  # fmt: skip
    units = {unit_of(results, c) for c in range(len(channels))}
    note = "Skill: 1 - MAE / MAE of persistence. "
    if len(channels) == 1 and units != {""}:
        note += f"MAE, RMSE, bias and CRPS in {units.pop()}. "
    elif len(set(results.trained.units)) > 1:
        note += "all: errors divided by the training standard deviation, since units differ. "
    note += "Bias: forecast minus observation. Bold: the best of its kind of points."
    return Table("Scores over all leads", columns, rows, note, text_columns=2 + (len(names) > 1))


def _row(
    results: Results,
    model: str,
    group: Group,
    channel: str,
    metrics: Sequence[str],
    models: Sequence[str],
) -> Row:
    """One model at one group of points."""
    cells = [Cell(model), Cell(GROUPS[group])]
    if len(results.trained.channels) > 1:
        cells.append(Cell(channel))
    for metric in metrics:
        values = {m: results.score(m, group, channel, metric) for m in models}
        sizes = {m: abs(v) for m, v in values.items() if v is not None}
        best = metric not in HIGHER and bool(sizes) and sizes.get(model) == min(sizes.values())
        value = values[model]
        text = None
        if metric == "coverage_90" and value is not None:
            text = f"{100 * value:.1f} %"
        cells.append(value_cell(value, text, best))
    cells.append(value_cell(skill(results, model, group, channel)))
    keys = {"model": model, "points": group, "channel": channel}
    return Row(cells, keys, model == results.model)


def skill(
    results: Results, model: str, group: Group, channel: str, over: str = "persistence"
) -> float | None:
    """1 - MAE / MAE of a reference; None where either is unknown or the reference is exact.

    Args:
        results: of the model.
        model: its name.
        group: of points.
        channel: its name, or "all".
        over: name of the reference.
    """
    own, reference = (results.score(m, group, channel) for m in (model, over))
    return None if own is None or not reference else 1 - own / reference


def _warnings(results: Results) -> list[Note]:
    """A sentence for each group in which persistence is no worse."""
    channels = results.trained.channels
    channel = "all" if len(channels) > 1 else channels[0]
    notes = []
    for group in results.groups:
        gain = skill(results, results.model, group, channel)
        if gain is not None and gain <= 0 and results.model != "persistence":
            text = f"{results.model} is no better than persistence at points {GROUPS[group]}."
            notes.append(Note(text, "warning"))
    return notes


def _by_lead(results: Results, group: Group, channel: int, groups: Sequence[Group]) -> Figure:
    """MAE over the lead; all groups share their limits."""
    leads, label = leads_of(results)
    unit = unit_of(results, channel)
    models = [m for m in results.models if (m, group) in results.breakdowns]
    lines = [
        Line(m, leads, results.breakdown(group, m).mean("lead")[:, channel], style_of(results, m))
        for m in models
    ]
    every = [results.breakdown(g, m).mean("lead")[:, channel] for m, g in results.breakdowns
             if g in groups]  # fmt: skip
    values = np.concatenate(every)
    values = values[np.isfinite(values)]
    shared = None if not values.size or spans_orders(values) else (0.0, 1.06 * float(values.max()))
    axes = Axes(f"MAE by lead, points {GROUPS[group]}", label, with_unit("MAE", unit),
                y_limits=shared)  # fmt: skip
    return Figure(
        f"Points {GROUPS[group]}", line_chart(lines, axes), "", legend_of(results, models)
    )


def _by_time(results: Results, group: Group, channel: int, by: By) -> Figure | None:
    """MAE by hour or month of the forecast time; None where all forecasts are for the same."""
    models = [m for m in results.models if (m, group) in results.breakdowns]
    known = np.isfinite(results.breakdown(group).mean(by)[:, channel])
    if known.sum() < 2:
        return None
    place = np.flatnonzero(known).astype(np.float64) + (by == "month")
    lines = [
        Line(m, place, results.breakdown(group, m).mean(by)[known, channel], style_of(results, m))
        for m in models
    ]
    label = with_unit("MAE", unit_of(results, channel))
    axes = Axes(f"MAE by {by}, points {GROUPS[group]}", BY_LABELS[by], label, TICKS[by])
    names = dict(TICKS["month"])
    texts = [names[v] for v in place.tolist()] if by == "month" else None
    drawn: Drawing = line_chart(lines, axes, texts)
    title = f"By {by}, points {GROUPS[group]}"
    note = _issue_note(results) if by == "hour" else ""
    return Figure(title, drawn, note, legend_of(results, models))


def _issue_note(results: Results) -> str:
    """A warning where forecasts are issued at a few hours only."""
    hours = sorted(set((results.cases.issue % DAY // UNITS["h"]).tolist()))
    if len(hours) > FEW_HOURS:
        return ""
    texts = ", ".join(f"{hour:02d}" for hour in hours)
    return f"Scored forecasts are issued at {texts} h UTC only: hours differ in their lead, too."
