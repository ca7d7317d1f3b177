"""Scaler: statistics of observed values in float64, exact inverse, bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.scaling import MIN_SHARE_ON_BOUND, Scaler
from stonet.errors import DataError


def field(values: np.ndarray, mask: np.ndarray | None = None) -> Field:
    channels = tuple("abc"[: values.shape[2]])
    points = Points(np.zeros((values.shape[1], 2)))
    return Field(values.astype(np.float32), np.arange(len(values)), points, channels, mask)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.floats(-1e5, 1e5), st.floats(1e-2, 1e3), st.floats(0.05, 1))
def test_statistics_are_those_of_observed_values(seed, centre, spread, share):
    generator = np.random.default_rng(seed)
    parts = []
    for frames in (30, 17):
        values = generator.normal(centre, spread, (frames, 4, 2))
        mask = generator.random(values.shape) < share
        mask[0] = True
        parts.append(field(values, mask))
    scaler = Scaler.fit(parts)
    for channel in range(2):
        kept = [p.values[..., channel][p.observed[..., channel]].astype(np.float64) for p in parts]
        expected = np.concatenate(kept)
        assert scaler.mean[channel] == pytest.approx(expected.mean(), rel=1e-12, abs=1e-12)
        if scaler.std[channel] != 1.0:  # else: a spread that float32 cannot tell from none
            assert scaler.std[channel] == pytest.approx(expected.std(), rel=1e-9)


def test_statistics_are_in_float64():
    """Pressure in Pa with a spread of a few: float32 would be wrong in the fourth digit."""
    values = np.random.default_rng(0).normal(101_325.3, 2.0, (1000, 5, 1))
    part = field(values)
    assert Scaler.fit([part]).std[0] == pytest.approx(
        part.values.astype(np.float64).std(), rel=1e-12
    )


def test_normalised_values_are_standard():
    part = field(np.random.default_rng(0).normal(280, 7, (500, 10, 2)))
    scaled = Scaler.fit([part]).normalise(part.values).astype(np.float64)
    assert scaled.dtype == np.float64
    np.testing.assert_allclose(scaled.mean((0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std((0, 1)), 1, rtol=1e-6)


def test_missing_values_have_no_influence():
    values = np.random.default_rng(0).normal(size=(20, 3, 2))
    mask = np.random.default_rng(1).random(values.shape) < 0.5
    other = np.where(mask, values, 1e30)
    assert Scaler.fit([field(values, mask)]) == Scaler.fit([field(other, mask)])


@pytest.mark.parametrize("constant", [273.15, 0.0, -1e-20, 101325.0, 3e30])
def test_a_constant_channel_is_zero_and_is_restored(constant):
    """In float32, the standard deviation of a million times 273.15 is 3e-5, not 0."""
    part = field(np.full((1000, 1000, 1), constant))
    scaler = Scaler.fit([part])
    scaled = scaler.normalise(part.values)
    assert np.abs(scaled).max() <= 1e-6
    assert np.array_equal(scaler.denormalise(scaled), part.values)


@given(st.integers(0, 10**6), st.floats(-1e4, 1e4), st.floats(1e-2, 1e3))
def test_denormalising_is_exact_to_float32(seed, centre, spread):
    part = field(np.random.default_rng(seed).normal(centre, spread, (50, 3, 1)))
    scaler = Scaler.fit([part])
    back = scaler.denormalise(scaler.normalise(part.values))
    rounding = np.spacing(np.abs(part.values - np.float32(scaler.mean[0]))) + np.spacing(
        np.abs(back)
    )
    assert (np.abs(back - part.values) <= rounding).all()


def test_the_identity_changes_nothing():
    values = np.random.default_rng(0).normal(size=(5, 3, 2)).astype(np.float32)
    identity = Scaler.identity(2)
    assert np.array_equal(identity.normalise(values), values)
    assert np.array_equal(identity.denormalise(values), values)


def test_a_channel_without_any_value_is_refused():
    values = np.zeros((4, 3, 2))
    values[..., 1] = np.nan
    with pytest.raises(DataError, match=r"Channel 'b' has no observed value.*every one is missing"):
        Scaler.fit([field(values)])


# Bounds that the data keep


def power(frames: int = 400) -> np.ndarray:
    """No power at night, clipped at the plant's capacity; beside it something without bounds."""
    generator = np.random.default_rng(3)
    day = np.clip(
        np.sin(np.arange(frames) / 4)[:, None] + 0.3 * generator.random((frames, 5)), 0, 1
    )
    return np.stack([40 * day, generator.normal(280, 7, day.shape)], axis=2)


def test_many_equal_extremes_are_a_bound():
    scaler = Scaler.fit([field(power())])
    assert scaler.low == (0.0, None) and scaler.high == (40.0, None)


def test_blocks_and_parts_find_the_same_bounds(monkeypatch):
    values = power()
    whole = Scaler.fit([field(values)])
    monkeypatch.setattr("stonet.data.scaling.BLOCK", 30)
    parts = [field(values[start : start + 50]) for start in range(0, 400, 50)]
    assert (Scaler.fit(parts).low, Scaler.fit(parts).high) == (whole.low, whole.high)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("enough", [False, True])
def test_a_share_of_the_values_makes_a_bound(sign, enough):
    values = np.random.default_rng(0).uniform(1, 2, 10_000)
    share = round(MIN_SHARE_ON_BOUND * len(values))
    values[: share if enough else share - 1] = 0.5
    scaler = Scaler.fit([field(sign * values.reshape(-1, 4, 1))])
    found = scaler.low if sign == 1 else scaler.high
    assert found == ((sign * 0.5,) if enough else (None,))
    assert (scaler.high if sign == 1 else scaler.low) == (None,)


@pytest.mark.parametrize("frames", [3, 20, 60, 5000])
def test_data_without_bounds_are_never_clipped(frames):
    """The least of few values is no bound, however large a share of them it is."""
    part = field(np.random.default_rng(frames).normal(0, 1, (frames, 2, 1)))
    scaler = Scaler.fit([part])
    assert scaler.low == scaler.high == (None,)
    far = np.array([[-1e6], [1e6]], np.float32)
    np.testing.assert_allclose(scaler.denormalise(scaler.normalise(far)), far, rtol=1e-6)
    assert torch.equal(scaler.clip(torch.from_numpy(far)), torch.from_numpy(far))


def test_a_constant_channel_has_no_bound():
    scaler = Scaler.fit([field(np.full((100, 3, 1), 273.15))])
    assert scaler.low == scaler.high == (None,)
    assert scaler.denormalise(np.array([[2.5]], np.float32)) == pytest.approx(275.65)


def test_missing_values_are_no_bound():
    """Missing values are stored as zeros."""
    values = np.random.default_rng(0).normal(280, 7, (300, 4, 1))
    mask = np.random.default_rng(1).random(values.shape) < 0.5
    part = field(np.where(mask, values, np.nan))
    assert not part.observed.all()
    assert Scaler.fit([part]).low == (None,)


@given(st.integers(0, 10**6))
def test_clipping_commutes_with_normalisation(seed):
    """Normalised values within the bounds, denormalised, are denormalised ones within them."""
    scaler = Scaler.fit([field(power())])
    wild = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (6, 2)).astype(np.float32))
    clipped = scaler.clip(wild)
    after = scaler.denormalise(wild.numpy())
    assert after[:, 0].min() >= 0 and after[:, 0].max() <= 40
    np.testing.assert_allclose(scaler.denormalise(clipped.numpy()), after, atol=1e-4)
    free = Scaler(scaler.mean, scaler.std)
    np.testing.assert_allclose(free.denormalise(clipped.numpy()), after, atol=1e-4)
    assert torch.equal(scaler.clip(clipped), clipped)


def test_without_bounds_nothing_is_clipped():
    """As those of runs that were saved before there were any."""
    wild = torch.tensor([[-1e30, 1e30]])
    assert torch.equal(Scaler((0.0, 0.0), (1.0, 1.0)).clip(wild), wild)


@pytest.mark.parametrize("saturated", [False, True])
def test_saturation_is_a_bound_and_rounding_is_not(saturated):
    """Whole degrees meet their maximum often, but less often than the next one."""
    values = np.random.default_rng(2).normal(20, 1.5, (300, 20, 1))
    rounded = np.minimum(values, 21 if saturated else 23.5).round()
    assert (rounded == rounded.max()).mean() > MIN_SHARE_ON_BOUND
    scaler = Scaler.fit([field(rounded)])
    assert scaler.high == ((21.0,) if saturated else (None,)) and scaler.low == (None,)
