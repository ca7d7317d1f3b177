"""Blocks: what sections of the report are made of. The template knows how each is shown.

Texts are plain and are escaped by the template; only drawings are markup already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from markupsafe import Markup

UNKNOWN = "\N{EN DASH}"  # where there is no number
Json = Mapping[str, object]  # of what JSON can hold
Legend = Sequence[tuple[str, str]]  # name and CSS class of each line


@dataclass(frozen=True)
class Drawing:
    """An SVG, and the values that are shown beside the pointer.

    Args:
        svg: the markup.
        hover: read by the script of the page; empty: nothing is shown.
    """

    svg: Markup
    hover: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A drawing with a title.

    Args:
        title: above the drawing.
        drawing: the picture.
        note: below it.
        legend: of its lines.
        size: "wide" takes the whole width, "double" that of two figures.
    """

    title: str
    drawing: Drawing
    note: str = ""
    legend: Legend = ()
    size: Literal["", "double", "wide"] = ""


@dataclass(frozen=True)
class Figures:
    """Figures side by side, as many as the width allows.

    Args:
        figures: in their order.
        title: of all of them.
        channel: position of the channel that they show (None: all).
        layout: "pairs" are two in a row.
    """

    figures: Sequence[Figure]
    title: str = ""
    channel: int | None = None
    layout: Literal["", "pairs"] = ""
    kind: ClassVar[str] = "figures"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        text: that is shown.
        value: by which rows are sorted (None: the text).
        best: whether it stands out.
    """

    text: str
    value: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        cells: one for each column.
        keys: what the row is about, by name: attributes for scripts and tests.
        strong: whether the row stands out.
    """

    cells: Sequence[Cell]
    keys: Mapping[str, str] = field(default_factory=dict)
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table that can be sorted by each column.

    Args:
        title: above it.
        columns: headings.
        rows: of as many cells as there are columns.
        note: below it.
        channel: position of the channel that it shows (None: all).
        folded: whether it is closed at first.
        text_columns: the first so many columns hold text.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    channel: int | None = None
    folded: bool = False
    text_columns: int = 1
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Facts:
    """Names and texts.

    Args:
        rows: text by name.
        title: above them.
    """

    rows: Mapping[str, str]
    title: str = ""
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Note:
    """A paragraph.

    Args:
        text: of it.
        level: "plain"; "warning" where something needs attention, "missing" where there is nothing.
        channel: position of the channel that it is about (None: all).
    """

    text: str
    level: str = "plain"
    channel: int | None = None
    kind: ClassVar[str] = "note"


@dataclass(frozen=True)
class Picker:
    """A choice of a station, whose forecasts the script draws.

    Args:
        channel: position of the channel.
        names: numbers of the stations and their names.
        chosen: number of the first one shown.
        note: below it.
    """

    channel: int
    names: Sequence[tuple[int, str]]
    chosen: int
    note: str = ""
    kind: ClassVar[str] = "picker"


Block = Figures | Table | Facts | Note | Picker


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Args:
        name: unique, for links.
        title: its heading.
        lead: what is seen, in a sentence or two.
        blocks: its content.
    """

    name: str
    title: str
    lead: str
    blocks: Sequence[Block]


def value_cell(value: float | None, text: str | None = None, best: bool = False) -> Cell:
    """A number with four significant digits; a dash where there is none.

    Args:
        value: of the cell.
        text: that is shown instead.
        best: whether it stands out.
    """
    if value is None or not math.isfinite(value):
        return Cell(UNKNOWN)
    return Cell(f"{value:.4g}" if text is None else text, value, best)


def rounded(values: Sequence[float]) -> list[float | None]:
    """Numbers of four significant digits for the script of the page; None for NaN.

    Args:
        values: any numbers.
    """
    return [float(f"{v:.4g}") if math.isfinite(v) else None for v in values]
