"""stonet data list | info | fetch."""

from __future__ import annotations

import typer

data_app = typer.Typer(help="The data sets by name.", no_args_is_help=True)
