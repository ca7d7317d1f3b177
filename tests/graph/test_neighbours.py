"""Neighbours against a full search, and their storage in blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.references import balls, brute_force_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.geometry import Points
from stonet.graph import neighbours as module
from stonet.graph.neighbours import (
    count_within,
    edge_features,
    edge_width,
    nearest_nodes,
    own_nodes,
    pairs_within,
    radius_for_degree,
    within_radius,
)

UNIT = 0.5 * 1.41 * np.pi  # the loader's default radii are parts of this


def scattered(number: int, kind: str = "plane", seed: int = 0) -> Points:
    place = np.random.default_rng(seed).uniform(size=(number, 2))
    return Points(place if kind == "plane" else place * [180.0, 360.0] - [90.0, 0.0], kind)


def weather_grid() -> Points:
    """The 32 x 64 grid of WeatherBench, 5.625 degrees."""
    lat, lon = np.arange(-87.1875, 90, 5.625), np.arange(0, 360, 5.625)
    return Points(np.stack(np.meshgrid(lat, lon, indexing="ij"), axis=-1).reshape(-1, 2), "sphere")


def pairs(targets: Points, sources: Points, radius: float) -> list[tuple[int, int]]:
    target, source = pairs_within(targets, sources, radius)
    return list(zip(target.tolist(), source.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("count", [1, 7, 99])
def test_the_nearest_nodes_are_those_of_a_full_search(kind: str, count: int) -> None:
    nodes, queries = scattered(30, kind), scattered(5, kind, seed=1)
    chords = np.linalg.norm(queries.embedded[:, None] - nodes.embedded, axis=2)
    expected = np.argsort(chords, axis=1)[:, :count]
    distance, index = nearest_nodes(queries, nodes, count)
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_allclose(distance, np.take_along_axis(chords, expected, 1), rtol=1e-12)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_counts_within_a_radius_are_the_lengths_of_the_pair_lists(kind: str) -> None:
    points = scattered(40, kind)
    target, _ = pairs_within(points, points, 0.3)
    np.testing.assert_array_equal(count_within(points, 0.3), np.bincount(target, minlength=40))


@settings(max_examples=40)
@given(
    st.sampled_from(["plane", "sphere"]),
    st.integers(1, 25),
    st.integers(1, 25),
    st.floats(0.01, 4.0),
    st.integers(0, 99),
)
def test_the_radius_search_equals_a_full_search(kind, n, m, radius, seed):
    targets, sources = scattered(n, kind, seed), scattered(m, kind, seed + 1)
    found = pairs(targets, sources, radius)
    assert len(found) == len(set(found))
    assert set(found) == brute_force_pairs(targets, sources, radius)


@pytest.mark.parametrize("spacing", [0.1, 1 / 3, 1.0, 1e3])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_the_radius_is_inclusive_on_a_lattice(spacing, steps):
    whole = np.stack(np.meshgrid(np.arange(11), np.arange(11)), axis=-1).reshape(-1, 2)
    lattice = Points(whole * spacing)
    squared = ((whole[:, None] - whole) ** 2).sum(-1)  # in whole numbers, hence exact
    expected = set(zip(*map(np.ndarray.tolist, np.nonzero(squared <= steps**2)), strict=True))
    assert set(pairs(lattice, lattice, steps * spacing)) == expected


def test_coincident_points_are_all_neighbours():
    twice = scattered(6).joined(scattered(6))
    found = set(pairs(twice, twice, 1e-6))
    assert found == {(i, j) for i in range(12) for j in range(12) if i % 6 == j % 6}


def test_longitudes_360_degrees_apart_coincide():
    here = scattered(40, "sphere")
    there = Points(here.coordinates - [0.0, 360.0], "sphere")
    assert pairs(here, here, 0.3) == pairs(there, here, 0.3)
    np.testing.assert_array_equal(own_nodes(there, here), np.arange(40))


def test_an_isolated_point_is_linked_to_the_nearest_and_counted():
    nodes = Points(np.array([[0.0, 0.0], [1.0, 0.0]]))
    queries = Points(np.array([[0.1, 0.0], [9.0, 0.0], [-5.0, 0.0]]))
    graph = within_radius(queries, nodes, 0.5)
    target, source = graph.edges()
    assert list(zip(target.tolist(), source.tolist(), strict=True)) == [(0, 0), (1, 1), (2, 0)]
    assert graph.isolated == 2
    assert graph.count.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("describe", ["nothing", "difference", "offset", "sharp"])
def test_blocks_hold_every_edge_once_with_its_features(kind, describe, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 7)
    targets, sources = scattered(30, kind), scattered(20, kind, 1)
    radius = 0.4
    graph = within_radius(targets, sources, radius, describe)

    wanted = brute_force_pairs(targets, sources, radius)
    alone = [i for i in range(30) if not any(t == i for t, _ in wanted)]
    assert graph.isolated == len(alone)
    target, source = (part.numpy() for part in graph.edges())
    assert (np.diff(target) >= 0).all()
    listed = list(zip(target.tolist(), source.tolist(), strict=True))
    assert len(listed) == len(set(listed)) == len(wanted) + len(alone)
    assert wanted <= set(listed)
    np.testing.assert_array_equal(graph.count, np.bincount(target, minlength=30))

    expected = edge_features(targets, sources, target, source, radius, describe)
    assert expected.shape[1] == edge_width(describe, targets.geometry.dimension)
    packed = {(i, j): f for i, ball in enumerate(balls(graph)) for j, f in ball}
    stacked = torch.stack([packed[pair] for pair in listed])
    np.testing.assert_allclose(stacked, expected, rtol=1e-6, atol=1e-7)


def test_blocks_are_sorted_by_degree_with_minimal_padding(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 8)
    points = scattered(50)
    graph = within_radius(points, points, 0.25)
    rows = torch.cat([block.rows for block in graph.blocks])
    assert sorted(rows.tolist()) == list(range(50))
    assert (graph.count[rows].diff() >= 0).all()
    for block in graph.blocks:
        padding = block.index == graph.num_sources
        assert len(block.rows) <= 8
        assert not padding[-1].any()  # the largest degree sets the width
        assert (block.features[padding] == 0).all()
        assert ((~padding).sum(1) == graph.count[block.rows]).all()


def test_sharp_features_are_offset_distance_and_identity():
    here = Points(np.array([[0.0, 10.0]]), "sphere")
    nodes = Points(np.array([[0.0, 10.0], [0.0, 40.0], [-30.0, 10.0]]), "sphere")
    third = np.pi / 6
    found = edge_features(here, nodes, np.zeros(3, np.int64), np.arange(3), 2 * third, "sharp")
    expected = [[0, 0, 0, 0, 1], [0.5, 0, 0.5, 0.25, 0], [0, -0.5, 0.5, 0.25, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_own_nodes_are_the_queries_that_are_nodes():
    nodes = scattered(20)
    queries = scattered(5, seed=9).joined(nodes.take(np.array([7, 3])))
    assert own_nodes(queries, nodes).tolist() == [20] * 5 + [7, 3]


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("degree", [1.0, 4.5, 12.0, 1000.0])
def test_the_radius_for_a_degree_is_the_smallest(kind, degree):
    targets, sources = scattered(40, kind), scattered(60, kind, 1)
    radius = radius_for_degree(targets, sources, degree)
    wanted = min(degree, 60) * 40
    assert len(pairs(targets, sources, radius)) >= wanted
    assert len(pairs(targets, sources, radius * (1 - 1e-9))) < wanted
    distance = targets.geometry.distance(targets.embedded[:, None], sources.embedded).ravel()
    np.testing.assert_allclose(radius, np.sort(distance)[int(np.ceil(wanted)) - 1], rtol=1e-12)


@pytest.mark.parametrize(
    ("radius", "mean", "least", "most"), [(UNIT / 10, 44.6, 21, 147), (UNIT / 20, 13.1, 5, 77)]
)
def test_degrees_on_the_weather_grid_are_the_published_ones(radius, mean, least, most):
    points = weather_grid()
    graph = within_radius(points, points, radius)
    assert round(float(graph.count.mean()), 1) == mean
    assert (int(graph.count.min()), int(graph.count.max())) == (least, most)
    assert graph.isolated == 0
    if radius == UNIT / 20:
        assert len(graph.edges()[0]) == 26_880


def test_coincident_nodes_are_each_their_own():
    nodes = Points(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]))
    assert own_nodes(nodes, nodes).tolist() == [0, 1, 2]
    assert own_nodes(Points(np.array([[1.0, 0.0], [0.5, 0.5]])), nodes).tolist() == [1, 3]
