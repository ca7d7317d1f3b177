"""A process of its own for one measurement: `python -m benchmarks.child ORDER`."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.hindcast import command, compared, observed
from benchmarks.inference import queries
from benchmarks.operator import peak
from benchmarks.scaling import steps, tiled
from benchmarks.training import by_threads, epoch
from benchmarks.variants import bf16, compiled, twin
from stonet.system import distributed

ORDERS: dict[str, Any] = {
    "peak": peak,
    "epoch": epoch,
    "threads": by_threads,
    "queries": queries,
    "steps": steps,
    "tiled": tiled,
    "observed": observed,
    "command": command,
    "compared": compared,
    "bf16": bf16,
    "compiled": compiled,
    "twin": twin,
}


def main() -> None:
    """Do what the order says and print the answer as JSON."""
    order = json.loads(sys.argv[1])
    answer = ORDERS[order.pop("do")](**order)
    if distributed.is_first():
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
