"""Markdown: tables, and numbers as they show them. A dash stands for what was not measured."""

from __future__ import annotations

from collections.abc import Sequence

from stonet.experiments.datasets import task_of

DASH = "-"
MANY = 1000.0  # percent


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def shown(value: float | None, task: str = "", spread: float | None = None) -> str:
    """An error in the task's unit, with four digits; a dash where there is none."""
    if value is None:
        return DASH
    unit = task_of(task).per_unit if task else 1.0
    return f"{value / unit:.4g}" + ("" if spread is None else f" ± {spread / unit:.1g}")


def percent(value: float | None) -> str:
    """A change with its sign; as a factor where it is many times as much."""
    if value is None:
        return DASH
    return f"{value:+.1f} %" if value < MANY else f"{1 + value / 100:.3g} times"


def likely(p: float | None) -> str:
    """A probability."""
    if p is None:
        return DASH
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def heads(tasks: Sequence[str]) -> list[str]:
    """What the columns of a table by task are called."""
    return [f"{task} ({task_of(task).unit or 'data unit'})" for task in tasks]
