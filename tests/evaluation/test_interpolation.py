"""Inverse distances and kriging: closed forms, a dense solve, fields of known covariance."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.evaluation.interpolation import (
    SHAPES,
    InverseDistance,
    Kriging,
    Method,
    Variogram,
    empirical_variogram,
    fit_inverse_distance,
    fit_kriging,
    fit_variogram,
    interpolate,
)


def places(count: int, kind: str = "plane", seed: int = 0) -> Points:
    unit = np.random.default_rng(seed).random((count, 2))
    return Points(unit if kind == "plane" else np.array([50.0, -5.0]) + 10 * unit, kind)


def values_at(count: int, times: int = 3, channels: int = 2, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(times, count, channels))


def random_field(points: Points, variogram: Variogram, frames: int, seed: int) -> np.ndarray:
    """A Gaussian field with exactly this variogram, by the Cholesky factor; (time, node)."""
    lag = points.geometry.distance(points.embedded[:, None], points.embedded[None])
    covariance = variogram.covariance(lag) + (variogram.nugget + 1e-10) * np.eye(len(points))
    draws = np.random.default_rng(seed).normal(size=(len(points), frames))
    return (np.linalg.cholesky(covariance) @ draws).T


METHODS: dict[str, Method] = {
    "shepard": InverseDistance(),
    "sharp": InverseDistance(3.0, 4),
    **{shape: Kriging(Variogram(shape, 0.0, 2.0, 0.03)) for shape in SHAPES},
    "noisy": Kriging(Variogram("spherical", 0.3, 1.0, 0.3), 16),
}
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
BOTH = pytest.mark.parametrize("kind", ["plane", "sphere"])


@EVERY
@BOTH
def test_weights_sum_to_one_and_constants_are_reproduced(method: Method, kind: str) -> None:
    nodes, queries = places(40, kind), places(17, kind, 2)
    weights = method.weights(nodes, queries)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-9)
    result = interpolate(np.full((5, 40, 3), 7.5), nodes, queries, [method])
    np.testing.assert_allclose(result, 7.5, rtol=1e-9)


@pytest.mark.parametrize("name", ["shepard", "sharp", "exponential", "spherical", "gaussian"])
@BOTH
def test_without_a_nugget_a_node_keeps_its_value(name: str, kind: str) -> None:
    nodes, values = places(30, kind), values_at(30)
    result = interpolate(values, nodes, nodes.take(np.array([3, 17])), [METHODS[name]])
    np.testing.assert_allclose(result, values[:, [3, 17]], atol=2e-4)


def test_a_nugget_smooths_and_a_pure_nugget_gives_the_mean_of_the_neighbours() -> None:
    nodes, values = places(20), values_at(20)
    pure_noise = Variogram("exponential", 1.0, 0.0, 1.0)
    result = interpolate(values, nodes, nodes, [Kriging(pure_noise, 20)])
    np.testing.assert_allclose(result, np.broadcast_to(values.mean(1, keepdims=True), result.shape))
    little, much = (
        interpolate(values, nodes, nodes, [Kriging(Variogram("exponential", n, 1.0, 0.3))])
        for n in (0.05, 0.5)
    )
    assert values.std() > little.std() > much.std()


def test_weights_of_two_nodes() -> None:
    """A query at 1 of 4 between nodes 0 and 4: weights 9 : 1; kriging w = 1/2 + Δγ / 2γ."""
    nodes, query = Points(np.array([[0.0, 0.0], [4.0, 0.0]])), Points(np.array([[1.0, 0.0]]))
    values = np.array([[[10.0], [20.0]]])
    assert interpolate(values, nodes, query, [InverseDistance()]).item() == pytest.approx(
        0.9 * 10 + 0.1 * 20
    )
    variogram = Variogram("exponential", 0.2, 1.5, 3.0)
    near, far, apart = (0.2 + 1.5 * (1 - np.exp(-h / 3.0)) for h in (1, 3, 4))
    first = 0.5 + (far - near) / (2 * apart)
    result = interpolate(values, nodes, query, [Kriging(variogram)]).item()
    assert result == pytest.approx(first * 10 + (1 - first) * 20)


@BOTH
@pytest.mark.parametrize("shape", ["exponential", "spherical"])
def test_kriging_equals_the_dense_solution_of_the_kriging_system(kind: str, shape: str) -> None:
    """In terms of γ and a Lagrange multiplier, with all nodes."""
    nodes, queries, values = places(25, kind), places(9, kind, 3), values_at(25)
    variogram = Variogram(shape, 0.1, 1.3, 0.08, kind)

    def gamma(lag: np.ndarray) -> np.ndarray:
        ratio = lag / variogram.range
        risen = 1 - np.exp(-ratio) if shape == "exponential" else np.minimum(ratio, 1) * 1.5
        if shape == "spherical":
            risen = risen - 0.5 * np.minimum(ratio, 1) ** 3
        return variogram.nugget + variogram.sill * risen

    def lags(a: Points, b: Points) -> np.ndarray:
        return a.geometry.distance(a.embedded[:, None], b.embedded[None])

    system = np.ones((26, 26))
    system[:25, :25] = gamma(lags(nodes, nodes)) * (1 - np.eye(25))
    system[25, 25] = 0
    right = np.ones((26, 9))
    right[:25] = gamma(lags(nodes, queries))
    weights = np.linalg.solve(system, right)[:25]
    wanted = np.einsum("nq,tnc->tqc", weights, values)
    result = interpolate(values, nodes, queries, [Kriging(variogram, 25)])
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-7)


def test_the_nearest_nodes_suffice() -> None:
    nodes, queries = places(300), places(40, seed=4)
    variogram = Variogram("exponential", 0.0, 1.0, 0.3)
    values = random_field(nodes, variogram, 20, 5)[..., None]
    local, full = (interpolate(values, nodes, queries, [Kriging(variogram, n)]) for n in (24, 300))
    assert np.abs(local - full).mean() < 0.01 < 0.1 * np.abs(full).mean()


@pytest.mark.parametrize("shape", SHAPES)
@BOTH
def test_kriging_with_the_true_variogram_beats_inverse_distances(shape: str, kind: str) -> None:
    """And its error has the theoretical kriging variance."""
    both = places(220, kind)
    variogram = Variogram(shape, 0.02, 1.0, 0.3 if kind == "plane" else 0.04, kind)
    field = random_field(both, variogram, 400, 6)[..., None]
    seen, unseen = np.arange(180), np.arange(180, 220)
    nodes, queries = both.take(seen), both.take(unseen)

    def error(result: np.ndarray) -> float:
        return float(np.sqrt(np.square(result - field[:, unseen]).mean()))

    best_known = error(interpolate(field[:, seen], nodes, queries, [Kriging(variogram)]))
    weights = Kriging(variogram).weights(nodes, queries).toarray()
    share = np.concatenate([weights, -np.eye(40)], axis=1)  # of estimate minus truth
    lag = both.geometry.distance(both.embedded[:, None], both.embedded[None])
    variance = share @ (variogram.covariance(lag) + variogram.nugget * np.eye(220)) @ share.T
    assert best_known == pytest.approx(np.sqrt(np.diag(variance).mean()), rel=0.05)
    shepard = fit_inverse_distance(field[:200, seen, 0], nodes)
    fitted = fit_kriging(field[:200, seen, 0], nodes)
    assert best_known < 0.97 * error(interpolate(field[:, seen], nodes, queries, [shepard]))
    assert error(interpolate(field[:, seen], nodes, queries, [fitted])) < 1.03 * best_known


def test_the_empirical_variogram_is_the_mean_over_pairs_and_frames() -> None:
    nodes, values = places(12), values_at(12, times=6)[..., 0]
    values[np.random.default_rng(2).random(values.shape) < 0.2] = np.nan
    lag, half, pairs = empirical_variogram(values, nodes)
    far = np.linalg.norm(nodes.coordinates[:, None] - nodes.coordinates[None], axis=-1)
    apart = np.square(values[:, :, None] - values[:, None, :])
    used = np.isfinite(apart) & ((far > 0) & (far <= far.max() / 2))
    assert pairs.sum() == used.sum()
    assert (half * pairs).sum() == pytest.approx(0.5 * apart[used].sum())
    assert (lag * pairs).sum() == pytest.approx(np.broadcast_to(far, apart.shape)[used].sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_known_variogram_is_recovered(shape: str) -> None:
    nodes, variogram = places(250), Variogram(shape, 0.1, 1.0, 0.15)
    result = fit_variogram(random_field(nodes, variogram, 1000, 7), nodes)
    lag = np.array([0.03, 0.1, 0.2, 0.4])
    known, fitted = (v.nugget + v.sill - v.covariance(lag) for v in (variogram, result))
    np.testing.assert_allclose(fitted, known, rtol=0.05)
    assert result.shape == shape or shape != "gaussian"  # the other two are hard to distinguish


@EVERY
def test_a_missing_value_equals_a_missing_node(method: Method) -> None:
    nodes, queries, values = places(40), places(6, seed=8), values_at(40, times=5)
    missing = np.random.default_rng(9).random(values.shape) < 0.3
    result = interpolate(np.where(missing, np.nan, values), nodes, queries, [method])
    for time in range(5):
        for channel in range(2):
            kept = np.flatnonzero(~missing[time, :, channel])
            alone = values[time, kept, channel][None, :, None]
            wanted = interpolate(alone, nodes.take(kept), queries, [method])
            np.testing.assert_allclose(result[time, :, channel], wanted[0, :, 0], rtol=1e-12)


def test_times_without_values_give_nan() -> None:
    values = values_at(10)
    values[1, :, 0] = np.nan
    result = interpolate(values, places(10), places(4, seed=3), [InverseDistance()])
    assert np.isnan(result[1, :, 0]).all() and np.isnan(result).sum() == 4


@EVERY
def test_interpolation_is_equivariant_under_changes_of_units(method: Method) -> None:
    nodes, queries, values = places(40), places(6, seed=8), values_at(40)
    one, other = (interpolate(v, nodes, queries, [method]) for v in (values, 5 + 3 * values))
    np.testing.assert_allclose(other, 5 + 3 * one, rtol=1e-6, atol=1e-5)


def test_the_date_line_makes_no_difference() -> None:
    """A rotation around the axis does not change the result."""
    nodes, queries, values = places(40, "sphere"), places(6, "sphere", 2), values_at(40)
    turned = [
        Points(p.coordinates + np.array([0.0, 180.0]), "sphere", p.names) for p in (nodes, queries)
    ]
    for method in (InverseDistance(), Kriging(Variogram("gaussian", 0.1, 1.0, 0.05, "sphere"))):
        one, other = (interpolate(values, *where, [method]) for where in ((nodes, queries), turned))
        np.testing.assert_allclose(one, other, rtol=1e-7)


def test_two_sensors_at_one_position_have_equal_weights() -> None:
    nodes = Points(np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
    query, values = Points(np.array([[0.25, 0.0]])), np.array([[[1.0], [3.0], [2.0]]])
    variogram = Variogram("exponential", 0.0, 1.0, 1.0)
    for method in (InverseDistance(), Kriging(variogram)):
        weights = method.weights(nodes, query).toarray()[0]
        assert weights[0] == pytest.approx(weights[1], rel=1e-3)
        assert interpolate(values, nodes, query, [method]).item() == pytest.approx(2, abs=1e-3)


def test_one_node_or_constant_values_suffice() -> None:
    one, query = places(1), places(2, seed=3)
    for fit in (fit_inverse_distance, fit_kriging):
        alone = interpolate(np.full((2, 1, 1), 4.0), one, query, [fit(np.ones((5, 1)), one)])
        np.testing.assert_allclose(alone, 4.0)
        still = fit(np.ones((5, 9)), places(9))
        result = interpolate(values_at(9), places(9), query, [still])
        assert np.isfinite(result).all()


def test_wrong_shapes_and_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Values at 5 nodes in 2 channels; .* 6 nodes"):
        interpolate(values_at(5), places(6), places(2), [InverseDistance()])
    with pytest.raises(UsageError, match="3 methods"):
        interpolate(values_at(6), places(6), places(2), [InverseDistance()] * 3)
    with pytest.raises(UsageError, match="nearest 0 nodes"):
        interpolate(values_at(6), places(6), places(2), [InverseDistance(nearest=0)])
    with pytest.raises(DataError, match="Nodes on a plane, queries on a sphere"):
        interpolate(values_at(6), places(6), places(2, "sphere"), [InverseDistance()])
