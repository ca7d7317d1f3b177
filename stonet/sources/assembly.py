"""From the contents of one or many files to a single Field: sorted, joined, checked.

A cell is one channel at one point and time. Each may be given once; what several files (or rows)
say of the same cell must agree, or `read.duplicates` says how to settle it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from stonet.clock import UNITS, parse_duration
from stonet.config import ReadConfig
from stonet.errors import DataError, UsageError
from stonet.field import Field, time_label
from stonet.geometry import Points, curve_order
from stonet.progress import tell
from stonet.sources.content import Content, nothing_left, with_levels
from stonet.sources.room import Room, memory_budget

BLOCK = 2**24  # cells read at a time
SENTINEL = -9999.0  # means "not observed" to nearly everyone who writes it
LISTED = 5  # conflicts named in a message


def assemble(contents: Sequence[Content], config: ReadConfig) -> Field:
    """One Field of all contents, narrowed to what the configuration asks for."""
    config = with_levels(config, contents)
    parts = [part for part in (content.narrowed(config) for content in contents) if part]
    if not parts:
        raise nothing_left(contents, config)
    channels, units = _joined_channels(parts)
    absent = [name for name in config.variables if name not in channels]
    if absent:
        raise nothing_left(contents, config)
    if config.variables:  # in the order in which they were asked for
        units = tuple(units[channels.index(name)] for name in config.variables)
        channels = config.variables
    _same_clock(parts)
    parts, notes = _at_common_points(parts, config)
    times = np.unique(np.concatenate([_in_bins(part.times, config) for part in parts]))
    canvas = Canvas(times, parts[0].points, channels, config, parts[0].calendar)
    canvas.total = sum(len(part.times) for part in parts)
    for part in parts:
        canvas.paint(part)
    notes = [*(note for part in parts for note in part.notes), *notes, *canvas.notes()]
    attrs = {k: v for part in reversed(parts) for k, v in part.attrs.items()}
    sites: dict[str, np.ndarray] = {}
    for part in parts:  # each knows its own points
        for key, row in part.sites.items():
            sites[key] = np.where(np.isnan(sites[key]), row, sites[key]) if key in sites else row
    references = {part.reference_time for part in parts}
    field = Field.trusted(
        values=canvas.values,
        mask=canvas.mask,
        times=times,
        points=parts[0].points,
        channels=channels,
        units=units,
        calendar=parts[0].calendar,
        reference_time=references.pop() if len(references) == 1 else None,
        attrs=attrs,
        sites=sites,
        notes=tuple(dict.fromkeys(notes)),
    )
    return _alive(field, contents)


class Canvas:
    """The cells to be filled, and who filled them."""

    def __init__(
        self,
        times: Int64[np.ndarray, " time"],
        points: Points,
        channels: tuple[str, ...],
        config: ReadConfig,
        calendar: bool,
    ) -> None:
        shape = (len(times), len(points), len(channels))
        averaged = config.every is not None or config.duplicates == "mean"
        room = Room(
            int(np.prod(shape, dtype=object)), 9 if averaged else 5, " x ".join(map(str, shape))
        )
        self.values = room.zeros(shape, np.float32)
        self.mask = room.zeros(shape, np.bool_)
        self.count = room.zeros(shape, np.uint32) if averaged else None
        self.times, self.points, self.channels = times, points, channels
        self.config, self.calendar = config, calendar
        self.repeated = self.sentinels = self.infinite = 0
        self.done = self.total = 0  # frames, for whoever watches

    def paint(self, part: Content) -> None:
        """Put the part's values into their cells, block by block."""
        rows = np.searchsorted(self.times, _in_bins(part.times, self.config))
        columns = [self.channels.index(name) for name in part.channels]
        every = columns == list(range(len(self.channels)))
        length = max(1, _cells() // max(1, len(part.points) * len(part.channels)))
        for start in range(0, len(rows), length):
            stop = min(start + length, len(rows))
            block = self._cleaned(np.asarray(part.frames(start, stop), np.float32), part, start)
            for chosen in _once_each(rows[start:stop]):
                where = rows[start:stop][chosen]
                if every:
                    self._settle(where, slice(None), block[chosen], part)
                else:
                    for number, column in enumerate(columns):
                        cells = slice(column, column + 1)
                        self._settle(where, cells, block[chosen][..., number : number + 1], part)
            self.done += stop - start
            tell(self.done, self.total)

    def _settle(
        self, rows: Int64[np.ndarray, " row"], cells: slice, block: np.ndarray, part: Content
    ) -> None:
        new, old = ~np.isnan(block), self.mask[rows, :, cells]
        both = new & old
        value = np.where(new, block, 0)
        if both.any():
            before = self.values[rows, :, cells]
            value = self._agreed(rows, cells, before, value, both, part)
        self.values[rows, :, cells] = np.where(new, value, self.values[rows, :, cells])
        self.mask[rows, :, cells] = new | old
        if self.count is not None:
            self.count[rows, :, cells] += new

    def _agreed(
        self,
        rows: Int64[np.ndarray, " row"],
        cells: slice,
        before: np.ndarray,
        value: np.ndarray,
        both: np.ndarray,
        part: Content,
    ) -> np.ndarray:
        """What to write where a cell is given again."""
        self.repeated += int(both.sum())
        if self.count is not None:
            seen = self.count[rows, :, cells].astype(np.float64)
            return np.where(both, before + (value - before) / (seen + 1), value)
        differ = both & (before != value)
        if self.config.duplicates == "first":
            return np.where(both, before, value)
        if self.config.duplicates == "refuse" and differ.any():
            raise self._conflict(rows, cells, before, value, differ, part)
        return value

    def _conflict(
        self,
        rows: Int64[np.ndarray, " row"],
        cells: slice,
        before: np.ndarray,
        value: np.ndarray,
        differ: np.ndarray,
        part: Content,
    ) -> DataError:
        names = self.channels[cells]
        listed = [
            f"'{names[c]}' at '{self.points.names[n]}', "
            f"{time_label(int(self.times[rows[t]]), self.calendar)}: {before[t, n, c]:g} and "
            f"{value[t, n, c]:g}"
            for t, n, c in np.argwhere(differ)[:LISTED]
        ]
        return DataError(
            f"'{part.origin}': {int(differ.sum())} values are given twice and differ ("
            + "; ".join(listed)
            + "). Remove the wrong ones, or choose with --set read.duplicates=mean, first or last. "
            "An hour that occurs twice each autumn is local time: give its --timezone."
        )

    def _cleaned(self, block: np.ndarray, part: Content, start: int) -> np.ndarray:
        """Sentinels and, if wished, infinite values as NaN."""
        absent = np.isin(block, np.array([SENTINEL, *self.config.missing], np.float32))
        if absent.any():
            self.sentinels += int(absent.sum())
            block = np.where(absent, np.nan, block)
        infinite = np.isinf(block)
        if not infinite.any():
            return block
        if self.config.infinite == "refuse":
            t, n, c = np.argwhere(infinite)[0]
            when = time_label(int(part.times[start + t]), part.calendar)
            raise DataError(
                f"'{part.origin}': {int(infinite.sum())} values are infinite or too large for "
                f"float32 (first: '{part.channels[c]}' at '{part.points.names[n]}', {when}). If "
                "they mean missing: --set read.infinite=missing."
            )
        self.infinite += int(infinite.sum())
        return np.where(infinite, np.nan, block)

    def notes(self) -> list[str]:
        """What was done to the values, for people."""
        told = []
        if self.sentinels:
            marks = ", ".join(f"{v:g}" for v in (SENTINEL, *self.config.missing))
            told.append(f"{self.sentinels} values equal to {marks} count as missing.")
        if self.infinite:
            told.append(f"{self.infinite} infinite values count as missing.")
        if self.repeated and self.config.every is None:
            how = {"refuse": "equal, merged"}.get(self.config.duplicates, self.config.duplicates)
            told.append(f"{self.repeated} values were given more than once ({how}).")
        return told


def _cells() -> int:
    """Cells read at a time: fewer where the memory budget is small."""
    return max(2**16, min(BLOCK, memory_budget() // 32))


def _in_bins(times: Int64[np.ndarray, " time"], config: ReadConfig) -> Int64[np.ndarray, " time"]:
    """The nearest whole multiple of `read.every`, half way up."""
    if config.every is None:
        return times
    step = parse_duration(config.every)
    if step < UNITS["ms"]:
        raise UsageError(f"read.every = '{config.every}' is too short; write e.g. '1h'.")
    return (times + step // 2) // step * step


def _once_each(rows: Int64[np.ndarray, " row"]) -> list[np.ndarray]:
    """Positions in groups that hold no row twice; nearly always a single group."""
    if (np.diff(rows) > 0).all():
        return [np.arange(len(rows))]
    order = np.argsort(rows, kind="stable")
    first = np.r_[True, np.diff(rows[order]) > 0]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    turn = np.empty(len(rows), dtype=np.int64)  # how often the row occurred before
    turn[order] = np.arange(len(rows)) - begin
    return [np.flatnonzero(turn == number) for number in range(int(turn.max()) + 1)]


def _joined_channels(parts: Sequence[Content]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found: dict[str, tuple[str, str]] = {}
    for part in parts:
        for name, unit in zip(part.channels, part.units, strict=True):
            known = found.setdefault(name, (unit, part.origin))
            if known[0] != unit:
                raise DataError(
                    f"'{name}' is in '{known[0]}' in '{known[1]}' and in '{unit}' in "
                    f"'{part.origin}'. Convert one of them."
                )
    return tuple(found), tuple(unit for unit, _ in found.values())


def _same_clock(parts: Sequence[Content]) -> None:
    for part in parts[1:]:
        if part.calendar != parts[0].calendar or part.points.kind != parts[0].points.kind:
            raise DataError(
                f"'{parts[0].origin}' and '{part.origin}' cannot be joined: one has dates and the "
                "other has not, or one lies on a sphere and the other on a plane."
            )


def _at_common_points(parts: list[Content], config: ReadConfig) -> tuple[list[Content], list[str]]:
    """All parts at the same points, in the same order: unions, coincident ones, sampling."""
    union = parts[0].points
    if any(part.points != union for part in parts[1:]):
        if not all(part.named for part in parts):  # then places are known by where they are
            parts = [replace(part, named=False) for part in parts]
        union = _union(parts)
        parts = [_spread_out(part, union) for part in parts]
    notes: list[str] = []
    keep = _distinct(parts, union, config, notes)
    if config.points is not None and config.points < len(keep):
        order = curve_order(union.take(keep))
        chosen = order[np.arange(config.points) * len(keep) // config.points]
        notes.append(f"{config.points} of {len(keep)} points, spread over the region.")
        keep = np.sort(keep[chosen])
    return [part.take(keep) for part in parts], notes


def _key(part: Content, number: int) -> tuple:
    if part.named:
        return (part.points.names[number],)
    return tuple(np.round(part.points.coordinates[number], 5))


def _union(parts: Sequence[Content]) -> Points:
    """Every place once, in order of appearance. A station is known by its name, else by where."""
    where: dict[tuple, np.ndarray] = {}
    for part in parts:
        for number, place in enumerate(part.points.coordinates):
            known = where.setdefault(_key(part, number), place)
            if np.abs(known - place).max() > 1e-4:
                raise DataError(
                    f"'{part.origin}': station '{part.points.names[number]}' is at {place} here "
                    f"and at {known} elsewhere. Give moved stations different names."
                )
    names = tuple(str(key[0]) for key in where) if all(part.named for part in parts) else ()
    return Points(np.array(list(where.values())), parts[0].points.kind, names)


def _spread_out(part: Content, union: Points) -> Content:
    """The part at the union's points: missing where it does not know them."""
    numbered = replace(part, points=union, named=part.named and bool(union.names))
    position = {_key(numbered, number): number for number in range(len(union))}
    columns = np.array([position[_key(part, number)] for number in range(len(part.points))])
    frames = part.frames

    def spread(start: int, stop: int) -> np.ndarray:
        block = np.full((stop - start, len(union), len(part.channels)), np.nan, np.float32)
        block[:, columns] = frames(start, stop)
        return block

    sites = {}
    for name, row in part.sites.items():
        sites[name] = np.full(len(union), np.nan)
        sites[name][columns] = row
    return replace(part, points=union, frames=spread, sites=sites)


def _distinct(
    parts: Sequence[Content], union: Points, config: ReadConfig, notes: list[str]
) -> Int64[np.ndarray, " kept"]:
    """Positions of points to keep: several at one place are refused, kept, or all but one go."""
    _, first, group = np.unique(
        np.round(union.embedded, 9), axis=0, return_index=True, return_inverse=True
    )
    extra = np.setdiff1d(np.arange(len(union)), first)
    everyone = np.arange(len(union))
    if not len(extra) or config.same_place == "keep":
        return everyone
    twin = int(first[group.ravel()[extra[0]]])
    names = union.names[twin], union.names[int(extra[0])]
    if config.same_place == "refuse" and not all(part.grid for part in parts):
        raise DataError(
            f"'{parts[0].origin}': {len(extra)} points lie exactly where others do (first: "
            f"'{names[0]}' and '{names[1]}' at {union.coordinates[twin]}). Correct them, or choose "
            "with --set read.same_place=keep (each with its own values) or first (drop the others)."
        )
    notes.append(f"{len(extra)} points that lie exactly where others do were dropped.")
    return np.sort(first)


def _alive(field: Field, contents: Sequence[Content]) -> Field:
    """Without the points that were never observed, such as a land data set's sea."""
    alive = np.zeros(len(field.points), dtype=bool)
    length = max(1, _cells() // max(1, field.mask[0].size))  # type: ignore[index]
    for start in range(0, len(field.times), length):
        alive |= field.observed[start : start + length].any((0, 2))
        if alive.all():
            return field
    if not alive.any():
        raise DataError(
            f"'{contents[0].origin}' holds {len(field.times)} frames of "
            f"{', '.join(field.channels)}, and every value is missing (NaN). Check how the file "
            "was made, and its _FillValue."
        )
    dead = int((~alive).sum())
    example = field.points.names[int((~alive).argmax())]
    note = f"{dead} of {len(alive)} points have no value at all and were dropped ('{example}')."
    index = np.flatnonzero(alive)
    shape = (len(field.times), len(index), len(field.channels))
    room = Room(int(np.prod(shape, dtype=object)), 5, " x ".join(map(str, shape)))
    values, mask = room.zeros(shape, np.float32), room.zeros(shape, np.bool_)
    for start in range(0, len(field.times), length):
        part = slice(start, start + length)
        values[part], mask[part] = field.values[part][:, index], field.observed[part][:, index]
    changed = dict(values=values, mask=mask, points=field.points.take(index))
    sites = {name: row[index] for name, row in field.sites.items()}
    return Field.trusted(
        **(vars(field) | changed | {"sites": sites, "notes": (*field.notes, note)})
    )
