"""Where Fields come from: files of the formats that people have, and their objects in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stonet.config import ReadConfig
from stonet.data.field import Dataset, Field
from stonet.errors import DataError, UsageError
from stonet.io.lazy_source import LazySource, NoValues, of_field
from stonet.io.merge import assemble
from stonet.system.progress import tell

# which module reads which files; it offers read(path, config) -> list[LazySource]
SUFFIXES = {
    ".csv": "tables.read",
    ".tsv": "tables.read",
    ".txt": "tables.read",
    ".parquet": "tables.read",
    ".pq": "tables.read",
    ".nc": "arrays.netcdf",
    ".nc4": "arrays.netcdf",
    ".cdf": "arrays.netcdf",
    ".h5": "arrays.hdf5",
    ".hdf5": "arrays.hdf5",
    ".zarr": "arrays.zarr",
    ".grib": "grib.read",
    ".grib2": "grib.read",
    ".grb": "grib.read",
    ".grb2": "grib.read",
}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # of text tables
MAGIC = {
    b"\x89HDF\r\n\x1a\n": "arrays.hdf5",
    b"CDF": "arrays.netcdf",
    b"GRIB": "grib.read",
    b"PAR1": "tables.read",
}
ZARR_FILES = (".zgroup", ".zmetadata", "zarr.json")  # one of them makes a folder a Zarr store


def read(source: Any, **options: Any) -> Field:
    """A Field from anything that holds values at places through time.

    Example:
        >>> read("stations.csv", variables="temperature", bbox=(-10, 50, 2, 58))

    Args:
        source: a file (CSV, Parquet, NetCDF, Zarr, GRIB, NREL's HDF5), a folder or a pattern such
            as "era5/*.grib" of them, a pandas or xarray object, or a list of these.
        **options: as in `stonet.config.ReadConfig`: variables, bbox, start, stop, points, every,
            timezone, stations, ... `stations` may also be a table, Points or a dictionary of
            names and pairs (lat, lon).
    """
    return read_with(source, read_config(options))


def read_config(options: dict[str, Any]) -> ReadConfig:
    """The options, checked; a wrong one is named."""
    stations = options.get("stations")
    if isinstance(stations, Path):
        options = options | {"stations": str(stations)}
    elif stations is not None and not isinstance(stations, str):
        options = options | {"stations": "the stations"}
        config = read_config(options)
        config._station_table = _module("stations").station_table(stations, config.geometry)
        return config
    try:
        return ReadConfig(**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:1]))
        raise UsageError(
            f"Option {where} = {first.get('input')!r} of read() does not fit: {first['msg']}. "
            f"Options are: {', '.join(ReadConfig.model_fields)}."
        ) from None


def read_with(source: Any, config: ReadConfig) -> Field:
    """As `read`, with the options as a configuration's section."""
    if isinstance(source, Field) and config == ReadConfig():
        return source
    if isinstance(source, Field):  # its points were accepted before
        config = config.model_copy(update={"same_place": "keep"})
    check_options(config)
    try:
        contents = contents_of(source, config)
    except NoValues as error:
        contents = _renamed(source, config, error)
    if not contents:
        raise DataError(f"Nothing to read in {source!r}.")
    return assemble(contents, config)


def check_options(config: ReadConfig) -> None:
    """Refuse what is wrong whatever is read, even where it would have no effect."""
    if config.timezone is not None:
        _module("dates").parse_zone(config.timezone)
    in_memory = config._station_table is not None
    if config.stations is not None and not in_memory and not Path(config.stations).exists():
        raise UsageError(f"No file '{config.stations}'. Check the path of the table of stations.")
    if config.every is not None and config.duplicates in ("first", "last"):
        raise UsageError(
            f"read.every = '{config.every}' averages all values around a time, so that there is no "
            f"{config.duplicates} one. Leave out read.duplicates = '{config.duplicates}', or every."
        )


def _renamed(source: Any, config: ReadConfig, error: NoValues) -> list[LazySource]:
    """A single wide table's values under the one name that was asked for.

    Its own name is that of the file: what `stations.csv` taught is asked of `newest.csv`.
    """
    if not error.titled or len(config.variables) != 1:
        raise error
    contents = contents_of(source, config.model_copy(update={"variables": ()}))
    if len(contents) != 1:
        raise error
    note = f"The values of '{contents[0].origin}' are taken as '{config.variables[0]}', as asked."
    notes = (*contents[0].notes, note)
    return [replace(contents[0], channels=config.variables, notes=notes)]


def narrow(dataset: Dataset, config: ReadConfig) -> Dataset:
    """Only what the configuration asks for of every episode; held-out points stay held out."""
    if config == ReadConfig():
        return dataset
    episodes = tuple(read_with(episode, config) for episode in dataset.episodes)
    held_out = {dataset.points.names[i] for i in dataset.unseen}
    unseen = (i for i, name in enumerate(episodes[0].points.names) if name in held_out)
    return replace(dataset, episodes=episodes, unseen=tuple(unseen))


def as_dataset(data: Any, config: ReadConfig) -> Dataset:
    """A data set from anything that `read` takes; a Field is a data set of one episode."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Field):
        return Dataset((data,))
    name = str(data) if isinstance(data, (str, Path)) else "data"
    return Dataset((read_with(data, config),), name)


def contents_of(source: Any, config: ReadConfig) -> list[LazySource]:
    """What the source holds, unread."""
    if isinstance(source, Field):
        return _no_tables([of_field(source)], config)
    if isinstance(source, (str, Path)):
        return _contents_of_files(find_files(source), config)
    if hasattr(source, "data_vars") or hasattr(source, "to_dataset"):  # xarray's two kinds
        found = _module("arrays.dataset").contents(source, "the xarray object", config)
        return _no_tables(found, config)
    if hasattr(source, "to_pandas") or hasattr(source, "columns"):  # pandas, polars, arrow
        return list(_module("tables.read").from_frame(source, "the table", config))
    if isinstance(source, Iterable):
        many = list(source)
        if many and all(isinstance(one, (str, Path)) for one in many):
            return _contents_of_files([p for one in many for p in find_files(one)], config)
        return [content for one in many for content in contents_of(one, config)]
    raise UsageError(
        f"Cannot read a {type(source).__name__}; expected a path, a pattern, a pandas or xarray "
        "object, or a list of them."
    )


def _contents_of_files(paths: list[Path], config: ReadConfig) -> list[LazySource]:
    """What the files hold together; a file without values is an error only by itself."""
    found: list[LazySource] = []
    without: list[NoValues] = []
    for number, path in enumerate(paths):
        tell(number, len(paths))
        try:
            found += _contents_of_file(path, config)
        except NoValues as error:
            without.append(error)
    if without and not found:
        have = sorted({name for error in without for name in error.have})
        if len(paths) > 1 and have:
            raise UsageError(
                f"No variable {', '.join(map(repr, config.variables))} in the data; there are: "
                f"{', '.join(have)}."
            )
        raise without[0]
    if without:
        note = f"{len(without)} of {len(paths)} files are left out. {without[0]}"
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return found


def find_files(source: str | Path) -> list[Path]:
    """The files that a path, a folder or a pattern stands for, sorted by name."""
    path = Path(source)
    if path.exists():
        if not path.is_dir() or is_zarr(path):
            return [path]
        found = [p for p in sorted(path.iterdir()) if _known(p)]
        if not found:
            raise DataError(
                f"The folder '{path}' holds no file that can be read; expected names that end in "
                f"{', '.join(SUFFIXES)}."
            )
        return found
    if has_magic(str(source)):
        found = [Path(name) for name in sorted(glob(str(source)))]
        if found:
            return found
    hint = ""
    if re.fullmatch(r"[A-Za-z][\w-]*", str(source)):  # which names there are is not known here
        hint = f" If it is the name of a data set: stonet.open_dataset({str(source)!r})."
    raise UsageError(f"No file '{source}'. Check the path.{hint}")


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return path.suffix.lower() == ".zarr" or any((path / name).is_file() for name in ZARR_FILES)


def _contents_of_file(path: Path, config: ReadConfig) -> list[LazySource]:
    """By the module that its name, or else its first bytes, call for."""
    module = "arrays.zarr" if path.is_dir() else SUFFIXES.get(_suffix(path)) or _sniffed(path)
    if module is None:
        raise DataError(
            f"'{path}' is of a kind that is not read ('{path.suffix}'); expected one of: "
            f"{', '.join(SUFFIXES)}; tables may be compressed ({', '.join(COMPRESSED)})."
        )
    found: list[LazySource] = _module(module).read(path, config)
    return found if module == "tables.read" else _no_tables(found, config)


def _no_tables(contents: list[LazySource], config: ReadConfig) -> list[LazySource]:
    """With a note, where options were given that only tables heed."""
    given = [f"read.{name}" for name in ("timezone", "stations") if getattr(config, name)]
    if not given:
        return contents
    note = f"{' and '.join(given)}: of no effect on data that are no table."
    return [replace(content, notes=(*content.notes, note)) for content in contents]


def _known(path: Path) -> bool:
    hidden = path.name.startswith((".", "_"))
    return not hidden and (_suffix(path) in SUFFIXES if path.is_file() else is_zarr(path))


def _suffix(path: Path) -> str:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower()


def _sniffed(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(8)
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def _module(name: str) -> Any:
    return import_module(f"stonet.io.{name}")  # heavy libraries are imported when used
