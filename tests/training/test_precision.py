"""bf16 is used in matrix products of training steps only; weights, sums and loss are float32."""

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
from stonet.training import trainer as trainer_module
from stonet.training.loss import Sums, error_sums
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

CPU = torch.device("cpu")
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("network.anchor=linear",),
    "two layers": ("network.layers=2", "graph.levels=1"),
    "paper": ("model=stonet-paper",),
    "separable": ("model=stonet-paper", "paper.separable=true", "paper.indices=merged"),
    "ode": ("model=stonet-paper", "paper.decoder=ode", "paper.terms=1"),
    "operator": ("model=stonet-operator",),
}
BASELINES = ("agcrn", "astgcn", "clcrn", "dcrnn", "stgcn", "tgcn")  # every kind of layer


def fit(precision: str, *settings: str) -> tuple[TrainedModel, State]:
    short = f"train.precision={precision}", "train.epochs=3", "train.lr=1e-3"
    task = Task.of(small_dataset(), quick(*short, *settings))
    trained = TrainedModel.untrained(task)
    return trained, Trainer(trained, task).fit()


@pytest.mark.parametrize(
    "settings", [*VARIANTS.values(), *((f"model={name}",) for name in BASELINES)], ids=str
)
def test_losses_in_bf16_are_close_to_those_in_float32(settings: tuple[str, ...]) -> None:
    (exact, expected), (rounded, state) = (fit(p, *settings) for p in ("float32", "bf16"))
    close = {"rel": 0.02, "abs": 3e-3}  # of a field of unit variance
    for one, other in zip(expected.history[1:], state.history[1:], strict=True):
        assert other["train"] == pytest.approx(one["train"], **close)
        assert other["validation"] == pytest.approx(one["validation"], **close)
    weights = rounded.model.state_dict()
    for name, value in exact.model.state_dict().items():
        assert weights[name].dtype == value.dtype
    assert state.history != expected.history  # the arithmetic does differ


def test_the_loss_and_the_validation_are_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    autocast_enabled: list[bool] = []

    def sums(*arguments: Any) -> Sums:
        result = error_sums(*arguments)
        autocast_enabled.append(torch.is_autocast_enabled("cpu"))
        assert {part.dtype for part in result} == {torch.float32}
        return result

    monkeypatch.setattr(trainer_module, "error_sums", sums)
    task = Task.of(small_dataset(), quick("train.precision=bf16", "train.epochs=1"))
    trained = TrainedModel.untrained(task)
    state = Trainer(trained, task).fit()
    assert autocast_enabled == [False] * 3
    exact = Task.of(small_dataset(), quick())
    other = Trainer(TrainedModel.untrained(exact), exact)
    other.prepare()
    other.model.load_state_dict(trained.model.state_dict())
    assert other._validate() == state.best


@pytest.mark.parametrize("name", VARIANTS)
def test_sums_over_neighbours_are_exact_under_autocast(name: str) -> None:
    """Only matrix products are in bf16: forecasts differ by their rounding."""
    task = Task.of(small_dataset(), quick(*VARIANTS[name]))
    model = stirred(fitted_run(task).model)
    batch, graphs = task.windows("train").inputs(np.arange(4)), model.graphs(task.nodes)
    exact = model(batch, graphs).forecast
    with autocast("bf16", CPU):
        rounded = model(batch, graphs).forecast
    assert torch.equal(model(batch, graphs).forecast, exact)  # autocast has ended
    error = (rounded - exact).abs().max() / exact.abs().max()
    assert 0 < error < 0.03
    with autocast("float32", CPU):
        assert torch.equal(model(batch, graphs).forecast, exact)


def test_in_float32_widens_its_arguments_and_disables_autocast() -> None:
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


def test_an_unsupported_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"train.precision = 'float16'.*'float32' or 'bf16'"):
        make_config({"train": {"precision": "float16"}})
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: False)
    with pytest.raises(UsageError, match=r"bf16.*train\.precision=float32"):
        check_precision("bf16", torch.device("cuda"))
    check_precision("float32", torch.device("cuda"))
    check_precision("bf16", CPU)
