"""stonet evaluate: scores of a trained model beside reference forecasts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import (
    Feedback,
    Json,
    OptionalData,
    ReadSettings,
    RunArgument,
    open_for,
    provenance,
    read_options,
)

if TYPE_CHECKING:
    from stonet.training.trained_model import TrainedModel


@read_options
def evaluate(
    run: RunArgument,
    data: OptionalData = None,
    part: Annotated[
        str, typer.Option(help="Part to score: test, validation, train, or all of the data.")
    ] = "test",
    feedback: Feedback = True,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Score a trained model beside reference forecasts, at seen and unseen points."""
    from stonet.calibration.stored import load_calibration
    from stonet.cli.console import (
        counting_bar,
        print_json,
        print_table,
        say,
        say_if_worse,
        score_table,
    )
    from stonet.data.windows import PARTS
    from stonet.errors import unknown_name
    from stonet.evaluation import scoring
    from stonet.evaluation.calibrated import calibrate_models
    from stonet.evaluation.task import ALL, scored_task
    from stonet.inference.inputs import check_inputs
    from stonet.training.trained_model import TrainedModel

    started = time.monotonic()
    if part not in (*PARTS, ALL):
        raise unknown_name("part", part, (*PARTS, ALL))
    trained = TrainedModel.load(run)
    task = scored_task(trained, open_for(trained, data, read, as_json), part)
    for note in dict.fromkeys(n for f in task.parts[part] for n in check_inputs(trained, f)):
        say(f"note: {note}", as_json)
    if trained.config.train.final and data is None and part == "validation":
        say(
            "WARNING: this run was refit on the validation part: its scores there mislead.", as_json
        )
    calibration, models, calibrations = load_calibration(trained, run), None, None
    if calibration is not None:  # reference forecasts learn from their recent errors too
        models = scoring.reference_forecasts(trained, task, fitted=part != ALL)
        calibrations = calibrate_models(models, trained, task, calibration)
        feedback = feedback and part != ALL  # references have no part to fit a correction to
    with counting_bar("scoring", as_json) as watch:
        records = scoring.evaluate(trained, task, part, models, watch, calibrations, feedback)
    deviation = scoring.deviation_percent(records, trained.config.model)
    if as_json:
        result = {"records": records, "deviation_percent": deviation}
        print_json(result | provenance(trained.config, started))
        return
    units = dict(zip(trained.channels, trained.units, strict=True))
    print_table(score_table(records, deviation, part, units, trained.time_spec.step))
    channel = "all" if len(units) > 1 else trained.channels[0]
    chosen = [
        r for r in records if (r["channel"], r["lead"], r["metric"]) == (channel, "all", "mae")
    ]
    for points in dict.fromkeys(record["points"] for record in chosen):
        lines = [r | {"mae": r["value"]} for r in chosen if r["points"] == points]
        say_if_worse(lines, f"at {points} points", trained.config.model)
    if data is not None and part != ALL:
        say(f"Scored the {part} part, {_share(trained, part):.0%} of the data; --part all scores "
            "everything.")  # fmt: skip
    say(f"{time.monotonic() - started:.0f} s; --json gives the scores of every lead.")


def _share(trained: TrainedModel, part: str) -> float:
    """The share of the data that a part is."""
    from stonet.data.windows import PARTS

    return trained.config.data.split[PARTS.index(part)]
