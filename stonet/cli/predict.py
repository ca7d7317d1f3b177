"""stonet predict."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import (
    Json,
    MaybeData,
    Reading,
    RunArgument,
    load_run,
    open_for,
    provenance,
    reading,
    tell_notes,
)

if TYPE_CHECKING:
    from stonet.data.field import Dataset, Field
    from stonet.data.geometry import Points
    from stonet.training.trained_model import TrainedModel

At = Annotated[
    list[str] | None,
    typer.Option(help="Where: a CSV of sites, 'lat,lon' (plane: 'x,y'), or 'grid:0.25'."),
]


@reading
def predict(
    run: RunArgument,
    data: MaybeData = None,
    at: At = None,
    times: Annotated[
        list[str] | None, typer.Option(help="When: '+1h30min' or a date; may be repeated.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The file to write: .nc, .zarr, .csv or .parquet.")
    ] = Path("forecast.nc"),
    memory: Annotated[
        str | None, typer.Option(help="2G: how much the program may take, at most.")
    ] = None,
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Forecast what follows the data's last time, at its points or anywhere else."""
    from stonet.cli.console import counting_bar, print_json, say
    from stonet.io.write import check_writable
    from stonet.system import distributed
    from stonet.system.progress import reporting_to

    started, quiet = time.monotonic(), as_json or distributed.rank() > 0
    check_writable(out)
    _check_shared(out)
    limit = _limit(memory)
    trained = load_run(run)
    where = sites(at, trained)
    dataset = open_for(trained, data, read or [], quiet)
    tell_notes(dataset, quiet)
    field = _recent(dataset, trained)
    with counting_bar("predicting", quiet, patience=2.0) as bar, reporting_to(bar):
        frames, points = _write(trained, field, where, times, out, limit)
    facts = {"out": str(out), "points": points, "times": frames}
    if as_json and distributed.rank() == 0:
        print_json(facts | provenance(trained, started))
    say(f"Wrote {out}: {frames} times at {points} points.", quiet)


def _limit(memory: str | None) -> int | None:
    """The bytes that the program may take; reading keeps to a quarter of them."""
    from stonet.system.resources import parse_size

    if memory is None:
        return None
    limit = parse_size(memory)
    os.environ.setdefault("STONET_MEMORY", str(limit // 4))
    return limit


def _check_shared(out: Path) -> None:
    """Refuse a file that many processes cannot write together."""
    from stonet.errors import UsageError
    from stonet.system import distributed

    if distributed.size() > 1 and out.suffix.lower() != ".zarr":
        raise UsageError(f"Many processes write a Zarr store together, not '{out}'. Give -o x.zarr")


def _recent(dataset: Dataset, run: TrainedModel) -> Field:
    """What the model looks at: the last frames; points held out stay held out."""
    last = dataset.episodes[-1]
    few = last.between(max(0, len(last.times) - run.time_spec.past), len(last.times))
    return few.take(dataset.seen)


def _write(
    run: TrainedModel,
    field: Field,
    at: Points | None,
    times: list[str] | None,
    out: Path,
    limit: int | None,
) -> tuple[int, int]:
    """The forecast as a file, piece by piece where it can be. Tells how many times and points."""
    from stonet.inference.forecast import forecast, forecast_to_file
    from stonet.io.write import write

    if out.suffix.lower() in (".zarr", ".nc"):
        return forecast_to_file(run, field, out, at, times, limit)
    answer = forecast(run, field, at, times, limit)
    write(answer, out)
    return len(answer.times), len(answer.points)


def sites(at: list[str] | None, run: TrainedModel) -> Points | None:
    """Points from 'a,b' pairs and CSV files, all in one."""
    from stonet.io.sites import parse_sites

    return parse_sites(at, run.nodes.kind) if at else None
