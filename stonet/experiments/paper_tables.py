"""The numbers of the paper's tables, from `paper_tables.json`.

Tables are numbered as in the STONet paper. Misprints are kept, except two swapped labels in
Table 6. Errors are in the paper's units, see UNITS.
"""

from __future__ import annotations

import json
from importlib.resources import files

_TABLES = json.loads(files("stonet.experiments").joinpath("paper_tables.json").read_text("utf-8"))

OURS = "stonet"
UNITS: dict[str, str] = _TABLES["units"]
# Table 3: (data set, model) -> MAE, its standard deviation, RMSE, its standard deviation
COMPARISON: dict[tuple[str, str], tuple[float, ...]] = {
    (dataset, model.lower()): tuple(row)
    for dataset, models in _TABLES["comparison"].items()
    for model, row in models.items()
}
# Table 4: data set -> MAE at seen points, MAE at unseen points with a past, Deviation (%)
INDUCTIVE: dict[str, tuple[float, ...]] = {k: tuple(v) for k, v in _TABLES["inductive"].items()}
# Table 5: (factor, value) -> MAE on Solar, MAE on Temperature
ABLATION: dict[tuple[str, str], tuple[float, ...]] = {
    (factor, value): tuple(row)
    for factor, values in _TABLES["ablation"].items()
    for value, row in values.items()
}
# Table 6: data set -> minutes of an epoch and MB with the ODE decoder, the same without
COST: dict[str, tuple[float, ...]] = {k: tuple(v) for k, v in _TABLES["cost"].items()}


def best_baseline(dataset: str) -> tuple[str, float]:
    """The model with the lowest MAE beside STONet in Table 3, and that MAE.

    Args:
        dataset: its name in the paper.
    """
    others = {m: row[0] for (d, m), row in COMPARISON.items() if d == dataset and m != OURS}
    return min(others.items(), key=lambda item: item[1])


def improvement(dataset: str) -> float:
    """Percent by which STONet's MAE is below the best baseline's, recomputed from Table 3.

    Args:
        dataset: its name in the paper.
    """
    return 100 * (1 - COMPARISON[dataset, OURS][0] / best_baseline(dataset)[1])
