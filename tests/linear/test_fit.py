"""fit_linear: exact for fields that are linear in their past, and equal to explicit regressions."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers.linear_cases import (
    DAILY,
    POINTS,
    TIMES,
    batch_of,
    fitted,
    forecast,
    noise,
    single,
    windows,
)

from stonet.data.batch import hide_values
from stonet.data.geometry import Points, curve_order
from stonet.data.splits import kept_labels
from stonet.data.windows import Windows
from stonet.linear.fit import (
    CONSECUTIVE_WINDOWS,
    MIN_VALIDATION_ROWS,
    _patches,
    fit_linear,
)
from stonet.linear.kriging import fit_covariance
from stonet.linear.local_polynomials import make_stencil
from stonet.linear.regression import IMPUTED_SHARES, LinearForecast
from stonet.linear.ridge import PRIOR_RIDGES, Moments, Penalty, best_penalty, solve

MANY = Points(np.random.default_rng(0).uniform(0, 1, (300, 2)))


def test_a_field_that_is_linear_in_its_past_is_forecast_exactly() -> None:
    """Two standing waves: four past values of a point determine its future."""
    t = np.arange(80)[:, None, None]
    a, b = noise(12, 1), noise(12, 1, seed=2)

    def u(t: np.ndarray) -> np.ndarray:
        return a * np.sin(0.5 * t) + b * np.cos(1.1 * t + 1)

    base = fitted(windows(u(t[:60])), windows(u(t[60:])))
    future = forecast(base, batch_of(u(t[60:66]), [1, 2, 3, 4]))
    np.testing.assert_allclose(future, u(np.arange(66, 70)[:, None, None]), atol=1e-4)
    persistence = np.abs(u(t[65]) - future.numpy()).mean()
    assert persistence > 0.3  # the field changes


def test_with_many_points_a_patch_of_them_suffices() -> None:
    """An oscillating plane: coefficients fitted at some points are exact at all of them."""
    t, (x, y) = np.arange(80)[:, None, None], MANY.coordinates.T[:, None, :, None]
    u = np.sin(0.5 * t) + 2 * x * np.sin(0.5 * t + 1) - y * np.cos(0.5 * t)
    train, base = windows(u[:60], points=MANY), LinearForecast(TIMES, 1)
    fit_linear(base, train, windows(u[60:], points=MANY), MANY, max_rows=3000)
    stencil = make_stencil(MANY, MANY, base.covariance)
    (patch,) = _patches(train, stencil, curve_order(MANY), 3000)
    assert len(patch.half) < 200 and len(patch.chosen) == len(train)
    future = forecast(base, batch_of(u[60:66], [1, 2, 3, 4]), MANY, MANY)
    np.testing.assert_allclose(future, u[66:70], atol=1e-4)


def test_the_rows_of_a_patch_are_those_of_complete_frames() -> None:
    """Patches are spread over the points, each with its own groups of consecutive windows."""
    train, base = windows(noise(500, 300, 1), points=MANY), LinearForecast(TIMES, 1)
    stencil = single(make_stencil(MANY, MANY, base.covariance))
    patches = list(_patches(train, stencil, curve_order(MANY), 30_000))
    used: list[int] = []
    for patch in patches:
        complete = base.regressors(train.inputs(patch.chosen), stencil)
        local = base.regressors(patch.inputs.inputs(patch.chosen), patch.stencil)
        points = patch.targets.nodes
        assert points is not None
        torch.testing.assert_close(local.values, complete.values[:, points], rtol=0, atol=1e-5)
        assert abs(int(patch.half.sum()) - len(points) / 2) <= 1
        steps = np.diff(patch.chosen)
        assert (steps == 1).sum() >= len(steps) * (1 - 2 / CONSECUTIVE_WINDOWS)
        used += points.tolist()
    assert len(patches) == 3 and len(set(used)) == len(used) == 96
    assert not np.array_equal(patches[0].chosen, patches[1].chosen)


def test_points_without_history_are_forecast_from_their_neighbours() -> None:
    """An oscillating plane: linear in space and in its past."""
    t = np.arange(80)[:, None, None]

    def u(t: np.ndarray, points: Points) -> np.ndarray:
        x, y = points.coordinates.T[:, None, :, None]
        return np.sin(0.5 * t) + 2 * x * np.sin(0.5 * t + 1) - y * np.cos(0.5 * t)

    base = fitted(windows(u(t[:60], POINTS)), windows(u(t[60:], POINTS)))
    queries = Points(np.random.default_rng(5).uniform(0.2, 0.8, (9, 2)))
    future = forecast(base, batch_of(u(t[60:66], POINTS), [1, 2, 3, 4]), queries)
    error = np.abs(future.numpy() - u(np.arange(66, 70)[:, None, None], queries)).mean()
    assert error < 0.05 * np.abs(u(t, queries)).mean()


def test_hourly_coefficients_follow_a_daily_cycle() -> None:
    profile = 1.5 + noise(24, seed=4) ** 2
    values = profile[np.arange(24 * 12) % 24][:, None, None] * np.linspace(1, 2, 12)[:, None]
    base = fitted(windows(values[:240], DAILY), windows(values[240:], DAILY), DAILY)
    test = windows(values[240:], DAILY)
    chosen = np.arange(len(test))
    future = base(test.inputs(chosen), single(make_stencil(POINTS, POINTS, base.covariance)))
    truth, _ = test.targets(chosen)
    last = test.at(test.starts + DAILY.past - 1)[0][:, None]
    assert (future - truth).abs().mean() < 0.02 * (last - truth).abs().mean()


def test_the_rmse_is_that_of_the_validation_windows() -> None:
    validation = windows(noise(20, 12, 2, seed=2))
    base = fitted(windows(noise(60, 12, 2)), validation)
    chosen = np.arange(len(validation))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    truth, _ = validation.targets(chosen)
    batch = validation.inputs(chosen)
    error = (base(batch, stencil) - truth).double().square().mean((0, 2)).sqrt()
    torch.testing.assert_close(base.rmse[0, 1:].double(), error, rtol=1e-4, atol=0)
    scale = base.residual_scale(base.regressors(batch, stencil), batch)
    torch.testing.assert_close(scale[0, :, 0], base.rmse[0, 1:])


def test_with_few_validation_rows_the_rmse_is_that_of_training() -> None:
    train = windows(noise(60, 12, 2))
    few = windows(noise(20, 12, 2, seed=2))
    few = replace(few, starts=few.starts[:1])
    assert len(few) * len(POINTS) < MIN_VALIDATION_ROWS
    base, chosen = fitted(train, few), np.arange(len(train))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    truth, _ = train.targets(chosen)
    error = (base(train.inputs(chosen), stencil) - truth).double().square().mean((0, 2)).sqrt()
    torch.testing.assert_close(base.rmse[0, 1:].double(), error, rtol=1e-3, atol=0)


def test_without_any_observed_target_the_base_remains_persistence() -> None:
    train = windows(noise(60, 12, 1))
    train = replace(train, labels=np.zeros((len(train), TIMES.horizon), bool))
    base = fitted(train, train)
    values = noise(6, 12, 1)
    found = forecast(base, batch_of(values, [3]))[0]
    torch.testing.assert_close(found, torch.from_numpy(values[-1]))


def autoregressive(frames: int, seed: int) -> np.ndarray:
    """Damped oscillations with random forcing: predictable in part."""
    values, forcing = np.zeros((frames, 12, 1)), noise(frames, 12, 1, seed=seed)
    for t in range(2, frames):
        values[t] = 1.6 * values[t - 1] - 0.8 * values[t - 2] + 0.3 * forcing[t]
    return values


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_targets_with_gaps_are_almost_as_good_as_complete_ones(kept: int) -> None:
    train, validation = windows(autoregressive(300, 1)), windows(autoregressive(100, 2))
    test = windows(autoregressive(200, 3))
    gappy = replace(train, labels=kept_labels(len(train), TIMES.horizon, kept, seed=0))
    chosen = np.arange(len(test))
    truth, errors = test.targets(chosen)[0], []
    for part in (train, gappy):
        base = fitted(part, validation)
        stencil = single(make_stencil(POINTS, POINTS, base.covariance))
        errors.append(float((base(test.inputs(chosen), stencil) - truth).abs().mean()))
    persistence = float((test.at(test.starts + TIMES.past - 1)[0][:, None] - truth).abs().mean())
    assert errors[1] < 1.05 * errors[0] and errors[1] < 0.7 * persistence


def travelling_waves(frames: int) -> np.ndarray:
    """Waves through the points with small noise: neighbours predict what a point has missed."""
    t, (x, y) = np.arange(frames)[:, None, None], POINTS.coordinates.T[:, None, :, None]
    return np.sin(0.5 * t + 2 * x) + np.cos(0.2 * t + 1 - 2 * y) + 0.01 * noise(frames, 12, 1)


def test_histories_with_gaps_need_coefficients_of_their_own() -> None:
    values = travelling_waves(700)
    base = fitted(windows(values[:400]), windows(values[400:550]))
    assert base.history.usual_gaps == 0
    test = windows(values[550:])
    chosen = np.arange(len(test))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    truth = test.targets(chosen)[0]
    batch = hide_values(test.inputs(chosen), 0.3, seed=0)
    regressors = base.regressors(batch, stencil)
    assert (regressors.kind >= 4).all()
    with_gaps, complete, late = (
        float((base.forecast(replace(regressors, kind=kind), batch) - truth).abs().mean())
        for kind in (regressors.kind, regressors.kind % 2, regressors.kind % 4)
    )
    assert with_gaps < 0.9 * complete and with_gaps < 0.9 * late


@pytest.mark.parametrize(("usual", "many_gaps"), [(0.0, 4), (0.5, 0)])
def test_a_missing_newest_value_has_coefficients_of_its_own(usual: float, many_gaps: int) -> None:
    """The newest values of the neighbours are better than an imputed one."""
    values = travelling_waves(700)
    base = fitted(windows(values[:400]), windows(values[400:550]))
    base.history.usual_gaps.fill_(usual)
    test = windows(values[550:])
    chosen = np.arange(0, len(test), TIMES.past)  # without common frames
    batch, missing = test.inputs(chosen), torch.rand(len(chosen), 12) < 0.5
    observed = torch.ones_like(batch.frames, dtype=torch.bool)
    observed[batch.past[:, -1]] = ~missing[..., None]
    batch = replace(batch, frames=batch.frames * observed, observed=observed)
    regressors = base.regressors(batch, single(make_stencil(POINTS, POINTS, base.covariance)))
    assert torch.equal(regressors.kind, many_gaps + 2 * missing)
    error, without_kind = (
        (base.forecast(replace(regressors, kind=kind), batch) - test.targets(chosen)[0])
        .abs()
        .mean((1, 3))
        for kind in (regressors.kind, regressors.kind - 2 * missing)
    )
    assert error[missing].mean() < 0.9 * without_kind[missing].mean()
    assert torch.equal(error[~missing], without_kind[~missing])


def tilting(frames: int, seed: int) -> np.ndarray:
    """A plane that tilts at random in each of two channels, with noise."""
    x, y = POINTS.coordinates.T[:, None, :, None]
    a, b, c, d, e, f = autoregressive(frames, seed).transpose(1, 0, 2)[:6, :, None]
    smooth = np.concatenate([a + x * b - y * c, d + x * e - y * f], axis=2)
    return smooth + noise(frames, 12, 2, seed=seed + 50)


def newest_by_older(base: LinearForecast) -> np.ndarray:
    """A matrix that replaces the newest values of a history by their expectation."""
    mean, covariance = base.history.mean.numpy(), base.history.covariance.numpy()
    result = np.eye(base.num_columns)
    for newest in range(2):
        share = np.linalg.solve(covariance[2:, 2:], covariance[2:, newest])
        result[:, newest] = 0
        result[2 : base.own_columns, newest] = share
        result[-1, newest] = mean[newest] - share @ mean[2:]
    return result


class Rows:
    """X and Y of some windows at every point, by window and point."""

    def __init__(self, base: LinearForecast, part: Windows) -> None:
        chosen = np.arange(len(part))
        batch = part.inputs(chosen)
        regressors = base.regressors(batch, single(make_stencil(POINTS, POINTS, base.covariance)))
        now = part.at(part.starts + TIMES.past - 1)[0][:, None]
        self.y = torch.cat([now, part.targets(chosen)[0]], 1).transpose(1, 2).double().numpy()
        self.own = regressors.columns.numpy()
        hidden = torch.ones_like(regressors.has_history)
        self.kriged = regressors.without_history(hidden).columns.numpy()
        self.late = self.own @ newest_by_older(base)

    def sums(self, kind: str, points: np.ndarray | slice = slice(None)) -> Moments:
        x, y = getattr(self, kind)[:, points], self.y[:, points]
        result = Moments.zeros(1, x.shape[-1], *y.shape[2:])
        result.add(0, x.reshape(-1, x.shape[-1]), y.reshape(-1, *y.shape[2:]))
        return result


class Solved(NamedTuple):
    """A fitted base, its training and validation rows, and their best penalties."""

    base: LinearForecast
    rows: Rows
    validation: Rows
    with_history: Penalty
    without: Penalty


def solved(seed: int) -> Solved:
    """Without history, the penalty is chosen at the other half of the points."""
    parts = windows(tilting(200, 1)), windows(tilting(100, seed))
    base = fitted(*parts)
    rows, validation = (Rows(base, part) for part in parts)
    with_history = best_penalty([(rows.sums("own"), validation.sums("own"))])
    order = curve_order(POINTS)
    halves = (order[0::2], order[1::2]), (order[1::2], order[0::2])
    folds = [(rows.sums("kriged", one), validation.sums("kriged", two)) for one, two in halves]
    without = best_penalty(folds, solve(rows.sums("own"), with_history))
    return Solved(base, rows, validation, with_history, without)


@pytest.mark.parametrize(("seed", "like_own"), [(9, False), (12, True)])
def test_the_coefficients_of_every_kind_are_those_of_its_rows(seed: int, like_own: bool) -> None:
    """Without history they are drawn towards those with history."""
    base, rows, validation, with_history, without = solved(seed)
    assert (without.ridge == PRIOR_RIDGES[-1]) is like_own  # equal in one case, different in one
    own = solve(rows.sums("own"), with_history)
    kriged = solve(rows.sums("kriged"), without, own)
    late = solve(rows.sums("late"), with_history)
    kinds = (own, validation.own), (kriged, None), (late, validation.late), (kriged, None)
    for kind, (beta, x) in enumerate(kinds):
        np.testing.assert_allclose(base.beta[kind], beta, rtol=0, atol=1e-6)
        if x is not None:
            error = np.einsum("wnc,clk->wnlk", x, beta[0]) - validation.y
            rmse = np.sqrt(np.square(error).mean((0, 1)))
            np.testing.assert_allclose(base.rmse[kind // 2], rmse, rtol=1e-4, atol=1e-6)


def test_histories_with_gaps_are_fitted_with_the_noise_of_imputation() -> None:
    """Twice the variance of each value given all other values of the history."""
    base, rows, _, with_history, without = solved(seed=9)
    past, covariance = TIMES.past, base.history.covariance.numpy()
    error = np.empty((past, 2))
    for number in range(2 * past):
        others = np.delete(np.arange(2 * past), number)
        share = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, number])
        variance = covariance[number, number] - covariance[number, others] @ share
        error[divmod(number, 2)] = 2 * IMPUTED_SHARES[1] * variance
    weight = make_stencil(POINTS, POINTS, base.covariance).weight[0].numpy()
    mixed = np.square(weight).sum(-1).mean(0)

    def noisy(kind: str, first: np.ndarray) -> Moments:
        wide = np.einsum("g,lc->lgc", mixed[2:], error[: base.recent_lags])
        noise = [part.ravel() for part in (first, mixed[1] * error, wide, np.zeros(1))]
        return rows.sums(kind).with_noise(np.concatenate(noise))

    with_own = noisy("own", error * (np.arange(past) > 0)[:, None])  # the newest is observed
    own = solve(with_own, with_history)
    kriged = solve(noisy("kriged", mixed[0] * error), without, own)
    change = newest_by_older(base)  # carries the noise of the older values along
    xx, xy = change.T @ with_own.xx @ change, np.einsum("cd,hclk->hdlk", change, with_own.xy)
    late = solve(replace(with_own, xx=xx, xy=xy), with_history)
    for kind, beta in enumerate((own, kriged, late, kriged), start=4):
        np.testing.assert_allclose(base.beta[kind], beta, rtol=0, atol=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_mean_and_covariance_of_histories_are_those_of_training(missing: float) -> None:
    """Over windows and points; with gaps, of the histories filled by the first estimate."""
    observed = np.random.default_rng(4).random((100, 12, 2)) >= missing
    observed[:, 3, 0] &= not missing  # without a channel a point does not count
    train = windows(tilting(100, 1), observed=observed)
    base, first = fitted(train, train), LinearForecast(TIMES, 2)
    batch = train.inputs(np.arange(len(train)))
    usable = np.stack([observed[s : s + TIMES.past].any(0).all(-1) for s in train.starts])
    for _ in range(2 if missing else 1):
        history = first.history(batch)[0].double().numpy().transpose(0, 2, 1, 3)
        rows = history[usable].reshape(-1, 12)
        anomaly = rows - rows.mean(0)
        first.history.mean.copy_(torch.from_numpy(rows.mean(0)))
        first.history.covariance.copy_(torch.from_numpy(anomaly.T @ anomaly / len(rows)))
    np.testing.assert_allclose(base.history.mean, first.history.mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(base.history.covariance, first.history.covariance, rtol=0, atol=1e-6)


def test_with_few_histories_the_covariance_remains_that_of_a_random_walk() -> None:
    train = windows(noise(10, 12, 1))
    train = replace(train, starts=train.starts[:1], nodes=np.arange(4))
    base = LinearForecast(TIMES, 1)
    base.history.fit(train, 4)
    torch.testing.assert_close(base.history.covariance, LinearForecast(TIMES, 1).history.covariance)


def test_the_spatial_covariance_is_that_of_the_newest_values() -> None:
    """The newest values are smooth, all others are noise."""
    values = noise(240, 12, 1)
    values[TIMES.past - 1 :: 10] = noise(24, 1, 1, seed=2) + POINTS.coordinates[:, :1]
    train = windows(values)
    train = replace(train, starts=train.starts[::10])
    covariance, before = (
        fit_covariance(train.at(train.starts + TIMES.past - back)[0].double(), None, POINTS)
        for back in (1, 2)
    )
    assert fitted(train, train).covariance == covariance != before
