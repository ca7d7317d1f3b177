"""stonet data list | info | fetch: data sets by name."""

from __future__ import annotations

from typing import Annotated

import typer

from stonet.cli.options import Json

data_app = typer.Typer(help="List, describe and download data sets.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of a data set, as in `stonet data list`.")]


@data_app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List all data sets, and whether their files are on this machine."""
    from stonet.cli.console import print_json, print_table, tidy_table
    from stonet.datasets import cards, find

    rows = []
    for card in cards():
        present, missing = find(card.name)
        total = len(present) + len(missing)
        files = f"{len(present)} of {total}" if card.files else "built in"
        rows.append({"name": card.name, "title": card.title, "shape": card.shape,
                     "step": card.step, "files": files, "ready": not missing})  # fmt: skip
    if as_json:
        print_json({"datasets": rows})
        return
    columns = {"name": "name", "title": "content", "step": "time step", "files": "files here"}
    lines = [
        row if row["ready"] else row | {"files": f"{row['files']} (not ready)"} for row in rows
    ]
    print_table(tidy_table(lines, "stonet data info NAME shows more", columns))


@data_app.command()
def info(name: Name, as_json: Json = False) -> None:
    """Describe a data set: content, source, licence, and where its files are."""
    from dataclasses import asdict

    from rich.table import Table

    from stonet.cli.console import print_json, print_table, say
    from stonet.datasets import DATASETS, find

    present, missing = find(name)  # refuses an unknown name
    card = DATASETS[name].card
    if as_json:
        paths = {"found": [str(path) for path in present], "missing": [f.name for f in missing]}
        print_json(asdict(card) | paths)
        return
    table = Table(title=f"{name}: {card.title}", title_justify="left", show_header=False)
    for label, text in card.rows().items():
        table.add_row(label, text.replace("`", ""))
    print_table(table)
    for note in card.notes:
        say(note.replace("`", ""))
    if missing:
        say(f"{len(missing)} file(s) are missing. Next: stonet data fetch {name}")


@data_app.command()
def fetch(name: Name, as_json: Json = False) -> None:
    """Download and verify the files of a data set, or say where to get them by hand."""
    from stonet.cli.console import bytes_bar, print_json, say
    from stonet.datasets import fetch as download

    with bytes_bar(as_json) as watch:
        paths = download(name, watch)
    if as_json:
        print_json({"name": name, "files": [str(path) for path in paths]})
    where = f" in {paths[0].parent}" if paths else "; it is simulated, nothing is downloaded"
    say(f"{name} is ready: {len(paths)} file(s){where}.", as_json)
