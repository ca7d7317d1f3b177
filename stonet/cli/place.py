"""stonet place: where further sensors would reduce the error most."""

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
    load_run,
    open_for,
    provenance,
    query_points,
    read_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from stonet.data.geometry import Points
    from stonet.reporting.placement import Suggestion
    from stonet.training.trained_model import TrainedModel

GRID = "grid"  # of candidates; grid:0.5 gives its step


@read_options
def place(
    run: RunArgument,
    data: OptionalData = None,
    candidates: Annotated[
        str, typer.Option(help="CSV file of places, grid, or grid:STEP over the stations' region.")
    ] = GRID,
    count: Annotated[int, typer.Option(min=1, help="Number of sensors to suggest.")] = 5,
    channel: Annotated[
        str | None, typer.Option(help="Channel whose error is reduced; default: the first.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Map to write: .png, .svg or .html.")
    ] = None,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Suggest places for further sensors: the expected reduction of the error at unseen points."""
    from stonet.cli.console import counting_bar, print_json, print_table, say
    from stonet.errors import unknown_name
    from stonet.evaluation.task import scored_task
    from stonet.reporting.panels import check_panels, write_panels
    from stonet.reporting.placement import placement_panels, suggest_sensors
    from stonet.system.progress import reporting_to

    started = time.monotonic()
    if out is not None:
        check_panels(out)
    trained = load_run(run)
    if channel is not None and channel not in trained.channels:
        raise unknown_name("channel", channel, trained.channels)
    if not candidates.startswith(GRID):
        _candidates(candidates, trained, trained.nodes)  # refused before the data are read
    task = scored_task(trained, open_for(trained, data, read, as_json), "validation")
    places = _candidates(candidates, trained, task.nodes)
    with counting_bar("placing", as_json, delay=2.0) as bar, reporting_to(bar):
        found = suggest_sensors(trained, task, count, places, channel)
    if out is not None:
        title = f"Sensors that would help {trained.config.model} most"
        write_panels(placement_panels(found), out, title, f"Trained on {trained.dataset}")
    if as_json:
        facts = {"out": None if out is None else str(out)}
        print_json(found.to_json() | facts | provenance(trained.config, started))
        return
    print_table(_table(found))
    say(f"Wrote {out}." if out else "-o place.png draws a map; --json gives all numbers.")


def _candidates(text: str, trained: TrainedModel, stations: Points) -> Points | None:
    """Places from a file or of a grid; None: the grid of the region."""
    from stonet.errors import UsageError
    from stonet.reporting.placement import candidate_grid

    if text == GRID:
        return None
    if not text.startswith(f"{GRID}:"):
        return query_points([text], None, trained, stations, False, True)
    try:
        step = float(text.removeprefix(f"{GRID}:"))
    except ValueError:
        raise UsageError(
            f"--candidates {text}: expected a CSV file, grid, or grid:STEP such as grid:0.5."
        ) from None
    return candidate_grid(step, stations)


def _table(found: Suggestion) -> Table:
    """The suggested sensors in their order, with what each adds."""
    from stonet.cli.console import tidy_table

    first, second = found.sensors.geometry.axes
    unit = f" ({found.unit})" * (found.unit not in ("", "1"))
    rmse = found.rmse.tolist()
    lines = [
        {
            "rank": rank,
            "name": name,
            first: round(a, 4),
            second: round(b, 4),
            "rmse": rmse[rank],
            "gain": 100 * (1 - rmse[rank] / rmse[rank - 1]),
        }
        for rank, (name, a, b) in enumerate(found.sensors, start=1)
    ]
    columns = {"rank": "", "name": "sensor", first: first, second: second}
    columns |= {"rmse": f"expected RMSE{unit}", "gain": "reduction (%)"}
    without, own = found.cross_fitted
    caption = (
        f"Expected RMSE of {found.channel} over the region before: {rmse[0]:.4g}. Hidden stations "
        f"of the validation part: {without:.4g} without and {own:.4g} with their own history. "
        "Each row includes the sensors above it."
    )
    return tidy_table(lines, f"Sensors that would help most, of {found.channel}", columns, caption)
