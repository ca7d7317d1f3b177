"""A refit adds the validation part to the training and keeps all that validation has chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.shell import Shell
from helpers.small import quick, small_dataset, small_field

from stonet import STONet, TrainedModel
from stonet.data.field import Dataset
from stonet.linear.fit import fit_linear
from stonet.linear.regression import LinearForecast
from stonet.training.fit import fit_run
from stonet.training.refit import refit_run, settled_by
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.trainer import Progress

SETTINGS = ("train.final=true", "train.fallback=true", "network.anchor=linear")


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(small_dataset(unseen=4), quick(*SETTINGS))


def test_the_validation_part_is_the_end_of_the_training_part(task: Task) -> None:
    joined = task.joined()
    (train,), (validation,), (both,) = (
        task.parts["train"],
        task.parts["validation"],
        joined.parts["train"],
    )
    assert np.array_equal(both.times, np.concatenate([train.times, validation.times]))
    assert joined.parts["test"] == task.parts["test"]
    before, after = (set(t.windows("train").starts.tolist()) for t in (task, joined))
    length = task.time_spec.past + task.time_spec.horizon
    assert before < after and max(after) == len(both.times) - length


def test_complete_episodes_join_too() -> None:
    field = small_field(60)
    later = [replace(field, times=field.times + n * 10**16) for n in range(20)]
    task = Task.of(Dataset(tuple(later), "many"), quick())
    counts = [len(t.parts["train"]) for t in (task, task.joined())]
    assert counts == [14, 14 + len(task.parts["validation"])]


def test_validation_decides_nothing_in_a_refit_of_the_linear_forecast(task: Task) -> None:
    trained = TrainedModel.untrained(task)
    settled, joined = settled_by(task, trained), task.joined()
    bases = [LinearForecast(task.time_spec, 1) for _ in range(2)]
    for base, part in zip(bases, ("validation", "test"), strict=True):
        base.settled = settled
        fit_linear(base, joined.windows("train"), task.windows(part), task.nodes)
    assert settled is not None and torch.equal(bases[0].beta, bases[1].beta)
    assert torch.equal(bases[0].rmse, settled.rmse)
    first = LinearForecast(task.time_spec, 1)
    fit_linear(first, task.windows("train"), task.validation_windows, task.nodes)
    assert first.settled is not None and first.settled[:2] == settled[:2]
    assert not torch.equal(first.beta, bases[0].beta)


def test_the_test_part_decides_nothing(task: Task, tmp_path: Path) -> None:
    field = task.dataset.episodes[0]
    start = len(field.times) - len(task.parts["test"][0].times)
    values = field.values.copy()
    values[start:] = -3 * values[start:] + 100
    other = replace(task.dataset, episodes=(replace(field, values=values, mask=None),))
    made = []
    for dataset in (task.dataset, other):
        model = STONet(settings=quick(*SETTINGS)).fit(dataset)
        made.append((model.trained, model._calibration))
    (one, one_calibration), (two, two_calibration) = made
    ours, theirs = one.model.state_dict(), two.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert one.scaler == two.scaler and one.choices == two.choices
    assert one_calibration is not None and two_calibration is not None
    a, b = one_calibration.corrected.quantiles, two_calibration.corrected.quantiles
    assert np.array_equal(a, b, equal_nan=True)


def test_a_refit_run_says_so_and_keeps_its_calibration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    stonet = Shell(capsys, monkeypatch)
    small_field(200).to_csv("data.csv")
    words = ("fit", "data.csv", "--preset", "tiny", "--set", "train.steps=3", "-o")
    assert stonet(*words, "plain").code == 0
    result = stonet(*words, "run", "--final")
    assert result.code == 0 and "Refit" in result.err
    before, after = RunFolder("plain"), RunFolder("run")
    assert before.read("calibration.json") == after.read("calibration.json")
    assert before.read("model.safetensors") != after.read("model.safetensors")
    assert (
        "refit" in Path("run/README.md").read_text() and TrainedModel.load("run").config.train.final
    )
    assert stonet("predict", "run", "data.csv", "--intervals", "90", "-o", "f.nc").code == 0
    assert "refit" in stonet("evaluate", "run", "--part", "validation").err
    model = STONet.load("run")
    assert model._metrics["refit"]["steps"] == model._metrics["best_step"]


def test_without_a_final_refit_the_model_is_as_before(task: Task) -> None:
    trained, state = fit_run(task, None, False, ignore)
    made, metrics = refit_run(trained, task, state, None)
    assert made.choices == trained.choices and made.time_spec == trained.time_spec
    assert metrics["refit"]["training_windows"] > len(task.windows("train", task.stride))
    again, _ = refit_run(trained, task, state, None)
    ours, theirs = made.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
