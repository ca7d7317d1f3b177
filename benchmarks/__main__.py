"""`python -m benchmarks operator|training|inference|scale|hindcast|variants|serve|all`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from stonet.cli.options import HELP, Json
from stonet.errors import StonetError, UsageError, unknown_name

BENCHMARKS = {  # name -> module with a function `run`
    "operator": "benchmarks.operator",
    "training": "benchmarks.training",
    "inference": "benchmarks.inference",
    "scale": "benchmarks.scaling",
    "hindcast": "benchmarks.hindcast",
    "variants": "benchmarks.variants",
    "serve": "benchmarks.serve",
}
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=HELP)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHMARKS)}, all.")] = "all",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="JSON file; records of other benchmarks in it are kept."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure stonet against its peers. A ratio above 1 means that stonet is better."""
    if name not in (*BENCHMARKS, "all"):
        raise unknown_name("benchmark", name, [*BENCHMARKS, "all"])
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"No folder '{out.parent}' to write '{out.name}' into. Create it first.")
    from benchmarks.report import records_table
    from stonet.cli.console import print_json, print_table, say
    from stonet.system.atomic import replacing

    result: dict[str, Any] = {"runs": {}, "records": []}
    if out is not None and out.is_file():
        result = json.loads(out.read_text())
    for part in BENCHMARKS if name == "all" else (name,):
        _measure(part, result, as_json)
        if out is not None:
            with replacing(out) as path:
                path.write_text(json.dumps(result, indent=1) + "\n")
    if as_json:
        print_json(result)
        return
    print_table(records_table(result["records"]), min_width=120)
    say(f"Wrote {out}.", quiet=out is None)


def _measure(part: str, result: dict[str, Any], quiet: bool) -> None:
    """Run one benchmark and replace its records in `result`."""
    from importlib import import_module

    from stonet.cli.console import counting_bar
    from stonet.system.provenance import commit
    from stonet.system.resources import describe

    started, machine = time.monotonic(), describe()
    with counting_bar(part, quiet) as bar:
        records = import_module(BENCHMARKS[part]).run(bar)
    others = [record for record in result["records"] if record["part"] != part]
    result["records"] = others + [record | {"part": part} for record in records]
    result["runs"][part] = machine | {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    """Run the command; an error is one message on stderr and the exit code of its kind."""
    try:
        app(prog_name="python -m benchmarks")
    except StonetError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
