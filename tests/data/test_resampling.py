"""Interpolation in time: linear between observed values, cubic between leads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stonet.data.batch import Batch, make_batch
from stonet.data.durations import SECOND
from stonet.data.resampling import between_leads, interpolate, on_regular_lags
from stonet.data.time_spec import TimeSpec

TIME_SPEC = TimeSpec(step=SECOND, past=6, horizon=4, calendar=False)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def batch(values: np.ndarray, lags: list[float], seen: np.ndarray | None = None) -> Batch:
    """One window of these frames."""
    frames = torch.from_numpy(values)
    observed = torch.from_numpy(np.ones(values.shape, bool) if seen is None else seen)
    times = np.rint(SECOND * np.array(lags)).astype(np.int64)
    ask, past = np.array([[SECOND]]), np.arange(len(values))[None]
    return make_batch(lambda i: (frames[i], observed[i]), times, past, ask, TIME_SPEC)


def test_irregular_inputs_with_gaps_are_interpolated_in_time() -> None:
    generator = np.random.default_rng(0)
    lag = np.sort(-7 * generator.random((3, 9)), axis=1)
    lag[:, -1] = 0
    values, observed = noise(3, 9, 5, 2), generator.random((3, 9, 5, 2)) < 0.5
    observed[:, 4] = True  # nobody is silent throughout
    regular = -np.arange(6.0)
    hidden = np.where(observed, values, 1e30)
    made = interpolate(*(torch.from_numpy(a) for a in (hidden, observed, lag, regular)))
    for b, node, channel in np.ndindex(3, 5, 2):
        seen = observed[b, :, node, channel]
        wanted = np.interp(regular, lag[b, seen], values[b, seen, node, channel])
        np.testing.assert_allclose(made[b, :, node, channel], wanted, atol=1e-12)


def test_inputs_at_regular_times_are_unchanged() -> None:
    values = noise(6, 12, 2)
    plain, known = on_regular_lags(batch(values, [-5, -4, -3, -2, -1, 0]), TIME_SPEC)
    np.testing.assert_array_equal(plain[0], values[::-1])
    assert known is None
    almost = batch(values, [-5.002, -4, -3, -2.002, -1, 0])
    torch.testing.assert_close(on_regular_lags(almost, TIME_SPEC)[0], plain, atol=0.02, rtol=0)


def test_nodes_without_values_are_reported_and_zero() -> None:
    values, seen = noise(6, 4, 2), np.ones((6, 4, 2), bool)
    seen[:, 2] = seen[:, 3, 1] = False
    filled, known = on_regular_lags(batch(values, [-5, -4, -3, -2, -1, 0], seen), TIME_SPEC)
    assert known is not None
    np.testing.assert_array_equal(known[0], seen.any(0))
    np.testing.assert_array_equal(filled[0], np.where(seen.any(0), values[::-1], 0))


@pytest.mark.parametrize("last", [1, 2, 3, 12])
def test_interpolation_weights_are_exact_at_leads_and_sum_to_one(last: int) -> None:
    at_leads = between_leads(torch.arange(last + 1.0)[None].double(), last)[0]
    torch.testing.assert_close(at_leads, torch.eye(last + 1).double())
    anywhere = between_leads(torch.linspace(0, last + 2, 57).double()[None], last)[0]
    torch.testing.assert_close(anywhere.sum(-1), torch.ones(57).double())


def test_a_batch_is_regular_if_all_inputs_are_one_step_apart() -> None:
    """Within a thousandth of one; whichever values are missing."""
    values, seen = noise(6, 4, 2), np.zeros((6, 4, 2), bool)
    assert batch(values, [-5, -4, -3, -2, -1, 0], seen).regular(6)
    assert batch(values, [-5.0004, -4, -3, -2, -1.0004, 0]).regular(6)
    assert not batch(values, [-5, -4, -3.01, -2, -1, 0]).regular(6)
    assert not batch(values, [-6, -4, -3, -2, -1, 0]).regular(6)
    assert not batch(values, [-5, -4, -3, -2, -1, 0]).regular(5)
    assert not batch(values[:5], [-4, -3, -2, -1, 0]).regular(6)


def test_gaps_are_the_share_of_imputed_steps() -> None:
    """None without any; a node without a past has nothing to fill, odd times fill nothing."""
    values, seen = noise(6, 4, 2), np.ones((6, 4, 2), bool)
    regular = [-5.0, -4, -3, -2, -1, 0]
    assert batch(values, regular).gaps(6) is None
    seen[[1, 4], 0] = seen[2, 1, 1] = seen[:, 2] = False
    found = batch(values, regular, seen).gaps(6)
    np.testing.assert_allclose(found, [[4 / 12, 1 / 12, 0, 0]], rtol=1e-6)
    for odd, filled in (
        ([-5.5, -4, -3, -2, -1, 0], 1), ([-4, -3, -2, -1, 0], 1), ([-8, -6, -4, -2.5, -1, 0], 3),
    ):  # fmt: skip
        found = batch(values[: len(odd)], odd).gaps(6)
        np.testing.assert_allclose(found, np.full((1, 4), filled / 6), rtol=1e-6)


def test_a_node_is_late_if_only_its_newest_values_are_missing() -> None:
    values, seen = noise(6, 6, 2), np.ones((6, 6, 2), bool)
    regular = [-5.0, -4, -3, -2, -1, 0]
    assert not batch(values, regular).late.any()
    seen[-1, 0] = seen[-1, 1, 1] = False  # in all channels; in one of them, which is not enough
    seen[:, 2] = seen[:, 3, 0] = False  # there are no others
    seen[2, 4] = False  # an older one
    assert batch(values, regular, seen).late.tolist() == [[True] + [False] * 5]
