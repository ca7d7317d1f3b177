"""Errors by lead, hour, point and window agree with `evaluate`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.small import quick, small_dataset, small_field

from stonet.data.field import Dataset
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import ScoredBatch, evaluate
from stonet.experiments.error_summary import (
    ErrorAccumulator,
    scoring_stride,
    summarise_errors,
    without_details,
)
from stonet.training.budget import Budget, TrainingResult, train


@pytest.fixture(scope="module")
def training() -> TrainingResult:
    """With a stride of its own, which scoring keeps as `evaluate` does."""
    config = quick("model=gcgru", "data.stride=2")
    return train(small_dataset(), config, Budget(epochs=1, steps=3))


def test_errors_by_window_and_point_average_to_the_scores_of_evaluate(
    training: TrainingResult,
) -> None:
    scores = summarise_errors(training)
    records = evaluate(training.trained, training.task, models={"gcgru": training.trained.model})
    for metric in ("mae", "rmse", "mape", "bias"):
        assert scores[metric] == find(records, metric=metric, lead="all")
        leads = [find(records, metric=metric, lead=lead + 1) for lead in range(4)]
        assert scores["by_lead"][metric] == leads
    truth = training.task.windows("test", scoring_stride(training.task), raw=True)
    _, observed = truth.targets(np.arange(len(truth)))
    by_window, by_point = (observed.sum(dims).double().numpy() for dims in ((1, 2, 3), (0, 1, 3)))
    assert np.average(scores["by_window"], weights=by_window) == pytest.approx(scores["mae"])
    assert np.average(scores["by_point"], weights=by_point) == pytest.approx(scores["mae"], 1e-3)
    worst = scores["worst"][0]
    assert worst["mae"] == pytest.approx(max(scores["by_point"]), 1e-3)
    assert worst["name"] == training.task.nodes.names[int(np.argmax(scores["by_point"]))]
    assert scores["spread"]["max"] == worst["mae"]


def test_errors_by_hour_belong_to_the_hour_of_the_target(training: TrainingResult) -> None:
    """An error that equals the hour of its target, negative at noon."""
    truth = training.task.windows("test", 1, raw=True)
    errors, chosen = ErrorAccumulator(truth, 20), np.arange(len(truth))
    ahead = truth.starts[:, None] + truth.time_spec.past + np.arange(truth.time_spec.horizon)
    hour = torch.from_numpy(truth.times[ahead] // (3600 * 10**9) % 24).double()
    values, observed = truth.targets(chosen)
    signed = torch.where(hour == 12, -hour, hour)[..., None, None]
    errors.add(ScoredBatch(chosen, values.double() + signed, values, observed))
    found = errors.by_hour()
    observed_hours = sorted(set(hour.long().flatten().tolist()))
    assert [found["mae"][h] for h in observed_hours] == pytest.approx(observed_hours)
    assert found["bias"][12] == pytest.approx(-12) and found["bias"][11] == pytest.approx(11)
    assert all(np.isnan(found["mae"][h]) for h in range(24) if h not in observed_hours)


def test_every_hour_has_targets_at_all_leads() -> None:
    """u = t, so the error of persistence is the lead: 2.5 on average at every hour."""
    field = small_field(frames=1200, points=4)
    hours = np.arange(1200.0, dtype=np.float32)[:, None, None]
    rising = replace(field, values=np.broadcast_to(hours, field.values.shape), mask=None)
    config = quick("model=persistence", "data.range_margin=1.0")  # u goes on rising
    training = train(Dataset((rising,), "rising"), config, Budget(epochs=0))
    found = summarise_errors(training)
    assert found["by_hour"]["mae"] == pytest.approx([2.5] * 24, abs=0.3)
    assert found["by_lead"]["mae"] == pytest.approx([1, 2, 3, 4], abs=0.01)


def test_the_number_of_scored_windows_can_be_limited(training: TrainingResult) -> None:
    assert len(summarise_errors(training, max_windows=3)["by_window"]) == 3
    assert "by_window" not in without_details(summarise_errors(training, max_windows=3))


def test_a_training_can_be_repeated_bit_by_bit(training: TrainingResult) -> None:
    again = train(small_dataset(), quick("model=gcgru", "data.stride=2"), training.cost.budget)
    assert again.cost.best_validation == training.cost.best_validation
    assert summarise_errors(again)["by_window"] == summarise_errors(training)["by_window"]
