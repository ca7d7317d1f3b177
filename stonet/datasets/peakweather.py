"""PeakWeather: 302 Swiss stations every ten minutes, as MeteoSwiss publishes them.

The folder of the data set holds `stations.parquet`, a table with the position of each station, and
`observations/YEAR.parquet`: a row for each time, a column for each pair of station and quantity,
named like `('ABO', 'tre200s0')`. One year is in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.data.geometry import Points
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import LocalFiles, folders, missing_files
from stonet.errors import DataError, UsageError, unknown_name
from stonet.io.lazy_source import LazySource
from stonet.io.merge import merge_sources
from stonet.io.safety import check_memory, readable
from stonet.io.tables.parquet_safety import page_sizes

YEARS = tuple(range(2017, 2026))
NAMES = ("peakweather", "PeakWeather", "PeakWeatherDataset")  # of folders
QUANTITIES = {  # MeteoSwiss's short name and the unit of each
    "temperature": ("tre200s0", "degC"),
    "humidity": ("ure200s0", "%"),
    "pressure": ("prestas0", "hPa"),
    "wind_speed": ("fkl010z0", "m s-1"),
    "wind_gust": ("fkl010z1", "m s-1"),
    "wind_direction": ("dkl010z0", "degree"),
    "precipitation": ("rre150z0", "mm"),
    "sunshine": ("sre000z0", "min"),
}
COMPONENTS = {"eastward_wind": np.sin, "northward_wind": np.cos}  # towards; directions are from
CHANNELS = {name: unit for name, (_, unit) in QUANTITIES.items()} | dict.fromkeys(
    COMPONENTS, "m s-1"
)
COLUMN = re.compile(r"\('([^']+)', '([^']+)'\)")
HEIGHTS = ("station_height", "height", "altitude")

CARD = Card(
    name="peakweather",
    title="Swiss weather at 302 stations every ten minutes, 2017 to 2025",
    kind="observed at stations, quality-controlled, with missing values",
    source="Federal Office of Meteorology and Climatology MeteoSwiss: PeakWeather, from the "
    "network SwissMetNet (Zambon et al. 2025, arXiv 2506.13652)",
    page="https://huggingface.co/datasets/MeteoSwiss/PeakWeather",
    licence="CC BY 4.0: source MeteoSwiss",
    channels="`temperature` (degC, the default), `humidity` (%), `pressure` (hPa), `wind_speed`, "
    "`wind_gust`, `eastward_wind`, `northward_wind` (m/s), `wind_direction` (degree), "
    "`precipitation` (mm), `sunshine` (min); choose with `variables`",
    shape="about 77000 x 302 x 1 as hourly means; fewer stations where a quantity is not measured",
    step="10 min as published; means of 1 h by default (`every`)",
    period="2017 to October 2025, UTC; the years on this machine (`years`)",
    split="by time, 70/10/20 %; no unseen points of its own (`data.unseen`)",
    notes=(
        "Put `stations.parquet` and the folder `observations` of the publisher's `data` into the "
        "folder `peakweather`; a part of the years is enough. About half of the stations are rain "
        "gauges.",
        "`eastward_wind` and `northward_wind` are computed from speed and direction before "
        "averaging. With `every`, sums such as `precipitation` become means of the ten-minute "
        "sums; `every=None` keeps the ten minutes.",
        "The reader follows the publisher's own library; it is tested on files written in that "
        "form, not on the published ones. Topography and forecasts of the data set are not read.",
    ),
    folder="peakweather",
    files=(File("stations.parquet"), *(File(f"observations/{year}.parquet") for year in YEARS)),
)


class _Year(NamedTuple):
    """The observations of a year.

    Args:
        path: of the file.
        times: of its rows, nanoseconds since 1970 UTC.
        columns: the column of each station and quantity.
    """

    path: Path
    times: Int64[np.ndarray, " time"]
    columns: dict[tuple[str, str], str]


def peakweather(
    variables: str | Sequence[str] = ("temperature",),
    years: int | Sequence[int] = (),
    every: str | None = "1h",
) -> Dataset:
    """The stations that measure the variables.

    Args:
        variables: names of channels, e.g. ("temperature", "eastward_wind").
        years: of those on this machine; empty: all.
        every: step to which values are averaged (None: ten minutes, as published).

    Raises:
        UsageError: a variable is unknown, or a direction would be averaged.
        DataError: files are missing or of another layout.

    Example:
        >>> peakweather("temperature, humidity", years=2023)  # doctest: +SKIP
    """
    config = ReadConfig.model_validate(
        {"variables": variables, "every": every, "same_place": "keep"}
    )
    for name in config.variables:
        if name not in CHANNELS:
            raise unknown_name("variable of peakweather", name, CHANNELS)
    if "wind_direction" in config.variables and every is not None:
        raise UsageError(
            "wind_direction is an angle, whose means mislead. Choose eastward_wind and "
            "northward_wind, or every=None."
        )
    folder = _folder()
    wanted = [years] if isinstance(years, int) else list(years)
    paths = {int(path.stem): path for path in (folder / "observations").glob("20??.parquet")}
    absent = [year for year in wanted if year not in paths] if paths else YEARS
    if absent:
        raise missing_files(CARD, [File(f"observations/{year}.parquet") for year in absent])
    points, heights = _stations(folder / "stations.parquet")
    load = lru_cache(maxsize=1)(_load)  # years are read one after the other
    sources = [_source(paths[y], points, heights, config, load) for y in wanted or sorted(paths)]
    return Dataset((labelled(merge_sources(sources, config), CARD),), CARD.name)


def find() -> LocalFiles:
    """The files on this machine; none is missing if there are the stations and one year."""
    folder = next((folder for folder in _folders() if _is_complete(folder)), None)
    if folder is None:
        return LocalFiles([], list(CARD.files))
    years = sorted((folder / "observations").glob("20??.parquet"))
    return LocalFiles([folder / "stations.parquet", *years], [])


def _folders() -> list[Path]:
    """Where the files may lie, in order; the publisher's own folder is called data."""
    places = [place for name in NAMES for place in folders(name)]
    return [folder for place in places for folder in (place, place / "data")]


def _is_complete(folder: Path) -> bool:
    tables = folder / "observations"
    return (folder / "stations.parquet").is_file() and any(tables.glob("20??.parquet"))


def _folder() -> Path:
    files = find()
    if files.missing:
        raise missing_files(CARD, files.missing)
    return files.present[0].parent


def _stations(path: Path) -> tuple[Points, np.ndarray]:
    """Positions and heights of all stations."""
    with readable(path, "the stations of PeakWeather"):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            _check_pages(path, file.metadata, set(file.schema_arrow.names))
        table = pq.read_table(path).to_pandas().reset_index()
        names = [str(name) for name in table["nat_abbr"]]
        places = table[["latitude", "longitude"]].to_numpy(dtype=np.float64)
        column = next((name for name in HEIGHTS if name in table), None)
        heights = np.full(len(names), np.nan) if column is None else table[column].to_numpy(float)
        return Points(places, "sphere", tuple(names)), heights


def _source(
    path: Path,
    points: Points,
    heights: np.ndarray,
    config: ReadConfig,
    load: Callable[[Path, tuple[str, ...], tuple[str, ...]], np.ndarray],
) -> LazySource:
    """A year as a source; its values are read when they are first needed."""
    year = _open_year(path)
    measured = {station for station, _ in year.columns}
    index = np.array([n for n, name in enumerate(points.names) if name in measured], dtype=int)
    if not len(index):
        raise DataError(
            f"'{path}' has no column of a station of stations.parquet; expected names like "
            "('ABO', 'tre200s0')."
        )
    chosen = points.take(index)
    stations = chosen.names

    def frames(start: int, stop: int) -> np.ndarray:
        return load(path, stations, config.variables)[start:stop]

    return LazySource(
        origin=str(path),
        times=year.times,
        points=chosen,
        channels=config.variables,
        units=tuple(CHANNELS[name] for name in config.variables),
        frames=frames,
        sites={"altitude": heights[index]},
    )


def _open_year(path: Path) -> _Year:
    """Times and columns of a year."""
    with readable(path, "a year of PeakWeather"):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = {
                (match[1], match[2]): name
                for name in schema.names
                if (match := COLUMN.fullmatch(name))
            }
            clocks = [field.name for field in schema if str(field.type).startswith("timestamp")]
            if len(clocks) != 1:
                raise DataError(f"expected one column of times, found {len(clocks)}")
            _check_pages(path, file.metadata, {clocks[0]})
            rows = file.read([clocks[0]]).column(0).to_numpy()
        times = rows.astype("datetime64[ns]").astype(np.int64)
    return _Year(path, times, columns)


def _load(
    path: Path, stations: tuple[str, ...], variables: tuple[str, ...]
) -> Float32[np.ndarray, "time node channel"]:
    """All values of a year, NaN where a station does not measure a variable."""
    year = _open_year(path)
    shape = (len(year.times), len(stations), len(variables))
    check_memory(4 * int(np.prod(shape)), "a year of these variables", path)
    values = np.full(shape, np.nan, dtype=np.float32)
    with readable(path, "a year of PeakWeather"):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:

            def column(station: str, variable: str) -> np.ndarray | None:
                name = year.columns.get((station, QUANTITIES[variable][0]))
                if name is None:
                    return None
                _check_pages(path, file.metadata, {name})
                return file.read([name]).column(0).to_numpy().astype(np.float32)

            for node, station in enumerate(stations):
                for number, variable in enumerate(variables):
                    found = _values(column, station, variable)
                    if found is not None:
                        values[:, node, number] = found
    return values


def _values(
    column: Callable[[str, str], np.ndarray | None], station: str, variable: str
) -> np.ndarray | None:
    """A column as stored, or a component of the wind."""
    component = COMPONENTS.get(variable)
    if component is None:
        return column(station, variable)
    speed, direction = (column(station, name) for name in ("wind_speed", "wind_direction"))
    if speed is None or direction is None:
        return None
    return np.asarray(-speed * component(np.deg2rad(direction)))


def _check_pages(path: Path, metadata: Any, columns: set[str]) -> None:
    """Refuse columns that unpack to more than the memory budget."""
    check_memory(page_sizes(path, metadata, columns).largest_group, "a row group", path)
