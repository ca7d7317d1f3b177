"""The main job on the embedded data, from nothing to maps, in a few minutes on two cores."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stonet.cli.console import counting_bar, print_json, print_table, say, score_table
from stonet.config import load_config
from stonet.data.field import Field
from stonet.datasets.wave import wave, whole_wave
from stonet.evaluation.scoring import deviation_percent, evaluate
from stonet.inference.forecast import forecast
from stonet.plotting import figures
from stonet.training.fit import fit_run
from stonet.training.progress_bar import training_bar
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel, versions

SETTINGS = ("train.epochs=6", "train.steps=60")  # what two cores do in a minute and a half
SEQUENCE, ISSUE = 93, 50  # a test episode, and the frame after which it is forecast


def run_demo(out: Path, seed: int, settings: Sequence[str], as_json: bool) -> None:
    """Simulate, train, score at seen and unseen points, forecast the whole square, draw."""
    started = time.monotonic()
    say(
        "[1/4] simulating waves with hidden sources: 100 episodes, 512 sensors, 512 unseen points",
        as_json,
    )
    config = load_config("default", None, [*SETTINGS, f"train.seed={seed}", *settings])
    task = Task.of(wave(), config)
    say("[2/4] fitting base and expert, then training the network on what they leave over", as_json)
    with training_bar(as_json) as watch:
        run, state = fit_run(task, out, False, watch, replace_run=True)
    say(
        "[3/4] scoring on test episodes, beside persistence, climatology and the base",
        as_json,
    )
    with counting_bar("scoring", as_json) as count:
        records = evaluate(run, task, watch=count)
    deviation = deviation_percent(records, run.config.model)
    say("[4/4] forecasting the whole square from its sensors, and drawing", as_json)
    folder = RunFolder(out)
    answer, figures = _draw(run, task, records, state.history)
    seconds = time.monotonic() - started
    scores = {"records": records, "deviation_percent": deviation, "seconds": seconds}
    folder.publish(
        figures
        | {"scores.json": json.dumps(scores, indent=1).encode(), "forecast.nc": _bytes(answer)}
    )
    if as_json:
        print_json(scores | {"config": run.config.model_dump(), "versions": versions()})
        return
    print_table(score_table(records, deviation))
    say(f"{out}/: the model, forecast.nc, scores.json, figures/*.png ({seconds:.0f} s).")
    say(
        f"Next: stonet evaluate {out} --json, or stonet predict {out} --at 0.5,0.5 --times +0.0035s"
    )


def _draw(
    run: TrainedModel, task: Task, records: list[dict[str, Any]], history: list[dict[str, float]]
) -> tuple[Field, dict[str, bytes]]:
    """The forecast at all 4096 grid points, most of them without a sensor, and the figures."""
    whole = whole_wave(SEQUENCE)
    past = task.dataset.episodes[SEQUENCE].between(0, ISSUE).take(task.dataset.seen)
    answer = forecast(run, past, at=whole.points)
    truth = whole.between(ISSUE, ISSUE + run.time_spec.horizon)
    at_sensors = forecast(run, past)
    known = task.dataset.episodes[SEQUENCE].take(task.dataset.seen)
    busiest = int(
        np.abs(np.diff(known.values[ISSUE - 12 : ISSUE + 12, :, 0], axis=0)).sum(0).argmax()
    )
    last = run.time_spec.horizon - 1
    leads = sorted({0, last // 3, 2 * last // 3, last})
    drawn = {
        "snapshots": figures.snapshots(
            truth, answer, leads, nodes=past.points, title="Wave, from 512 sensors"
        ),
        "error_by_lead": figures.error_by_lead(
            records, title="Wave: error by lead time, test episodes"
        ),
        "training": figures.training_curve(history, title="Training"),
        "series": figures.series(
            past.between(ISSUE - 24, ISSUE),
            at_sensors,
            busiest,
            truth=known.between(ISSUE, ISSUE + run.time_spec.horizon),
        ),
    }
    return answer, {f"figures/{name}.png": figures.png(figure) for name, figure in drawn.items()}


def _bytes(field: Field) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forecast.nc"
        field.to_netcdf(str(path))
        return path.read_bytes()
