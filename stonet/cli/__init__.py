"""The command line. Thin: commands read options, call the library, print. They import late."""

from __future__ import annotations

import json
import os
import sys

import typer

from stonet.cli.check import check
from stonet.cli.compare import compare
from stonet.cli.data import data_app
from stonet.cli.demo import demo
from stonet.cli.evaluate import evaluate
from stonet.cli.fit import fit
from stonet.cli.hindcast import hindcast
from stonet.cli.predict import predict
from stonet.cli.reproduce import reproduce
from stonet.errors import StonetError

app = typer.Typer(
    name="stonet",
    help="From scattered sensors to a forecast anywhere, at any time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (demo, check, fit, predict, hindcast, evaluate, compare, reproduce):
    app.command()(command)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run a command; a refusal is one clear message and its exit code."""
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # endless spinning starves a busy machine
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second pool of threads would fight
    as_json = "--json" in sys.argv
    try:
        app(prog_name="stonet")
    except StonetError as error:
        _refuse(str(error), type(error).__name__, error.exit_code, as_json)
    except MemoryError:
        text = "Out of memory. Use fewer points, a smaller train.batch or network.latent."
        _refuse(text, "MemoryError", 4, as_json)
    except OSError as error:
        _refuse(f"{error}. Check the path, the space and your rights.", "OSError", 4, as_json)
    except Exception as error:
        if os.environ.get("STONET_DEBUG"):
            raise
        text = f"{type(error).__name__}: {error}. This is a bug; STONET_DEBUG=1 shows where."
        _refuse(text, "Internal", 5, as_json)


def _refuse(message: str, kind: str, code: int, as_json: bool) -> None:
    if as_json:
        json.dump({"error": {"kind": kind, "message": message, "exit_code": code}}, sys.stdout)
        sys.stdout.write("\n")
    sys.stderr.write(f"stonet: {message}\n")
    sys.exit(code)
