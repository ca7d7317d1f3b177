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
        "stonet": lambda i: 0.9 * noise(i),
        "daily": None,
    }
    results = [
        result(cell("wave", label), {"skipped": "no days"} if f is None else scores(f))
        for label, f in rows.items()
    ]
    results.append(result(cell("wave", "stonet", 1), scores(lambda i: 0.8 * noise(i))))
    lines = comparison.table(results)
    order = ["stonet", "linear", "stgcn", "persistence"]
    assert [line["model"] for line in lines] == order
    ours, linear = lines[0], lines[1]
    assert ours["second"] == "linear" and ours["improvement"] == pytest.approx(15.0)
    assert ours["high"] < 0 and ours["p"] < 0.01 and ours["seeds"] == 2
    untested = comparison.significance(np.arange(10.0), np.arange(10.0) + 1)
    assert untested == {}  # too few windows
    assert ours["mae_std"] == pytest.approx(0.05 * linear["mae"])
    assert lines[3]["skill"] == 0 and "improvement" not in linear


def test_stonet_has_all_seeds_others_one_and_reference_forecasts_none_to_vary() -> None:
    labels = ("stonet", "stgcn", "linear")
    cells = comparison.cells(("wave",), labels, 2, EXPERIMENT_BUDGETS["published"])
    drawn = [(one.label, one.seed) for one in cells]
    assert drawn == [("stonet", 0), ("stonet", 1), ("stgcn", 0), ("linear", 0)]


def test_ranks_are_those_of_models_measured_everywhere() -> None:
    lines = [
        {"dataset": name, "model": model, "mae": mae}
        for name, maes in {"a": (1.0, 2.0, 3.0), "b": (1.0, 5.0, 4.0)}.items()
        for model, mae in zip(("stonet", "stgcn", "linear"), maes, strict=True)
    ]
    found = comparison.ranks([*lines, {"dataset": "a", "model": "daily", "mae": 0.0}])
    assert found is not None and found.ranks == {"stonet": 1.0, "stgcn": 2.5, "linear": 2.5}
    assert comparison.ranks(lines[:3]) is None  # one data set


def test_each_network_has_its_model_and_preset() -> None:
    labels = ("stonet", "stonet-operator", "stonet-paper")
    cells = comparison.cells(("wave",), labels, 1, EXPERIMENT_BUDGETS["published"])
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
