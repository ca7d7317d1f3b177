"""stonet report: one self-contained page on a trained model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.options import (
    Feedback,
    Json,
    OptionalData,
    ReadSettings,
    RunArgument,
    open_for,
    provenance,
    read_options,
)


@read_options
def report(
    run: RunArgument,
    data: OptionalData = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Page to write: .html; replaced if it exists.")
    ] = Path("report.html"),
    part: Annotated[
        str, typer.Option(help="Part to score: test, validation, train, or all of the data.")
    ] = "test",
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    feedback: Feedback = True,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Write one offline page: data, training, scores, maps, intervals, stations, influence."""
    from stonet.cli.console import counting_bar, print_json, say
    from stonet.data.windows import PARTS
    from stonet.errors import unknown_name
    from stonet.evaluation.task import ALL
    from stonet.reporting.page import check_page, write_page
    from stonet.reporting.report import origin_of
    from stonet.reporting.results import gather

    started = time.monotonic()
    check_page(out)
    if part not in (*PARTS, ALL):
        raise unknown_name("part", part, (*PARTS, ALL))
    origin = origin_of(run)
    dataset = open_for(origin.trained, data, read, as_json)
    with counting_bar("scoring", as_json) as watch:
        results = gather(origin, dataset, part, feedback, data is None, watch)
    for note in results.notes:
        say(f"note: {note}", as_json)
    with counting_bar("drawing", as_json) as watch:
        size = write_page(results, out, title, watch)
    if as_json:
        facts = {"report": str(out), "bytes": size, "records": results.records}
        print_json(facts | provenance(origin.trained.config, started))
        return
    say(f"Wrote {out}, {size / 1e6:.1f} MB, after {time.monotonic() - started:.0f} s.")
