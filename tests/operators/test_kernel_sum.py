"""The kernel sum: equal to the loop over edges, in value and gradient; exact with missing nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.references import assert_same, kernel_sum, randomise

from stonet.data.geometry import Points
from stonet.graph import neighbours as neighbours_module
from stonet.graph.neighbours import Neighbours, within_radius
from stonet.operators.kernel_sum import KernelSum

CPU = torch.device("cpu")


def scattered(number: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(targets: int = 9, sources: int = 11) -> Neighbours:
    edges = within_radius(scattered(targets), scattered(sources, 1), 0.4)
    return edges.to(CPU, torch.float64)


def operator(inputs: int = 3, outputs: int = 4) -> KernelSum:
    return randomise(KernelSum(5, inputs, outputs, kernels=2, hidden=6, gain=1.0))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("workspace", [60, 2**20])
def test_equals_the_loop_over_edges_in_value_and_gradient(missing, workspace, monkeypatch) -> None:
    monkeypatch.setattr(neighbours_module, "BLOCK", 4)
    neighbours, module = connect(), operator()
    module.workspace = workspace
    values = torch.randn(11, 3, 3, dtype=torch.float64, requires_grad=True)
    present = None
    if missing:
        present = torch.rand(11, 3, generator=torch.Generator().manual_seed(0)) < 0.6
        present[:, 1] = False  # a window without any value
    arguments = [values, *module.parameters()]
    literal = kernel_sum(module, values, neighbours, present)
    assert_same(module(values, neighbours, present), literal, arguments)


def test_values_of_missing_sources_have_no_influence() -> None:
    neighbours, module = connect(), operator()
    values, present = torch.randn(11, 2, 3, dtype=torch.float64), torch.rand(11, 2) < 0.5
    other = torch.where(present[..., None], values, 1e30)
    assert torch.equal(module(values, neighbours, present), module(other, neighbours, present))


def test_a_constant_kernel_gives_the_mean_of_the_neighbours() -> None:
    """With h = 1 and A = identity."""
    neighbours = connect()
    module = KernelSum(5, 3, 3, kernels=1, hidden=6, gain=1.0).double()
    with torch.no_grad():
        module.weights[2].weight.zero_()
        module.weights[2].bias.fill_(1.0)
        module.map.weight.copy_(torch.eye(3))
    values = torch.randn(11, 2, 3, dtype=torch.float64)
    target, source = neighbours.edges()
    mean = torch.zeros(9, 2, 3, dtype=torch.float64).index_add_(0, target, values[source])
    mean /= neighbours.count[:, None, None]
    torch.testing.assert_close(module(values, neighbours), mean)


def test_the_result_starts_with_the_given_gain() -> None:
    """For one neighbour with h of unit size, inputs of unit variance give `gain`."""
    torch.manual_seed(0)
    module = KernelSum(5, 64, 512, kernels=1, hidden=6, gain=0.5)
    spread = torch.nn.functional.linear(torch.randn(100, 64), module.map.weight.detach()).std()
    assert 0.45 < spread.item() < 0.55
