"""LinearForecast: its regressors, the kinds of history, interpolation between leads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import FakeGpuTensor
from helpers.linear_cases import (
    DAILY,
    HOUR,
    POINTS,
    TIMES,
    batch_of,
    fitted,
    forecast,
    noise,
    single,
    windows,
)

from stonet.data.batch import make_batch
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.solar_position import sun_direction
from stonet.data.time_spec import TimeSpec
from stonet.linear.imputation import fill_gaps, resample
from stonet.linear.kriging import Covariance
from stonet.linear.local_polynomials import make_stencil
from stonet.linear.regression import RECENT_LAGS, LinearForecast, Regressors


@pytest.fixture(scope="module")
def some_base() -> LinearForecast:
    """Fitted to noise, so that no coefficient is zero."""
    return fitted(windows(noise(60, 12, 2)), windows(noise(20, 12, 2, seed=2)))


def test_the_coefficients_of_an_hour_apply_at_that_issue_hour() -> None:
    base = LinearForecast(DAILY, 1)
    base.beta.zero_()
    base.beta[:, :, -1, :, 0] = torch.arange(24.0)[:, None]
    made = windows(noise(60, 12, 1), DAILY)
    chosen = np.array([0, 5, 22, 23, 40])
    future = base(made.inputs(chosen), single(make_stencil(POINTS, POINTS, Covariance(0.1))))
    issue_hour = (chosen + DAILY.past - 1) % 24
    assert (future == torch.from_numpy(issue_hour)[:, None, None, None]).all()


def test_persistence_is_the_newest_observed_value() -> None:
    base = LinearForecast(TIMES, 2, "persistence")
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    future = forecast(base, batch_of(values, [0.5, 1, 4, 5]))
    torch.testing.assert_close(future, torch.from_numpy(values[-1]).expand(4, -1, -1))
    observed[4:, 3] = False
    future = forecast(base, batch_of(values, [1, 4], observed))
    torch.testing.assert_close(future[:, 3], torch.from_numpy(values[3, 3]).expand(2, -1))


def test_persistence_without_history_is_that_of_the_neighbours() -> None:
    base = LinearForecast(TIMES, 1, "persistence")
    level = np.arange(6.0)[:, None, None] * np.ones((1, 12, 1))
    future = forecast(base, batch_of(level, [1, 4]), Points(np.array([[0.5, 0.5], [9.0, 9.0]])))
    torch.testing.assert_close(future, torch.full((2, 2, 1), 5.0).double())


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 12])
def test_coefficients_are_interpolated_between_leads_and_extrapolated_beyond(horizon) -> None:
    base = LinearForecast(replace(TIMES, horizon=horizon), 1)
    cubic = np.poly1d([0.01, -0.2, 0.7, 3.0] if horizon >= 3 else [0.7, 3.0])
    at_trained_leads = cubic(np.arange(horizon + 1))
    base.beta.zero_()
    base.beta[0, 0, -1, :, 0] = torch.from_numpy(at_trained_leads)
    inside = [0.25, *(k + part for k in range(horizon) for part in (0.5, 1.0))]
    future = forecast(base, batch_of(noise(6, 12, 1), sorted(inside)))[:, 0, 0]
    np.testing.assert_allclose(future, cubic(sorted(inside)), rtol=1e-6)
    beyond = forecast(base, batch_of(noise(6, 12, 1), [horizon, horizon + 0.3, horizon + 1]))[
        :, 0, 0
    ]
    steps = np.array([0, 0.3, 1]) * (at_trained_leads[-1] - at_trained_leads[-2])
    np.testing.assert_allclose(beyond, at_trained_leads[-1] + steps, rtol=1e-6)


@pytest.mark.parametrize("sunny", [False, True])
def test_the_regressors_are_those_of_the_documentation(sunny: bool) -> None:
    """History, narrowest fit, at recent lags the other fits, the solar elevation, and 1.

    Without history, the kriged one takes its place.
    """
    time_spec = TimeSpec(step=HOUR, past=RECENT_LAGS + 2, horizon=3, calendar=True, sunny=sunny)
    generator = np.random.default_rng(2)
    nodes = Points(generator.uniform([-60, 0], [60, 360], (9, 2)), "sphere")
    queries = nodes.take(np.arange(4)).joined(Points(np.array([[10.0, 20.0]]), "sphere"))
    times = HOUR * (400_000 + np.arange(20))
    frames = torch.from_numpy(generator.normal(size=(20, 9, 2))).float()
    past = np.array([[0], [5]]) + np.arange(time_spec.past)
    batch = make_batch(
        lambda i: (frames[i], torch.ones_like(frames[i], dtype=torch.bool)),
        times, past, times[past[:, -1:]] + HOUR, time_spec,
    )  # fmt: skip
    stencil = single(make_stencil(queries, nodes, Covariance(0.5)))
    regressors = LinearForecast(time_spec, 2).regressors(batch, stencil)
    assert regressors.kind.tolist() == [[0] * 4 + [1]] * 2 and regressors.num_kinds == 2
    assert regressors.has_history.tolist() == [[True] * 4 + [False]] * 2
    for b, q in np.ndindex(2, 5):
        latest = past[b, -1]

        def fits(lag: int, q: int = q, latest: int = latest) -> np.ndarray:
            frame = frames[None, None, latest - lag]
            return stencil.apply(frame, stencil.weights(None))[0, q, 0].numpy()

        kriged, row = [fits(lag)[0] for lag in range(time_spec.past)], []
        for lag in range(time_spec.past):
            row += [*(frames[latest - lag, q] if q < 4 else kriged[lag])]
        for lag in range(time_spec.past):
            row += [*fits(lag)[1]]
        for lag in range(RECENT_LAGS):
            row += [*fits(lag)[2:].ravel()]
        for step in range(-3, 4) if sunny else ():
            row.append(max(0.0, sine_of_elevation(queries, q, times[latest] + step * HOUR)))
        np.testing.assert_allclose(regressors.columns[b, q], [*row, 1.0], atol=1e-5)
        np.testing.assert_allclose(regressors.kriged_history[b, q], np.ravel(kriged), atol=1e-5)


def sine_of_elevation(points: Points, number: int, time: int) -> float:
    """sin d sin p + cos d cos p cos(hour angle), at latitude p, declination d."""
    x, y, z = sun_direction(np.array(time)).astype(np.float64)
    latitude, longitude = np.deg2rad(points.coordinates[number])
    hour_angle = longitude - np.arctan2(y, x)
    return float(z * np.sin(latitude) + np.hypot(x, y) * np.cos(latitude) * np.cos(hour_angle))


def test_a_missing_value_has_no_influence(some_base) -> None:
    values, observed = noise(6, 12, 2), np.random.default_rng(3).random((6, 12, 2)) < 0.7
    observed[:, 4] = False  # a point without history
    observed[:, 7, 1] = False  # or without history of one channel
    batch = batch_of(values, [1, 2.5], observed)
    hidden = torch.from_numpy(np.where(observed, values, 1e30))
    assert torch.equal(
        forecast(some_base, batch), forecast(some_base, replace(batch, frames=hidden))
    )


def test_histories_are_at_regular_steps_newest_first(some_base) -> None:
    """Gaps are filled, irregular times resampled; zero without any value."""
    values, observed = noise(6, 12, 2), np.random.default_rng(3).random((6, 12, 2)) < 0.7
    complete, present = some_base.history(batch_of(values, [1]))
    assert present is None
    np.testing.assert_array_equal(complete[0], values[::-1])
    observed[:, 4] = observed[:, 7, 1] = False
    prior = some_base.history.mean, some_base.history.covariance
    irregular = [-5.4, -4, -2.7, -2, -1.3, 0]
    past, mask = (torch.from_numpy(part)[None] for part in (values, observed))
    resampled = resample(past, mask, torch.tensor([irregular], dtype=torch.float64), *prior)
    filled = fill_gaps(past.flip(1), mask.flip(1), *prior)
    for lags, wanted in ((None, filled), (irregular, resampled)):
        found, present = some_base.history(batch_of(values, [1], observed, lags))
        np.testing.assert_array_equal(present[0], observed.any(0))
        torch.testing.assert_close(found, wanted * mask.any(1, keepdim=True), rtol=0, atol=1e-6)
        assert not found[0, :, 4].any() and not found[0, :, 7, 1].any()


def test_irregular_and_regular_windows_may_share_a_batch(some_base) -> None:
    """Each has the regressors and the kind of history that it would have alone."""
    values, observed = noise(3, 6, 12, 2), np.random.default_rng(3).random((3, 6, 12, 2)) < 0.9
    lags = [[-5.0, -4, -3, -2, -1, 0], [-5.4, -4, -2.7, -2, -1.3, 0], [-6, -5, -4, -2, -1, 0]]
    alone = [batch_of(values[i], [1], observed[i], lags[i]) for i in range(3)]
    both = replace(
        alone[0],
        frames=torch.cat([one.frames for one in alone]),
        observed=torch.cat([one.observed for one in alone]),
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
        torch.testing.assert_close(together.values[number], found.values[0])
        assert torch.equal(together.kind[number], found.kind[0])


def test_a_node_without_history_is_forecast_as_a_place_without_a_node(some_base) -> None:
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    observed[:, 4] = False
    others = np.delete(np.arange(12), 4)
    empty = forecast(some_base, batch_of(values, [1, 4], observed))[:, 4:5]
    absent = forecast(
        some_base,
        batch_of(values[:, others], [1, 4]),
        POINTS.take(np.array([4])),
        POINTS.take(others),
    )
    torch.testing.assert_close(empty, absent)


def test_a_query_with_hidden_history_is_forecast_as_a_place_without_a_node(some_base) -> None:
    """Its history still counts as that of a neighbour."""
    values, stencil = noise(6, 12, 2), make_stencil(POINTS, POINTS, some_base.covariance)
    batch = batch_of(values, [1, 4])
    regressors = some_base.regressors(batch, stencil)
    hidden = torch.ones_like(regressors.has_history)
    without_history = some_base.forecast(regressors.without_history(hidden), batch)[0]
    for node in range(12):
        others = np.delete(np.arange(12), node)
        absent = forecast(
            some_base,
            batch_of(values[:, others], [1, 4]),
            POINTS.take(np.array([node])),
            POINTS.take(others),
        )
        torch.testing.assert_close(without_history[:, [node]], absent)
    some = torch.arange(12)[None] % 3 == 0
    partly = some_base.forecast(regressors.without_history(some), batch)[0]
    wanted = torch.where(some[..., None], without_history, some_base.forecast(regressors, batch)[0])
    torch.testing.assert_close(partly, wanted)


def test_a_hidden_history_has_no_influence_on_its_own_forecast(some_base) -> None:
    stencil, values = make_stencil(POINTS, POINTS, some_base.covariance), noise(6, 12, 2)
    changed = values.copy()
    changed[:, 4] = noise(6, 2, seed=9)

    def results(past: np.ndarray, hidden: bool) -> list[torch.Tensor]:
        batch = batch_of(past, [1, 4])
        regressors = some_base.regressors(batch, stencil)
        hide = torch.full_like(regressors.has_history, hidden)
        regressors = regressors.without_history(hide)
        scale = some_base.residual_scale(regressors, batch)[0, :, 4]
        return [some_base.forecast(regressors, batch)[0, :, 4], scale]

    for before, after in zip(results(values, True), results(changed, True), strict=True):
        assert torch.equal(before, after)
    assert not torch.equal(results(values, False)[0], results(changed, False)[0])


def test_a_query_at_a_node_is_forecast_as_the_node(some_base) -> None:
    batch, chosen = batch_of(noise(6, 12, 2), [1, 4]), np.array([8, 2])
    torch.testing.assert_close(
        forecast(some_base, batch, POINTS.take(chosen)), forecast(some_base, batch)[:, chosen]
    )


def test_a_channel_without_history_is_forecast_from_the_neighbours() -> None:
    """The other channel is unchanged: here each channel depends on itself only."""
    base = LinearForecast(TIMES, 2)
    values, observed = noise(6, 12, 2), np.ones((6, 12, 2), bool)
    observed[:, 3, 1] = False
    complete, partly = (forecast(base, batch_of(values, [2], mask)) for mask in (None, observed))
    torch.testing.assert_close(partly[:, :, 0], complete[:, :, 0])
    others = Points(np.delete(POINTS.coordinates, 3, axis=0))
    around = batch_of(np.delete(values, 3, axis=1), [2])
    lone = forecast(base, around, POINTS.take(np.array([3])), others)
    torch.testing.assert_close(partly[:, 3:4, 1], lone[:, :, 1])


@pytest.mark.parametrize("hours", [1, 24])
def test_each_row_is_multiplied_by_the_matrix_of_its_kind_and_hour(hours: int) -> None:
    """On the CPU, and in the computation on a GPU, which includes all kinds."""
    draw = torch.Generator().manual_seed(0)
    columns, table = (
        torch.randn(shape, generator=draw, dtype=torch.float64)
        for shape in ((5, 7, 6), (8, hours, 6, 3))
    )
    kind, hour = torch.randint(8, (5, 7), generator=draw), torch.randint(hours, (5,))
    found = Regressors(columns, 0, kind).multiply(table, hour)
    for window in range(5):
        for query in range(7):
            wanted = columns[window, query] @ table[kind[window, query], hour[window]]
            torch.testing.assert_close(found[window, query], wanted)
    on_gpu = Regressors(columns, 0, kind.as_subclass(FakeGpuTensor)).multiply(table, hour)
    torch.testing.assert_close(on_gpu.as_subclass(torch.Tensor), found)


def test_every_kind_of_history_has_its_coefficients() -> None:
    """4 for more gaps than in training, 2 for a missing newest value, 1 without history."""
    base = LinearForecast(TIMES, 1)
    base.beta.zero_()
    base.beta[:, :, -1, :, 0] = torch.arange(8.0)[:, None, None]
    base.rmse.copy_(torch.arange(1.0, 5.0)[:, None, None])
    far = Points(np.concatenate([POINTS.coordinates, 50 + POINTS.coordinates]))
    queries = far.joined(Points(np.array([[0.5, 0.5], [50.5, 50.5]])))
    values, observed = noise(6, 24, 1), np.random.default_rng(0).random((6, 24, 1)) < 0.6
    observed[:, 12:] = True
    observed[-1, :8], observed[0, :8] = np.arange(8)[:, None] % 2, True
    observed[:, 5] = False  # a node without history has no newest value
    batch = batch_of(values, [1], observed)
    near = make_stencil(queries, far, Covariance(0.1), nearest(queries, far, 8))
    empty = np.arange(12) == 5
    late = 2 * (~observed[-1, :12, 0] & ~empty)
    for usual, many_gaps in ((0.0, 4), (0.5, 0)):
        base.history.usual_gaps.fill_(usual)
        kind = [*(many_gaps + late + empty), *[0] * 12, many_gaps + 1, 1]
        regressors = base.regressors(batch, near)
        assert regressors.kind[0].tolist() == kind and regressors.num_kinds == 8
        assert base(batch, near)[0, 0, :, 0].tolist() == kind
        scale = [1 + k // 2 for k in kind]  # a kriged history has the scale of an observed one
        assert base.residual_scale(regressors, batch)[0, 0, :, 0].tolist() == scale
        hidden = regressors.without_history(torch.ones_like(regressors.has_history))
        assert hidden.kind[0].tolist() == [k | 1 for k in kind]
        assert hidden.kind_with_history[0].tolist() == [k // 4 * 2 for k in kind]
    assert base.regressors(batch_of(values, [1]), near).kind[0].tolist() == [0] * 24 + [1, 1]


def nearest(queries: Points, nodes: Points, count: int) -> np.ndarray:
    distance = np.linalg.norm(queries.coordinates[:, None] - nodes.coordinates, axis=2)
    return np.argsort(distance, axis=1)[:, :count]


@pytest.mark.parametrize(("channels", "hours"), [(1, 24), (3, 24), (4, 1), (11, 1)])
def test_every_hour_has_its_coefficients_unless_there_are_very_many(
    channels: int, hours: int
) -> None:
    """Sums for each hour grow with the square of the channels: eleven would need gigabytes."""
    time_spec = replace(TIMES, step=3600 * SECOND, past=24, horizon=12, calendar=True)
    base = LinearForecast(time_spec, channels)
    assert (base.num_hours, base.beta.shape[1]) == (hours, hours)
    assert base.num_hours * (base.own_columns + base.num_columns) ** 2 < 2**24
