"""Synthetic fields that mislead forecasters, each a few stations through some weeks or months.

All have a calendar and positions in degrees. Every function takes a seed and returns a Field; the
same seed gives the same field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from helpers.small import HOUR
from stonet.data.field import Field
from stonet.data.geometry import Points

START = np.datetime64("2024-01-01", "ns").astype(np.int64)
DAY = 24  # frames of hourly data
Numbers = np.random.Generator


def places(rng: Numbers, count: int, width: float = 4.0) -> np.ndarray:
    """Positions in a square of so many degrees."""
    return np.array([45.0, 5.0]) + width * rng.uniform(size=(count, 2))


def correlated(rng: Numbers, where: np.ndarray, frames: int, length: float = 2.0) -> np.ndarray:
    """Noise (frame, station) that is white in time, with covariance exp(-distance / length)."""
    distance = np.linalg.norm(where[:, None] - where, axis=-1)
    root = np.linalg.cholesky(np.exp(-distance / length) + 1e-9 * np.eye(len(where)))
    return rng.normal(size=(frames, len(where))) @ root.T


def persistent(noise: np.ndarray, memory: float) -> np.ndarray:
    """A first-order autoregression driven by the noise, with unit variance for such noise."""
    result = np.empty_like(noise)
    result[0] = noise[0]
    for frame in range(1, len(noise)):
        result[frame] = memory * result[frame - 1] + np.sqrt(1 - memory**2) * noise[frame]
    return result


def daily(where: np.ndarray, frames: int) -> np.ndarray:
    """A daily cycle that follows the sun, between -1 and 1."""
    return np.sin(2 * np.pi * (np.arange(frames)[:, None] / DAY + where[:, 1] / 360))


def as_field(
    values: np.ndarray, where: np.ndarray, channels: dict[str, str], step: int = HOUR
) -> Field:
    """Values (frame, station) or (frame, station, channel) as a field."""
    values = values.reshape(*values.shape[:2], -1).astype(np.float32)
    times = START + step * np.arange(len(values))
    points = Points(where, "sphere")
    return Field(values, times, points, tuple(channels), units=tuple(channels.values()))


def smooth(seed: int = 0, frames: int = 1000, count: int = 16) -> Field:
    """Weather without any trap: a daily cycle and a persistent anomaly."""
    rng = np.random.default_rng(seed)
    where = places(rng, count)
    anomaly = persistent(correlated(rng, where, frames), 0.95)
    return as_field(10 + 4 * daily(where, frames) + 2 * anomaly, where, {"t2m": "degC"})


def heavy_tails(seed: int = 0) -> Field:
    """Jumps from Student's t with 1.5 degrees of freedom, whose variance is infinite."""
    rng = np.random.default_rng(seed)
    where = places(rng, 16)
    normal = correlated(rng, where, 1000)
    chi = np.sqrt(rng.chisquare(1.5, size=(1000, 1)) / 1.5)
    return as_field(persistent(normal / chi, 0.9), where, {"index": ""})


def regime_shift(seed: int = 0) -> Field:
    """Level, spread and memory change for good after 82 % of the record: in the test part."""
    field = smooth(seed)
    rng = np.random.default_rng(seed + 1)
    frames, where = len(field.times), field.points.coordinates
    values = field.values[..., 0].astype(np.float64)
    later = int(0.82 * frames)
    other = 25 + 8 * daily(where, frames) + 6 * persistent(correlated(rng, where, frames), 0.6)
    values[later:] = other[later:]
    return as_field(values, where, {"t2m": "degC"})


def outliers(seed: int = 0) -> Field:
    """One value in 50 is a spike of up to 30 standard deviations, as of faulty sensors."""
    field = smooth(seed)
    rng = np.random.default_rng(seed + 2)
    spike = rng.uniform(size=field.values.shape) < 0.02
    size = rng.choice([-1, 1], size=spike.shape) * rng.uniform(5, 100, size=spike.shape)
    values = np.where(spike, field.values + size, field.values).astype(np.float32)
    return replace(field, values=values, mask=None)


def sheltered(seed: int = 0) -> Field:
    """Every fourth station lies in a bay that damps the common signal to a twentieth."""
    rng = np.random.default_rng(seed)
    where = places(rng, 20)
    waves = np.exp(0.8 * persistent(correlated(rng, where, 1000, 8.0), 0.97))
    exposure = np.where(np.arange(20) % 4 == 0, 0.05, 1.0)
    return as_field(waves * exposure, where, {"wave_height": "m"})


def few_stations(seed: int = 0) -> Field:
    """Three stations and a short record."""
    return smooth(seed, 400, 3)


def ocean(seed: int = 0) -> Field:
    """Three-hourly wave heights with storms, and periods that follow them, in part sheltered."""
    rng = np.random.default_rng(seed)
    where, frames = places(rng, 25), 1200
    storm = persistent(correlated(rng, where, frames, 6.0), 0.96)
    shelter = np.exp(-rng.gamma(1.0, 0.8, size=25))
    height = 0.25 * shelter * np.exp(0.9 * storm)
    swell = persistent(correlated(rng, where, frames, 3.0), 0.85)
    period = np.clip(1.4 + 4 * height**0.4 + np.exp(0.5 * swell) * (swell > 1), 1.4, 12)
    channels = {"wave_height": "m", "wave_period": "s"}
    return as_field(np.stack([height, period], -1), where, channels, 3 * HOUR)


def showers(seed: int = 0) -> Field:
    """Precipitation: zero in nine hours of ten, and skewed otherwise."""
    rng = np.random.default_rng(seed)
    where = places(rng, 16)
    wet = persistent(correlated(rng, where, 1200, 3.0), 0.85)
    amount = np.where(wet > 1.3, np.expm1(2 * (wet - 1.3)) * rng.gamma(1, 1, wet.shape), 0)
    return as_field(amount, where, {"precipitation": "mm"})


def random_walk(seed: int = 0) -> Field:
    """Nothing can beat the newest value."""
    rng = np.random.default_rng(seed)
    where = places(rng, 12)
    return as_field(np.cumsum(correlated(rng, where, 1000), 0), where, {"price": ""})


def white_noise(seed: int = 0) -> Field:
    """Nothing can beat the mean."""
    rng = np.random.default_rng(seed)
    where = places(rng, 12)
    return as_field(rng.normal(size=(1000, 12)), where, {"noise": ""})


def rare_storms(seed: int = 0) -> Field:
    """Calm throughout training and validation; the first storms come in the test part."""
    field = smooth(seed)
    frames = len(field.times)
    storm = np.zeros(frames)
    for centre in (0.85, 0.9, 0.96):
        storm += 40 * np.exp(-(((np.arange(frames) - centre * frames) / 6) ** 2))
    values = field.values + storm[:, None, None].astype(np.float32)
    return replace(field, values=values, mask=None)


CASES: dict[str, Callable[[int], Field]] = {
    function.__name__: function
    for function in (
        smooth,
        heavy_tails,
        regime_shift,
        outliers,
        sheltered,
        few_stations,
        ocean,
        showers,
        random_walk,
        white_noise,
        rare_storms,
    )
}
