"""The folder of results: one file per cell, written atomically, and a lock per cell in work."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stonet.errors import UsageError
from stonet.experiments.cell import Cell, Result
from stonet.system.atomic import acquire_lock, replacing

LOCKS = ".locks"


class Store:
    """Results in `<experiment>/<data>/<label>-s<seed>-<hash of the cell>.json`.

    Args:
        folder: the root; created when the first result is saved.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """The file of a cell's result.

        Args:
            cell: of any experiment.
        """
        data = re.sub(r"[^A-Za-z0-9.-]+", "_", cell.dataset)
        return self.folder / cell.experiment / data / f"{cell.name}.json"

    def load(self, cell: Cell) -> Result | None:
        """The stored result of a cell, which may be stale; None if there is none.

        Args:
            cell: of any experiment.
        """
        path = self.path(cell)
        return read_result(path) if path.is_file() else None

    def save(self, result: Result) -> Path:
        """Write a result; an earlier one is replaced when the new one is complete.

        Args:
            result: of a new computation.
        """
        path = self.path(result.cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(result.to_json(), encoding="utf-8")
        return path

    def all(self, experiment: str, budget: str | None = None) -> list[Result]:
        """All results of an experiment, of any budget if None, in the order of their files.

        Args:
            experiment: its name.
            budget: name of the experiment budget.
        """
        results = [read_result(path) for path in sorted(self.folder.glob(f"{experiment}/*/*.json"))]
        return [result for result in results if budget in (None, result.cell.budget)]

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Lock a cell until the block ends; yields whether this process holds the lock.

        The system releases the lock when its process dies.

        Args:
            cell: that is to be computed.
        """
        lock = self.folder / LOCKS / cell.experiment / f"{cell.name}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = acquire_lock(lock)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            os.close(descriptor)


def read_result(path: Path) -> Result:
    """The result in a file.

    Args:
        path: of a JSON file.

    Raises:
        UsageError: there is no such file.
        DataError: the file holds no result.
    """
    try:
        return Result.from_json(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(f"No result '{path}'. `stonet reproduce` writes results.") from None
