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
from stonet.linear import LinearBase
from stonet.protocols import kept_labels
from stonet.scaling import Scaler
from stonet.stencil import Stencil, make_stencil
from stonet.sun import sun_direction
from stonet.windows import Batch, Windows, cut, hide_values, make_batch

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
    base.own_weight[..., -1, 0] = torch.arange(24.0)[:, None]
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
    base.own_weight[0, 0, :, -1, 0] = torch.from_numpy(knots)
    inside = [0.25, *(k + part for k in range(horizon) for part in (0.5, 1.0))]
    future = answer(base, asked(noise(6, 12, 1), sorted(inside)))[:, 0, 0]
    np.testing.assert_allclose(future, cubic(sorted(inside)), rtol=1e-6)
    beyond = answer(base, asked(noise(6, 12, 1), [horizon, horizon + 0.3, horizon + 1]))[:, 0, 0]
    steps = np.array([0, 0.3, 1]) * (knots[-1] - knots[-2])
    np.testing.assert_allclose(beyond, knots[-1] + steps, rtol=1e-6)


@pytest.mark.parametrize("sunny", [False, True])
def test_what_is_seen_is_the_written_out_list(sunny: bool) -> None:
    """Own past and narrowest fit at every lag, the other fits at the newest, the sun, and 1."""
    clock = Clock(step=HOUR, past=linear.CLOSE + 2, horizon=3, calendar=True, sunny=sunny)
    generator = np.random.default_rng(2)
    nodes = Points(generator.uniform([-60, 0], [60, 360], (9, 2)), "sphere")
    queries = nodes.take(np.arange(4)).joined(Points(np.array([[10.0, 20.0]]), "sphere"))
    times = HOUR * (400_000 + np.arange(20))
    frames = torch.from_numpy(generator.normal(size=(20, 9, 2))).float()
    past = np.array([[0], [5]]) + np.arange(clock.past)
    batch = make_batch(
        lambda i: (frames[i], torch.ones_like(frames[i], dtype=torch.bool)),
        times, past, times[past[:, -1:]] + HOUR, clock, False,
    )  # fmt: skip
    stencil = single(make_stencil(queries, nodes, 0.5))
    look = LinearBase(clock, 2).look(batch, stencil)
    assert look.own.tolist() == [[True] * 4 + [False]] * 2 and look.torn is None
    for b, q in np.ndindex(2, 5):
        latest = past[b, -1]

        def fits(lag: int, q: int = q, latest: int = latest) -> np.ndarray:
            return stencil.apply(frames[None, None, latest - lag], None)[0, q, 0].numpy()

        row: list[float] = []
        for lag in range(clock.past):
            row += [*(frames[latest - lag, q] if q < 4 else torch.zeros(2)), *fits(lag)[0]]
        for lag in range(linear.CLOSE):
            row += fits(lag)[1:].ravel().tolist()
        for step in range(-3, 4) if sunny else ():
            row.append(max(0.0, sine_of_elevation(queries, q, times[latest] + step * HOUR)))
        np.testing.assert_allclose(look.columns[b, q], [*row, 1.0], atol=1e-5)


def sine_of_elevation(points: Points, number: int, time: int) -> float:
    """sin d sin p + cos d cos p cos(hour angle), at latitude p, declination d."""
    x, y, z = sun_direction(np.array(time)).astype(np.float64)
    latitude, longitude = np.deg2rad(points.coordinates[number])
    hour_angle = longitude - np.arctan2(y, x)
    return float(z * np.sin(latitude) + np.hypot(x, y) * np.cos(latitude) * np.cos(hour_angle))


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
    torch.testing.assert_close(some_base.own_spread[0, 1:].double(), error, rtol=1e-4, atol=0)
    batch = judge.inputs(chosen)
    scale = some_base.scale(some_base.look(batch, stencil), batch)
    torch.testing.assert_close(scale[0, :, 0], some_base.own_spread[0, 1:])


def test_the_whitened_regressors_are_uncorrelated() -> None:
    train = windows(noise(60, 12, 1))
    base = fitted(train, windows(noise(20, 12, 1, seed=2)))
    base.fit(train, replace(train, starts=train.starts[:0]), POINTS)  # no validation: least ridge
    look = base.look(
        train.inputs(np.arange(len(train))),
        single(make_stencil(POINTS, POINTS, float(base.spacing))),
    )
    for has_past in (True, False):
        z = base.whitened(replace(look, own=torch.full_like(look.own, has_past))).flatten(0, 1)
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


def test_torn_pasts_have_coefficients_of_their_own() -> None:
    """Where clearly more had to be filled than in training, and there alone."""
    base = LinearBase(CLOCK, 1)
    for table, told in ((base.own_weight, (1.0, 2.0)), (base.far_weight, (3.0, 4.0))):
        table.zero_()
        table[..., -1, 0] = torch.tensor(told)[:, None, None]
    far = Points(np.concatenate([POINTS.coordinates, 50 + POINTS.coordinates]))
    queries = far.joined(Points(np.array([[0.5, 0.5], [50.5, 50.5]])))
    values, seen = noise(6, 24, 1), np.random.default_rng(0).random((6, 24, 1)) < 0.6
    seen[:, 12:] = True
    near = make_stencil(queries, far, 0.1, nearest(queries, far, 8))

    def told(usual: float) -> list[float]:
        base.usual.fill_(usual)
        batch = asked(values, [1], seen)
        return base(batch, near)[0, 0, :, 0].tolist()

    assert told(0.0) == [2.0] * 12 + [1.0] * 12 + [4.0, 3.0]
    assert told(0.5) == [1.0] * 24 + [3.0, 3.0]


def nearest(queries: Points, nodes: Points, count: int) -> np.ndarray:
    distance = np.linalg.norm(queries.coordinates[:, None] - nodes.coordinates, axis=2)
    return np.argsort(distance, axis=1)[:, :count]


def test_where_pasts_are_torn_those_err_less_than_the_ones_for_whole_pasts() -> None:
    """Waves that six values tell exactly: by differences, which magnify what is filled wrongly."""
    t, (a, b) = np.arange(700)[:, None, None], noise(2, 12, 1)
    values = a * np.sin(0.5 * t) + b * np.cos(0.2 * t + 1) + 0.01 * noise(700, 12, 1)
    base = fitted(windows(values[:400]), windows(values[400:550]))
    assert base.usual == 0
    test = windows(values[550:])
    chosen = np.arange(len(test))
    stencil = single(make_stencil(POINTS, POINTS, float(base.spacing)))
    truth = test.targets(chosen)[0]
    batch = hide_values(test.inputs(chosen), 0.3, seed=0)
    look = base.look(batch, stencil)
    assert look.torn is not None and look.torn.all()
    torn, whole = (
        float((base.forecast(seen, batch) - truth).abs().mean())
        for seen in (look, replace(look, torn=None))
    )
    assert torn < 0.8 * whole
