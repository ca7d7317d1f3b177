"""stonet hindcast."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.fit import Interrupted
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
from stonet.cli.predict import At, sites


@reading
def hindcast(
    run: RunArgument,
    data: MaybeData = None,
    step: Annotated[
        str | None, typer.Option(help="6h: from 0, 6, 12 and 18 h UTC on. By default every frame.")
    ] = None,
    at: At = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The Zarr store to write, ending in .zarr.")
    ] = Path("hindcast.zarr"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted hindcast stopped.")
    ] = False,
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Forecast from every time of the data (of its last episode), into a Zarr store."""
    from stonet.cli.console import counting_bar, print_json, say
    from stonet.data.durations import parse_duration
    from stonet.inference.hindcast import hindcast as forecasts
    from stonet.io.zarr_writer import check_store, check_unfinished
    from stonet.system import distributed
    from stonet.system.progress import reporting_to

    started, quiet = time.monotonic(), as_json or distributed.rank() > 0
    check_store(out)
    if not resume and distributed.rank() == 0:
        check_unfinished(out)
    every = None if step is None else parse_duration(step)
    trained = load_run(run)
    where = sites(at, trained)
    dataset = open_for(trained, data, read or [], quiet)
    tell_notes(dataset, quiet)
    field = dataset.episodes[-1]
    seen = dataset.seen if dataset.unseen else None  # points held out stay held out
    try:
        with counting_bar("hindcast", quiet, patience=2.0) as bar, reporting_to(bar):
            issues, leads, points = forecasts(trained, field, out, every, where, seen, resume)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. The same command with --resume goes on from here.") from None
    facts = {"out": str(out), "issues": issues, "times": leads, "points": points}
    if as_json and distributed.rank() == 0:
        print_json(facts | provenance(trained, started))
    say(f"Wrote {out}: {issues} forecasts of {leads} times at {points} points.", quiet)
