"""Convolutional baselines: each against its formula in dense loops, and what of the past they see."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from helpers.contracts import BATTERY, Case, small_field, small_points, small_task, stirred
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from stonet.config import load_config
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.base import GridForecaster, Inputs
from stonet.models.baselines.convolutional import ConvBlock, stretches
from stonet.models.baselines.graph_filters import adjacency, chebyshev
from stonet.models.forecaster import Supervision
from stonet.models.registry import build_model
from stonet.training.fit import fit_run

NODES, NEIGHBOURS, HIDDEN, CHANNELS, EXTRA, HORIZON = 9, 4, 3, 2, 4, 5
NAMES = ["astgcn", "mstgcn", "stgcn"]
PLACES = {"plane": ("plane", 1), "sphere, two channels": ("sphere", 2)}
PEERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyG's own, at import


def made(name: str, *settings: str, past: int = 6, nodes: int = NODES) -> GridForecaster:
    """A small baseline in float64, no parameter at rest, with a calendar."""
    small = (f"baseline.neighbours={NEIGHBOURS}", f"baseline.hidden={HIDDEN}")
    config = load_config(settings=(f"model={name}", "baseline.past=99", *small, *settings))
    time_spec = TimeSpec(step=3600 * 10**9, past=past, horizon=HORIZON, calendar=True)
    model = build_model(config, time_spec, CHANNELS, small_points("plane", nodes))
    assert isinstance(model, GridForecaster)
    return stirred(model.double())


def some_inputs(past: int = 6, batch: int = 2, nodes: int = NODES) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, past, nodes, CHANNELS + EXTRA), (batch, HORIZON, EXTRA)
    values, time_spec = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(values, time_spec, CHANNELS)


def rolled(model: GridForecaster, inputs: Inputs, supervision: Supervision | None = None) -> Tensor:
    with torch.no_grad():
        return model.roll(inputs, model.operators(model.nodes), supervision)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@cache
def case_of(name: str, place: str) -> Case:
    settings = (f"model={name}", "baseline.hidden=16", "baseline.neighbours=6")
    return Case.of(small_field(*PLACES[place]), *settings, relabels=name == "mstgcn")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("truth", BATTERY, ids=lambda truth: truth.__name__)
def test_convolutional_rivals_keep_the_promises(truth, name: str, place: str) -> None:
    truth(case_of(name, place))


# Slow and literal: one sample, dense matrices, one step and one term at a time.


def scaled_laplacian(normalised: bool) -> Tensor:
    points = small_points("plane", NODES).coordinates
    a = np.zeros((NODES, NODES))
    for i in range(NODES):
        nearest = np.argsort(np.hypot(*(points - points[i]).T))[1:NEIGHBOURS]
        a[i, nearest] = a[nearest, i] = 1.0
    degree = np.diag(a.sum(1))
    if not normalised:
        laplacian = degree - a
        return torch.tensor(2 * laplacian / np.linalg.eigvalsh(laplacian)[-1] - np.eye(NODES))
    root = np.diag(np.diag(degree) ** -0.5)
    return torch.tensor((np.eye(NODES) - root @ a @ root) - np.eye(NODES))


def filters(normalised: bool) -> list[Tensor]:
    scaled, eye = scaled_laplacian(normalised), torch.eye(NODES).double()
    return [eye, scaled, 2 * scaled @ scaled - eye]


def filtered(x: Tensor, theta: nn.Linear, matrices: list[Tensor]) -> Tensor:
    """sum_k T_k x Theta_k + b at one step."""
    width = x.shape[1]
    terms = [t @ x @ theta.weight[:, k * width : (k + 1) * width].T for k, t in enumerate(matrices)]
    return sum(terms) + theta.bias


def convolved(x: Tensor, at: int, linear: nn.Linear, width: int) -> Tensor:
    """One step of a convolution over time: the taps `at`, `at` + 1, ...; zero where x has none."""
    taps = linear.weight.view(len(linear.bias), -1, width)
    seen = [j for j in range(width) if 0 <= at + j < len(x)]
    return sum(x[at + j] @ taps[:, :, j].T for j in seen) + linear.bias


def gated(x: Tensor, conv: nn.Module) -> Tensor:
    slots = []
    for t in range(len(x) - conv.width + 1):
        p, q, r = convolved(x, t, conv.maps, conv.width).tensor_split(3, dim=-1)
        slots.append(p / (1 + torch.exp(-q)) + r)
    return torch.stack(slots)


def stgcn(model: GridForecaster, x: Tensor) -> Tensor:
    matrices = filters(normalised=True)
    for number, block in enumerate(model.blocks):
        x = x.clamp(min=0) if number else x
        x = gated(x, block.before).clamp(min=0)
        x = torch.stack([filtered(step, block.space, matrices).clamp(min=0) for step in x])
        x = gated(x, block.after) * block.gain.view(-1, 1) + block.bias.view(-1, 1)
    return x[-1]  # the newest slot


def conv_block(block: ConvBlock, x: Tensor, matrices: list[Tensor]) -> Tensor:
    g = torch.stack([filtered(step, block.space, matrices).clamp(min=0) for step in x])
    slots = []
    for centre in range(len(x) - 1, -1, -block.stride):
        y = convolved(g, centre - block.stride, block.time, 2 * block.stride + 1)
        y = (y + x[centre] @ block.residual.weight.T + block.residual.bias).clamp(min=0)
        spread = y.var(1, correction=0, keepdim=True)
        y = (y - y.mean(1, keepdim=True)) / (spread + block.norm.eps).sqrt()
        slots.append(y * block.norm.weight + block.norm.bias)
    return torch.stack(slots[::-1])


def read_out(model: GridForecaster, x: Tensor) -> Tensor:
    """From slot node feature to node packed."""
    width = x.shape[-1]
    weights = model.readout.weight.T
    terms = [x[t] @ weights[t * width : (t + 1) * width] for t in range(len(x))]
    return sum(terms) + model.readout.bias


def mstgcn(model: GridForecaster, x: Tensor) -> Tensor:
    for block in model.blocks:
        x = conv_block(block, x, filters(normalised=False))
    return read_out(model, x)


def attention_of(a: nn.Module, x: Tensor) -> Tensor:
    """The paper's formulas with its layout: X is (node, feature, time)."""
    x = x.permute(1, 2, 0)
    left = torch.tensordot(x, a.u1, dims=([0], [0])).T @ a.u2  # (T, F) (F, N)
    right = torch.stack([a.u3 @ node for node in x])  # (N, T)
    e = (a.ve @ torch.sigmoid(left @ right + a.be)).exp()
    e = e / e.sum(0)
    x = torch.stack([node @ e for node in x])
    left = torch.stack([node @ a.w1 for node in x]) @ a.w2  # (N, F) (F, T)
    right = torch.stack([a.w3 @ node for node in x])
    s = (a.vs @ torch.sigmoid(left @ right.T + a.bs)).exp()
    return s / s.sum(1, keepdim=True)


def astgcn(model: GridForecaster, x: Tensor) -> Tensor:
    for attention, block in zip(model.attentions, model.blocks, strict=True):
        s = attention_of(attention, x)
        x = conv_block(block, x, [t * NODES * s for t in filters(normalised=False)])
    return read_out(model, x)


LITERAL = {"astgcn": astgcn, "mstgcn": mstgcn, "stgcn": stgcn}


@pytest.mark.parametrize("past", [6, 27])  # with a stride of 1, and of 2 and a step left over
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_rival_is_its_formula(name: str, layers: int, past: int) -> None:
    model, inputs = made(name, f"baseline.layers={layers}", past=past), some_inputs(past)
    with torch.no_grad():
        packed = torch.stack([LITERAL[name](model, sample) for sample in inputs.past])
    forecast = torch.empty(2, HORIZON, NODES, CHANNELS).double()
    for lead in range(HORIZON):
        for channel in range(CHANNELS):
            forecast[:, lead, :, channel] = packed[:, :, lead * CHANNELS + channel]
    same(rolled(model, inputs), forecast)


# Known layers of others.


@pytest.mark.parametrize(("width", "stride"), [(1, 1), (3, 1), (3, 2), (5, 2), (4, 3)])
def test_a_map_of_stretches_is_conv1d(width: int, stride: int) -> None:
    x, linear = torch.randn(2, 3, 11, 4).double(), nn.Linear(4 * width, 5).double()
    first = (11 - width) % stride
    sequence = x.flatten(0, 1).transpose(1, 2)[:, :, first:]
    expected = conv1d(sequence, linear.weight.view(5, 4, width), linear.bias, stride)
    same(linear(stretches(x, width, stride)).flatten(0, 1), expected.transpose(1, 2))


def test_the_block_s_convolution_is_the_paper_s_for_twelve_steps() -> None:
    """1 x 3 with a padding of 1 and no stride; a stride widens it so that no step is skipped."""
    assert [made("mstgcn", past=p).blocks[0].stride for p in (1, 6, 12, 24, 48)] == [1, 1, 1, 2, 4]
    block = made("mstgcn", past=12).blocks[1]
    g = torch.randn(NODES, 2, 12, HIDDEN).double()
    kernel = block.time.weight.view(HIDDEN, HIDDEN, 3)
    expected = conv1d(g.flatten(0, 1).transpose(1, 2), kernel, block.time.bias, padding=1)
    ours = block.time(stretches(pad(g, (0, 0, 1, 1)), 3))
    same(ours.flatten(0, 1), expected.transpose(1, 2))


@PEERS
@pytest.mark.parametrize(("name", "kind"), [("stgcn", "sym"), ("mstgcn", None)])
def test_the_filters_are_chebconv(name: str, kind: str | None) -> None:
    peers = pytest.importorskip("torch_geometric.nn")
    model, x = made(name), torch.randn(NODES, HIDDEN).double()
    theta = model.blocks[-1].space
    a = adjacency(model.nodes, NEIGHBOURS)
    largest = 2.0 if kind else np.linalg.eigvalsh(np.diag(a.sum(1)) - a.toarray())[-1]
    conv = peers.ChebConv(HIDDEN, HIDDEN, K=3, normalization=kind).double()
    edges = torch.tensor(np.stack([a.tocoo().col, a.tocoo().row]))
    with torch.no_grad():
        for k, lin in enumerate(conv.lins):
            lin.weight.copy_(theta.weight[:, k * HIDDEN : (k + 1) * HIDDEN])
        conv.bias.copy_(theta.bias)
        expected = conv(x, edges, lambda_max=torch.tensor(largest).double())
        ours = theta(torch.cat(chebyshev(model.operators(model.nodes), x, 3), dim=-1))
        same(ours, expected)


def test_attention_that_prefers_no_node_is_no_attention() -> None:
    """ASTGCN with V_s = 0 is MSTGCN."""
    attentive, plain = made("astgcn", "baseline.layers=2"), made("mstgcn", "baseline.layers=2")
    plain.load_state_dict(attentive.state_dict(), strict=False)
    inputs = some_inputs()
    assert not torch.isclose(rolled(attentive, inputs), rolled(plain, inputs)).all()
    for attention in attentive.attentions:
        nn.init.zeros_(attention.vs)
    same(rolled(attentive, inputs), rolled(plain, inputs))


# What is seen.


@pytest.mark.parametrize("past", [1, 2, 6, 12, 13, 24, 30, 48])
@pytest.mark.parametrize("name", NAMES)
def test_every_lead_sees_the_whole_past(name: str, past: int) -> None:
    """STGCN's convolutions, all equally wide, may leave out the oldest step of an even past."""
    model, inputs = made(name, past=past), some_inputs(past, batch=1)
    values = inputs.past.clone().requires_grad_()
    operators = model.operators(model.nodes)
    forecast = model.roll(Inputs(values, inputs.time_spec, CHANNELS), operators, None)
    for lead in range(HORIZON):
        (slope,) = torch.autograd.grad(forecast[0, lead].sum(), values, retain_graph=True)
        blind = past % 2 == 0 and name == "stgcn"
        seen = slope[0, ..., :CHANNELS].flatten(1).abs().amax(1) > 0
        assert seen.tolist() == [not blind] + [True] * (past - 1)


@pytest.mark.parametrize(("name", "layers"), [("stgcn", 1), ("mstgcn", 1), ("mstgcn", 2)])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_order_is_how_far_a_block_sees(name: str, layers: int, order: int) -> None:
    """K - 1 edges in each block; K = 1 sees no neighbour."""
    nodes = 40
    settings = (f"baseline.layers={layers}", f"baseline.order={order}", "baseline.hidden=8")
    model, inputs = made(name, *settings, nodes=nodes), some_inputs(batch=1, nodes=nodes)
    changed = inputs.past.clone()
    changed[:, :, 0, :CHANNELS] += 1.0
    moved = rolled(model, Inputs(changed, inputs.time_spec, CHANNELS)) - rolled(model, inputs)
    one_edge = np.eye(nodes) + adjacency(model.nodes, NEIGHBOURS).toarray()
    near = np.linalg.matrix_power(one_edge, layers * (order - 1))[0] > 0
    assert 1 <= near.sum() < nodes
    assert ((moved != 0).any(-1).any(1)[0].numpy() == near).all()


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_never_used(name: str) -> None:
    model, inputs = made(name), some_inputs()
    target = torch.full((2, HORIZON, NODES, CHANNELS), 9.0).double()
    supervision = Supervision(
        target, torch.ones_like(target, dtype=torch.bool), 0.0, torch.zeros(HORIZON)
    )
    assert torch.equal(rolled(model, inputs, supervision), rolled(model, inputs))


def test_weights_that_belong_to_nodes_bind_a_rival_to_them() -> None:
    others = small_points("plane", NODES, seed=3)
    for name, bound in (("astgcn", True), ("stgcn", True), ("mstgcn", False)):
        model = made(name)
        assert model.inductive is not bound
        if bound:
            with pytest.raises(UsageError, match=f"{name.upper()} has weights for each of its 9"):
                model.graphs(others)
        else:
            model.graphs(others)


# Parameters, and training.


def parameters(name: str, *settings: str) -> int:
    config = load_config(settings=(f"model={name}", *settings))
    time_spec = TimeSpec(step=10**9, past=12, horizon=12, calendar=False)
    model = build_model(config, time_spec, 1, small_points("sphere", 2048))
    return sum(p.numel() for p in model.parameters())


def test_sizes_are_those_of_the_paper_s_harness() -> None:
    """There K = 1, and a stride of 6 left the readout 2 steps of 12; here it has all of them."""
    steps = (12 - 2) * 64 * 12
    assert parameters("stgcn", "baseline.order=1") == 50_980
    assert parameters("mstgcn", "baseline.order=1") == 76_684 + steps
    assert parameters("astgcn", "baseline.order=1") == 8_407_302 + steps


def test_a_fair_rival_has_two_more_terms() -> None:
    steps = (12 - 2) * 64 * 12
    assert parameters("stgcn") == 50_980 + 2 * 128 * 128
    assert parameters("mstgcn") == 76_684 + steps + 2 * 64 * (1 + 3 * 64)
    assert parameters("astgcn") == 8_407_302 + steps + 2 * 64
    paper = parameters("stgcn", "baseline.layers=2", "baseline.hidden=64")  # widths of 3
    gates = sum(3 * (3 * i * o + o) for i, o in ((1, 64), (64, 64), (64, 64), (64, 12)))
    assert paper == gates + 2 * (3 * 64 * 64 + 64) + 2 * 2 * 2048


@pytest.mark.parametrize("name", NAMES)
def test_an_untrained_rival_on_a_base_is_the_base(name: str) -> None:
    case = Case.of(small_field(), f"model={name}", "baseline.base=ridge")
    model, batch = case.run.model.eval(), case.windows.inputs(np.arange(3))
    assert isinstance(model, GridForecaster) and model.base is not None
    graphs = model.graphs(case.nodes)
    with torch.no_grad():
        forecast = model(batch, graphs).forecast
        torch.testing.assert_close(forecast, model.base(batch, graphs.links.stencil))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_trains_to_the_same_bits(name: str) -> None:
    def trained(seed: int) -> dict[str, Tensor]:
        settings = (f"model={name}", "baseline.hidden=8", f"train.seed={seed}", "train.epochs=1")
        run, _ = fit_run(small_task(small_field(), *settings), None, False, lambda progress: None)
        return run.model.state_dict()

    one, again, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)
