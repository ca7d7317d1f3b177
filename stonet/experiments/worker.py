"""A process that works on cells: `python -m stonet.experiments.worker FOLDER < cells.json`.

It prints one line of JSON for each thing that happens: a cell begins, is done, or failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stonet.experiments.cell import Cell
from stonet.experiments.runner import DatasetCache, News, Outcome, work
from stonet.experiments.store import Store


def main() -> None:
    """Whatever nobody else works on."""
    cells = [Cell.from_json(content) for content in json.load(sys.stdin)]
    work(cells, Store(Path(sys.argv[1])), DatasetCache(), Outcome(tell=_say), wait=False)


def _say(cell: Cell, news: News) -> None:
    print(json.dumps({"cell": cell.name} | news), flush=True)


if __name__ == "__main__":
    main()
