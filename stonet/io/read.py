"""Fields from files of the usual formats, and from objects in memory."""

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
from stonet.data.physical_limits import quantity_of
from stonet.data.wind import EASTWARD, NORTHWARD, to_components
from stonet.errors import DataError, UsageError
from stonet.io.inmet import is_inmet
from stonet.io.lazy_source import LazySource, NoValues, from_field, with_names_and_units
from stonet.io.merge import merge_sources
from stonet.io.safety import check_plain
from stonet.system.progress import report_progress

# the function (module:name) that opens each format: (path, config) -> list[LazySource]
TABLE = "tables.read:open_table"
NETCDF = "arrays.backends:open_netcdf"
HDF5 = "arrays.backends:open_hdf5"
ZARR = "arrays.backends:open_zarr"
GRIB = "grib.read:open_grib"
SUFFIXES = {
    ".csv": TABLE,
    ".tsv": TABLE,
    ".txt": TABLE,
    ".parquet": TABLE,
    ".pq": TABLE,
    ".nc": NETCDF,
    ".nc4": NETCDF,
    ".cdf": NETCDF,
    ".h5": HDF5,
    ".hdf5": HDF5,
    ".zarr": ZARR,
    ".grib": GRIB,
    ".grib2": GRIB,
    ".grb": GRIB,
    ".grb2": GRIB,
}
ARCHIVE = ".zip"  # of INMET, the only archives that are read as they are
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # of text tables
FIRST_BYTES = {b"\x89HDF\r\n\x1a\n": HDF5, b"CDF": NETCDF, b"GRIB": GRIB, b"PAR1": TABLE}
ZARR_FILES = (".zgroup", ".zmetadata", "zarr.json")  # one of them makes a folder a Zarr store


def read(source: Any, **options: Any) -> Field:
    """Read a Field from anything that holds values at positions through time.

    Args:
        source: a file (CSV, Parquet, NetCDF, Zarr, GRIB, NREL's HDF5, INMET's yearly ZIP), a folder
            of such files, a pattern such as "era5/*.grib", a pandas or xarray object, or a list
            of these.
        **options: as in `stonet.config.ReadConfig`: variables, bbox, start, stop, points, every,
            timezone, stations, units={"temperature": "degC"}, rename={"old": "new"}, ...
            `stations` may also be a table, Points, or a dictionary of
            names and pairs (lat, lon).

    Returns:
        One Field of all files. `Field.notes` says what was done or assumed.

    Raises:
        DataError: a file is damaged, contradictory or of an unsupported kind.
        UsageError: an option is invalid, or nothing is selected.

    Example:
        >>> read("stations.csv", variables="temperature", bbox=(-10, 50, 2, 58))  # doctest: +SKIP
    """
    return read_with(source, read_config(options))


def read_config(options: dict[str, Any]) -> ReadConfig:
    """The options of `read` as a configuration; an invalid one is named.

    Args:
        options: keyword arguments of `read`.
    """
    stations = options.get("stations")
    if isinstance(stations, Path):
        options = options | {"stations": str(stations)}
    elif stations is not None and not isinstance(stations, str):
        config = read_config(options | {"stations": "the stations"})
        make_table = _function("stations:station_table")
        config._station_table = make_table(stations, config.geometry)
        return config
    try:
        return ReadConfig(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][:1]))
        raise UsageError(
            f"Option {name} = {first.get('input')!r} of read() does not fit: {first['msg']}. "
            f"Options are: {', '.join(ReadConfig.model_fields)}."
        ) from None


def read_with(source: Any, config: ReadConfig) -> Field:
    """As `read`, with the options as a section of the configuration.

    Args:
        source: as for `read`.
        config: the options.
    """
    if isinstance(source, Field) and config == ReadConfig():
        return source
    if config.wind_components is not None:
        return _with_components(source, config, *config.wind_components)
    if isinstance(source, Field):  # its points were accepted before
        config = config.model_copy(update={"same_place": "keep"})
    check_options(config)
    earlier = {new: old for old, new in config.rename.items()}
    names = [(name, earlier[name]) if name in earlier else (name,) for name in config.variables]
    # sources are opened by their own names; those that have the new names already keep them
    original = config.model_copy(update={"variables": tuple(n for pair in names for n in pair)})
    try:
        sources = open_sources(source, original)
    except NoValues as error:
        sources = _rename_channel(source, config, error)
    if not sources:
        raise DataError(f"There is nothing to read in {source!r}.")
    return merge_sources(with_names_and_units(sources, config), config)


def _with_components(source: Any, config: ReadConfig, speed: str, direction: str) -> Field:
    """Read speed and direction, replace them by components, and only then average over time."""
    first = {"wind_components": None, "every": None, "variables": original_variables(config)}
    field = read_with(source, config.model_copy(update=first))
    components = to_components(field, speed, direction)
    return read_with(components, ReadConfig(every=config.every, same_place="keep"))


def original_variables(config: ReadConfig) -> tuple[str, ...]:
    """The variables to read, where speed and direction stand for the components wanted.

    Args:
        config: gives variables and wind_components.
    """
    if config.wind_components is None:
        return config.variables
    source = dict(zip((EASTWARD, NORTHWARD), config.wind_components, strict=True))
    names = [source.get(name, name) for name in config.variables]
    return tuple(dict.fromkeys((*names, *config.wind_components))) if names else ()


def narrow(dataset: Dataset, config: ReadConfig) -> Dataset:
    """What the configuration selects of every episode; unseen points stay unseen.

    Args:
        dataset: opened data.
        config: the selection.
    """
    if config == ReadConfig():
        return dataset
    episodes = tuple(read_with(episode, config) for episode in dataset.episodes)
    held_out = {dataset.points.names[i] for i in dataset.unseen}
    unseen = (i for i, name in enumerate(episodes[0].points.names) if name in held_out)
    return replace(dataset, episodes=episodes, unseen=tuple(unseen))


def as_dataset(data: Any, config: ReadConfig) -> Dataset:
    """A data set from anything that `read` takes; a Field is a data set of one episode.

    Args:
        data: what `read` takes, or a Dataset.
        config: options of reading files.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Field):
        return Dataset((data,))
    name = str(data) if isinstance(data, (str, Path)) else "data"
    return Dataset((read_with(data, config),), name)


def check_options(config: ReadConfig) -> None:
    """Refuse options that are invalid for every source, even where they would have no effect.

    Args:
        config: the options.
    """
    if config.timezone is not None:
        _function("dates:parse_zone")(config.timezone)
    in_memory = config._station_table is not None
    if config.stations is not None and not in_memory and not Path(config.stations).exists():
        raise UsageError(f"No file '{config.stations}'. Check the path of the table of stations.")
    if config.every is not None and config.duplicates in ("first", "last"):
        raise UsageError(
            f"read.every = '{config.every}' averages all values around a time, so that there is no "
            f"{config.duplicates} one. Leave out read.duplicates = '{config.duplicates}', or every."
        )


def open_sources(source: Any, config: ReadConfig) -> list[LazySource]:
    """The content of a source, not yet read.

    Args:
        source: as for `read`.
        config: the options.
    """
    if isinstance(source, Field):
        return _note_ignored_options([from_field(source)], config)
    if isinstance(source, (str, Path)):
        return _open_files(find_files(source), config)
    if hasattr(source, "data_vars") or hasattr(source, "to_dataset"):  # xarray's two types
        from_object = _function("arrays.dataset:from_object")
        return _note_ignored_options(from_object(source, "the xarray object", config), config)
    if hasattr(source, "to_pandas") or hasattr(source, "columns"):  # pandas, polars, arrow
        return list(_function("tables.read:from_frame")(source, "the table", config))
    if isinstance(source, Iterable):
        items = list(source)
        if items and all(isinstance(item, (str, Path)) for item in items):
            return _open_files([path for item in items for path in find_files(item)], config)
        return [opened for item in items for opened in open_sources(item, config)]
    raise UsageError(
        f"Cannot read a {type(source).__name__}; expected a path, a pattern, a pandas or xarray "
        "object, or a list of them."
    )


def _open_files(paths: list[Path], config: ReadConfig) -> list[LazySource]:
    """The content of all files; a file without values is an error only if it is alone."""
    sources: list[LazySource] = []
    without_values: list[NoValues] = []
    published = [path for path in paths if is_inmet(path)]
    if published:
        sources += _function("inmet:open_stations")(published, config)
        paths = [path for path in paths if path not in published]
    for number, path in enumerate(paths):
        report_progress(number, len(paths))
        try:
            sources += _open_file(path, config)
        except NoValues as error:
            without_values.append(error)
    if without_values and not sources:
        available = sorted({name for error in without_values for name in error.available})
        if len(paths) > 1 and available:
            raise UsageError(
                f"No variable {', '.join(map(repr, config.variables))} in the data; there are: "
                f"{', '.join(available)}."
            )
        raise without_values[0]
    if without_values:
        note = f"{len(without_values)} of {len(paths)} files are left out. {without_values[0]}"
        sources[0] = sources[0].with_notes(note)
    return sources


def _open_file(path: Path, config: ReadConfig) -> list[LazySource]:
    """The content of a file, by the format of its suffix or else of its first bytes."""
    check_plain(path)
    opener = ZARR if path.is_dir() else SUFFIXES.get(_suffix(path)) or _format_of_content(path)
    if opener is None:
        raise DataError(
            f"'{path}' is of an unsupported kind ('{path.suffix}'); expected one of: "
            f"{', '.join(SUFFIXES)}; tables may be compressed ({', '.join(COMPRESSED)})."
        )
    sources: list[LazySource] = _function(opener)(path, config)
    return sources if opener == TABLE else _note_ignored_options(sources, config)


def find_files(source: str | Path) -> list[Path]:
    """The files of a path, a folder or a pattern, sorted by name.

    Args:
        source: as the user gave it.
    """
    path = Path(source)
    if path.exists():
        if not path.is_dir() or is_zarr(path):
            return [path]
        files = [child for child in sorted(path.iterdir()) if _is_supported(child)]
        if not files:
            raise DataError(
                f"The folder '{path}' holds no file that can be read; expected names that end in "
                f"{', '.join(SUFFIXES)}."
            )
        return files
    if has_magic(str(source)):
        files = [Path(name) for name in sorted(glob(str(source)))]
        if files:
            return files
    hint = ""
    if re.fullmatch(r"[A-Za-z][\w-]*", str(source)):  # `io` does not import `datasets`
        hint = f" If it is the name of a data set: stonet.open_dataset({str(source)!r})."
    raise UsageError(f"No file '{source}'. Check the path.{hint}")


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store.

    Args:
        path: of a folder.
    """
    return path.suffix.lower() == ".zarr" or any((path / name).is_file() for name in ZARR_FILES)


def _rename_channel(source: Any, config: ReadConfig, error: NoValues) -> list[LazySource]:
    """The only channel of a wide table under the requested name.

    The file's name is the channel's name, so a model trained on `stations.csv` needs this to read
    `newest.csv`.
    """
    if not error.named_by_file or len(config.variables) != 1:
        raise error
    (found,), (wanted,) = error.available, config.variables
    if len({"", quantity_of(found), quantity_of(wanted)}) == 3:
        raise UsageError(
            f"{error} These are different quantities. Give a file of {wanted}; if it is one, "
            f"--rename {found}={wanted}."
        )
    sources = open_sources(source, config.model_copy(update={"variables": ()}))
    if len(sources) != 1:
        raise error
    note = f"The values of '{sources[0].origin}' are read as '{config.variables[0]}', as requested."
    return [replace(sources[0].with_notes(note), channels=config.variables)]


def _note_ignored_options(sources: list[LazySource], config: ReadConfig) -> list[LazySource]:
    """The sources with a note, if options were given that apply to tables only."""
    given = [f"read.{name}" for name in ("timezone", "stations") if getattr(config, name)]
    if not given:
        return sources
    note = f"{' and '.join(given)}: without effect, since the data are not a table."
    return [source.with_notes(note) for source in sources]


def _is_supported(path: Path) -> bool:
    hidden = path.name.startswith((".", "_"))
    if not path.is_file():
        return not hidden and is_zarr(path)
    return not hidden and (_suffix(path) in SUFFIXES or path.suffix.lower() == ARCHIVE)


def _suffix(path: Path) -> str:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower()


def _format_of_content(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(8)
    return next((opener for magic, opener in FIRST_BYTES.items() if start.startswith(magic)), None)


def _function(name: str) -> Any:
    """A function of this package by "module:name"; heavy libraries are imported when used."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"stonet.io.{module}"), function)
