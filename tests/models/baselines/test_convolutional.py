"""Convolutional baselines: formulas in dense loops, known layers, receptive fields, sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.contracts import Case, perturb, small_field, small_points, small_task
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from stonet.config import load_config
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.base import GraphBaseline, Inputs
from stonet.models.baselines.convolutional import ConvBlock, time_windows
from stonet.models.baselines.graph_filters import adjacency, chebyshev
from stonet.models.forecaster import Supervision
from stonet.models.registry import build_model
from stonet.training.fit import fit_run

NODES, NEIGHBOURS, HIDDEN, CHANNELS, EXTRA, HORIZON = 9, 4, 3, 2, 4, 5
VALUES_ONLY = ("baseline.extras=false",)
NAMES = ["astgcn", "mstgcn", "stgcn"]
PEERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyG's own, at import


def made(name: str, *settings: str, past: int = 6, nodes: int = NODES) -> GraphBaseline:
    """A small baseline in float64 with perturbed parameters and a calendar."""
    small = (f"baseline.neighbours={NEIGHBOURS}", f"baseline.hidden={HIDDEN}")
    config = load_config(
        settings=(f"model={name}", "baseline.past=99", *VALUES_ONLY, *small, *settings)
    )
    time_spec = TimeSpec(step=3600 * 10**9, past=past, horizon=HORIZON, calendar=True)
    model = build_model(config, time_spec, CHANNELS, small_points("plane", nodes))
    assert isinstance(model, GraphBaseline)
    return perturb(model.double())


def some_inputs(past: int = 6, batch: int = 2, nodes: int = NODES) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, past, nodes, CHANNELS + EXTRA), (batch, HORIZON, EXTRA)
    values, calendar = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(values, calendar, CHANNELS)


def forecast(
    model: GraphBaseline, inputs: Inputs, supervision: Supervision | None = None
) -> Tensor:
    with torch.no_grad():
        return model.forecast_nodes(inputs, model.operators(model.nodes), supervision)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


# The formulas with dense matrices, one sample, one step and one term at a time.


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
    """One step of a convolution over time: the taps `at`, `at` + 1, ...; zero outside of x."""
    taps = linear.weight.view(len(linear.bias), -1, width)
    inside = [j for j in range(width) if 0 <= at + j < len(x)]
    return sum(x[at + j] @ taps[:, :, j].T for j in inside) + linear.bias


def gated(x: Tensor, conv: nn.Module) -> Tensor:
    slots = []
    for t in range(len(x) - conv.width + 1):
        p, q, r = convolved(x, t, conv.maps, conv.width).tensor_split(3, dim=-1)
        slots.append(p / (1 + torch.exp(-q)) + r)
    return torch.stack(slots)


def stgcn(model: GraphBaseline, x: Tensor) -> Tensor:
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
        variance = y.var(1, correction=0, keepdim=True)
        y = (y - y.mean(1, keepdim=True)) / (variance + block.norm.eps).sqrt()
        slots.append(y * block.norm.weight + block.norm.bias)
    return torch.stack(slots[::-1])


def read_out(model: GraphBaseline, x: Tensor) -> Tensor:
    """From slot node feature to node packed."""
    width = x.shape[-1]
    weights = model.readout.weight.T
    terms = [x[t] @ weights[t * width : (t + 1) * width] for t in range(len(x))]
    return sum(terms) + model.readout.bias


def mstgcn(model: GraphBaseline, x: Tensor) -> Tensor:
    for block in model.blocks:
        x = conv_block(block, x, filters(normalised=False))
    return read_out(model, x)


def attention_of(a: nn.Module, x: Tensor) -> Tensor:
    """The formulas of the paper in its layout: X is (node, feature, time)."""
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


def astgcn(model: GraphBaseline, x: Tensor) -> Tensor:
    for attention, block in zip(model.attentions, model.blocks, strict=True):
        s = attention_of(attention, x)
        x = conv_block(block, x, [t * NODES * s for t in filters(normalised=False)])
    return read_out(model, x)


LITERAL = {"astgcn": astgcn, "mstgcn": mstgcn, "stgcn": stgcn}


@pytest.mark.parametrize("past", [6, 27])  # strides 1 and 2, the latter with a remainder
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_the_forecast_equals_the_formula(name: str, layers: int, past: int) -> None:
    model, inputs = made(name, f"baseline.layers={layers}", past=past), some_inputs(past)
    with torch.no_grad():
        packed = torch.stack([LITERAL[name](model, sample) for sample in inputs.past])
    expected = torch.empty(2, HORIZON, NODES, CHANNELS).double()
    for lead in range(HORIZON):
        for channel in range(CHANNELS):
            expected[:, lead, :, channel] = packed[:, :, lead * CHANNELS + channel]
    same(forecast(model, inputs), expected)


# Known layers of other packages.


@pytest.mark.parametrize(("width", "stride"), [(1, 1), (3, 1), (3, 2), (5, 2), (4, 3)])
def test_a_linear_map_of_time_windows_equals_conv1d(width: int, stride: int) -> None:
    x, linear = torch.randn(2, 3, 11, 4).double(), nn.Linear(4 * width, 5).double()
    first = (11 - width) % stride
    sequence = x.flatten(0, 1).transpose(1, 2)[:, :, first:]
    expected = conv1d(sequence, linear.weight.view(5, 4, width), linear.bias, stride)
    same(linear(time_windows(x, width, stride)).flatten(0, 1), expected.transpose(1, 2))


def test_the_convolution_for_twelve_steps_is_that_of_the_paper() -> None:
    """1 x 3 with a padding of 1 and no stride; larger strides widen it to include every step."""
    assert [made("mstgcn", past=p).blocks[0].stride for p in (1, 6, 12, 24, 48)] == [1, 1, 1, 2, 4]
    block = made("mstgcn", past=12).blocks[1]
    g = torch.randn(NODES, 2, 12, HIDDEN).double()
    kernel = block.time.weight.view(HIDDEN, HIDDEN, 3)
    expected = conv1d(g.flatten(0, 1).transpose(1, 2), kernel, block.time.bias, padding=1)
    ours = block.time(time_windows(pad(g, (0, 0, 1, 1)), 3))
    same(ours.flatten(0, 1), expected.transpose(1, 2))


@PEERS
@pytest.mark.parametrize(("name", "kind"), [("stgcn", "sym"), ("mstgcn", None)])
def test_the_filters_equal_chebconv(name: str, kind: str | None) -> None:
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


def test_uniform_attention_is_no_attention() -> None:
    """ASTGCN with V_s = 0 is MSTGCN."""
    attentive, plain = made("astgcn", "baseline.layers=2"), made("mstgcn", "baseline.layers=2")
    plain.load_state_dict(attentive.state_dict(), strict=False)
    inputs = some_inputs()
    assert not torch.isclose(forecast(attentive, inputs), forecast(plain, inputs)).all()
    for attention in attentive.attentions:
        nn.init.zeros_(attention.vs)
    same(forecast(attentive, inputs), forecast(plain, inputs))


# Receptive fields.


@pytest.mark.parametrize("past", [1, 2, 6, 12, 13, 24, 30, 48])
@pytest.mark.parametrize("name", NAMES)
def test_every_lead_depends_on_the_complete_past(name: str, past: int) -> None:
    """Except that the equal widths of STGCN leave out the oldest step of an even past."""
    model, inputs = made(name, past=past), some_inputs(past, batch=1)
    values = inputs.past.clone().requires_grad_()
    operators = model.operators(model.nodes)
    result = model.forecast_nodes(Inputs(values, inputs.calendar, CHANNELS), operators, None)
    for lead in range(HORIZON):
        (slope,) = torch.autograd.grad(result[0, lead].sum(), values, retain_graph=True)
        without_oldest = past % 2 == 0 and name == "stgcn"
        used = slope[0, ..., :CHANNELS].flatten(1).abs().amax(1) > 0
        assert used.tolist() == [not without_oldest] + [True] * (past - 1)


@pytest.mark.parametrize(("name", "layers"), [("stgcn", 1), ("mstgcn", 1), ("mstgcn", 2)])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_order_limits_the_distance_in_edges(name: str, layers: int, order: int) -> None:
    """K - 1 edges in each block; none with K = 1."""
    nodes = 40
    settings = (f"baseline.layers={layers}", f"baseline.order={order}", "baseline.hidden=8")
    model, inputs = made(name, *settings, nodes=nodes), some_inputs(batch=1, nodes=nodes)
    changed = inputs.past.clone()
    changed[:, :, 0, :CHANNELS] += 1.0
    moved = forecast(model, Inputs(changed, inputs.calendar, CHANNELS)) - forecast(model, inputs)
    one_edge = np.eye(nodes) + adjacency(model.nodes, NEIGHBOURS).toarray()
    near = np.linalg.matrix_power(one_edge, layers * (order - 1))[0] > 0
    assert 1 <= near.sum() < nodes
    assert ((moved != 0).any(-1).any(1)[0].numpy() == near).all()


@pytest.mark.parametrize("name", NAMES)
def test_targets_have_no_influence(name: str) -> None:
    model, inputs = made(name), some_inputs()
    target = torch.full((2, HORIZON, NODES, CHANNELS), 9.0).double()
    supervision = Supervision(
        target, torch.ones_like(target, dtype=torch.bool), 0.0, torch.zeros(HORIZON)
    )
    assert torch.equal(forecast(model, inputs, supervision), forecast(model, inputs))


def test_models_with_weights_per_node_refuse_other_nodes() -> None:
    others = small_points("plane", NODES, seed=3)
    for name, bound in (("astgcn", True), ("stgcn", True), ("mstgcn", False)):
        model = made(name)
        assert model.inductive is not bound
        if bound:
            with pytest.raises(UsageError, match=f"{name.upper()} has weights for each of its 9"):
                model.graphs(others)
        else:
            model.graphs(others)


# Numbers of parameters, and training.


def parameters(name: str, *settings: str) -> int:
    config = load_config(settings=(f"model={name}", *VALUES_ONLY, *settings))
    time_spec = TimeSpec(step=10**9, past=12, horizon=12, calendar=False)
    model = build_model(config, time_spec, 1, small_points("sphere", 2048))
    return sum(p.numel() for p in model.parameters())


def test_sizes_with_one_term_are_those_of_the_published_benchmark() -> None:
    """There K = 1, and the readout has 2 of 12 steps because of a stride of 6; here all of them."""
    steps = (12 - 2) * 64 * 12
    assert parameters("stgcn", "baseline.order=1") == 50_980
    assert parameters("mstgcn", "baseline.order=1") == 76_684 + steps
    assert parameters("astgcn", "baseline.order=1") == 8_407_302 + steps


def test_default_sizes_have_three_terms() -> None:
    steps = (12 - 2) * 64 * 12
    assert parameters("stgcn") == 50_980 + 2 * 128 * 128
    assert parameters("mstgcn") == 76_684 + steps + 2 * 64 * (1 + 3 * 64)
    assert parameters("astgcn") == 8_407_302 + steps + 2 * 64
    paper = parameters("stgcn", "baseline.layers=2", "baseline.hidden=64")  # widths of 3
    gates = sum(3 * (3 * i * o + o) for i, o in ((1, 64), (64, 64), (64, 64), (64, 12)))
    assert paper == gates + 2 * (3 * 64 * 64 + 64) + 2 * 2 * 2048


@pytest.mark.parametrize("name", NAMES)
def test_an_untrained_model_on_a_base_is_the_base(name: str) -> None:
    case = Case.of(small_field(), f"model={name}", "baseline.base=ridge")
    model, batch = case.fitted.eval(), case.windows.inputs(np.arange(3))
    assert isinstance(model, GraphBaseline) and model.base is not None
    graphs = model.graphs(case.nodes)
    with torch.no_grad():
        result = model(batch, graphs).forecast
        torch.testing.assert_close(result, model.base(batch, graphs.queries.stencil))


@pytest.mark.parametrize("name", NAMES)
def test_training_is_reproducible_to_the_last_bit(name: str) -> None:
    def weights(seed: int) -> dict[str, Tensor]:
        settings = (f"model={name}", "baseline.hidden=8", f"train.seed={seed}", "train.epochs=1")
        trained, _ = fit_run(small_task(small_field(), *settings), None, False, lambda _: None)
        return trained.model.state_dict()

    one, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)
