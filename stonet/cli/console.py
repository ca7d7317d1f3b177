"""Terminal output: progress bars with the time left, tables, or one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from stonet.data.durations import duration_label
from stonet.system.progress import ProgressCallback

screen = Console(stderr=True)  # messages go to stderr; stdout is for results
COMPARISON_COLUMNS = {
    "model": "model",
    "mae": "MAE",
    "rmse": "RMSE",
    "mape": "MAPE (%)",
    "bias": "bias",
    "skill": "skill",
    "parameters": "parameters",
    "steps": "steps",
    "seconds_per_epoch": "s/epoch",
    "peak_mb": "peak memory (MB)",
}
REFERENCES = ("persistence", "daily", "climatology", "linear")
MAX_WIDTH = 10_000  # characters of a table
MAX_UNWRAPPED = 40  # characters of a cell that are kept on one line
UNITS = "MAE, RMSE and bias in the units of the data; skill = 1 - MAE / MAE of persistence."


def print_table(table: Table, min_width: int = 100) -> None:
    """Print a result on stdout; no number is cut, however narrow the terminal is.

    Args:
        table: the result.
        min_width: in characters.
    """
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=MAX_WIDTH), table).minimum
    Console(width=max(console.width, min_width, needed)).print(table)


def say(text: str, quiet: bool = False) -> None:
    """Print a message on stderr.

    Args:
        text: the message.
        quiet: whether nothing is printed, as with --json.
    """
    if not quiet:
        screen.print(text, highlight=False, markup=False)  # a path may hold brackets


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on stdout.

    Args:
        content: what JSON can hold.
    """
    json.dump(content, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def counting_bar(
    title: str, quiet: bool, transient: bool = False, delay: float = 0.0
) -> Iterator[Callable[..., None]]:
    """A progress bar for a known number of items.

    Args:
        title: shown before the bar.
        quiet: show nothing.
        transient: remove the bar at the end.
        delay: seconds before the bar appears.

    Yields:
        A function of (done, total, note).
    """
    columns = (
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    progress = Progress(
        *columns,
        console=screen,
        disable=quiet,
        transient=transient,
        speed_estimate_period=3600.0,  # seconds: one item may take many minutes
    )
    bar = progress.add_task(title, total=None, note="")
    started, visible = time.monotonic(), False

    def update(done: int, total: int, note: str = "") -> None:
        nonlocal visible
        if not visible and time.monotonic() - started >= delay:
            progress.start()
            visible = True
        progress.update(bar, completed=done, total=total, note=note)

    try:
        if not delay:
            progress.start()
            visible = True
        yield update
    finally:
        if visible:
            progress.stop()


@contextmanager
def bytes_bar(quiet: bool) -> Iterator[ProgressCallback]:
    """A progress bar per file that is downloaded or verified: a function of (name, done, total).

    Args:
        quiet: whether nothing is shown.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, disable=quiet) as progress:
        bars: dict[str, Any] = {}

        def update(done: int, total: int, name: str) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total or None)
            progress.update(bars[name], completed=done, total=total or None)

        yield update


def plain_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Collection[str],
    caption: str | None = None,
) -> Table:
    """A table of strings; columns named in `text` are aligned left, all others right.

    Long texts wrap.

    Args:
        title: above the table.
        columns: headings.
        rows: one text for each column.
        text: headings of the columns that are aligned left.
        caption: below the table.
    """
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for number, name in enumerate(columns):
        short = all(len(row[number]) <= MAX_UNWRAPPED for row in rows)
        longest = max([len(name), *(len(row[number]) for row in rows)]) if short else None
        justify: Literal["left", "right"] = "left" if name in text else "right"
        table.add_column(name, justify=justify, no_wrap=short, min_width=longest)
    for row in rows:
        table.add_row(*row)
    return table


def tidy_table(
    lines: Sequence[Mapping[str, Any]],
    title: str,
    columns: Mapping[str, str] | None = None,
    caption: str | None = None,
) -> Table:
    """A table of tidy lines: one row each; empty columns are left out.

    Args:
        lines: values by key; a spread `KEY_std` is shown beside its mean `KEY`.
        title: above the table.
        columns: key -> heading; None: all keys.
        caption: below the table.
    """
    headings = columns or {key: key for line in lines for key in line if not key.endswith("_std")}
    shown = {
        key: heading
        for key, heading in headings.items()
        if any(line.get(key) not in (None, []) for line in lines)
    }
    text = [h for key, h in shown.items() if any(isinstance(x.get(key), str) for x in lines)]
    rows = [[_cell(line.get(key), line.get(f"{key}_std"), key) for key in shown] for line in lines]
    return plain_table(title, list(shown.values()), rows, text, caption)


def _cell(value: Any, spread: float | None, key: str) -> str:
    """A value as text: four significant digits, three decimals of a skill, spread after ±."""
    if value is None or value == []:
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if isinstance(value, float):
        text = f"{value:.3f}" if key == "skill" else f"{value:.4g}"
        return text if spread is None else f"{text} ±{spread:.1g}"
    return f"{value:,}" if type(value) is int else str(value)


def score_table(
    records: list[dict[str, Any]],
    deviation: float | None,
    part: str = "test",
    units: Mapping[str, str] | None = None,
    step: int | None = None,
) -> Table:
    """Scores of every model at every kind of points, over all leads.

    Args:
        records: as from `stonet.evaluation.scoring.evaluate`.
        deviation: percent by which the MAE at unseen points exceeds that at seen ones.
        part: the part of the data that was scored.
        units: of each channel.
        step: between two leads, in nanoseconds.
    """
    from stonet.evaluation import tables

    scores = tables.score_table(records).reset_index()
    rows = scores.astype(object).where(scores.notna(), None).itertuples(index=False)
    lines = [dict(zip(scores.columns, row, strict=True)) for row in rows]
    columns = {"model": "model", "points": "points", "channel": "channel"}
    columns |= {key: COMPARISON_COLUMNS[key] for key in ("mae", "rmse", "mape", "bias", "skill")}
    columns |= {"crps": "CRPS", "coverage_90": "in 90 % interval"}
    caption = UNITS + _average_note(units)
    for line in lines:
        unit = (units or {}).get(line["channel"], "")
        line["channel"] += f" ({unit})" * (unit not in ("", "1"))
    leads = [record["lead"] for record in records if record["lead"] != "all"]
    if step is not None and leads:
        first, last = (duration_label(step * lead) for lead in (min(leads), max(leads)))
        caption += f"\nMeans over the leads {first} to {last}."
    if deviation is not None:
        caption += f"\nDeviation of the MAE at unseen points with a past: {deviation:+.1f} %"
    title = f"{part} scores on {records[0]['dataset']}"
    return tidy_table(lines, title, columns, caption)


def _average_note(units: Mapping[str, str] | None) -> str:
    """What the average over channels of several units is."""
    if len(set((units or {}).values())) < 2:
        return ""
    return "\nall: errors divided by the training standard deviation, since units differ."


def comparison_table(
    lines: list[dict[str, Any]],
    points: str,
    data: str,
    budget: str,
    units: Mapping[str, str] | None = None,
) -> Table:
    """Models of a comparison, best first: scores and what they cost.

    Args:
        lines: as from `stonet.evaluation.comparison.summary`.
        points: kind of points that was scored.
        data: name of the data.
        budget: of each training.
        units: of each channel.
    """
    scored = [line for line in lines if line["mae"] is not None]
    title = f"{data}, {points} points, {budget} for each training"
    columns = dict(COMPARISON_COLUMNS)
    if units and len(set(units.values())) == 1 and (unit := next(iter(units.values()))):
        columns |= {key: f"{columns[key]} ({unit})" for key in ("mae", "rmse", "bias")}
    return tidy_table(scored, title, columns, UNITS + _average_note(units))


def say_if_worse(lines: Sequence[Mapping[str, Any]], where: str, model: str | None = None) -> None:
    """Say aloud which models have no lower error than persistence.

    Args:
        lines: with the keys model and mae.
        where: what was scored, such as "at seen points".
        model: the only one that matters; None: all but the reference forecasts.
    """
    errors = {str(line["model"]): line["mae"] for line in lines if line["mae"] is not None}
    reference = errors.get("persistence")
    for name, error in errors.items():
        if reference is None or name in REFERENCES or model not in (None, name):
            continue
        if error >= reference:
            say(
                f"WARNING: {name} is no better than persistence {where}: MAE "
                f"{error:.4g}, persistence {reference:.4g}."
            )
