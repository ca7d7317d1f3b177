"""LinearForecast: exact where the field is linear in its past, at any lead, whatever is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import Elsewhere
from helpers.linear_cases import (
    CLOCK,
    DAILY,
    HOUR,
    POINTS,
    answer,
    asked,
    fitted,
    noise,
    single,
    windows,
)

from stonet.data.batch import make_batch
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.solar_position import sun_direction
from stonet.data.time_spec import TimeSpec
from stonet.linear import regression as linear
from stonet.linear.imputation import fill_gaps, resample
from stonet.linear.kriging import Covariance
from stonet.linear.local_polynomials import make_stencil
from stonet.linear.regression import LinearForecast, Regressors


@pytest.fixture(scope="module")
def some_base() -> LinearForecast:
    """Fitted to noise: every coefficient is in use."""
    return fitted(windows(noise(60, 12, 2)), windows(noise(20, 12, 2, seed=2)))


def test_the_coefficients_of_an_hour_are_used_at_that_hour() -> None:
    base = LinearForecast(DAILY, 1)
    base.beta.zero_()
    base.beta[:, :, -1, :, 0] = torch.arange(24.0)[:, None]
    made = windows(noise(60, 12, 1), DAILY)
    chosen = np.array([0, 5, 22, 23, 40])
    future = base(made.inputs(chosen), single(make_stencil(POINTS, POINTS, Covariance(0.1))))
    issue_hour = (chosen + DAILY.past - 1) % 24
    assert (future == torch.from_numpy(issue_hour)[:, None, None, None]).all()


def test_persistence_is_the_last_observed_value() -> None:
    base = LinearForecast(CLOCK, 2, "persistence")
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    future = answer(base, asked(values, [0.5, 1, 4, 5]))
    torch.testing.assert_close(future, torch.from_numpy(values[-1]).expand(4, -1, -1))
    observed[4:, 3] = False
    future = answer(base, asked(values, [1, 4], observed))
    torch.testing.assert_close(future[:, 3], torch.from_numpy(values[3, 3]).expand(2, -1))


def test_persistence_of_a_point_without_a_past_is_its_neighbours() -> None:
    base = LinearForecast(CLOCK, 1, "persistence")
    level = np.arange(6.0)[:, None, None] * np.ones((1, 12, 1))
    future = answer(base, asked(level, [1, 4]), Points(np.array([[0.5, 0.5], [9.0, 9.0]])))
    torch.testing.assert_close(future, torch.full((2, 2, 1), 5.0).double())


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 12])
def test_between_leads_the_coefficients_are_interpolated_and_beyond_them_extended(horizon) -> None:
    base = LinearForecast(replace(CLOCK, horizon=horizon), 1)
    cubic = np.poly1d([0.01, -0.2, 0.7, 3.0] if horizon >= 3 else [0.7, 3.0])
    at_trained_leads = cubic(np.arange(horizon + 1))
    base.beta.zero_()
    base.beta[0, 0, -1, :, 0] = torch.from_numpy(at_trained_leads)
    inside = [0.25, *(k + part for k in range(horizon) for part in (0.5, 1.0))]
    future = answer(base, asked(noise(6, 12, 1), sorted(inside)))[:, 0, 0]
    np.testing.assert_allclose(future, cubic(sorted(inside)), rtol=1e-6)
    beyond = answer(base, asked(noise(6, 12, 1), [horizon, horizon + 0.3, horizon + 1]))[:, 0, 0]
    steps = np.array([0, 0.3, 1]) * (at_trained_leads[-1] - at_trained_leads[-2])
    np.testing.assert_allclose(beyond, at_trained_leads[-1] + steps, rtol=1e-6)


@pytest.mark.parametrize("sunny", [False, True])
def test_what_is_seen_is_the_written_out_list(sunny: bool) -> None:
    """Own past, narrowest fit, at the newest lags the other ones, the sun, and 1.

    Without an own past, the kriged one stands in.
    """
    time_spec = TimeSpec(step=HOUR, past=linear.CLOSE + 2, horizon=3, calendar=True, sunny=sunny)
    generator = np.random.default_rng(2)
    nodes = Points(generator.uniform([-60, 0], [60, 360], (9, 2)), "sphere")
    queries = nodes.take(np.arange(4)).joined(Points(np.array([[10.0, 20.0]]), "sphere"))
    times = HOUR * (400_000 + np.arange(20))
    frames = torch.from_numpy(generator.normal(size=(20, 9, 2))).float()
    past = np.array([[0], [5]]) + np.arange(time_spec.past)
    batch = make_batch(
        lambda i: (frames[i], torch.ones_like(frames[i], dtype=torch.bool)),
        times, past, times[past[:, -1:]] + HOUR, time_spec, False,
    )  # fmt: skip
    stencil = single(make_stencil(queries, nodes, Covariance(0.5)))
    regressors = LinearForecast(time_spec, 2).regressors(batch, stencil)
    assert regressors.kind.tolist() == [[0] * 4 + [1]] * 2 and regressors.kinds == 2
    assert regressors.own.tolist() == [[True] * 4 + [False]] * 2
    for b, q in np.ndindex(2, 5):
        latest = past[b, -1]

        def fits(lag: int, q: int = q, latest: int = latest) -> np.ndarray:
            seen = frames[None, None, latest - lag]
            return stencil.apply(seen, stencil.weights(None))[0, q, 0].numpy()

        kriged, row = [fits(lag)[0] for lag in range(time_spec.past)], []
        for lag in range(time_spec.past):
            row += [*(frames[latest - lag, q] if q < 4 else kriged[lag])]
        for lag in range(time_spec.past):
            row += [*fits(lag)[1]]
        for lag in range(linear.CLOSE):
            row += [*fits(lag)[2:].ravel()]
        for step in range(-3, 4) if sunny else ():
            row.append(max(0.0, sine_of_elevation(queries, q, times[latest] + step * HOUR)))
        np.testing.assert_allclose(regressors.columns[b, q], [*row, 1.0], atol=1e-5)
        np.testing.assert_allclose(regressors.stand_in[b, q], np.ravel(kriged), atol=1e-5)


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


def test_pasts_are_at_whole_steps_the_newest_first_and_as_the_learned_ones_suggest(
    some_base,
) -> None:
    """As they are where nothing is missing; else filled or moved; zero where nothing is known."""
    values, seen = noise(6, 12, 2), np.random.default_rng(3).random((6, 12, 2)) < 0.7
    plain, known = some_base.pasts(asked(values, [1]))
    assert known is None
    np.testing.assert_array_equal(plain[0], values[::-1])
    seen[:, 4] = seen[:, 7, 1] = False
    told = some_base.past_mean, some_base.past_covariance
    odd = [-5.4, -4, -2.7, -2, -1.3, 0]
    past, there = (torch.from_numpy(part)[None] for part in (values, seen))
    moved = resample(past, there, torch.tensor([odd], dtype=torch.float64), *told)
    for lags, wanted in ((None, fill_gaps(past.flip(1), there.flip(1), *told)), (odd, moved)):
        found, known = some_base.pasts(asked(values, [1], seen, lags))
        np.testing.assert_array_equal(known[0], seen.any(0))
        torch.testing.assert_close(found, wanted * there.any(1, keepdim=True), rtol=0, atol=1e-6)
        assert not found[0, :, 4].any() and not found[0, :, 7, 1].any()


def test_a_window_out_of_step_changes_nothing_for_those_beside_it(some_base) -> None:
    """Neither their pasts nor their kind; and it is seen as it would be alone."""
    values, seen = noise(3, 6, 12, 2), np.random.default_rng(3).random((3, 6, 12, 2)) < 0.9
    lags = [[-5.0, -4, -3, -2, -1, 0], [-5.4, -4, -2.7, -2, -1.3, 0], [-6, -5, -4, -2, -1, 0]]
    alone = [asked(values[i], [1], seen[i], lags[i]) for i in range(3)]
    both = replace(
        alone[0],
        frames=torch.cat([one.frames for one in alone]),
        observed=torch.cat([one.seen for one in alone]),
        frame_time=torch.cat([one.frame_time for one in alone]),
        past=torch.arange(18).view(3, 6),
        lag=torch.cat([one.lag for one in alone]),
        lead=alone[0].lead.expand(3, -1),
        future_time=alone[0].future_time.expand(3, -1, -1),
        issue_time=alone[0].issue_time.expand(3, -1),
        hour=alone[0].hour.expand(3),
    )
    stencil = make_stencil(POINTS, POINTS, some_base.covariance)
    together = some_base.regressors(both, stencil)
    for number, one in enumerate(alone):
        found = some_base.regressors(one, stencil)
        torch.testing.assert_close(together.seen[number], found.seen[0])
        assert torch.equal(together.kind[number], found.kind[0])


def test_a_node_without_a_past_is_answered_as_a_place_without_a_node(some_base) -> None:
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    observed[:, 4] = False
    others = np.delete(np.arange(12), 4)
    silent = answer(some_base, asked(values, [1, 4], observed))[:, 4:5]
    absent = answer(
        some_base, asked(values[:, others], [1, 4]), POINTS.take(np.array([4])), POINTS.take(others)
    )
    torch.testing.assert_close(silent, absent)


def test_a_silenced_query_is_answered_as_a_place_without_a_node(some_base) -> None:
    """Each for itself: the others, without_history too, still see its past."""
    values, stencil = noise(6, 12, 2), make_stencil(POINTS, POINTS, some_base.covariance)
    batch = asked(values, [1, 4])
    regressors = some_base.regressors(batch, stencil)
    without_history = some_base.forecast(
        regressors.without_history(~torch.zeros_like(regressors.own)), batch
    )[0]
    for node in range(12):
        others = np.delete(np.arange(12), node)
        absent = answer(
            some_base,
            asked(values[:, others], [1, 4]),
            POINTS.take(np.array([node])),
            POINTS.take(others),
        )
        torch.testing.assert_close(without_history[:, [node]], absent)
    some = torch.arange(12)[None] % 3 == 0
    partly = some_base.forecast(regressors.without_history(some), batch)[0]
    told = torch.where(some[..., None], without_history, some_base.forecast(regressors, batch)[0])
    torch.testing.assert_close(partly, told)


def test_a_silenced_query_does_not_know_its_own_past(some_base) -> None:
    stencil, values = make_stencil(POINTS, POINTS, some_base.covariance), noise(6, 12, 2)
    changed = values.copy()
    changed[:, 4] = noise(6, 2, seed=9)

    def told(past: np.ndarray, silent: bool) -> list[torch.Tensor]:
        batch = asked(past, [1, 4])
        regressors = some_base.regressors(batch, stencil)
        regressors = regressors.without_history(torch.full_like(regressors.own, silent))
        forecast, scale = (
            some_base.forecast(regressors, batch)[0],
            some_base.scale(regressors, batch)[0],
        )
        return [forecast[:, 4], scale[:, 4], some_base.whitened(regressors)[0, 4]]

    for before, after in zip(told(values, True), told(changed, True), strict=True):
        assert torch.equal(before, after)
    assert not torch.equal(told(values, False)[0], told(changed, False)[0])


def test_a_node_asked_as_a_query_is_answered_as_the_node(some_base) -> None:
    batch, chosen = asked(noise(6, 12, 2), [1, 4]), np.array([8, 2])
    torch.testing.assert_close(
        answer(some_base, batch, POINTS.take(chosen)), answer(some_base, batch)[:, chosen]
    )


def test_a_channel_that_a_point_never_observed_is_taken_from_its_neighbours() -> None:
    """Its other channel is forecast as if nothing were missing: here each follows itself."""
    base = LinearForecast(CLOCK, 2)
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    observed[:, 3, 1] = False
    whole, partly = answer(base, asked(values, [2])), answer(base, asked(values, [2], observed))
    torch.testing.assert_close(partly[:, :, 0], whole[:, :, 0])
    others = Points(np.delete(POINTS.coordinates, 3, axis=0))
    around = asked(np.delete(values, 3, axis=1), [2])
    lone = answer(base, around, POINTS.take(np.array([3])), others)
    torch.testing.assert_close(partly[:, 3:4, 1], lone[:, :, 1])


@pytest.mark.parametrize("hours", [1, 24])
def test_each_row_meets_the_matrix_of_its_kind_and_hour(hours: int) -> None:
    """Row by row, and the way that a GPU goes, which is not asked which kinds occur."""
    draw = torch.Generator().manual_seed(0)
    columns, table = (
        torch.randn(shape, generator=draw, dtype=torch.float64)
        for shape in ((5, 7, 6), (8, hours, 6, 3))
    )
    kind, hour = torch.randint(8, (5, 7), generator=draw), torch.randint(hours, (5,))
    told = Regressors(columns, 0, kind).times(table, hour)
    for window in range(5):
        for query in range(7):
            wanted = columns[window, query] @ table[kind[window, query], hour[window]]
            torch.testing.assert_close(told[window, query], wanted)
    there = Regressors(columns, 0, kind.as_subclass(Elsewhere)).times(table, hour)
    torch.testing.assert_close(there.as_subclass(torch.Tensor), told)


def test_every_kind_of_past_has_coefficients_of_its_own() -> None:
    """4 where clearly more had to be filled than in training, 2 where the newest is, 1 if none."""
    base = LinearForecast(CLOCK, 1)
    base.beta.zero_()
    base.beta[:, :, -1, :, 0] = torch.arange(8.0)[:, None, None]
    base.spread.copy_(torch.arange(1.0, 5.0)[:, None, None])
    far = Points(np.concatenate([POINTS.coordinates, 50 + POINTS.coordinates]))
    queries = far.joined(Points(np.array([[0.5, 0.5], [50.5, 50.5]])))
    values, seen = noise(6, 24, 1), np.random.default_rng(0).random((6, 24, 1)) < 0.6
    seen[:, 12:] = True
    seen[-1, :8], seen[0, :8] = np.arange(8)[:, None] % 2, True
    seen[:, 5] = False  # a node without a past is not late, too
    batch = asked(values, [1], seen)
    near = make_stencil(queries, far, Covariance(0.1), nearest(queries, far, 8))
    silent = np.arange(12) == 5
    late = 2 * (~seen[-1, :12, 0] & ~silent)
    for usual, torn in ((0.0, 4), (0.5, 0)):
        base.usual.fill_(usual)
        kind = [*(torn + late + silent), *[0] * 12, torn + 1, 1]
        regressors = base.regressors(batch, near)
        assert regressors.kind[0].tolist() == kind and regressors.kinds == 8
        assert base(batch, near)[0, 0, :, 0].tolist() == kind
        scale = [1 + k // 2 for k in kind]  # what stands in for a past counts as one
        assert base.scale(regressors, batch)[0, 0, :, 0].tolist() == scale
        everyone = torch.ones_like(regressors.own)
        hushed = regressors.without_history(everyone)
        assert hushed.kind[0].tolist() == [k | 1 for k in kind]
        assert hushed.as_own[0].tolist() == [k // 4 * 2 for k in kind]  # and is never late
    assert base.regressors(asked(values, [1]), near).kind[0].tolist() == [0] * 24 + [1, 1]


def nearest(queries: Points, nodes: Points, count: int) -> np.ndarray:
    distance = np.linalg.norm(queries.coordinates[:, None] - nodes.coordinates, axis=2)
    return np.argsort(distance, axis=1)[:, :count]


@pytest.mark.parametrize(("channels", "hours"), [(1, 24), (3, 24), (4, 1), (11, 1)])
def test_every_hour_has_coefficients_of_its_own_unless_there_are_very_many(
    channels: int, hours: int
) -> None:
    """Sums for each hour grow with the square of the channels: eleven would take gigabytes."""
    time_spec = replace(CLOCK, step=3600 * SECOND, past=24, horizon=12, calendar=True)
    base = LinearForecast(time_spec, channels)
    assert (base.hours, base.beta.shape[1]) == (hours, hours)
    assert base.hours * (base.block + base.columns) ** 2 < 2**24
