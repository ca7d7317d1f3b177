"""stonet data list | info | fetch: the data sets by name."""

from __future__ import annotations

from typing import Annotated

import typer

from stonet.cli.options import Json

data_app = typer.Typer(help="The data sets by name.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A data set's name, as `stonet data list` shows them.")]


@data_app.command("list")
def list_them(as_json: Json = False) -> None:
    """All data sets, and whether their files are on this machine."""
    from rich.table import Table

    from stonet.cli.console import print_json, print_table
    from stonet.datasets import cards, find

    rows = []
    for card in cards():
        found, missing = find(card.name)
        here = "built in" if not card.files else f"{len(found)} of {len(found) + len(missing)}"
        ready = not missing
        rows.append({"name": card.name, "title": card.title, "shape": card.shape,
                     "step": card.step, "files": here, "ready": ready})  # fmt: skip
    if as_json:
        print_json({"datasets": rows})
        return
    table = Table(title="stonet data info NAME tells more", title_justify="left")
    for column in ("name", "what", "step", "files here"):
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        mark = "" if row["ready"] else " (not ready)"
        table.add_row(
            str(row["name"]), str(row["title"]), str(row["step"]), f"{row['files']}{mark}"
        )
    print_table(table)


@data_app.command()
def info(name: Name, as_json: Json = False) -> None:
    """What a data set is, where it comes from, and where its files are."""
    from dataclasses import asdict

    from rich.table import Table

    from stonet.cli.console import print_json, print_table, say
    from stonet.datasets import DATASETS, find

    found, missing = find(name)  # refuses an unknown name
    card = DATASETS[name].card
    if as_json:
        paths = {"found": [str(path) for path in found], "missing": [f.name for f in missing]}
        print_json(asdict(card) | paths)
        return
    table = Table(title=f"{name}: {card.title}", title_justify="left", show_header=False)
    for label, text in card.rows().items():
        table.add_row(label, text.replace("`", ""))
    print_table(table)
    for note in card.notes:
        say(note.replace("`", ""))
    if missing:
        say(f"{len(missing)} file(s) are not here. Next: stonet data fetch {name}")


@data_app.command()
def fetch(name: Name, as_json: Json = False) -> None:
    """Bring a data set's files here and verify them, or say exactly what to get where."""
    from stonet.cli.console import bytes_bar, print_json, say
    from stonet.datasets import fetch as bring

    with bytes_bar(as_json) as watch:
        paths = bring(name, watch)
    if as_json:
        print_json({"name": name, "files": [str(path) for path in paths]})
    where = f" in {paths[0].parent}" if paths else ": it is simulated, nothing to fetch"
    say(f"{name} is ready: {len(paths)} file(s){where}.", as_json)
