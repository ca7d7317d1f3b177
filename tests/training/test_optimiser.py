"""Muon agrees with its formula, skips bad updates, and is resumed exactly."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.small import quick, small_dataset
from torch import nn

from stonet.config import TrainConfig
from stonet.models.forecaster import Forecaster
from stonet.training.fit import fit_run
from stonet.training.optimiser import Muon, optimisers, orthogonalised
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress

WIDE = ("network.latent=16", "network.rank=16", "network.hidden=16", "train.optimiser=muon")


def by_singular_values(matrix: np.ndarray) -> np.ndarray:
    """Five times x -> 3.4445 x - 4.7750 x^3 + 2.0315 x^5, on singular values in float64."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    s = s / np.sqrt((s**2).sum())
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ vt


@pytest.mark.parametrize("shape", [(16, 16), (64, 20), (17, 90)])
def test_steps_are_those_of_the_formula(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), rng.normal(size=(4, *shape))
    weight = nn.Parameter(torch.from_numpy(start).float())
    muon, expected, momentum = Muon([weight], 0.03, 0.5), start, np.zeros(shape)
    for number, gradient in enumerate(gradients):
        rate = 0.03 / (number + 1)
        muon.param_groups[0]["lr"] = rate
        weight.grad = torch.from_numpy(gradient).float()
        muon.step()
        momentum = 0.95 * momentum + gradient
        update = by_singular_values(gradient + 0.95 * momentum)
        expected = expected * (1 - rate * 0.5) - rate * 0.2 * math.sqrt(max(shape)) * update
        np.testing.assert_allclose(weight.detach().numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("shape", [(128, 128), (64, 512), (512, 64)])
def test_singular_values_become_about_one(shape: tuple[int, int]) -> None:
    """Those above a hundredth of the norm, whatever the scale; directions stay the same."""
    small, generator = min(shape), torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(n, small, generator=generator))[0] for n in shape)
    wanted = torch.linspace(0.2, 1.0, small)
    for scale in (1e-12, 1.0, 1e12):
        result = orthogonalised(scale * (u * wanted) @ v.T)
        along = torch.einsum("ik,ij,jk->k", u, result, v)
        assert float(along.min()) > 0.65 and float(along.max()) < 1.25
        torch.testing.assert_close(result, (u * along) @ v.T, atol=1e-4, rtol=0)
    assert not orthogonalised(torch.zeros(shape)).any()


def test_a_skipped_update_changes_nothing() -> None:
    weight = nn.Parameter(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)))
    muon = Muon([weight], 0.1)
    weight.grad = torch.ones_like(weight)
    muon.step()
    before, momentum = weight.detach().clone(), muon.state[weight]["momentum"].clone()
    weight.grad = torch.full_like(weight, math.nan)
    muon.found_inf = torch.ones(())
    muon.step()
    assert torch.equal(weight, before) and torch.equal(muon.state[weight]["momentum"], momentum)
    muon.found_inf, weight.grad = torch.zeros(()), torch.ones_like(weight)
    muon.step()
    assert not torch.equal(weight, before) and weight.isfinite().all()


class Layers(Forecaster):
    """Weights of several shapes."""

    decay, adam_only = 0.25, ("trunk.", "kernel.0")

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 32)
        self.narrow = nn.Linear(15, 32)
        self.trunk = nn.Linear(16, 16)
        self.kernel = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.cube = nn.Parameter(torch.zeros(16, 16, 16))

    def query_graph(self, *arguments): ...
    def decode(self, *arguments): ...


def names_of(model: nn.Module, optimiser: torch.optim.Optimizer) -> set[str]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for group in optimiser.param_groups for p in group["params"]}


def test_muon_updates_inner_matrices_only() -> None:
    model = Layers()
    muon, adam = optimisers(model, TrainConfig(optimiser="muon", lr=0.5))
    assert isinstance(muon, Muon)
    assert names_of(model, muon) == {"inner.weight", "kernel.1.weight"}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert names_of(model, adam) == trained - names_of(model, muon)
    (one,), (other,) = muon.param_groups, adam.param_groups
    assert one["decay"] == other["weight_decay"] == 0.25 and one["lr"] == other["lr"] == 0.5
    for name in ("adam", "auto"):  # its own is Adam
        (adam,) = optimisers(model, TrainConfig(optimiser=name, decay=0.0))
        assert names_of(model, adam) == trained and adam.param_groups[0]["weight_decay"] == 0
    model.muon = True
    assert len(optimisers(model, TrainConfig())) == 2
    assert optimisers(nn.Module.requires_grad_(model, False), TrainConfig()) == []


def test_a_training_with_muon_is_resumed_exactly(tmp_path: Path) -> None:
    task = Task.of(small_dataset(), quick(*WIDE, "train.decay=0.1"))
    used = optimisers(TrainedModel.untrained(task).model, task.config.train)
    assert isinstance(used[0], Muon) and len(used[0].param_groups[0]["params"]) > 2

    def interrupt(progress: Progress) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    state = fit_run(task, tmp_path / "whole", False, lambda progress: None)[1]
    assert state.best < state.history[0]["validation"] and state.skipped == 0
    with pytest.raises(KeyboardInterrupt):
        fit_run(task, tmp_path / "resumed", False, interrupt)
    fit_run(task, tmp_path / "resumed", True, lambda progress: None)
    one, two = (next(RunFolder(tmp_path / n).states())[1] for n in ("whole", "resumed"))
    assert one == two
