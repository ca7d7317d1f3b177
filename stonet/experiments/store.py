"""The folder of results: one file for each cell, whole or not there, and who works on which."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stonet.errors import UsageError
from stonet.experiments.cell import Cell, Result
from stonet.system.atomic import acquire_lock, write_atomic

LOCKS = ".locks"


class Store:
    """results/<experiment>/<data>/<label>-s<seed>-<hash of the question>.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Where a cell's result is kept."""
        data = re.sub(r"[^A-Za-z0-9.-]+", "_", cell.dataset)
        return self.folder / cell.experiment / data / f"{cell.name}.json"

    def load(self, cell: Cell) -> Result | None:
        """What is kept of a cell, perhaps from other code or data."""
        path = self.path(cell)
        return read_result(path) if path.is_file() else None

    def save(self, result: Result) -> Path:
        """Keep a result; it is there whole, or as before."""
        path = self.path(result.cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, result.to_json().encode())
        return path

    def all(self, experiment: str, budget: str | None = None) -> list[Result]:
        """Every result of an experiment, in the order of their files."""
        found = [read_result(path) for path in sorted(self.folder.glob(f"{experiment}/*/*.json"))]
        return [result for result in found if budget in (None, result.cell.budget)]

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether this process is the one that works on the cell, until the block ends.

        The system gives a claim back when its process dies, so that none is ever stale.
        """
        lock = self.folder / LOCKS / cell.experiment / f"{cell.name}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            held = acquire_lock(lock)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            os.close(held)


def read_result(path: Path) -> Result:
    """The result in a file."""
    try:
        return Result.from_json(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(f"No result '{path}'. `stonet reproduce` writes them.") from None
