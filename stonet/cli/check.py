"""stonet check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.options import DataArgument, Json, Reading, Settings, reading, sources_of
from stonet.errors import UsageError


@reading
def check(
    data: DataArgument,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Draw map and availability: check.png.")
    ] = None,
    read: Reading = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """The data doctor: shape, gaps, duplicates, units, dead sensors, neighbours; what to do."""
    from stonet.cli.console import counting_bar, print_json, print_table, say
    from stonet.config import load_config
    from stonet.plotting.figures import png
    from stonet.quality.figure import quality_figure
    from stonet.quality.report import check, findings_table
    from stonet.system.atomic import replacing
    from stonet.system.progress import reporting_to

    if out is not None and (out.suffix != ".png" or not out.parent.is_dir()):
        raise UsageError(f"Cannot draw '{out}'; expected a name that ends in .png, in a folder.")
    asked = list(read or [])
    config = load_config(settings=[*(settings or []), *asked]).read
    with counting_bar("examining", as_json, transient=True) as bar, reporting_to(bar):
        report = check(sources_of(data, config, quiet=True), config)
    if out is not None and report.field is not None:
        with replacing(out) as path:
            path.write_bytes(png(quality_figure(report, data)))
    if as_json:
        print_json(report.to_json() | {"data": data, "figure": str(out) if out else None})
    else:
        print_table(findings_table(report))
        say(f"Drew {out}." if out and report.field else "Draw it with -o check.png.")
        if report.worst != "error":
            say(f"Next: stonet fit {data} -o runs/first")
    if report.worst == "error":
        raise typer.Exit(2)
