"""A wide table: a column of times, and beside it one column for each station."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stonet.config import ReadConfig
from stonet.data.geometry import Kind
from stonet.errors import DataError
from stonet.io.lazy_source import LazySource, NoValues
from stonet.io.tables.columns import Columns, Table, listed, split_unit
from stonet.io.tables.long_format import check_budget, no_numbers, whole_rows
from stonet.io.tables.numeric_columns import Numbers
from stonet.io.tables.station_locations import Place, points_at
from stonet.io.tables.time_column import Times


def wide_content(
    table: Table,
    columns: Columns,
    places: Mapping[str, Place],
    kind: Kind,
    config: ReadConfig,
    notes: tuple[str, ...],
) -> LazySource:
    """The stations in `places`, in the table's order; the channel is called as the file is."""
    channel, unit = split_unit(table.title)
    if config.variables and channel not in config.variables:
        raise NoValues(
            f"'{table.origin}' holds '{channel}', one column for each station, and not "
            f"{listed(config.variables)}.",
            (channel,),
            titled=not set(config.variables) & set(table.names),
        )
    stations = [name for name in table.names if name in places]
    times, numbers = Times(table, columns.time, config, kind == "plane"), Numbers(table, stations)
    size = 0
    for block in table.blocks([*columns.time, *stations], columns.time[1:]):
        there = times.add(block)
        rows = whole_rows(table, block, there, np.zeros(len(block), dtype=np.int64))
        times.keep(rows)
        size += numbers.add(block, rows) + 8 * len(block)
        check_budget(table, size)
    if not size:
        raise DataError(f"'{table.origin}' has a header and no rows.")
    moments, calendar, assumed = times.finish()
    names, values = numbers.finish()
    if not names:
        raise no_numbers(table, stations)
    points, sites = points_at(table, {name: places[name] for name in names}, kind)
    return LazySource(
        origin=table.origin,
        times=moments,
        points=points,
        channels=(channel,),
        units=(unit,),
        frames=lambda start, stop: values[start:stop, :, None],
        calendar=calendar,
        sites=sites,
        notes=(*notes, *assumed, *numbers.notes({name: (name, "1") for name in stations})),
    )
