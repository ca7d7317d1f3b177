"""Which variables of a data set are channels, level by level, and how their numbers are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stonet.config import ReadConfig
from stonet.errors import DataError, UsageError
from stonet.io.arrays.coordinates import find, loaded

if TYPE_CHECKING:
    import xarray as xr

MOST = 64  # channels of one data set


@dataclass(frozen=True)
class Channel:
    """A variable, or one level of it."""

    name: str
    variable: str
    unit: str
    levels: dict[str, int]  # the position along each further dim, in the array's order


def channels_of(
    dataset: xr.Dataset, dims: tuple[str, ...], origin: str, config: ReadConfig
) -> tuple[list[Channel], list[str]]:
    """Every variable of numbers over the dims, of which the wanted ones; and what was left out.

    A further dim of several levels gives a channel for each: `r_850`. Wanted is a channel by its
    own name, or all of them by the variable's.
    """
    found: list[Channel] = []
    skipped: list[str] = []
    parts = ("lat", "lon", "time", "station", *(("x", "y", "altitude") if len(dims) == 1 else ()))
    taken = {find(dataset, part) for part in parts}  # in files that do not call them coordinates
    for name, array in dataset.data_vars.items():
        if name in taken or array.attrs.keys() & {"cf_role", "instance_dimension"}:
            continue
        if set(dims) <= set(array.dims) and array.dtype.kind in "fiub" and array.size:
            found += _levels(dataset, str(name), dims, origin, config)
        elif set(dims) <= set(array.dims):
            skipped.append(str(name))
    if not found:
        listing = ", ".join(f"{name}{array.dims}" for name, array in dataset.data_vars.items())
        raise DataError(
            f"No variable of numbers over the dims {sorted(dims)}; there are: {listing or 'none'}."
        )
    wanted = set(config.variables)
    chosen = [c for c in found if c.name in wanted or c.variable in wanted]
    chosen = chosen if wanted and chosen else found
    if len(chosen) > MOST:
        some = ", ".join(channel.name for channel in chosen[:5])
        raise UsageError(
            f"'{origin}' has {len(chosen)} channels ({some}, ...), and at most {MOST} are taken. "
            f"Choose some, e.g. variables=['{chosen[0].name}'] (--variables {chosen[0].name})."
        )
    notes = [f"Left out, since no numbers: {', '.join(skipped)}."] if skipped else []
    return chosen, notes


def _levels(
    dataset: xr.Dataset, name: str, dims: tuple[str, ...], origin: str, config: ReadConfig
) -> Iterator[Channel]:
    array = dataset[name]
    unit = str(array.attrs.get("units", "1")).strip() or "1"
    extra = [str(dim) for dim in array.dims if dim not in dims]
    labels = [_labels(dataset, dim, origin) for dim in extra]
    count = int(np.prod([len(row) for row in labels], dtype=object))
    if count > 1000 * MOST:
        raise UsageError(
            f"'{origin}': '{name}' has {count} levels over {extra}; select some of them first."
        )
    for place in itertools.product(*(range(len(row)) for row in labels)):
        words = [row[i] for row, i in zip(labels, place, strict=True) if len(row) > 1]
        full = "_".join([name, *words])
        yield Channel(full, name, unit, dict(zip(extra, place, strict=True)))


def _labels(dataset: xr.Dataset, dim: str, origin: str) -> list[str]:
    """What each level is called: its coordinate, or its number."""
    size = dataset.sizes[dim]
    if dim in dataset.variables and dataset.variables[dim].dims == (dim,):
        values = loaded(dataset, dim, origin)
        texts = [f"{v:g}" if values.dtype.kind in "fiu" else str(v) for v in values.tolist()]
        if len(set(texts)) == size:
            return texts
    return [str(number) for number in range(size)]


def decoded(array: xr.DataArray) -> np.ndarray:
    """The values as float32, NaN where missing or outside the valid range."""
    values = np.asarray(array.values)
    low, high = _valid_range(array)
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: infinite
        found = values.astype(np.float32)
        if low is not None:
            found = np.where(values < low, np.float32("nan"), found)
        if high is not None:
            found = np.where(values > high, np.float32("nan"), found)
    return found


def _valid_range(array: xr.DataArray) -> tuple[float | None, float | None]:
    """Limits after CF: valid_min, valid_max or valid_range, told in packed numbers if packed."""
    attrs, encoding = array.attrs, array.encoding
    both = np.atleast_1d(attrs.get("valid_range", []))
    low, high = both if both.size == 2 else (attrs.get("valid_min"), attrs.get("valid_max"))
    scale, offset = encoding.get("scale_factor", 1.0), encoding.get("add_offset", 0.0)
    packed = np.dtype(encoding.get("dtype") or "f8").kind in "iu" and (scale, offset) != (1, 0)

    def limit(number: Any) -> float | None:
        given = np.atleast_1d(number if number is not None else np.nan)
        if given.size != 1 or given.dtype.kind not in "iuf" or np.isnan(float(given[0])):
            return None
        told = float(given[0])
        # packed numbers are whole, and of the packed type
        return told * float(scale) + float(offset) if packed and given.dtype.kind in "iu" else told

    limits = limit(low), limit(high)
    if None not in limits and limits[0] > limits[1]:  # type: ignore[operator]
        limits = limits[1], limits[0]  # a negative scale turns them round
    return limits
