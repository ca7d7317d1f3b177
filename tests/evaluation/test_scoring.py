"""Scores: tidy records that agree with sums by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, small_field, small_points, small_task

from stonet.data.batch import Batch
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.evaluation import scoring as evaluation
from stonet.evaluation.metrics import Record, find
from stonet.evaluation.scoring import (
    check_same_kind,
    deviation_percent,
    evaluate,
    reference_forecasts,
)
from stonet.models.forecaster import Forecaster, Graphs
from stonet.training.fit import fit_run
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

UNSEEN = (20, 21, 22, 23)
KEYS = {"dataset", "model", "points", "channel", "lead", "metric", "value", "seed"}
METRICS = ["mae", "rmse", "mape", "bias"]


class Oracle(Forecaster):
    """Knows the future, and may be wrong by a constant, in units."""

    def __init__(self, task: Task, wrong: float = 0.0, inductive: bool = True) -> None:
        super().__init__()
        self.task, self.wrong, self.inductive = task, wrong, inductive

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> np.ndarray:
        names = list(self.task.dataset.points.names)
        return np.array([names.index(name) for name in queries.names])

    def encode(self, batch: Batch, graphs: Graphs) -> None:
        return None

    def decode(self, encoded: None, batch: Batch, graphs: Graphs) -> torch.Tensor:
        """Finds the window by its values; the forecast is what follows it."""
        windows = self.task.windows("test", self.task.time_spec.horizon)
        every = np.arange(len(windows))
        pasts = windows.inputs(every)
        known = pasts.frames[pasts.past][:, :, 0, 0]
        here = batch.frames[batch.past][:, :, 0, 0]
        chosen = torch.cdist(here, known).argmin(1).numpy()
        future, _ = self.task.windows("test", self.task.time_spec.horizon, graphs.links).targets(
            chosen
        )
        return future + self.wrong / torch.tensor(self.task.scaler.std)


@pytest.fixture(scope="module")
def field() -> Field:
    """Two channels, gaps, and zeros among the values."""
    made = small_field("plane", channels=2)
    mask = np.random.default_rng(0).random(made.values.shape) < 0.9
    values = np.where(np.random.default_rng(1).random(made.values.shape) < 0.1, 0, made.values)
    return replace(made, values=values.astype(np.float32), mask=mask)


@pytest.fixture(scope="module")
def task(field: Field) -> Task:
    return small_task(field, unseen=UNSEEN)


@pytest.fixture(scope="module")
def run(task: Task) -> TrainedModel:
    return fitted_run(task)


@pytest.fixture(scope="module")
def records(run: TrainedModel, task: Task) -> list[Record]:
    return evaluate(run, task)


def test_records_are_tidy_and_complete(records: list[Record]) -> None:
    assert all(set(record) == KEYS for record in records)
    names = [tuple(r[k] for k in ("model", "points", "channel", "lead", "metric")) for r in records]
    wanted = [
        (model, points, channel, lead, metric)
        for model in ("stonet", "persistence", "climatology", "linear")
        for points in ("seen", "unseen", "unseen-no-history")
        for channel in ("all", "u0", "u1")
        for lead in ("all", 1, 2, 3, 4)
        for metric in METRICS
    ]
    assert len(set(names)) == len(names) and set(names) == set(wanted)
    assert {(r["dataset"], r["seed"]) for r in records} == {("small", 0)}
    assert all(isinstance(r["value"], float) for r in records)


def persisted(task: Task, points: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(window, lead, point, channel): last observed values, truth and mask of the test part."""
    (part,), past, horizon = task.parts["test"], task.time_spec.past, task.time_spec.horizon
    guess, truth, mask = [], [], []
    for start in range(0, len(part.times) - past - horizon + 1, horizon):
        last = np.zeros((len(points), 2))
        for frame in range(start, start + past):
            seen = part.observed[frame, points]
            last = np.where(seen, part.values[frame, points], last)
        assert part.observed[start : start + past, points].any(0).all()
        future = slice(start + past, start + past + horizon)
        guess.append(np.broadcast_to(last, (horizon, *last.shape)))
        truth.append(part.values[future][:, points])
        mask.append(part.observed[future][:, points])
    return np.stack(guess), np.stack(truth).astype(np.float64), np.stack(mask)


@pytest.mark.parametrize("points", ["seen", "unseen"])
def test_persistence_scores_as_by_hand(records, task: Task, points: str) -> None:
    chosen = list(UNSEEN) if points == "unseen" else list(range(20))
    guess, truth, mask = persisted(task, chosen)
    error = guess - truth
    for lead in ("all", 1, 4):
        for channel in ("all", "u1"):
            window = np.zeros_like(mask)
            leads = slice(None) if lead == "all" else lead - 1
            window[:, leads, :, slice(None) if channel == "all" else 1] = True
            e, y = error[window & mask], truth[window & mask]
            wanted = {
                "mae": np.abs(e).mean(),
                "rmse": np.sqrt(np.square(e).mean()),
                "bias": e.mean(),
                "mape": 100 * np.abs(e[y != 0] / y[y != 0]).mean(),  # zeros as they were observed
            }
            for metric, value in wanted.items():
                found = find(
                    records,
                    model="persistence",
                    points=points,
                    channel=channel,
                    lead=lead,
                    metric=metric,
                )
                assert found == pytest.approx(value, rel=1e-4, abs=1e-5), (metric, lead, channel)


def test_a_perfect_forecast_has_no_error_and_a_shifted_one_its_shift(run, task) -> None:
    models = {"perfect": Oracle(task), "shifted": Oracle(task, wrong=0.5)}
    for record in evaluate(run, task, models=models):
        if record["model"] == "perfect":
            assert record["value"] == pytest.approx(0, abs=1e-4)
        elif record["metric"] != "mape":
            assert record["value"] == pytest.approx(0.5, abs=1e-4)


def test_no_forecast_goes_beyond_the_bounds_of_the_data(run, task) -> None:
    """Whoever makes it: far below the zeros that the data return to, it counts as zero."""
    assert task.scaler.low == (0.0, 0.0) and task.scaler.high == (None, None)
    records = evaluate(run, task, models={"low": Oracle(task, wrong=-1e4)})
    windows = task.windows("test", task.time_spec.horizon)
    truth, seen = windows.targets(np.arange(len(windows)))
    for c, channel in enumerate(run.channels):
        values = truth[..., c] * task.scaler.std[c] + task.scaler.mean[c]
        wanted = values[seen[..., c]].mean()
        found = find(
            records, model="low", points="seen", channel=channel, lead="all", metric="bias"
        )
        assert found == pytest.approx(-float(wanted), rel=1e-4)


def test_unseen_points_are_scored_where_there_are_some_and_the_model_can(run, task, field) -> None:
    fixed = Oracle(task, inductive=False)
    assert {r["points"] for r in evaluate(run, task, models={"fixed": fixed})} == {"seen"}
    all_seen = small_task(field, "model=persistence")
    assert {r["points"] for r in evaluate(fitted_run(all_seen), all_seen)} == {"seen"}


def test_the_fixed_decoder_is_scored_at_its_own_points(field) -> None:
    task = small_task(field, "network.decoder=fixed", unseen=UNSEEN)
    found = {(r["model"], r["points"]) for r in evaluate(fitted_run(task), task)}
    assert ("stonet", "seen") in found and ("stonet", "unseen") not in found
    assert ("persistence", "unseen") in found


def test_the_floors_stand_beside_the_model(run, task, field) -> None:
    assert list(reference_forecasts(run, task)) == [
        "stonet",
        "persistence",
        "climatology",
        "linear",
    ]
    for setting, names in (
        ("model=linear", ["linear", "persistence", "climatology"]),
        ("model=persistence", ["persistence", "climatology", "linear"]),
        ("model=climatology", ["climatology", "persistence", "linear"]),
        ('network.base="none"', ["stonet", "persistence", "climatology", "linear"]),
    ):
        other = small_task(field, setting)
        assert list(reference_forecasts(TrainedModel.untrained(other), other)) == names


def test_daily_persistence_is_a_floor_where_the_inputs_reach_back_a_day() -> None:
    hourly = small_field("sphere", frames=320)
    for past, daily in ((23, False), (24, True)):
        task = small_task(hourly, f"data.past={past}", "model=linear")
        assert ("daily" in reference_forecasts(TrainedModel.untrained(task), task)) is daily


def test_the_floors_are_what_fitting_them_gives(field, task) -> None:
    """Beside any model, from the training part; the linear one also where the model has no base."""
    run = TrainedModel.untrained(small_task(field, 'network.base="none"', unseen=UNSEEN))
    beside = reference_forecasts(run, task)
    for name in ("persistence", "climatology", "linear"):
        alone = fit_run(small_task(field, f"model={name}", unseen=UNSEEN), None, False, print)[0]
        assert isinstance(beside[name], type(alone.model))
        torch.testing.assert_close(
            dict(beside[name].named_buffers()), dict(alone.model.named_buffers()), rtol=0, atol=0
        )


def test_an_untrained_network_scores_as_its_base(records) -> None:
    for points in ("seen", "unseen", "unseen-no-history"):
        maes = [
            find(records, model=m, points=points, channel="all", lead="all", metric="mae")
            for m in ("stonet", "linear")
        ]
        assert maes[0] == pytest.approx(maes[1], rel=1e-5)


def test_the_deviation_compares_unseen_points_with_seen_ones(records) -> None:
    def mae(points: str) -> float:
        return find(records, model="linear", points=points, channel="all", lead="all", metric="mae")

    expected = 100 * (mae("unseen") / mae("seen") - 1)
    assert deviation_percent(records, "linear") == pytest.approx(expected)
    seen_only = [r for r in records if r["points"] == "seen"]
    assert deviation_percent(seen_only, "linear") is None


def test_whoever_watches_is_told_how_far_it_is(run, task) -> None:
    told: list[tuple[int, int]] = []
    evaluate(run, task, models={"oracle": Oracle(task)}, watch=lambda *done: told.append(done))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_run_is_not_scored_on_data_of_another_kind(run, task, field) -> None:
    check_same_kind(run, task.dataset)
    for changes, message in (
        (
            {"units": ("m", "K")},
            r"in \('m', 'K'\); the run forecasts \('u0', 'u1'\) in \('K', 'K'\)",
        ),
        ({"channels": ("a", "b")}, r"hold \('a', 'b'\)"),
        ({"points": small_points("sphere", 24)}, r"lie on a sphere, without dates; .* on a plane"),
        ({"calendar": True}, r"with dates; .*without dates"),
        ({"times": field.times * 2}, r"a step of 2 s; the run was trained with 1 s"),
    ):
        with pytest.raises(DataError, match=message):
            check_same_kind(run, Dataset((replace(field, **changes),)))


def test_how_many_windows_are_answered_at_a_time_makes_no_difference(
    run: TrainedModel, task: Task, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "AT_ONCE", 3 * len(task.dataset.points))
    for one, other in zip(evaluate(run, task), records, strict=True):
        assert one == other or one["value"] == pytest.approx(other["value"], rel=1e-6)
