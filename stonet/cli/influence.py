"""stonet influence: which stations and past hours drive a forecast."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import (
    Json,
    OptionalData,
    ReadSettings,
    RunArgument,
    Snap,
    check_positions,
    load_run,
    open_for,
    provenance,
    query_points,
    read_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from stonet.inference.influence import Influence

SHOWN = 12  # stations in the table


@read_options
def influence(
    run: RunArgument,
    data: OptionalData = None,
    at: Annotated[
        str | None, typer.Option(help="The place: name of a station or 'lat,lon' (plane: 'x,y').")
    ] = None,
    snap: Snap = True,
    times: Annotated[
        list[str] | None,
        typer.Option(help="Lead times or dates: '+1h30min', 2026-03-01; may be repeated."),
    ] = None,
    channel: Annotated[
        str | None, typer.Option(help="Channel that is forecast; default: the first.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Figure to write: .png or .svg.")
    ] = None,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Show which stations and past hours drive the forecast at a place, by exact gradients."""
    from stonet.cli.console import print_json, print_table, say
    from stonet.errors import UsageError
    from stonet.inference.influence import influence as influence_on
    from stonet.reporting.figures import check_figure, write_figure
    from stonet.reporting.influence import influence_figure

    started = time.monotonic()
    if at is None:
        raise UsageError("Give the place of the forecast: --at STATION or --at LAT,LON.")
    check_figure(out)
    trained = load_run(run)
    check_positions([at], trained)
    dataset = open_for(trained, data, read, as_json)
    field = dataset.episodes[-1].take(dataset.seen)  # points held out stay held out
    trained.check_compatible(field)
    place = query_points([at], None, trained, field.points, snap, as_json)
    assert place is not None  # --at is given
    found = influence_on(trained, field, place, times, channel)
    if out is not None:
        write_figure(influence_figure(found), out)
    if as_json:
        facts = {"figure": None if out is None else str(out)}
        print_json(found.to_json() | facts | provenance(trained.config, started))
        return
    print_table(_table(found))
    say(f"Wrote {out}." if out else "-o influence.png draws a figure; --json gives all numbers.")


def _table(found: Influence) -> Table:
    """The stations with the greatest influence."""
    from stonet.cli.console import tidy_table
    from stonet.data.display import short_time

    unit = f" ({found.unit})" * (found.unit not in ("", "1"))
    own = f"{found.unit}/{found.unit}" if unit else "unit per unit"
    km = " (km)" * (found.stations.kind == "sphere")
    share, response, distance = found.by_station, found.response.mean(0), found.distance
    peak = found.past_times[abs(found.sensitivity).sum(0).sum(-1).argmax(0)]
    lines = [
        {
            "station": found.stations.names[i],
            "distance": float(distance[i]),
            "share": float(100 * share[i]),
            "response": float(response[i]),
            "hour": short_time(int(peak[i]), found.calendar),
        }
        for i in found.order[:SHOWN].tolist()
        if share[i] > 0
    ]
    columns = {"station": "station", "distance": f"distance{km}", "share": "influence (%)"}
    columns |= {"response": f"response ({own})", "hour": "most influential time"}
    first, last = (short_time(int(t), found.calendar) for t in found.times[[0, -1]])
    title = f"Influence on the forecast of {found.channel}{unit} at {found.place.names[0]}"
    caption = (
        f"Forecasts for {first} to {last}. Influence: share of all effects of one standard "
        "deviation. Response: change of the forecast (mean over the leads) per unit, if the "
        "station had read higher in all of its past."
    )
    return tidy_table(lines, title, columns, caption)
