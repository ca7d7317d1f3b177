"""Ridge regression from sums equals the one from rows."""

from __future__ import annotations

import numpy as np
import pytest

from stonet import ridge
from stonet.ridge import Moments, best_ridge

COLUMNS, LEADS, CHANNELS = 5, 3, 2


def rows(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Regressors of different sizes with an intercept last, and targets with noise."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, COLUMNS)) * np.array([1.0, 3.0, 0.2, 1.0, 1.0]) + 0.5
    x[:, -1] = 1.0
    true = np.random.default_rng(seed % 2).normal(size=(COLUMNS, LEADS, CHANNELS))
    return x, np.einsum("rc,cld->rld", x, true) + 0.1 * generator.normal(
        size=(count, LEADS, CHANNELS)
    )


def moments(*parts: tuple[np.ndarray, np.ndarray]) -> Moments:
    """One hour for each part, added in pieces."""
    result = Moments.zeros(len(parts), COLUMNS, LEADS, CHANNELS)
    for hour, (x, y) in enumerate(parts):
        for piece in np.array_split(np.arange(len(x)), 3):
            result.add(hour, x[piece], y[piece])
    return result


def lstsq(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(x, y.reshape(len(x), -1), rcond=None)[0].reshape(-1, LEADS, CHANNELS)


@pytest.fixture
def least_squares(monkeypatch) -> None:
    monkeypatch.setattr(ridge, "RIDGES", (1e-14,))


def test_the_error_from_sums_is_the_mean_square_over_rows() -> None:
    parts = rows(0), rows(1, count=50)
    beta = np.random.default_rng(5).normal(size=(2, COLUMNS, LEADS, CHANNELS))
    squares = [
        (np.einsum("rc,cld->rld", x, b) - y) ** 2 for (x, y), b in zip(parts, beta, strict=True)
    ]
    wanted = np.concatenate(squares).mean(0)
    np.testing.assert_allclose(moments(*parts).error(beta), wanted, rtol=1e-10)


def test_pooled_coefficients_are_those_of_least_squares(least_squares) -> None:
    x, y = rows(0)
    beta, error, chosen = best_ridge(moments((x, y)), moments(rows(2)))
    np.testing.assert_allclose(beta[0], lstsq(x, y), rtol=1e-8)
    np.testing.assert_allclose(error, moments(rows(2)).error(beta))
    assert chosen == 1e-14


def test_columns_that_are_not_kept_take_no_part(least_squares) -> None:
    x, y = rows(0)
    keep = np.array([0, 2, 4])
    beta, _, _ = best_ridge(moments((x, y)).take(keep), moments((x, y)).take(keep))
    np.testing.assert_allclose(beta[0], lstsq(x[:, keep], y), rtol=1e-8)


def test_the_pull_leads_from_each_hour_alone_to_all_together(least_squares, monkeypatch) -> None:
    parts = rows(0), rows(1)
    apart = np.stack([lstsq(*part) for part in parts])
    together = lstsq(*(np.concatenate(pair) for pair in zip(*parts, strict=True)))
    for pull, wanted in ((1e-13, apart), (1e10, np.stack([together] * 2))):
        monkeypatch.setattr(ridge, "PULLS", (pull, np.inf))
        train = moments(*parts)
        hourly, _, _ = best_ridge(train, train)
        if pull > 1:  # the last pull stands for infinity: the limit must not differ from it
            monkeypatch.setattr(ridge, "PULLS", (np.inf,))
            pooled, _, _ = best_ridge(train, train)
            np.testing.assert_allclose(pooled, wanted, rtol=1e-6)
        np.testing.assert_allclose(hourly, wanted, rtol=1e-6)


def test_an_hour_that_was_never_seen_uses_the_pooled_coefficients() -> None:
    train = moments(rows(0), (np.zeros((0, COLUMNS)), np.zeros((0, LEADS, CHANNELS))))
    beta, _, _ = best_ridge(train, train)
    np.testing.assert_allclose(beta[1], beta[0], rtol=0.05)
    np.testing.assert_allclose(beta[1], lstsq(*rows(0)), rtol=0.05)


def test_the_best_on_validation_is_chosen_or_on_training_where_there_is_none() -> None:
    """Noise in a few rows asks for a larger ridge than the rows themselves do."""
    x, y = rows(0, count=6)
    y = y + np.random.default_rng(8).normal(size=y.shape)
    train, validation = moments((x, y)), moments(rows(2))
    beta, error, chosen = best_ridge(train, validation)
    for other in ridge.RIDGES:
        size = np.trace(x.T @ x) / COLUMNS
        solved = np.linalg.solve(x.T @ x + other * size * np.eye(COLUMNS), x.T @ y.reshape(6, -1))
        there = validation.error(solved.reshape(1, COLUMNS, LEADS, CHANNELS)).mean()
        assert error.mean() <= there * (1 + 1e-9)
        if other == chosen:
            np.testing.assert_allclose(beta[0].reshape(COLUMNS, -1), solved, rtol=1e-6)
    nothing = Moments.zeros(1, COLUMNS, LEADS, CHANNELS)
    assert best_ridge(train, nothing)[2] < 1e-6 < chosen


def test_whitened_regressors_are_uncorrelated_with_mean_zero() -> None:
    x, y = rows(0)
    white = moments((x, y)).whitening(1e-14, width=COLUMNS - 1)
    z = x @ white
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(COLUMNS - 1), atol=1e-9)


def test_whitening_keeps_the_widest_directions_and_leaves_columns_out() -> None:
    x, y = rows(0)
    train, keep = moments((x, y)), np.array([0, 1, 4])
    narrow = train.whitening(1e-14, width=1)
    variance, direction = np.linalg.eigh(np.cov(x[:, :-1].T, bias=True))
    along = narrow[:-1, 0] * np.sqrt(variance[-1])
    np.testing.assert_allclose(np.abs(along), np.abs(direction[:, -1]), atol=1e-9)
    some = train.take(keep).whitening(1e-14, width=4)
    assert (some[:, 2:] == 0).all()
    z = x[:, keep] @ some[:, :2]
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(2), atol=1e-9)


def test_directions_below_the_ridge_stay_small() -> None:
    x, y = rows(0)
    x[:, 3] = x[:, 0] + 1e-9 * x[:, 3]  # twice the same, but for noise
    z = x @ moments((x, y)).whitening(1e-6, width=COLUMNS - 1)
    spread = z.std(0)
    assert spread[-1] < 0.01 and (spread[:-1] > 0.9).all()


def test_blurred_sums_are_those_of_columns_with_errors_of_their_own() -> None:
    """In the mean over many errors, which have nothing to do with anything else."""
    x, y = rows(0)
    noise = np.array([0.5, 2.0, 0.0, 0.1, 0.0])
    errors = np.random.default_rng(1).normal(size=(4000, *x.shape)) * np.sqrt(noise)
    wanted = np.mean([(x + e).T @ (x + e) for e in errors], axis=0)
    blurred = moments((x, y)).blurred(noise)
    np.testing.assert_allclose(blurred.xx[0], wanted, atol=0.01 * len(x))
    np.testing.assert_array_equal(blurred.xy, moments((x, y)).xy)
