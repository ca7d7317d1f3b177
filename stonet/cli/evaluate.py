"""stonet evaluate."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from stonet.cli.options import (
    Json,
    MaybeData,
    Reading,
    RunArgument,
    open_for,
    provenance,
    reading,
    tell_notes,
)


@reading
def evaluate(
    run: RunArgument,
    data: MaybeData = None,
    part: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Score a run beside its references, at seen and at unseen points."""
    from stonet.cli.console import counting_bar, print_json, print_table, say, score_table
    from stonet.data.windows import PARTS
    from stonet.errors import unknown_name
    from stonet.evaluation.scoring import deviation_percent
    from stonet.evaluation.scoring import evaluate as score
    from stonet.evaluation.task import scored_task
    from stonet.training.trained_model import TrainedModel

    started = time.monotonic()
    if part not in PARTS:
        raise unknown_name("part", part, PARTS)
    trained = TrainedModel.load(run)
    dataset = open_for(trained, data, read or [], as_json)
    tell_notes(dataset, as_json)
    task = scored_task(trained, dataset)
    with counting_bar("scoring", as_json) as watch:
        records = score(trained, task, part, watch=watch)
    deviation = deviation_percent(records, trained.config.model)
    if as_json:
        result = {"records": records, "deviation_percent": deviation}
        print_json(result | provenance(trained, started))
        return
    print_table(score_table(records, deviation, part))
    say(f"{time.monotonic() - started:.0f} s; every lead with --json.")
