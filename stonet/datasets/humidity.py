"""Humidity: one of the paper's four weather data sets, from WeatherBench."""

from __future__ import annotations

from stonet.data.field import Dataset
from stonet.datasets.weatherbench import make_card, open_weather

CARD = make_card(
    "humidity",
    "Relative humidity near the ground",
    "`r` (%) at 1000 hPa, the last of the file's 13 levels",
    1,
    ("relative_humidity",),
)


def humidity(inductive: bool = False) -> Dataset:
    """The whole grid; or a coarser one to train on and 512 unseen points between."""
    return open_weather(CARD, {"r_1000": "r"}, inductive)
