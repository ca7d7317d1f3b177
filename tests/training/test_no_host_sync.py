"""A training step on a GPU never waits: it reads no value back and uses no host tensor."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, small_field, small_task, stirred
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stonet.data.field import Field
from stonet.linear.kriging import Covariance
from stonet.models.baselines.clcrn import LocalConvolution
from stonet.models.baselines.graph_filters import Operator
from stonet.training.batches import hide_sensors
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

META = torch.device("meta")  # tensors without values: reading one fails
READS = {  # operations that wait for a GPU
    *("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "equal", "is_nonzero"),
    *("masked_select", "_linalg_check_errors", "linalg_solve", "linalg_inv", "repeat_interleave"),
}


class NoWaiting(TorchDispatchMode):
    """Fails at such operations, at operands on both devices, and at blocking copies."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, options = func.overloadpacket.__name__, kwargs or {}
        tensors = [t for t in tree_leaves((args, options)) if isinstance(t, torch.Tensor)]
        on_device = any(t.device == META for t in tensors) or options.get("device") == META
        host = any(t.device != META and t.dim() for t in tensors)
        if on_device and name == "_to_copy" and host:
            assert any(f.name == "to_device" for f in traceback.extract_stack()), (
                "a copy is blocking"
            )
        elif on_device:
            assert name not in READS, f"{name} waits for the GPU"
            assert not host, f"{name} has an operand in host memory"
        return func(*args, **options)


def gappy(field: Field, by_channel: bool = False, irregular: bool = False) -> Field:
    """With missing values, a long gap at one sensor and, if `irregular`, shifted times."""
    mask, times = field.observed.copy(), field.times.copy()
    mask[::7, ::5] = False
    mask[20:60, 3, : 1 if by_channel else None] = False
    if irregular:
        step = int(times[1] - times[0])
        times = times + np.random.default_rng(0).integers(0, step // 3, len(times))
    return replace(field, mask=mask, times=times)


PLAIN, SPHERE = small_field(), small_field("sphere", 2)
PAPER, OPERATOR, LINEAR = "model=stonet-paper", "model=stonet-operator", "network.anchor=linear"
CASES: dict[str, tuple[Field, tuple[str, ...]]] = {
    "default": (PLAIN, ()),
    "no hidden sensors": (SPHERE, ("augmentation.hidden_sensors=0.0",)),
    "daily": (small_field("sphere", 1, frames=320), ("data.past=24",)),
    "gaps": (gappy(SPHERE), ()),
    "gaps by channel": (gappy(SPHERE, by_channel=True), ("network.layers=2",)),
    "irregular": (gappy(SPHERE, irregular=True), ("network.dropout=0.1",)),
    "linear": (gappy(SPHERE), (LINEAR,)),
    "linear and irregular": (gappy(SPHERE, irregular=True), (LINEAR,)),
    "paper": (SPHERE, (PAPER,)),
    "paper, joint and irregular": (gappy(SPHERE, irregular=True), (PAPER, "paper.terms=1")),
    "paper frame by frame": (
        gappy(SPHERE),
        (PAPER, "paper.window_time=false", "paper.separable=true", "paper.frames=3"),
    ),
    "paper diagonal": (PLAIN, (PAPER, "paper.kernel=diag")),
    "operator": (gappy(SPHERE), (OPERATOR, "operator.terms=2")),
    "operator and irregular": (gappy(SPHERE, irregular=True), (OPERATOR,)),
    "tiles": (gappy(SPHERE), ("train.tile=9",)),
}


class CountingOptimiser:
    """An optimiser that only counts its steps."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{}]
        self.steps = 0

    def zero_grad(self, set_to_none: bool) -> None:
        pass

    def step(self) -> None:
        self.steps += 1


def on_meta(field: Field, *settings: str) -> Trainer:
    """A trainer as on a GPU: closed forms solved, then everything moved to the device."""
    task = small_task(field, *settings)
    trainer = Trainer(TrainedModel.untrained(task), task)
    trainer._initialise()
    model = trainer.model.to(META)
    for owner in (model, getattr(model, "base", None)):
        for name in Covariance._fields:  # read when graphs are built, which may wait
            if hasattr(owner, name):
                setattr(owner, name, torch.ones(()))
    trainer.device = trainer.loader.device = META
    trainer.parameters = [p for p in model.parameters() if p.requires_grad]
    trainer.loss_delay = 99
    trainer.optimisers = [CountingOptimiser()]  # type: ignore[list-item]
    trainer.tiles.prepare()
    return trainer


@pytest.mark.parametrize("case", CASES)
def test_a_step_does_not_wait_for_the_device(case: str) -> None:
    field, settings = CASES[case]
    trainer = on_meta(field, *settings)
    for number in range(2):
        step_batch = trainer.loader.step_batch(number)
        with NoWaiting():
            trainer.step(step_batch)
    assert trainer.optimisers[0].steps == len(trainer.unread) == 2  # type: ignore[attr-defined]
    gradients = [p.grad for p in trainer.parameters if p.grad is not None]
    assert all(gradient.device == META for gradient in gradients)
    assert len(gradients) == len(trainer.parameters) or trainer.model.skips_weights


BASELINES = ("agcrn", "astgcn", "clcrn", "dcrnn", "gcgru", "mstgcn", "stgcn", "tgcn")


@pytest.mark.parametrize("base", ["none", "ridge"])
@pytest.mark.parametrize("name", BASELINES)
def test_a_step_of_a_baseline_does_not_wait_for_the_device(
    name: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in (Operator, LocalConvolution):  # the meta device has no sparse products
        monkeypatch.setattr(owner, "__call__", lambda self, x: 1.0 * x)
    trainer = on_meta(
        gappy(SPHERE), f"model={name}", f"baseline.base={base}", "augmentation.hidden_sensors=0.2"
    )
    step_batch = trainer.loader.step_batch(0)
    with NoWaiting():
        trainer.step(step_batch)


@pytest.mark.parametrize("case", [name for name in CASES if name != "tiles"])
def test_a_copy_in_host_memory_does_not_change_the_forecast(case: str) -> None:
    field, settings = CASES[case]
    task = small_task(field, *settings)
    model, windows = stirred(fitted_run(task).model), task.windows("train")
    batch = hide_sensors(windows.inputs(np.arange(14, 18)), np.arange(len(task.nodes)) % 5 == 0)
    graphs = model.graphs(task.nodes)
    without, with_copy = model(batch, graphs), model(replace(batch, host=batch), graphs)
    assert torch.equal(without.forecast, with_copy.forecast)
    if without.reconstruction is not None:
        assert torch.equal(without.reconstruction, with_copy.reconstruction)


def test_the_missing_pattern_is_that_of_every_window() -> None:
    windows = small_task(gappy(SPHERE, by_channel=True)).windows("train")
    batch = windows.inputs(np.array([8, 16, 25, 26]))  # the gap begins with frame 20
    assert batch.observed is not None
    known = torch.stack([batch.observed[past].any(0) for past in batch.past])
    moved = batch.to(META)
    for one in (batch, moved, moved.recent(4), batch.recent(4)):
        assert (
            one.on_host.past.device.type == "cpu"
            and one.missing_pattern == one.on_host.missing_pattern
        )
    assert torch.equal(batch.known, known) and moved.known.device == META
    assert moved.missing_pattern.some and not moved.missing_pattern.same_channels
    assert moved.missing_pattern.same_windows == tuple(
        all(torch.equal(k[:, c], known[0, :, c]) for k in known) for c in range(2)
    )
    later = batch.observed[batch.past[:, -2:]].any(1)
    assert torch.equal(batch.recent(2).known, later)
    assert moved.newest(3).host is None  # its frames are others
    complete = replace(batch, observed=None)
    assert not complete.missing_pattern.some and complete.missing_pattern.same_channels
    assert complete.known.all()
