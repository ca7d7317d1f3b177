"""stonet fit: train a model and save it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import (
    Bounds,
    DataArgument,
    Horizon,
    Json,
    Past,
    Preset,
    ReadSettings,
    Resume,
    Settings,
    bounds_setting,
    length_settings,
    next_step,
    open_data,
    provenance,
    read_options,
    resumable,
)
from stonet.errors import UsageError

if TYPE_CHECKING:
    from stonet.config import Config
    from stonet.training.task import Task
    from stonet.training.trained_model import TrainedModel


@read_options
def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="Run folder to create.")],
    preset: Preset = "default",
    model: Annotated[
        str | None,
        typer.Option(help="stonet, a baseline (dcrnn, ...) or a reference forecast (linear, ...)."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings that differ from the preset.")
    ] = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; overrides train.seed.")] = None,
    unseen: Annotated[
        float | None, typer.Option(help="Share of the points to hold out and score as unseen.")
    ] = None,
    resume: Resume = False,
    past: Past = None,
    horizon: Horizon = None,
    bounds: Bounds = None,
    minutes: Annotated[
        float | None, typer.Option(help="CPU minutes of training, instead of train.epochs.")
    ] = None,
    final: Annotated[
        bool,
        typer.Option("--final", help="Refit on training and validation part once all is chosen."),
    ] = False,
    devices: Annotated[
        int, typer.Option(min=1, help="Number of processes that share the work on this machine.")
    ] = 1,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Train a model and save it in a run folder."""
    from stonet.config import load_config
    from stonet.system import distributed
    from stonet.system.launcher import launch, launched, reporting

    if devices > 1 and not launched():
        if distributed.size() > 1:
            raise UsageError("torchrun has already started the processes: omit --devices.")
        launch(sys.argv[1:], devices)
        return
    options = {
        "model": None if model is None else json.dumps(model),
        "train.seed": seed,
        "train.minutes": minutes,
        "data.unseen": unseen,
        "train.final": "true" if final else None,
    }
    extra = [f"{key}={value}" for key, value in options.items() if value is not None]
    extra += length_settings(past, horizon) + bounds_setting(bounds)
    with reporting():
        resolved = load_config(preset, config, [*(settings or []), *read, *extra])
        _fit(data, out, resolved, resume, as_json)


def _fit(data: str, out: Path, config: Config, resume: bool, as_json: bool) -> None:
    """Train with a resolved configuration; rank 0 prints."""
    from stonet.calibration.stored import calibrate_run
    from stonet.cli.console import print_json, say
    from stonet.quality.report import MAX_LAPTOP_POINTS
    from stonet.system import distributed
    from stonet.training.fit import check_empty, fit_run
    from stonet.training.progress_bar import training_bar
    from stonet.training.refit import refit_run
    from stonet.training.run_folder import RunFolder
    from stonet.training.task import Task

    started = time.monotonic()
    if not resume and distributed.is_first():
        check_empty(RunFolder(out))
    quiet = as_json or not distributed.is_first()
    task = Task.of(open_data(data, config.read, quiet=quiet), config)
    say(_summary(task), quiet)
    if len(task.nodes) > MAX_LAPTOP_POINTS and config.train.minutes is None:
        say("note: many points train slowly; see --minutes 10, --points 2000, --bbox.", quiet)
    with resumable(), training_bar(quiet) as watch:
        trained, state = fit_run(task, out, resume, watch)
    calibrate_run(trained, task, out)
    for choice in trained.choices:
        say(f"WARNING: validation favours a reference forecast. {choice}.", quiet)
    if not quiet and len(task.nodes) <= MAX_LAPTOP_POINTS:
        _compare_with_persistence(trained, task)
    if trained.config.train.final:
        with resumable(), training_bar(quiet, title="refit") as watch:
            refit_run(trained, task, state, out, watch)
        say("Refit on training and validation part; scores are those of the model before.", quiet)
    if as_json and distributed.is_first():
        result = {"run": str(out), "best_validation": state.best, "steps": state.step}
        result["choices"] = [asdict(choice) for choice in trained.choices]
        print_json(result | provenance(trained.config, started))
    if state.isolated:
        say(f"{state.isolated} points have no neighbour within the radius; linked to the nearest.",
            quiet)  # fmt: skip
    say(f"Saved to {out} after {time.monotonic() - started:.0f} s.", quiet)
    say(next_step("stonet", "evaluate", out), quiet)


def _compare_with_persistence(trained: TrainedModel, task: Task) -> None:
    """Say aloud if the model is no better than persistence in validation."""
    from stonet.cli.console import say_if_worse
    from stonet.evaluation.metrics import find
    from stonet.evaluation.scoring import evaluate
    from stonet.models.baselines.persistence import persistence

    name, channels = trained.config.model, trained.channels
    reference = persistence(trained.config, trained.time_spec, len(channels), trained.nodes)
    models = {name: trained.model, "persistence": reference}
    records = evaluate(trained, task, "validation", models)
    chosen = {"points": "seen", "lead": "all", "metric": "mae"}
    chosen["channel"] = channels[0] if len(channels) == 1 else "all"
    lines = [{"model": m, "mae": find(records, model=m, **chosen)} for m in models]
    say_if_worse(lines, "in validation")


def _summary(task: Task) -> str:
    """One sentence on the data, the windows and the graph."""
    spec, graph, dataset = task.time_spec, task.config.graph, task.dataset
    names = dataset.episodes[0].channels, dataset.episodes[0].units
    unseen = f" ({len(dataset.unseen)} more held out)" if dataset.unseen else ""
    return (
        f"{dataset.name}: {', '.join(dataset.episodes[0].channels)} in "
        f"{len(dataset.episodes)} episode(s), {len(task.nodes)} points{unseen} "
        f"on a {task.nodes.kind}; {spec.past} steps in, {spec.horizon} out, "
        f"step {spec.step / 1e9:g} s; {graph.levels} levels, "
        f"decoder radius {graph.decoder_radius:.4g}. "
        f"Forecasts stay within: {'; '.join(task.scaler.describe(*names))}."
    )
