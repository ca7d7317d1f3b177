"""On a GPU nobody waits: a training step reads no number and uses nothing of the host's memory."""

from __future__ import annotations

import traceback
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, small_field, small_task, stirred
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stonet.data.batch import Batch
from stonet.data.field import Field
from stonet.linear.kriging import Covariance
from stonet.models.baselines.clcrn import LocalConvolution
from stonet.models.baselines.graph_filters import Operator
from stonet.training.batches import hide_sensors
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

META = torch.device("meta")  # it has shapes but no numbers: what reads one fails by itself
READS = {  # what a GPU would have to be waited for, besides
    *("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "equal", "is_nonzero"),
    *("masked_select", "_linalg_check_errors", "linalg_solve", "linalg_inv", "repeat_interleave"),
}


class NoWaiting(TorchDispatchMode):
    """Fails at such operations, at tensors of both memories, and at copies that are waited for."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, options = func.overloadpacket.__name__, kwargs or {}
        given = [t for t in tree_leaves((args, options)) if isinstance(t, torch.Tensor)]
        there = any(t.device == META for t in given) or options.get("device") == META
        host = any(t.device != META and t.dim() for t in given)
        if there and name == "_to_copy" and host:
            assert any(f.name == "sent" for f in traceback.extract_stack()), "a copy is waited for"
        elif there:
            assert name not in READS, f"{name} is waited for"
            assert not host, f"{name} takes a tensor from the host's memory"
        return func(*args, **options)


def gappy(field: Field, by_channel: bool = False, irregular: bool = False) -> Field:
    """Some sensors say nothing for long; some times are late."""
    mask, times = field.observed.copy(), field.times.copy()
    mask[::7, ::5] = False
    mask[20:60, 3, : 1 if by_channel else None] = False
    if irregular:
        step = int(times[1] - times[0])
        times = times + np.random.default_rng(0).integers(0, step // 3, len(times))
    return replace(field, mask=mask, times=times)


PLAIN, SPHERE = small_field(), small_field("sphere", 2)
CASES: dict[str, tuple[Field, tuple[str, ...]]] = {
    "default": (PLAIN, ()),
    "no outages": (SPHERE, ("augmentation.hidden_sensors=0.0",)),
    "gaps": (gappy(SPHERE), ("network.frames=3",)),
    "gaps by channel": (gappy(SPHERE, by_channel=True), ()),
    "irregular": (gappy(SPHERE, irregular=True), ("network.terms=2",)),
    "terms": (PLAIN, ("network.terms=2", "network.frames=3")),
    "joint": (PLAIN, ("network.separable=false", "network.terms=2")),
    "joint and irregular": (gappy(SPHERE, irregular=True), ("network.separable=false",)),
    "paper": (
        SPHERE,
        ("network.base=none", "network.window_time=true", "network.residual_width=0"),
    ),
    "diagonal": (PLAIN, ("network.kernel=diag",)),
    "tiles": (gappy(SPHERE), ("train.tile=9",)),
}


class Unmoved:
    """An optimiser that only counts: Adam's own step is PyTorch's matter."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{}]
        self.steps = 0

    def zero_grad(self, set_to_none: bool) -> None:
        pass

    def step(self) -> None:
        self.steps += 1


def on_meta(field: Field, *settings: str) -> Trainer:
    """A trainer as it would be on a GPU: closed forms solved, then all of it moved."""
    task = small_task(field, *settings)
    trainer = Trainer(TrainedModel.untrained(task), task)
    trainer._solve_closed_forms()
    model = trainer.model.to(META)
    if getattr(model, "base", None) is not None:
        for name in Covariance._fields:  # read when a graphs is made, which may wait
            setattr(model.base, name, torch.ones(()))
    if getattr(model, "portraits", None) is not None:
        model.climatology.texture = torch.ones(3)
    trainer.device = trainer.loader.device = META
    trainer.parameters, trainer.late = [p for p in model.parameters() if p.requires_grad], 99
    trainer.optimiser = Unmoved()  # type: ignore[assignment]
    trainer.tiles.prepare()
    return trainer


PATCHED = "host" in {field.name for field in fields(Batch)}
AT_HAND = pytest.mark.skipif(not PATCHED, reason="waits in windows, linear, branch, baselines")


@pytest.mark.parametrize(
    "case", [name if name == "paper" else pytest.param(name, marks=AT_HAND) for name in CASES]
)
def test_a_step_waits_for_nothing(case: str) -> None:
    field, settings = CASES[case]
    trainer = on_meta(field, *settings)
    for number in range(2):
        step_batch = trainer.loader.step_batch(number)
        with NoWaiting():
            trainer.step(step_batch)
    assert trainer.optimiser.steps == len(trainer.told) == 2  # type: ignore[union-attr]
    assert all(p.grad is not None and p.grad.device == META for p in trainer.parameters)


BASELINES = ("agcrn", "astgcn", "clcrn", "dcrnn", "gcgru", "mstgcn", "stgcn", "tgcn")


@AT_HAND
@pytest.mark.parametrize("base", ["none", "ridge"])
@pytest.mark.parametrize("name", BASELINES)
def test_nor_does_a_rivals(name: str, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (Operator, LocalConvolution):  # `meta` has no sparse products
        monkeypatch.setattr(owner, "__call__", lambda self, x: 1.0 * x)
    trainer = on_meta(
        gappy(SPHERE), f"model={name}", f"baseline.base={base}", "augmentation.hidden_sensors=0.2"
    )
    step_batch = trainer.loader.step_batch(0)
    with NoWaiting():
        trainer.step(step_batch)


@AT_HAND
@pytest.mark.parametrize("case", [name for name in CASES if name != "tiles"])
def test_a_batch_with_a_copy_at_hand_is_answered_alike(case: str) -> None:
    field, settings = CASES[case]
    task = small_task(field, *settings)
    model, windows = stirred(fitted_run(task).model), task.windows("train")
    batch = hide_sensors(windows.inputs(np.arange(14, 18)), 0.2, (0, 1))
    graphs = model.graphs(task.nodes)
    alone, both = model(batch, graphs), model(replace(batch, host=batch), graphs)
    assert torch.equal(alone.forecast, both.forecast)
    assert torch.equal(alone.reconstruction, both.reconstruction)


@AT_HAND
def test_silence_is_what_a_look_at_every_window_tells() -> None:
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
    whole = replace(batch, observed=None)
    assert (
        not whole.missing_pattern.some and whole.missing_pattern.same_channels and whole.known.all()
    )
