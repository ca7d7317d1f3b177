"""Temperature: one of the paper's four weather data sets, from WeatherBench."""

from __future__ import annotations

from stonet.data.field import Dataset
from stonet.datasets.weatherbench import make_card, open_weather

CARD = make_card("temperature", "Temperature at 2 m", "`t2m` (K)", 1, ("2m_temperature",))


def temperature(inductive: bool = False) -> Dataset:
    """The whole grid; or a coarser one to train on and 512 unseen points between."""
    return open_weather(CARD, {"t2m": "t2m"}, inductive)
