"""Costs of the decoders, relative to the revised one."""

from __future__ import annotations

from pathlib import Path

from helpers.cells import result

from stonet.experiments import cost
from stonet.experiments.budgets import EXPERIMENT_BUDGETS


def test_costs_are_relative_to_the_revised_decoder(tmp_path: Path) -> None:
    cells = cost.cells(("wave",), (), 1, EXPERIMENT_BUDGETS["small"])
    assert [one.config.paper.decoder for one in cells[:4]] == ["revised", "revised", "fixed", "ode"]
    assert all(one.config.model == "stonet-paper" for one in cells[:4])
    results = [
        result(
            one,
            {
                "mae": 1.0,
                "rmse": 1.0,
                "train_mae": 1.0,
                "memory_mb": 10.0 * number + 10,
                "training": dict(steps=1, parameters=1, seconds_per_epoch=3.0 * number + 3),
            },
        )
        for number, one in enumerate(cells)
    ]
    assert [line["times"] for line in cost.table(results)] == [1, 2, 3, 4, 5]
    cost.figure(results, tmp_path / "cost.png")
    assert (tmp_path / "cost.png").stat().st_size > 5_000
