"""Local polynomial fits: exact for polynomials, without the point itself and without gaps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.contracts import FakeGpuTensor

from stonet.data.geometry import Points
from stonet.linear.kriging import Covariance, kriging_weights, mean_spacing
from stonet.linear.local_polynomials import (
    LINEAR_WIDTHS,
    NUM_FITS,
    QUADRATIC_WIDTHS,
    Stencil,
    make_stencil,
)

FIRST_QUADRATIC = 1 + len(LINEAR_WIDTHS)  # after kriging and the linear fits
QUADRATIC = [FIRST_QUADRATIC + 4 * number for number in range(len(QUADRATIC_WIDTHS))]
FITS = [*range(1, FIRST_QUADRATIC), *QUADRATIC]  # fits whose result is a value at x
VALUES = [0, *FITS]  # and kriging
FINE = Covariance(0.1)


def scattered(count: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(0, 1, (count, 2)))


def cap(count: int, degrees: float, seed: int = 0) -> Points:
    """Points on a sphere, in a box of this size around 40 N 0 E, where longitudes jump."""
    offset = np.random.default_rng(seed).uniform(-degrees, degrees, (count, 2))
    return Points((np.array([40.0, 0.0]) + offset) % 360, "sphere")


def fits(made: Stencil, field: np.ndarray, present: np.ndarray | None = None) -> torch.Tensor:
    """(query, fit) of one frame of one channel."""
    mask = None if present is None else torch.from_numpy(present)[None]
    return made.apply(torch.tensor(field)[None, None, :, None], made.weights(mask))[0, :, 0, :, 0]


def test_without_a_ridge_every_fit_reproduces_linear_fields() -> None:
    nodes, queries = scattered(60), scattered(20, seed=1)
    made = make_stencil(queries, nodes, FINE, ridge=0.0)

    def u(points: Points) -> np.ndarray:
        return 3.0 + points.coordinates @ np.array([2.0, -5.0])

    fitted = fits(made, u(nodes))
    for fit in FITS:
        torch.testing.assert_close(fitted[:, fit], torch.from_numpy(u(queries)), rtol=0, atol=1e-7)


def test_without_a_ridge_value_gradient_and_laplacian_of_quadratic_fields_are_exact() -> None:
    """Gradients are multiplied by the width h, Laplacians by h squared."""
    nodes, queries = scattered(60), scattered(20, seed=1)
    a, b, matrix = 1.0, np.array([2.0, -1.0]), np.array([[3.0, 0.5], [0.5, -7.0]])

    def u(x: np.ndarray) -> np.ndarray:
        return a + x @ b + np.einsum("ni,ij,nj->n", x, matrix, x) / 2

    made = make_stencil(queries, nodes, FINE, ridge=0.0)
    fitted = fits(made, u(nodes.coordinates)).numpy()
    x = queries.coordinates
    for number, width in enumerate(QUADRATIC_WIDTHS):
        h, first = width * FINE.spacing, FIRST_QUADRATIC + 4 * number
        np.testing.assert_allclose(fitted[:, first], u(x), atol=1e-6)
        np.testing.assert_allclose(
            fitted[:, first + 1 : first + 3], h * (b + x @ matrix), atol=1e-6
        )
        np.testing.assert_allclose(fitted[:, first + 3], h**2 * np.trace(matrix), atol=1e-6)


def test_the_ridge_has_little_effect_and_none_on_constants() -> None:
    nodes, queries = scattered(200), scattered(20, seed=1)
    spacing = mean_spacing(nodes)
    made = make_stencil(queries, nodes, Covariance(spacing))
    constant = fits(made, np.full(200, 7.0))
    torch.testing.assert_close(
        constant[:, VALUES], torch.full((20, 6), 7.0).double(), atol=1e-6, rtol=0
    )
    slope = fits(made, nodes.coordinates[:, 0])[:, FITS]
    error = (slope - torch.tensor(queries.coordinates[:, :1])).abs()
    assert error.max() < spacing  # in a corner, with all neighbours on one side
    assert error.median() < 0.01 * spacing


def test_fits_on_a_small_part_of_the_sphere_are_those_on_the_tangent_plane() -> None:
    """Up to the effect of curvature."""
    nodes, queries = cap(60, 0.2), cap(10, 0.1, seed=1)
    covariance = Covariance(mean_spacing(nodes))
    scale = np.array([1.0, np.cos(np.deg2rad(40.0))])

    def flat(points: Points) -> Points:
        near = (points.coordinates - np.array([40.0, 0.0]) + 180) % 360 - 180
        return Points((np.deg2rad(near) * scale)[:, ::-1].copy())  # east, north

    u = np.sin(300 * flat(nodes).coordinates).sum(1)
    on_sphere = fits(make_stencil(queries, nodes, covariance), u)
    on_plane = fits(make_stencil(flat(queries), flat(nodes), covariance), u)
    torch.testing.assert_close(on_sphere, on_plane, atol=0.02, rtol=0)


@pytest.mark.parametrize("points", [scattered(40), cap(40, 30.0)], ids=["plane", "sphere"])
def test_the_value_at_a_point_does_not_influence_its_own_fit(points: Points) -> None:
    made = make_stencil(points, points, Covariance(mean_spacing(points)))
    assert (made.own == torch.arange(40)).all()
    values = np.random.default_rng(2).normal(size=40)
    changed = values.copy()
    changed[7] = 1e6
    before, after = fits(made, values), fits(made, changed)
    assert torch.equal(before[7], after[7])
    assert not torch.equal(before, after)


def test_the_first_fit_is_kriging() -> None:
    covariance = Covariance(0.1, range=4.0, nugget=0.1)
    made = make_stencil(scattered(8, seed=1), scattered(50), covariance)
    values = torch.randn(3, 50, dtype=torch.float64)
    for present in (torch.ones(3, 50, dtype=torch.bool), torch.rand(3, 50) < 0.7):
        usable = made.usable & present[:, made.index]
        weight = kriging_weights(made.offset, usable, covariance)
        kriged = made.apply(values[:, None, :, None], made.weights(present), 1)[:, :, 0, 0, 0]
        torch.testing.assert_close(kriged, (weight * values[:, made.index]).sum(-1))


def test_the_stencil_of_a_query_at_a_node_is_that_of_the_node() -> None:
    nodes = scattered(80)
    chosen = np.array([5, 3, 70])
    every = make_stencil(nodes, nodes, FINE)
    some = make_stencil(nodes.take(chosen), nodes, FINE)
    assert torch.equal(some.weight[:, :, 1:], every.weight[:, chosen, 1:])
    torch.testing.assert_close(some.weight, every.weight[:, chosen], rtol=0, atol=1e-12)
    assert torch.equal(some.own, every.own[chosen])


def test_a_fit_with_missing_neighbours_is_the_fit_to_the_others() -> None:
    """All nodes are among the nearest."""
    nodes, queries = scattered(20), scattered(8, seed=1)
    generator = np.random.default_rng(3)
    values, present = generator.normal(size=20), generator.random(20) < 0.6
    with_gaps = fits(make_stencil(queries, nodes, FINE), np.where(present, values, 1e30), present)
    reduced = make_stencil(queries, nodes.take(np.flatnonzero(present)), FINE)
    torch.testing.assert_close(with_gaps, fits(reduced, values[present]))


def test_windows_may_have_different_missing_neighbours() -> None:
    nodes, generator = scattered(50), torch.Generator().manual_seed(0)
    made = make_stencil(scattered(8, seed=1), nodes, FINE)
    values = torch.randn(3, 4, 50, 2, generator=generator, dtype=torch.float64)
    present = torch.rand(3, 50, generator=generator) < 0.7
    together = made.apply(values, made.weights(present))
    alone = [made.apply(values[b : b + 1], made.weights(present[b : b + 1])) for b in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))
    everyone = torch.ones(3, 50, dtype=torch.bool)
    torch.testing.assert_close(
        made.apply(values, made.weights(everyone)), made.apply(values, made.weights(None))
    )


def test_each_pattern_of_missing_neighbours_is_solved_once() -> None:
    """Complete neighbourhoods are not solved again; the computation on a GPU solves all."""
    nodes = scattered(200)
    made = make_stencil(nodes, nodes, FINE)
    present = torch.ones(4, 200, dtype=torch.bool)
    present[1:, 7] = present[3, 150] = False  # a second pattern around node 150
    on_cpu = made.weights(present)
    one, other = (((made.index == node) & made.usable).any(1) for node in (7, 150))
    assert on_cpu.partial is not None and len(on_cpu.partial) == int(one.sum()) + int(other.sum())
    on_gpu = made.weights(present.as_subclass(FakeGpuTensor))
    assert on_gpu.pattern is None
    for count in (2, NUM_FITS):
        found = on_gpu.of(slice(20, 200), count).as_subclass(torch.Tensor)
        torch.testing.assert_close(found, on_cpu.of(slice(20, 200), count))


def test_distant_fits_use_the_only_neighbour_and_are_zero_without_any() -> None:
    nodes = Points(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    far = make_stencil(Points(np.array([[500.0, 0.0]])), nodes, Covariance(1.0))
    one = fits(far, np.array([3.0, 5.0, 7.0]), np.array([False, False, True]))
    torch.testing.assert_close(one[0, VALUES], torch.full((6,), 7.0).double(), rtol=1e-6, atol=0)
    none = fits(far, np.array([3.0, 5.0, 7.0]), np.zeros(3, bool))
    assert torch.equal(none, torch.zeros(1, NUM_FITS, dtype=torch.float64))
    alone = Points(np.array([[2.0, 2.0]]))
    assert torch.equal(fits(make_stencil(alone, alone, Covariance(1.0)), np.array([9.0])), none)


def test_chunks_change_nothing() -> None:
    nodes, generator = scattered(60), torch.Generator().manual_seed(0)
    made = make_stencil(nodes, nodes, FINE)
    torch.testing.assert_close(make_stencil(nodes, nodes, FINE, chunk=7).weight, made.weight)
    values = torch.randn(2, 3, 60, 2, generator=generator, dtype=torch.float64)
    present = torch.rand(2, 60, generator=generator) < 0.7
    workspace = 33 * 2 * 3 * 2 * 7  # seven queries at a time
    for mask in (None, present):
        expected = made.apply(values, made.weights(mask))
        found = made.apply(values, made.weights(mask, chunk=7), workspace=workspace)
        torch.testing.assert_close(found, expected)


def test_without_a_ridge_a_quadratic_fit_is_of_third_order_in_the_spacing() -> None:
    queries = Points(np.random.default_rng(9).uniform(0.3, 0.7, (40, 2)))

    def error(count: int) -> float:
        nodes = scattered(count)
        u = np.sin(4 * nodes.coordinates[:, 0]) * np.cos(3 * nodes.coordinates[:, 1])
        x = queries.coordinates
        truth = np.sin(4 * x[:, 0]) * np.cos(3 * x[:, 1])
        made = make_stencil(queries, nodes, Covariance(mean_spacing(nodes)), ridge=0.0)
        return float(np.abs(fits(made, u)[:, FIRST_QUADRATIC].numpy() - truth).mean())

    errors = [error(count) for count in (200, 800, 3200)]  # the spacing halves each time
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 2.5).all(), (errors, orders)


def test_the_first_fits_can_be_computed_alone() -> None:
    made, field = (
        make_stencil(scattered(7, 1), scattered(30), FINE),
        torch.randn(2, 3, 30, 2).double(),
    )
    for present in (None, torch.rand(2, 30) < 0.7):
        every = made.apply(field, made.weights(present))
        for count in (1, 3, NUM_FITS):
            first = made.apply(field, made.weights(present), count)
            torch.testing.assert_close(first, every[:, :, :, :count])


def test_a_stencil_restricted_to_its_nodes_gives_the_same_fits() -> None:
    nodes, chosen = scattered(200), np.array([3, 190, 50])
    made = make_stencil(nodes.take(chosen), nodes, FINE)
    small, near = made.restrict()
    assert len(near) < 100 and set(near) == {*made.index.flatten().tolist(), *chosen.tolist()}
    field, present = torch.randn(2, 3, 200, 1).double(), torch.rand(2, 200) < 0.8
    torch.testing.assert_close(
        small.apply(field[:, :, near], small.weights(present[:, near])),
        made.apply(field, made.weights(present)),
    )
    np.testing.assert_array_equal(near[small.own], chosen)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_taking_queries_of_a_stencil_gives_their_stencil(kind) -> None:
    places = scattered(80).coordinates * (1 if kind == "plane" else 20)
    nodes, chosen = Points(places, kind), np.array([3, 70, 50])
    some = make_stencil(nodes, nodes, FINE).take(torch.from_numpy(chosen))
    made = make_stencil(nodes.take(chosen), nodes, FINE)
    for name, value in vars(made).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(some, name), value)
    assert (some.place is None) == (kind == "plane")


def test_positions_are_unit_vectors_on_a_sphere_and_absent_on_a_plane() -> None:
    places = cap(5, 20)
    np.testing.assert_array_equal(make_stencil(places, places, FINE).place, places.embedded)
    assert make_stencil(scattered(5), scattered(5), FINE).place is None
