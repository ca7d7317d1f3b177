"""Cells and data for tests of irregular and corrupted inputs."""

from __future__ import annotations

import numpy as np

from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.experiments.budgets import experiment_budget
from stonet.experiments.cell import Cell
from stonet.experiments.corruption import drop_frames, drop_sensors, drop_values
from stonet.training.budget import Budget

BUDGET = Budget(epochs=1, steps=2)
LOSSES = {"random": drop_values, "outage": drop_sensors, "thinned": drop_frames}
MILLISECOND = 10**6


def cell_of(model: str, scenario: str = "missing", *settings: str) -> Cell:
    """A cell of the irregular experiment."""
    extra = {"scenario": scenario, "labels": None}
    return experiment_budget("smoke").cell(
        "irregular", "small", model, model=model, settings=settings, extra=extra
    )


def rising(power: int, episodes: int = 12, frames: int = 80, points: int = 9) -> Dataset:
    """u = (t / 40)^power in every frame, times a number for each point."""
    rng = np.random.default_rng(0)
    places, size = Points(rng.random((points, 2))), rng.uniform(1, 2, points)
    time = np.arange(frames)
    values = (time[:, None] / 40) ** power * size
    field = Field(
        values=values[..., None].astype(np.float32),
        times=MILLISECOND * time,
        points=places,
        calendar=False,
    )
    return Dataset((field,) * episodes, "rising")
