"""stonet predict: a forecast of what follows the data."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
)

if TYPE_CHECKING:
    from stonet.data.field import Field
    from stonet.data.geometry import Points
    from stonet.training.trained_model import TrainedModel


@read_options
def predict(
    run: RunArgument,
    data: OptionalData = None,
    at: At = None,
    grid: GridStep = None,
    snap: Snap = True,
    times: Annotated[
        list[str] | None,
        typer.Option(help="Lead times or dates: '+1h30min', 2026-03-01; may be repeated."),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="File to write: .nc, .zarr, .csv or .parquet.")
    ] = Path("forecast.nc"),
    bounds: Bounds = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory limit of the program, such as 2G.")
    ] = None,
    intervals: Intervals = None,
    feedback: Feedback = True,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Forecast what follows the last time of the data, at its points or anywhere else."""
    import numpy as np

    from stonet.calibration.stored import load_calibration
    from stonet.cli.console import counting_bar, print_json, say
    from stonet.errors import UsageError
    from stonet.inference import calibrated
    from stonet.inference.forecast import latest_frames
    from stonet.inference.inputs import InputWarning, check_inputs
    from stonet.io.write import check_writable, write
    from stonet.io.write_quantiles import write_quantiles
    from stonet.system import distributed
    from stonet.system.progress import reporting_to

    started, quiet = time.monotonic(), as_json or distributed.rank() > 0
    check_writable(out)
    suffix = out.suffix.lower()
    if distributed.size() > 1 and suffix != ".zarr":
        raise UsageError(f"Several processes can only write a Zarr store: -o x.zarr, not '{out}'.")
    limit, quantiles = _memory_limit(memory), parse_intervals(intervals)
    trained = load_run(run).with_bounds(declared(bounds))
    calibration = load_calibration(trained, run) if feedback or quantiles else None
    check_positions(at, trained)
    dataset = open_for(trained, data, read, quiet)
    last = dataset.episodes[-1]
    recent = calibrated.recent_frames(trained, last, calibration)
    field = recent.take(dataset.seen)  # points held out stay held out
    trained.check_compatible(field)
    queries = query_points(at, grid, trained, field.points, snap, quiet)
    for note in check_inputs(trained, latest_frames(trained, field, screened=False)):
        say(f"note: {note}", quiet)
    warnings.simplefilter("ignore", InputWarning)  # the same notes
    with counting_bar("predicting", quiet, delay=2.0) as bar, reporting_to(bar):
        request = (queries, times, limit)
        if quantiles:
            found = calibrated.quantile_forecast(
                trained, calibration, field, quantiles, *request, feedback=feedback
            )
            write_quantiles(found, out)
            frames, points = found.values.shape[1:3]
            missing = int(np.isnan(found.values[:, 0, :, 0]).any(0).sum())
            _report_missing(missing, points, quiet)
        elif suffix in (".zarr", ".nc"):  # written in chunks
            arguments = trained, calibration, field, out, *request
            frames, points = calibrated.calibrated_to_file(*arguments)
        else:
            result = calibrated.calibrated_forecast(trained, calibration, field, *request)
            write(result, out)
            frames, points = len(result.times), len(result.points)
    cautions = _cautions(trained, field, field.points if queries is None else queries)
    facts = {"warnings": list(cautions), "out": str(out), "points": points, "times": frames}
    if as_json and distributed.rank() == 0:
        print_json(facts | provenance(trained.config, started))
    for caution in cautions:
        say(f"warning: {caution}", quiet)
    say(f"Wrote {out}: {frames} times at {points} points.", quiet)


def _cautions(trained: TrainedModel, field: Field, queries: Points) -> tuple[str, ...]:
    """Stations that are silent, and query points far from any observation."""
    from stonet.inference.forecast import latest_frames, support
    from stonet.inference.support import silent_notes, support_notes

    window, radius = latest_frames(trained, field), trained.config.graph.decoder_radius
    notes = support_notes(support(window, queries, radius), queries, radius)
    return (*silent_notes(window), *notes)


def _report_missing(missing: int, points: int, quiet: bool) -> None:
    """Say where no interval could be given."""
    from stonet.cli.console import say

    if missing:
        say(
            f"note: no interval at {missing} of {points} points, where too few stations tell how "
            "large errors are; their quantiles are empty.",
            quiet,
        )


def _memory_limit(memory: str | None) -> int | None:
    """The limit in bytes; reading may use a quarter of it."""
    from stonet.system.resources import parse_size

    if memory is None:
        return None
    limit = parse_size(memory)
    os.environ.setdefault("STONET_MEMORY", str(limit // 4))
    return limit
