"""Short descriptions of objects: a few lines of text, or a small HTML table for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from stonet.data.durations import duration_label

if TYPE_CHECKING:
    from stonet.data.field import Field
    from stonet.data.geometry import Points

MAX_CELL = 72  # characters of an entry
MAX_NAME = 24  # characters of a name within it
MAX_NAMES = 6  # names that are listed
MAX_COUNTED = 2**24  # cells whose mask is counted exactly

Rows = Mapping[str, str]


class Described(ABC):
    """Short descriptions for terminals and notebooks, from a title and a summary."""

    @abstractmethod
    def _title(self) -> str:
        """One line."""

    @abstractmethod
    def _summary(self) -> Rows:
        """Facts by name."""

    def __repr__(self) -> str:
        return as_text(self._title(), self._summary())

    def _repr_html_(self) -> str:
        return as_html(self._title(), self._summary())


def as_text(title: str, rows: Rows) -> str:
    """A title and one indented line for each row.

    Args:
        title: the first line.
        rows: name and text of each line.
    """
    width = max((len(name) for name in rows), default=0)
    lines = [f"  {name:<{width}}  {shortened(text)}" for name, text in rows.items()]
    return "\n".join([shortened(title), *lines])


def as_html(title: str, rows: Rows) -> str:
    """The same as a table; all text is escaped.

    Args:
        title: the caption.
        rows: name and text of each row.
    """
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(shortened(text))}</td></tr>"
        for name, text in rows.items()
    )
    return f"<table><caption>{escape(shortened(title))}</caption>{cells}</table>"


def shortened(text: str, length: int = MAX_CELL) -> str:
    """The text on one line of at most this many characters.

    Args:
        text: from data or users; control characters become spaces.
        length: most characters; a longer text ends in "…".
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * length]).split())
    return plain if len(plain) <= length else plain[: length - 1] + "…"


def counted(number: int, noun: str) -> str:
    """'1 station', '2 stations'.

    Args:
        number: how many.
        noun: in the singular; its plural ends in s.
    """
    return f"{number:,} {noun}" + "s" * (number != 1)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many there are in all.

    Args:
        names: of channels or stations.
    """
    shown = ", ".join(shortened(name, MAX_NAME) for name in names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown}, … ({len(names)} in all)"


def channels_with_units(channels: Sequence[str], units: Sequence[str]) -> str:
    """'t2m (K), wind (m s-1)'; units of 1 are left out.

    Args:
        channels: names.
        units: one for each channel.
    """
    pairs = zip(channels[: MAX_NAMES + 1], units, strict=False)
    shown = [name if unit in ("", "1") else f"{name} ({unit})" for name, unit in pairs]
    return listed([*shown, *channels[MAX_NAMES + 1 :]])


def extent(points: Points) -> str:
    """'sphere, lat 45.8 to 47.8, lon 6.1 to 10.5'.

    Args:
        points: on a plane or a sphere.
    """
    low, high = points.coordinates.min(0), points.coordinates.max(0)
    axes = zip(points.geometry.axes, low, high, strict=True)
    return ", ".join([points.kind, *(f"{axis} {a:.5g} to {b:.5g}" for axis, a, b in axes)])


def period(episodes: Sequence[Field]) -> str:
    """First and last time of all episodes, and the usual step.

    Args:
        episodes: fields of one data set.
    """
    first = min(episodes, key=lambda field: int(field.times[0]))
    start, stop = int(first.times[0]), max(int(field.times[-1]) for field in episodes)
    if start == stop:
        return short_time(start, first.calendar)
    steps = np.diff(first.times)
    regular = len(episodes) == 1 and (steps == steps[0]).all()
    usual = "every" if regular else "mostly every"
    return (
        f"{short_time(start, first.calendar)} to {short_time(stop, first.calendar)}"
        f"{' UTC' * first.calendar}, {usual} {duration_label(first.step)}"
    )


def missing_share(episodes: Sequence[Field]) -> str:
    """The share of missing values in percent; estimated from some frames of large fields.

    Args:
        episodes: fields of one data set; at most MAX_COUNTED values are counted.
    """
    frames = sum(len(field.times) for field in episodes)
    every = -(-frames // max(1, MAX_COUNTED // episodes[0].observed[0].size))
    counts = [(int(part.sum()), part.size) for f in episodes for part in [f.observed[::every]]]
    observed, total = (sum(column) for column in zip(*counts, strict=True))
    share = 100 * (1 - observed / total)
    return f"{'about ' if every > 1 else ''}{share:.2g} %"


def short_time(nanoseconds: int, calendar: bool) -> str:
    """A date to the minute where it has no seconds; without a calendar, a duration since zero.

    Args:
        nanoseconds: since 1970 UTC, or since zero.
        calendar: whether the time is a date.
    """
    if not calendar:
        return duration_label(nanoseconds)
    text = str(np.datetime64(nanoseconds, "ns").astype("datetime64[s]"))
    return text.removesuffix(":00").replace("T", " ")
