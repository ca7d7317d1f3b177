"""MultipoleGraph: a partition that depends on seed and positions only, and its edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.references import brute_force_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.config import GraphConfig, OperatorConfig
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.graph.multipole import Radii, assign_levels, build_graph, find_radii, levels_for
from stonet.graph.neighbours import Neighbours, within_radius
from stonet.operators.encoder import MultipoleEncoder

UNIT = 0.5 * 1.41 * np.pi  # the loader's default radii are parts of this


def scattered(number: int, seed: int = 0, kind: str = "plane") -> Points:
    place = np.random.default_rng(seed).uniform(size=(number, 2))
    return Points(place if kind == "plane" else place * [180.0, 360.0] - [90.0, 0.0], kind)


def sizes(level: np.ndarray) -> list[int]:
    return np.bincount(level).tolist()


def edges(graph: Neighbours) -> set[tuple[int, int]]:
    return set(zip(*(part.tolist() for part in graph.edges()), strict=True))


@pytest.mark.parametrize(
    ("number", "levels", "expected"),
    [
        (2048, 3, [1024, 512, 512]),
        (512, 3, [256, 128, 128]),
        (137, 3, [69, 34, 34]),
        (100, 2, [50, 50]),
        (100, 1, [100]),
        (64, 5, [32, 16, 8, 4, 4]),
    ],
)
def test_each_level_has_half_of_the_remaining_points(number, levels, expected):
    assert sizes(assign_levels(scattered(number), levels, 2022)) == expected


@settings(max_examples=30)
@given(st.integers(8, 60), st.integers(1, 4), st.integers(0, 2**64), st.integers(0, 99))
def test_relabelling_the_points_relabels_their_levels(number, levels, seed, shuffle):
    points = scattered(number)
    order = np.random.default_rng(shuffle).permutation(number)
    level = assign_levels(points, levels, seed)
    np.testing.assert_array_equal(assign_levels(points.take(order), levels, seed), level[order])


def test_levels_depend_on_the_seed_and_are_evenly_drawn():
    points = scattered(400)
    draws = np.stack([assign_levels(points, 2, seed) for seed in range(60)])
    assert len(np.unique(draws, axis=0)) == 60
    mean = draws.mean(0)  # each point is in either level about half the time: sd of 0.065
    assert abs(mean - 0.5).max() < 0.3
    assert abs(mean.std() - 0.5 / np.sqrt(60)) < 0.015


def test_longitudes_360_degrees_apart_have_the_same_level():
    points = scattered(60, kind="sphere")
    turned = Points(points.coordinates - [0.0, 360.0], "sphere")
    level = assign_levels(points, 3, 5)
    np.testing.assert_array_equal(assign_levels(turned, 3, 5), level)
    np.testing.assert_array_equal(levels_for(turned, points, level, 5), level)


def test_new_points_have_level_0_and_training_points_keep_their_levels():
    known, new = scattered(40), scattered(15, seed=1)
    level = assign_levels(known, 3, 2022)
    subset = np.random.default_rng(2).permutation(40)[:30]
    points = new.joined(known.take(subset))
    found = levels_for(points, known, level, 2022)
    np.testing.assert_array_equal(found[:15], 0)
    np.testing.assert_array_equal(found[15:], level[subset])


def test_another_sensor_network_is_divided_anew():
    known, other = scattered(40), scattered(30, seed=1)
    level = assign_levels(known, 3, 2022)
    expected = assign_levels(other, 3, 2022)
    np.testing.assert_array_equal(levels_for(other, known, level, 2022), expected)
    assert sizes(expected) == [15, 8, 7]


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_edges_equal_those_of_a_full_search(kind):
    points = scattered(40, kind=kind)
    level = assign_levels(points, 3, 1)
    radii = Radii((0.3, 0.5, 0.8), (0.4, 0.9), 0.2)
    graph = build_graph(points, level, radii)
    sets = [points.take(np.flatnonzero(level == number)) for number in range(3)]
    for number, members in enumerate(graph.members):
        np.testing.assert_array_equal(members, np.flatnonzero(level == number))
    families = [
        *((graph.within[k], sets[k], sets[k], radii.within[k]) for k in range(3)),
        *((graph.up[k], sets[k + 1], sets[k], radii.between[k]) for k in range(2)),
        *((graph.down[k], sets[k], sets[k + 1], radii.between[k]) for k in range(2)),
    ]
    for found, targets, sources, radius in families:
        wanted = brute_force_pairs(targets, sources, radius)
        lonely = set(range(len(targets))) - {i for i, _ in wanted}
        assert wanted <= edges(found)
        assert {i for i, _ in edges(found) - wanted} == lonely
        assert found.isolated == len(lonely)
    assert graph.isolated == sum(found.isolated for found, *_ in families)
    by_level = torch.cat(graph.members)
    np.testing.assert_array_equal(by_level[graph.restore], np.arange(40))


def test_up_and_down_are_the_same_pairs_reversed():
    points = scattered(80)
    level = assign_levels(points, 2, 1)
    graph = build_graph(points, level, Radii((0.3, 0.3), (0.5,), 0.2))
    assert graph.isolated == 0
    assert edges(graph.up[0]) == {(j, i) for i, j in edges(graph.down[0])}


def test_given_radii_are_used():
    config = GraphConfig(within_radii=(0.1, 0.2, 0.3), between_radii=(0.4, 0.5), decoder_radius=0.6)
    points = scattered(40)
    radii = find_radii(points, assign_levels(points, 3, 0), config)
    assert radii == Radii((0.1, 0.2, 0.3), (0.4, 0.5), 0.6)


@pytest.mark.parametrize(
    ("given_radii", "message"),
    [
        ({"within_radii": (0.1, 0.2)}, r"graph.within_radii is \(0.1, 0.2\); 3 levels need 3"),
        ({"between_radii": (0.1,) * 3}, "graph.between_radii .* 3 levels need 2"),
        ({"within_radii": (0.1, 0.0, 0.2)}, "all > 0"),
        ({"decoder_radius": -1.0}, "graph.decoder_radius .* all > 0"),
    ],
)
def test_wrong_radii_are_refused(given_radii, message):
    points = scattered(40)
    with pytest.raises(UsageError, match=message):
        find_radii(points, assign_levels(points, 3, 0), GraphConfig(**given_radii))


def test_too_many_levels_are_refused():
    points = scattered(3)
    with pytest.raises(UsageError, match="4 levels of 3 points"):
        find_radii(points, assign_levels(points, 4, 0), GraphConfig(levels=4))


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_radii_give_the_mean_degrees_of_the_settings(kind):
    points = scattered(300, kind=kind)
    config = GraphConfig(within_degree=9.0, between_degree=6.0, decoder_degree=11.0)
    level = assign_levels(points, 3, 0)
    radii = find_radii(points, level, config)
    graph = build_graph(points, level, radii)
    decoder = within_radius(points, points, radii.decoder)
    expected = [(n, 9) for n in graph.within] + [(n, 6) for n in graph.down] + [(decoder, 11)]
    for found, degree in expected:
        reached = float(found.count.sum()) - found.isolated
        pairs = degree * len(found.count)
        assert pairs <= reached <= pairs + 2  # equal distances (i, j) and (j, i) come together


def test_the_weather_grid_with_the_published_radii():
    lat, lon = np.arange(-87.1875, 90, 5.625), np.arange(0, 360, 5.625)
    grid = np.stack(np.meshgrid(lat, lon, indexing="ij"), axis=-1).reshape(-1, 2)
    points = Points(grid, "sphere")
    radii = Radii((UNIT / 10, UNIT / 8, UNIT / 8), (UNIT / 8, UNIT / 4), UNIT / 20)
    graph = build_graph(points, assign_levels(points, 3, 2022), radii)
    # the paper's own random split is not known: another one differs by a few per cent
    means = [float(n.count.mean()) for n in graph.within]
    np.testing.assert_allclose(means, [22.6, 16.2, 15.0], rtol=0.1)
    np.testing.assert_allclose(sum(n.count.sum() for n in graph.within), 39_112, rtol=0.04)
    for family in (graph.up, graph.down):
        counted = [float(n.count.sum()) for n in family]
        np.testing.assert_allclose(counted, [15_107, 25_841], rtol=0.06)


@pytest.mark.parametrize("kernel", ["full", "diag"])
def test_an_empty_level_has_no_influence(kernel):
    """Where every coarse level is empty, "within" is all that is left besides the own maps."""
    points, values = scattered(10), torch.randn(2, 10, 3)
    level = np.zeros(10, np.int64)
    radii = Radii((0.5, 0.5, 0.5), (0.5, 0.5), 0.5)
    graph = build_graph(points, level, radii)
    assert [len(m) for m in graph.members] == [10, 0, 0]
    assert edges(graph.down[0]) == edges(graph.up[0]) == edges(graph.within[2]) == set()

    config = OperatorConfig(latent=3, hidden=2, parametric=2, kernel=kernel)
    encoder = MultipoleEncoder(2, 0, 3, config)
    position, time = torch.rand(10, 2), torch.zeros(2, 0)
    result = encoder(values, time, position, None, graph)
    single = MultipoleEncoder(2, 0, 1, config)
    single.load_state_dict(encoder.state_dict(), strict=False)
    alone = build_graph(points, level, Radii((0.5,), (), 0.5))
    v = single(values, time, position, None, alone)
    y = encoder.layers[0].down[0].own(v)
    torch.testing.assert_close(result, v + y + torch.nn.functional.gelu(y))
