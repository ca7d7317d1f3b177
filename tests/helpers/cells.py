"""Cells of experiments, asked for and stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stonet.experiments import comparison
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.experiments.cell import Cell, Result

SMOKE = EXPERIMENT_BUDGETS["smoke"]


def cell(data: str, label: str = "stgcn", seed: int = 0, **changes: Any) -> Cell:
    return SMOKE.cell("comparison", data, label, seed, **comparison.variant(label) | changes)


def result(asked: Cell, scores: dict[str, Any], **parts: Any) -> Result:
    """A result as if it had been computed."""
    known: dict[str, Any] = dict(key="", config_hash="", data_hash="", commit="abc")
    known |= dict(seconds=1.0, cpu_seconds=1.0, peak_mb=1.0, machine={"cores": 2}, date="")
    return Result(cell=asked, scores=scores, versions={"torch": "2"}, **known | parts)


def scores(windows: Callable[[np.ndarray], np.ndarray], best: float = 0.1) -> dict[str, Any]:
    """Scores of a model whose error in window i is windows(i)."""
    error = windows(np.arange(80.0))
    mae = float(error.mean())
    training = dict(parameters=1, steps=2, seconds=3.0, best_validation=best)
    known = {"mae": mae, "rmse": 2 * mae, "mape": None, "bias": 0.0}
    return known | {"by_window": error.tolist(), "training": training}
