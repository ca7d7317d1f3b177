"""Cloud: one of the paper's four weather data sets, from WeatherBench."""

from __future__ import annotations

from stonet.data.field import Dataset
from stonet.datasets.weatherbench import make_card, open_weather

CARD = make_card("cloud", "Total cloud cover", "`tcc` (0 to 1)", 1, ("total_cloud_cover",))


def cloud(inductive: bool = False) -> Dataset:
    """The whole grid; or a coarser one to train on and 512 unseen points between."""
    return open_weather(CARD, {"tcc": "tcc"}, inductive)
