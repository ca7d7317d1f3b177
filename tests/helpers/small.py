"""Small data and quick settings that several tests share."""

from __future__ import annotations

import numpy as np

from stonet.config import Config, load_config
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points

HOUR = 3600 * 10**9


def small_field(frames: int = 120, points: int = 20, seed: int = 0) -> Field:
    """Hourly temperatures on a square: a few travelling waves, each value once in 20 missing."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(size=(points, 2))
    time = np.arange(frames)[:, None]
    values = 10 + sum(
        np.sin(2 * np.pi * (places @ rng.normal(size=2) + rate * time)) for rate in (0.03, 0.08)
    )
    values[rng.uniform(size=values.shape) < 0.05] = np.nan
    return Field(
        values=values[..., None].astype(np.float32),
        times=np.datetime64("2026-03-01", "ns").astype(np.int64) + HOUR * np.arange(frames),
        points=Points(places, "plane"),
        channels=("t2m",),
        units=("degC",),
    )


def small_dataset(unseen: int = 0) -> Dataset:
    """One episode of `small_field`, its last points held out."""
    return Dataset((small_field(),), "small", tuple(range(20 - unseen, 20)))


QUICK = ("train.steps=3", "train.save_every=2", "network.anchor=last")


def quick(*settings: str) -> Config:
    """The tiny preset, smaller still: 2 epochs of 3 steps, a state every other step."""
    return load_config("tiny", settings=(*QUICK, *settings))
