"""Ridge regression from sums equals ridge regression from rows."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.linear.ridge import (
    GRAM_COLUMNS,
    INFINITE_PULL,
    PRIOR_RIDGES,
    PULLS,
    RIDGES,
    Moments,
    Penalty,
    best_penalty,
    gram,
    solve,
)

COLUMNS, LEADS, CHANNELS = 5, 3, 2
WIDTH = GRAM_COLUMNS
Rows = tuple[tuple[np.ndarray, np.ndarray], ...]  # X and Y of every hour
LEAST_SQUARES = Penalty(1e-14, INFINITE_PULL)  # all hours together


def rows(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Regressors of different sizes with an intercept last, and targets with noise."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, COLUMNS)) * np.array([1.0, 3.0, 0.2, 1.0, 1.0]) + 0.5
    x[:, -1] = 1.0
    true = np.random.default_rng(seed % 2).normal(size=(COLUMNS, LEADS, CHANNELS))
    return x, forecast(x, true) + 0.1 * generator.normal(size=(count, LEADS, CHANNELS))


def moments(*parts: tuple[np.ndarray, np.ndarray]) -> Moments:
    """One hour for each part, added in pieces."""
    result = Moments.zeros(len(parts), COLUMNS, LEADS, CHANNELS)
    for hour, (x, y) in enumerate(parts):
        for piece in np.array_split(np.arange(len(x)), 3):
            result.add(hour, x[piece], y[piece])
    return result


def lstsq(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(x, y.reshape(len(x), -1), rcond=None)[0].reshape(-1, LEADS, CHANNELS)


def ridge_by_rows(
    x: np.ndarray, y: np.ndarray, strength: float, prior: np.ndarray | None = None
) -> np.ndarray:
    """argmin |Y - X beta|^2 + strength |beta - prior|^2, with one more row per coefficient."""
    more = np.sqrt(strength) * np.eye(x.shape[1])
    target = np.zeros((x.shape[1], LEADS, CHANNELS)) if prior is None else prior
    target = np.sqrt(strength) * target
    return lstsq(np.concatenate([x, more]), np.concatenate([y, target]))


def size_of(x: np.ndarray) -> float:
    """The unit of ridges and pulls."""
    return float(np.square(x).sum(0).mean())


def by_rows(parts: Rows, penalty: Penalty, prior: np.ndarray) -> np.ndarray:
    """The result of `solve` from the rows: pooled first, then each hour drawn towards it."""
    rest = [(x, y - forecast(x, b)) for (x, y), b in zip(parts, prior, strict=True)]
    x, y = (np.concatenate(pair) for pair in zip(*rest, strict=True))
    pooled = ridge_by_rows(x, y, penalty.ridge * size_of(x))
    if penalty.pull == INFINITE_PULL:
        return pooled + prior
    strength = penalty.pull * size_of(x) / len(parts)
    return np.stack([ridge_by_rows(*part, strength, pooled) for part in rest]) + prior


def forecast(x: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return np.einsum("rc,cld->rld", x, beta)


def test_the_error_from_sums_is_the_mean_square_over_rows() -> None:
    parts = rows(0), rows(1, count=50)
    beta = np.random.default_rng(5).normal(size=(2, COLUMNS, LEADS, CHANNELS))
    squares = [(forecast(x, b) - y) ** 2 for (x, y), b in zip(parts, beta, strict=True)]
    wanted = np.concatenate(squares).mean(0)
    np.testing.assert_allclose(moments(*parts).error(beta), wanted, rtol=1e-10)


def test_the_errors_of_many_coefficients_are_those_of_each() -> None:
    sums = moments(rows(0), rows(1, count=50))
    betas = np.random.default_rng(5).normal(size=(2, COLUMNS, 4, LEADS, CHANNELS))
    apart = [sums.error(betas[:, :, number]) for number in range(4)]
    np.testing.assert_allclose(sums.error(betas), np.stack(apart), rtol=1e-10)


def test_sums_add_up_to_those_of_the_joined_rows() -> None:
    one, other = (rows(0), rows(1, count=50)), (rows(2, count=30), rows(3))
    joined = [
        tuple(np.concatenate(pair) for pair in zip(*hour, strict=True))
        for hour in zip(one, other, strict=True)
    ]
    found, wanted = moments(*one) + moments(*other), moments(*joined)
    for part, expected in vars(wanted).items():
        np.testing.assert_allclose(getattr(found, part), expected, rtol=1e-12, err_msg=part)


@pytest.mark.parametrize("columns", [1, WIDTH - 1, WIDTH, WIDTH + 1, 2 * WIDTH, 2 * WIDTH + 7])
def test_the_gram_matrix_in_blocks_is_exact(columns: int) -> None:
    x = np.random.default_rng(0).normal(size=(13, columns))
    np.testing.assert_allclose(gram(x), x.T @ x, rtol=0, atol=1e-12)


def test_without_penalties_the_solution_is_least_squares() -> None:
    x, y = rows(0)
    np.testing.assert_allclose(solve(moments((x, y)), LEAST_SQUARES)[0], lstsq(x, y), rtol=1e-8)


def test_columns_that_are_not_taken_have_no_influence() -> None:
    x, y = rows(0)
    keep = np.array([0, 2, 4])
    beta = solve(moments((x, y)).take(keep), LEAST_SQUARES)
    np.testing.assert_allclose(beta[0], lstsq(x[:, keep], y), rtol=1e-8)


def test_a_column_may_be_taken_twice() -> None:
    x, y = rows(0)
    twice = np.array([0, 1, 1, 3, 4])
    beta = solve(moments((x, y)).take(twice), Penalty(1e-6, INFINITE_PULL))[0]
    wanted = ridge_by_rows(x[:, twice], y, 1e-6 * size_of(x[:, twice]))
    np.testing.assert_allclose(beta, wanted, rtol=1e-6)
    np.testing.assert_allclose(beta[1], beta[2], rtol=1e-6)  # equal columns have equal coefficients


def test_the_pull_interpolates_between_separate_and_pooled_hours() -> None:
    """The largest pull stands for infinity: just below it the solution is almost the same."""
    parts = rows(0), rows(1)
    train, apart = moments(*parts), np.stack([lstsq(*part) for part in parts])
    together = np.stack([lstsq(*(np.concatenate(pair) for pair in zip(*parts, strict=True)))] * 2)
    below = 0.99 * INFINITE_PULL
    for pull, wanted, rtol in ((1e-13, apart, 1e-6), (below, together, 1e-4)):
        np.testing.assert_allclose(solve(train, Penalty(1e-14, pull)), wanted, rtol=rtol)
    np.testing.assert_allclose(solve(train, LEAST_SQUARES), together, rtol=1e-6)


def some_prior(hours: int = 2) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(hours, COLUMNS, LEADS, CHANNELS))


def test_an_infinite_ridge_keeps_the_prior() -> None:
    train, prior = moments(rows(0), rows(1)), some_prior()
    beta = solve(train, Penalty(PRIOR_RIDGES[-1], INFINITE_PULL), prior)
    np.testing.assert_allclose(beta, prior, rtol=0, atol=1e-7)


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_a_ridge_draws_towards_the_prior(strength: float) -> None:
    """Equal to ridge regression of the residuals of the prior, plus the prior."""
    (x, y), prior = rows(0), some_prior(1)
    beta = solve(moments((x, y)), Penalty(strength, INFINITE_PULL), prior)[0]
    held = strength * size_of(x)
    np.testing.assert_allclose(beta, ridge_by_rows(x, y, held, prior[0]), rtol=1e-7)
    rest = ridge_by_rows(x, y - forecast(x, prior[0]), held)
    np.testing.assert_allclose(beta, prior[0] + rest, rtol=1e-7)


def test_sums_without_the_prior_are_those_of_its_residuals() -> None:
    parts, prior = (rows(0), rows(1, count=50)), some_prior()
    rest = [(x, y - forecast(x, b)) for (x, y), b in zip(parts, prior, strict=True)]
    found, wanted = moments(*parts).without(prior), moments(*rest)
    np.testing.assert_allclose(found.xy, wanted.xy, rtol=1e-9)
    np.testing.assert_array_equal(found.xx, wanted.xx)


@pytest.mark.parametrize(
    "penalty", [Penalty(0.01, PULLS[0]), Penalty(1e-6, 0.1), Penalty(10.0, 1.0)]
)
def test_hours_are_drawn_to_the_pooled_coefficients_and_these_to_the_prior(penalty) -> None:
    parts, prior = (rows(0), rows(1, count=50)), some_prior()
    np.testing.assert_allclose(
        solve(moments(*parts), penalty, prior), by_rows(parts, penalty, prior), rtol=1e-6
    )
    zero = np.zeros_like(prior)
    np.testing.assert_allclose(
        solve(moments(*parts), penalty), by_rows(parts, penalty, zero), rtol=1e-6
    )


def two_hours(seed: int, count: int, apart: float) -> Rows:
    """Two hours whose coefficients differ by `apart`, with noise as large as the signal."""
    (x, y), (other, _) = rows(2 * seed, count), rows(2 * seed + 1, count)
    true = np.random.default_rng(9).normal(size=(3, COLUMNS, LEADS, CHANNELS))
    noise = np.random.default_rng(seed).normal(size=(2, *y.shape))
    return (
        (x, forecast(x, true[0] + apart * true[1]) + noise[0]),
        (other, forecast(other, true[0] + apart * true[2]) + noise[1]),
    )


@pytest.mark.parametrize("with_prior", [False, True])
def test_the_best_penalty_is_that_of_a_full_search_over_all_folds(with_prior: bool) -> None:
    folds = [
        (two_hours(1, 8, 0.1), two_hours(2, 50, 0.1)),
        (two_hours(3, 30, 0.5), two_hours(4, 20, 0.5)),
    ]
    prior = some_prior() * with_prior

    def error(penalty: Penalty) -> float:
        total = 0.0
        for train, test in folds:
            pairs = zip(test, by_rows(train, penalty, prior), strict=True)
            total += np.concatenate([(forecast(x, b) - y) ** 2 for (x, y), b in pairs]).mean()
        return total

    ridges = (*RIDGES, *PRIOR_RIDGES) if with_prior else RIDGES
    best = min((Penalty(r, p) for p in PULLS for r in ridges), key=error)
    sums = [(moments(*train), moments(*test)) for train, test in folds]
    given = prior if with_prior else None
    assert best_penalty(sums, given) == best
    assert best not in [best_penalty([one], given) for one in sums]  # every fold matters


def test_an_hour_without_rows_has_the_pooled_coefficients() -> None:
    train = moments(rows(0), (np.zeros((0, COLUMNS)), np.zeros((0, LEADS, CHANNELS))))
    beta = solve(train, best_penalty([(train, train)]))
    np.testing.assert_allclose(beta[1], beta[0], rtol=0.05)
    np.testing.assert_allclose(beta[1], lstsq(*rows(0)), rtol=0.05)


def test_the_ridge_is_chosen_on_validation_or_on_training_without_validation() -> None:
    """With few noisy rows, validation needs a larger ridge than the training rows."""
    x, y = rows(0, count=6)
    y = y + np.random.default_rng(8).normal(size=y.shape)
    train, validation = moments((x, y)), moments(rows(2))
    chosen = best_penalty([(train, validation)])
    solved = {strength: ridge_by_rows(x, y, strength * size_of(x)) for strength in RIDGES}
    best = min(RIDGES, key=lambda strength: validation.error(solved[strength][None]).mean())
    assert chosen == (best, INFINITE_PULL)
    np.testing.assert_allclose(solve(train, chosen)[0], solved[best], rtol=1e-6)
    nothing = Moments.zeros(1, COLUMNS, LEADS, CHANNELS)
    assert best_penalty([(train, nothing)]).ridge < 1e-6 < chosen.ridge


def test_sums_with_noise_are_the_expected_sums_of_noisy_columns() -> None:
    x, y = rows(0)
    noise = np.array([0.5, 2.0, 0.0, 0.1, 0.0])
    errors = np.random.default_rng(1).normal(size=(4000, *x.shape)) * np.sqrt(noise)
    wanted = np.mean([(x + e).T @ (x + e) for e in errors], axis=0)
    noisy = moments((x, y)).with_noise(noise)
    np.testing.assert_allclose(noisy.xx[0], wanted, atol=0.01 * len(x))
    np.testing.assert_array_equal(noisy.xy, moments((x, y)).xy)


def test_sums_with_replaced_columns_are_those_of_the_replaced_rows() -> None:
    """Columns replaced by linear combinations of the others; the original sums are unchanged."""
    parts, some = (rows(0), rows(1, count=50)), np.array([1, 2])
    change = np.random.default_rng(3).normal(size=(COLUMNS, 2))
    change[some] = 0
    mixed = []
    for x, y in parts:
        other = x.copy()
        other[:, some] = x @ change
        mixed.append((other, y))
    sums = moments(*parts)
    found, wanted = sums.replaced(some, change), moments(*mixed)
    for name, value in vars(found).items():
        np.testing.assert_allclose(value, vars(wanted)[name], rtol=1e-10, atol=1e-8)
        np.testing.assert_array_equal(vars(sums)[name], vars(moments(*parts))[name])
