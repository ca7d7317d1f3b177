"""Scaler: statistics of observed values in float64, exact inverse, bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.value_range import MIN_SHARE_ON_BOUND
from stonet.errors import DataError, UsageError


def field(values: np.ndarray, mask: np.ndarray | None = None) -> Field:
    """Channels a, b, c: names of no known quantity."""
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
    assert scaler.low[0] == 0.0 and scaler.high[0] == 40.0
    assert scaler.rules[0] == "reached often; reached often"


def test_blocks_and_parts_find_the_same_bounds(monkeypatch):
    values = power()
    whole = Scaler.fit([field(values)])
    monkeypatch.setattr("stonet.data.value_range.BLOCK", 30)
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
    assert (found == (sign * 0.5,)) == enough
    lower, upper = scaler.rules[0].split("; ")
    assert [rule == "reached often" for rule in (lower, upper)][::sign] == [enough, False]


@pytest.mark.parametrize("frames", [3, 20, 60, 5000])
def test_extremes_that_are_no_bound_are_widened(frames):
    """The least of few values is no bound, however large a share of them it is."""
    part = field(np.random.default_rng(frames).normal(0, 1, (frames, 2, 1)))
    low, high = float(part.values.min()), float(part.values.max())
    scaler = Scaler.fit([part], margin=0.25)
    assert scaler.low[0] == pytest.approx(low - (high - low) / 4)
    assert scaler.high[0] == pytest.approx(high + (high - low) / 4)


def test_a_constant_channel_may_differ_by_one():
    scaler = Scaler.fit([field(np.full((100, 3, 1), 273.15))])
    assert scaler.low[0] == pytest.approx(272.15) and scaler.high[0] == pytest.approx(274.15)


def test_missing_values_are_no_bound():
    """Missing values are stored as zeros."""
    values = np.random.default_rng(0).normal(280, 7, (300, 4, 1))
    mask = np.random.default_rng(1).random(values.shape) < 0.5
    part = field(np.where(mask, values, np.nan))
    assert not part.observed.all()
    assert Scaler.fit([part]).low[0] > 200


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
    assert (scaler.high == (21.0,)) == saturated
    assert ("reached often" in scaler.rules[0]) == saturated


# The range of forecasts


def named(values: np.ndarray, channel: str, unit: str = "", **attrs: object) -> Field:
    points = Points(np.zeros((values.shape[1], 2)))
    times = np.arange(len(values))
    about = {channel: attrs}
    return Field(
        values[..., None].astype(np.float32),
        times,
        points,
        (channel,),
        None,
        (unit,),
        channel_attrs=about,
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e6), st.floats(-1e4, 1e4))
def test_no_way_back_leaves_the_range(seed, size, centre):
    """Of values however wild, by arrays, tensors and normalised tensors alike."""
    generator = np.random.default_rng(seed)
    part = field(generator.normal(centre, size, (40, 3, 2)))
    scaler = Scaler.fit([part])
    wild = generator.standard_cauchy((200, 2)).astype(np.float32) * np.float32(1e6)
    results = [
        scaler.denormalise(wild).astype(np.float64),
        scaler.within(wild.astype(np.float64)),
        scaler.in_units(torch.from_numpy(wild)).numpy(),
    ]
    for values in results:
        assert (values >= scaler.low).all() and (values <= scaler.high).all()
        assert not scaler.outside(values).any()
    assert not scaler.outside(part.values).any()


@pytest.mark.parametrize(
    ("channel", "unit", "name", "low", "high"),
    [
        ("wind_speed", "m s-1", "", 0.0, None),
        ("x", "m", "sea_surface_wave_significant_height", 0.0, None),
        ("hs", "m", "", 0.0, None),
        ("pm25", "ug m-3", "", 0.0, None),
        ("x", "%", "relative_humidity", 0.0, 100.0),
        ("rh", "", "", 0.0, 100.0),
        ("rh", "1", "relative_humidity", 0.0, 1.0),
        ("specific_humidity", "1", "", None, None),
        ("net_radiation", "W m-2", "", None, None),
        ("u", "m s-1", "", None, None),
    ],
)
def test_known_quantities_stay_within_their_limits(channel, unit, name, low, high):
    """Values that come close to the limits, so that widened extremes would pass them."""
    values = np.random.default_rng(0).uniform(0.001, 0.999, (200, 3))
    values *= 100.0 if (channel == "rh" and unit == "") or unit == "%" else 1.0
    about = {"standard_name": name} if name else {}
    scaler = Scaler.fit([named(values, channel, unit, **about)])
    assert (scaler.low[0] == low) if low is not None else scaler.low[0] < 0
    assert high is None or scaler.high[0] == high


def test_many_values_beyond_a_limit_refute_it_and_few_do_not():
    values = np.random.default_rng(0).uniform(1, 5, (1000, 2))
    few, many = values.copy(), values.copy()
    few[:5] *= -1
    many[:50] *= -1
    assert Scaler.fit([named(few, "wind_speed")]).low == (0.0,)
    assert Scaler.fit([named(many, "wind_speed")]).low[0] < -5


def test_the_valid_range_of_the_data_cuts_the_range():
    values = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    scaler = Scaler.fit([named(values, "x", valid_min=-1.0, valid_max=50.0)])
    assert scaler.low == (-1.0,) and 1 < scaler.high[0] < 1.3


def test_declared_bounds_replace_what_was_learned():
    values = np.random.default_rng(0).uniform(0, 1, (100, 2))
    part = named(values, "wind_speed")
    scaler = Scaler.fit([part], bounds={"wind_speed": ":30"})
    assert scaler.low == (0.0,) and scaler.high == (30.0,)
    assert scaler.declare(("wind_speed",), {"wind_speed": "-2:20"}).low == (-2.0,)
    with pytest.raises(UsageError):
        scaler.declare(("wind_speed",), {"speed": "0:1"})
    with pytest.raises(UsageError):
        Scaler.fit([part], bounds={"wind_speed": "100:"})


def test_only_values_of_another_quantity_are_far_outside():
    generator = np.random.default_rng(0)
    temperature = Scaler.fit([field(generator.normal(280, 8, (500, 4, 1)))])
    assert temperature.far_outside(np.array([[10.0], [80.0], [8000.0]])).all()
    assert not temperature.far_outside(np.array([[240.0], [320.0], [np.nan]])).any()
    rain = Scaler.fit([field(generator.pareto(1.5, (500, 4, 1)))])
    assert not rain.far_outside(np.array([[1.9 * rain.high[0]]])).any()  # a record is no fault
