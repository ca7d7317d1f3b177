"""stonet hindcast: forecasts from every time of a series."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.options import (
    At,
    Bounds,
    Feedback,
    GridStep,
    Intervals,
    Json,
    OptionalData,
    ReadSettings,
    Resume,
    RunArgument,
    Snap,
    check_positions,
    declared,
    load_run,
    open_for,
    parse_intervals,
    provenance,
    query_points,
    read_options,
    resumable,
)


@read_options
def hindcast(
    run: RunArgument,
    data: OptionalData = None,
    step: Annotated[
        str | None,
        typer.Option(help="Interval of issue times: 6h is 0, 6, 12, 18 UTC; default: every frame."),
    ] = None,
    at: At = None,
    grid: GridStep = None,
    snap: Snap = True,
    bounds: Bounds = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Zarr store to write (.zarr).")] = (
        Path("hindcast.zarr")
    ),
    resume: Resume = False,
    intervals: Intervals = None,
    feedback: Feedback = True,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Forecast from every time of the data (its last episode) into a Zarr store."""
    from stonet.calibration.stored import load_calibration
    from stonet.cli.console import counting_bar, print_json, say
    from stonet.data.durations import parse_duration
    from stonet.inference.hindcast import hindcast as write_hindcasts
    from stonet.inference.inputs import check_inputs
    from stonet.io.zarr_writer import check_store, check_unfinished
    from stonet.system import distributed
    from stonet.system.progress import reporting_to

    started, quiet = time.monotonic(), as_json or distributed.rank() > 0
    check_store(out)
    if not resume and distributed.rank() == 0:
        check_unfinished(out)
    interval = None if step is None else parse_duration(step)
    quantiles = parse_intervals(intervals)
    trained = load_run(run).with_bounds(declared(bounds))
    calibration = load_calibration(trained, run) if feedback or quantiles else None
    check_positions(at, trained)
    dataset = open_for(trained, data, read, quiet)
    trained.check_compatible(dataset.episodes[-1])
    queries = query_points(at, grid, trained, dataset.points, snap, quiet)
    for note in check_inputs(trained, dataset.episodes[-1]):
        say(f"note: {note}", quiet)
    seen = dataset.seen if dataset.unseen else None  # points held out stay held out
    with resumable(), counting_bar("hindcast", quiet, delay=2.0) as bar, reporting_to(bar):
        issues, leads, points = write_hindcasts(
            trained,
            dataset.episodes[-1],
            out,
            interval,
            queries,
            seen,
            resume,
            calibration=calibration,
            quantiles=quantiles,
            feedback=feedback,
        )
    facts = {"out": str(out), "issues": issues, "times": leads, "points": points}
    if as_json and distributed.rank() == 0:
        print_json(facts | provenance(trained.config, started))
    say(f"Wrote {out}: {issues} forecasts of {leads} times at {points} points.", quiet)
