"""Ablations change one setting at a time; the table compares with the unchanged model."""

from __future__ import annotations

from pathlib import Path

from helpers.cells import result

from stonet.config import load_config
from stonet.experiments import ablation
from stonet.experiments.budgets import EXPERIMENT_BUDGETS


def test_every_variant_changes_one_setting() -> None:
    small = EXPERIMENT_BUDGETS["published"]
    cells = {one.label: one for one in ablation.cells(("wave",), (), 1, small)}
    assert cells["default"].config == load_config(settings=small.settings)
    for label, one in cells.items():
        name = label.split()[0] if label.split()[0] in ablation.ABLATED_MODELS else "default"
        model = ablation.ABLATED_MODELS[name]
        config, usual = one.config.model_dump(), cells[name].config.model_dump()
        assert config["model"] == model.model
        differ = [
            f"{section}.{key}"
            for section, values in config.items()
            if section != "model"
            for key in values
            if values[key] != usual[section][key]
        ]
        assert len(differ) == (label not in (name, "anchor=blend"))
        assert {*differ} <= {*model.factors}
        assert one.training == small.training
        if differ:
            assert differ[0].partition(".")[2] in label.removeprefix(f"{name} ").split("=")[0]
    for name, model in ablation.ABLATED_MODELS.items():
        for setting, values in model.factors.items():
            own = model.own_value(setting, model.preset)
            assert own in values and len(set(values)) == len(values)
            others = [ablation.label(name, setting, value) for value in values if value != own]
            assert {*others} <= {*cells}
    selected = ablation.cells(("wave",), ("alpha",), 1, small)
    assert {one.label.split()[0] for one in selected} == {"paper", "operator"}


def test_a_setting_of_a_race_is_not_the_models_own_choice() -> None:
    small = EXPERIMENT_BUDGETS["published"]
    cells = {one.label: one for one in ablation.cells(("wave",), ("anchor",), 1, small)}
    assert {*cells} == {"default", "anchor=last", "anchor=blend", "anchor=linear"}
    chosen = [one.config.network.model_fields_set for one in cells.values()]
    assert chosen == [set(), {"anchor"}, {"anchor"}, {"anchor"}]  # which the race leaves alone


def test_the_table_lists_the_unchanged_model_in_every_factor(tmp_path: Path) -> None:
    cells = ablation.cells(("wave",), ("alpha", "basis"), 1, EXPERIMENT_BUDGETS["published"])
    training = dict(best_validation=0.1, steps=1, seconds_per_epoch=1.0, parameters=1)
    results = [
        result(one, {"mae": 1.0 + number, "rmse": 2.0, "training": training})
        for number, one in enumerate(cells)
        if one.label.startswith("operator")
    ]
    lines = ablation.table(results)
    unchanged = [line for line in lines if line["default"]]
    assert {(line["model"], line["factor"]) for line in unchanged} == {
        ("operator", "alpha"),
        ("operator", "basis"),
    }
    assert all(line["change"] == 0 for line in unchanged)
    assert sum(not line["default"] for line in lines) == len(results) - 1
    assert all(line["change"] > 0 for line in lines if not line["default"])
    ablation.figure(results, tmp_path / "ablation.png")
    assert (tmp_path / "ablation.png").stat().st_size > 5_000
