"""stonet evaluate: scores of a trained model beside reference forecasts."""

from __future__ import annotations

import time
from typing import Annotated

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


@read_options
def evaluate(
    run: RunArgument,
    data: OptionalData = None,
    part: Annotated[str, typer.Option(help="Part to score: test, validation or train.")] = "test",
    feedback: Feedback = True,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Score a trained model beside reference forecasts, at seen and unseen points."""
    from stonet.calibration.stored import load_calibration
    from stonet.cli.console import counting_bar, print_json, print_table, say, score_table
    from stonet.data.windows import PARTS
    from stonet.errors import unknown_name
    from stonet.evaluation import scoring
    from stonet.evaluation.calibrated import calibrate_models
    from stonet.evaluation.task import scored_task
    from stonet.training.trained_model import TrainedModel

    started = time.monotonic()
    if part not in PARTS:
        raise unknown_name("part", part, PARTS)
    trained = TrainedModel.load(run)
    task = scored_task(trained, open_for(trained, data, read, as_json))
    calibration, models, calibrations = load_calibration(trained, run), None, None
    if calibration is not None:  # reference forecasts learn from their recent errors too
        models = scoring.reference_forecasts(trained, task)
        calibrations = calibrate_models(models, trained, task, calibration)
    with counting_bar("scoring", as_json) as watch:
        records = scoring.evaluate(trained, task, part, models, watch, calibrations, feedback)
    deviation = scoring.deviation_percent(records, trained.config.model)
    if as_json:
        result = {"records": records, "deviation_percent": deviation}
        print_json(result | provenance(trained.config, started))
        return
    print_table(score_table(records, deviation, part))
    say(f"{time.monotonic() - started:.0f} s; --json gives the scores of every lead.")
