"""Cells of experiments and made-up results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stonet.experiments import comparison
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.experiments.cell import Cell, Result

SMOKE = EXPERIMENT_BUDGETS["smoke"]


def cell(data: str, label: str = "stgcn", seed: int = 0, **changes: Any) -> Cell:
    """A cell of the comparison with the smoke budget."""
    return SMOKE.cell("comparison", data, label, seed, **comparison.variant(label) | changes)


def result(cell: Cell, scores: dict[str, Any], **parts: Any) -> Result:
    """A result of a cell with these scores."""
    origin: dict[str, Any] = dict(settings={}, data_hash="", commit="abc")
    origin |= dict(seconds=1.0, cpu_seconds=1.0, peak_mb=1.0, machine={"cores": 2}, date="")
    origin["versions"] = {"torch": "2"}
    return Result(cell=cell, scores=scores, **origin | parts)


def scores(windows: Callable[[np.ndarray], np.ndarray], best: float = 0.1) -> dict[str, Any]:
    """Scores of a model whose error in window i is windows(i)."""
    error = windows(np.arange(80.0))
    mae = float(error.mean())
    training = dict(parameters=1, steps=2, cpu_seconds=3.0, best_validation=best)
    metrics = {"mae": mae, "rmse": 2 * mae, "mape": None, "bias": 0.0}
    return metrics | {"by_window": error.tolist(), "training": training}
