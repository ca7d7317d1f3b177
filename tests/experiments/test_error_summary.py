"""Errors kept apart by lead, hour, point and window add up; cells differ as they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.cells import cell, result
from helpers.small import quick, small_dataset, small_field

from stonet.config import load_config
from stonet.data.field import Dataset
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import ScoredBatch, evaluate
from stonet.experiments import EXPERIMENTS, ablation, comparison, cost
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.experiments.error_summary import ErrorAccumulator, errors_of, hourly, in_short
from stonet.training.budget import Budget, TrainingResult, train


@pytest.fixture(scope="module")
def trained() -> TrainingResult:
    return train(small_dataset(), quick("model=gcgru"), Budget(epochs=1, steps=3))


def test_the_parts_add_up_to_the_scores_of_evaluate(trained: TrainingResult) -> None:
    scores = errors_of(trained)
    records = evaluate(trained.trained, trained.task, models={"gcgru": trained.trained.model})
    for metric in ("mae", "rmse", "mape", "bias"):
        assert scores[metric] == find(records, metric=metric, lead="all")
        leads = [find(records, metric=metric, lead=lead + 1) for lead in range(4)]
        assert scores["by_lead"][metric] == leads
    truth = trained.task.windows("test", trained.task.scoring_stride, raw=True)
    _, observed = truth.targets(np.arange(len(truth)))
    by_window, by_point = (observed.sum(dims).double().numpy() for dims in ((1, 2, 3), (0, 1, 3)))
    assert np.average(scores["by_window"], weights=by_window) == pytest.approx(scores["mae"])
    assert np.average(scores["by_point"], weights=by_point) == pytest.approx(scores["mae"], 1e-3)
    worst = scores["worst"][0]
    assert worst["mae"] == pytest.approx(max(scores["by_point"]), 1e-3)
    assert worst["name"] == trained.task.nodes.names[int(np.argmax(scores["by_point"]))]
    assert scores["spread"]["most"] == worst["mae"]


def test_hours_are_those_of_the_targets(trained: TrainingResult) -> None:
    """An error as large as the hour of its target, less where it is noon."""
    truth = trained.task.windows("test", 1, raw=True)
    tally, chosen = ErrorAccumulator(truth, 20), np.arange(len(truth))
    ahead = truth.starts[:, None] + truth.time_spec.past + np.arange(truth.time_spec.horizon)
    hour = torch.from_numpy(truth.times[ahead] // (3600 * 10**9) % 24).double()
    values, observed = truth.targets(chosen)
    signed = torch.where(hour == 12, -hour, hour)[..., None, None]
    tally.add(ScoredBatch(chosen, values.double() + signed, values, observed))
    found = tally.by_hour()
    seen = sorted(set(hour.long().flatten().tolist()))
    assert [found["mae"][h] for h in seen] == pytest.approx(seen)
    assert found["bias"][12] == pytest.approx(-12) and found["bias"][11] == pytest.approx(11)
    assert all(np.isnan(found["mae"][h]) for h in range(24) if h not in seen)


def test_an_hour_is_not_always_the_same_lead() -> None:
    """u = t, so persistence errs by the lead: 2.5 on average, whatever the hour."""
    field = small_field(frames=1200, points=4)
    hours = np.arange(1200.0, dtype=np.float32)[:, None, None]
    rising = replace(field, values=np.broadcast_to(hours, field.values.shape), mask=None)
    config = quick("model=persistence")
    trained = train(Dataset((rising,), "rising"), config, Budget(epochs=0))
    found = hourly(trained)
    assert found is not None and found["mae"] == pytest.approx([2.5] * 24, abs=0.3)
    assert errors_of(trained)["by_lead"]["mae"] == pytest.approx([1, 2, 3, 4], abs=0.01)


def test_fewer_windows_are_scored_where_that_is_asked(trained: TrainingResult) -> None:
    assert len(errors_of(trained, most=3)["by_window"]) == 3
    assert "by_window" not in in_short(errors_of(trained, most=3))


def test_a_training_is_repeated_to_the_bit(trained: TrainingResult) -> None:
    again = train(small_dataset(), quick("model=gcgru"), trained.cost.budget)
    assert again.cost.best_validation == trained.cost.best_validation
    assert errors_of(again)["by_window"] == errors_of(trained)["by_window"]


def test_an_ablation_changes_one_setting() -> None:
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
        assert len(differ) == (label != name) and set(differ) <= set(ablation.WHOLES[name].factors)
        assert one.training == small.fixed[name]
        if differ:
            assert label.removeprefix("operator ").startswith(differ[0].partition(".")[2])
    only = ablation.cells(("wave",), ("levels",), 1, small)
    assert len(only) == len(ablation.WHOLES["operator"].factors["graph.levels"])


def test_the_ablations_table_holds_the_default_in_every_factor(tmp_path: Path) -> None:
    cells = ablation.cells(("wave",), ("levels", "kernel"), 1, EXPERIMENT_BUDGETS["small"])
    training = dict(best_validation=0.1, steps=1, seconds_per_epoch=1.0, parameters=1)
    results = [
        result(one, {"mae": 1.0 + number, "rmse": 2.0, "training": training})
        for number, one in enumerate(cells)
    ]
    lines = ablation.table(results)
    usual = [line for line in lines if line["default"]]
    assert {(line["whole"], line["factor"]) for line in usual} == {
        ("operator", "levels"),
        ("operator", "kernel"),
    }
    assert all(line["change"] == 0 for line in usual)
    assert sorted(line["change"] for line in lines if not line["default"]) == [100, 200, 300]
    ablation.figure(results, tmp_path / "ablation.png")
    assert (tmp_path / "ablation.png").stat().st_size > 5_000


def test_costs_are_told_beside_the_revised_decoder(tmp_path: Path) -> None:
    cells = cost.cells(("wave",), (), 1, EXPERIMENT_BUDGETS["small"])
    assert [one.config.network.decoder for one in cells[:4]] == list(cost.DECODERS)
    assert all(one.config.network.base == "none" for one in cells[:4])  # the paper's formula
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


def test_real_cells_make_all_four_pictures(tmp_path: Path) -> None:
    field = small_dataset()
    results = []
    for label in ("stonet", "stgcn", "persistence"):
        asked = cell("small", label, settings=("train.steps=2", *_settings(label)))
        measured = comparison.measure(asked, field, asked.config, asked.training)
        results.append(result(asked, measured))
    comparison.figure(results, tmp_path / "c.png")
    for suffix in ("", "-leads", "-hours", "-maps"):
        assert (tmp_path / f"c{suffix}.png").stat().st_size > 5_000
    assert EXPERIMENTS["comparison"].table(results)[0]["dataset"] == "small"


def _settings(label: str) -> tuple[str, ...]:
    told: dict[str, Any] = {"stonet": ("network.base=persistence",)}
    return told.get(label, ())
