"""The inductive experiment agrees with `evaluate` and with interpolation computed directly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.small import small_dataset

from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.evaluation.interpolation import interpolate
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import deviation_percent, evaluate
from stonet.experiments import inductive
from stonet.experiments.budgets import experiment_budget
from stonet.experiments.cell import Cell, Result
from stonet.experiments.inductive import fit_interpolation, forecasts_at
from stonet.training.budget import Budget, train
from stonet.training.task import Task

BUDGET = Budget(epochs=1, steps=2)
KINDS = {"seen": "seen", "unseen": "unseen", "no_history": "unseen-no-history"}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return small_dataset(unseen=6)


def cell_of(model: str, ratios: bool = False) -> Cell:
    extra = {"share": 0.3, "ratios": ratios}
    return experiment_budget("smoke").cell("inductive", "small", model, model=model, extra=extra)


@pytest.fixture(scope="module")
def scores(dataset: Dataset) -> dict[str, dict[str, Any]]:
    found = {}
    for model in ("stonet", "stgcn", "persistence"):
        cell = cell_of(model, ratios=model == "persistence")
        found[model] = inductive.measure(cell, dataset, cell.config, BUDGET)
    return found


@pytest.mark.parametrize("model", ["stonet", "persistence"])
def test_errors_by_kind_of_points_agree_with_evaluate(scores, dataset, model: str) -> None:
    training = train(dataset, cell_of(model).config, BUDGET)
    records = evaluate(training.trained, training.task, models={model: training.trained.model})
    for group, points in KINDS.items():
        for metric in ("mae", "rmse", "bias"):
            wanted = find(records, points=points, lead="all", metric=metric)
            assert scores[model]["groups"][group][metric] == pytest.approx(wanted, rel=1e-6)
    found = scores[model]["deviation"]["unseen"]["mae"]
    assert found == pytest.approx(deviation_percent(records, model))


def absolute_errors(task: Task, forecasts: np.ndarray) -> list[np.ndarray]:
    """Absolute errors at the unseen points of each test window, where observed."""
    (part,), time_spec, sizes = task.parts["test"], task.time_spec, []
    for number, forecast in enumerate(forecasts):
        start = number * time_spec.horizon + time_spec.past
        here = slice(start, start + time_spec.horizon)
        known = part.observed[here, 14:]
        sizes.append(np.abs(forecast - part.values[here, 14:])[known])
    return sizes


def test_interpolated_forecasts_are_scored_at_all_unseen_targets(scores, dataset) -> None:
    training = train(dataset, cell_of("stgcn").config, BUDGET)
    task, methods = training.task, fit_interpolation(training.task)
    nodes, queries = (dataset.points.take(np.arange(*ends)) for ends in ((0, 14), (14, 20)))
    at_nodes = np.concatenate(
        [a.forecast.numpy() for a in forecasts_at(training, dataset.seen, dataset.seen)]
    )
    for how in ("idw", "kriging"):
        sizes = absolute_errors(task, interpolate(at_nodes, nodes, queries, methods[how]))
        group = scores["stgcn"]["groups"][how]
        assert group["mae"] == pytest.approx(np.concatenate(sizes).mean(), rel=1e-6)
        assert group["by_window"] == pytest.approx([one.mean() for one in sizes], rel=1e-3)


def test_ideal_is_kriging_of_the_observations(scores, dataset) -> None:
    task = train(dataset, cell_of("persistence").config, BUDGET).task
    (part,), time_spec = task.parts["test"], task.time_spec
    nodes, queries = (dataset.points.take(np.arange(*ends)) for ends in ((0, 14), (14, 20)))
    values = np.where(part.observed, part.values, np.nan)[time_spec.past :, :14].astype(np.float64)
    count = len(values) // time_spec.horizon  # windows, whose targets follow each other
    observed = values[: count * time_spec.horizon].reshape(count, time_spec.horizon, 14, 1)
    methods = fit_interpolation(task)["kriging"]
    sizes = absolute_errors(task, interpolate(observed, nodes, queries, methods))
    wanted = np.concatenate(sizes).mean()
    assert scores["stonet"]["groups"]["ideal"]["mae"] == pytest.approx(wanted, rel=1e-6)
    assert "ideal" not in scores["stgcn"]["groups"]  # would be the same


def test_a_baseline_bound_to_its_points_is_only_interpolated(scores) -> None:
    assert set(scores["stgcn"]["groups"]) == {"seen", "idw", "kriging"}
    assert scores["stgcn"]["deviation"] is None


def test_interpolation_is_fitted_to_seen_points_of_the_training_part_only(dataset) -> None:
    task = train(dataset, cell_of("persistence").config, BUDGET).task
    field = dataset.episodes[0]
    values = field.values.copy()
    values[:, 14:] *= 3
    values[len(task.parts["train"][0].times) :] -= 7
    other = replace(dataset, episodes=(replace(field, values=values),))
    refitted = train(other, cell_of("persistence").config, BUDGET).task
    assert fit_interpolation(refitted) == fit_interpolation(task)


def test_the_ratio_one_includes_all_unseen_points(dataset) -> None:
    """With as many unseen points as seen ones."""
    half = replace(dataset, unseen=tuple(range(10, 20)))
    cell = cell_of("persistence", ratios=True)
    found = inductive.measure(cell, half, cell.config, BUDGET)
    lines = {line["ratio"]: line for line in found["ratios"]}
    assert [lines[r]["points"] for r in (0.25, 0.5, 1.0)] == [2, 5, 10]
    for group in ("unseen", "no_history"):
        assert lines[1.0][group]["mae"] == found["groups"][group]["mae"]


def test_data_without_unseen_points_are_refused() -> None:
    cell = cell_of("persistence")
    with pytest.raises(UsageError, match="holds no points out"):
        inductive.measure(cell, small_dataset(), cell.config, BUDGET)


def test_all_models_have_cells_with_points_and_regions_unseen_and_stonet_with_half() -> None:
    budget = experiment_budget("published")
    cells = inductive.cells(["solar-pv"], (), 2, budget)
    held = {(c.label, c.config.data.unseen, c.config.data.unseen_regions, c.seed) for c in cells}
    assert {(m, 0.2, False, s) for m in ("stonet", "nhits") for s in (0, 1)} <= held
    assert {(f"{m} regions", 0.2, True, 0) for m in ("stonet", "nhits", "linear")} <= held
    assert ("stonet 50% unseen", 0.5, False, 0) in held
    assert ("persistence", 0.2, False, 1) not in held  # does not depend on the seed
    assert len({c.name for c in cells}) == len({(c.label, c.seed) for c in cells}) == len(cells)
    assert [c.label for c in cells if c.options["ratios"]] == ["stonet 50% unseen"]
    full = inductive.cells(["wave"], ("stonet",), 1, experiment_budget("full"))
    assert [(c.inductive, c.config.data.unseen) for c in full] == [(True, None)]
    with pytest.raises(UsageError, match="stgnc"):
        inductive.cells(["wave"], ("stgnc",), 1, budget)


def result_of(label: str, seed: int, share: float = 0.2, **groups: float) -> Result:
    """A result with these MAEs; windows differ from them by the same pattern."""
    cell = experiment_budget("smoke").cell(
        "inductive", "small", label, seed, extra={"share": share, "ratios": False}
    )
    scored = {
        name: {"mae": mae, "rmse": 2 * mae, "by_window": [mae + (w % 3 - 1) / 8 for w in range(66)]}
        for name, mae in groups.items()
    }
    scores = {"groups": scored, "points": {"seen": 80, "unseen": 20}}
    empty: dict[str, Any] = dict(
        settings={}, data_hash="", commit="c", date="", machine={}, versions={}
    )
    return Result(cell, scores=scores, seconds=0.0, cpu_seconds=0.0, peak_mb=0.0, **empty)


def results() -> list[Result]:
    ours = dict(unseen=1.02, no_history=1.5, idw=2.0, kriging=1.9)
    return [
        result_of("stonet", 0, seen=0.9, **ours),
        result_of("stonet", 1, seen=1.1, **ours),
        result_of("stonet 50% unseen", 0, 0.5, seen=2.0, **ours),
        result_of("stgcn", 0, seen=1.2, idw=1.7, kriging=1.6),
        result_of("persistence", 0, seen=4.0, unseen=4.4, no_history=5.0, idw=5.0, kriging=6.0),
    ]


def test_the_table_compares_with_the_best_interpolated_forecast_at_the_same_share() -> None:
    lines = {(line["model"], line["share"]): line for line in inductive.table(results())}
    ours = lines["stonet", 0.2]
    assert ours["seeds"] == 2 and ours["seen_std"] == pytest.approx(0.1)
    assert ours["deviation"] == pytest.approx(2.0) and ours[
        "persistence_deviation"
    ] == pytest.approx(10)
    assert ours["alternative"] == "stgcn, kriging"
    assert ours["gain"] == pytest.approx(100 * (1 - 1.5 / 1.6))
    assert ours["high"] == pytest.approx(-0.1) and ours["p"] < 0.01
    assert (
        lines["stonet", 0.5]["alternative"] == "stonet, kriging"
    )  # no other model was measured there
    assert lines["stonet", 0.5]["persistence_deviation"] is None
    assert lines["stgcn", 0.2]["deviation"] is None and "gain" not in lines["stgcn", 0.2]
    assert lines["stgcn", 0.2]["kriging_rmse"] == pytest.approx(3.2)


def test_the_figure_shows_incomplete_results(tmp_path: Path) -> None:
    inductive.figure(results(), tmp_path / "all.png")
    inductive.figure(results()[3:], tmp_path / "without-ours.png")
    inductive.figure([], tmp_path / "none.png")
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["all.png", "without-ours.png"]
