"""xarray's data sets as Contents: grids, stations, forecasts; nothing is loaded but coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Int64

from stonet.config import ReadConfig
from stonet.data.geometry import Kind, Points
from stonet.errors import DataError
from stonet.io.arrays import sampling_geometries
from stonet.io.arrays.coordinates import (
    as_text,
    carried,
    find,
    loaded,
    numbers,
    places,
    site_numbers,
    station_names,
    unique,
)
from stonet.io.arrays.held import Held
from stonet.io.arrays.time_axis import Timeline, check_calendars, timeline
from stonet.io.arrays.variables import Channel, channels_of, decoded
from stonet.io.lazy_source import LazySource, inside_box
from stonet.io.safety import fitting, readable

if TYPE_CHECKING:
    import xarray as xr

POINT_BYTES = 200  # of one point: coordinates, unit vector, name


def contents(
    source: xr.Dataset | xr.DataArray, origin: str, config: ReadConfig
) -> list[LazySource]:
    """What an object in memory, or one that somebody opened, holds."""
    with readable(origin, "a data set"):
        dataset = prepared(source)
        return [_content(dataset, Held(origin, lambda: dataset, closing=False), config)]


def contents_of_file(
    opened: Callable[[], xr.Dataset], origin: str, config: ReadConfig
) -> list[LazySource]:
    """What the file holds that `opened` opens."""
    held = Held(origin, lambda: prepared(opened()))
    try:
        return [_content(held.dataset, held, config)]
    finally:
        held.close()


def prepared(source: xr.Dataset | xr.DataArray) -> xr.Dataset:
    """As a data set, decoded after CF where that was not done: fill values, scales, dates."""
    import xarray as xr

    if isinstance(source, xr.DataArray):
        source = source.to_dataset(name=source.name or "u")
    check_calendars(source)
    return xr.decode_cf(source, decode_timedelta=False)


def _content(dataset: xr.Dataset, held: Held, config: ReadConfig) -> LazySource:
    observations = sampling_geometries.observations(dataset, held.origin, config)
    if observations is not None:
        return sampling_geometries.content(observations, held, config)
    origin = held.origin
    kind, first, second = places(dataset, config.geometry)
    frames = timeline(dataset, origin)
    space = tuple(map(str, dict.fromkeys(dataset[first].dims + dataset[second].dims)))
    if set(frames.dims) & set(space):
        raise DataError(
            f"'{first}' has dims {dataset[first].dims} and '{second}' {dataset[second].dims}; "
            f"expected points that stay where they are, along dims other than {frames.dims}."
        )
    channels, notes = channels_of(dataset, (*frames.dims, *space), origin, config)
    axes = [numbers(dataset, name, origin) for name in (first, second)]
    cuts = _cuts(dataset, (first, second), axes, kind, config)
    grid = len(space) > 1
    coordinates = _coordinates(dataset, (first, second), axes, space, cuts, origin)
    there = np.isfinite(coordinates).all(1) | (not grid)
    if there.any():  # a curved grid's cells outside its map are dropped at the end
        coordinates = np.where(there[:, None], coordinates, coordinates[there.argmax()])
    names = () if grid else unique(_names(dataset, space, origin), notes)
    block = Block(frames, space, cuts, tuple(channels), len(coordinates))
    content = LazySource(
        origin=origin,
        times=frames.times,
        points=Points(coordinates, cast(Kind, kind), names),
        channels=tuple(channel.name for channel in channels),
        units=tuple(channel.unit for channel in channels),
        frames=lambda start, stop: _read(block, held, start, stop),
        calendar=frames.calendar,
        named=bool(names),
        grid=grid,
        reference_time=frames.reference_time,
        sites=site_numbers(dataset, space, origin, cuts),
        attrs=carried(dataset),
        notes=tuple(notes),
        cells=_cells(block, dataset),
    )
    return content.take(np.flatnonzero(there)) if not there.all() else content


def _names(dataset: xr.Dataset, space: tuple[str, ...], origin: str) -> tuple[str, ...]:
    if space:
        return station_names(dataset, space[0], origin)
    single = find(dataset, "station")
    if single is None or dataset[single].ndim:
        return ()
    return (as_text(loaded(dataset, single, origin).item()),)


def _cuts(
    dataset: xr.Dataset,
    names: tuple[str, str],
    axes: list[np.ndarray],
    kind: str,
    config: ReadConfig,
) -> dict[str, Int64[np.ndarray, " kept"]]:
    """Positions along the axes of a regular grid that the region needs; {} for all of them."""
    first, second = (dataset[name].dims for name in names)
    if config.bbox is None or len(first) != 1 or len(second) != 1 or first == second:
        return {}
    west, south, east, north = config.bbox
    middle = ((west + east) / 2, (south + north) / 2)
    if kind == "sphere":
        lon = (west + (east - west) % 360.0 / 2) % 360.0
        middle = float(np.clip(middle[1], -90, 90)), lon
    # each axis alone, at the box's middle along the other one
    one = axes[0], np.full(len(axes[0]), middle[1])
    other = np.full(len(axes[1]), middle[0]), axes[1]
    cuts = {}
    for dims, pair in ((first, one), (second, other)):
        there = np.isfinite(pair[0] + pair[1])
        points = Points(np.where(there[:, None], np.stack(pair, 1), 0.0), cast(Kind, kind))
        kept = np.flatnonzero(inside_box(points, config.bbox) & there)
        if not len(kept):
            return {}
        cuts[str(dims[0])] = kept
    return cuts


def _coordinates(
    dataset: xr.Dataset,
    names: tuple[str, str],
    axes: list[np.ndarray],
    space: tuple[str, ...],
    cuts: dict[str, np.ndarray],
    origin: str,
) -> np.ndarray:
    """(node, 2), the nodes in the order of the dims."""
    sizes = [len(cuts.get(dim, range(dataset.sizes[dim]))) for dim in space]
    count = int(np.prod(sizes, dtype=object))
    fitting(count * POINT_BYTES, f"a grid of {' x '.join(map(str, sizes))} points", origin)
    if not count:
        raise DataError(f"There is no point: {dict(zip(space, sizes, strict=True))}.")
    columns = []
    for name, axis in zip(names, axes, strict=True):
        dims = dataset[name].dims
        axis = axis[np.ix_(*(cuts.get(str(d), np.arange(dataset.sizes[d])) for d in dims))]
        axis = axis.transpose([dims.index(d) for d in space if d in dims])
        shape = [size if dim in dims else 1 for dim, size in zip(space, sizes, strict=True)]
        columns.append(np.broadcast_to(axis.reshape(shape), sizes).ravel())
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Block:
    """How frames lie in the file."""

    frames: Timeline
    space: tuple[str, ...]
    cuts: dict[str, np.ndarray]
    channels: tuple[Channel, ...]
    nodes: int


def _cells(block: Block, dataset: xr.Dataset) -> int:
    """How many values `_read` takes from the file for one frame, those in between included."""
    across = 0
    for piece in _pieces(block):
        sides = (range(dataset.sizes[dim])[piece.get(dim, slice(None))] for dim in block.space)
        across += int(np.prod([len(side) for side in sides], dtype=object))
    return across * sum(
        int(np.prod([high[dim] - low[dim] for dim in low], dtype=object))
        for _, low, high in _variables(block)
    )


def _variables(block: Block) -> Iterator[tuple[list[int], dict[str, int], dict[str, int]]]:
    """Of each variable its channels, and the levels from which and up to which it is read."""
    for variable in dict.fromkeys(channel.variable for channel in block.channels):
        columns = [i for i, c in enumerate(block.channels) if c.variable == variable]
        levels = [block.channels[i].levels for i in columns]
        low = {dim: min(level[dim] for level in levels) for dim in levels[0]}
        yield columns, low, {dim: max(level[dim] for level in levels) + 1 for dim in levels[0]}


def _read(block: Block, held: Held, start: int, stop: int) -> np.ndarray:
    """(time, node, channel) as float32, NaN where missing; only these frames are read."""
    made = np.empty((stop - start, block.nodes, len(block.channels)), np.float32)
    with held.reading(last=stop == len(block.frames.times)) as dataset:
        for columns, low, high in _variables(block):
            whole = dataset[block.channels[columns[0]].variable]
            part = whole.isel({dim: slice(low[dim], high[dim]) for dim in low})
            array = _sliced(part, block, tuple(low), start, stop)
            for column in columns:
                levels = block.channels[column].levels
                chosen: tuple[Any, ...] = tuple(levels[dim] - low[dim] for dim in low)
                made[:, :, column] = array[(..., *chosen)].reshape(made.shape[:2])
    return made


def _sliced(
    array: xr.DataArray, block: Block, extra: tuple[str, ...], start: int, stop: int
) -> np.ndarray:
    """The variable's wanted frames, region and levels, as (time, *space, *levels)."""
    frames = block.frames.dims
    if len(frames) == 2:  # whole issue times, of which the first and last may be needed in part
        length = array.sizes[frames[1]]
        low = start // length
        array = array.isel({frames[0]: slice(low, -(-stop // length))})
    elif frames:
        array = array.isel({frames[0]: slice(start, stop)})
    pieces = [
        decoded(array.isel(piece).transpose(*frames, *block.space, *extra))
        for piece in _pieces(block)
    ]
    found = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=len(frames) + 1)
    if len(frames) == 2:
        found = found.reshape(-1, *found.shape[2:])[start - low * length :][: stop - start]
    elif not frames:
        found = found[None]
    for number, dim in enumerate(block.space):  # what lies between the wanted positions goes
        kept = block.cuts.get(dim)
        if kept is not None and len(kept) != found.shape[number + 1]:
            found = found.take(kept - kept[0], axis=number + 1)
    return found


def _pieces(block: Block) -> list[dict[str, slice]]:
    """What is read: one region, or two where it lies on both ends of the last dim (0 and 360)."""
    region = {dim: slice(int(kept[0]), int(kept[-1]) + 1) for dim, kept in block.cuts.items()}
    kept = block.cuts.get(block.space[-1]) if block.space else None
    if kept is None:
        return [region]
    jump = np.flatnonzero(np.diff(kept) > 1)
    if len(jump) != 1:
        return [region]
    at = int(jump[0])
    low = slice(int(kept[0]), int(kept[at]) + 1)
    high = slice(int(kept[at + 1]), int(kept[-1]) + 1)
    return [region | {block.space[-1]: part} for part in (low, high)]
