"""The irregular experiment: scores agree with `evaluate`, changes with the complete data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.irregular_cells import BUDGET, LOSSES, cell_of, rising
from helpers.small import small_dataset

from stonet.errors import StonetError
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import evaluate
from stonet.experiments import irregular
from stonet.experiments.budgets import experiment_budget
from stonet.experiments.cell import Result
from stonet.experiments.corruption import no_corruption
from stonet.training.budget import train


def test_errors_agree_with_evaluate() -> None:
    dataset, cell = small_dataset(), cell_of("persistence")
    found = irregular.measure(cell, dataset, cell.config, BUDGET)
    training = train(dataset, cell.config, BUDGET)
    records = evaluate(
        training.trained, training.task, models={"persistence": training.trained.model}
    )
    for metric in ("mae", "rmse", "bias"):
        wanted = find(records, points="seen", lead="all", metric=metric)
        assert found["complete"][metric] == pytest.approx(wanted, rel=1e-6)
    for name in LOSSES:
        assert [line["share"] for line in found[name]] == list(irregular.SHARES)
    thin = [line["mae"] for line in found["thinned"]]  # it uses the newest frame only
    gaps = small_dataset().episodes[0].observed.all()
    assert gaps or thin[0] == pytest.approx(found["complete"]["mae"], rel=0.1)
    assert found["outage"][-1]["mae"] > found["outage"][0]["mae"] > found["complete"]["mae"]
    assert irregular.errors(training, no_corruption) == found["complete"]


def test_errors_of_persistence_between_the_steps_are_slope_times_lead() -> None:
    """|e| = slope · lead, averaged over the times between the steps or at the steps."""
    dataset = rising(1)
    cell = cell_of("persistence", "between")
    found = irregular.measure(cell, dataset, cell.config, BUDGET)
    values = dataset.episodes[0].values
    slope = float(values[1].mean() - values[0].mean())
    leads = np.arange(1, 4 * cell.config.data.horizon + 1)
    off, on = leads[leads % 4 > 0], leads[leads % 4 == 0]
    assert found["between"]["model"]["mae"] == pytest.approx(slope * off.mean(), rel=1e-4)
    assert found["between"]["model"]["bias"] == pytest.approx(-slope * off.mean(), rel=1e-4)
    assert found["between"]["ideal linear"]["mae"] < 1e-5
    for level in ("regular", "true times", "assumed regular"):  # the newest input is regular
        assert found["irregular inputs"][level]["mae"] == pytest.approx(slope * on.mean(), rel=1e-4)


def test_all_data_have_cells_with_fewer_labels_and_half_of_them_with_every_seed() -> None:
    budget = experiment_budget("published")
    cells = irregular.cells(["wave", "solar-pv"], (), 2, budget)
    kept = {(c.dataset, c.config.data.labels, c.seed) for c in cells if c.model == "stonet"}
    assert {(d, n, s) for d in ("wave", "solar-pv") for n in (6, None) for s in (0, 1)} <= kept
    for dataset in ("wave", "solar-pv"):
        assert {n for d, n, _ in kept if d == dataset} == {2, 4, 6, 8, 10, None}
    between = [c for c in cells if c.options["scenario"] == "between"]
    assert {(c.dataset, c.model) for c in between} == {
        ("wave", model) for model in ("stonet", "linear", "stgcn")
    }
    assert len({c.name for c in cells}) == len(cells)
    assert len({(c.dataset, c.label, c.seed) for c in cells}) == len(cells)
    assert [c.seed for c in cells if c.model == "linear" and c.dataset == "solar-pv"] == [0]
    with pytest.raises(StonetError, match="lineer"):
        irregular.cells(["wave"], ("lineer",), 1, budget)


def result_of(label: str, seed: int, extra: dict[str, Any], **scores: Any) -> Result:
    cell = experiment_budget("smoke").cell("irregular", "small", label, seed, extra=extra)
    empty: dict[str, Any] = dict(
        settings={}, data_hash="", commit="c", date="", machine={}, versions={}
    )
    return Result(cell, scores=scores, seconds=0.0, cpu_seconds=0.0, peak_mb=0.0, **empty)


def mae(value: float) -> dict[str, float]:
    return {"mae": value, "rmse": 2 * value, "bias": 0.0}


def results() -> list[Result]:
    missing = {"scenario": "missing", "labels": None}
    half = {"scenario": "labels", "labels": 6}
    lost = {name: [{"share": 0.25} | mae(1.5)] for name in LOSSES}
    irregular_inputs = {"regular": mae(2.0), "true times": mae(2.2), "assumed regular": mae(4.0)}
    between = {"model": mae(1.0), "linear": mae(1.3)}
    fine = {"between": between, "irregular inputs": irregular_inputs}
    return [
        result_of("stonet", 0, missing, horizon=12, complete=mae(1.0), **lost),
        result_of("stonet", 1, missing, horizon=12, complete=mae(1.2), **lost),
        result_of("stonet 6 labels", 0, half, horizon=12, complete=mae(1.1)),
        result_of("stonet between", 0, {"scenario": "between"}, **fine),
    ]


def test_changes_are_relative_to_the_same_model_and_seed() -> None:
    lines = {(line["scenario"], line["level"]): line for line in irregular.table(results())}
    half = lines["labels", 6]
    assert half["change"] == pytest.approx(10) and half["seeds"] == 1  # of seed 0's own error
    assert lines["labels", 12]["change"] == 0 and lines["labels", 12]["mae"] == pytest.approx(1.1)
    quarter = lines["outage", 0.25]
    assert quarter["change"] == pytest.approx((50 + 25) / 2) and quarter["mae_std"] == 0
    assert lines["outage", 0.0]["change"] == 0
    assert lines["between", "linear"]["change"] == pytest.approx(30)
    assert lines["irregular inputs", "true times"]["change"] == pytest.approx(10)
    assert {line["model"] for line in lines.values()} == {"stonet"}


def test_the_figure_shows_incomplete_results(tmp_path: Path) -> None:
    irregular.figure(results(), tmp_path / "all.png")
    irregular.figure(results()[2:3], tmp_path / "alone.png")  # nothing to compare with
    irregular.figure([], tmp_path / "none.png")
    assert [path.name for path in tmp_path.iterdir()] == ["all.png"]
