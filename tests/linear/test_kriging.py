"""Kriging solves its equations, and the covariance of a field is estimated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes
from stonet.linear.kriging import (
    KRIGING_NODES,
    NUGGETS,
    RANGES,
    Covariance,
    fit_covariance,
    kriging_weights,
    mean_spacing,
    neighbour_offsets,
)

COVARIANCES = [Covariance(1.0, 2.0, 0.01), Covariance(1.0, 0.7, 0.3), Covariance(1.0, 16.0, 1e-6)]
EVERY = pytest.mark.parametrize("covariance", COVARIANCES, ids=lambda c: f"{c.range}-{c.nugget}")


def scattered(count: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(0, 1, (count, 2)))


def globe(count: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform([-80, 0], [80, 360], (count, 2)), "sphere")


def matern(h: np.ndarray) -> np.ndarray:
    return (1 + h) * np.exp(-h)


def reference_weights(place: np.ndarray, usable: np.ndarray, covariance: Covariance) -> np.ndarray:
    """[[C + nugget 1, 1], [1', 0]] [w, mu] = [c, 1] for a query at 0 and the usable nodes."""
    used, range = np.flatnonzero(usable)[:KRIGING_NODES], covariance.range
    size, weight = len(used), np.zeros(len(place))
    if not size:
        return weight
    x = place[used]
    system = np.zeros((size + 1, size + 1))
    apart = np.linalg.norm(x[:, None] - x, axis=2)
    system[:size, :size] = matern(apart / range) + covariance.nugget * np.eye(size)
    system[size, :size] = system[:size, size] = 1.0
    right = np.append(matern(np.linalg.norm(x, axis=1) / range), 1.0)
    weight[used] = np.linalg.solve(system, right)[:size]
    return weight


def offsets(queries: Points, nodes: Points, count: int = 25) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets of the nearest nodes, and which differ from the query itself."""
    _, near = nearest_nodes(queries, nodes, count)
    return neighbour_offsets(queries, nodes, mean_spacing(nodes), near)


@EVERY
@pytest.mark.parametrize("kind", [scattered, globe])
def test_kriging_solves_its_equations(kind, covariance: Covariance) -> None:
    nodes = kind(60)
    offset, others = offsets(nodes.take(np.arange(5)).joined(kind(5, seed=1)), nodes)
    usable = others & (torch.rand(3, *others.shape) < 0.7)
    weight = kriging_weights(offset, usable, covariance)
    for row, query in np.ndindex(3, 10):
        wanted = reference_weights(offset[query].numpy(), usable[row, query].numpy(), covariance)
        np.testing.assert_allclose(weight[row, query], wanted, rtol=0, atol=1e-7)


@EVERY
def test_weights_sum_to_one_and_are_zero_for_unusable_nodes(covariance: Covariance) -> None:
    offset, others = offsets(scattered(9, seed=1), scattered(60))
    usable = others & (torch.rand(3, *others.shape) < 0.7)
    usable[1, 4] = False
    weight = kriging_weights(offset, usable, covariance)
    total = torch.ones(3, 9).double()
    total[1, 4] = 0.0  # without any usable node
    torch.testing.assert_close(weight.sum(-1), total, rtol=0, atol=1e-9)
    assert (weight[~usable] == 0).all() and ((weight != 0).sum(-1) <= KRIGING_NODES).all()


def test_without_a_nugget_a_node_keeps_its_value() -> None:
    """If x is a usable node; the error is proportional to the nugget."""
    nodes = scattered(12)
    offset, _ = offsets(nodes, nodes)
    usable, itself = torch.ones(1, 12, 12, dtype=torch.bool), torch.eye(12)[:1].expand(12, 12)
    for nugget in (1e-3, 1e-6, 1e-9, 0.0):
        weight = kriging_weights(offset, usable, Covariance(1.0, 2.0, nugget))[0]
        assert (weight - itself).abs().max() < 1e2 * nugget + 1e-12


@EVERY
def test_missing_nodes_are_replaced_by_the_next_nearest(covariance: Covariance) -> None:
    nodes, queries = scattered(60), scattered(8, seed=1)
    present = np.random.default_rng(3).random(60) < 0.6
    _, near = nearest_nodes(queries, nodes, 60)
    offset, usable = neighbour_offsets(queries, nodes, 0.1, near)
    observed = torch.from_numpy(present[near])
    with_gaps = kriging_weights(offset, (usable & observed)[None], covariance)[0]
    offset, usable = neighbour_offsets(
        queries, nodes.take(np.flatnonzero(present)), 0.1, ranked(near, present)
    )
    without = kriging_weights(offset, usable[None], covariance)[0]
    torch.testing.assert_close(with_gaps[observed].view(8, -1), without, rtol=0, atol=1e-7)


def ranked(near: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The nearest nodes that are present, as positions among the present nodes."""
    return (np.cumsum(present) - 1)[near[present[near]].reshape(len(near), -1)]


def test_offsets_are_in_spacings_and_exclude_the_query_itself() -> None:
    nodes = scattered(20)
    queries = nodes.take(np.array([3, 8])).joined(scattered(2, seed=1))
    _, near = nearest_nodes(queries, nodes, 6)
    offset, others = neighbour_offsets(queries, nodes, 0.25, near)
    wanted = 4 * (nodes.coordinates[near] - queries.coordinates[:, None])
    np.testing.assert_allclose(offset, wanted, atol=1e-12)
    np.testing.assert_array_equal(others, near != np.array([3, 8, -1, -1])[:, None])


def test_the_mean_spacing_of_a_lattice_is_its_step() -> None:
    x, y = np.meshgrid(np.arange(5), np.arange(4))
    assert mean_spacing(Points(0.3 * np.stack([x.ravel(), y.ravel()], 1))) == pytest.approx(0.3)
    assert mean_spacing(Points(np.zeros((1, 2)))) == 1.0


NODES = scattered(150)


def random_fields(
    nodes: Points, range: float, nugget: float, times: int = 30, seed: int = 0
) -> torch.Tensor:
    """Gaussian fields (time, node, channel) with this covariance, mean 5 and deviation 3."""
    apart = np.linalg.norm(nodes.coordinates[:, None] - nodes.coordinates, axis=2)
    among = matern(apart / mean_spacing(nodes) / range)
    root = np.linalg.cholesky((1 - nugget) * among + max(nugget, 1e-9) * np.eye(len(nodes)))
    drawn = np.random.default_rng(seed).normal(size=(len(nodes), 2 * times))
    return torch.from_numpy(5 + 3 * (root @ drawn).T).view(times, 2, -1).transpose(1, 2)


def steps(estimate: float, true: float, candidates: tuple[float, ...]) -> int:
    """The number of candidates between the estimate and the true value."""
    return abs(candidates.index(estimate) - candidates.index(true))


@pytest.mark.parametrize("range", RANGES)
def test_the_range_of_a_field_is_estimated(range: float) -> None:
    found = fit_covariance(random_fields(NODES, range, 0.0), None, NODES)
    assert steps(found.range, range, RANGES) <= 1
    assert found.nugget == NUGGETS[0] and found.spacing == mean_spacing(NODES)


@pytest.mark.parametrize("nugget", NUGGETS)
def test_the_nugget_of_a_field_is_estimated(nugget: float) -> None:
    found = fit_covariance(random_fields(NODES, 4.0, nugget), None, NODES)
    assert steps(found.nugget, nugget, NUGGETS) <= 1 and steps(found.range, 4.0, RANGES) <= 1


def test_missing_values_and_the_mean_have_no_influence() -> None:
    values, observed = random_fields(NODES, 2.0, 0.03), torch.rand(30, 150, 2) < 0.8
    observed[:, 7] = False  # a node without any value
    found = fit_covariance(values, observed, NODES)
    assert found == fit_covariance(torch.where(observed, values, 1e30), observed, NODES)
    assert steps(found.range, 2.0, RANGES) <= 1 and steps(found.nugget, 0.03, NUGGETS) <= 1
    assert found == fit_covariance(1e4 + values, observed, NODES)
    few, everything = values[:4], torch.ones(4, 150, 2, dtype=torch.bool)
    assert fit_covariance(few, everything, NODES) == fit_covariance(few, None, NODES)


@pytest.mark.parametrize("max_nodes", [5, 512])
def test_the_covariance_is_the_best_of_a_full_search(max_nodes: int) -> None:
    """Each node, or some of them, predicted from all others; the least squared error."""
    nodes, values = scattered(9), np.random.default_rng(1).normal(size=(3, 9, 1)).cumsum(1)
    chosen = np.arange(9) if max_nodes > 9 else np.array([0, 2, 4, 6, 8])
    spacing = mean_spacing(nodes)
    place = nodes.coordinates / spacing

    def error(covariance: Covariance) -> float:
        total = 0.0
        for node in chosen:
            others = np.delete(np.arange(9), node)
            weight = reference_weights(place[others] - place[node], np.ones(8, bool), covariance)
            total += np.square(weight @ values[:, others, 0].T - values[:, node, 0]).sum()
        return total

    best = min((Covariance(spacing, r, n) for r in RANGES for n in NUGGETS), key=error)
    assert fit_covariance(torch.from_numpy(values), None, nodes, max_nodes) == best


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_nodes_have_the_default_covariance(count: int) -> None:
    nodes, values = scattered(count), torch.randn(20, count, 1).double()
    assert fit_covariance(values, None, nodes) == Covariance(mean_spacing(nodes))


def test_nodes_need_not_share_a_channel() -> None:
    values = random_fields(NODES, 4.0, 0.1)
    observed = torch.zeros(30, 150, 2, dtype=torch.bool)
    observed[:, ::2, 0] = observed[:, 1::2, 1] = True
    found = fit_covariance(values, observed, NODES)
    assert steps(found.range, 4.0, RANGES) <= 1 and steps(found.nugget, 0.1, NUGGETS) <= 1


def test_without_observed_neighbours_the_covariance_is_the_default() -> None:
    observed = torch.zeros(30, 150, 2, dtype=torch.bool)
    observed[:, 3] = True
    found = fit_covariance(random_fields(NODES, 4.0, 0.1), observed, NODES)
    assert found == Covariance(mean_spacing(NODES))


@pytest.mark.parametrize("doubled", [1, 75, 150])
def test_nodes_that_coincide_do_not_reduce_the_spacing(doubled: int) -> None:
    twice = Points(np.concatenate([NODES.coordinates, NODES.coordinates[:doubled]]))
    assert mean_spacing(twice) == pytest.approx(mean_spacing(NODES), rel=1e-12)
