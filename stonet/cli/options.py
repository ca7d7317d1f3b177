"""Options and steps that several commands share: arguments, opening data, provenance."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from stonet.errors import StonetError, unknown_name

if TYPE_CHECKING:
    from stonet.config import Config, ReadConfig
    from stonet.data.field import Dataset
    from stonet.data.geometry import Points
    from stonet.training.trained_model import TrainedModel

HELP = {"help_option_names": ["-h", "--help"]}

DataArgument = Annotated[
    str,
    typer.Argument(help="File, folder, pattern such as 'x/*.nc', or name of a data set."),
]
RunArgument = Annotated[Path, typer.Argument(help="Run folder, as written by `stonet fit`.")]
OptionalData = Annotated[
    str | None,
    typer.Argument(help="File, folder, pattern or name; default: the data of the training."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.key=value, such as train.lr=1e-3; may be repeated."),
]
Preset = Annotated[str, typer.Option(help="Preset: default, paper, operator or tiny.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue after an interruption.")]
At = Annotated[
    list[str] | None,
    typer.Option(
        help="Query points: names of stations, CSV of sites, 'lat,lon' (plane: 'x,y'); repeatable."
    ),
]

Bounds = Annotated[
    list[str] | None,
    typer.Option(help="Range of forecasts: wind_speed=0: or rh=0:100; may be repeated."),
]
GridStep = Annotated[
    float | None,
    typer.Option("--grid", help="Forecast on a regular grid over the region of the data: 0.25."),
]
Snap = Annotated[
    bool,
    typer.Option("--snap/--no-snap", help="Take places beside a station (100 m) for it."),
]
Past = Annotated[str | None, typer.Option(help="Length of the inputs: steps, or such as 24h.")]
Horizon = Annotated[str | None, typer.Option(help="Length of the forecast: steps, or such as 12h.")]
Intervals = Annotated[
    str | None,
    typer.Option(help="Central intervals in percent: 50,90 writes quantiles .05 .25 .5 .75 .95."),
]
Feedback = Annotated[
    bool,
    typer.Option("--feedback/--no-feedback", help="Correct forecasts by the recent errors."),
]

POSITION = r"[-+.,\d\s]*,[-+.,\d\s]*"  # numbers and commas
ReadSettings = Sequence[str]  # "read.key=value", from the options below
READ_OPTIONS: dict[str, tuple[type, list[str], str]] = {  # key of `read` -> type, names, help
    "variables": (str, [], "Variables to read: t2m,u10."),
    "bbox": (str, [], "Region: west,south,east,north (plane: x,y,x,y)."),
    "start": (str, ["--from"], "First time, such as 2019-03-01 (UTC)."),
    "stop": (str, ["--to"], "Last time; 2019-03 includes all of March."),
    "points": (int, [], "Maximum number of points, spread evenly."),
    "every": (str, [], "Resample: 1h gives averages around full hours."),
    "timezone": (str, [], "Time zone of times without one, such as Europe/Berlin."),
    "units": (str, [], "Units of variables without one: temperature=degC,wind=m s-1."),
    "rename": (str, [], "New names of variables: old=new; several separated by commas."),
    "wind_components": (str, [], "SPEED,DIRECTION to replace by eastward and northward wind."),
    "stations": (str, [], "Table of station positions, if the data have none."),
}


def read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of READ_OPTIONS to a command.

    The command receives them as settings ("read.key=value") in its argument `read`.

    Args:
        command: a function with an argument `read`.
    """
    annotations = get_type_hints(command, include_extras=True)

    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        values = {key: arguments.pop(key) for key in READ_OPTIONS}
        settings = [f"read.{key}={json.dumps(v)}" for key, v in values.items() if v is not None]
        command(**arguments, read=settings)

    parameters = [
        parameter.replace(annotation=annotations[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "read"
    ]
    for key, (kind, names, text) in READ_OPTIONS.items():
        option = typer.Option(*names, help=text, rich_help_panel="Selection of the data")
        annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
        parameters.append(
            inspect.Parameter(
                key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
            )
        )
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


class Interrupted(StonetError):
    """The user stopped work that can be resumed (exit code 130)."""

    exit_code = 130


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C into a message that says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Stopped. Repeat the command with --resume to continue.") from None


def split_names(text: str | None) -> list[str]:
    """Names separated by commas.

    Args:
        text: as given; None: there is none.
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def parse_intervals(text: str | None) -> list[float]:
    """The quantiles at the ends of intervals such as "50,90", and 0.5; none without a text.

    Args:
        text: percentages separated by commas, with or without "%".

    Raises:
        UsageError: if a number is not a percentage that intervals can have.
    """
    from stonet.calibration.conformal import interval_levels
    from stonet.data.quantile_field import interval_quantiles
    from stonet.errors import UsageError

    if text is None:
        return []
    try:
        percentages = [float(part.rstrip("%")) for part in split_names(text)]
    except ValueError:
        raise UsageError(f"--intervals {text}: expected percentages such as 50,90.") from None
    ends = {end for percent in percentages for end in interval_quantiles(percent)}
    if not percentages or not all(0 < percent < 100 for percent in percentages):
        raise UsageError(f"--intervals {text}: expected percentages such as 50,90.")
    quantiles = sorted({*ends, 0.5})
    interval_levels(quantiles)
    return quantiles


def model_names(text: str) -> list[str]:
    """Model names from "stonet,references", each once; groups are expanded.

    Args:
        text: names and groups, separated by commas.

    Raises:
        UsageError: a name is neither a model nor a group.
    """
    from stonet.models.registry import BASELINES, MODELS, REFERENCE_FORECASTS

    groups = {"all": tuple(MODELS), "baselines": BASELINES, "references": REFERENCE_FORECASTS}
    names = [name for part in split_names(text) for name in groups.get(part, (part,))]
    for name in names:
        if name not in MODELS:
            raise unknown_name("model", name, [*MODELS, *groups])
    return list(dict.fromkeys(names))


def open_data(
    data: str, config: ReadConfig, inductive: bool = False, quiet: bool = False
) -> Dataset:
    """Open a named data set, or read a file, folder or pattern, and print the reader's notes.

    Args:
        data: name or path.
        config: the selection to read.
        inductive: take the version with unseen points, where a data set has two.
        quiet: print neither progress nor notes.
    """
    from stonet.cli.console import counting_bar, say
    from stonet.datasets import open_any
    from stonet.system.progress import reporting_to

    if quiet:
        return open_any(data, config, inductive)
    with counting_bar("reading", False, transient=True) as bar, reporting_to(bar):
        dataset = open_any(data, config, inductive)
    for note in dataset.episodes[0].notes:
        say(f"note: {note}")
    return dataset


def length_settings(past: str | None, horizon: str | None) -> list[str]:
    """--past and --horizon as settings.

    Args:
        past: a number of steps, or a duration.
        horizon: a number of steps, or a duration.
    """
    given = {"past": past, "horizon": horizon}
    return [f"data.{key}={_length(text)}" for key, text in given.items() if text is not None]


def _length(text: str) -> str:
    """A number of steps, or a duration in quotes."""
    return text if text.isdigit() else json.dumps(text)


def bounds_setting(bounds: list[str] | None) -> list[str]:
    """--bounds as a setting.

    Args:
        bounds: as given, NAME=LOW:HIGH.
    """
    return [f"data.bounds={json.dumps(','.join(bounds))}"] if bounds else []


def declared(bounds: list[str] | None) -> dict[str, str]:
    """--bounds by channel.

    Args:
        bounds: as given, NAME=LOW:HIGH.

    Raises:
        UsageError: it is not NAME=LOW:HIGH.
    """
    from stonet.config import load_config

    return load_config(settings=bounds_setting(bounds)).data.bounds


def next_step(*words: object) -> str:
    """A command to continue with, quoted so that it can be pasted into a shell.

    Args:
        *words: of the command.
    """
    return f"Next: {shlex.join(map(str, words))}"


def load_run(path: Path) -> TrainedModel:
    """Load a trained model, on a GPU where this process has one to itself.

    Args:
        path: of the run folder.
    """
    from stonet.errors import UsageError
    from stonet.system.devices import pick_device
    from stonet.training.trained_model import TrainedModel

    trained = TrainedModel.load(path)
    with suppress(UsageError):  # more processes than GPUs
        trained.model.to(pick_device("auto"))
    return trained


def open_for(trained: TrainedModel, data: str | None, read: ReadSettings, quiet: bool) -> Dataset:
    """Open data for a trained model, read as for training; options in `read` override.

    Points held out in training stay held out in the model's own data (`data` is None). Other data
    are used completely, of any time.

    Args:
        trained: the model.
        data: as given; None: the data of its training.
        read: settings of the section `read`.
        quiet: whether no progress is shown.
    """
    from stonet.config import load_config, make_config
    from stonet.evaluation.task import held_out
    from stonet.training.trained_model import reading_for

    defaults = (trained.config if data is None else reading_for(trained)).read.model_dump()
    options = load_config(settings=read).model_dump(exclude_unset=True).get("read", {})
    config = make_config({"read": defaults | options}).read
    config._known_places = trained.nodes
    dataset = open_data(data or trained.dataset, config, quiet=quiet)
    return held_out(trained, dataset) if data is None else dataset


def check_positions(at: list[str] | None, trained: TrainedModel) -> None:
    """Refuse wrong positions and files of sites before the data are read.

    Names of stations are left out: only the data have all of them.

    Args:
        at: as given with --at.
        trained: gives the geometry.
    """
    from stonet.io.sites import parse_sites

    entries = [e for e in at or () if re.fullmatch(POSITION, e) or e.lower().endswith(".csv")]
    if entries:
        parse_sites(entries, trained.nodes.kind, trained.nodes)


def query_points(
    at: list[str] | None,
    grid: float | None,
    trained: TrainedModel,
    stations: Points,
    snap: bool,
    quiet: bool,
) -> Points | None:
    """The points given by --at or --grid, all in one; None without these options.

    Args:
        at: positions, files, grids or names of stations.
        grid: step of a grid over the region of the stations.
        trained: the model, whose training points have names, too.
        stations: the points of the data.
        snap: whether a place beside a station is taken for it, which is printed.
        quiet: print nothing.
    """
    from stonet.cli.console import say
    from stonet.errors import UsageError
    from stonet.inference.places import find_places, region_grid

    if grid is not None:
        if at:
            raise UsageError("Give either --at or --grid: one file holds a grid or single places.")
        return region_grid(grid, stations)
    places, notes = find_places(at or None, stations, trained.nodes, snap)
    for note in notes:
        say(f"note: {note}", quiet)
    return places


def provenance(config: Config, started: float) -> dict[str, Any]:
    """Configuration, versions and seconds, which every JSON result holds.

    Args:
        config: of the run.
        started: by `time.monotonic`.
    """
    from stonet.training.trained_model import versions

    seconds = time.monotonic() - started
    return {"config": config.model_dump(), "versions": versions(), "seconds": seconds}
