"""The comparison: cells, ranking, significance, figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.cells import cell, result, scores
from helpers.small import small_dataset

from stonet.experiments import comparison
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.experiments.figures import draw_models


def test_the_table_ranks_models_and_tests_the_difference() -> None:
    def noise(i: np.ndarray) -> np.ndarray:
        return 1 + np.sin(i**2)

    rows = {
        "persistence": lambda i: noise(i) + 4,
        "linear": noise,
        "stgcn": lambda i: noise(i) + 1,
        "stgcn+base": lambda i: noise(i) - 0.5,  # neither a baseline nor a reference forecast
        "stonet": lambda i: 0.9 * noise(i),
        "daily": None,
    }
    results = [
        result(cell("wave", label), {"skipped": "no days"} if f is None else scores(f))
        for label, f in rows.items()
    ]
    results.append(result(cell("wave", "stonet", 1), scores(lambda i: 0.8 * noise(i))))
    lines = comparison.table(results)
    order = ["stgcn+base", "stonet", "linear", "stgcn", "persistence"]
    assert [line["model"] for line in lines] == order
    ours, linear = lines[1], lines[2]
    assert ours["second"] == "linear" and ours["improvement"] == pytest.approx(15.0)
    assert ours["high"] < 0 and ours["p"] < 0.01 and ours["seeds"] == 2
    assert ours["second_on_base"] == "stgcn+base" and ours["improvement_on_base"] < 0
    untested = comparison.significance(np.arange(10.0), np.arange(10.0) + 1)
    assert untested == {}  # too few windows
    assert ours["mae_std"] == pytest.approx(0.05 * linear["mae"])
    assert lines[4]["skill"] == 0 and "improvement" not in linear


def test_reference_forecasts_and_baselines_on_the_base_have_one_seed() -> None:
    labels = ("stgcn", "stgcn+base", "linear")
    cells = comparison.cells(("wave",), labels, 2, EXPERIMENT_BUDGETS["small"])
    assert [(one.label, one.seed) for one in cells] == [
        ("stgcn", 0),
        ("stgcn", 1),
        ("stgcn+base", 0),
        ("linear", 0),
    ]


def test_each_network_has_its_model_and_preset() -> None:
    labels = ("stonet", "stonet-operator", "stonet-paper")
    cells = comparison.cells(("wave",), labels, 1, EXPERIMENT_BUDGETS["small"])
    assert [one.config.model for one in cells] == [one.label for one in cells] == list(labels)
    assert [one.config.graph.within_degree for one in cells] == [12.0, 12.0, 20.0]  # the paper's


def test_seconds_that_were_not_recorded_are_left_out() -> None:
    stored = scores(lambda i: 1.0 + i)
    stored["training"]["cpu_seconds"] = None
    (line,) = comparison.table([result(cell("wave", "stonet"), stored)])
    assert line["cpu_seconds"] is None and line["steps"] == 2


def test_a_registered_model_is_drawn_with_the_others(tmp_path: Path) -> None:
    results = [
        result(cell("wave", label), scores(lambda i: 1.0 + i % 3)) for label in ("stonet", "mine")
    ]
    lines = comparison.table(results)
    draw_models(lines, comparison.KINDS, tmp_path / "models.png")
    assert (tmp_path / "models.png").stat().st_size > 5_000


def test_measured_cells_give_all_four_figures(tmp_path: Path) -> None:
    dataset = small_dataset()
    results = []
    for label in ("stonet", "stgcn", "persistence"):
        one = cell("small", label, settings=("train.steps=2",))
        measured = comparison.measure(one, dataset, one.config, one.training)
        results.append(result(one, measured))
    comparison.figure(results, tmp_path / "c.png")
    for suffix in ("", "-leads", "-hours", "-maps"):
        assert (tmp_path / f"c{suffix}.png").stat().st_size > 5_000
    assert comparison.table(results)[0]["dataset"] == "small"
