"""Multipole passes: equal to the loops over levels and edges, in value and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.references import assert_same, multipole_layer, randomise

from stonet.config import GraphConfig
from stonet.data.geometry import Points
from stonet.graph.multipole import assign_levels, build_graph, find_radii
from stonet.operators.multipole_passes import MultipoleLayer


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("missing", [False, True])
def test_equals_the_loops_in_value_and_gradient(levels: int, missing: bool) -> None:
    nodes = Points(np.random.default_rng(0).uniform(size=(14, 2)))
    config = GraphConfig(levels=levels, within_degree=4, between_degree=3)
    level = assign_levels(nodes, levels, 0)
    graph = build_graph(nodes, level, find_radii(nodes, level, config))
    graph = graph.to(torch.device("cpu"), torch.float64)
    layer = randomise(MultipoleLayer(levels, 5, 3, kernels=2, hidden=4))
    values = torch.randn(14, 2, 3, dtype=torch.float64, requires_grad=True)
    present = torch.rand(14, 2) < 0.7 if missing else None
    literal = multipole_layer(layer, values, graph, present)
    assert_same(layer(values, graph, present), literal, [values, *layer.parameters()])
