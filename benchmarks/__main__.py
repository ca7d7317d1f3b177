"""`python -m benchmarks operator|training|...|all [-o FILE] [--json]`, from a clone."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from stonet.cli.options import Json
from stonet.errors import UsageError, unknown_name

WHAT = ("operator", "training", "inference", "scale", "hindcast", "variants")


def bench(
    what: Annotated[str, typer.Argument(help=f"{', '.join(WHAT)} or all.")] = "all",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="A JSON file; what it holds of other parts stays."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure ours against peers, side by side; ratios above 1 mean that ours is better."""
    if what not in (*WHAT, "all"):
        raise unknown_name("benchmark", what, [*WHAT, "all"])
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"No folder '{out.parent}' to write '{out.name}' into. Make it first.")
    from benchmarks import BENCHMARKS
    from benchmarks.report import bench_table
    from stonet.cli.console import counting_bar, print_json, print_table, say
    from stonet.experiments.provenance import commit
    from stonet.system.atomic import replacing
    from stonet.system.resources import describe

    result: dict[str, Any] = {"runs": {}, "records": []}
    if out is not None and out.is_file():  # parts that are not measured now stay as they are
        result = json.loads(out.read_text())
    for name in WHAT if what == "all" else (what,):
        started, machine = time.monotonic(), describe()
        with counting_bar(name, as_json) as bar:
            found = BENCHMARKS[name](bar)
        others = [record for record in result["records"] if record["part"] != name]
        result["records"] = others + [record | {"part": name} for record in found]
        result["runs"][name] = machine | {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "commit": commit(),
            "seconds": round(time.monotonic() - started),
        }
        if out is not None:
            with replacing(out) as path:
                path.write_text(json.dumps(result, indent=1) + "\n")
    if as_json:
        print_json(result)
        return
    print_table(bench_table(result["records"]), least=120)
    say(f"Wrote {out}." if out else "", quiet=out is None)


def main() -> None:
    """Run; a refusal is one clear message and exit code 2."""
    try:
        typer.run(bench)
    except UsageError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
