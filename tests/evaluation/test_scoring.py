"""Scores are tidy records and agree with their definitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, small_field, small_points, small_task

from stonet.data.batch import Batch
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.evaluation.metrics import Record, find
from stonet.evaluation.scoring import (
    check_scorable,
    deviation_percent,
    evaluate,
    reference_forecasts,
    scored_batches,
)
from stonet.models.forecaster import Encoding, Forecaster, Graphs, QueryGraph, narrow
from stonet.training.fit import fit_run
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

UNSEEN = (20, 21, 22, 23)
KEYS = {"dataset", "model", "points", "channel", "lead", "metric", "value", "seed"}
METRICS = ["mae", "rmse", "mape", "bias"]


@dataclass(frozen=True)
class QueryPositions(QueryGraph):
    """Positions of the queries among all points."""

    index: np.ndarray


class Oracle(Forecaster):
    """Returns the future plus a constant in the data's units."""

    def __init__(self, task: Task, offset: float = 0.0, inductive: bool = True) -> None:
        super().__init__()
        self.task, self.offset, self.inductive = task, offset, inductive

    def query_graph(self, nodes: Points, queries: Points) -> QueryPositions:
        names = list(self.task.dataset.points.names)
        return QueryPositions(np.array([names.index(name) for name in queries.names]))

    def decode(self, encoding: Encoding, batch: Batch, graphs: Graphs) -> torch.Tensor:
        """Find the window by its values; the forecast is what follows it."""
        windows = self.task.windows("test", self.task.time_spec.horizon)
        every = np.arange(len(windows))
        pasts = windows.inputs(every)
        candidates = pasts.frames[pasts.past][:, :, 0, 0]
        inputs = batch.frames[batch.past][:, :, 0, 0]
        chosen = torch.cdist(inputs, candidates).argmin(1).numpy()
        queries = narrow(graphs.queries, QueryPositions).index
        future, _ = self.task.windows("test", self.task.time_spec.horizon, queries).targets(chosen)
        return future + self.offset / torch.tensor(self.task.scaler.std)


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
def trained(task: Task) -> TrainedModel:
    return fitted_run(task)


@pytest.fixture(scope="module")
def records(trained: TrainedModel, task: Task) -> list[Record]:
    return evaluate(trained, task)


def test_records_are_tidy_and_complete(records: list[Record]) -> None:
    assert all(set(record) == KEYS for record in records)
    names = [tuple(r[k] for k in ("model", "points", "channel", "lead", "metric")) for r in records]
    expected = [
        (model, points, channel, lead, metric)
        for model in ("stonet", "persistence", "climatology", "linear")
        for points in ("seen", "unseen", "unseen-no-history")
        for channel in ("all", "u0", "u1")
        for lead in ("all", 1, 2, 3, 4)
        for metric in METRICS
    ]
    assert len(set(names)) == len(names) and set(names) == set(expected)
    assert {(r["dataset"], r["seed"]) for r in records} == {("small", 0)}
    assert all(isinstance(r["value"], float) for r in records)


def persisted(task: Task, points: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Persistence, truth and mask of the test part, (window, lead, point, channel)."""
    (part,), past, horizon = task.parts["test"], task.time_spec.past, task.time_spec.horizon
    forecasts, truth, mask = [], [], []
    for start in range(0, len(part.times) - past - horizon + 1, horizon):
        last = np.zeros((len(points), 2))
        for frame in range(start, start + past):
            observed = part.observed[frame, points]
            last = np.where(observed, part.values[frame, points], last)
        assert part.observed[start : start + past, points].any(0).all()
        future = slice(start + past, start + past + horizon)
        forecasts.append(np.broadcast_to(last, (horizon, *last.shape)))
        truth.append(part.values[future][:, points])
        mask.append(part.observed[future][:, points])
    return np.stack(forecasts), np.stack(truth).astype(np.float64), np.stack(mask)


@pytest.mark.parametrize("points", ["seen", "unseen"])
def test_scores_of_persistence_equal_their_definitions(records, task: Task, points: str) -> None:
    chosen = list(UNSEEN) if points == "unseen" else list(range(20))
    forecasts, truth, mask = persisted(task, chosen)
    error = forecasts - truth
    for lead in ("all", 1, 4):
        for channel in ("all", "u1"):
            window = np.zeros_like(mask)
            leads = slice(None) if lead == "all" else lead - 1
            window[:, leads, :, slice(None) if channel == "all" else 1] = True
            e, y = error[window & mask], truth[window & mask]
            expected = {
                "mae": np.abs(e).mean(),
                "rmse": np.sqrt(np.square(e).mean()),
                "bias": e.mean(),
                "mape": 100 * np.abs(e[y != 0] / y[y != 0]).mean(),  # without observed zeros
            }
            for metric, value in expected.items():
                result = find(
                    records,
                    model="persistence",
                    points=points,
                    channel=channel,
                    lead=lead,
                    metric=metric,
                )
                assert result == pytest.approx(value, rel=1e-4, abs=1e-5), (metric, lead, channel)


def test_a_perfect_forecast_has_no_error_and_a_shifted_one_its_offset(trained, task) -> None:
    models = {"perfect": Oracle(task), "shifted": Oracle(task, offset=0.5)}
    for record in evaluate(trained, task, models=models):
        if record["model"] == "perfect":
            assert record["value"] == pytest.approx(0, abs=1e-4)
        elif record["metric"] != "mape":
            assert record["value"] == pytest.approx(0.5, abs=1e-4)


def test_forecasts_are_clipped_to_the_bounds_of_the_data(trained, task) -> None:
    """The data have a lower bound of zero; a forecast far below is scored as zero."""
    assert task.scaler.low == (0.0, 0.0)
    records = evaluate(trained, task, models={"low": Oracle(task, offset=-1e4)})
    windows = task.windows("test", task.time_spec.horizon)
    truth, observed = windows.targets(np.arange(len(windows)))
    for c, channel in enumerate(trained.channels):
        values = truth[..., c] * task.scaler.std[c] + task.scaler.mean[c]
        mean = values[observed[..., c]].mean()
        bias = find(records, model="low", points="seen", channel=channel, lead="all", metric="bias")
        assert bias == pytest.approx(-float(mean), rel=1e-4)


def test_unseen_points_are_scored_if_there_are_some_and_the_model_is_inductive(
    trained, task, field
) -> None:
    fixed = Oracle(task, inductive=False)
    assert {r["points"] for r in evaluate(trained, task, models={"fixed": fixed})} == {"seen"}
    all_seen = small_task(field, "model=persistence")
    assert {r["points"] for r in evaluate(fitted_run(all_seen), all_seen)} == {"seen"}


def test_the_fixed_decoder_is_scored_at_its_own_points(field) -> None:
    task = small_task(field, "model=stonet-paper", "paper.decoder=fixed", unseen=UNSEEN)
    scored = {(r["model"], r["points"]) for r in evaluate(fitted_run(task), task)}
    assert ("stonet-paper", "seen") in scored and ("stonet-paper", "unseen") not in scored
    assert ("persistence", "unseen") in scored


def test_reference_forecasts_accompany_every_model(trained, task, field) -> None:
    assert list(reference_forecasts(trained, task)) == [
        "stonet",
        "persistence",
        "climatology",
        "linear",
    ]
    for setting, names in (
        ("model=linear", ["linear", "persistence", "climatology"]),
        ("model=persistence", ["persistence", "climatology", "linear"]),
        ("model=climatology", ["climatology", "persistence", "linear"]),
        ("model=stonet-paper", ["stonet-paper", "persistence", "climatology", "linear"]),
    ):
        other = small_task(field, setting)
        assert list(reference_forecasts(TrainedModel.untrained(other), other)) == names


def test_daily_persistence_is_a_reference_if_the_past_is_at_least_a_day() -> None:
    hourly = small_field("sphere", frames=320)
    for past, daily in ((23, False), (24, True)):
        task = small_task(hourly, f"data.past={past}", "model=linear")
        assert ("daily" in reference_forecasts(TrainedModel.untrained(task), task)) is daily


def test_reference_forecasts_equal_separately_fitted_ones(field, task) -> None:
    """Also the linear one, where the model has no base."""
    trained = TrainedModel.untrained(small_task(field, unseen=UNSEEN))
    references = reference_forecasts(trained, task)
    for name in ("persistence", "climatology", "linear"):
        alone = fit_run(small_task(field, f"model={name}", unseen=UNSEEN), None, False, print)[0]
        assert isinstance(references[name], type(alone.model))
        torch.testing.assert_close(
            dict(references[name].named_buffers()),
            dict(alone.model.named_buffers()),
            rtol=0,
            atol=0,
        )


def test_the_deviation_compares_unseen_points_with_seen_ones(records) -> None:
    def mae(points: str) -> float:
        return find(records, model="linear", points=points, channel="all", lead="all", metric="mae")

    expected = 100 * (mae("unseen") / mae("seen") - 1)
    assert deviation_percent(records, "linear") == pytest.approx(expected)
    seen_only = [r for r in records if r["points"] == "seen"]
    assert deviation_percent(seen_only, "linear") is None


def test_progress_is_reported(trained, task) -> None:
    progress: list[tuple[int, int]] = []
    models = {"oracle": Oracle(task)}
    evaluate(trained, task, models=models, on_progress=lambda *done: progress.append(done[:2]))
    assert progress == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_data_of_another_kind_are_not_scored(trained, task, field) -> None:
    check_scorable(trained, task.dataset)
    for changes, message in (
        ({"units": ("m", "K")}, r"in \('m', 'K'\); this model was trained in \('K', 'K'\)"),
        ({"channels": ("a", "b")}, r"hold \('a', 'b'\); this model forecasts \('u0', 'u1'\)"),
        ({"points": small_points("sphere", 24)}, r"lie on a sphere; .* on a plane"),
        ({"calendar": True}, r"times are dates; .* seconds from zero"),
        ({"times": field.times * 2}, r"a step of 2 s; this model was trained with 1 s"),
    ):
        with pytest.raises(DataError, match=message):
            check_scorable(trained, Dataset((replace(field, **changes),)))


def test_scores_do_not_depend_on_the_batch_size(trained: TrainedModel, task: Task) -> None:
    nodes, graphs = task.dataset.seen, trained.model.graphs(task.nodes)
    inputs = task.windows("test", task.scoring_stride, nodes)
    truth = task.windows("test", task.scoring_stride, nodes, raw=True)
    forecasts = []
    for max_points in (3 * len(nodes), 10**6):
        batches = list(
            scored_batches(trained.model, trained, graphs, inputs, truth, max_points=max_points)
        )
        assert len(batches[0].chosen) == min(max_points // len(nodes), len(inputs), 8)
        forecasts.append(torch.cat([batch.forecast for batch in batches]))
    torch.testing.assert_close(*forecasts, rtol=1e-5, atol=1e-5)
