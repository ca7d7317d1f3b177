"""Ablations change one setting at a time; the table compares with the unchanged model."""

from __future__ import annotations

from pathlib import Path

from helpers.cells import result

from stonet.config import load_config
from stonet.experiments import ablation
from stonet.experiments.budgets import EXPERIMENT_BUDGETS


def test_every_variant_changes_one_setting() -> None:
    small = EXPERIMENT_BUDGETS["small"]
    cells = {one.label: one for one in ablation.cells(("wave",), (), 1, small)}
    assert cells["default"].config == load_config(settings=small.settings)
    alone = ("network.base=none", "network.residual_width=0")
    assert cells["operator"].config == load_config(settings=(*small.settings, *alone))
    for label, one in cells.items():
        name = "operator" if label.startswith("operator") else "default"
        config, usual = one.config.model_dump(), cells[name].config.model_dump()
        differ = [
            f"{section}.{key}"
            for section in ("read", "data", "graph", "network", "baseline", "train")
            for key in config[section]
            if config[section][key] != usual[section][key]
        ]
        assert len(differ) == (label != name)
        assert set(differ) <= set(ablation.ABLATED_MODELS[name].factors)
        assert one.training == small.ablation_training[name]
        if differ:
            assert label.removeprefix("operator ").startswith(differ[0].partition(".")[2])
    selected = ablation.cells(("wave",), ("levels",), 1, small)
    assert len(selected) == len(ablation.ABLATED_MODELS["operator"].factors["graph.levels"])


def test_the_table_lists_the_unchanged_model_in_every_factor(tmp_path: Path) -> None:
    cells = ablation.cells(("wave",), ("levels", "kernel"), 1, EXPERIMENT_BUDGETS["small"])
    training = dict(best_validation=0.1, steps=1, seconds_per_epoch=1.0, parameters=1)
    results = [
        result(one, {"mae": 1.0 + number, "rmse": 2.0, "training": training})
        for number, one in enumerate(cells)
    ]
    lines = ablation.table(results)
    unchanged = [line for line in lines if line["default"]]
    assert {(line["model"], line["factor"]) for line in unchanged} == {
        ("operator", "levels"),
        ("operator", "kernel"),
    }
    assert all(line["change"] == 0 for line in unchanged)
    assert sorted(line["change"] for line in lines if not line["default"]) == [100, 200, 300]
    ablation.figure(results, tmp_path / "ablation.png")
    assert (tmp_path / "ablation.png").stat().st_size > 5_000
