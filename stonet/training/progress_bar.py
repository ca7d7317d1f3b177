"""A progress bar of a training, in a terminal or a notebook."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stonet.system.progress import reporting_to

if TYPE_CHECKING:
    from stonet.training.trainer import StepCallback

DELAY = 2.0  # seconds of work before an unrequested bar appears


def is_interactive() -> bool:
    """Whether messages go to a terminal or to a notebook."""
    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextmanager
def training_bar(
    quiet: bool, delay: float = 0.0, console: Console | None = None, title: str = "training"
) -> Iterator[StepCallback]:
    """A bar of a training: first the closed forms, then the steps with their losses.

    Args:
        quiet: show nothing.
        delay: seconds before the bar appears.
        console: where it is drawn (None: stderr).
        title: shown before the bar.

    Yields:
        The function to call with each progress event of the trainer.
    """
    columns = (
        TextColumn(title),
        BarColumn(bar_width=16),
        TextColumn("{task.completed}/{task.total} {task.fields[unit]}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console or Console(stderr=True), disable=quiet)
    bar = progress.add_task(title, total=None, note="", unit="")
    started = time.monotonic()

    def show(done: int, total: int, note: str, unit: str) -> None:
        if not progress.live.is_started and time.monotonic() - started >= delay:
            progress.start()
        progress.update(bar, completed=done, total=total, note=note, unit=unit)

    def on_event(event: Any) -> None:
        loss = f"loss {event.loss:.4f}, " if event.step else ""
        note = f"{loss}best {event.best:.4f}"
        if event.steps is None:  # in minutes: the share is known, not the number of steps
            show(round(100 * event.share), 100, f"{event.step} steps, {note}", "%")
        else:
            show(event.step, max(event.steps, 1), note, "steps")

    try:
        with reporting_to(lambda done, total, what: show(done, total, what or "closed forms", "")):
            yield on_event
    finally:
        if progress.live.is_started:
            progress.stop()
