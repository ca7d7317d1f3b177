"""Covariance: kriging is the solution of its equations, and the covariance that is found the field's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes
from stonet.linear import kriging
from stonet.linear.kriging import (
    KRIGED,
    NUGGETS,
    RANGES,
    Covariance,
    fit_covariance,
    krige,
    look_around,
    mean_spacing,
)

TEXTURES = [(2.0, 0.01), (0.7, 0.3), (16.0, 1e-6)]  # range, nugget


def scattered(count: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(0, 1, (count, 2)))


def globe(count: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform([-80, 0], [80, 360], (count, 2)), "sphere")


def matern(h: np.ndarray) -> np.ndarray:
    return (1 + h) * np.exp(-h)


def slow_krige(place: np.ndarray, usable: np.ndarray, range: float, nugget: float) -> np.ndarray:
    """[[C + nugget 1, 1], [1', 0]] [w, mu] = [c, 1] for a query at 0 and the usable nodes."""
    used = np.flatnonzero(usable)[:KRIGED]
    size, weight = len(used), np.zeros(len(place))
    if not size:
        return weight
    x = place[used]
    system = np.zeros((size + 1, size + 1))
    apart = np.linalg.norm(x[:, None] - x, axis=2)
    system[:size, :size] = matern(apart / range) + nugget * np.eye(size)
    system[size, :size] = system[:size, size] = 1.0
    right = np.append(matern(np.linalg.norm(x, axis=1) / range), 1.0)
    weight[used] = np.linalg.solve(system, right)[:size]
    return weight


def seen(queries: Points, nodes: Points, count: int = 25) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets of the nearest nodes, and which are not the query itself."""
    near = nearest_nodes(queries, nodes, count)[1]
    return look_around(queries, nodes, mean_spacing(nodes), near)


@pytest.mark.parametrize(("range", "nugget"), TEXTURES)
@pytest.mark.parametrize("kind", [scattered, globe])
def test_kriging_solves_its_equations(kind, range: float, nugget: float) -> None:
    """Written out for every query, with the usable ones of its nearest nodes."""
    nodes = kind(60)
    offset, others = seen(nodes.take(np.arange(5)).joined(kind(5, seed=1)), nodes)
    usable = others & (torch.rand(3, *others.shape) < 0.7)
    weight = krige(offset, usable, range, nugget)
    for row, query in np.ndindex(3, 10):
        wanted = slow_krige(offset[query].numpy(), usable[row, query].numpy(), range, nugget)
        np.testing.assert_allclose(weight[row, query], wanted, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("range", "nugget"), TEXTURES)
def test_weights_sum_to_one_and_are_zero_where_nothing_may_be_used(range, nugget) -> None:
    offset, others = seen(scattered(9, seed=1), scattered(60))
    usable = others & (torch.rand(3, *others.shape) < 0.7)
    usable[1, 4] = False
    weight = krige(offset, usable, range, nugget)
    total = torch.ones(3, 9).double()
    total[1, 4] = 0.0  # nobody there
    torch.testing.assert_close(weight.sum(-1), total, rtol=0, atol=1e-9)
    assert (weight[~usable] == 0).all() and ((weight != 0).sum(-1) <= KRIGED).all()


def test_without_noise_a_node_keeps_its_value() -> None:
    """Where x lies on a usable node, and as closely as the nugget is small."""
    nodes = scattered(12)
    offset, _ = seen(nodes, nodes)
    usable, itself = torch.ones(1, 12, 12, dtype=torch.bool), torch.eye(12)[:1].expand(12, 12)
    for nugget in (1e-3, 1e-6, 1e-9, 0.0):
        error = (krige(offset, usable, 2.0, nugget)[0] - itself).abs().max()
        assert error < 1e2 * nugget + 1e-12


@pytest.mark.parametrize(("range", "nugget"), TEXTURES)
def test_missing_nodes_leave_as_if_they_had_never_been_there(range: float, nugget: float) -> None:
    """However many of the nearest that are: the next ones take their places."""
    nodes, queries = scattered(60), scattered(8, seed=1)
    known = np.random.default_rng(3).random(60) < 0.6
    near = nearest_nodes(queries, nodes, 60)[1]
    offset, usable = look_around(queries, nodes, 0.1, near)
    there = torch.from_numpy(known[near])
    with_gaps = krige(offset, (usable & there)[None], range, nugget)[0]
    offset, usable = look_around(
        queries, nodes.take(np.flatnonzero(known)), 0.1, ranked(near, known)
    )
    without = krige(offset, usable[None], range, nugget)[0]
    torch.testing.assert_close(with_gaps[there].view(8, -1), without, rtol=0, atol=1e-7)


def ranked(near: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The known ones of the nearest nodes, counted among the known."""
    return (np.cumsum(known) - 1)[near[known[near]].reshape(len(near), -1)]


def test_where_nodes_lie_is_told_in_spacings_and_which_are_the_query_itself() -> None:
    nodes = scattered(20)
    queries = nodes.take(np.array([3, 8])).joined(scattered(2, seed=1))
    near = nearest_nodes(queries, nodes, 6)[1]
    offset, others = look_around(queries, nodes, 0.25, near)
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
    """Gaussian fields (time, node, channel) with this covariance, a mean and a size of their own."""
    apart = np.linalg.norm(nodes.coordinates[:, None] - nodes.coordinates, axis=2)
    among = matern(apart / mean_spacing(nodes) / range)
    root = np.linalg.cholesky((1 - nugget) * among + max(nugget, 1e-9) * np.eye(len(nodes)))
    drawn = np.random.default_rng(seed).normal(size=(len(nodes), 2 * times))
    return torch.from_numpy(5 + 3 * (root @ drawn).T).view(times, 2, -1).transpose(1, 2)


def steps(found: float, true: float, among: tuple[float, ...]) -> int:
    """How many entries of a list the found one is from the true one."""
    return abs(among.index(found) - among.index(true))


@pytest.mark.parametrize("range", RANGES)
def test_the_reach_of_a_field_is_found(range: float) -> None:
    found = fit_covariance(random_fields(NODES, range, 0.0), None, NODES)
    assert steps(found.range, range, RANGES) <= 1
    assert found.nugget == NUGGETS[0] and found.spacing == mean_spacing(NODES)


@pytest.mark.parametrize("nugget", NUGGETS)
def test_the_noise_of_a_field_is_found(nugget: float) -> None:
    found = fit_covariance(random_fields(NODES, 4.0, nugget), None, NODES)
    assert steps(found.nugget, nugget, NUGGETS) <= 1 and steps(found.range, 4.0, RANGES) <= 1


def test_what_is_missing_has_no_influence_and_what_remains_suffices() -> None:
    values, known = random_fields(NODES, 2.0, 0.03), torch.rand(30, 150, 2) < 0.8
    known[:, 7] = False  # never seen
    found = fit_covariance(values, known, NODES)
    assert found == fit_covariance(torch.where(known, values, 1e30), known, NODES)
    assert steps(found.range, 2.0, RANGES) <= 1 and steps(found.nugget, 0.03, NUGGETS) <= 1
    assert found == fit_covariance(1e4 + values, known, NODES)  # nor has the level
    few, everything = values[:4], torch.ones(4, 150, 2, dtype=torch.bool)
    assert fit_covariance(few, everything, NODES) == fit_covariance(few, None, NODES)


@pytest.mark.parametrize("asked", [5, 512])
def test_the_texture_found_is_the_best_of_a_full_search(asked: int, monkeypatch) -> None:
    """Each node, or some of them, told by all the others; which erred least on average."""
    monkeypatch.setattr(kriging, "ASKED", asked)
    nodes, values = scattered(9), np.random.default_rng(1).normal(size=(3, 9, 1)).cumsum(1)
    chosen = np.arange(9) if asked > 9 else np.array([0, 2, 4, 6, 8])
    place = nodes.coordinates / mean_spacing(nodes)

    def error(range: float, nugget: float) -> float:
        wrong = 0.0
        for node in chosen:
            others = np.delete(np.arange(9), node)
            everyone = np.ones(8, bool)
            weight = slow_krige(place[others] - place[node], everyone, range, nugget)
            wrong += np.square(weight @ values[:, others, 0].T - values[:, node, 0]).sum()
        return wrong

    best = min(((range, nugget) for range in RANGES for nugget in NUGGETS), key=lambda p: error(*p))
    assert fit_covariance(torch.from_numpy(values), None, nodes)[1:] == best


@pytest.mark.parametrize("count", [1, 2])
def test_of_fewer_than_three_nodes_there_is_no_texture_to_find(count: int) -> None:
    nodes, values = scattered(count), torch.randn(20, count, 1).double()
    assert fit_covariance(values, None, nodes) == Covariance(mean_spacing(nodes))


def test_stations_that_share_no_channel_tell_the_texture_all_the_same() -> None:
    values = random_fields(NODES, 4.0, 0.1)
    known = torch.zeros(30, 150, 2, dtype=torch.bool)
    known[:, ::2, 0] = known[:, 1::2, 1] = True
    found = fit_covariance(values, known, NODES)
    assert steps(found.range, 4.0, RANGES) <= 1 and steps(found.nugget, 0.1, NUGGETS) <= 1


def test_where_nobody_has_an_observed_neighbour_there_is_no_texture_to_find() -> None:
    known = torch.zeros(30, 150, 2, dtype=torch.bool)
    known[:, 3] = True
    assert fit_covariance(random_fields(NODES, 4.0, 0.1), known, NODES) == Covariance(
        mean_spacing(NODES)
    )


@pytest.mark.parametrize("doubled", [1, 75, 150])
def test_sensors_that_share_a_place_do_not_shrink_the_spacing(doubled: int) -> None:
    twice = Points(np.concatenate([NODES.coordinates, NODES.coordinates[:doubled]]))
    assert mean_spacing(twice) == pytest.approx(mean_spacing(NODES), rel=1e-12)
