"""Reference forecasts replace a network where validation favours them, in every way of use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.small import HOUR, quick, small_field

from stonet import STONet, Stream, TrainedModel
from stonet.data.field import Dataset
from stonet.errors import ModelFileError
from stonet.evaluation.metrics import find
from stonet.evaluation.scoring import evaluate, reference_forecasts
from stonet.inference.forecast import forecast
from stonet.inference.hindcast import hindcast
from stonet.training.choice import Choice, combine
from stonet.training.fallback import BlockErrors, choose
from stonet.training.fit import fit_run
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task


def noise_dataset() -> Dataset:
    """Values without any memory: the newest value misleads, and so does a network on it."""
    field = small_field(240)
    values = np.random.default_rng(1).normal(size=field.values.shape).astype(np.float32)
    return Dataset((replace(field, values=values, mask=None),), "noise")


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(noise_dataset(), quick("train.fallback=true"))


@pytest.fixture(scope="module")
def trained(task: Task, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("runs") / "noise"
    made = fit_run(task, folder, False, lambda progress: None)[0]
    assert "reference forecast" in (folder / "README.md").read_text(encoding="utf-8")
    loaded = TrainedModel.load(folder)
    assert loaded.choices == made.choices
    ours, theirs = (model.model.state_dict() for model in (made, loaded))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    return loaded


def test_a_reference_replaces_a_network_on_noise(trained: TrainedModel, task: Task) -> None:
    (choice,) = trained.choices
    assert (choice.first_lead, choice.last_lead, choice.share) == (1, 4, 1.0)
    records = evaluate(trained, task, "test", reference_forecasts(trained, task))
    chosen = {"points": "seen", "channel": "t2m", "lead": "all", "metric": "mae"}
    ours, theirs = (find(records, model=m, **chosen) for m in ("stonet", choice.reference))
    assert ours == theirs


def test_all_ways_of_forecasting_use_it(trained: TrainedModel, task: Task, tmp_path: Path) -> None:
    field = task.dataset.episodes[0]
    reference = reference_forecasts(trained, task)[trained.choices[0].reference]
    alone = replace(trained, model=reference, choices=())
    expected = forecast(alone, field).values
    np.testing.assert_array_equal(forecast(trained, field).values, expected)
    stream = Stream(trained)
    for time, values in zip(field.times[-6:], field.values[-6:], strict=True):
        stream.observe(int(time), values)
    np.testing.assert_array_equal(stream.forecast().values, expected)
    hindcast(trained, field, tmp_path / "h.zarr", step=24 * HOUR)
    hindcast(alone, field, tmp_path / "r.zarr", step=24 * HOUR)
    import xarray as xr

    ours, theirs = (xr.open_zarr(tmp_path / name)["t2m"].values for name in ("h.zarr", "r.zarr"))
    np.testing.assert_array_equal(ours, theirs)


def test_the_setting_keeps_the_network() -> None:
    model = STONet(preset="tiny", settings=["train.fallback=false", "train.steps=2"])
    assert not model.fit(noise_dataset()).trained.choices


def test_a_combination_is_the_weighted_mean_of_its_members(task: Task) -> None:
    plain = TrainedModel.untrained(task)
    references = reference_forecasts(plain, task)
    choices = (Choice("t2m", 1, 2, "climatology", 0.5, 1.0, 0.9),)
    model = combine(plain.model.eval(), references, choices, ("t2m",), 4)
    batch = task.windows("train").inputs(np.array([3, 9]))
    ours, network, other = (
        m(batch, m.graphs(task.nodes)).forecast
        for m in (model, plain.model, references["climatology"])
    )
    torch.testing.assert_close(ours[:, :2], (network[:, :2] + other[:, :2]) / 2)
    torch.testing.assert_close(ours[:, 2:], network[:, 2:])


def block_errors(network: float, reference: float, noise: float, leads: int = 1) -> BlockErrors:
    """Mean errors of a network and of one reference; those of the network differ by block."""
    count = np.full((10, leads, 1), 100.0)
    varied = network + noise * np.array([1.0, -1.0] * 5)[:, None, None]
    return BlockErrors(count * varied, {("linear", 1.0): count * reference}, count)


@pytest.mark.parametrize(
    ("network", "reference", "noise", "share"),
    [(1.0, 0.95, 0.01, 1.0), (1.0, 0.97, 0.3, 0.5), (1.0, 0.5, 1.5, 1.0), (1.0, 1.05, 0.3, None)],
)
def test_a_reference_is_used_where_it_is_better_beyond_chance(
    network: float, reference: float, noise: float, share: float | None
) -> None:
    choices = choose(block_errors(network, reference, noise), ("t2m",), (2.0,))
    assert [choice.share for choice in choices] == ([] if share is None else [share])


def test_errors_that_differ_are_averaged() -> None:
    """A reference that is no better may be of use beside the network."""
    errors, count = block_errors(1.0, 1.1, 0.01), np.full((10, 1, 1), 100.0)
    errors.mixed["linear", 0.25] = 0.9 * count
    errors.mixed["linear", 0.5] = 0.95 * count
    (choice,) = choose(errors, ("t2m",), (2.0,))
    assert (choice.share, choice.network_error, choice.reference_error) == (0.25, 2.0, 1.8)


def test_choices_are_made_for_each_quarter_of_the_leads() -> None:
    errors = block_errors(1.0, 1.2, 0.0, leads=4)
    errors.mixed["linear", 1.0][:, 2:] = 50.0
    (choice,) = choose(errors, ("t2m",), (2.0,))
    assert (choice.first_lead, choice.last_lead, choice.reference) == (3, 4, "linear")
    assert (choice.network_error, choice.reference_error) == (2.0, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"reference": "stonet"},
        {"share": 2.0},
        {"last_lead": 99},
        {"channel": "x"},
        {"first_lead": 0},
    ],
)
def test_invalid_choices_of_a_run_folder_are_refused(
    trained: TrainedModel, tmp_path: Path, change: dict[str, object]
) -> None:
    choices = (replace(trained.choices[0], **change),)
    RunFolder(tmp_path).publish(replace(trained, choices=choices).files({}))
    with pytest.raises(ModelFileError, match="choices"):
        TrainedModel.load(tmp_path)
