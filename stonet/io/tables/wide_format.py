"""A wide table: a column of times, and beside it one column for each station."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stonet.config import ReadConfig
from stonet.data.geometry import Kind
from stonet.errors import DataError
from stonet.io.lazy_source import LazySource, NoValues
from stonet.io.tables.columns import Columns, Table, quote_names, split_unit
from stonet.io.tables.long_format import (
    NumericColumns,
    Position,
    check_budget,
    complete_rows,
    make_points,
    no_numeric_columns,
)
from stonet.io.tables.time_column import TimeColumn


def read_wide(
    table: Table,
    columns: Columns,
    positions: Mapping[str, Position],
    kind: Kind,
    config: ReadConfig,
    notes: tuple[str, ...],
) -> LazySource:
    """The stations of a wide table; its channel is named after the file.

    Args:
        table: whose rows are read.
        columns: roles of its columns.
        positions: of the stations.
        kind: the geometry.
        config: options of reading.
        notes: on how the stations were located.
    """
    channel, unit = split_unit(table.title)
    if config.variables and channel not in config.variables:
        raise NoValues(
            f"'{table.origin}' holds '{channel}', one column for each station, and not "
            f"{quote_names(config.variables)}.",
            (channel,),
            named_by_file=not set(config.variables) & set(table.names),
        )
    stations = [name for name in table.names if name in positions]
    times = TimeColumn(table, columns.time, config, kind == "plane")
    numbers = NumericColumns(table, stations)
    size = 0
    for block in table.blocks([*columns.time, *stations], columns.time[1:]):
        has_time = times.add(block)
        rows = complete_rows(table, block, has_time, np.zeros(len(block), dtype=np.int64))
        times.keep(rows)
        size += numbers.add(block, rows) + 8 * len(block)
        check_budget(table, size)
    if not size:
        raise DataError(f"'{table.origin}' has a header and no rows.")
    frame_times, calendar, time_notes = times.finish()
    names, values = numbers.finish()
    if not names:
        raise no_numeric_columns(table, stations)
    points, sites = make_points(table, {name: positions[name] for name in names}, kind)
    return LazySource(
        origin=table.origin,
        times=frame_times,
        points=points,
        channels=(channel,),
        units=(unit,),
        frames=lambda start, stop: values[start:stop, :, None],
        calendar=calendar,
        sites=sites,
        notes=(*notes, *time_notes, *numbers.notes({name: (name, "") for name in stations})),
    )
