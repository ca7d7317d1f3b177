"""Recurrent baselines: each cell against its formula in dense loops, and how labels are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.contracts import small_points, stirred
from torch import Tensor, nn

from stonet.config import load_config
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import Inputs
from stonet.models.baselines.graph_filters import adjacency
from stonet.models.baselines.recurrent import Cell, Recurrent, Stack, label_chance
from stonet.models.forecaster import Supervision
from stonet.models.registry import build_model

NODES, NEIGHBOURS, HIDDEN, CHANNELS, EXTRA = 9, 4, 3, 2, 4
NAMES = ["dcrnn", "gcgru", "tgcn"]
Step = Callable[[Tensor, Tensor], Tensor]  # (x, h) to the next h
PEERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyG's own, at import


def made(name: str, *settings: str) -> Recurrent:
    """A small baseline in float64, no parameter at rest, with a calendar."""
    small = (f"baseline.neighbours={NEIGHBOURS}", f"baseline.hidden={HIDDEN}")
    config = load_config(settings=(f"model={name}", *small, *settings))
    time_spec = TimeSpec(step=3600 * 10**9, past=3, horizon=4, calendar=True)
    model = build_model(config, time_spec, CHANNELS, small_points("plane", NODES))
    assert isinstance(model, Recurrent)
    return stirred(model.double())


def some_inputs(batch: int = 2) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, 3, NODES, CHANNELS + EXTRA), (batch, 4, EXTRA)
    past, time_spec = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(past, time_spec, CHANNELS)


def rolled(model: Recurrent, inputs: Inputs, supervision: Supervision | None = None) -> Tensor:
    with torch.no_grad():
        return model.roll(inputs, model.operators(model.nodes), supervision)


# Slow and literal: one sample, dense matrices, one gate and one term at a time.


def edges(symmetric: bool) -> np.ndarray:
    points = small_points("plane", NODES).coordinates
    a = np.zeros((NODES, NODES))
    for i in range(NODES):
        distance = np.hypot(*(points - points[i]).T)
        a[i, np.argsort(distance)[1:NEIGHBOURS]] = 1.0
    return np.maximum(a, a.T) if symmetric else a


def filtered(x: Tensor, linear: nn.Linear, terms: list[np.ndarray], gate: int) -> Tensor:
    """sum_k S_k x W_k + b for one of the gates that `linear` holds side by side."""
    width = x.shape[1]
    rows = slice(gate * HIDDEN, (gate + 1) * HIDDEN)
    result = torch.zeros(NODES, HIDDEN, dtype=torch.float64)
    for k, s in enumerate(terms):
        result += torch.tensor(s) @ x @ linear.weight[rows, k * width : (k + 1) * width].T
    return result if linear.bias is None else result + linear.bias[rows]


def gru_by_terms(cell: Cell, terms: list[np.ndarray]) -> Step:
    def step(x: Tensor, h: Tensor) -> Tensor:
        z, r = (
            torch.sigmoid(filtered(x, cell.see, terms, g) + filtered(h, cell.keep, terms, g))
            for g in (0, 1)
        )
        c = torch.tanh(filtered(x, cell.see, terms, 2) + filtered(r * h, cell.renew, terms, 0))
        return z * h + (1 - z) * c

    return step


def gcgru_step(cell: Cell) -> Step:
    a, eye = edges(symmetric=True), np.eye(NODES)
    scale = np.diag(a.sum(1) ** -0.5)
    l_scaled = 2 * (eye - scale @ a @ scale) / 2 - eye
    return gru_by_terms(cell, [eye, l_scaled, 2 * l_scaled @ l_scaled - eye])


def dcrnn_step(cell: Cell) -> Step:
    a = edges(symmetric=False)
    out = a / a.sum(1)[:, None]
    back = a.T / np.maximum(a.T.sum(1), 1)[:, None]  # nobody may be somebody's nearest
    return gru_by_terms(cell, [np.eye(NODES), out, out @ out, back, back @ back])


def tgcn_step(cell: Cell) -> Step:
    a = edges(symmetric=True) + np.eye(NODES)
    scale = np.diag(a.sum(1) ** -0.5)

    def step(x: Tensor, h: Tensor) -> Tensor:
        f = [filtered(x, cell.convolve, [scale @ a @ scale], g) for g in range(3)]
        z, r = (
            torch.sigmoid(f[g] @ cell.see[g].T + filtered(h, cell.keep, [np.eye(NODES)], g))
            for g in (0, 1)
        )
        c = torch.tanh(f[2] @ cell.see[2].T + (r * h) @ cell.renew.weight.T + cell.renew.bias)
        return z * h + (1 - z) * c

    return step


STEPS = {"gcgru": gcgru_step, "dcrnn": dcrnn_step, "tgcn": tgcn_step}


@torch.no_grad()
def literal(model: Recurrent, inputs: Inputs, name: str, labels: Tensor | None = None) -> Tensor:
    """The whole forecast, sample by sample; with labels, the decoder always sees those."""
    encoder, decoder = ([STEPS[name](c) for c in s] for s in (model.encoder, model.decoder))
    result = []
    for b in range(len(inputs.past)):
        states = [torch.zeros(NODES, HIDDEN, dtype=torch.float64) for _ in encoder]
        for x in inputs.past[b]:
            for layer, step in enumerate(encoder):
                x = states[layer] = step(x, states[layer])
        value, sample = torch.zeros(NODES, CHANNELS, dtype=torch.float64), []
        for lead, time_spec in enumerate(inputs.time_spec[b]):
            x = torch.cat([value, time_spec.expand(NODES, -1)], dim=1)
            for layer, step in enumerate(decoder):
                x = states[layer] = step(x, states[layer])
            sample.append(x @ model.readout.weight.T + model.readout.bias)
            value = sample[-1] if labels is None else labels[b, lead]
        result.append(torch.stack(sample))
    return torch.stack(result)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_a_rival_is_its_formula(name: str) -> None:
    model, inputs = made(name), some_inputs()
    same(rolled(model, inputs), literal(model, inputs, name))


@pytest.mark.parametrize("name", NAMES)
def test_shown_every_label_a_rival_is_its_formula_too(name: str) -> None:
    model, inputs = made(name), some_inputs()
    supervision = a_lesson(teacher_forcing_draws=0.0)
    same(rolled(model, inputs, supervision), literal(model, inputs, name, supervision.target))


# Known layers of others.


def edge_index(nodes: int = NODES) -> Tensor:
    a = adjacency(small_points("plane", nodes), NEIGHBOURS).tocoo()
    return torch.tensor(np.stack([a.col, a.row]))  # source, target


@PEERS
def test_the_filter_of_gcgru_is_chebconv() -> None:
    peers = pytest.importorskip("torch_geometric.nn")
    model, x = made("gcgru"), some_inputs().past[:, 0].transpose(0, 1)
    cell = model.encoder[0]
    conv = peers.ChebConv(x.shape[-1], 3 * HIDDEN, K=3, normalization="sym").double()
    with torch.no_grad():
        for k, lin in enumerate(conv.lins):
            lin.weight.copy_(cell.see.weight[:, k * x.shape[-1] : (k + 1) * x.shape[-1]])
        conv.bias.copy_(cell.see.bias)
        seen = cell.see(cell.spread(x, model.operators(model.nodes)))
        for b in range(x.shape[1]):
            same(seen[:, b], conv(x[:, b], edge_index(), lambda_max=torch.tensor(2.0)))


@PEERS
def test_the_convolution_of_tgcn_is_gcnconv() -> None:
    peers = pytest.importorskip("torch_geometric.nn")
    model, x = made("tgcn"), some_inputs().past[0, 0]
    theta, operator = model.encoder[0].convolve, model.operators(model.nodes)
    conv = peers.GCNConv(x.shape[-1], 3 * HIDDEN).double()
    with torch.no_grad():
        conv.lin.weight.copy_(theta.weight)
        conv.bias.copy_(theta.bias)
        same(theta(operator(x)), conv(x, edge_index()))


def gru_of(cells: nn.ModuleList, operators: Any, name: str) -> nn.GRU:
    """torch's own GRU with the weights that cells have on a graph without edges."""
    gru = nn.GRU(CHANNELS + EXTRA, HIDDEN, num_layers=len(cells)).double()
    for layer, cell in enumerate(cells):
        if name == "tgcn":
            sight = cell.prepare(operators)
            see, bias = sight.weight, sight.bias
        else:  # the term of the point itself stands first
            inputs = CHANNELS + EXTRA if layer == 0 else HIDDEN
            see, bias = cell.see.weight[:, :inputs], cell.see.bias
        z, r, c = see.split(HIDDEN)
        z_bias, r_bias, c_bias = bias.split(HIDDEN)
        keep, renew = cell.keep, cell.renew
        for linear in (keep, renew):
            if linear.bias is None:
                linear.bias = nn.Parameter(torch.zeros(linear.weight.shape[0]).double())
        z_keep, r_keep = keep.weight[:, :HIDDEN].split(HIDDEN)
        z_more, r_more = keep.bias.split(HIDDEN)
        parts = {
            "weight_ih": torch.cat([r, z, c]),
            "bias_ih": torch.cat([r_bias, z_bias, c_bias + renew.bias]),
            "weight_hh": torch.cat([r_keep, z_keep, renew.weight[:, :HIDDEN]]),
            "bias_hh": torch.cat([r_more, z_more, torch.zeros(HIDDEN).double()]),
        }
        for key, value in parts.items():
            getattr(gru, f"{key}_l{layer}").data.copy_(value)
    return gru


@pytest.mark.parametrize("name", NAMES)
def test_without_edges_a_rival_is_a_gru_at_every_point(name: str) -> None:
    """torch gates V h, the papers gate h: where V is diagonal that is the same."""
    two_terms = () if name == "tgcn" else ("baseline.order=2",)
    model = made(name, "baseline.neighbours=1", *two_terms)
    with torch.no_grad():
        for cell in model.encoder:
            own = cell.renew.weight[:, :HIDDEN]
            own.copy_(torch.diag(own.diagonal()))
        operators = model.operators(model.nodes)
        gru = gru_of(model.encoder, operators, name)
        past = some_inputs().past.permute(1, 2, 0, 3)  # past node batch feature
        stack = Stack(model.encoder, operators)
        states = [torch.zeros(NODES, 2, HIDDEN).double()] * 2
        for x in past:
            states = stack(x, states)
        _, last = gru(past.flatten(1, 2))
        same(torch.stack(states).flatten(1, 2), last)


# Parameters.


def parameters(name: str, *settings: str) -> int:
    config = load_config(settings=(f"model={name}", *settings))
    time_spec = TimeSpec(step=10**9, past=12, horizon=12, calendar=False)
    model = build_model(config, time_spec, 1, small_points("sphere", 2048))
    return sum(p.numel() for p in model.parameters())


def test_sizes_are_those_of_the_paper_s_harness() -> None:
    """There encoder and decoder share cells, and K = 1; DCRNN has two matrices for k = 0."""
    legacy = ("baseline.legacy=true", "baseline.order=1")
    assert parameters("tgcn", "baseline.legacy=true") == 247_809
    assert parameters("gcgru", *legacy) == 37_889
    assert parameters("dcrnn", *legacy) + 3 * 64 * (65 + 128) == 74_561


def test_two_stacks_and_three_terms_are_what_a_fair_rival_has_more() -> None:
    readout = 64 + 1
    assert parameters("tgcn") == 2 * (247_809 - 129) + 129
    more = 2 * 3 * 64 * (65 + 128)  # matrices for k = 1, 2
    assert parameters("gcgru") == 2 * (37_889 - readout + more) + readout
    more = 4 * 3 * 64 * (65 + 128)  # in both directions
    assert parameters("dcrnn") == 2 * (37_505 - readout + more) + readout
    assert parameters("dcrnn", "baseline.hidden=5", "baseline.layers=1") == 2 * (15 * 30 + 15) + 6


# Lessons.


def a_lesson(
    teacher_forcing_draws: float | list[float], progress: float = 0.0, seed: int = 1
) -> Supervision:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(2, 4, NODES, CHANNELS, generator=generator, dtype=torch.float64)
    drawn = torch.tensor(
        teacher_forcing_draws
        if isinstance(teacher_forcing_draws, list)
        else [teacher_forcing_draws] * 4
    )
    return Supervision(target, torch.ones_like(target, dtype=torch.bool), progress, drawn)


def test_labels_are_shown_less_and_less_within_the_training() -> None:
    chances = [label_chance(share) for share in np.linspace(0, 1, 21)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.98 and label_chance(0.25) == 0.5
    assert label_chance(0.6) < 0.02 and chances[-1] < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_without_a_chance_labels_have_no_influence(name: str) -> None:
    model, inputs = made(name), some_inputs()
    alone = rolled(model, inputs)
    assert torch.equal(rolled(model, inputs, a_lesson(teacher_forcing_draws=1.0)), alone)
    assert torch.equal(
        rolled(model, inputs, a_lesson(teacher_forcing_draws=0.5, progress=0.6)), alone
    )
    assert not torch.equal(
        rolled(model, inputs, a_lesson(teacher_forcing_draws=0.5, progress=0.2)), alone
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_label_is_seen_only_after_its_lead(name: str) -> None:
    model, inputs, supervision = made(name), some_inputs(), a_lesson(teacher_forcing_draws=0.0)
    before = rolled(model, inputs, supervision)
    for lead in range(4):
        target = supervision.target.clone()
        target[:, lead] += 1.0
        after = rolled(model, inputs, replace(supervision, target=target))
        changed = (after != before).flatten(2).any(-1).any(0)
        assert changed.tolist() == [later > lead for later in range(4)]


def test_each_coin_decides_over_one_label() -> None:
    """Heads at the second lead only: leads 1 and 2 are its own, then that label is known."""
    model, inputs, supervision = (
        made("gcgru"),
        some_inputs(),
        a_lesson(teacher_forcing_draws=[1.0, 0.0, 1.0, 1.0]),
    )
    mixed, alone = rolled(model, inputs, supervision), rolled(model, inputs)
    assert torch.equal(mixed[:, :2], alone[:, :2])
    assert not torch.isclose(mixed[:, 2:], alone[:, 2:]).all()
    target = supervision.target.clone()
    target[:, [0, 2, 3]] = 99.0
    assert torch.equal(rolled(model, inputs, replace(supervision, target=target)), mixed)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_label_is_what_the_decoder_says_itself(name: str) -> None:
    model, inputs, supervision = made(name), some_inputs(), a_lesson(teacher_forcing_draws=0.0)
    alone = rolled(model, inputs)
    same(rolled(model, inputs, replace(supervision, target=alone)), alone)
    none = torch.zeros_like(supervision.mask)
    assert torch.equal(rolled(model, inputs, replace(supervision, mask=none)), alone)
    some = torch.rand(supervision.mask.shape, generator=torch.Generator().manual_seed(2)) < 0.5
    partly = rolled(model, inputs, replace(supervision, mask=some))
    filled = torch.where(some, supervision.target, partly)
    same(rolled(model, inputs, replace(supervision, target=filled)), partly)
