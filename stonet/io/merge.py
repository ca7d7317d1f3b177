"""From the contents of one or many files to a single Field: sorted, joined, checked.

A cell is one channel at one point and time. Each may be given once; what several files (or rows)
say of the same cell must agree, or `read.duplicates` says how to settle it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.data.geometry import Points, curve_order
from stonet.errors import DataError
from stonet.io.accumulator import Accumulator, cells_at_once, in_bins
from stonet.io.lazy_source import LazySource, nothing_left, with_levels
from stonet.system.spill import Room


def assemble(contents: Sequence[LazySource], config: ReadConfig) -> Field:
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
    times = np.unique(np.concatenate([in_bins(part.times, config) for part in parts]))
    accumulator = Accumulator(times, parts[0].points, channels, config, parts[0].calendar)
    accumulator.total = sum(len(part.times) for part in parts)
    for part in parts:
        accumulator.add(part)
    accumulator.mark_missing()
    notes = [*(note for part in parts for note in part.notes), *notes, *accumulator.notes()]
    attrs = {k: v for part in reversed(parts) for k, v in part.attrs.items()}
    sites: dict[str, np.ndarray] = {}
    for part in parts:  # each knows its own points
        for key, row in part.sites.items():
            sites[key] = np.where(np.isnan(sites[key]), row, sites[key]) if key in sites else row
    references = {part.reference_time for part in parts}
    field = Field.trusted(
        values=accumulator.values,
        mask=accumulator.mask,
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


def _joined_channels(parts: Sequence[LazySource]) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def _same_clock(parts: Sequence[LazySource]) -> None:
    for part in parts[1:]:
        if part.calendar != parts[0].calendar or part.points.kind != parts[0].points.kind:
            raise DataError(
                f"'{parts[0].origin}' and '{part.origin}' cannot be joined: one has dates and the "
                "other has not, or one lies on a sphere and the other on a plane."
            )


def _at_common_points(
    parts: list[LazySource], config: ReadConfig
) -> tuple[list[LazySource], list[str]]:
    """All parts at the same points, in the same order: unions, coincident ones, sampling."""
    union = parts[0].points
    if any(part.points != union for part in parts[1:]):
        if not all(part.named for part in parts):  # then places are known by where they are
            parts = [replace(part, named=False) for part in parts]
        union, columns = _union(parts)
        parts = [_spread_out(*pair, union) for pair in zip(parts, columns, strict=True)]
    notes: list[str] = []
    keep = _distinct(parts, union, config, notes)
    if config.points is not None and config.points < len(keep):
        order = curve_order(union.take(keep))
        chosen = order[np.arange(config.points) * len(keep) // config.points]
        notes.append(f"{config.points} of {len(keep)} points, spread over the region.")
        keep = np.sort(keep[chosen])
    return [part.take(keep) for part in parts], notes


def _union(parts: Sequence[LazySource]) -> tuple[Points, list[Int64[np.ndarray, " node"]]]:
    """Every place once, in order of appearance; and which of them the points of each part are.

    A station is known by its name, else by where it is.
    """
    number: dict[tuple, int] = {}
    places = np.empty((0, 2))
    columns = []
    for part in parts:
        mine = np.array([number.setdefault(key, len(number)) for key in _keys(part)])
        _, first = np.unique(mine, return_index=True)
        new = first[mine[first] >= len(places)]
        places = np.concatenate([places, _written_alike(part.points, places)[new]])
        apart = np.abs(part.points.coordinates - places[mine])
        if part.points.kind == "sphere":  # -10 and 350 degrees are one longitude
            apart[:, 1] = np.minimum(apart[:, 1] % 360.0, -apart[:, 1] % 360.0)
        moved = apart.max(axis=1) > 1e-4
        if moved.any():
            here = int(moved.argmax())
            raise DataError(
                f"'{part.origin}': station '{part.points.names[here]}' is at "
                f"{part.points.coordinates[here]} here and at {places[mine[here]]} elsewhere. "
                "Give moved stations different names."
            )
        columns.append(mine)
    names = tuple(str(key[0]) for key in number) if all(part.named for part in parts) else ()
    return Points(places, parts[0].points.kind, names), columns


def _keys(part: LazySource) -> list[tuple]:
    """By what each point is known in all parts: its name, or where it is (longitude modulo 360).

    Several points of one place are told apart by their order.
    """
    if part.named:
        return [(name,) for name in part.points.names]
    places = part.points.coordinates
    single = places.astype(np.float32)
    if (single == places).all():
        places = single.astype(str).astype(np.float64)  # 349.9 as it was meant, not 349.899994
    places = np.round(places, 5)
    if part.points.kind == "sphere":
        places[:, 1] = np.round(places[:, 1] % 360.0, 5) % 360.0
    seen: Counter[tuple] = Counter()
    keys = []
    for place in map(tuple, places.tolist()):
        keys.append((*place, seen[place]))
        seen[place] += 1
    return keys


def _written_alike(
    points: Points, known: Float64[np.ndarray, "place 2"]
) -> Float64[np.ndarray, "node 2"]:
    """Coordinates, their longitudes to 360 or negative in the west as the known ones have them."""
    lat, lon = points.coordinates.T
    west, far = (known[:, 1] < 0).any(), (known[:, 1] > 180).any()
    if points.kind == "sphere" and west != far:  # else the known ones do not tell
        lon = np.where(lon > 180, lon - 360, lon) if west else np.where(lon < 0, lon + 360, lon)
    return np.stack([lat, lon], axis=1)


def _spread_out(part: LazySource, columns: Int64[np.ndarray, " node"], union: Points) -> LazySource:
    """The part at the union's points, of which its own are `columns`; missing at the others."""
    frames = part.frames

    def spread(start: int, stop: int) -> np.ndarray:
        block = np.full((stop - start, len(union), len(part.channels)), np.nan, np.float32)
        block[:, columns] = frames(start, stop)
        return block

    sites = {}
    for name, row in part.sites.items():
        sites[name] = np.full(len(union), np.nan)
        sites[name][columns] = row
    cells = max(part.cells, len(union) * len(part.channels))
    return replace(part, points=union, frames=spread, sites=sites, cells=cells)


def _distinct(
    parts: Sequence[LazySource], union: Points, config: ReadConfig, notes: list[str]
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


def _alive(field: Field, contents: Sequence[LazySource]) -> Field:
    """Without the points that were never observed, such as a land data set's sea."""
    alive = np.zeros(len(field.points), dtype=bool)
    length = max(1, cells_at_once() // max(1, field.mask[0].size))  # type: ignore[index]
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
