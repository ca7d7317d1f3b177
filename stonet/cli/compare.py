"""stonet compare."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stonet.cli.options import DataArgument, Json, Reading, Settings, open_data, reading, tell_notes
from stonet.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from stonet.config import Config
    from stonet.data.field import Dataset
    from stonet.evaluation.comparison import Comparison

MINUTES = 2.0  # for each model and seed, unless asked otherwise
UNSEEN = 0.2  # share of points held out for --inductive where the data set has none


@reading
def compare(
    data: DataArgument,
    models: Annotated[
        str, typer.Option(help="stonet,dcrnn,...; 'all' and 'references' stand for several.")
    ] = "all",
    budget: Annotated[
        float | None, typer.Option(help="Minutes of training for each model and seed.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Instead: passes over the training windows.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from train.seed on.")] = 1,
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Also score points never trained on.")
    ] = False,
    preset: Annotated[str, typer.Option(help="default, paper or tiny.")] = "default",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A folder for compare.json and compare.png.")
    ] = None,
    read: Reading = None,
    as_json: Json = False,
) -> None:
    """Train models side by side on the same data and budget; one table."""
    from stonet.cli.console import counting_bar, say
    from stonet.config import load_config
    from stonet.evaluation.comparison import compare as run
    from stonet.training.budget import Budget

    started = time.monotonic()
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}; expected at least 1.")
    names = _names(models)
    length = Budget(epochs, MINUTES if budget is None and epochs is None else budget)
    extra = list(read or [])
    config = load_config(preset, None, [*(settings or []), *extra])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    dataset = _dataset(data, config, inductive, as_json)
    say(f"{len(names)} models x {seeds} seed(s), {length} each.", as_json)
    first = config.train.seed
    with counting_bar("comparing", as_json) as bar:
        found = run(
            dataset,
            config.model_copy(update={"data": config.data.model_copy(update={"unseen": None})}),
            names,
            length,
            range(first, first + seeds),
            bar,
        )
    facts = {"data": data, "config": config.model_dump(), "seconds": time.monotonic() - started}
    _report(found, facts, out, inductive, as_json)


def _names(models: str) -> list[str]:
    """The models asked for, each once."""
    from stonet.models.registry import MODELS, REFERENCE_FORECASTS

    groups = {"all": tuple(MODELS), "references": REFERENCE_FORECASTS}
    names = [n for part in models.split(",") for n in groups.get(part.strip(), (part.strip(),))]
    for name in names:
        if name not in MODELS:
            raise unknown_name("model", name, [*MODELS, *groups])
    return list(dict.fromkeys(names))


def _dataset(data: str, config: Config, inductive: bool, quiet: bool) -> Dataset:
    """The data with unseen points if wished, and else without any."""
    from stonet.data.splits import hold_out

    opened = open_data(data, config.read, inductive, quiet)
    dataset = hold_out(opened, config.data.unseen)
    tell_notes(dataset, quiet)
    if not inductive:
        return dataset.take(dataset.seen) if dataset.unseen else dataset
    return dataset if dataset.unseen else hold_out(dataset, UNSEEN)


def _report(
    found: Comparison, facts: dict[str, Any], out: Path | None, inductive: bool, as_json: bool
) -> None:
    """Tables, or JSON; and files where a folder is given."""
    from stonet.cli.console import comparison_table, print_json, print_table, say
    from stonet.evaluation.comparison import summary
    from stonet.plotting.figures import error_by_lead, png
    from stonet.system.atomic import replacing
    from stonet.training.trained_model import versions

    groups = list(dict.fromkeys(str(record["points"]) for record in found.records))
    tables = {group: summary(found, group) for group in groups}
    result = found.to_json() | {"tables": tables, "versions": versions()} | facts
    if out is not None:
        figure = png(error_by_lead(found.records, title=facts["data"]))
        files = {"compare.json": json.dumps(result, indent=1).encode(), "compare.png": figure}
        for name, content in files.items():
            with replacing(out / name) as path:
                path.write_bytes(content)
    if as_json:
        print_json(result)
        return
    for group, lines in tables.items():
        print_table(comparison_table(lines, group, facts["data"], found.budget), least=120)
    for model, reason in found.skipped.items():
        say(f"{model} was left out: {reason}")
    if inductive:
        bound = dict.fromkeys(cost.model for cost in found.costs if not cost.inductive)
        for model in bound:
            say(f"{model} has weights of its own for each point, so it knows no unseen ones.")
    say(f"{facts['seconds']:.0f} s." + (f" Wrote {out}/." if out else ""))
