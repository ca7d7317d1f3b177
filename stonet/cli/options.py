"""What the commands share: their options, how they open data, what they tell of themselves."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from stonet.config import ReadConfig
    from stonet.data.field import Dataset
    from stonet.training.trained_model import TrainedModel

DataArgument = Annotated[
    str, typer.Argument(help="A file, a folder, a pattern such as 'x/*.nc', or a data set's name.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run folder, as made by `stonet fit`.")]
MaybeData = Annotated[
    str | None,
    typer.Argument(help="A file, folder or name; by default what the run was trained on."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="section.key=value, e.g. train.lr=1e-3.")
]

READING = "What to take from the data"
Variables = Annotated[
    str | None, typer.Option(help="t2m,u10: only these.", rich_help_panel=READING)
]
Bbox = Annotated[
    str | None, typer.Option(help="west,south,east,north (or x,y,x,y).", rich_help_panel=READING)
]
Start = Annotated[
    str | None, typer.Option("--from", help="First time, e.g. 2019-03-01.", rich_help_panel=READING)
]
Stop = Annotated[
    str | None, typer.Option("--to", help="Last time; 2019-03 is March.", rich_help_panel=READING)
]
Count = Annotated[
    int | None,
    typer.Option("--points", help="At most so many, spread evenly.", rich_help_panel=READING),
]
Every = Annotated[
    str | None, typer.Option(help="1h: averages around whole hours.", rich_help_panel=READING)
]
Timezone = Annotated[
    str | None,
    typer.Option(help="Of times that tell none, e.g. Europe/Berlin.", rich_help_panel=READING),
]
Stations = Annotated[
    str | None,
    typer.Option(help="A table of places, if the data hold none.", rich_help_panel=READING),
]


Reading = list[str] | None  # settings of the section `read`, from the options of `reading`
OPTIONS: dict[str, Any] = {
    "variables": Variables,
    "bbox": Bbox,
    "start": Start,
    "stop": Stop,
    "points": Count,
    "every": Every,
    "timezone": Timezone,
    "stations": Stations,
}


def reading(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options above; it gets them as settings, in its argument `read`."""
    own = get_type_hints(command, include_extras=True)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        asked = {key: given.pop(key) for key in OPTIONS}
        told = [f"read.{key}={json.dumps(v)}" for key, v in asked.items() if v is not None]
        command(**given, read=told)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        p.replace(annotation=own[p.name])
        for p in inspect.signature(command).parameters.values()
        if p.name != "read"
    ] + [inspect.Parameter(key, kind, default=None, annotation=OPTIONS[key]) for key in OPTIONS]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def sources_of(data: str, config: ReadConfig, quiet: bool) -> Any:
    """What `data` stands for: a named data set's first episode, or the path itself."""
    from stonet.datasets import DATASETS

    return open_data(data, config, quiet=quiet).episodes[0] if data in DATASETS else data


def open_data(
    data: str, config: ReadConfig, inductive: bool = False, quiet: bool = False
) -> Dataset:
    """A data set by its name, or a file, folder or pattern; narrowed to what is asked for.

    `inductive` asks for the form with unseen points where a data set has two.
    """
    from stonet.cli.console import counting_bar
    from stonet.datasets import open_any
    from stonet.system.progress import watched

    if quiet:
        return open_any(data, config, inductive)
    with counting_bar("reading", False, transient=True) as bar, watched(bar):
        return open_any(data, config, inductive)


def load_run(path: Path) -> TrainedModel:
    """A trained run, on a GPU where this process has one to itself."""
    from stonet.errors import UsageError
    from stonet.system.devices import pick_device
    from stonet.training.trained_model import TrainedModel

    run = TrainedModel.load(path)
    with suppress(UsageError):  # more processes than GPUs
        run.model.to(pick_device("auto"))
    return run


def open_for(run: TrainedModel, data: str | None, settings: list[str], quiet: bool) -> Dataset:
    """The data for a trained run: read as for training, of any time; options override.

    Of the run's own data, what training held out stays held out; other data are used whole.
    """
    from stonet.config import load_config, make_config
    from stonet.evaluation.task import held_out
    from stonet.training.trained_model import reading_for

    read = (run.config if data is None else reading_for(run)).read.model_dump()
    given = load_config(settings=settings).model_dump(exclude_unset=True).get("read", {})
    config = make_config({"read": read | given})
    dataset = open_data(data or run.dataset, config.read, quiet=quiet)
    return held_out(run, dataset) if data is None else dataset


def tell_notes(dataset: Dataset, quiet: bool) -> None:
    """What reading did to the data."""
    from stonet.cli.console import say

    for note in dataset.episodes[0].notes:
        say(f"note: {note}", quiet)


def provenance(run: TrainedModel, started: float) -> dict[str, Any]:
    """What every JSON answer tells of how it came about."""
    from stonet.training.trained_model import versions

    seconds = time.monotonic() - started
    return {"config": run.config.model_dump(), "versions": versions(), "seconds": seconds}
