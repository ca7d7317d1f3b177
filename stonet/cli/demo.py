"""stonet demo: from nothing to maps on simulated data, in a few minutes on two cores."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import Json, Settings, next_step, provenance

if TYPE_CHECKING:
    from stonet.data.field import Field

DEFAULT_FOLDERS = {False: Path("runs/demo"), True: Path("runs/earth")}  # with --earth or without


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Run folder; replaced if it exists. Default: runs/demo, with --earth runs/earth.",
        ),
    ] = None,
    earth: Annotated[
        bool, typer.Option("--earth", help="Simulated weather stations instead of waves.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the training.")] = 0,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Simulate data, train on them, score, forecast and draw: the complete way in one command."""
    from stonet.calibration.stored import calibrate_run
    from stonet.cli import demo_earth, demo_wave
    from stonet.cli.console import counting_bar, print_json, print_table, say, score_table
    from stonet.config import load_config
    from stonet.evaluation.scoring import deviation_percent, evaluate
    from stonet.io.read import narrow
    from stonet.training.fit import fit_run
    from stonet.training.progress_bar import training_bar
    from stonet.training.run_folder import RunFolder
    from stonet.training.task import Task

    started, subject = time.monotonic(), demo_earth if earth else demo_wave
    out = out or DEFAULT_FOLDERS[earth]
    say(f"[1/4] simulating {subject.DATA}", as_json)
    chosen = [*subject.SETTINGS, f"train.seed={seed}", *(settings or ())]
    config = load_config("default", None, chosen)
    task = Task.of(narrow(subject.simulate(), config.read), config)
    say("[2/4] training: closed forms first, then gradient steps", as_json)
    with training_bar(as_json) as watch:
        trained, state = fit_run(task, out, False, watch, replace_run=True)
    calibration = calibrate_run(trained, task, out) if subject.INTERVALS else None
    say("[3/4] scoring on the test part, beside the reference forecasts", as_json)
    with counting_bar("scoring", as_json) as count:
        records = evaluate(trained, task, on_progress=count)
    deviation = deviation_percent(records, trained.config.model)
    say(f"[4/4] forecasting at {subject.TARGETS}, and drawing", as_json)
    forecast, figures = subject.draw(trained, task, records, state.history, calibration)
    facts = provenance(trained.config, started)
    seconds = facts["seconds"]
    scores = {"records": records, "deviation_percent": deviation, "seconds": seconds}
    files = {"scores.json": json.dumps(scores, indent=1).encode(), "forecast.nc": _bytes(forecast)}
    RunFolder(out).publish(figures | files)
    if as_json:
        print_json(scores | facts)
        return
    units = dict(zip(trained.channels, trained.units, strict=True))
    print_table(score_table(records, deviation, "test", units, trained.time_spec.step))
    say(f"Wrote {out}/: the model, forecast.nc, scores.json, figures/*.png ({seconds:.0f} s).")
    say(next_step("stonet", "evaluate", out))
    say(next_step("stonet", "predict", out, *subject.QUESTION))


def _bytes(field: Field) -> bytes:
    """The field as the content of a NetCDF file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forecast.nc"
        field.to_netcdf(str(path))
        return path.read_bytes()
