"""Station tables: long, wide, or one file for each station; as text, Parquet or in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stonet.config import ReadConfig
from stonet.data.geometry import Kind
from stonet.errors import DataError
from stonet.io.lazy_source import LazySource, NoValues
from stonet.io.safety import readable
from stonet.io.tables.columns import Columns, Table, find_columns, is_named, listed
from stonet.io.tables.csv_file import Text
from stonet.io.tables.dataframe import Frame, Parquet
from stonet.io.tables.long_format import Rows, arrange, collect, settled_place
from stonet.io.tables.station_locations import NREL, Place, Places, in_file_name, locate, points_at
from stonet.io.tables.wide_format import wide_content

MOST = 0.5  # of the stations must be in a table of places that nobody named


def read(path: Path, config: ReadConfig) -> list[LazySource]:
    """What a CSV or Parquet file holds."""
    with readable(path, "a table"):
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1" or path.suffix.lower() in (".parquet", ".pq")
        return [_content(Parquet(path) if parquet else Text(path), config)]


def from_frame(table: Any, origin: str, config: ReadConfig) -> list[LazySource]:
    """What a table in memory holds: pandas, or anything with to_pandas()."""
    with readable(origin, "a table"):
        return [_content(Frame(table, origin), config)]


def _content(table: Table, config: ReadConfig) -> LazySource:
    columns = find_columns(table.names, table.sample, config)
    if not columns.time:
        raise _no_time(table, columns)
    _check_zone(table, config)
    if columns.where is not None or columns.station is not None:
        return _long(table, columns, config)
    stem = table.title
    spot = in_file_name(stem)
    if spot is not None:
        return _alone(table, columns, config, stem, spot, "sphere")
    stations = [name for name in table.names if name not in columns.time and is_named(name)]
    preamble = table.preamble
    if preamble is not None and len(preamble) == 1:  # of one place, whatever it is called
        preamble = preamble.assign(station=stem)
    found, places = locate([*stations, stem], table.path, preamble, config)
    here = {name: place for name, place in found.items() if name in stations}
    if places and len(here) > (0 if config.stations else MOST * len(stations)):
        told = _told(table, stations, here, places, config)
        return wide_content(table, columns, here, places.kind, config, told)
    if places and found:
        return _alone(table, columns, config, stem, found[stem], places.kind)
    raise _no_place(table, [stem, *stations], config)


def _long(table: Table, columns: Columns, config: ReadConfig) -> LazySource:
    """One row for each station and time; places in it, or known elsewhere."""
    _check_values(table, columns, config)
    rows = collect(table, columns, config)
    known = {
        name: settled_place(name, places, table.origin) for name, places in rows.places.items()
    }
    unknown = [name for name in rows.stations if name not in known]
    kind, notes = columns.kind, rows.notes
    if unknown:
        found, places = locate(unknown, table.path, table.preamble, config)
        kind = places.kind if places and not known else kind
        known |= found
        if not known:
            raise _no_place(table, rows.stations, config)
        notes += _told(table, rows.stations, known, places, config)
    if rows.named:
        names = sorted((name for name in rows.stations if name in known), key=_by_number)
    else:
        names = sorted(known, key=known.__getitem__)
    return _arranged(table, rows, {name: known[name] for name in names}, kind, notes)


def _alone(
    table: Table, columns: Columns, config: ReadConfig, name: str, place: Place, kind: Kind
) -> LazySource:
    """A file of one station."""
    _check_values(table, columns, config)
    rows = collect(table, columns, config, name, month_first=bool(NREL.fullmatch(name)))
    return _arranged(table, rows, {name: place}, kind, rows.notes)


def _arranged(
    table: Table,
    rows: Rows,
    known: Mapping[str, Place],
    kind: Kind,
    notes: tuple[str, ...],
) -> LazySource:
    """Values and places put together."""
    number = {name: code for code, name in enumerate(rows.stations)}
    known = {
        name: place if len(place) > 2 else (*place, float(rows.heights[number[name]]))
        for name, place in known.items()
    }
    points, sites = points_at(table, known, kind, rows.named)
    return arrange(
        rows,
        [number[name] for name in known],
        origin=table.origin,
        points=points,
        channels=tuple(channel for channel, _ in rows.channels),
        units=tuple(unit for _, unit in rows.channels),
        sites=sites,
        notes=notes,
    )


def _told(
    table: Table,
    stations: Sequence[str],
    known: Mapping[str, Place],
    places: Places | None,
    config: ReadConfig,
) -> tuple[str, ...]:
    """Where positions came from, and which stations are left out for lack of one."""
    lost = [name for name in stations if name not in known]
    if len(lost) > (1 - MOST) * len(stations) and not config.stations:
        raise _no_place(table, lost, config)
    notes = []
    if places is not None and places.origin not in (config.stations, table.origin):
        notes.append(f"Positions are from '{places.origin}'.")
    if lost:
        notes.append(
            f"{len(lost)} of {len(stations)} stations have no known position and are left out: "
            f"{listed(lost)}."
        )
    return tuple(notes)


def _check_zone(table: Table, config: ReadConfig) -> None:
    """A zone that stands above the rows (as Open-Meteo writes it) must not be passed over."""
    if table.preamble is None or "timezone" not in table.preamble or config.timezone:
        return
    local = [zone for zone in table.preamble["timezone"].dropna() if zone not in ("UTC", "GMT")]
    if local:
        raise DataError(
            f"'{table.origin}' says that its times are those of {local[0]}. Give --timezone "
            f"{local[0]}."
        )


def _no_time(table: Table, columns: Columns) -> DataError:
    if columns.where is not None:
        return NoValues(f"'{table.origin}' is a table of places; it has no time column.")
    hint = ""
    if any(name.replace(".", "").replace("-", "").isdigit() for name in table.names):
        hint = " Its first line seems to hold values: put a line with names above it."
    return DataError(
        f"'{table.origin}' has no time column among {listed(table.names)}; expected 'time', "
        f"'date', 'datetime', 'timestamp', 'ds', or year, month and day.{hint}"
    )


def _check_values(table: Table, columns: Columns, config: ReadConfig) -> None:
    """Refuse a table without a column of values; the rows tell whether a height is one."""
    if columns.values or (columns.altitude is not None and not config.variables):
        return
    have = list(find_columns(table.names, table.sample, ReadConfig()).values.values())
    names = listed([channel for channel, _ in have]) or "none"
    if config.variables:
        raise NoValues(
            f"'{table.origin}' has no variable {listed(config.variables)}; there are: {names}.",
            [channel for channel, _ in have],
        )
    raise DataError(
        f"'{table.origin}' has no column of values beside {listed(columns.used)}; expected at "
        "least one."
    )


def _no_place(table: Table, names: Sequence[str], config: ReadConfig) -> DataError:
    where = f"'{config.stations}' does not list" if config.stations else "no table tells"
    return DataError(
        f"'{table.origin}' has no positions (lat and lon, or x and y), and "
        f"{where} where {listed(names, 5)} are. Give a CSV table with their names and lat, lon: "
        "--set read.stations=places.csv."
    )


def _by_number(name: str) -> tuple[int, int, str]:
    """Names that are numbers in their order, then the others in theirs."""
    return (0, int(name), name) if name.isascii() and name.isdigit() else (1, 0, name)
