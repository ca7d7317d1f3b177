"""LinearBase: exact where the field is linear in its past, at any lead, whatever is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from stonet import linear
from stonet.clock import SECOND, Clock
from stonet.field import Field
from stonet.geometry import Points
from stonet.linear import LinearBase, on_regular_lags
from stonet.protocols import kept_labels
from stonet.scaling import Scaler
from stonet.stencil import Stencil, make_stencil
from stonet.windows import Batch, Windows, cut, make_batch

HOUR = 3600 * SECOND
CLOCK = Clock(step=SECOND, past=6, horizon=4, calendar=False)
DAILY = Clock(step=HOUR, past=2, horizon=4, calendar=True)
POINTS = Points(np.random.default_rng(0).uniform(0, 1, (12, 2)))


def windows(
    values: np.ndarray, clock: Clock = CLOCK, observed: np.ndarray | None = None
) -> Windows:
    """Every window of one episode (time, node, channel)."""
    field = Field(
        values.astype(np.float32),
        clock.step * np.arange(len(values)),
        POINTS,
        tuple(f"c{i}" for i in range(values.shape[-1])),
        observed,
        calendar=clock.calendar,
    )
    return cut((field,), Scaler.identity(values.shape[-1]), clock)


def asked(
    values: np.ndarray,
    leads: list[float],
    observed: np.ndarray | None = None,
    lags: list[float] | None = None,
) -> Batch:
    """One window of these frames, asked at these leads."""
    frames = torch.from_numpy(values)
    seen = torch.ones_like(frames, dtype=torch.bool) if observed is None else torch.tensor(observed)
    lags = list(range(1 - len(values), 1)) if lags is None else lags
    times, ask = (np.rint(SECOND * np.array(t)).astype(np.int64) for t in (lags, leads))
    batch = make_batch(
        lambda i: (frames[i], seen[i]), times, np.arange(len(values))[None], ask[None], CLOCK, False
    )
    return replace(batch, lag=batch.lag.double(), lead=batch.lead.double())


def answer(
    base: LinearBase, batch: Batch, queries: Points = POINTS, nodes: Points = POINTS
) -> torch.Tensor:
    """(future, query, channel)."""
    stencil = make_stencil(queries, nodes, float(base.spacing))
    return base(batch, stencil.to(torch.device("cpu"), batch.frames.dtype))[0]


def single(stencil: Stencil) -> Stencil:
    """In the precision of a window's frames."""
    return stencil.to(torch.device("cpu"), torch.float32)


def noise(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def fitted(
    train: Windows, validation: Windows, clock: Clock = CLOCK, kind: str = "ridge"
) -> LinearBase:
    base = LinearBase(clock, len(train.fields[0].channels), kind)
    base.fit(train, validation, POINTS)
    return base


@pytest.fixture(scope="module")
def some_base() -> LinearBase:
    """Fitted to noise: every coefficient is in use."""
    return fitted(windows(noise(60, 12, 2)), windows(noise(20, 12, 2, seed=2)))


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


def test_the_coefficients_of_an_hour_are_used_at_that_hour() -> None:
    base = LinearBase(DAILY, 1)
    base.own_weight.zero_()
    base.own_weight[:, :, -1, 0] = torch.arange(24.0)[:, None]
    made = windows(noise(60, 12, 1), DAILY)
    chosen = np.array([0, 5, 22, 23, 40])
    future = base(made.inputs(chosen), single(make_stencil(POINTS, POINTS, 0.1)))
    issue_hour = (chosen + DAILY.past - 1) % 24
    assert (future == torch.from_numpy(issue_hour)[:, None, None, None]).all()


def test_a_daily_cycle_that_no_pooled_coefficient_can_follow_is_followed() -> None:
    profile = 1.5 + noise(24, seed=4) ** 2
    values = profile[np.arange(24 * 12) % 24][:, None, None] * np.linspace(1, 2, 12)[:, None]
    base = fitted(windows(values[:240], DAILY), windows(values[240:], DAILY), DAILY)
    test = windows(values[240:], DAILY)
    chosen = np.arange(len(test))
    future = base(test.inputs(chosen), single(make_stencil(POINTS, POINTS, float(base.spacing))))
    truth, _ = test.targets(chosen)
    last = test.at(test.starts + DAILY.past - 1)[0][:, None]
    assert (future - truth).abs().mean() < 0.02 * (last - truth).abs().mean()


def test_persistence_is_the_last_observed_value() -> None:
    base = LinearBase(CLOCK, 2, "persistence")
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    future = answer(base, asked(values, [0.5, 1, 4, 5]))
    torch.testing.assert_close(future, torch.from_numpy(values[-1]).expand(4, -1, -1))
    observed[4:, 3] = False
    future = answer(base, asked(values, [1, 4], observed))
    torch.testing.assert_close(future[:, 3], torch.from_numpy(values[3, 3]).expand(2, -1))


def test_persistence_of_a_point_without_a_past_is_its_neighbours() -> None:
    base = LinearBase(CLOCK, 1, "persistence")
    level = np.arange(6.0)[:, None, None] * np.ones((1, 12, 1))
    future = answer(base, asked(level, [1, 4]), Points(np.array([[0.5, 0.5], [9.0, 9.0]])))
    torch.testing.assert_close(future, torch.full((2, 2, 1), 5.0).double())


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 12])
def test_between_leads_the_coefficients_are_interpolated_and_beyond_them_extended(horizon) -> None:
    base = LinearBase(replace(CLOCK, horizon=horizon), 1)
    cubic = np.poly1d([0.01, -0.2, 0.7, 3.0] if horizon >= 3 else [0.7, 3.0])
    knots = cubic(np.arange(horizon + 1))
    base.own_weight.zero_()
    base.own_weight[0, :, -1, 0] = torch.from_numpy(knots)
    inside = [0.25, *(k + part for k in range(horizon) for part in (0.5, 1.0))]
    future = answer(base, asked(noise(6, 12, 1), sorted(inside)))[:, 0, 0]
    np.testing.assert_allclose(future, cubic(sorted(inside)), rtol=1e-6)
    beyond = answer(base, asked(noise(6, 12, 1), [horizon, horizon + 0.3, horizon + 1]))[:, 0, 0]
    steps = np.array([0, 0.3, 1]) * (knots[-1] - knots[-2])
    np.testing.assert_allclose(beyond, knots[-1] + steps, rtol=1e-6)


def test_irregular_inputs_with_gaps_are_interpolated_in_time() -> None:
    generator = np.random.default_rng(0)
    lag = np.sort(-7 * generator.random((3, 9)), axis=1)
    lag[:, -1] = 0
    values, observed = noise(3, 9, 5, 2), generator.random((3, 9, 5, 2)) < 0.5
    observed[:, 4] = True  # nobody is silent throughout
    regular = -np.arange(6.0)
    hidden = np.where(observed, values, 1e30)
    made = linear._interpolate(*(torch.from_numpy(a) for a in (hidden, observed, lag, regular)))
    for b, node, channel in np.ndindex(3, 5, 2):
        seen = observed[b, :, node, channel]
        wanted = np.interp(regular, lag[b, seen], values[b, seen, node, channel])
        np.testing.assert_allclose(made[b, :, node, channel], wanted, atol=1e-12)


def test_inputs_at_the_regular_times_are_taken_as_they_are(some_base) -> None:
    values = noise(6, 12, 2)
    plain, known = on_regular_lags(asked(values, [1]), CLOCK)
    np.testing.assert_array_equal(plain[0], values[::-1])
    assert known is None
    almost = asked(values, [1], lags=[-5.002, -4, -3, -2.002, -1, 0])
    torch.testing.assert_close(on_regular_lags(almost, CLOCK)[0], plain, atol=0.02, rtol=0)


def test_what_is_missing_has_no_influence(some_base) -> None:
    values, observed = noise(6, 12, 2), np.random.default_rng(3).random((6, 12, 2)) < 0.7
    observed[:, 4] = False  # a point without any past
    observed[:, 7, 1] = False  # or without one in one of its channels
    batch = asked(values, [1, 2.5], observed)
    hidden = torch.from_numpy(np.where(observed, values, 1e30))
    assert torch.equal(answer(some_base, batch), answer(some_base, replace(batch, frames=hidden)))


def test_a_node_without_a_past_is_answered_as_a_place_without_a_node(some_base) -> None:
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    observed[:, 4] = False
    others = np.delete(np.arange(12), 4)
    silent = answer(some_base, asked(values, [1, 4], observed))[:, 4:5]
    absent = answer(
        some_base, asked(values[:, others], [1, 4]), POINTS.take(np.array([4])), POINTS.take(others)
    )
    torch.testing.assert_close(silent, absent)


def test_a_node_asked_as_a_query_is_answered_as_the_node(some_base) -> None:
    batch, chosen = asked(noise(6, 12, 2), [1, 4]), np.array([8, 2])
    torch.testing.assert_close(
        answer(some_base, batch, POINTS.take(chosen)), answer(some_base, batch)[:, chosen]
    )


def test_the_spread_is_the_root_mean_square_of_what_is_left_over(some_base) -> None:
    judge = windows(noise(20, 12, 2, seed=2))
    chosen = np.arange(len(judge))
    stencil = single(make_stencil(POINTS, POINTS, float(some_base.spacing)))
    truth, _ = judge.targets(chosen)
    error = (some_base(judge.inputs(chosen), stencil) - truth).double().square().mean((0, 2)).sqrt()
    torch.testing.assert_close(some_base.own_spread[1:].double(), error, rtol=1e-4, atol=0)
    batch = judge.inputs(chosen)
    scale = some_base.scale(some_base.look(batch, stencil), batch)
    torch.testing.assert_close(scale[0, :, 0], some_base.own_spread[1:])


def test_the_whitened_regressors_are_uncorrelated() -> None:
    train = windows(noise(60, 12, 1))
    base = fitted(train, windows(noise(20, 12, 1, seed=2)))
    base.fit(train, replace(train, starts=train.starts[:0]), POINTS)  # no validation: least ridge
    look = base.look(
        train.inputs(np.arange(len(train))),
        single(make_stencil(POINTS, POINTS, float(base.spacing))),
    )
    for z in base.whitened(look):
        z = z.flatten(0, 1)
        z = z[:, z.std(0) > 0.5]  # fewer directions than columns vary
        torch.testing.assert_close(z.mean(0), torch.zeros(z.shape[1]).double(), atol=1e-6, rtol=0)
        covariance = z.T @ z / len(z)
        torch.testing.assert_close(
            covariance, torch.eye(len(covariance)).double(), atol=0.02, rtol=0
        )


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
        stencil = single(make_stencil(POINTS, POINTS, float(base.spacing)))
        errors.append(float((base(test.inputs(chosen), stencil) - truth).abs().mean()))
    still = float((test.at(test.starts + CLOCK.past - 1)[0][:, None] - truth).abs().mean())
    assert errors[1] < 1.05 * errors[0] and errors[1] < 0.7 * still


def test_a_channel_that_a_point_never_observed_is_taken_from_its_neighbours() -> None:
    """Its other channel is forecast as if nothing were missing: here each follows itself."""
    base = LinearBase(CLOCK, 2)
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    observed[:, 3, 1] = False
    whole, partly = answer(base, asked(values, [2])), answer(base, asked(values, [2], observed))
    torch.testing.assert_close(partly[:, :, 0], whole[:, :, 0])
    others = Points(np.delete(POINTS.coordinates, 3, axis=0))
    around = asked(np.delete(values, 3, axis=1), [2])
    lone = answer(base, around, POINTS.take(np.array([3])), others)
    torch.testing.assert_close(partly[:, 3:4, 1], lone[:, :, 1])
