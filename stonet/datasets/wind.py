"""Wind: one of the paper's four weather data sets, from WeatherBench."""

from __future__ import annotations

from stonet.data.field import Dataset
from stonet.datasets.weatherbench import make_card, open_weather

CARD = make_card(
    "wind",
    "Wind at 10 m",
    "`u10`, `v10` (m s**-1)",
    2,
    ("10m_u_component_of_wind", "10m_v_component_of_wind"),
)


def wind(inductive: bool = False) -> Dataset:
    """The whole grid; or a coarser one to train on and 512 unseen points between."""
    return open_weather(CARD, {"u10": "u10", "v10": "v10"}, inductive)
