"""stonet export: a trained STONet as an ONNX file, to be run without PyTorch or stonet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.options import (
    At,
    GridStep,
    Json,
    OptionalData,
    ReadSettings,
    RunArgument,
    Snap,
    check_positions,
    load_run,
    open_for,
    provenance,
    query_points,
    read_options,
)


@read_options
def export(
    run: RunArgument,
    data: OptionalData = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="ONNX file to write; an .npz goes beside it.")
    ] = Path("model.onnx"),
    at: At = None,
    grid: GridStep = None,
    snap: Snap = True,
    network_only: Annotated[
        bool,
        typer.Option(
            "--network-only", help="Leave out reference forecasts that take part in the forecast."
        ),
    ] = False,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Write the network as ONNX, and beside it the graph and the newest past of these stations."""
    from stonet.cli.console import print_json, say
    from stonet.errors import UsageError
    from stonet.export.write import describe, export, exportable
    from stonet.system.resources import size_label

    started = time.monotonic()
    if out.suffix != ".onnx":
        raise UsageError(f"'{out}' is to be an ONNX file: give a name that ends in .onnx.")
    if not out.parent.is_dir():
        raise UsageError(f"No folder '{out.parent}' to write '{out.name}' into. Make it first.")
    trained = load_run(run)
    exportable(trained.model, network_only)
    check_positions(at, trained)
    dataset = open_for(trained, data, read, as_json)
    field = dataset.episodes[-1].take(dataset.seen)
    trained.check_compatible(field)
    places = query_points(at, grid, trained, field.points, snap, as_json)
    files = export(trained, out, field, places, network_only)
    sizes = {str(file): file.stat().st_size for file in files}
    if as_json:
        facts = {"files": sizes, "model": describe(trained)}
        print_json(facts | provenance(trained.config, started))
        return
    for choice in trained.choices:
        say(f"Left out: {choice}.")
    say(", ".join(f"{name} ({size_label(size)})" for name, size in sizes.items()) + " written.")
    say("It forecasts with onnxruntime and numpy alone: docs/howto/export.md has the program.")
