"""Kriging and local polynomial fits: exact on polynomials, blind to x itself and to gaps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.contracts import Elsewhere

from stonet.data.geometry import Points
from stonet.linear import local_polynomials
from stonet.linear.kriging import Covariance, krige, mean_spacing
from stonet.linear.local_polynomials import LINEAR, NUM_REGRESSORS, QUADRATIC, Stencil, make_stencil

FIRST_QUADRATIC = 1 + len(LINEAR)  # after kriging and the linear fits
FITS = [*range(1, FIRST_QUADRATIC), *(FIRST_QUADRATIC + 4 * q for q in range(len(QUADRATIC)))]
VALUES = [0, *FITS]  # the groups that say what the field is at x
FINE = Covariance(0.1)


def scattered(count: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(0, 1, (count, 2)))


def cap(count: int, degrees: float, seed: int = 0) -> Points:
    """Points on a sphere, in a box of that size around 40 N 0 E, where longitudes jump."""
    offset = np.random.default_rng(seed).uniform(-degrees, degrees, (count, 2))
    return Points((np.array([40.0, 0.0]) + offset) % 360, "sphere")


def fits(made: Stencil, field: np.ndarray, known: np.ndarray | None = None) -> torch.Tensor:
    """(query, group) of one frame of one channel."""
    mask = None if known is None else torch.from_numpy(known)[None]
    return made.apply(torch.tensor(field)[None, None, :, None], made.weights(mask))[0, :, 0, :, 0]


@pytest.fixture
def exact(monkeypatch) -> None:
    """Without the ridge, least squares reproduces what it can represent."""
    monkeypatch.setattr(local_polynomials, "RIDGE", 0.0)


def test_linear_fields_are_reproduced_by_every_fit(exact) -> None:
    nodes, queries = scattered(60), scattered(20, seed=1)
    made = make_stencil(queries, nodes, FINE)

    def u(points: Points) -> np.ndarray:
        return 3.0 + points.coordinates @ np.array([2.0, -5.0])

    fitted = fits(made, u(nodes))
    for group in FITS:
        torch.testing.assert_close(
            fitted[:, group], torch.from_numpy(u(queries)), rtol=0, atol=1e-7
        )


def test_value_gradient_and_laplacian_of_quadratic_fields_are_exact(exact) -> None:
    """Gradients come per width h, Laplacians per h squared."""
    nodes, queries = scattered(60), scattered(20, seed=1)
    a, b, matrix = 1.0, np.array([2.0, -1.0]), np.array([[3.0, 0.5], [0.5, -7.0]])

    def u(x: np.ndarray) -> np.ndarray:
        return a + x @ b + np.einsum("ni,ij,nj->n", x, matrix, x) / 2

    fitted = fits(make_stencil(queries, nodes, FINE), u(nodes.coordinates)).numpy()
    x = queries.coordinates
    for number, width in enumerate(QUADRATIC):
        h, first = width * FINE.spacing, FIRST_QUADRATIC + 4 * number
        np.testing.assert_allclose(fitted[:, first], u(x), atol=1e-6)
        np.testing.assert_allclose(
            fitted[:, first + 1 : first + 3], h * (b + x @ matrix), atol=1e-6
        )
        np.testing.assert_allclose(fitted[:, first + 3], h**2 * np.trace(matrix), atol=1e-6)


def test_the_ridge_changes_little_and_never_a_constant() -> None:
    nodes, queries = scattered(200), scattered(20, seed=1)
    spacing = mean_spacing(nodes)
    made = make_stencil(queries, nodes, Covariance(spacing))
    constant = fits(made, np.full(200, 7.0))
    torch.testing.assert_close(
        constant[:, VALUES], torch.full((20, 6), 7.0).double(), atol=1e-6, rtol=0
    )
    slope = fits(made, nodes.coordinates[:, 0])[:, FITS]
    error = (slope - torch.tensor(queries.coordinates[:, :1])).abs()
    assert error.max() < spacing  # in a corner, where all neighbours lie on one side
    assert error.median() < 0.01 * spacing


def test_on_a_small_cap_of_the_sphere_the_fits_are_those_of_the_tangent_plane() -> None:
    """Up to what flattening the cap changes."""
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
def test_a_point_does_not_see_itself(points: Points) -> None:
    made = make_stencil(points, points, Covariance(mean_spacing(points)))
    assert (made.own == torch.arange(40)).all()
    values = np.random.default_rng(2).normal(size=40)
    changed = values.copy()
    changed[7] = 1e6
    before, after = fits(made, values), fits(made, changed)
    assert torch.equal(before[7], after[7])
    assert not torch.equal(before, after)


def test_kriging_comes_first() -> None:
    covariance = Covariance(0.1, range=4.0, nugget=0.1)
    made = make_stencil(scattered(8, seed=1), scattered(50), covariance)
    values = torch.randn(3, 50, dtype=torch.float64)
    for known in (torch.ones(3, 50, dtype=torch.bool), torch.rand(3, 50) < 0.7):
        weight = krige(made.offset, made.usable & known[:, made.index], 4.0, 0.1)
        kriged = made.apply(values[:, None, :, None], made.weights(known), 1)[:, :, 0, 0, 0]
        torch.testing.assert_close(kriged, (weight * values[:, made.index]).sum(-1))


def test_a_node_asked_as_a_query_sees_what_the_node_sees() -> None:
    nodes = scattered(80)
    chosen = np.array([5, 3, 70])
    every = make_stencil(nodes, nodes, FINE)
    asked = make_stencil(nodes.take(chosen), nodes, FINE)
    assert torch.equal(asked.weight[:, :, 1:], every.weight[:, chosen, 1:])
    torch.testing.assert_close(asked.weight, every.weight[:, chosen], rtol=0, atol=1e-12)
    assert torch.equal(asked.own, every.own[chosen])


def test_missing_neighbours_leave_the_fit() -> None:
    """As if they had never been there (all nodes are among the nearest)."""
    nodes, queries = scattered(20), scattered(8, seed=1)
    generator = np.random.default_rng(3)
    values, known = generator.normal(size=20), generator.random(20) < 0.6
    with_gaps = fits(make_stencil(queries, nodes, FINE), np.where(known, values, 1e30), known)
    reduced = make_stencil(queries, nodes.take(np.flatnonzero(known)), FINE)
    torch.testing.assert_close(with_gaps, fits(reduced, values[known]))


def test_every_window_has_its_own_missing_neighbours() -> None:
    nodes, generator = scattered(50), torch.Generator().manual_seed(0)
    made = make_stencil(scattered(8, seed=1), nodes, FINE)
    values = torch.randn(3, 4, 50, 2, generator=generator, dtype=torch.float64)
    known = torch.rand(3, 50, generator=generator) < 0.7
    together = made.apply(values, made.weights(known))
    alone = [made.apply(values[b : b + 1], made.weights(known[b : b + 1])) for b in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))
    everyone = torch.ones(3, 50, dtype=torch.bool)
    torch.testing.assert_close(
        made.apply(values, made.weights(everyone)), made.apply(values, made.weights(None))
    )


def test_each_kind_of_missing_neighbours_is_solved_once_and_a_gpu_finds_the_same() -> None:
    """Queries whose neighbours are all there need no solving at all."""
    nodes = scattered(200)
    made = make_stencil(nodes, nodes, FINE)
    known = torch.ones(4, 200, dtype=torch.bool)
    known[1:, 7] = known[3, 150] = False  # with 7 missing too, 150's neighbours miss anew
    there = made.weights(known)
    one, other = (((made.index == node) & made.usable).any(1) for node in (7, 150))
    assert there.short is not None and len(there.short) == int(one.sum()) + int(other.sum())
    far = made.weights(known.as_subclass(Elsewhere))
    assert far.index is None
    for groups in (2, NUM_REGRESSORS):
        found = far.of(slice(20, 200), groups).as_subclass(torch.Tensor)
        torch.testing.assert_close(found, there.of(slice(20, 200), groups))


def test_far_out_the_one_known_neighbour_speaks_and_without_any_there_is_zero() -> None:
    nodes = Points(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    far = make_stencil(Points(np.array([[500.0, 0.0]])), nodes, Covariance(1.0))
    one = fits(far, np.array([3.0, 5.0, 7.0]), np.array([False, False, True]))
    torch.testing.assert_close(one[0, VALUES], torch.full((6,), 7.0).double(), rtol=1e-6, atol=0)
    none = fits(far, np.array([3.0, 5.0, 7.0]), np.zeros(3, bool))
    assert torch.equal(none, torch.zeros(1, NUM_REGRESSORS, dtype=torch.float64))
    alone = Points(np.array([[2.0, 2.0]]))
    assert torch.equal(fits(make_stencil(alone, alone, Covariance(1.0)), np.array([9.0])), none)


def test_chunks_change_nothing(monkeypatch) -> None:
    nodes, generator = scattered(60), torch.Generator().manual_seed(0)
    made = make_stencil(nodes, nodes, FINE)
    monkeypatch.setattr(local_polynomials, "FITTED", 7)
    torch.testing.assert_close(make_stencil(nodes, nodes, FINE).weight, made.weight)
    values = torch.randn(2, 3, 60, 2, generator=generator, dtype=torch.float64)
    known = torch.rand(2, 60, generator=generator) < 0.7
    whole = [made.apply(values, made.weights(None)), made.apply(values, made.weights(known))]
    monkeypatch.setattr(
        local_polynomials, "WORKSPACE", 33 * 2 * 3 * 2 * 7
    )  # seven queries at a time
    for expected, mask in zip(whole, (None, known), strict=True):
        torch.testing.assert_close(made.apply(values, made.weights(mask)), expected)


def test_refining_the_points_converges(exact) -> None:
    """A quadratic fit errs with the third power of the spacing in the value."""
    queries = Points(np.random.default_rng(9).uniform(0.3, 0.7, (40, 2)))

    def error(count: int) -> float:
        nodes = scattered(count)
        u = np.sin(4 * nodes.coordinates[:, 0]) * np.cos(3 * nodes.coordinates[:, 1])
        x = queries.coordinates
        truth = np.sin(4 * x[:, 0]) * np.cos(3 * x[:, 1])
        made = make_stencil(queries, nodes, Covariance(mean_spacing(nodes)))
        return float(np.abs(fits(made, u)[:, FIRST_QUADRATIC].numpy() - truth).mean())

    errors = [error(count) for count in (200, 800, 3200)]  # the spacing halves each time
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 2.5).all(), (errors, orders)


def test_the_first_fits_alone_are_the_first_of_all() -> None:
    made, field = (
        make_stencil(scattered(7, 1), scattered(30), FINE),
        torch.randn(2, 3, 30, 2).double(),
    )
    for known in (None, torch.rand(2, 30) < 0.7):
        every = made.apply(field, made.weights(known))
        for count in (1, 3, NUM_REGRESSORS):
            torch.testing.assert_close(
                made.apply(field, made.weights(known), count), every[:, :, :, :count]
            )


def test_a_stencil_of_the_nodes_around_gives_the_same_fits() -> None:
    nodes, chosen = scattered(200), np.array([3, 190, 50])
    made = make_stencil(nodes.take(chosen), nodes, FINE)
    small, near = made.around()
    assert len(near) < 100 and set(near) == {*made.index.flatten().tolist(), *chosen.tolist()}
    field, known = torch.randn(2, 3, 200, 1).double(), torch.rand(2, 200) < 0.8
    torch.testing.assert_close(
        small.apply(field[:, :, near], small.weights(known[:, near])),
        made.apply(field, made.weights(known)),
    )
    np.testing.assert_array_equal(near[small.own], chosen)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_some_queries_of_a_stencil_are_the_stencil_of_these_queries(kind) -> None:
    places = scattered(80).coordinates * (1 if kind == "plane" else 20)
    nodes, chosen = Points(places, kind), np.array([3, 70, 50])
    some = make_stencil(nodes, nodes, FINE).take(torch.from_numpy(chosen))
    made = make_stencil(nodes.take(chosen), nodes, FINE)
    for name, value in vars(made).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(some, name), value)
    assert (some.place is None) == (kind == "plane")


def test_places_are_unit_vectors_on_a_sphere_and_none_on_a_plane() -> None:
    places = cap(5, 20)
    np.testing.assert_array_equal(make_stencil(places, places, FINE).place, places.embedded)
    assert make_stencil(scattered(5), scattered(5), FINE).place is None
