"""Values at queries: nodes keep their own, others are kriged from the nodes that are present."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.contracts import small_points

from stonet.data.geometry import Points
from stonet.linear.kriging import KRIGING_NODES, Covariance, kriging_weights, neighbour_offsets
from stonet.linear.kriging_graph import CANDIDATES, KrigingGraph, make_kriging_graph

COVARIANCE = Covariance(spacing=0.1, range=2.0, nugget=0.01)
META = torch.device("meta")


def nearest(x: Points, nodes: Points, present: np.ndarray) -> np.ndarray:
    """The nodes with a weight: the nearest present ones among the candidates."""
    distance = np.linalg.norm(nodes.embedded - x.embedded, axis=1)
    order = np.argsort(distance)[:CANDIDATES]
    return order[present[order]][:KRIGING_NODES]


def kriged(values: torch.Tensor, x: Points, nodes: Points, present: np.ndarray) -> torch.Tensor:
    """Ordinary kriging at one point from these nodes alone."""
    chosen = nearest(x, nodes, present)
    offset, usable = neighbour_offsets(x, nodes, COVARIANCE.spacing, chosen[None])
    weight = kriging_weights(offset, usable[None], COVARIANCE)[0, 0]
    return torch.einsum("j,jd->d", weight, values[chosen])


def case(kind: str) -> tuple[Points, Points, torch.Tensor]:
    """60 nodes; queries of which the first and the last are nodes; values of 3 windows."""
    nodes = small_points(kind, 60)
    some = small_points(kind, 4, seed=5)
    queries = nodes.take(np.array([7])).joined(some).joined(nodes.take(np.array([2])))
    return nodes, queries, torch.randn(60, 3, 2, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_nodes_have_their_own_value_and_others_are_kriged(kind: str) -> None:
    nodes, queries, values = case(kind)
    graph, every = make_kriging_graph(queries, nodes, COVARIANCE), np.ones(60, bool)
    found = graph.at_queries(values, None)
    assert torch.equal(found[[0, 5]], values[[7, 2]])
    for q in range(1, 5):
        for w in range(3):
            expected = kriged(values[:, w], queries.take(np.array([q])), nodes, every)
            torch.testing.assert_close(found[q, w], expected)
    assert graph.foreign.tolist() == [1, 2, 3, 4]
    assert graph.has_history(None)[:, 0].tolist() == [True, *[False] * 4, True]


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_missing_nodes_are_as_good_as_not_there(kind: str) -> None:
    """Each window by itself; their values have no influence, even on themselves."""
    nodes, queries, values = case(kind)
    graph = make_kriging_graph(queries, nodes, COVARIANCE)
    present = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) < 0.6
    present[7, 0], present[2] = False, True
    found = graph.at_queries(values, present)
    for q in range(6):
        x = queries.take(np.array([q]))
        for w in range(3):
            own = {0: 7, 5: 2}.get(q)
            if own is not None and present[own, w]:
                assert torch.equal(found[q, w], values[own, w])
                continue
            there = present[:, w].numpy().copy()
            torch.testing.assert_close(found[q, w], kriged(values[:, w], x, nodes, there))
    other = torch.where(present[..., None], values, 1e9)
    assert torch.equal(graph.at_queries(other, present), found)


def test_a_constant_is_kept_and_nobody_present_gives_zero() -> None:
    nodes, queries, values = case("plane")
    graph, present = make_kriging_graph(queries, nodes, COVARIANCE), torch.rand(60, 3) < 0.5
    constant = graph.at_queries(torch.ones_like(values), present)
    torch.testing.assert_close(constant, torch.ones_like(constant))
    assert not graph.at_queries(values, torch.zeros_like(present)).any()


def test_all_nodes_present_gives_the_same_as_none_missing() -> None:
    nodes, queries, values = case("plane")
    graph = make_kriging_graph(queries, nodes, COVARIANCE)
    every = torch.ones(60, 3, dtype=torch.bool)
    expected = graph.at_queries(values, None)
    torch.testing.assert_close(graph.at_queries(values, every), expected, rtol=1e-14, atol=1e-14)
    among = make_kriging_graph(nodes, nodes, COVARIANCE)
    assert torch.equal(among.at_queries(values, None), values) and among.has_history(None) is None


def test_the_gradient_reaches_the_nodes_that_have_a_weight() -> None:
    nodes, queries, values = case("plane")
    graph, present = make_kriging_graph(queries, nodes, COVARIANCE), torch.ones(60, 3).bool()
    present[nearest(queries.take(np.array([2])), nodes, present[:, 0].numpy())[:3], 0] = False
    values.requires_grad_()
    graph.at_queries(values, present)[2, 0].sum().backward()
    touched = np.flatnonzero(values.grad.abs().sum((1, 2)))
    expected = nearest(queries.take(np.array([2])), nodes, present[:, 0].numpy())
    np.testing.assert_array_equal(touched, np.sort(expected))


def test_a_graph_on_a_device_keeps_a_copy_in_host_memory() -> None:
    nodes, queries, values = case("plane")
    graph = make_kriging_graph(queries, nodes, COVARIANCE)
    moved: KrigingGraph = graph.to(META, torch.float32)
    assert moved.on_host is graph and graph.to(torch.device("cpu"), torch.float32).host is None
    present = torch.rand(60, 3) < 0.5
    found = moved.at_queries(values.to(META, torch.float32), present)
    assert found.shape == (6, 3, 2) and found.device == META
