"""stonet demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stonet.cli.options import Json, Settings


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to leave the run.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """The main job on the embedded data: simulate, train, score, forecast, draw."""
    from stonet.cli.demo_run import run_demo

    run_demo(out, seed, settings or [], as_json)
