"""The graph kernel integral: equal to the double loop over edges, and small in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.references import assert_same, balls, graph_kernel, randomise
from torch.nn.functional import gelu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stonet.data.geometry import Points
from stonet.graph import neighbours as neighbours_module
from stonet.graph.neighbours import Neighbours, within_radius
from stonet.operators.graph_kernel import GraphKernel

CPU, F32 = torch.device("cpu"), torch.float32
KINDS = pytest.mark.parametrize("kind", ["full", "diag"])


def scattered(number: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(targets: Points, sources: Points, radius: float = 0.4) -> Neighbours:
    return within_radius(targets, sources, radius).to(CPU, torch.float64)


def example(kernels: int, latent: int = 3, targets: int = 9, sources: int = 11, frames: int = 3):
    """Arguments of the operator, in float64: values, a(x), a(x_j), neighbours."""
    neighbours = connect(scattered(targets), scattered(sources, 1))
    shapes = (frames, sources, latent), (kernels, targets, 2), (kernels, sources, 2)
    tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    return *tensors, neighbours


def operator(kind: str, latent: int = 3, hidden: int = 4, edge: int = 5) -> GraphKernel:
    return randomise(GraphKernel(2, edge, latent, hidden, kind))


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks of neighbours."""
    monkeypatch.setattr(neighbours_module, "BLOCK", 4)


@KINDS
@pytest.mark.parametrize("kernels", [1, 3], ids=["shared", "per-frame"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("workspace", [60, 100, 2**20])
def test_equals_the_double_loop_in_value_and_gradient(
    kind, kernels, missing, workspace, small_blocks
):
    *tensors, neighbours = example(kernels)
    assert len(neighbours.blocks) == 3
    present = None
    if missing:
        present = torch.rand(3, 11) < 0.6
        present[1, [j for j, _ in balls(neighbours)[0]]] = False  # a ball without any value
    module = operator(kind)
    module.workspace = workspace
    wanted = [*tensors, *module.parameters()]
    actual = module(*tensors, neighbours, present)
    assert_same(actual, graph_kernel(module, *tensors, neighbours, present), wanted)


@KINDS
@pytest.mark.parametrize("sizes", [{"latent": 1}, {"frames": 1}, {"targets": 1}, {"sources": 1}])
def test_sizes_of_one_are_handled(kind, sizes, small_blocks):
    *tensors, neighbours = example(1, **sizes)
    module = operator(kind, sizes.get("latent", 3))
    module.workspace = 100
    expected = graph_kernel(module, *tensors, neighbours)
    assert_same(module(*tensors, neighbours), expected, [*tensors, *module.parameters()])


@KINDS
def test_a_kernel_without_edge_inputs_ignores_edge_features(kind):
    *tensors, neighbours = example(1)
    module = operator(kind, edge=0)
    expected = graph_kernel(module, *tensors, neighbours)
    wanted = [*tensors, *(p for p in module.parameters() if p.numel())]
    assert_same(module(*tensors, neighbours), expected, wanted)


@KINDS
def test_a_missing_neighbour_has_the_effect_of_a_removed_one(kind):
    values, target, source, neighbours = example(1)
    kept = np.flatnonzero(np.arange(11) % 3 != 0)
    gone = torch.ones(3, 11, dtype=torch.bool)
    gone[:, ::3] = False
    module = operator(kind)
    masked = module(values, target, source, neighbours, gone)
    fewer = connect(scattered(9), scattered(11, 1).take(kept))
    removed = module(values[:, kept], target, source[:, kept], fewer)
    certain = torch.tensor([any(j % 3 for j, _ in ball) for ball in balls(neighbours)])
    assert certain.sum() >= 7  # the others use their nearest remaining node
    torch.testing.assert_close(masked[:, certain], removed[:, certain], rtol=1e-12, atol=1e-12)


@KINDS
@pytest.mark.parametrize("absurd", [1e30, float("inf"), float("nan")])
def test_a_masked_value_has_no_influence(kind, absurd):
    values, target, source, neighbours = example(3)
    present = torch.rand(3, 11) < 0.5
    module = operator(kind)
    spoilt = values.detach().clone()
    spoilt[~present] = absurd
    spoilt.requires_grad_()
    results = []
    for v in (values, spoilt):
        out = module(v, target, source, neighbours, present)
        results.append([out, *torch.autograd.grad(out.sum(), [v, *module.parameters()])])
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)


@KINDS
def test_is_linear_in_the_values(kind):
    v, target, source, neighbours = example(1)
    w = torch.randn_like(v)
    module = operator(kind)
    combined = module(2 * v - 3 * w, target, source, neighbours)
    parts = [module(part, target, source, neighbours) for part in (v, w)]
    torch.testing.assert_close(combined, 2 * parts[0] - 3 * parts[1], rtol=1e-10, atol=1e-10)


@KINDS
def test_gradients_do_not_depend_on_earlier_calls(kind):
    """Temporary arrays are reused: inference or another precision in between leaves no trace."""
    *tensors, neighbours = example(3)
    module = operator(kind)
    before = torch.autograd.grad(module(*tensors, neighbours).square().sum(), tensors)
    with torch.inference_mode():
        single = operator(kind, latent=5).float()
        single(torch.randn(3, 11, 5), *(t.float() for t in tensors[1:]), neighbours.to(CPU, F32))
        module(*(1e3 * t for t in tensors), neighbours)
    after = torch.autograd.grad(module(*tensors, neighbours).square().sum(), tensors)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_diagonal_kernel_is_a_full_kernel_with_diagonal_matrices():
    *tensors, neighbours = example(3)
    diag, full = operator("diag"), operator("full")
    full.load_state_dict(diag.state_dict() | {k: full.state_dict()[k] for k in ("weight", "bias")})
    with torch.no_grad():
        spread = torch.einsum("hd,de->dhe", diag.weight, torch.eye(3, dtype=torch.float64))
        full.weight.copy_(spread.reshape(12, 3))
        full.bias.copy_(torch.diag(diag.bias))
    torch.testing.assert_close(full(*tensors, neighbours), diag(*tensors, neighbours))


class Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation creates."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.elements = max([self.elements, *made])
        return result


@KINDS
@pytest.mark.parametrize("kernels", [1, 4], ids=["shared", "per-frame"])
def test_no_matrix_per_edge_is_stored(kind, kernels):
    latent, frames = 16, 4
    points = scattered(300)
    neighbours = within_radius(points, points, 0.16)
    edges = int(neighbours.count.sum())
    values = torch.randn(frames, 300, latent, requires_grad=True)
    seen = torch.randn(kernels, 300, 2)
    module = GraphKernel(2, 5, latent, 8, kind)
    with Largest() as largest:
        module(values, seen, seen, neighbours).sum().backward()
    assert largest.elements < edges * latent * latent  # of one frame; there are several
    padded = sum(block.index.numel() for block in neighbours.blocks)
    outer = 256 * frames * latent * 8  # sum_j h (x) v of a block
    assert largest.elements <= max(padded * frames * latent, outer)


def test_the_largest_tensor_is_recorded():
    with Largest() as largest:
        (torch.zeros(20, 1) * torch.zeros(1, 30)).sum()
    assert largest.elements == 600


def test_equals_the_edge_conditioned_convolution_of_pyg():
    """On one level, with the weight of the node itself, it is NNConv."""
    NNConv = pytest.importorskip("torch_geometric.nn").NNConv
    d, hidden, points = 3, 4, scattered(12)
    module = operator("full", d, hidden)
    neighbours = connect(points, points)
    values = torch.randn(1, 12, d, dtype=torch.float64, requires_grad=True)
    seen = torch.randn(1, 12, 2, dtype=torch.float64)
    own = torch.nn.Linear(d, d).double()

    first, last = torch.nn.Linear(9, hidden), torch.nn.Linear(hidden, d * d)
    conv = NNConv(d, d, torch.nn.Sequential(first, torch.nn.GELU(), last), aggr="mean").double()
    with torch.no_grad():
        parts = [module.target.weight, module.source.weight, module.edge.T]
        first.weight.copy_(torch.cat(parts, dim=1))
        first.bias.copy_(module.target.bias)
        by_pair = module.weight.view(d, hidden, d).transpose(1, 2)  # in out hidden
        last.weight.copy_(by_pair.reshape(d * d, hidden))
        last.bias.copy_(module.bias.flatten())
        conv.lin.weight.copy_(own.weight)
        conv.bias.copy_(own.bias)
    target, source = neighbours.edges()
    features = {(i, j): f for i, ball in enumerate(balls(neighbours)) for j, f in ball}
    edge = torch.stack(
        [features[pair] for pair in zip(target.tolist(), source.tolist(), strict=True)]
    )
    attributes = torch.cat([seen[0, target], seen[0, source], edge], dim=1)
    theirs = conv(values[0], torch.stack([source, target]), attributes)
    ours = own(values[0]) + module(values, seen, seen, neighbours)[0]
    assert_same(ours, theirs, [values])


@torch.no_grad()
def test_the_mean_converges_to_the_integral_with_more_points():
    """On random points of a disc the error decreases as 1/sqrt(N)."""
    radius, seen = 0.5, torch.zeros(1, 1, 2, dtype=torch.float64)
    module = operator("diag", latent=1)
    centre = Points(np.zeros((1, 2)))

    def wave(place: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.cos(3 * place[:, :1] + place[:, 1:]))[None]

    def estimate(place: np.ndarray) -> float:
        values = wave(place)
        around = connect(centre, Points(place), radius)
        there = seen.expand(1, len(place), 2)
        return float(module(values, seen, there, around)[0, 0, 0])

    # the exact integral, by Gauss-Legendre in r^2 and the trapezium rule in the angle
    nodes, weights = np.polynomial.legendre.leggauss(24)
    r, angle = radius * np.sqrt((nodes + 1) / 2), 2 * np.pi * np.arange(48) / 48
    ring = np.stack([np.outer(r, np.cos(angle)), np.outer(r, np.sin(angle))], axis=-1)
    place = ring.reshape(-1, 2)
    scaled = torch.from_numpy(place / radius)
    length = scaled.norm(dim=1, keepdim=True)
    edge = torch.cat([scaled, length, length**2, torch.zeros_like(length)], dim=1)
    hidden = gelu(edge @ module.edge + module.target.bias)
    kappa = hidden @ module.weight + module.bias
    mass = torch.from_numpy(np.repeat(weights / 2 / 48, 48))[:, None]
    exact = float((mass * kappa * wave(place)[0]).sum())

    errors = []
    for number in (100, 1600, 25_600):
        draws = np.random.default_rng(3).uniform(-0.6, 0.6, size=(12, number, 2))
        errors.append(np.sqrt(np.mean([(estimate(draw) - exact) ** 2 for draw in draws])))
    orders = np.log(np.divide(errors[:-1], errors[1:])) / np.log(16)
    np.testing.assert_allclose(orders, 0.5, atol=0.25)
    assert errors[-1] < 0.02 * abs(exact)
