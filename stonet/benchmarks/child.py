"""A process of its own for one measurement: `python -m stonet.benchmarks.child ORDER`."""

from __future__ import annotations

import json
import sys
from typing import Any

from stonet import crew
from stonet.benchmarks.inference import queries
from stonet.benchmarks.operator import peak
from stonet.benchmarks.scale import steps, tiled
from stonet.benchmarks.training import epoch

ORDERS: dict[str, Any] = {
    "peak": peak,
    "epoch": epoch,
    "queries": queries,
    "steps": steps,
    "tiled": tiled,
}


def main() -> None:
    """Do what the order says and print the answer as JSON."""
    order = json.loads(sys.argv[1])
    answer = ORDERS[order.pop("do")](**order)
    if crew.is_first():
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
