"""Branch x trunk: equal to its formula at every query and lead; hat functions between leads."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.references import assert_same, branch_trunk, randomise

from stonet.data.geometry import Points
from stonet.graph.neighbours import within_radius
from stonet.operators.branch_trunk import BranchTrunk, hat_functions

CPU = torch.device("cpu")


def decoder(time: int = 2) -> BranchTrunk:
    sizes = {"edge": 5, "latent": 3, "state": 4, "place": 2, "time": time, "horizon": 3}
    return randomise(BranchTrunk(**sizes, channels=2, rank=5, kernels=2, hidden=6))


@pytest.mark.parametrize("time", [0, 2])
@pytest.mark.parametrize("rows", [1, 3])
def test_equals_its_formula_in_value_and_gradient(time: int, rows: int) -> None:
    module, generator = decoder(time), torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rng = np.random.default_rng(0)
    nodes, queries = Points(rng.uniform(size=(8, 2))), Points(rng.uniform(size=(6, 2)))
    neighbours = within_radius(queries, nodes, 0.4).to(CPU, torch.float64)
    encoded, state = random(8, 3, 3).requires_grad_(), random(6, 3, 4).requires_grad_()
    present = torch.rand(8, 3, generator=generator) < 0.7
    has_history = torch.rand(6, 3, generator=generator) < 0.5
    lead = torch.tensor([[0.0, 0.7, 2.0, 3.0], [0.5, 1.0, 1.5, 2.9], [1.0, 2.0, 3.0, 4.0]])[:rows]
    place, at_target = random(6, 2), random(3, 4, time)

    arguments = (encoded, state, neighbours, present, has_history)
    fast = module(module.branch(*arguments), lead.double(), place, at_target)
    literal = branch_trunk(module, *arguments, lead.double(), place, at_target)
    assert_same(fast, literal, [encoded, state, *module.parameters()])


def test_hat_functions_are_linear_between_leads_and_zero_at_the_issue_time() -> None:
    lead = torch.tensor([[0.0, 0.25, 1.0, 1.5, 3.0, 7.0]])
    expected = [[0, 0, 0], [0.25, 0, 0], [1, 0, 0], [0.5, 0.5, 0], [0, 0, 1], [0, 0, 1]]
    torch.testing.assert_close(hat_functions(lead, 3)[0], torch.tensor(expected))


def test_an_untrained_trunk_is_small() -> None:
    """Q starts at zero and the networks near it, so that the forecast starts at the anchor."""
    torch.manual_seed(0)
    sizes = {"edge": 5, "latent": 16, "state": 20, "place": 2, "time": 4, "horizon": 6}
    module = BranchTrunk(**sizes, channels=1, rank=64, kernels=2, hidden=8)
    branch = torch.randn(10, 4, 64)
    lead = torch.arange(1.0, 7.0)[None]
    with torch.no_grad():
        forecast = module(branch, lead, torch.randn(10, 2), torch.randn(4, 6, 4))
    assert forecast.abs().mean() < 0.3
    assert math.isfinite(float(forecast.sum()))
