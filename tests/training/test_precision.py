"""bf16 is a matter of training steps: what they learn, and all that is exact, stays float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, stirred
from helpers.small import quick, small_dataset

from stonet.config import make_config
from stonet.errors import UsageError
from stonet.system.devices import autocast, check_precision, in_float32
from stonet.training import trainer as training
from stonet.training.loss import Sums, error_sums
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

CPU = torch.device("cpu")
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "ridge": ("network.base=ridge",),
    "joint": ("network.separable=false", "network.terms=2", "network.decoder=literal"),
    "diagonal": ("network.kernel=diag",),
    "no base": ("network.base=none", "network.residual_width=0", "network.window_time=true"),
    "ode": ("network.decoder=ode",),
}
BASELINES = ("agcrn", "astgcn", "clcrn", "dcrnn", "stgcn", "tgcn")  # every kind of layer


def trained(precision: str, *settings: str) -> tuple[TrainedModel, State]:
    short = f"train.precision={precision}", "train.epochs=3"
    task = Task.of(small_dataset(), quick(*short, *settings))
    run = TrainedModel.untrained(task)
    return run, Trainer(run, task).fit()


@pytest.mark.parametrize(
    "settings", [*VARIANTS.values(), *((f"model={name}",) for name in BASELINES)], ids=str
)
def test_bf16_learns_what_float32_does(settings: tuple[str, ...]) -> None:
    (exact, wanted), (run, got) = (trained(p, *settings) for p in ("float32", "bf16"))
    for one, other in zip(wanted.history[1:], got.history[1:], strict=True):
        assert other["train"] == pytest.approx(one["train"], rel=0.02)
        assert other["validation"] == pytest.approx(one["validation"], rel=0.02)
    weights = run.model.state_dict()
    for name, value in exact.model.state_dict().items():
        assert weights[name].dtype == value.dtype
    assert got.history != wanted.history  # it is another arithmetic


def test_the_loss_and_the_validation_are_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def sums(*arguments: Any) -> Sums:
        found = error_sums(*arguments)
        seen.append(torch.is_autocast_enabled("cpu"))
        assert {part.dtype for part in found} == {torch.float32}
        return found

    monkeypatch.setattr(training, "error_sums", sums)
    task = Task.of(small_dataset(), quick("train.precision=bf16", "train.epochs=1"))
    run = TrainedModel.untrained(task)
    trainer = Trainer(run, task)
    state = trainer.fit()
    assert seen == [False] * 3
    plain = Task.of(small_dataset(), quick())
    judge = Trainer(TrainedModel.untrained(plain), plain)
    judge.prepare()
    judge.model.load_state_dict(run.model.state_dict())
    assert judge._validate() == state.best


@pytest.mark.parametrize("name", VARIANTS)
def test_sums_over_neighbours_are_exact_under_autocast(name: str) -> None:
    """Only products of the small networks are in bf16: answers differ by their rounding."""
    task = Task.of(small_dataset(), quick(*VARIANTS[name]))
    model = stirred(fitted_run(task).model)
    batch, graphs = task.windows("train").inputs(np.arange(4)), model.graphs(task.nodes)
    exact = model(batch, graphs).forecast
    with autocast("bf16", CPU):
        rough = model(batch, graphs).forecast
    assert torch.equal(model(batch, graphs).forecast, exact)  # nothing of it stays
    error = (rough - exact).abs().max() / exact.abs().max()
    assert 0 < error < 0.02
    with autocast("float32", CPU):
        assert torch.equal(model(batch, graphs).forecast, exact)


def test_in_float32_widens_what_comes_and_leaves_autocast() -> None:
    product = in_float32(torch.matmul)
    a, b = torch.randn(2, 30, 30)
    low = a.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16
        exact = product(a, other=b)
        assert product(low, b).dtype == torch.float32
    assert torch.equal(exact, a @ b)
    assert product(low, low).dtype == torch.bfloat16  # without autocast it is the function itself
    leaf = a.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = product(leaf, b).sum()
    total.backward()
    torch.testing.assert_close(leaf.grad, b.sum(1).expand(30, 30))


def test_what_is_no_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"train.precision = 'float16'.*'float32' or 'bf16'"):
        make_config({"train": {"precision": "float16"}})
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: False)
    with pytest.raises(UsageError, match=r"this GPU does not support.*train.precision=float32"):
        check_precision("bf16", torch.device("cuda"))
    check_precision("float32", torch.device("cuda"))
    check_precision("bf16", CPU)
