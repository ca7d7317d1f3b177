"""stonet fit."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import (
    DataArgument,
    Json,
    Reading,
    Settings,
    open_data,
    provenance,
    reading,
    tell_notes,
)
from stonet.errors import StonetError, UsageError

if TYPE_CHECKING:
    from stonet.config import Config
    from stonet.training.task import Task


class Interrupted(StonetError):
    """The user stopped what can be resumed (exit code 130)."""

    exit_code = 130


@reading
def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The run folder to make.")],
    preset: Annotated[str, typer.Option(help="default, paper or tiny.")] = "default",
    model: Annotated[
        str | None,
        typer.Option(help="stonet, a baseline (dcrnn, ...) or a reference forecast (linear, ...)."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with what differs from the preset.")
    ] = None,
    settings: Settings = None,
    seed: Annotated[
        int | None, typer.Option(help="Of everything random; overrides train.seed.")
    ] = None,
    unseen: Annotated[
        float | None, typer.Option(help="Share of points held out, to be scored as unseen ones.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Train for about so long, instead of train.epochs.")
    ] = None,
    devices: Annotated[
        int, typer.Option(min=1, help="Processes that share the work on this machine.")
    ] = 1,
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Train a model and save it as a run folder."""
    from stonet.system import distributed
    from stonet.system.launcher import launch, launched, reporting

    if devices > 1 and minutes is not None:
        raise UsageError("--minutes is for one process. Leave --devices out, or set train.epochs.")
    if devices > 1 and not launched():
        if distributed.size() > 1:
            raise UsageError("torchrun has started the processes already: leave --devices out.")
        launch(sys.argv[1:], devices)
        return
    with reporting():
        asked = (preset, config, settings, model, seed, unseen, read)
        _fit(data, out, _asked(*asked), resume, minutes, as_json)


def _asked(
    preset: str,
    config: Path | None,
    settings: list[str] | None,
    model: str | None,
    seed: int | None,
    unseen: float | None,
    read: Reading,
) -> Config:
    """The configuration; options win over settings."""
    from stonet.config import load_config

    extra = list(read or [])
    extra += [] if model is None else [f"model={json.dumps(model)}"]
    extra += [] if seed is None else [f"train.seed={seed}"]
    extra += [] if unseen is None else [f"data.unseen={unseen}"]
    return load_config(preset, config, [*(settings or []), *extra])


def _fit(
    data: str, out: Path, asked: Config, resume: bool, minutes: float | None, as_json: bool
) -> None:
    from stonet.cli.console import print_json, say
    from stonet.evaluation.comparison import check_minutes, in_minutes
    from stonet.quality.report import COMFORTABLE
    from stonet.system import distributed
    from stonet.training.fit import check_empty, fit_run
    from stonet.training.progress_bar import training_bar
    from stonet.training.run_folder import RunFolder
    from stonet.training.task import Task

    started = time.monotonic()
    if minutes is not None:
        check_minutes(minutes)
    if not resume and distributed.is_first():
        check_empty(RunFolder(out))
    quiet = as_json or not distributed.is_first()
    dataset = open_data(data, asked.read, quiet=quiet)
    tell_notes(dataset, quiet)
    task = Task.of(dataset, asked)
    say(_plan(task), quiet)
    if len(task.nodes) > COMFORTABLE and minutes is None:
        say("note: so many points take long; --minutes 10, --points 2000 or a --bbox help.", quiet)
    try:
        with training_bar(quiet) as watch:
            if minutes is not None:
                task = in_minutes(task, minutes)
            run, state = fit_run(task, out, resume, watch)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. The same command with --resume goes on from here.") from None
    if as_json and distributed.is_first():
        result = {"run": str(out), "best_validation": state.best, "steps": state.step}
        print_json(result | provenance(run, started))
    if state.isolated:
        say(f"{state.isolated} empty balls: those points were given their nearest one.", quiet)
    say(f"Saved to {out} after {time.monotonic() - started:.0f} s.", quiet)
    say(f"Next: stonet evaluate {out}", quiet)


def _plan(task: Task) -> str:
    clock, graph = task.time_spec, task.config.graph
    unseen = f" ({len(task.dataset.unseen)} more held out)" if task.dataset.unseen else ""
    return (
        f"{task.dataset.name}: {', '.join(task.dataset.episodes[0].channels)} in "
        f"{len(task.dataset.episodes)} episode(s), {len(task.nodes)} points{unseen} "
        f"on a {task.nodes.kind}; {clock.past} steps in, {clock.horizon} out, "
        f"step {clock.step / 1e9:g} s. {graph.levels} levels, "
        f"decoder radius {graph.decoder_radius:.4g}."
    )
