"""Histories: complete pasts at regular steps, with the moments of the training windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.linear_cases import TIMES, batch_of, noise, windows

from stonet.data.time_spec import TimeSpec
from stonet.linear.history import History

CHANNELS = 2


def a_history() -> History:
    """Fitted on correlated noise without gaps."""
    values = np.cumsum(noise(80, 12, CHANNELS), axis=0) * 0.3 + noise(80, 12, CHANNELS, seed=2)
    values[..., 1] += values[..., 0]
    history = History(TIMES, CHANNELS)
    history.fit(windows(values), 12)
    return history


def test_without_gaps_it_is_the_past_newest_first() -> None:
    values = noise(6, 12, CHANNELS)
    found, present = a_history()(batch_of(values, [1.0]))
    assert present is None
    np.testing.assert_array_equal(found[0], values[::-1])


def test_mean_and_covariance_are_those_of_the_training_histories() -> None:
    values = noise(40, 12, CHANNELS)
    history = History(TIMES, CHANNELS)
    history.fit(windows(values), 12)
    single = values.astype(np.float32).astype(float)
    rows = np.stack(
        [single[t - 5 : t + 1, n][::-1].ravel() for t in range(5, 36) for n in range(12)]
    )
    np.testing.assert_allclose(history.mean, rows.mean(0), atol=1e-9)
    np.testing.assert_allclose(history.covariance, np.cov(rows.T, ddof=0), atol=1e-6)
    assert history.usual_gaps == 0


def test_gaps_are_filled_with_their_conditional_mean() -> None:
    """E[u | y] = m + C H' (H C H')^-1 (y - H m); a node without any value is absent."""
    history, values = a_history(), noise(6, 12, CHANNELS)
    observed = np.random.default_rng(0).random(values.shape) < 0.7
    observed[:, 0] = False
    observed[:, 1, 1] = False  # a channel that is never seen
    found, present = history(batch_of(values * observed, [1.0], observed), every_channel=True)
    assert present is not None and not found[:, :, 0].any()
    assert present[0].all(-1).tolist() == [False, *[True] * 11]
    mean, covariance = history.mean.numpy(), history.covariance.numpy()
    for n in range(1, 12):
        there, y = observed[::-1, n].ravel(), values[::-1, n].ravel()
        known = covariance[:, there]
        filled = mean + known @ np.linalg.solve(known[there], y[there] - mean[there])
        expected = np.where(there, y, filled).reshape(6, CHANNELS)
        np.testing.assert_allclose(found[0, :, n], expected, atol=1e-7)


def test_a_channel_that_is_never_seen_is_absent_unless_it_is_asked_for() -> None:
    history, values = a_history(), noise(6, 12, CHANNELS)
    observed = np.ones(values.shape, bool)
    observed[:, 3, 0] = False
    batch = batch_of(values * observed, [1.0], observed)
    found, present = history(batch)
    assert present is not None and present[0, 3].tolist() == [False, True]
    assert not found[0, :, 3, 0].any()
    filled, everywhere = history(batch, every_channel=True)
    assert everywhere is not None and everywhere[0, 3].all() and filled[0, :, 3, 0].any()
    torch.testing.assert_close(filled[0, :, 3, 1], found[0, :, 3, 1])


def test_windows_with_irregular_times_do_not_change_the_others() -> None:
    history, values = a_history(), noise(6, 12, CHANNELS)
    regular = batch_of(values, [1.0])
    odd = batch_of(values, [1.0], lags=[-5.0, -4.2, -3.1, -1.9, -1.0, 0.0])
    both = replace(
        regular,
        past=torch.cat([regular.past, odd.past]),
        lag=torch.cat([regular.lag, odd.lag]),
        hour=torch.cat([regular.hour, odd.hour]),
        **{
            name: torch.cat([getattr(regular, name)] * 2)
            for name in ("future_time", "issue_time", "lead")
        },
    )
    together = history(both)[0]
    torch.testing.assert_close(together[:1], history(regular)[0])
    torch.testing.assert_close(together[1:], history(odd)[0])
    assert not torch.allclose(together[0], together[1])


def test_the_surprise_is_none_in_a_smooth_field_and_one_in_a_random_walk() -> None:
    history = History(TimeSpec(1, 6, 2, False), 1)
    assert history.surprise == pytest.approx(1.0, abs=0.05)  # starts as a random walk
    lag = torch.arange(6, dtype=torch.float64)
    waves = sum(torch.cos(f * (lag[:, None] - lag)) for f in (0.3, 1.1))
    history.covariance.copy_(waves + 1e-9 * torch.eye(6))
    assert history.surprise < 1e-3
