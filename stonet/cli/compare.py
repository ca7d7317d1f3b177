"""stonet compare: models side by side on the same data and budget."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stonet.cli.options import (
    DataArgument,
    Horizon,
    Json,
    Past,
    Preset,
    ReadSettings,
    Settings,
    length_settings,
    model_names,
    open_data,
    read_options,
)
from stonet.errors import UsageError

if TYPE_CHECKING:
    from stonet.config import Config
    from stonet.data.field import Dataset, Field
    from stonet.evaluation.comparison import Comparison

DEFAULT_MINUTES = 2.0  # of CPU time for each model and seed
UNSEEN_SHARE = 0.2  # of the points held out with --inductive, where the data set has no choice


@read_options
def compare(
    data: DataArgument,
    models: Annotated[
        str, typer.Option(help="Models: stonet,dcrnn,... or a group: all, baselines, references.")
    ] = "all",
    budget: Annotated[
        float | None,
        typer.Option(help="CPU minutes for each model and seed; default: 2."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training windows, instead of minutes.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, counted from train.seed.")] = 1,
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Also score points that training never saw.")
    ] = False,
    past: Past = None,
    horizon: Horizon = None,
    feedback: Annotated[
        bool,
        typer.Option("--feedback", help="Correct all forecasts by recent errors; score intervals."),
    ] = False,
    preset: Preset = "default",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for compare.json and compare.png.")
    ] = None,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Train models on the same data with the same budget, and score them in one table."""
    from stonet.cli.console import counting_bar, say
    from stonet.config import load_config
    from stonet.evaluation import comparison
    from stonet.training.budget import Budget

    started = time.monotonic()
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}; expected at least 1.")
    names = model_names(models)
    no_limit = budget is None and epochs is None
    length = Budget(epochs, DEFAULT_MINUTES if no_limit else budget)
    config = load_config(preset, None, [*(settings or []), *read, *length_settings(past, horizon)])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    dataset = _dataset(data, config, inductive, as_json)
    say(f"{len(names)} models x {seeds} seed(s), {length} each.", as_json)
    with counting_bar("comparing", as_json) as bar:
        result = comparison.compare(
            dataset,
            config.model_copy(update={"data": config.data.model_copy(update={"unseen": None})}),
            names,
            length,
            range(config.train.seed, config.train.seed + seeds),
            bar,
            feedback,
        )
    facts = {"data": data, "config": config.model_dump(), "seconds": time.monotonic() - started}
    _report(result, dataset.episodes[0], facts, out, inductive, as_json)


def _dataset(data: str, config: Config, inductive: bool, quiet: bool) -> Dataset:
    """The data with unseen points for --inductive, otherwise without any."""
    from stonet.data.splits import hold_out

    opened, regions = open_data(data, config.read, inductive, quiet), config.data.unseen_regions
    dataset = hold_out(opened, config.data.unseen, regions)
    if not inductive:
        return dataset.take(dataset.seen) if dataset.unseen else dataset
    return dataset if dataset.unseen else hold_out(dataset, UNSEEN_SHARE, regions)


def _report(
    result: Comparison,
    field: Field,
    facts: dict[str, Any],
    out: Path | None,
    inductive: bool,
    as_json: bool,
) -> None:
    """Print tables or JSON, and write files where a folder is given."""
    from stonet.cli.console import comparison_table, print_json, print_table, say, say_if_worse
    from stonet.evaluation.comparison import summary
    from stonet.plotting.figures import error_by_lead, png
    from stonet.system.atomic import replacing
    from stonet.training.trained_model import versions

    groups = list(dict.fromkeys(str(record["points"]) for record in result.records))
    tables = {group: summary(result, group) for group in groups}
    content = result.to_json() | {"tables": tables, "versions": versions()} | facts
    if out is not None:
        unit = field.units[0] if len(set(field.units)) == 1 else "standard deviations"
        plot = error_by_lead(result.records, title=facts["data"], step=field.step, unit=unit)
        figure = png(plot)
        files = {"compare.json": json.dumps(content, indent=1).encode(), "compare.png": figure}
        for name, file_content in files.items():
            with replacing(out / name) as path:
                path.write_bytes(file_content)
    if as_json:
        print_json(content)
        return
    for group, lines in tables.items():
        units = dict(field.quantity)
        print_table(comparison_table(lines, group, facts["data"], result.budget, units))
        say_if_worse(lines, f"at {group} points")
    for model, reason in result.skipped.items():
        say(f"{model} was skipped: {reason}")
    if inductive:
        for model in dict.fromkeys(cost.model for cost in result.costs if not cost.inductive):
            say(f"{model} has weights for each training point: no scores at unseen points.")
    say(f"{facts['seconds']:.0f} s." + (f" Wrote {out}/." if out else ""))
