"""Costs of the decoders, relative to the revised one."""

from __future__ import annotations

from pathlib import Path

from helpers.cells import result

from stonet.config import load_config
from stonet.experiments import cost
from stonet.experiments.budgets import EXPERIMENT_BUDGETS


def test_costs_are_relative_to_the_revised_decoder(tmp_path: Path) -> None:
    cells = cost.cells(("wave",), (), 1, EXPERIMENT_BUDGETS["published"])
    forms = [(one.config.paper.decoder, one.config.paper.indices) for one in cells[:4]]
    assert forms == [
        ("revised", "separate"),
        ("revised", "merged"),
        ("fixed", "separate"),
        ("ode", "separate"),
    ]
    assert all(one.config.model == "stonet-paper" for one in cells[:4])
    assert all(one.config.paper.terms == 1 for one in cells[:4])
    assert cells[4].config == load_config(settings=EXPERIMENT_BUDGETS["published"].settings)
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
