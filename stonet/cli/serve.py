"""stonet serve: a page and a JSON API with live forecasts of a run."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stonet.cli.options import (
    Bounds,
    Json,
    OptionalData,
    ReadSettings,
    RunArgument,
    declared,
    load_run,
    open_for,
    read_options,
)

if TYPE_CHECKING:
    from stonet.data.field import Field
    from stonet.training.trained_model import TrainedModel


@read_options
def serve(
    run: RunArgument,
    data: OptionalData = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than this machine need a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that requests must carry.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Take new rows of DATA.")] = False,
    bounds: Bounds = None,
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Serve a page with a live map, and forecasts as JSON, on this machine."""
    from stonet.cli.console import print_json, say
    from stonet.errors import UsageError

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UsageError("stonet serve needs FastAPI and uvicorn: pip install 'stonet[serve]'")
    from stonet.serving.address import is_loopback, listen, read_token, url_of
    from stonet.serving.app import create_app
    from stonet.serving.follow import Follower, check_followable
    from stonet.serving.guard import LOOPBACK, Policy
    from stonet.serving.server import run as run_server
    from stonet.serving.service import Run, Service

    local = is_loopback(host)
    if not local and token_file is None:
        raise UsageError(
            f"--host {host} lets other machines in: give --token-file FILE with a secret line that "
            "their requests must carry."
        )
    token = None if token_file is None else read_token(token_file)
    trained = load_run(run).with_bounds(declared(bounds))
    source = data or trained.dataset
    if follow:
        check_followable(source)
    with listen(host, port) as opened:
        service = Service(Run.load(run, trained), observations(trained, data, read, as_json))
        url = url_of(opened)

        def announce() -> AbstractContextManager[object]:
            if as_json:
                print_json({"url": url, "run": str(run), "data": source})
                sys.stdout.flush()
            say(f"Forecasts at {url} (Ctrl-C ends it).", as_json)
            return Follower(
                service, source, lambda: observations(trained, data, read, True), follow
            )

        policy = Policy(LOOPBACK if local else None, token)
        run_server(create_app(service, policy, None, [announce]), opened, service.limits.seconds)


def observations(trained: TrainedModel, data: str | None, read: ReadSettings, quiet: bool) -> Field:
    """The last episode of the data; points held out stay held out.

    Args:
        trained: the model.
        data: as given; None: those of the training.
        read: settings of the section `read`.
        quiet: whether no progress is shown.
    """
    dataset = open_for(trained, data, read, quiet)
    return dataset.episodes[-1].take(dataset.seen)
