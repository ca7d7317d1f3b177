"""stonet predict."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.common import (
    Json,
    MaybeData,
    Reading,
    RunArgument,
    open_for,
    provenance,
    reading,
    tell_notes,
)

if TYPE_CHECKING:
    from stonet.field import Field
    from stonet.geometry import Points


@reading
def predict(
    run: RunArgument,
    data: MaybeData = None,
    at: Annotated[
        list[str] | None, typer.Option(help="Where: a CSV of sites, or 'lat,lon' (plane: 'x,y').")
    ] = None,
    times: Annotated[
        list[str] | None, typer.Option(help="When: '+1h30min' or a date; may be repeated.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The file to write: .nc, .zarr, .csv or .parquet.")
    ] = Path("forecast.nc"),
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Forecast what follows the data's last time, at its points or anywhere else."""
    from stonet.console import print_json, say
    from stonet.inference import forecast
    from stonet.outputs import check_writable, write
    from stonet.run import Run

    started = time.monotonic()
    check_writable(out)
    trained = Run.load(run)
    dataset = open_for(trained, data, read or [], as_json)
    tell_notes(dataset, as_json)
    field = dataset.episodes[-1].take(dataset.seen)  # points held out stay held out
    answer = forecast(trained, field, _sites(at, field), times)
    write(answer, out)
    facts = {"out": str(out), "points": len(answer.points), "times": len(answer.times)}
    if as_json:
        print_json(facts | provenance(trained, started))
    say(f"Wrote {out}: {facts['times']} times at {facts['points']} points.", as_json)


def _sites(at: list[str] | None, field: Field) -> Points | None:
    """Points from 'a,b' pairs and CSV files, all in one."""
    from stonet.sources.sites import parse_sites

    return parse_sites(at, field.points.kind) if at else None
