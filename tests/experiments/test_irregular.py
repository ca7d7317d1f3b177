"""The irregular experiment: what is lost has no influence, and what is asked is the right time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.small import small_dataset

from stonet.data.batch import Batch
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.errors import StonetError
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import evaluate
from stonet.experiments import irregular
from stonet.experiments.budgets import experiment_budget
from stonet.experiments.cell import Cell, Result
from stonet.experiments.corruption import (
    Between,
    Change,
    answer,
    coarser,
    outage,
    random_loss,
    thinned,
    unchanged,
)
from stonet.inference.forecast import forecast
from stonet.training.budget import Budget, TrainingResult, train

BUDGET = Budget(epochs=1, steps=2)
LOSSES = {"random": random_loss, "outage": outage, "thinned": thinned}
EVERY = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
MILLISECOND = 10**6


def cell_of(model: str, ask: str = "missing", *settings: str) -> Cell:
    extra = {"ask": ask, "labels": None}
    return experiment_budget("smoke").cell(
        "irregular", "small", model, model=model, settings=settings, extra=extra
    )


@pytest.fixture(scope="module", params=["stonet", "stgcn"])
def trained(request) -> TrainingResult:
    return train(small_dataset(), cell_of(request.param).config, BUDGET)


def inputs(trained: TrainingResult, chosen: np.ndarray) -> Batch:
    task = trained.task
    return task.windows("test", task.scoring_stride).inputs(chosen)


def told(trained: TrainingResult, batch: Batch) -> torch.Tensor:
    nodes = trained.task.nodes
    return answer(trained, batch, trained.trained.model.eval().graphs(nodes, nodes))


@EVERY
def test_nothing_lost_changes_nothing(trained: TrainingResult, loss) -> None:
    chosen = np.arange(3)
    batch = inputs(trained, chosen)
    torch.testing.assert_close(told(trained, loss(0.0)(batch, chosen)), told(trained, batch))


@EVERY
def test_what_is_lost_has_no_influence(trained: TrainingResult, loss) -> None:
    """Other values in the place of the lost ones: the same forecast, to the last bit."""
    chosen = np.arange(3)
    batch = inputs(trained, chosen)
    own = thinned(0.0)(batch, chosen)  # only to know the frames of each window
    used = own.past.flatten()
    batch = replace(
        batch,
        frames=own.frames[used],
        observed=own.seen[used],
        frame_time=own.frame_time[used],
        past=torch.arange(len(used)).view_as(own.past),
    )
    change: Change = loss(0.5)
    left = change(batch, chosen)
    kept = torch.zeros_like(batch.frames, dtype=torch.bool)
    if loss is thinned:
        kept[left.past[left.past < len(batch.frames)]] = True
    else:
        kept = left.seen
    assert 0.3 < 1 - kept.float().mean() < 0.7
    changed = replace(batch, frames=torch.where(kept, batch.frames, 9.0 + batch.frames))
    assert torch.equal(told(trained, change(changed, chosen)), told(trained, left))
    assert not torch.equal(told(trained, changed), told(trained, batch))


def missing(batch: Batch) -> torch.Tensor:
    return ~batch.seen[batch.past][..., 0]  # window past node


@pytest.mark.parametrize("loss", [random_loss, outage], ids=["random", "outage"])
def test_more_is_lost_of_the_same_in_every_batch(trained: TrainingResult, loss) -> None:
    every = np.arange(4)
    batch = inputs(trained, every)
    whole = replace(batch, observed=None)
    little, much = (missing(loss(share)(whole, every)) for share in (0.25, 0.75))
    assert (much | ~little).all() and much.sum() > little.sum()
    assert little.float().mean() == pytest.approx(0.25, abs=0.12)
    alone = loss(0.25)(replace(inputs(trained, every[2:3]), observed=None), every[2:3])
    assert torch.equal(missing(alone)[0], little[2])
    if loss is outage:  # a sensor for the whole window, another one in the next
        assert (little.all(1) == little.any(1)).all() and not torch.equal(little[0], little[1])


def test_thinned_inputs_are_answered_as_a_field_that_lacks_these_frames(
    trained: TrainingResult,
) -> None:
    """Through the front door: cut out the window, drop the frames, ask for a forecast."""
    task, chosen = trained.task, np.arange(2)
    windows = task.windows("test", task.scoring_stride)
    left = thinned(0.5)(windows.inputs(chosen), chosen)
    found = told(trained, left)
    (part,), past = task.parts["test"], task.time_spec.past
    for number in chosen:
        count = past - past // 2
        kept = past - 1 + left.lag[number, -count:].round().long().numpy()
        assert kept[-1] == past - 1 and (np.diff(kept) > 0).all()
        index = windows.starts[number] + kept
        names = ("values", "mask", "times")
        field = Field.trusted(**(vars(part) | {n: vars(part)[n][index] for n in names}))
        wanted = forecast(trained.trained, field)
        np.testing.assert_allclose(found[number].numpy(), wanted.values, rtol=1e-5, atol=1e-5)


def test_the_measured_errors_are_those_of_an_evaluation() -> None:
    dataset, cell = small_dataset(), cell_of("persistence")
    found = irregular.measure(cell, dataset, cell.config, BUDGET)
    trained = train(dataset, cell.config, BUDGET)
    records = evaluate(trained.trained, trained.task, models={"persistence": trained.trained.model})
    for metric in ("mae", "rmse", "bias"):
        wanted = find(records, points="seen", lead="all", metric=metric)
        assert found["whole"][metric] == pytest.approx(wanted, rel=1e-6)
    for name in LOSSES:
        assert [line["share"] for line in found[name]] == list(irregular.SHARES)
    thin = [line["mae"] for line in found["thinned"]]  # the newest frame is all it looks at
    gaps = small_dataset().episodes[0].observed.all()
    assert gaps or thin[0] == pytest.approx(found["whole"]["mae"], rel=0.1)
    assert found["outage"][-1]["mae"] > found["outage"][0]["mae"] > found["whole"]["mae"]
    assert irregular.errors(trained, unchanged) == found["whole"]


def rising(power: int, episodes: int = 12, frames: int = 80, points: int = 9) -> Dataset:
    """u = (t / 40)^power, times a number for each point, frame by frame."""
    rng = np.random.default_rng(0)
    places, size = Points(rng.random((points, 2))), rng.uniform(1, 2, points)
    time = np.arange(frames)
    values = (time[:, None] / 40) ** power * size
    field = Field(
        values=values[..., None].astype(np.float32),
        times=MILLISECOND * time,
        points=places,
        calendar=False,
    )
    return Dataset((field,) * episodes, "rising")


def between(dataset: Dataset, model: str = "persistence") -> Between:
    config = cell_of(model).config
    return Between(train(coarser(dataset, 4), config, BUDGET), dataset, 4)


def test_between_the_steps_lies_the_finer_truth() -> None:
    """Inputs and targets are one straight line in time; so is what fills it."""
    asked = between(rising(1))
    assert asked.trained.task.time_spec.step == 4 * MILLISECOND
    truth, observed = asked.truth()
    past, horizon = asked.trained.task.time_spec.past, asked.trained.task.time_spec.horizon
    assert observed.all() and truth.shape[1] == 4 * horizon
    inputs = asked.inputs()
    slope = (inputs[:, -1] - inputs[:, 0]) / (4 * (past - 1))  # by frame
    lead = np.arange(1, 4 * horizon + 1)[:, None, None]
    np.testing.assert_allclose(truth, inputs[:, -1:] + slope[:, None] * lead, atol=1e-6)
    for how in ("linear", "cubic"):
        np.testing.assert_allclose(asked.filled(truth, how), truth, atol=1e-6)


def test_a_spline_reproduces_a_cubic_and_a_straight_line_does_not() -> None:
    asked = between(rising(3))
    truth, _ = asked.truth()
    np.testing.assert_allclose(asked.filled(truth, "cubic"), truth, atol=1e-5)
    straight = asked.filled(truth, "linear")
    np.testing.assert_allclose(straight[:, 3::4], truth[:, 3::4], atol=1e-6)
    assert np.abs(straight - truth).max() > 1e-3


def test_persistence_between_the_steps_errs_by_the_slope() -> None:
    """|e| = slope · lead: the mean over the frames between, and over the frames in step."""
    dataset = rising(1)
    cell = cell_of("persistence", "between")
    found = irregular.measure(cell, dataset, cell.config, BUDGET)
    values = dataset.episodes[0].values
    slope = float(values[1].mean() - values[0].mean())
    leads = np.arange(1, 4 * cell.config.data.horizon + 1)
    off, on = leads[leads % 4 > 0], leads[leads % 4 == 0]
    assert found["between"]["itself"]["mae"] == pytest.approx(slope * off.mean(), rel=1e-4)
    assert found["between"]["itself"]["bias"] == pytest.approx(-slope * off.mean(), rel=1e-4)
    assert found["between"]["ideal linear"]["mae"] < 1e-5
    for level in ("in step", "told", "untold"):  # the newest input, all it sees, is in step
        assert found["odd inputs"][level]["mae"] == pytest.approx(slope * on.mean(), rel=1e-4)


def test_at_the_steps_a_model_says_what_it_says_on_the_coarser_data() -> None:
    dataset = rising(2)
    asked = between(dataset, "linear")
    shifted = tuple(e.between(3, len(e.times)) for e in dataset.episodes)
    coarse = coarser(replace(dataset, episodes=shifted), 4)  # the frames that the windows see
    task = asked.trained.task
    index = [windows[0] for windows in (asked.windows().starts[:1],)]
    assert index == [0]
    field = coarse.episodes[0].between(0, task.time_spec.past)
    wanted = forecast(asked.trained.trained, field).values
    np.testing.assert_allclose(asked.forecast()[0, 3::4], wanted, rtol=1e-4, atol=1e-5)


def test_inputs_out_of_step_come_with_their_true_times() -> None:
    """On a straight line, a model that is told the times interpolates and loses nothing."""
    asked = between(rising(1), "linear")
    regular, told_so, untold = (
        np.abs(asked.forecast(*how) - asked.truth()[0]).mean()
        for how in ((False, True), (True, True), (True, False))
    )
    assert told_so == pytest.approx(regular, abs=2e-3) and untold > 5 * told_so
    lags = [batch.lag.numpy() for _, batch in asked.batches(jitter=True)]
    lag = np.concatenate(lags)
    early = np.arange(1.0 - lag.shape[1], 1.0) - lag
    assert (early[:, -1] == 0).all() and ((early >= 0) & (early < 1)).all()
    assert set(np.unique(4 * early)) == {0.0, 1.0, 2.0, 3.0}


def test_cells_ask_for_half_of_the_labels_everywhere_and_for_any_number_on_some() -> None:
    effort = experiment_budget("small")
    cells = irregular.cells(["wave", "solar-pv"], (), 2, effort)
    kept = {(c.dataset, c.config.data.labels, c.seed) for c in cells if c.model == "stonet"}
    assert {(d, n, s) for d in ("wave", "solar-pv") for n in (6, None) for s in (0, 1)} <= kept
    assert {n for d, n, _ in kept if d == "wave"} == {2, 4, 6, 8, 10, None}
    assert {n for d, n, _ in kept if d == "solar-pv"} == {6, None}
    between = [c for c in cells if c.options["ask"] == "between"]
    assert {(c.dataset, c.model) for c in between} == {
        ("wave", model) for model in ("stonet", "linear", "stgcn")
    }
    assert len({c.name for c in cells}) == len(cells)
    assert len({(c.dataset, c.label, c.seed) for c in cells}) == len(cells)
    assert [c.seed for c in cells if c.model == "linear" and c.dataset == "solar-pv"] == [0]
    with pytest.raises(StonetError, match="lineer"):
        irregular.cells(["wave"], ("lineer",), 1, effort)


def result_of(label: str, seed: int, extra: dict[str, Any], **scores: Any) -> Result:
    cell = experiment_budget("smoke").cell("irregular", "small", label, seed, extra=extra)
    empty: dict[str, Any] = dict(
        key="", config_hash="", data_hash="", commit="c", date="", machine={}, versions={}
    )
    return Result(cell, scores=scores, seconds=0.0, cpu_seconds=0.0, peak_mb=0.0, **empty)


def mae(value: float) -> dict[str, float]:
    return {"mae": value, "rmse": 2 * value, "bias": 0.0}


def results() -> list[Result]:
    missing, few = {"ask": "missing", "labels": None}, {"ask": "labels", "labels": 6}
    lost = {name: [{"share": 0.25} | mae(1.5)] for name in LOSSES}
    odd = {"in step": mae(2.0), "told": mae(2.2), "untold": mae(4.0)}
    filled = {"itself": mae(1.0), "linear": mae(1.3)}
    return [
        result_of("stonet", 0, missing, horizon=12, whole=mae(1.0), **lost),
        result_of("stonet", 1, missing, horizon=12, whole=mae(1.2), **lost),
        result_of("stonet 6 labels", 0, few, horizon=12, whole=mae(1.1)),
        result_of("stonet between", 0, {"ask": "between"}, between=filled, **{"odd inputs": odd}),
    ]


def test_the_table_tells_what_each_loss_costs_the_same_model_and_seed() -> None:
    lines = {(line["ask"], line["level"]): line for line in irregular.table(results())}
    half = lines["labels", 6]
    assert half["change"] == pytest.approx(10) and half["seeds"] == 1  # of seed 0's own error
    assert lines["labels", 12]["change"] == 0 and lines["labels", 12]["mae"] == pytest.approx(1.1)
    quarter = lines["outage", 0.25]
    assert quarter["change"] == pytest.approx((50 + 25) / 2) and quarter["mae_std"] == 0
    assert lines["outage", 0.0]["change"] == 0
    assert lines["between", "linear"]["change"] == pytest.approx(30)
    assert lines["odd inputs", "told"]["change"] == pytest.approx(10)
    assert {line["model"] for line in lines.values()} == {"stonet"}


def test_the_figure_is_drawn_of_what_there_is(tmp_path: Path) -> None:
    irregular.figure(results(), tmp_path / "all.png")
    irregular.figure(results()[2:3], tmp_path / "alone.png")  # nothing to compare with
    irregular.figure([], tmp_path / "none.png")
    assert [path.name for path in tmp_path.iterdir()] == ["all.png"]
