"""Benchmark data: a smooth field that travels around the globe, and the task made of it."""

from __future__ import annotations

import numpy as np

from stonet.config import NetworkConfig, load_config
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.training.task import Task

HOUR = 3600 * 10**9  # nanoseconds
START = 1_600_000_000 * 10**9  # nanoseconds since 1970
WEATHER = ("graph.levels=3", "data.past=12", "data.horizon=12", "network.anchor=blend")
LATENT = NetworkConfig().latent  # d of the default network
WINDOWS_PER_EPOCH = 2300  # of the paper's weather task


def random_points(n: int, draw: np.random.Generator) -> Points:
    """`n` points, uniform on the sphere."""
    z, longitude = draw.uniform(-1, 1, n), draw.uniform(-180, 180, n)
    return Points(np.stack([np.degrees(np.arcsin(z)), longitude], axis=1), "sphere")


def globe(n: int, frames: int) -> Dataset:
    """Four waves that travel eastwards, observed hourly at `n` random points."""
    draw = np.random.default_rng(0)
    points = random_points(n, draw)
    times = np.arange(frames, dtype=np.int64) * HOUR + START
    x = points.embedded.astype(np.float32)
    phase = (2 * np.pi / 24) * np.arange(frames, dtype=np.float32)[:, None]
    values = np.zeros((frames, n), np.float32)
    for _ in range(4):
        wave, speed = draw.normal(size=3).astype(np.float32) * 3, draw.uniform(0.2, 1)
        values += np.sin(x @ wave + np.float32(speed) * phase)
    field = Field(values[..., None], times, points, ("wave",), units=("1",))
    return Dataset((field,), "globe")


def weather(n: int, *settings: str, frames: int = 400, preset: str = "default") -> Task:
    """The paper's weather task: twelve hours in, twelve hours out, three levels.

    Args:
        n: number of points.
        settings: "section.key=value", applied last.
        frames: hours of data.
        preset: of the configuration.
    """
    return Task.of(globe(n, frames), load_config(preset, None, [*WEATHER, *settings]))
