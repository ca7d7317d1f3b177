"""Lost inputs have no influence; times between the steps are those of the full data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.irregular_cells import BUDGET, LOSSES, MILLISECOND, cell_of, rising
from helpers.small import small_dataset

from stonet.data.batch import Batch
from stonet.data.field import Dataset, Field
from stonet.experiments.corruption import (
    BetweenSteps,
    Corruption,
    drop_frames,
    drop_sensors,
    drop_values,
    forecast_in_units,
    subsample,
)
from stonet.inference.forecast import forecast
from stonet.training.budget import TrainingResult, train

EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@pytest.fixture(scope="module", params=["stonet", "stgcn"])
def training(request) -> TrainingResult:
    return train(small_dataset(), cell_of(request.param).config, BUDGET)


def inputs(training: TrainingResult, chosen: np.ndarray) -> Batch:
    task = training.task
    return task.windows("test", task.scoring_stride).inputs(chosen)


def forecast_of(training: TrainingResult, batch: Batch) -> torch.Tensor:
    nodes = training.task.nodes
    return forecast_in_units(training, batch, training.trained.model.eval().graphs(nodes, nodes))


@EVERY_LOSS
def test_a_loss_of_zero_changes_nothing(training: TrainingResult, loss) -> None:
    chosen = np.arange(3)
    batch = inputs(training, chosen)
    torch.testing.assert_close(
        forecast_of(training, loss(0.0)(batch, chosen)), forecast_of(training, batch)
    )


@EVERY_LOSS
def test_lost_values_have_no_influence(training: TrainingResult, loss) -> None:
    """Other values in their place give the same forecast bit by bit."""
    chosen = np.arange(3)
    batch = inputs(training, chosen)
    own = drop_frames(0.0)(batch, chosen)  # gives the frames of each window
    used = own.past.flatten()
    batch = replace(
        batch,
        frames=own.frames[used],
        observed=own.seen[used],
        frame_time=own.frame_time[used],
        past=torch.arange(len(used)).view_as(own.past),
    )
    corrupt: Corruption = loss(0.5)
    left = corrupt(batch, chosen)
    kept = torch.zeros_like(batch.frames, dtype=torch.bool)
    if loss is drop_frames:
        kept[left.past[left.past < len(batch.frames)]] = True
    else:
        kept = left.seen
    assert 0.3 < 1 - kept.float().mean() < 0.7
    changed = replace(batch, frames=torch.where(kept, batch.frames, 9.0 + batch.frames))
    assert torch.equal(forecast_of(training, corrupt(changed, chosen)), forecast_of(training, left))
    assert not torch.equal(forecast_of(training, changed), forecast_of(training, batch))


def missing(batch: Batch) -> torch.Tensor:
    return ~batch.seen[batch.past][..., 0]  # window past node


@pytest.mark.parametrize("loss", [drop_values, drop_sensors], ids=["random", "outage"])
def test_a_larger_share_contains_a_smaller_one_in_every_batch(
    training: TrainingResult, loss
) -> None:
    every = np.arange(4)
    batch = inputs(training, every)
    complete = replace(batch, observed=None)
    little, much = (missing(loss(share)(complete, every)) for share in (0.25, 0.75))
    assert (much | ~little).all() and much.sum() > little.sum()
    assert little.float().mean() == pytest.approx(0.25, abs=0.12)
    alone = loss(0.25)(replace(inputs(training, every[2:3]), observed=None), every[2:3])
    assert torch.equal(missing(alone)[0], little[2])
    if loss is drop_sensors:  # throughout a window, other sensors in the next
        assert (little.all(1) == little.any(1)).all() and not torch.equal(little[0], little[1])


def test_lost_frames_are_forecast_like_a_field_without_these_frames(
    training: TrainingResult,
) -> None:
    """The same through `forecast`: cut out the window and drop the frames."""
    task, chosen = training.task, np.arange(2)
    windows = task.windows("test", task.scoring_stride)
    left = drop_frames(0.5)(windows.inputs(chosen), chosen)
    found = forecast_of(training, left)
    (part,), past = task.parts["test"], task.time_spec.past
    for number in chosen:
        count = past - past // 2
        kept = past - 1 + left.lag[number, -count:].round().long().numpy()
        assert kept[-1] == past - 1 and (np.diff(kept) > 0).all()
        index = windows.starts[number] + kept
        names = ("values", "mask", "times")
        field = Field.trusted(**(vars(part) | {n: vars(part)[n][index] for n in names}))
        wanted = forecast(training.trained, field)
        np.testing.assert_allclose(found[number].numpy(), wanted.values, rtol=1e-5, atol=1e-5)


def between_steps(dataset: Dataset, model: str = "persistence") -> BetweenSteps:
    config = cell_of(model).config
    return BetweenSteps(train(subsample(dataset, 4), config, BUDGET), dataset, 4)


def test_targets_between_the_steps_are_those_of_the_full_data() -> None:
    """Inputs and targets lie on a straight line in time, and so do interpolated values."""
    fine = between_steps(rising(1))
    assert fine.training.task.time_spec.step == 4 * MILLISECOND
    truth, observed = fine.truth()
    past, horizon = fine.training.task.time_spec.past, fine.training.task.time_spec.horizon
    assert observed.all() and truth.shape[1] == 4 * horizon
    inputs = fine.inputs()
    slope = (inputs[:, -1] - inputs[:, 0]) / (4 * (past - 1))  # by frame
    lead = np.arange(1, 4 * horizon + 1)[:, None, None]
    np.testing.assert_allclose(truth, inputs[:, -1:] + slope[:, None] * lead, atol=1e-6)
    for how in ("linear", "cubic"):
        np.testing.assert_allclose(fine.interpolated(truth, how), truth, atol=1e-6)


def test_a_spline_reproduces_a_cubic_and_a_straight_line_does_not() -> None:
    fine = between_steps(rising(3))
    truth, _ = fine.truth()
    np.testing.assert_allclose(fine.interpolated(truth, "cubic"), truth, atol=1e-5)
    straight = fine.interpolated(truth, "linear")
    np.testing.assert_allclose(straight[:, 3::4], truth[:, 3::4], atol=1e-6)
    assert np.abs(straight - truth).max() > 1e-3


def test_forecasts_at_the_steps_are_those_of_the_subsampled_data() -> None:
    dataset = rising(2)
    fine = between_steps(dataset, "linear")
    shifted = tuple(e.between(3, len(e.times)) for e in dataset.episodes)
    coarse = subsample(replace(dataset, episodes=shifted), 4)  # the frames of the windows
    task = fine.training.task
    assert fine.windows().starts[0] == 0
    field = coarse.episodes[0].between(0, task.time_spec.past)
    wanted = forecast(fine.training.trained, field).values
    np.testing.assert_allclose(fine.forecast()[0, 3::4], wanted, rtol=1e-4, atol=1e-5)


def test_irregular_inputs_come_with_their_true_times() -> None:
    """On a straight line, a model that knows the times loses nothing."""
    fine = between_steps(rising(1), "linear")
    regular, true_times, assumed = (
        np.abs(fine.forecast(*how) - fine.truth()[0]).mean()
        for how in ((False, True), (True, True), (True, False))
    )
    assert true_times == pytest.approx(regular, abs=2e-3) and assumed > 5 * true_times
    lags = [batch.lag.numpy() for _, batch in fine.batches(jitter=True)]
    lag = np.concatenate(lags)
    early = np.arange(1.0 - lag.shape[1], 1.0) - lag
    assert (early[:, -1] == 0).all() and ((early >= 0) & (early < 1)).all()
    assert set(np.unique(4 * early)) == {0.0, 1.0, 2.0, 3.0}
