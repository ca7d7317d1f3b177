"""Tidy lines and their Markdown tables; a dash stands for a missing value.

An experiment's `table` returns tidy lines: dictionaries with one value per key. The report renders
them with `table` (one row per line) or `pivot` (rows by columns).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from stonet.experiments.cell import Result
from stonet.experiments.datasets import experiment_data

DASH = "-"
MAX_PERCENT = 1000.0  # larger changes are printed as factors
Line = dict[str, Any]
Column = Callable[[Line], str]
Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=tuple[str, ...])


def unique(values: Iterable[Key]) -> list[Key]:
    """The values without repetition, in the order of their first occurrence.

    Args:
        values: hashable.
    """
    return list(dict.fromkeys(values))


def mean(values: Sequence[float | int]) -> float | None:
    """The mean; None of nothing.

    Args:
        values: of the seeds.
    """
    return float(np.mean(values)) if values else None


def standard_deviation(values: Sequence[float | int]) -> float | None:
    """The standard deviation over the seeds; None of fewer than two.

    Args:
        values: of the seeds.
    """
    return float(np.std(values)) if len(values) > 1 else None


def measured(results: Sequence[Result]) -> list[Result]:
    """The results that hold scores: those of models that could be run.

    Args:
        results: of any cells.
    """
    return [result for result in results if "skipped" not in result.scores]


def stale_commits(results: Iterable[Result]) -> list[str]:
    """The commits of stale results.

    Args:
        results: of any cells.
    """
    return sorted({result.commit for result in results if result.stale})


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, with an empty line at the end.

    Args:
        head: headings of the columns.
        rows: cells as text.
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def table(columns: Mapping[str, Column], lines: Iterable[Line]) -> list[str]:
    """A Markdown table with one row per line.

    Args:
        columns: heading -> text of a line, such as `error("mae")`.
        lines: tidy lines.
    """
    return markdown_table([*columns], [[text(line) for text in columns.values()] for line in lines])


def pivot(
    names: Sequence[str], columns: Mapping[str, Key], cells: Mapping[tuple[Row, Key], str]
) -> list[str]:
    """A Markdown table of rows by columns, rows in the order of their first cell.

    Args:
        names: headings of the row keys.
        columns: heading -> key of a column.
        cells: (keys of a row, key of a column) -> text.
    """
    rows = unique(row for row, _ in cells)
    body = [[*row, *(cells.get((row, key), DASH) for key in columns.values())] for row in rows]
    return markdown_table([*names, *columns], body)


def text(key: str) -> Column:
    """A column that shows a value as it is.

    Args:
        key: of a line.
    """
    return lambda line: str(line.get(key, DASH))


def error(key: str) -> Column:
    """A column of errors in the unit of the data set, with their spread.

    Args:
        key: of a line; its spread is under `<key>_std`.
    """
    return lambda line: number(line.get(key), line["dataset"], line.get(f"{key}_std"))


def change(key: str) -> Column:
    """A column of changes in percent.

    Args:
        key: of a line.
    """
    return lambda line: percent(line.get(key))


def dataset_and_unit(line: Line) -> str:
    """The data set of a line with the unit of its errors.

    Args:
        line: of any table.
    """
    return f"{line['dataset']} ({experiment_data(line['dataset']).error_unit})"


def number(value: float | int | None, dataset: str = "", spread: float | None = None) -> str:
    """A number with four digits and its spread, in the unit of the data set's errors.

    Args:
        value: None gives a dash.
        dataset: whose unit is used; empty: none.
        spread: standard deviation.
    """
    if value is None:
        return DASH
    unit = experiment_data(dataset).per_unit if dataset else 1.0
    return f"{value / unit:.4g}" + ("" if spread is None else f" ± {spread / unit:.1g}")


def percent(value: float | int | None) -> str:
    """A change with its sign; from MAX_PERCENT on as a factor.

    Args:
        value: in percent; None is shown as a dash.
    """
    if value is None:
        return DASH
    return f"{value:+.1f} %" if value < MAX_PERCENT else f"{1 + value / 100:.3g} times"


def p_value(p: float | None) -> str:
    """A probability with three decimals.

    Args:
        p: None is shown as a dash.
    """
    if p is None:
        return DASH
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def unit_headings(datasets: Sequence[str]) -> dict[str, str]:
    """Heading with the unit of the errors -> data set, for a table with a column for each.

    Args:
        datasets: names.
    """
    return {dataset_and_unit({"dataset": name}): name for name in datasets}
