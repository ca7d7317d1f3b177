"""Years of INMET, Brazil's weather service: its yearly ZIP files, or folders of their tables.

All files become one source. They are read twice, one after the other: for positions and periods,
then for values, so that only what is selected takes memory (or disk, beyond the budget).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from stonet.config import ReadConfig
from stonet.data.dates import time_bounds
from stonet.data.durations import UNITS, YEAR
from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.errors import DataError
from stonet.io.archive import member_names
from stonet.io.inmet_file import (
    CHANNELS,
    USUAL,
    Heading,
    StationFile,
    is_station_file,
    open_plain,
    read_heading,
    read_rows,
)
from stonet.io.lazy_source import LazySource, NoValues, inside_box
from stonet.system.progress import report_progress
from stonet.system.spill import allocate

HOUR = UNITS["h"]
MAX_SPAN = 60 * YEAR  # of all files; the network began in 2000
MAX_MOVED_KM = 20.0  # between the files of a station; beyond, one of them is wrong
TOLERATED_KM = 0.05
ATTRS = {
    "source": "Instituto Nacional de Meteorologia (INMET), Brazil: historical data of automatic "
    "stations",
    "licence": "reuse permitted with the source quoted (INMET)",
}


class _Record(NamedTuple):
    """A file that is selected, and what it says of its station."""

    file: StationFile
    heading: Heading


def is_inmet(path: Path) -> bool:
    """Whether a path is a ZIP archive or a station file of INMET, by its suffix or first bytes.

    Args:
        path: that may be a folder.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if not path.is_file() or not {".zip", ".csv"} & set(suffixes):
        return False
    if suffixes[-1] == ".zip":
        return True
    try:
        with open_plain(path) as stream:
            return is_station_file(stream.read(16))
    except (OSError, EOFError):
        return False


def open_stations(paths: Sequence[Path], config: ReadConfig) -> list[LazySource]:
    """All stations of these files and archives as one source.

    Args:
        paths: of which `is_inmet` is true.
        config: its variables, bbox, start and stop restrict what is read.

    Raises:
        DataError: a file is damaged, hostile, or contradicts another one.
    """
    channels = tuple(name for name in config.variables or USUAL if name in CHANNELS)
    if not channels:
        raise NoValues(
            f"'{paths[0]}' has no variable {', '.join(map(repr, config.variables))}; there are: "
            f"{', '.join(CHANNELS)}.",
            tuple(CHANNELS),
        )
    files = [file for path in paths for file in _files(path)]
    records = _selected(files, config)
    newest = {record.heading.code: record.heading for record in sorted(records, key=_end)}
    codes = sorted(newest)
    places = np.array([[newest[code].lat, newest[code].lon] for code in codes])
    points = Points(places, "sphere", tuple(codes))
    first = min(record.heading.first for record in records) // HOUR * HOUR
    last = max(record.heading.last for record in records)
    if last - first > MAX_SPAN:
        raise DataError(
            f"The files span {(last - first) / YEAR:.0f} years; expected at most "
            f"{MAX_SPAN // YEAR}. A date in one of them is wrong."
        )
    times = first + HOUR * np.arange((last - first) // HOUR + 1)
    values = _values(records, codes, times, channels, config, len(files))
    kept = None if config.variables else len(CHANNELS) - len(USUAL)
    notes = _moved(records, newest)
    if kept:
        notes += (f"{kept} further columns are read by their names, such as wind_speed_of_gust.",)
    source = LazySource(
        origin=str(paths[0]),
        times=times,
        points=points,
        channels=channels,
        units=tuple(CHANNELS[name] for name in channels),
        frames=lambda start, stop: values[start:stop],
        sites={"altitude": np.array([newest[code].altitude for code in codes])},
        attrs=dict[str, Any](ATTRS),
        notes=notes,
    )
    return [source]


def _files(path: Path) -> list[StationFile]:
    """The station files of a path: itself, or the tables of an archive."""
    if path.suffix.lower() != ".zip":
        return [StationFile(path)]
    members = [name for name in member_names(path) if name.lower().endswith(".csv")]
    if not members:
        raise DataError(
            f"'{path}' holds no table (.csv). Of ZIP archives, INMET's years are read as they are; "
            "unpack any other and give its folder."
        )
    return [StationFile(path, name) for name in sorted(members)]


def _selected(files: Sequence[StationFile], config: ReadConfig) -> list[_Record]:
    """The files that lie in the requested region and period; the first one if none does."""
    start = None if config.start is None else time_bounds(config.start, True)[0]
    stop = None if config.stop is None else time_bounds(config.stop, True)[1]
    records, other = list[_Record](), list[_Record]()
    for number, file in enumerate(files):
        report_progress(number, 2 * len(files))
        content = file.read()
        if not is_station_file(content[:16]):
            raise DataError(
                f"'{file.origin}' is not a station file of INMET; its first line should be "
                "'REGIAO:;...'. Of ZIP archives, only INMET's years are read as they are."
            )
        heading = read_heading(content, file.origin)
        early = start is not None and heading.last < start
        late = stop is not None and heading.first > stop
        place = Points(np.array([[heading.lat, heading.lon]]), "sphere", (heading.code,))
        outside = config.bbox is not None and not inside_box(place, config.bbox)[0]
        chosen = other if early or late or outside else records
        chosen.append(_Record(file, heading))
    return records or other[:1]  # of which the selection then leaves nothing, and says so


def _values(
    records: Sequence[_Record],
    codes: Sequence[str],
    times: np.ndarray,
    channels: tuple[str, ...],
    config: ReadConfig,
    total: int,
) -> Float32[np.ndarray, "time node channel"]:
    """The values of all files on the common axis of hours."""
    (values,) = allocate((len(times), len(codes), len(channels)), np.float32)
    for start in range(0, len(values), 1024):
        values[start : start + 1024] = np.nan
    node = {code: number for number, code in enumerate(codes)}
    for number, (file, heading) in enumerate(records):
        report_progress(total + number * total // len(records), 2 * total)
        own_times, own = read_rows(file.read(), channels, file.origin)
        frames, rest = np.divmod(own_times - times[0], HOUR)
        if rest.any() or (np.diff(own_times) <= 0).any() or frames[-1] >= len(times):
            raise DataError(
                f"'{file.origin}': its rows are not full hours in order. Download it again."
            )
        column = values[:, node[heading.code]]
        before = column[frames]
        known = np.isfinite(before)
        differ = known & np.isfinite(own) & (before != own)
        if differ.any() and config.duplicates not in ("first", "last"):
            hour = own_times[differ.any(axis=1).argmax()].astype("datetime64[ns]")
            raise DataError(
                f"'{file.origin}' and another file give different values of station "
                f"{heading.code} at {hour.astype('datetime64[h]')}. Remove one, or choose with "
                "--set read.duplicates=first or last."
            )
        earlier = known if config.duplicates != "last" else known & ~np.isfinite(own)
        column[frames] = np.where(earlier, before, own)
    report_progress(2 * total, 2 * total)
    return values


def _moved(records: Sequence[_Record], newest: dict[str, Heading]) -> tuple[str, ...]:
    """A note on stations whose files give several positions; far ones are refused."""
    far: dict[str, float] = {}
    for file, heading in records:
        last = newest[heading.code]
        both = Points(np.array([[heading.lat, heading.lon], [last.lat, last.lon]]), "sphere")
        angle = both.geometry.distance(both.embedded[:1], both.embedded[1:])
        shift = EARTH_RADIUS_KM * float(angle[0])
        if shift > MAX_MOVED_KM:
            raise DataError(
                f"'{file.origin}': station {heading.code} is {shift:.0f} km from where its newest "
                "file has it. One of the positions is wrong; leave that file out."
            )
        far[heading.code] = max(far.get(heading.code, 0.0), shift)
    moved = {code: shift for code, shift in far.items() if shift > TOLERATED_KM}
    if not moved:
        return ()
    most = max(moved, key=moved.__getitem__)
    return (
        f"{len(moved)} stations have several positions in the files (most: {most}, "
        f"{moved[most]:.1f} km); the newest is used.",
    )


def _end(record: _Record) -> int:
    return record.heading.last
