"""fit_linear: exact where the field is linear in its past, and the regression it says it is."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import linear_cases
from helpers.linear_cases import CLOCK, DAILY, POINTS, answer, asked, fitted, noise, single, windows

from stonet.data.batch import hide_values
from stonet.data.geometry import Points, curve_order
from stonet.data.splits import kept_labels
from stonet.data.windows import Windows
from stonet.linear import fit as linear_fit
from stonet.linear.fit import JUDGES, fit_linear
from stonet.linear.kriging import fit_covariance
from stonet.linear.local_polynomials import make_stencil
from stonet.linear.regression import TORN, LinearForecast
from stonet.linear.ridge import STRONG, Moments, Penalty, best_penalty, solve


def test_a_field_that_is_linear_in_its_past_is_forecast_exactly() -> None:
    """Two standing waves: four values of a point's past determine its whole future."""
    t = np.arange(80)[:, None, None]
    a, b = noise(12, 1), noise(12, 1, seed=2)

    def u(t: np.ndarray) -> np.ndarray:
        return a * np.sin(0.5 * t) + b * np.cos(1.1 * t + 1)

    base = fitted(windows(u(t[:60])), windows(u(t[60:])))
    future = answer(base, asked(u(t[60:66]), [1, 2, 3, 4]))
    np.testing.assert_allclose(future, u(np.arange(66, 70)[:, None, None]), atol=1e-4)
    persistence = np.abs(u(t[65]) - future.numpy()).mean()
    assert persistence > 0.3  # so that it was worth forecasting


def test_where_points_are_many_some_of_them_tell_enough(monkeypatch) -> None:
    """A plane that tilts to and fro: what holds at half of the points holds at all of them."""
    t, many = np.arange(80)[:, None, None], Points(np.random.default_rng(0).uniform(0, 1, (300, 2)))
    monkeypatch.setattr(linear_cases, "POINTS", many)
    monkeypatch.setattr(linear_fit, "MAX_ROWS", 3000)
    x, y = many.coordinates.T[:, None, :, None]
    u = np.sin(0.5 * t) + 2 * x * np.sin(0.5 * t + 1) - y * np.cos(0.5 * t)
    train, base = windows(u[:60]), LinearForecast(CLOCK, 1)
    fit_linear(base, train, windows(u[60:]), many)
    stencil = make_stencil(many, many, base.covariance)
    (patch,) = linear_fit._patches(train, stencil, curve_order(many), 3000)
    assert len(patch.half) < 200 and len(patch.chosen) == len(train)
    future = answer(base, asked(u[60:66], [1, 2, 3, 4]), many, many)
    np.testing.assert_allclose(future, u[66:70], atol=1e-4)


def test_the_rows_of_a_patch_are_those_of_whole_frames(monkeypatch) -> None:
    """And patches are spread over the points, each in runs of windows drawn for it."""
    many = Points(np.random.default_rng(0).uniform(0, 1, (300, 2)))
    monkeypatch.setattr(linear_cases, "POINTS", many)
    train, base = windows(noise(500, 300, 1)), LinearForecast(CLOCK, 1)
    stencil = single(make_stencil(many, many, base.covariance))
    patches = list(linear_fit._patches(train, stencil, curve_order(many), 30_000))
    seen: list[int] = []
    for patch in patches:
        whole = base.regressors(train.inputs(patch.chosen), stencil)
        near = base.regressors(patch.inputs.inputs(patch.chosen), patch.stencil)
        points = patch.targets.nodes
        assert points is not None
        torch.testing.assert_close(near.seen, whole.seen[:, points], rtol=0, atol=1e-5)
        assert abs(int(patch.half.sum()) - len(points) / 2) <= 1
        steps = np.diff(patch.chosen)
        assert (steps == 1).sum() >= len(steps) * (1 - 2 / linear_fit.RUN)
        seen += points.tolist()
    assert len(patches) == 3 and len(set(seen)) == len(seen) == 96
    assert not np.array_equal(patches[0].chosen, patches[1].chosen)


def test_points_without_a_past_are_forecast_from_their_neighbours() -> None:
    """A plane that tilts to and fro: linear in space, linear in its past."""
    t = np.arange(80)[:, None, None]

    def u(t: np.ndarray, points: Points) -> np.ndarray:
        x, y = points.coordinates.T[:, None, :, None]
        return np.sin(0.5 * t) + 2 * x * np.sin(0.5 * t + 1) - y * np.cos(0.5 * t)

    base = fitted(windows(u(t[:60], POINTS)), windows(u(t[60:], POINTS)))
    queries = Points(np.random.default_rng(5).uniform(0.2, 0.8, (9, 2)))
    future = answer(base, asked(u(t[60:66], POINTS), [1, 2, 3, 4]), queries)
    error = np.abs(future.numpy() - u(np.arange(66, 70)[:, None, None], queries)).mean()
    assert error < 0.05 * np.abs(u(t, queries)).mean()


def test_a_daily_cycle_that_no_pooled_coefficient_can_follow_is_followed() -> None:
    profile = 1.5 + noise(24, seed=4) ** 2
    values = profile[np.arange(24 * 12) % 24][:, None, None] * np.linspace(1, 2, 12)[:, None]
    base = fitted(windows(values[:240], DAILY), windows(values[240:], DAILY), DAILY)
    test = windows(values[240:], DAILY)
    chosen = np.arange(len(test))
    future = base(test.inputs(chosen), single(make_stencil(POINTS, POINTS, base.covariance)))
    truth, _ = test.targets(chosen)
    last = test.at(test.starts + DAILY.past - 1)[0][:, None]
    assert (future - truth).abs().mean() < 0.02 * (last - truth).abs().mean()


def test_the_spread_is_the_root_mean_square_of_what_is_left_over() -> None:
    judge = windows(noise(20, 12, 2, seed=2))
    base = fitted(windows(noise(60, 12, 2)), judge)
    chosen = np.arange(len(judge))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    truth, _ = judge.targets(chosen)
    error = (base(judge.inputs(chosen), stencil) - truth).double().square().mean((0, 2)).sqrt()
    torch.testing.assert_close(base.spread[0, 1:].double(), error, rtol=1e-4, atol=0)
    batch = judge.inputs(chosen)
    scale = base.scale(base.regressors(batch, stencil), batch)
    torch.testing.assert_close(scale[0, :, 0], base.spread[0, 1:])


def test_a_handful_of_judges_does_not_tell_how_large_errors_are() -> None:
    train = windows(noise(60, 12, 2))
    few = windows(noise(20, 12, 2, seed=2))
    few = replace(few, starts=few.starts[:1])
    assert len(few) * len(POINTS) < JUDGES
    base, chosen = fitted(train, few), np.arange(len(train))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    truth, _ = train.targets(chosen)  # these many do
    error = (base(train.inputs(chosen), stencil) - truth).double().square().mean((0, 2)).sqrt()
    torch.testing.assert_close(base.spread[0, 1:].double(), error, rtol=1e-3, atol=0)


def test_the_whitened_regressors_are_uncorrelated() -> None:
    train = windows(noise(60, 12, 1))
    base = fitted(train, windows(noise(20, 12, 1, seed=2)))
    nothing = replace(train, starts=train.starts[:0])  # no validation: least ridge
    fit_linear(base, train, nothing, POINTS)
    regressors = base.regressors(
        train.inputs(np.arange(len(train))),
        single(make_stencil(POINTS, POINTS, base.covariance)),
    )
    z = base.whitened(regressors).flatten(0, 1)
    z = z[:, z.std(0) > 0.5]  # fewer directions than columns vary
    torch.testing.assert_close(z.mean(0), torch.zeros(z.shape[1]).double(), atol=1e-6, rtol=0)
    covariance = z.T @ z / len(z)
    torch.testing.assert_close(covariance, torch.eye(len(covariance)).double(), atol=0.02, rtol=0)


def test_what_stands_in_for_a_past_is_whitened_as_one() -> None:
    """The same matrix, with the kriged values in the places of the own ones."""
    train = windows(noise(60, 12, 1))
    base = fitted(train, windows(noise(20, 12, 1, seed=2)))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    regressors = base.regressors(train.inputs(np.arange(len(train))), stencil)
    silent = base.whitened(regressors.without_history(torch.ones_like(regressors.own)))
    columns = torch.cat([regressors.stand_in, regressors.columns[..., regressors.block :]], dim=-1)
    torch.testing.assert_close(silent, columns @ base.white[0])
    assert (silent - base.whitened(regressors)).abs().max() > 0.1


def test_where_no_target_was_ever_observed_the_base_stays_persistence() -> None:
    train = windows(noise(60, 12, 1))
    train = replace(train, labels=np.zeros((len(train), CLOCK.horizon), bool))
    base = fitted(train, train)
    values = noise(6, 12, 1)
    torch.testing.assert_close(answer(base, asked(values, [3]))[0], torch.from_numpy(values[-1]))


def wandering(frames: int, seed: int) -> np.ndarray:
    """Damped swings, pushed at random: the past says much, but not all."""
    values, push = np.zeros((frames, 12, 1)), noise(frames, 12, 1, seed=seed)
    for t in range(2, frames):
        values[t] = 1.6 * values[t - 1] - 0.8 * values[t - 2] + 0.3 * push[t]
    return values


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_targets_with_gaps_teach_nearly_as_much_as_whole_ones(kept: int) -> None:
    train, judge = windows(wandering(300, 1)), windows(wandering(100, 2))
    test = windows(wandering(200, 3))
    gappy = replace(train, labels=kept_labels(len(train), CLOCK.horizon, kept, seed=0))
    chosen = np.arange(len(test))
    truth, errors = test.targets(chosen)[0], []
    for taught in (train, gappy):
        base = fitted(taught, judge)
        stencil = single(make_stencil(POINTS, POINTS, base.covariance))
        errors.append(float((base(test.inputs(chosen), stencil) - truth).abs().mean()))
    still = float((test.at(test.starts + CLOCK.past - 1)[0][:, None] - truth).abs().mean())
    assert errors[1] < 1.05 * errors[0] and errors[1] < 0.7 * still


def passing(frames: int) -> np.ndarray:
    """Waves through the points, seen with small errors: what one has missed, others have seen."""
    t, (x, y) = np.arange(frames)[:, None, None], POINTS.coordinates.T[:, None, :, None]
    return np.sin(0.5 * t + 2 * x) + np.cos(0.2 * t + 1 - 2 * y) + 0.01 * noise(frames, 12, 1)


def test_where_pasts_are_torn_those_err_less_than_the_ones_for_whole_pasts() -> None:
    """Which believe what was filled, though the neighbours tell more of it."""
    values = passing(700)
    base = fitted(windows(values[:400]), windows(values[400:550]))
    assert base.usual == 0
    test = windows(values[550:])
    chosen = np.arange(len(test))
    stencil = single(make_stencil(POINTS, POINTS, base.covariance))
    truth = test.targets(chosen)[0]
    batch = hide_values(test.inputs(chosen), 0.3, seed=0)
    regressors = base.regressors(batch, stencil)
    assert (regressors.kind >= 4).all()
    torn, whole, late_but_whole = (
        float((base.forecast(seen, batch) - truth).abs().mean())
        for seen in (
            regressors,
            replace(regressors, kind=regressors.kind % 2),
            replace(regressors, kind=regressors.kind % 4),
        )
    )
    assert torn < 0.9 * whole and torn < 0.9 * late_but_whole


@pytest.mark.parametrize(("usual", "torn"), [(0.0, 4), (0.5, 0)])
def test_where_the_newest_value_is_missing_it_is_not_believed(usual: float, torn: int) -> None:
    """What is filled there is what older values tell: the neighbours' newest ones tell more."""
    values = passing(700)
    base = fitted(windows(values[:400]), windows(values[400:550]))
    base.usual.fill_(usual)
    test = windows(values[550:])
    chosen = np.arange(0, len(test), CLOCK.past)  # no two of which share a frame
    batch, missing = test.inputs(chosen), torch.rand(len(chosen), 12) < 0.5
    seen = torch.ones_like(batch.frames, dtype=torch.bool)
    seen[batch.past[:, -1]] = ~missing[..., None]
    batch = replace(batch, frames=batch.frames * seen, observed=seen)
    regressors = base.regressors(batch, single(make_stencil(POINTS, POINTS, base.covariance)))
    assert torch.equal(regressors.kind, torn + 2 * missing)
    aware, believing = (
        (base.forecast(told, batch) - test.targets(chosen)[0]).abs().mean((1, 3))
        for told in (regressors, replace(regressors, kind=regressors.kind - 2 * missing))
    )
    assert aware[missing].mean() < 0.9 * believing[missing].mean()
    assert torch.equal(aware[~missing], believing[~missing])


def tilting(frames: int, seed: int) -> np.ndarray:
    """A plane that tilts at random in each of two channels, seen with errors."""
    x, y = POINTS.coordinates.T[:, None, :, None]
    a, b, c, d, e, f = wandering(frames, seed).transpose(1, 0, 2)[:6, :, None]
    smooth = np.concatenate([a + x * b - y * c, d + x * e - y * f], axis=2)
    return smooth + noise(frames, 12, 2, seed=seed + 50)


def newest_by_older(base: LinearForecast) -> np.ndarray:
    """Maps regressors to the same with the newest own values as the older ones lead to expect."""
    mean, covariance = base.past_mean.numpy(), base.past_covariance.numpy()
    result = np.eye(base.columns)
    for newest in range(2):
        share = np.linalg.solve(covariance[2:, 2:], covariance[2:, newest])
        result[:, newest] = 0
        result[2 : base.block, newest] = share
        result[-1, newest] = mean[newest] - share @ mean[2:]
    return result


class Rows:
    """X and Y of some windows at every point, written out: by window and point."""

    def __init__(self, base: LinearForecast, part: Windows) -> None:
        chosen = np.arange(len(part))
        batch = part.inputs(chosen)
        regressors = base.regressors(batch, single(make_stencil(POINTS, POINTS, base.covariance)))
        now = part.at(part.starts + CLOCK.past - 1)[0][:, None]
        self.y = torch.cat([now, part.targets(chosen)[0]], 1).transpose(1, 2).double().numpy()
        self.own = regressors.columns.numpy()
        self.far = regressors.without_history(torch.ones_like(regressors.own)).columns.numpy()
        self.late = self.own @ newest_by_older(base)

    def sums(self, kind: str, points: np.ndarray | slice = slice(None)) -> Moments:
        x, y = getattr(self, kind)[:, points], self.y[:, points]
        result = Moments.zeros(1, x.shape[-1], *y.shape[2:])
        result.add(0, x.reshape(-1, x.shape[-1]), y.reshape(-1, *y.shape[2:]))
        return result


class Solved(NamedTuple):
    """A fitted base, the rows it was fitted to and judged by, and what suits them best."""

    base: LinearForecast
    rows: Rows
    judged: Rows
    with_past: Penalty
    without: Penalty


def solved(judge: int) -> Solved:
    """Without an own past: as suits the points of the other half."""
    parts = windows(tilting(200, 1)), windows(tilting(100, judge))
    base = fitted(*parts)
    rows, judged = (Rows(base, part) for part in parts)
    with_past = best_penalty([(rows.sums("own"), judged.sums("own"))])
    order = curve_order(POINTS)
    halves = (order[0::2], order[1::2]), (order[1::2], order[0::2])
    folds = [(rows.sums("far", one), judged.sums("far", other)) for one, other in halves]
    without = best_penalty(folds, solve(rows.sums("own"), with_past))
    return Solved(base, rows, judged, with_past, without)


@pytest.mark.parametrize(("judge", "like_own"), [(9, False), (12, True)])
def test_the_coefficients_of_every_kind_are_those_of_its_rows(judge: int, like_own: bool) -> None:
    """Without an own past, drawn towards those with one."""
    base, rows, judged, with_past, without = solved(judge)
    assert (without.ridge == STRONG[-1]) is like_own  # once they differ, once they may not
    own = solve(rows.sums("own"), with_past)
    far = solve(rows.sums("far"), without, own)
    late = solve(rows.sums("late"), with_past)
    kinds = ((own, judged.own), (far, judged.far), (late, judged.late), (far, judged.far))
    for kind, (beta, seen) in enumerate(kinds):
        np.testing.assert_allclose(base.beta[kind], beta, rtol=0, atol=1e-6)
        if kind % 2 == 0:
            wrong = np.einsum("wnc,clk->wnlk", seen, beta[0]) - judged.y
            spread = np.sqrt(np.square(wrong).mean((0, 1)))
            np.testing.assert_allclose(base.spread[kind // 2], spread, rtol=1e-4, atol=1e-6)


def test_torn_pasts_are_fitted_with_the_noise_of_filled_gaps() -> None:
    """Twice the variance of what a value's fellows do not tell of it, all of them being there."""
    base, rows, _, with_past, without = solved(judge=9)
    past, covariance = CLOCK.past, base.past_covariance.numpy()
    error = np.empty((past, 2))
    for number in range(2 * past):
        others = np.delete(np.arange(2 * past), number)
        share = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, number])
        left = covariance[number, number] - covariance[number, others] @ share
        error[divmod(number, 2)] = 2 * TORN[1] * left
    mixed = (
        np.square(make_stencil(POINTS, POINTS, base.covariance).weight[0].numpy()).sum(-1).mean(0)
    )

    def blurred(kind: str, first: np.ndarray) -> Moments:
        wide = np.einsum("g,lc->lgc", mixed[2:], error[: base.close])
        noise = [part.ravel() for part in (first, mixed[1] * error, wide, np.zeros(1))]
        return rows.sums(kind).blurred(np.concatenate(noise))

    with_own = blurred("own", error * (np.arange(past) > 0)[:, None])  # the newest is not filled
    own = solve(with_own, with_past)
    far = solve(blurred("far", mixed[0] * error), without, own)
    change = newest_by_older(base)  # the older ones' noise comes with them
    xx, xy = change.T @ with_own.xx @ change, np.einsum("cd,hclk->hdlk", change, with_own.xy)
    late = solve(replace(with_own, xx=xx, xy=xy), with_past)
    for kind, beta in enumerate((own, far, late, far), start=4):
        np.testing.assert_allclose(base.beta[kind], beta, rtol=0, atol=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_what_a_past_is_like_is_learned_from_those_of_training(missing: float) -> None:
    """Mean and covariance over windows and points; with gaps, of what these first made of them."""
    seen = np.random.default_rng(4).random((100, 12, 2)) >= missing
    seen[:, 3, 0] &= not missing  # without a channel it says nothing of how the two go together
    train = windows(tilting(100, 1), observed=seen)
    base, first = fitted(train, train), LinearForecast(CLOCK, 2)
    batch = train.inputs(np.arange(len(train)))
    whole = np.stack([seen[s : s + CLOCK.past].any(0).all(-1) for s in train.starts])
    for _ in range(2 if missing else 1):
        rows = first.pasts(batch)[0].double().numpy().transpose(0, 2, 1, 3)[whole].reshape(-1, 12)
        away = rows - rows.mean(0)
        first.past_mean.copy_(torch.from_numpy(rows.mean(0)))
        first.past_covariance.copy_(torch.from_numpy(away.T @ away / len(rows)))
    np.testing.assert_allclose(base.past_mean, first.past_mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(base.past_covariance, first.past_covariance, rtol=0, atol=1e-6)


def test_where_pasts_are_too_few_to_tell_gaps_are_filled_as_by_a_random_walk() -> None:
    train = windows(noise(10, 12, 1))
    train = replace(train, starts=train.starts[:1], nodes=np.arange(4))
    base = LinearForecast(CLOCK, 1)
    linear_fit._learn_pasts(base, train, 4)
    torch.testing.assert_close(base.past_covariance, LinearForecast(CLOCK, 1).past_covariance)


def test_the_texture_is_that_of_the_newest_values() -> None:
    """Of windows that share no frame: smooth there, and noise before and after."""
    values = noise(240, 12, 1)
    values[CLOCK.past - 1 :: 10] = noise(24, 1, 1, seed=2) + POINTS.coordinates[:, :1]
    train = windows(values)
    train = replace(train, starts=train.starts[::10])
    covariance, before = (
        fit_covariance(train.at(train.starts + CLOCK.past - back)[0].double(), None, POINTS)
        for back in (1, 2)
    )
    assert fitted(train, train).covariance == covariance != before
