"""stonet fit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.common import (
    DataArgument,
    Json,
    Reading,
    Settings,
    open_data,
    provenance,
    reading,
    tell_notes,
)
from stonet.errors import StonetError

if TYPE_CHECKING:
    from stonet.task import Task


class Interrupted(StonetError):
    """The user stopped what can be resumed (exit code 130)."""

    exit_code = 130


@reading
def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The run folder to make.")],
    preset: Annotated[str, typer.Option(help="default, paper or tiny.")] = "default",
    model: Annotated[
        str | None, typer.Option(help="stonet, a rival (dcrnn, ...) or a floor (linear, ...).")
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
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Train a model and save it as a run folder."""
    from stonet.config import load_config
    from stonet.console import print_json, say, training_bar
    from stonet.doctor import COMFORTABLE
    from stonet.estimator import fit_run
    from stonet.task import Task
    from stonet.training import is_first_process

    started = time.monotonic()
    extra = list(read or [])
    extra += [] if model is None else [f"model={json.dumps(model)}"]
    extra += [] if seed is None else [f"train.seed={seed}"]
    extra += [] if unseen is None else [f"data.unseen={unseen}"]
    asked = load_config(preset, config, [*(settings or []), *extra])
    quiet = as_json or not is_first_process()
    dataset = open_data(data, asked.read, quiet=quiet)
    tell_notes(dataset, quiet)
    task = Task.of(dataset, asked)
    say(_plan(task), quiet)
    if len(task.nodes) > COMFORTABLE:
        say("note: so many points take long; --points 2000 or a --bbox is quicker.", quiet)
    try:
        with training_bar(quiet) as watch:
            run, state = fit_run(task, out, resume, watch)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. The same command with --resume goes on from here.") from None
    if as_json and is_first_process():
        result = {"run": str(out), "best_validation": state.best, "steps": state.step}
        print_json(result | provenance(run, started))
    if state.isolated:
        say(f"{state.isolated} empty balls: those points were given their nearest one.", quiet)
    say(f"Saved to {out} after {time.monotonic() - started:.0f} s.", quiet)
    say(f"Next: stonet evaluate {out}", quiet)


def _plan(task: Task) -> str:
    clock, graph = task.clock, task.config.graph
    unseen = f" ({len(task.dataset.unseen)} more held out)" if task.dataset.unseen else ""
    return (
        f"{task.dataset.name}: {', '.join(task.dataset.episodes[0].channels)} in "
        f"{len(task.dataset.episodes)} episode(s), {len(task.nodes)} points{unseen} "
        f"on a {task.nodes.kind}; {clock.past} steps in, {clock.horizon} out, "
        f"step {clock.step / 1e9:g} s. {graph.levels} levels, "
        f"decoder radius {graph.decoder_radius:.4g}."
    )
