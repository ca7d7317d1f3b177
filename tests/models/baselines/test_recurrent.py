"""Recurrent baselines: cells against their formulas, known layers, sizes, teacher forcing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.contracts import perturb, small_field, small_points, small_task
from torch import Tensor, nn

from stonet.config import load_config
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import Inputs
from stonet.models.baselines.graph_filters import adjacency
from stonet.models.baselines.recurrent import Cell, Recurrent, Stack, forcing_probability
from stonet.models.forecaster import Supervision
from stonet.models.registry import build_model
from stonet.training.fit import fit_run

NODES, NEIGHBOURS, HIDDEN, CHANNELS, EXTRA = 9, 4, 3, 2, 4
NAMES = ["dcrnn", "gcgru", "tgcn"]
Step = Callable[[Tensor, Tensor], Tensor]  # (x, h) to the next h
PEERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyG's own, at import


def made(name: str, *settings: str) -> Recurrent:
    """A small baseline in float64 with perturbed parameters and a calendar."""
    small = (f"baseline.neighbours={NEIGHBOURS}", f"baseline.hidden={HIDDEN}")
    config = load_config(settings=(f"model={name}", "baseline.extras=false", *small, *settings))
    time_spec = TimeSpec(step=3600 * 10**9, past=3, horizon=4, calendar=True)
    model = build_model(config, time_spec, CHANNELS, small_points("plane", NODES))
    assert isinstance(model, Recurrent)
    return perturb(model.double())


def some_inputs(batch: int = 2) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, 3, NODES, CHANNELS + EXTRA), (batch, 4, EXTRA)
    past, calendar = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(past, calendar, CHANNELS)


def forecast(model: Recurrent, inputs: Inputs, supervision: Supervision | None = None) -> Tensor:
    with torch.no_grad():
        return model.forecast_nodes(inputs, model.operators(model.nodes), supervision)


# The formulas with dense matrices, one sample, one gate and one term at a time.


def edges(symmetric: bool) -> np.ndarray:
    points = small_points("plane", NODES).coordinates
    a = np.zeros((NODES, NODES))
    for i in range(NODES):
        distance = np.hypot(*(points - points[i]).T)
        a[i, np.argsort(distance)[1:NEIGHBOURS]] = 1.0
    return np.maximum(a, a.T) if symmetric else a


def filtered(x: Tensor, linear: nn.Linear, terms: list[np.ndarray], gate: int) -> Tensor:
    """sum_k S_k x W_k + b for one of the gates in `linear`."""
    width = x.shape[1]
    rows = slice(gate * HIDDEN, (gate + 1) * HIDDEN)
    result = torch.zeros(NODES, HIDDEN, dtype=torch.float64)
    for k, s in enumerate(terms):
        result += torch.tensor(s) @ x @ linear.weight[rows, k * width : (k + 1) * width].T
    return result if linear.bias is None else result + linear.bias[rows]


def gru_by_terms(cell: Cell, terms: list[np.ndarray]) -> Step:
    def step(x: Tensor, h: Tensor) -> Tensor:
        z, r = (
            torch.sigmoid(
                filtered(x, cell.input_map, terms, g) + filtered(h, cell.state_map, terms, g)
            )
            for g in (0, 1)
        )
        reset = filtered(r * h, cell.reset_map, terms, 0)
        c = torch.tanh(filtered(x, cell.input_map, terms, 2) + reset)
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
    back = a.T / np.maximum(a.T.sum(1), 1)[:, None]  # a point may be the nearest of none
    return gru_by_terms(cell, [np.eye(NODES), out, out @ out, back, back @ back])


def tgcn_step(cell: Cell) -> Step:
    one = np.eye(NODES)
    a = edges(symmetric=True) + one
    scale = np.diag(a.sum(1) ** -0.5)

    def step(x: Tensor, h: Tensor) -> Tensor:
        f = [filtered(x, cell.convolve, [scale @ a @ scale], g) for g in range(3)]
        z, r = (
            torch.sigmoid(f[g] @ cell.input_map[g].T + filtered(h, cell.state_map, [one], g))
            for g in (0, 1)
        )
        reset = (r * h) @ cell.reset_map.weight.T + cell.reset_map.bias
        c = torch.tanh(f[2] @ cell.input_map[2].T + reset)
        return z * h + (1 - z) * c

    return step


STEPS = {"gcgru": gcgru_step, "dcrnn": dcrnn_step, "tgcn": tgcn_step}


@torch.no_grad()
def literal(model: Recurrent, inputs: Inputs, name: str, labels: Tensor | None = None) -> Tensor:
    """The forecast sample by sample; with labels, they are always the decoder's input."""
    encoder, decoder = ([STEPS[name](c) for c in s] for s in (model.encoder, model.decoder))
    result = []
    for b in range(len(inputs.past)):
        states = [torch.zeros(NODES, HIDDEN, dtype=torch.float64) for _ in encoder]
        for x in inputs.past[b]:
            for layer, step in enumerate(encoder):
                x = states[layer] = step(x, states[layer])
        value, sample = torch.zeros(NODES, CHANNELS, dtype=torch.float64), []
        for lead, calendar in enumerate(inputs.calendar[b]):
            x = torch.cat([value, calendar.expand(NODES, -1)], dim=1)
            for layer, step in enumerate(decoder):
                x = states[layer] = step(x, states[layer])
            sample.append(x @ model.readout.weight.T + model.readout.bias)
            value = sample[-1] if labels is None else labels[b, lead]
        result.append(torch.stack(sample))
    return torch.stack(result)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_forecast_equals_the_formula(name: str) -> None:
    model, inputs = made(name), some_inputs()
    same(forecast(model, inputs), literal(model, inputs, name))


@pytest.mark.parametrize("name", NAMES)
def test_with_every_target_forced_the_forecast_equals_the_formula(name: str) -> None:
    model, inputs = made(name), some_inputs()
    supervision = supervision_of(ALWAYS)
    same(forecast(model, inputs, supervision), literal(model, inputs, name, supervision.target))


# Known layers of other packages.


def edge_index(nodes: int = NODES) -> Tensor:
    a = adjacency(small_points("plane", nodes), NEIGHBOURS).tocoo()
    return torch.tensor(np.stack([a.col, a.row]))  # source, target


@PEERS
def test_the_filter_of_gcgru_equals_chebconv() -> None:
    peers = pytest.importorskip("torch_geometric.nn")
    model, x = made("gcgru"), some_inputs().past[:, 0].transpose(0, 1)
    cell = model.encoder[0]
    conv = peers.ChebConv(x.shape[-1], 3 * HIDDEN, K=3, normalization="sym").double()
    with torch.no_grad():
        for k, lin in enumerate(conv.lins):
            lin.weight.copy_(cell.input_map.weight[:, k * x.shape[-1] : (k + 1) * x.shape[-1]])
        conv.bias.copy_(cell.input_map.bias)
        gates = cell.input_map(cell.convolve(x, model.operators(model.nodes)))
        for b in range(x.shape[1]):
            same(gates[:, b], conv(x[:, b], edge_index(), lambda_max=torch.tensor(2.0)))


@PEERS
def test_the_convolution_of_tgcn_equals_gcnconv() -> None:
    peers = pytest.importorskip("torch_geometric.nn")
    model, x = made("tgcn"), some_inputs().past[0, 0]
    theta, operator = model.encoder[0].convolve, model.operators(model.nodes)
    conv = peers.GCNConv(x.shape[-1], 3 * HIDDEN).double()
    with torch.no_grad():
        conv.lin.weight.copy_(theta.weight)
        conv.bias.copy_(theta.bias)
        same(theta(operator(x)), conv(x, edge_index()))


def gru_of(cells: nn.ModuleList, operators: Any, name: str) -> nn.GRU:
    """torch.nn.GRU with the weights of cells on a graph without edges."""
    gru = nn.GRU(CHANNELS + EXTRA, HIDDEN, num_layers=len(cells)).double()
    for layer, cell in enumerate(cells):
        if name == "tgcn":
            prepared = cell.prepare(operators)
            weight, bias = prepared.weight, prepared.bias
        else:  # the term of the point itself is the first
            inputs = CHANNELS + EXTRA if layer == 0 else HIDDEN
            weight, bias = cell.input_map.weight[:, :inputs], cell.input_map.bias
        z, r, c = weight.split(HIDDEN)
        z_bias, r_bias, c_bias = bias.split(HIDDEN)
        state, reset = cell.state_map, cell.reset_map
        for linear in (state, reset):
            if linear.bias is None:
                linear.bias = nn.Parameter(torch.zeros(linear.weight.shape[0]).double())
        z_state, r_state = state.weight[:, :HIDDEN].split(HIDDEN)
        z_more, r_more = state.bias.split(HIDDEN)
        parts = {
            "weight_ih": torch.cat([r, z, c]),
            "bias_ih": torch.cat([r_bias, z_bias, c_bias + reset.bias]),
            "weight_hh": torch.cat([r_state, z_state, reset.weight[:, :HIDDEN]]),
            "bias_hh": torch.cat([r_more, z_more, torch.zeros(HIDDEN).double()]),
        }
        for key, value in parts.items():
            getattr(gru, f"{key}_l{layer}").data.copy_(value)
    return gru


@pytest.mark.parametrize("name", NAMES)
def test_without_edges_a_model_is_a_gru_at_every_point(name: str) -> None:
    """torch resets V h, the papers reset h: equal for diagonal V."""
    two_terms = () if name == "tgcn" else ("baseline.order=2",)
    model = made(name, "baseline.neighbours=1", *two_terms)
    with torch.no_grad():
        for cell in model.encoder:
            own = cell.reset_map.weight[:, :HIDDEN]
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


# Numbers of parameters.


def parameters(name: str, *settings: str) -> int:
    config = load_config(settings=(f"model={name}", "baseline.extras=false", *settings))
    time_spec = TimeSpec(step=10**9, past=12, horizon=12, calendar=False)
    model = build_model(config, time_spec, 1, small_points("sphere", 2048))
    return sum(p.numel() for p in model.parameters())


def test_legacy_sizes_are_those_of_the_published_benchmark() -> None:
    """There encoder and decoder share cells, K = 1, and DCRNN has two matrices for k = 0."""
    legacy = ("baseline.legacy=true", "baseline.order=1")
    assert parameters("tgcn", "baseline.legacy=true") == 247_809
    assert parameters("gcgru", *legacy) == 37_889
    assert parameters("dcrnn", *legacy) + 3 * 64 * (65 + 128) == 74_561


def test_default_sizes_have_two_stacks_and_three_terms() -> None:
    readout = 64 + 1
    assert parameters("tgcn") == 2 * (247_809 - 129) + 129
    more = 2 * 3 * 64 * (65 + 128)  # matrices for k = 1, 2
    assert parameters("gcgru") == 2 * (37_889 - readout + more) + readout
    more = 4 * 3 * 64 * (65 + 128)  # in both directions
    assert parameters("dcrnn") == 2 * (37_505 - readout + more) + readout
    assert parameters("dcrnn", "baseline.hidden=5", "baseline.layers=1") == 2 * (15 * 30 + 15) + 6


# Teacher forcing.


def supervision_of(draws: list[float], progress: float = 0.0, seed: int = 1) -> Supervision:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(2, 4, NODES, CHANNELS, generator=generator, dtype=torch.float64)
    mask = torch.ones_like(target, dtype=torch.bool)
    return Supervision(target, mask, progress, torch.tensor(draws))


ALWAYS, NEVER, EVEN = [0.0] * 4, [1.0] * 4, [0.5] * 4  # draws: a target below the probability


def test_the_probability_of_targets_decreases_within_the_training() -> None:
    probabilities = [forcing_probability(share) for share in np.linspace(0, 1, 21)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > 0.98 and forcing_probability(0.25) == 0.5
    assert forcing_probability(0.6) < 0.02 and probabilities[-1] < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_targets_that_are_not_drawn_have_no_influence(name: str) -> None:
    model, inputs = made(name), some_inputs()
    alone = forecast(model, inputs)
    assert torch.equal(forecast(model, inputs, supervision_of(NEVER)), alone)
    assert torch.equal(forecast(model, inputs, supervision_of(EVEN, progress=0.6)), alone)
    assert not torch.equal(forecast(model, inputs, supervision_of(EVEN, progress=0.2)), alone)


@pytest.mark.parametrize("name", NAMES)
def test_a_target_influences_later_leads_only(name: str) -> None:
    model, inputs, supervision = made(name), some_inputs(), supervision_of(ALWAYS)
    before = forecast(model, inputs, supervision)
    for lead in range(4):
        target = supervision.target.clone()
        target[:, lead] += 1.0
        after = forecast(model, inputs, replace(supervision, target=target))
        changed = (after != before).flatten(2).any(-1).any(0)
        assert changed.tolist() == [later > lead for later in range(4)]


def test_each_draw_decides_about_one_target() -> None:
    """Only the second target is drawn: it influences leads 3 and 4."""
    model, inputs = made("gcgru"), some_inputs()
    supervision = supervision_of([1.0, 0.0, 1.0, 1.0])
    mixed, alone = forecast(model, inputs, supervision), forecast(model, inputs)
    assert torch.equal(mixed[:, :2], alone[:, :2])
    assert not torch.isclose(mixed[:, 2:], alone[:, 2:]).all()
    target = supervision.target.clone()
    target[:, [0, 2, 3]] = 99.0
    assert torch.equal(forecast(model, inputs, replace(supervision, target=target)), mixed)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_target_is_replaced_by_the_forecast(name: str) -> None:
    model, inputs, supervision = made(name), some_inputs(), supervision_of(ALWAYS)
    alone = forecast(model, inputs)
    same(forecast(model, inputs, replace(supervision, target=alone)), alone)
    none = torch.zeros_like(supervision.mask)
    assert torch.equal(forecast(model, inputs, replace(supervision, mask=none)), alone)
    some = torch.rand(supervision.mask.shape, generator=torch.Generator().manual_seed(2)) < 0.5
    partly = forecast(model, inputs, replace(supervision, mask=some))
    filled = torch.where(some, supervision.target, partly)
    same(forecast(model, inputs, replace(supervision, target=filled)), partly)


def test_training_is_reproducible_to_the_last_bit() -> None:
    settings = "model=dcrnn", "baseline.hidden=4", "train.epochs=1", "train.steps=3"
    one, again = (
        fit_run(small_task(small_field(nodes=8), *settings), None, False, lambda _: None)
        for _ in range(2)
    )
    assert one[1].history == again[1].history
    weights = again[0].model.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in one[0].model.state_dict().items())
