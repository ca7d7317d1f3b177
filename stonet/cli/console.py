"""What a person at a terminal sees: progress with time to go, tables; or one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
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

screen = Console(stderr=True)  # talk goes to stderr; stdout is for results


def print_table(table: Table, least: int = 100) -> None:
    """A result, on stdout; whole even where nobody told how wide the terminal is."""
    Console(width=max(Console().width, least)).print(table)


def say(text: str, quiet: bool = False) -> None:
    """A line for the person."""
    if not quiet:
        screen.print(text, highlight=False, markup=False)  # a path may hold brackets


def print_json(content: dict[str, Any]) -> None:
    """The one object that machines read."""
    json.dump(content, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def counting_bar(
    title: str, quiet: bool, transient: bool = False, patience: float = 0.0
) -> Iterator[Any]:
    """A bar for a known number of things: watch(done, total, note); after `patience` seconds."""
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
        speed_estimate_period=3600.0,  # seconds: one thing may take many minutes
    )
    bar = progress.add_task(title, total=None, note="")
    started, shown = time.monotonic(), False

    def watch(done: int, total: int, note: str = "") -> None:
        nonlocal shown
        if not shown and time.monotonic() - started >= patience:
            progress.start()
            shown = True
        progress.update(bar, completed=done, total=total, note=note)

    try:
        if not patience:
            progress.start()
            shown = True
        yield watch
    finally:
        if shown:
            progress.stop()


@contextmanager
def bytes_bar(quiet: bool) -> Iterator[Any]:
    """A bar for files that are fetched or verified: watch(name, bytes, total)."""
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

        def watch(name: str, done: int, total: int | None) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total)
            progress.update(bars[name], completed=done, total=total)

        yield watch


def score_table(
    records: list[dict[str, Any]], deviation: float | None, part: str = "test"
) -> Table:
    """Models against points: MAE, RMSE, MAPE, bias, and skill over persistence."""
    table = Table(title=f"{part} scores on {records[0]['dataset']}", title_justify="left")
    for name in ("model", "points", "channel", "MAE", "RMSE", "MAPE %", "bias", "skill"):
        left = name in ("model", "points", "channel")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    overall = [r for r in records if r["lead"] == "all"]
    cells = {(r["model"], r["points"], r["channel"], r["metric"]): r["value"] for r in overall}
    for model, points, channel in dict.fromkeys(
        (r["model"], r["points"], r["channel"]) for r in overall
    ):
        values = [
            cells[model, points, channel, metric] for metric in ("mae", "rmse", "mape", "bias")
        ]
        reference = cells.get(("persistence", points, channel, "mae"))
        skill = f"{1 - values[0] / reference:.3f}" if reference and values[0] is not None else ""
        table.add_row(
            model, points, channel, *("" if v is None else f"{v:.3g}" for v in values), skill
        )
    if deviation is not None:
        table.caption = f"Deviation of the MAE at unseen points with a past: {deviation:+.1f} %"
    return table


def comparison_table(lines: list[dict[str, Any]], points: str, data: str, budget: str) -> Table:
    """Models side by side, best first: scores and what they cost."""
    title = f"{data}, {points} points, {budget} each"
    table = Table(title=title, title_justify="left")
    columns = {
        "MAE": "mae",
        "RMSE": "rmse",
        "MAPE %": "mape",
        "bias": "bias",
        "skill": "skill",
        "parameters": "parameters",
        "steps": "steps",
        "s/epoch": "seconds_per_epoch",
        "peak MB": "peak_mb",
    }
    table.add_column("model", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for line in (line for line in lines if line["mae"] is not None):
        table.add_row(line["model"], *(_cell(line, key) for key in columns.values()))
    return table


def tidy_table(lines: Sequence[dict[str, Any]], title: str, columns: Sequence[str] = ()) -> Table:
    """Any tidy lines: these columns or all, a spread beside its mean, none that is empty."""
    table = Table(title=title, title_justify="left")
    keys = list(columns) or list(dict.fromkeys(key for line in lines for key in line))
    shown = [
        key
        for key in keys
        if not key.endswith("_std") and any(line.get(key) not in (None, []) for line in lines)
    ]
    for key in shown:
        words = any(isinstance(line.get(key), str) for line in lines)
        table.add_column(key, justify="left" if words else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(_told(line.get(key), line.get(f"{key}_std")) for key in shown))
    return table


def _told(value: Any, spread: float | None) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" + ("" if spread is None else f" ±{spread:.1g}")
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _cell(line: dict[str, Any], key: str) -> str:
    value, spread = line[key], line.get(f"{key}_std")
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    shown = f"{value:.3f}" if key == "skill" else f"{value:.3g}" if key != "mae" else f"{value:.4g}"
    return shown if spread is None else f"{shown} ±{spread:.1g}"
