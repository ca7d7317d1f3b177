"""The command line. Thin: it reads options, calls the library, prints. It imports late: quick."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stonet.errors import StonetError, UsageError

if TYPE_CHECKING:
    from stonet.field import Dataset, Field
    from stonet.geometry import Points
    from stonet.run import Run
    from stonet.task import Task

app = typer.Typer(
    name="stonet",
    help="From scattered sensors to a forecast anywhere, at any time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

DataArgument = Annotated[str, typer.Argument(help="A file (NetCDF) or a data set's name (wave).")]
RunArgument = Annotated[Path, typer.Argument(help="A run folder, as made by `stonet fit`.")]
MaybeData = Annotated[
    str | None, typer.Argument(help="A file or a name; by default what the run was trained on.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="section.key=value, e.g. train.lr=1e-3.")
]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to leave the run.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """The main job on the embedded data: simulate, train, score, forecast, draw."""
    from stonet.demo import run_demo

    run_demo(out, seed, settings or [], as_json)


@app.command()
def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The run folder to make.")],
    preset: Annotated[str, typer.Option(help="default, paper or tiny.")] = "default",
    model: Annotated[
        str | None, typer.Option(help="stonet, linear or persistence; overrides model.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with what differs from the preset.")
    ] = None,
    settings: Settings = None,
    seed: Annotated[
        int | None, typer.Option(help="Of everything random; overrides train.seed.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model and save it as a run folder."""
    from stonet.config import load_config
    from stonet.console import print_json, say, training_bar
    from stonet.estimator import fit_run
    from stonet.task import Task
    from stonet.training import is_first_process

    started = time.monotonic()
    extra = [] if model is None else [f"model={json.dumps(model)}"]
    extra += [] if seed is None else [f"train.seed={seed}"]
    task = Task.of(_open(data), load_config(preset, config, [*(settings or []), *extra]))
    quiet = as_json or not is_first_process()
    say(_plan(task), quiet)
    try:
        with training_bar(quiet) as watch:
            run, state = fit_run(task, out, resume, watch)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. The same command with --resume goes on from here.") from None
    if as_json and is_first_process():
        result = {"run": str(out), "best_validation": state.best, "steps": state.step}
        print_json(result | _provenance(run, started))
    if state.isolated:
        say(f"{state.isolated} empty balls: those points were given their nearest one.", quiet)
    say(f"Saved to {out} after {time.monotonic() - started:.0f} s.", quiet)
    say(f"Next: stonet evaluate {out}", quiet)


@app.command()
def predict(
    run: RunArgument,
    data: MaybeData = None,
    at: Annotated[
        list[str] | None, typer.Option(help="Where: a CSV of sites, or 'lat,lon' (plane: 'x,y').")
    ] = None,
    times: Annotated[
        list[str] | None, typer.Option(help="When: '+1h30min' or a date; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The NetCDF file to write.")] = Path(
        "forecast.nc"
    ),
    as_json: Json = False,
) -> None:
    """Forecast what follows the data's last time, at its points or anywhere else."""
    from stonet.console import print_json, say
    from stonet.inference import forecast
    from stonet.run import Run

    started = time.monotonic()
    if out.suffix != ".nc" or not out.parent.is_dir():
        raise UsageError(
            f"Cannot write '{out}'; expected a name that ends in .nc, in a folder that exists."
        )
    trained = Run.load(run)
    dataset = _open(data or trained.dataset)
    field = dataset.episodes[-1].take(dataset.seen)  # points held out stay held out
    answer = forecast(trained, field, _sites(at, field), times)
    answer.to_netcdf(str(out))
    facts = {"out": str(out), "points": len(answer.points), "times": len(answer.times)}
    if as_json:
        print_json(facts | _provenance(trained, started))
    say(f"Wrote {out}: {facts['times']} times at {facts['points']} points.", as_json)


@app.command()
def evaluate(
    run: RunArgument,
    data: MaybeData = None,
    part: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    as_json: Json = False,
) -> None:
    """Score a run beside its floors, at seen and at unseen points."""
    from stonet.console import counting_bar, print_json, print_table, say, score_table
    from stonet.errors import unknown_name
    from stonet.estimator import scored_task
    from stonet.evaluation import deviation_percent
    from stonet.evaluation import evaluate as score
    from stonet.run import Run
    from stonet.windows import PARTS

    started = time.monotonic()
    if part not in PARTS:
        raise unknown_name("part", part, PARTS)
    trained = Run.load(run)
    task = scored_task(trained, _open(data or trained.dataset))
    with counting_bar("scoring", as_json) as watch:
        records = score(trained, task, part, watch=watch)
    deviation = deviation_percent(records, trained.config.model)
    if as_json:
        result = {"records": records, "deviation_percent": deviation}
        print_json(result | _provenance(trained, started))
        return
    print_table(score_table(records, deviation, part))
    say(f"{time.monotonic() - started:.0f} s; every lead with --json.")


def _open(data: str) -> Dataset:
    """A data set by its name, or a file."""
    from stonet.datasets import DATASETS, open_dataset
    from stonet.errors import unknown_name
    from stonet.field import Dataset
    from stonet.sources import read

    if data in DATASETS:
        return open_dataset(data)
    if not Path(data).exists() and Path(data).suffix == "":
        raise unknown_name("file or data set", data, DATASETS)
    return Dataset((read(data),), name=data)


def _sites(at: list[str] | None, field: Field) -> Points | None:
    """Points from 'a,b' pairs and CSV files, all in one."""
    from stonet.sources.sites import parse_sites

    return parse_sites(at, field.points.kind) if at else None


def _plan(task: Task) -> str:
    clock, graph = task.clock, task.config.graph
    return (
        f"{task.dataset.name}: {len(task.dataset.episodes)} episode(s), {len(task.nodes)} points "
        f"on a {task.nodes.kind}; {clock.past} steps in, {clock.horizon} out, "
        f"step {clock.step / 1e9:g} s. {graph.levels} levels, "
        f"decoder radius {graph.decoder_radius:.4g}."
    )


def _provenance(run: Run, started: float) -> dict[str, Any]:
    """What every JSON answer tells of how it came about."""
    from stonet.run import versions

    seconds = time.monotonic() - started
    return {"config": run.config.model_dump(), "versions": versions(), "seconds": seconds}


class Interrupted(StonetError):
    """The user stopped what can be resumed (exit code 130)."""

    exit_code = 130


def main() -> None:
    """Run a command; a refusal is one clear message and its exit code."""
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # endless spinning starves a busy machine
    as_json = "--json" in sys.argv
    try:
        app(prog_name="stonet")
    except StonetError as error:
        _refuse(str(error), type(error).__name__, error.exit_code, as_json)
    except MemoryError:
        text = "Out of memory. Use fewer points, a smaller train.batch or network.latent."
        _refuse(text, "MemoryError", 4, as_json)
    except OSError as error:
        _refuse(f"{error}. Check the path, the space and your rights.", "OSError", 4, as_json)
    except Exception as error:
        if os.environ.get("STONET_DEBUG"):
            raise
        text = f"{type(error).__name__}: {error}. This is a bug; STONET_DEBUG=1 shows where."
        _refuse(text, "Internal", 5, as_json)


def _refuse(message: str, kind: str, code: int, as_json: bool) -> None:
    if as_json:
        json.dump({"error": {"kind": kind, "message": message, "exit_code": code}}, sys.stdout)
        sys.stdout.write("\n")
    sys.stderr.write(f"stonet: {message}\n")
    sys.exit(code)
