"""Placement of sensors: each reduction is that of a literal kriging system."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.evaluation.error_covariance import Fold, fit_error_covariance, kriging_products
from stonet.evaluation.interpolation import Variogram
from stonet.evaluation.placement import area_weights, inside_hull, place_sensors


def scattered(count: int, kind: str = "plane", seed: int = 0) -> Points:
    random = np.random.default_rng(seed).uniform(size=(count, 2))
    return Points(random if kind == "plane" else random * [30, 40] + [40, 170], kind)  # type: ignore[arg-type]


def variogram(kind: str = "plane", nugget: float = 0.2, sill: float = 2.0) -> Variogram:
    return Variogram("exponential", nugget, sill, 0.3, kind)  # type: ignore[arg-type]


def literal_variance(covariance: Variogram, sensors: Points, places: Points) -> np.ndarray:
    """Simple kriging, the system of each place written out and solved."""

    def shared(a: np.ndarray, b: np.ndarray) -> float:
        on_sphere = sensors.kind == "sphere"
        lag = float(np.arccos(np.clip(a @ b, -1, 1)) if on_sphere else np.linalg.norm(a - b))
        return covariance.sill * float(np.exp(-lag / covariance.range))

    variances = []
    for place in places.embedded:
        near = np.array([shared(sensor, place) for sensor in sensors.embedded])
        matrix = np.array([[shared(a, b) for b in sensors.embedded] for a in sensors.embedded])
        matrix += covariance.nugget * np.eye(len(sensors))
        explained = near @ np.linalg.solve(matrix, near)
        variances.append(covariance.sill + covariance.nugget - explained)
    return np.array(variances)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_every_stage_equals_the_kriging_variance_of_all_sensors_so_far(kind: str) -> None:
    sensors, candidates, region = (scattered(n, kind, n) for n in (8, 12, 15))
    covariance = variogram(kind)
    found = place_sensors(covariance, sensors, candidates, region, 4)
    share = area_weights(region)
    for stage in range(5):
        present = sensors.joined(candidates.take(found.chosen[:stage])) if stage else sensors
        expected = literal_variance(covariance, present, region)
        assert found.mean[stage] == pytest.approx(share @ expected, rel=1e-6)
    literal = literal_variance(covariance, sensors, region)
    np.testing.assert_allclose(found.before, literal, rtol=1e-6)
    np.testing.assert_allclose(found.after, expected, rtol=1e-6)


def test_each_choice_is_the_best_of_all_candidates() -> None:
    sensors, candidates, region = (scattered(n, seed=n) for n in (6, 9, 20))
    covariance = variogram()
    found = place_sensors(covariance, sensors, candidates, region, 3)
    present = sensors
    for choice in found.chosen.tolist():
        means = [
            literal_variance(covariance, present.joined(candidates.take(np.array([c]))), region)
            for c in range(len(candidates))
        ]
        assert int(np.mean(means, axis=1).argmin()) == choice
        present = present.joined(candidates.take(np.array([choice])))


def test_more_sensors_never_harm_and_help_less_and_less() -> None:
    found = place_sensors(variogram(), scattered(5), scattered(20, seed=1), scattered(50), 20)
    assert (found.reduction >= -1e-12).all()
    assert (np.diff(found.reduction) <= 1e-9).all()
    assert (found.after <= found.before + 1e-12).all()
    assert sorted(found.chosen.tolist()) == list(range(20))


def test_of_two_candidates_the_one_far_from_the_sensors_is_better() -> None:
    sensors = Points(np.array([[0.0, 0.0], [0.0, 1.0]]))
    candidates = Points(np.array([[0.05, 0.5], [1.0, 0.5]]))
    region = Points(
        np.stack(np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9)), -1).reshape(-1, 2)
    )
    assert place_sensors(variogram(), sensors, candidates, region, 1).chosen.tolist() == [1]


def test_the_middle_of_a_symmetric_layout_comes_first() -> None:
    """And with it the layout stays symmetric: the mirrored candidates are equally good."""
    corners = Points(np.array(list(itertools.product([-1.0, 1.0], repeat=2))))
    axis = np.linspace(-1, 1, 11)
    region = Points(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2))
    candidates = Points(np.array([[0.6, 0.0], [0.0, 0.0], [-0.6, 0.0]]))
    found = place_sensors(variogram(), corners, candidates, region, 3)
    assert found.chosen[0] == 1
    mirrored = Points(candidates.coordinates * [-1, 1])
    np.testing.assert_allclose(
        place_sensors(variogram(), corners, mirrored, region, 3).mean, found.mean
    )


def test_one_sensor_in_closed_form() -> None:
    """A single place and candidate far from any sensor: v = s + n - c² / (s + n)."""
    covariance = variogram()
    sensors = Points(np.array([[1e6, 0.0]]))
    place, candidate = Points(np.array([[0.0, 0.0]])), Points(np.array([[0.3, 0.0]]))
    found = place_sensors(covariance, sensors, candidate, place, 1)
    shared = 2.0 * np.exp(-1)
    np.testing.assert_allclose(found.mean, [2.2, 2.2 - shared**2 / 2.2])


def test_a_candidate_at_a_noiseless_sensor_is_of_no_use() -> None:
    sensors = scattered(4)
    found = place_sensors(variogram(nugget=0.0), sensors, sensors, scattered(30, seed=2), 2)
    np.testing.assert_allclose(found.reduction, 0.0, atol=1e-6)


@pytest.mark.parametrize("count", [0, 4])
def test_a_number_that_there_is_not_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="candidates"):
        place_sensors(variogram(), scattered(3), scattered(3), scattered(3), count)


def exact_folds(covariance: Variogram, points: Points) -> list[Fold]:
    """Folds whose errors are those of kriging with this covariance, over a floor of 0.7."""
    folds, order = [], np.random.default_rng(1).permutation(len(points))
    for number in range(5):
        hidden = np.sort(order[number::5])
        known = np.setdiff1d(order, hidden)
        a, b = points.take(hidden).embedded, points.take(known).embedded
        distance = points.geometry.distance
        lags = (distance(a[:, None], a), distance(a[:, None], b), distance(b[:, None], b))
        removable = kriging_products(*map(covariance.covariance, lags), covariance.nugget)
        floor = 0.7 * np.ones_like(removable)
        folds.append(Fold(known, hidden, removable + floor, floor))
    return folds


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_the_covariance_of_exact_errors_is_found(kind: str) -> None:
    points = scattered(80, kind)
    spacing = 0.06 if kind == "plane" else 0.04
    true = Variogram("exponential", 0.3, 3.0, 4 * spacing, kind)  # type: ignore[arg-type]
    fitted = fit_error_covariance(exact_folds(true, points), points)
    lags = spacing * np.array([0.5, 1.0, 2.0])
    slopes = [(v.nugget + v.sill - v.covariance(lags)) for v in (fitted, true)]
    np.testing.assert_allclose(*slopes, rtol=0.15)


def test_errors_that_history_does_not_reduce_are_refused() -> None:
    points = scattered(20)
    folds = [
        Fold(f.known, f.hidden, f.with_history, f.without) for f in exact_folds(variogram(), points)
    ]
    with pytest.raises(DataError, match="no larger"):
        fit_error_covariance(folds, points)


def test_the_hull_of_a_square_holds_its_inside() -> None:
    corners = Points(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    places = Points(np.array([[0.5, 0.5], [1.0, 0.5], [1.1, 0.5], [-0.2, -0.2]]))
    assert inside_hull(places, corners).tolist() == [True, True, False, False]


def test_the_hull_on_the_sphere_is_bounded_by_great_circles_across_the_date_line() -> None:
    corners = Points(
        np.array([[0.0, 170.0], [0.0, -170.0], [60.0, 170.0], [60.0, -170.0]]), "sphere"
    )
    at = [[30.0, 180.0], [60.3, 180.0], [59.0, 0.0], [-1.0, 180.0], [30.0, 165.0]]
    # the great circle between the northern corners passes north of their parallel
    assert inside_hull(Points(np.array(at), "sphere"), corners).tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_stations_around_the_globe_enclose_everything() -> None:
    around = Points(np.array([[0.0, 0.0], [0.0, 120.0], [0.0, 240.0], [80.0, 0.0]]), "sphere")
    assert inside_hull(scattered(5, "sphere"), around).all()
