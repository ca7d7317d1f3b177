"""One Field from the sources of one or many files: sorted, joined and checked.

Values of several files (or rows) for the same channel, point and time must agree, or
`read.duplicates` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.data.geometry import Points, curve_order
from stonet.data.validation import check_span
from stonet.errors import DataError
from stonet.io.accumulator import Accumulator, bin_times, block_cells
from stonet.io.lazy_source import LazySource, empty_selection, expand_levels
from stonet.system.spill import allocate

MAX_SHIFT = 1e-4  # degrees or units of the plane between two positions of one station
POSITION_DECIMALS = 5  # to which positions of unnamed points are compared
COINCIDENT_DECIMALS = 9  # of unit vectors or plane coordinates of points at one position


def merge_sources(sources: Sequence[LazySource], config: ReadConfig) -> Field:
    """Read all sources into one Field, restricted to what the configuration selects.

    Args:
        sources: of all files; at least one.
        config: what is selected, and how repeated values are treated.
    """
    config = expand_levels(config, sources)
    parts = [part for part in (source.select(config) for source in sources) if part]
    if not parts:
        raise empty_selection(sources, config)
    channels, units = _merge_channels(parts)
    if not set(config.variables) <= set(channels):
        raise empty_selection(sources, config)
    if config.variables:  # in the requested order
        units = tuple(units[channels.index(name)] for name in config.variables)
        channels = config.variables
    _check_compatible(parts)
    parts, notes = _align_points(parts, config)
    times = np.unique(np.concatenate([bin_times(part.times, config) for part in parts]))
    check_span(times, parts[0].calendar)
    accumulator = Accumulator(times, parts[0].points, channels, config, parts[0].calendar)
    accumulator.total = sum(len(part.times) for part in parts)
    for part in parts:
        accumulator.add(part)
    accumulator.mark_missing()
    notes = [*(note for part in parts for note in part.notes), *notes, *accumulator.notes()]
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
        attrs={k: v for part in reversed(parts) for k, v in part.attrs.items()},
        sites=_merge_sites(parts),
        notes=tuple(dict.fromkeys(notes)),
        channel_attrs={n: _first_attrs(parts, n) for n in channels},
    )
    return _drop_empty_points(field, sources[0].origin)


def _merge_channels(parts: Sequence[LazySource]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units of all channels; each channel must have one unit."""
    channels: dict[str, tuple[str, str]] = {}  # unit, and the file it is from
    for part in parts:
        for name, unit in zip(part.channels, part.units, strict=True):
            first_unit, origin = channels.setdefault(name, (unit, part.origin))
            if first_unit != unit:
                raise DataError(
                    f"'{name}' is in '{first_unit}' in '{origin}' and in '{unit}' in "
                    f"'{part.origin}'. Convert one of them."
                )
    return tuple(channels), tuple(unit for unit, _ in channels.values())


def _first_attrs(parts: Sequence[LazySource], channel: str) -> dict[str, Any]:
    """The attributes of a channel, from the first part that has each."""
    found = (part.channel_attrs.get(channel, {}) for part in reversed(parts))
    return {key: value for attrs in found for key, value in attrs.items()}


def _merge_sites(parts: Sequence[LazySource]) -> dict[str, np.ndarray]:
    """The attributes of the points, from the first part that has each."""
    sites: dict[str, np.ndarray] = {}
    for part in parts:
        for key, row in part.sites.items():
            sites[key] = np.where(np.isnan(sites[key]), row, sites[key]) if key in sites else row
    return sites


def _check_compatible(parts: Sequence[LazySource]) -> None:
    for part in parts[1:]:
        if part.calendar != parts[0].calendar or part.points.kind != parts[0].points.kind:
            raise DataError(
                f"'{parts[0].origin}' and '{part.origin}' cannot be merged: one has dates and the "
                "other has not, or one lies on a sphere and the other on a plane."
            )


# Points


def _align_points(
    parts: list[LazySource], config: ReadConfig
) -> tuple[list[LazySource], list[str]]:
    """All parts at the same points, in the same order, without coincident points; and notes."""
    union = parts[0].points
    if any(part.points != union for part in parts[1:]):
        if not all(part.named for part in parts):  # then points are identified by position
            parts = [replace(part, named=False) for part in parts]
        union, columns = _union(parts)
        parts = [_expand(*pair, union) for pair in zip(parts, columns, strict=True)]
    notes: list[str] = []
    keep = _without_coincident(parts, union, config, notes)
    if config.points is not None and config.points < len(keep):
        order = curve_order(union.take(keep))
        chosen = order[np.arange(config.points) * len(keep) // config.points]
        notes.append(f"{config.points} of {len(keep)} points, spread over the region.")
        keep = np.sort(keep[chosen])
    return [part.take(keep) for part in parts], notes


def _union(parts: Sequence[LazySource]) -> tuple[Points, list[Int64[np.ndarray, " node"]]]:
    """Every point once, in order of appearance; and its index for the points of each part.

    A station is identified by its name, otherwise by its position.
    """
    numbers: dict[tuple, int] = {}
    positions = np.empty((0, 2))
    columns = []
    for part in parts:
        index = np.array([numbers.setdefault(key, len(numbers)) for key in _point_keys(part)])
        _, first = np.unique(index, return_index=True)
        new = first[index[first] >= len(positions)]
        positions = np.concatenate([positions, _same_convention(part.points, positions)[new]])
        shift = np.abs(part.points.coordinates - positions[index])
        if part.points.kind == "sphere":  # -10 and 350 degrees are one longitude
            shift[:, 1] = np.minimum(shift[:, 1] % 360.0, -shift[:, 1] % 360.0)
        moved = shift.max(axis=1) > MAX_SHIFT
        if moved.any():
            node = int(moved.argmax())
            raise DataError(
                f"'{part.origin}': station '{part.points.names[node]}' is at "
                f"{part.points.coordinates[node]} here and at {positions[index[node]]} elsewhere. "
                "Give moved stations different names."
            )
        columns.append(index)
    names = tuple(str(key[0]) for key in numbers) if all(part.named for part in parts) else ()
    return Points(positions, parts[0].points.kind, names), columns


def _point_keys(part: LazySource) -> list[tuple]:
    """Identity of each point in all parts: its name, or its position (longitude modulo 360).

    Several points at one position are distinguished by their order.
    """
    if part.named:
        return [(name,) for name in part.points.names]
    positions = part.points.coordinates
    single = positions.astype(np.float32)
    if (single == positions).all():
        positions = shortest_decimals(single)
    positions = np.round(positions, POSITION_DECIMALS)
    if part.points.kind == "sphere":
        positions[:, 1] = np.round(positions[:, 1] % 360.0, POSITION_DECIMALS) % 360.0
    counts: Counter[tuple] = Counter()
    keys = []
    for position in map(tuple, positions.tolist()):
        keys.append((*position, counts[position]))
        counts[position] += 1
    return keys


def shortest_decimals(single: Float32[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """The shortest decimal number of each float32: 349.9 and not 349.899994.

    Of all decimals that float32 rounds to the same value, the one with the fewest digits.

    Args:
        single: any finite or missing values.
    """
    exact = single.astype(np.float64)
    shortest = exact
    for decimals in range(9, -8, -1):
        rounded = np.round(exact, decimals)
        shortest = np.where(rounded.astype(np.float32) == single, rounded, shortest)
    return shortest


def _same_convention(
    points: Points, others: Float64[np.ndarray, "point 2"]
) -> Float64[np.ndarray, "node 2"]:
    """Coordinates with longitudes up to 360, or negative in the west, as in `others`."""
    lat, lon = points.coordinates.T
    negative, above_180 = (others[:, 1] < 0).any(), (others[:, 1] > 180).any()
    if points.kind == "sphere" and negative != above_180:  # otherwise their convention is unclear
        lon = np.where(lon > 180, lon - 360, lon) if negative else np.where(lon < 0, lon + 360, lon)
    return np.stack([lat, lon], axis=1)


def _expand(part: LazySource, columns: Int64[np.ndarray, " node"], union: Points) -> LazySource:
    """The part at all points of the union, missing at those that are not its own (`columns`)."""
    frames = part.frames

    def expanded(start: int, stop: int) -> np.ndarray:
        block = np.full((stop - start, len(union), len(part.channels)), np.nan, np.float32)
        block[:, columns] = frames(start, stop)
        return block

    sites = {}
    for name, row in part.sites.items():
        sites[name] = np.full(len(union), np.nan)
        sites[name][columns] = row
    cells = max(part.cells, len(union) * len(part.channels))
    return replace(part, points=union, frames=expanded, sites=sites, cells=cells)


def _without_coincident(
    parts: Sequence[LazySource], union: Points, config: ReadConfig, notes: list[str]
) -> Int64[np.ndarray, " kept"]:
    """Indices of the points to keep: of several at one position the first, all, or an error."""
    rounded = np.round(union.embedded, COINCIDENT_DECIMALS)
    _, first, group = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    extra = np.setdiff1d(np.arange(len(union)), first)
    if not len(extra) or config.same_place == "keep":
        return np.arange(len(union))
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


def _drop_empty_points(field: Field, origin: str) -> Field:
    """The field without points that have no value, such as the sea in a land data set."""
    has_values = np.zeros(len(field.points), dtype=bool)
    length = max(1, block_cells() // max(1, field.observed[0].size))
    for start in range(0, len(field.times), length):
        has_values |= field.observed[start : start + length].any((0, 2))
        if has_values.all():
            return field
    if not has_values.any():
        raise DataError(
            f"'{origin}' holds {len(field.times)} frames of {', '.join(field.channels)}, and every "
            "value is missing (NaN). Check how the file was made, and its _FillValue."
        )
    count = int((~has_values).sum())
    example = field.points.names[int((~has_values).argmax())]
    note = f"{count} of {len(has_values)} points have no value and were dropped ('{example}')."
    index = np.flatnonzero(has_values)
    shape = (len(field.times), len(index), len(field.channels))
    values, mask = allocate(shape, np.float32, np.bool_)
    for start in range(0, len(field.times), length):
        part = slice(start, start + length)
        values[part], mask[part] = field.values[part][:, index], field.observed[part][:, index]
    changed = dict(values=values, mask=mask, points=field.points.take(index))
    sites = {name: row[index] for name, row in field.sites.items()}
    return Field.trusted(
        **(vars(field) | changed | {"sites": sites, "notes": (*field.notes, note)})
    )
