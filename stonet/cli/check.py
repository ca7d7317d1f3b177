"""stonet check: quality control of station data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.options import (
    DataArgument,
    Json,
    ReadSettings,
    Settings,
    next_step,
    open_data,
    read_options,
)
from stonet.errors import UsageError


@read_options
def check(
    data: DataArgument,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="PNG file with a map and the availability over time."),
    ] = None,
    read: ReadSettings = (),
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Check data before training: gaps, duplicates, units, stuck sensors, outliers, positions."""
    from stonet.cli.console import counting_bar, print_json, print_table, say
    from stonet.config import load_config
    from stonet.datasets import DATASETS
    from stonet.plotting.figures import png
    from stonet.quality.figure import quality_figure
    from stonet.quality.report import check, findings_table
    from stonet.system.atomic import replacing
    from stonet.system.progress import reporting_to

    if out is not None and (out.suffix != ".png" or not out.parent.is_dir()):
        raise UsageError(f"Cannot draw '{out}'; expected a .png file in an existing folder.")
    config = load_config(settings=[*(settings or []), *read]).read
    with counting_bar("checking", as_json, transient=True) as bar, reporting_to(bar):
        named = data in DATASETS
        source = open_data(data, config, quiet=True).episodes[0] if named else data
        report = check(source, config)
    if out is not None and report.field is not None:
        with replacing(out) as path:
            path.write_bytes(png(quality_figure(report, data)))
    if as_json:
        print_json(report.to_json() | {"data": data, "figure": str(out) if out else None})
    else:
        print_table(findings_table(report))
        say(f"Wrote {out}." if out and report.field else "-o check.png draws a figure.")
        if report.worst != "error":
            say(next_step("stonet", "fit", data, "-o", "runs/first"))
    if report.worst == "error":
        raise typer.Exit(2)
