"""Nothing depends on the processor: shapes and types hold on the device `meta`, without values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, small_field, small_task
from helpers.small import quick, small_dataset

from stonet.cli.options import load_run
from stonet.errors import StonetError, UsageError
from stonet.system.devices import backend_for, pick_device, to_device
from stonet.training import trainer as training
from stonet.training.batches import prefetch
from stonet.training.loss import error_sums, masked_loss
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

META = torch.device("meta")


def tensors(thing: Any) -> Iterator[torch.Tensor]:
    if isinstance(thing, torch.Tensor):
        yield thing
    elif is_dataclass(thing):
        for field in fields(thing):
            yield from tensors(getattr(thing, field.name))
    elif isinstance(thing, tuple):
        for part in thing:
            yield from tensors(part)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_a_step_reads_no_values(kind: str) -> None:
    """Forward, loss and backward on `meta`, where reading a value fails."""
    task = small_task(small_field(kind), "model=stonet-paper", "train.tile=9")
    model, windows = TrainedModel.untrained(task).model, task.windows("train")
    batch, (target, mask) = windows.inputs(np.arange(4)), windows.targets(np.arange(4))
    expected = model(batch, model.graphs(task.nodes))
    model.to(META)
    graphs = model.graphs(task.nodes)  # on the device of the model
    tile = model.tile(model.adjacency(task.nodes), np.arange(5))
    for part in (graphs, tile.graphs):
        assert {t.device.type for t in tensors(part)} == {"meta"}
    moved = batch.to(META)
    output = model(moved, graphs)
    assert output.forecast.shape == expected.forecast.shape
    assert output.forecast.dtype == expected.forecast.dtype
    (loss,), _ = masked_loss([error_sums(output, moved, target.to(META), mask.to(META), 0.1)], 0.1)
    loss.backward()
    assert all(p.grad is not None and p.grad.device == META for p in model.parameters())


def test_all_parts_of_a_batch_and_of_graphs_are_moved() -> None:
    task = small_task(small_field("sphere", 2))
    run = fitted_run(task)
    moved = task.windows("train").inputs(np.arange(3)).to(META)
    assert {t.device.type for t in tensors(replace(moved, host=None))} == {"meta"}
    assert {t.device.type for t in tensors(moved.on_host)} == {"cpu"}
    graphs = run.model.graphs(task.nodes)
    model = run.model.double()
    assert {t.dtype for t in tensors(graphs.nodes) if t.is_floating_point()} == {torch.float32}
    graph = model.graphs(task.nodes).nodes
    assert {t.dtype for t in tensors(graph) if t.is_floating_point()} == {torch.float64}


def test_devices_are_chosen_by_availability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match=r"sees no GPU here.*train\.device=auto"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert pick_device("auto") == pick_device("cuda") == torch.device("cuda", 1)
    assert backend_for(pick_device("auto")) == "nccl"
    assert pick_device("cpu") == torch.device("cpu") and backend_for(pick_device("cpu")) == "gloo"
    value = torch.ones(3)
    assert to_device(value, torch.device("cpu")) is value
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(UsageError, match=r"4 processes would share 2 GPU.*train\.device=cpu"):
        pick_device("auto")
    assert pick_device("cpu") == torch.device("cpu")


def test_a_model_is_loaded_to_the_device_of_forecasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFolder(tmp_path).publish(fitted_run(small_task(small_field("sphere", 2))).files({}))
    monkeypatch.setattr("stonet.system.devices.pick_device", lambda requested: META)
    model = load_run(tmp_path).model
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"meta"}
    monkeypatch.setattr("stonet.system.devices.pick_device", pick_device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    model = load_run(tmp_path).model  # two processes, one GPU: forecasts need none
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"cpu"}


def trained(late: int) -> tuple[TrainedModel, Trainer]:
    task = Task.of(small_dataset(), quick())
    run = TrainedModel.untrained(task)
    trainer = Trainer(run, task)
    trainer.loss_delay = late
    trainer.fit()
    return run, trainer


def test_losses_read_late_are_the_same() -> None:
    (soon, at_once), (run, late) = trained(1), trained(20)
    assert late.state == at_once.state and not late.unread
    for one, other in zip(soon.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_bad_steps_read_late_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))

    def loss(*arguments: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
        honest, value = masked_loss(*arguments)
        bad = math.nan if next(calls) % 6 in spoiled else 1.0
        return [part * bad for part in honest], value * bad

    monkeypatch.setattr(training, "masked_loss", loss)
    spoiled = {0, 3, 4}
    (soon, at_once), (run, late) = trained(1), trained(20)
    assert late.state.skipped == 3
    assert replace(late.state, bad=0) == replace(at_once.state, bad=0)
    for one, other in zip(soon.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(one, other) and one.isfinite().all()
    spoiled = {3, 4, 5}
    with pytest.raises(StonetError, match=r"3 steps in a row.*step 5"):
        trained(20)


def test_prefetched_steps_come_in_order_and_errors_are_raised() -> None:
    prepared: list[int] = []

    def make(step: int) -> Any:
        prepared.append(step)
        if step == 4:
            raise StonetError("nothing left")
        return step

    with prefetch(make, 6) as take:
        assert [take(0), take(1), take(3)] == [0, 1, 3]
        with pytest.raises(StonetError, match="nothing left"):
            take(4)
    assert prepared[:2] == [0, 1] and set(prepared) <= {0, 1, 2, 3, 4}
    with prefetch(make, 1) as take:
        assert take(0) == 0
    assert prepared[-1] == 0  # nothing is prepared beyond the last step
