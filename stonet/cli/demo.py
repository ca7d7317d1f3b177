"""stonet demo: from nothing to maps on simulated waves, in a few minutes on two cores."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import Json, Settings, next_step, provenance

if TYPE_CHECKING:
    from stonet.data.field import Field
    from stonet.evaluation.metrics import Record
    from stonet.training.task import Task
    from stonet.training.trained_model import TrainedModel

SHORT_TRAINING = ("train.epochs=16", "train.steps=60")  # about two minutes on two cores
EPISODE, ISSUE_FRAME = 93, 50  # the test episode that is drawn, and the frame it is forecast from


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Run folder; replaced if it exists.")] = (
        Path("runs/demo")
    ),
    seed: Annotated[int, typer.Option(help="Random seed of the training.")] = 0,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Simulate waves, train on them, score, forecast and draw: the complete way in one command."""
    from stonet.cli.console import counting_bar, print_json, print_table, say, score_table
    from stonet.config import load_config
    from stonet.datasets.wave import wave
    from stonet.evaluation.scoring import deviation_percent, evaluate
    from stonet.training.fit import fit_run
    from stonet.training.progress_bar import training_bar
    from stonet.training.run_folder import RunFolder
    from stonet.training.task import Task

    started = time.monotonic()
    say("[1/4] simulating waves: 100 episodes, 512 sensors, 512 unseen points", as_json)
    chosen = [*SHORT_TRAINING, f"train.seed={seed}", *(settings or ())]
    config = load_config("default", None, chosen)
    task = Task.of(wave(), config)
    say("[2/4] training: closed forms first, then gradient steps", as_json)
    with training_bar(as_json) as watch:
        trained, state = fit_run(task, out, False, watch, replace_run=True)
    say("[3/4] scoring on the test episodes, beside the reference forecasts", as_json)
    with counting_bar("scoring", as_json) as count:
        records = evaluate(trained, task, on_progress=count)
    deviation = deviation_percent(records, trained.config.model)
    say("[4/4] forecasting at every grid point from the sensors, and drawing", as_json)
    forecast, figures = _draw(trained, task, records, state.history)
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
    say(next_step("stonet", "predict", out, "--at", "0.5,0.5", "--times", "+0.0035s"))


def _draw(
    trained: TrainedModel,
    task: Task,
    records: list[Record],
    history: list[dict[str, float]],
) -> tuple[Field, dict[str, bytes]]:
    """The forecast at all 4096 grid points, most of them without a sensor, and the figures."""
    import numpy as np

    from stonet.datasets.wave import wave_on_grid
    from stonet.inference.forecast import forecast
    from stonet.plotting import figures

    full_grid = wave_on_grid(EPISODE)
    observed = task.dataset.episodes[EPISODE].take(task.dataset.seen)
    past, end = observed.between(0, ISSUE_FRAME), ISSUE_FRAME + trained.time_spec.horizon
    on_grid = forecast(trained, past, at=full_grid.points)
    around = observed.values[ISSUE_FRAME - 12 : ISSUE_FRAME + 12, :, 0]
    most_variable = int(np.abs(np.diff(around, axis=0)).sum(0).argmax())
    last = trained.time_spec.horizon - 1
    leads = sorted({0, last // 3, 2 * last // 3, last})
    drawn = {
        "snapshots": figures.snapshots(
            full_grid.between(ISSUE_FRAME, end),
            on_grid,
            leads,
            nodes=past.points,
            title="Wave, forecast from 512 sensors",
        ),
        "error_by_lead": figures.error_by_lead(
            records,
            title="Wave: error by lead time, test episodes",
            step=trained.time_spec.step,
        ),
        "training": figures.training_curve(history, title="Training"),
        "series": figures.series(
            past.between(ISSUE_FRAME - 24, ISSUE_FRAME),
            forecast(trained, past),
            most_variable,
            truth=observed.between(ISSUE_FRAME, end),
        ),
    }
    return on_grid, {f"figures/{name}.png": figures.png(figure) for name, figure in drawn.items()}


def _bytes(field: Field) -> bytes:
    """The field as the content of a NetCDF file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forecast.nc"
        field.to_netcdf(str(path))
        return path.read_bytes()
