"""stonet compare."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.common import (
    Bbox,
    Count,
    DataArgument,
    Every,
    Json,
    Settings,
    Start,
    Stations,
    Stop,
    Timezone,
    Variables,
    open_data,
    reading,
    tell_notes,
)
from stonet.errors import UsageError, unknown_name

UNSEEN = 0.2  # share of points held out for --inductive where the data set has none


def compare(
    data: DataArgument,
    models: Annotated[
        str, typer.Option(help="stonet,dcrnn,...; 'all' and 'floors' stand for several.")
    ] = "all",
    budget: Annotated[
        float | None, typer.Option(help="Minutes of training for each model and seed.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Instead: passes over the training windows.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from train.seed on.")] = 1,
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Also score points never trained on.")
    ] = False,
    preset: Annotated[str, typer.Option(help="default, paper or tiny.")] = "default",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A folder for compare.json and compare.png.")
    ] = None,
    variables: Variables = None,
    bbox: Bbox = None,
    start: Start = None,
    stop: Stop = None,
    points: Count = None,
    every: Every = None,
    timezone: Timezone = None,
    stations: Stations = None,
    as_json: Json = False,
) -> None:
    """Train models side by side on the same data and budget; one table."""
    from stonet.comparison import Budget, summary
    from stonet.comparison import compare as run
    from stonet.config import load_config
    from stonet.console import counting_bar, print_json, print_table, say
    from stonet.protocols import hold_out
    from stonet.run import versions
    from stonet.zoo import FLOORS, MODELS

    started = time.monotonic()
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}; expected at least 1.")
    groups = {"all": tuple(MODELS), "floors": FLOORS}
    names = [n for part in models.split(",") for n in groups.get(part.strip(), (part.strip(),))]
    for name in names:
        if name not in MODELS:
            raise unknown_name("model", name, [*MODELS, *groups])
    length = Budget(epochs, budget if budget is not None or epochs is not None else 2.0)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    extra = reading(variables, bbox, start, stop, points, every, timezone, stations)
    config = load_config(preset, None, [*(settings or []), *extra])
    dataset = hold_out(open_data(data, config.read, inductive), config.data.unseen)
    if inductive and not dataset.unseen:
        dataset = hold_out(dataset, UNSEEN)
    elif not inductive:
        dataset = dataset.take(dataset.seen)
    tell_notes(dataset, as_json)
    say(f"{len(names)} models x {seeds} seed(s), {length} each.", as_json)
    first = config.train.seed
    with counting_bar("comparing", as_json) as bar:
        found = run(
            dataset,
            config.model_copy(update={"data": config.data.model_copy(update={"unseen": None})}),
            list(dict.fromkeys(names)),
            length,
            range(first, first + seeds),
            lambda what, done, total: bar(done, total, what),
        )
    groups_of_points = list(dict.fromkeys(str(r["points"]) for r in found.records))
    tables = {group: summary(found, group) for group in groups_of_points}
    result = found.to_json() | {"tables": tables, "data": data, "versions": versions()}
    result |= {"config": config.model_dump(), "seconds": time.monotonic() - started}
    if out is not None:
        from stonet.plots import error_by_lead, png

        (out / "compare.json").write_text(json.dumps(result, indent=1))
        (out / "compare.png").write_bytes(png(error_by_lead(found.records, title=data)))
    if as_json:
        print_json(result)
        return
    from stonet.console import comparison_table

    for group, lines in tables.items():
        print_table(comparison_table(lines, group, data, found.budget))
    for model, reason in found.skipped.items():
        say(f"{model} was left out: {reason}")
    for row in found.rows:
        if inductive and not row.inductive:
            say(f"{row.model} has weights of its own for each point: no unseen ones.")
    say(f"{time.monotonic() - started:.0f} s." + (f" Wrote {out}/." if out else ""))
