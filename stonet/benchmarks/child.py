"""A process of its own for one measurement: `python -m stonet.benchmarks.child ORDER`."""

from __future__ import annotations

import json
import sys
from typing import Any

from stonet import crew
from stonet.benchmarks.hindcast import command, compared, observed
from stonet.benchmarks.inference import queries
from stonet.benchmarks.operator import peak
from stonet.benchmarks.scale import steps, tiled
from stonet.benchmarks.training import by_threads, epoch
from stonet.benchmarks.variants import bf16, compiled, twin

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
    if crew.is_first():
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
