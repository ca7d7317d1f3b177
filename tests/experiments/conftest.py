"""A data file, an empty store, and a measurement that takes no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.small import small_field

from stonet.errors import StonetError
from stonet.experiments import comparison
from stonet.experiments.cell import Cell
from stonet.experiments.store import Store
from stonet.io.write import write


@pytest.fixture
def data_file(tmp_path: Path) -> str:
    path = tmp_path / "a.nc"
    write(small_field(), path)
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The cells measured by a stand-in that takes no time."""
    measured: list[Cell] = []

    def measure(cell: Cell, *others: Any) -> dict[str, Any]:
        measured.append(cell)
        if cell.seed == 13:
            raise StonetError("training diverged")
        return {"mae": 1 / 3, "training": {"epochs": 1, "per_epoch": 4}}

    monkeypatch.setattr(comparison, "measure", measure)
    return measured
