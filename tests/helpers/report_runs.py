"""Small runs for reports: stations on a sphere with hostile names, and simulated waves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.report_page import Page
from helpers.small import HOUR
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.estimator import STONet
from stonet.reporting.page import render
from stonet.reporting.report import origin_of
from stonet.reporting.results import Results, gather

HOSTILE = '<script>alert("station")</script>'
CHANNELS = ("t2m", "<img src=x onerror=alert(1)>")
SETTINGS = ("train.steps=3", "train.epochs=2", "network.anchor=linear")


@dataclass(frozen=True)
class Report:
    """A run, its data, what was computed for its report, and the page."""

    run: Path
    dataset: Dataset
    results: Results
    text: str
    page: Page


def stations(frames: int = 320, seed: int = 0) -> Field:
    """Two channels with a daily cycle at 24 stations in the Alps, some values missing."""
    rng = np.random.default_rng(seed)
    places = np.stack([rng.uniform(45.5, 48.0, 24), rng.uniform(6, 14, 24)], axis=1)
    t = np.arange(frames)[:, None]
    front = np.sin(2 * np.pi * t / 61 + places[:, 1])
    values = np.stack([10 + 5 * np.sin(2 * np.pi * t / 24) + 2 * front, 4 + front], axis=2)
    values = values + rng.normal(0, 0.3, values.shape)
    values[rng.uniform(size=values.shape) < 0.03] = np.nan
    names = (HOSTILE, "</script><b>", "Zürich & Co", *(f"S{i:02d}" for i in range(3, 24)))
    return Field(
        values=values.astype(np.float32),
        times=np.datetime64("2026-01-20", "ns").astype(np.int64) + HOUR * np.arange(frames),
        points=Points(places, "sphere", names),
        channels=CHANNELS,
        units=("degC", "m/s"),
    )


def small_run(dataset: Dataset, folder: Path) -> STONet:
    """A model that is trained for a few steps."""
    return STONet(preset="tiny", settings=SETTINGS).fit(dataset, folder)


def report_of(run: Path, dataset: Dataset) -> Report:
    """The report of a run."""
    results = gather(origin_of(run), dataset)
    text = render(results)
    return Report(run, dataset, results, text, Page(text))
