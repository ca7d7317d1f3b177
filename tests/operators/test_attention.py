"""Attention over neighbours equals its formula, edge by edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.references import assert_same, randomise
from torch import Tensor

from stonet.data.geometry import Points
from stonet.graph.neighbours import Neighbours, within_radius
from stonet.operators.attention import KEY, VALUE, NeighbourAttention

CPU = torch.device("cpu")


def literal(
    module: NeighbourAttention,
    state: Tensor,
    values: Tensor,
    neighbours: Neighbours,
    present: Tensor,
) -> Tensor:
    """Target by target, window by window, head by head."""
    found: dict[int, list[tuple[int, Tensor]]] = {}
    for block in neighbours.blocks:
        for row, index, features in zip(block.rows, block.index, block.features, strict=True):
            pairs = zip(index.tolist(), features, strict=True)
            found[int(row)] = [(j, e) for j, e in pairs if j < neighbours.num_sources]
    targets = []
    for x in range(len(state)):
        windows = []
        for w in range(state.shape[1]):
            edges = [(j, e) for j, e in found[x] if present[j, w]]
            heads = []
            for h in range(module.heads):
                q, k, v = (slice(h * d, (h + 1) * d) for d in (KEY, KEY, VALUE))
                asked = module.query.weight[q] @ state[x, w] + module.query.bias[q]
                total, top = values.new_zeros(()), values.new_zeros(VALUE)
                for j, e in edges:
                    match = asked @ (module.key.weight[k] @ values[j, w]) / math.sqrt(KEY)
                    weight = (match + module.offset(e)[h]).exp()
                    total, top = (
                        total + weight,
                        top + weight * (module.value.weight[v] @ values[j, w]),
                    )
                heads.append(top / total if edges else top)
            windows.append(module.map.weight @ torch.cat(heads))
        targets.append(torch.stack(windows))
    return torch.stack(targets)


@pytest.mark.parametrize("workspace", [1, 10**6])
def test_equals_its_formula_in_value_and_gradient(
    workspace: int,
) -> None:
    module = randomise(NeighbourAttention(5, 4, 3, 6, heads=2, hidden=7))
    module.workspace = workspace
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(1)
    nodes, queries = Points(rng.uniform(size=(9, 2))), Points(rng.uniform(size=(6, 2)))
    neighbours = within_radius(queries, nodes, 0.4).to(CPU, torch.float64)
    state = torch.randn(6, 3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    values = torch.randn(9, 3, 3, generator=generator, dtype=torch.float64).requires_grad_()
    present = torch.rand(9, 3, generator=generator) < 0.5
    fast = module(state, values, neighbours, present)
    slow = literal(module, state, values, neighbours, present)
    assert_same(fast, slow, [state, values, *module.parameters()])
    everywhere = torch.ones_like(present)
    torch.testing.assert_close(
        module(state, values, neighbours), literal(module, state, values, neighbours, everywhere)
    )


def test_it_starts_at_zero_and_ignores_values_that_are_absent() -> None:
    torch.manual_seed(0)
    module = NeighbourAttention(5, 4, 3, 6, heads=2, hidden=7)
    points = Points(np.random.default_rng(1).uniform(size=(7, 2)))
    neighbours = within_radius(points, points, 0.5)
    state, values = torch.randn(7, 2, 4), torch.randn(7, 2, 3)
    assert not module(state, values, neighbours).any()
    randomise(module.double())
    absent = torch.ones(7, 2, dtype=torch.bool)
    absent[3] = False
    arguments = neighbours.to(CPU, torch.float64), absent
    other = values.double().clone()
    other[3] = 1e9
    torch.testing.assert_close(
        module(state.double(), values.double(), *arguments),
        module(state.double(), other, *arguments),
    )
