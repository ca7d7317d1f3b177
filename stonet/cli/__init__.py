"""The command line: `stonet fit`, `predict`, `check`, ...; one file per command.

Comes in: options. Goes out: tables and messages for people, or one JSON object. Commands are thin:
they read options, call the library and print; heavy modules are imported inside them, so that help
is quick. Start reading at `options.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from stonet._version import __version__
from stonet.cli.check import check
from stonet.cli.compare import compare
from stonet.cli.data import data_app
from stonet.cli.demo import demo
from stonet.cli.evaluate import evaluate
from stonet.cli.export import export
from stonet.cli.fit import fit
from stonet.cli.hindcast import hindcast
from stonet.cli.influence import influence
from stonet.cli.options import HELP
from stonet.cli.place import place
from stonet.cli.plot import plot
from stonet.cli.predict import predict
from stonet.cli.report import report
from stonet.cli.reproduce import reproduce
from stonet.cli.serve import serve
from stonet.errors import StonetError
from stonet.system.interrupts import stopping_once

INTERRUPTED, TERMINATED = 130, 143  # exit codes after Ctrl-C and SIGTERM
MIN_ADDRESS_SPACE = 1_500_000_000  # bytes, that the libraries map when they are loaded
HELP_WORDS = {"--help", "-h", "--version"}

app = typer.Typer(
    name="stonet",
    help="Forecasts from scattered sensors, anywhere and at any time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings=HELP,
)
COMMANDS = (
    *(demo, check, fit, predict, hindcast, evaluate, compare),
    *(plot, report, serve, influence, place, export, reproduce),
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> bool:
    """Print the version and end, before any command is read."""
    if wanted:
        sys.stdout.write(f"stonet {__version__}\n")
        raise typer.Exit
    return wanted


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of `stonet` itself."""


def main() -> None:
    """Run a command; an error becomes one message and the exit code of its kind."""
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # endless spinning starves a busy machine
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would compete with PyTorch's
    with stopping_once() as signals:
        try:
            _check_address_space()
            app(prog_name="stonet")
        except (KeyboardInterrupt, SystemExit) as stop:
            if isinstance(stop, SystemExit) and stop.code != INTERRUPTED:
                raise
            _fail("Stopped.", "Interrupted", _stopped_code(signals))
        except StonetError as error:
            stopped = error.exit_code == INTERRUPTED
            code = _stopped_code(signals) if stopped else error.exit_code
            _fail(str(error), type(error).__name__, code)
        except Exception as error:
            if os.environ.get("STONET_DEBUG"):
                raise
            if signals:  # some libraries turn an interrupt into an error of their own
                _fail("Stopped.", "Interrupted", _stopped_code(signals))
            _fail(*_explained(error))


def _stopped_code(signals: list[int]) -> int:
    """The exit code after these signals."""
    return TERMINATED if signal.SIGTERM in signals else INTERRUPTED


def _explained(error: Exception) -> tuple[str, str, int]:
    """Message, kind and exit code of an error that is not stonet's own."""
    from stonet.system.resources import lacks_memory

    if lacks_memory(error):
        message = "Out of memory. Use fewer points, or a smaller train.batch or network.latent."
        return message, "MemoryError", 4
    if isinstance(error, OSError):
        return f"{error}. Check the path, the free space and the permissions.", "OSError", 4
    message = f"{type(error).__name__}: {error}. This is a bug; STONET_DEBUG=1 shows where."
    return message, "Internal", 5


def _check_address_space() -> None:
    """Refuse to start where the libraries could not even be loaded: some would abort or hang."""
    from stonet.errors import ResourceError
    from stonet.system.resources import address_space, size_label

    limit = address_space()
    if limit is not None and limit < MIN_ADDRESS_SPACE and not HELP_WORDS & set(sys.argv):
        raise ResourceError(
            f"This process may use {size_label(limit)} of addresses, and stonet needs "
            f"{size_label(MIN_ADDRESS_SPACE)} or more. Raise the limit: ulimit -v unlimited."
        )


def _fail(message: str, kind: str, code: int) -> NoReturn:
    """Print the error on stderr, with --json also as an object on stdout, and exit."""
    if "--json" in sys.argv:
        json.dump({"error": {"kind": kind, "message": message, "exit_code": code}}, sys.stdout)
        sys.stdout.write("\n")
    sys.stderr.write(f"stonet: {message}\n")
    sys.exit(code)
