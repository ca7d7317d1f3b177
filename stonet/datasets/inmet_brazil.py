"""Hourly observations of Brazil's automatic weather stations, with gaps."""

from __future__ import annotations

from collections.abc import Sequence

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.io.read import read_with

VARIABLES = (
    "air_temperature",
    "dew_point_temperature",
    "relative_humidity",
    "surface_air_pressure",
    "wind_speed",
    "wind_from_direction",
    "downwelling_shortwave_energy",
    "precipitation_amount",
)
CARD = Card(
    name="inmet-brazil",
    title="Hourly weather at 332 stations in Brazil, 2023 and 2024",
    kind="observed at stations, with missing values and errors as published",
    source="Instituto Nacional de Meteorologia (INMET), Brazil: historical data of automatic "
    "stations, rewritten as one NetCDF file of time and station",
    page="https://portal.inmet.gov.br/dadoshistoricos",
    licence="reuse permitted with the source quoted (INMET)",
    channels="`air_temperature`, `dew_point_temperature` (degC), `relative_humidity` (%), "
    "`surface_air_pressure` (hPa), `wind_speed` (m/s), `wind_from_direction` (degree), "
    "`downwelling_shortwave_energy` (kJ/m²), `precipitation_amount` (mm)",
    shape="17544 x 332 x 8",
    step="1 h",
    period="2023 and 2024, UTC",
    split="by time, 70/10/20 %; no unseen points of its own (`data.unseen`)",
    notes=(
        "Irregular points over a continent: the stations with at least 80 % of the temperatures "
        "in both years. Of all station-hours 3.1 % lack `air_temperature`, 8.3 % "
        "`relative_humidity` and 10.1 % `wind_speed`. Altitudes are in `sites`.",
        "Other years, and all stations: download a year from the page and read it as it is, "
        "`stonet.read('2022.zip')`, or a folder of such archives or of their tables. The channels "
        "are the same; nine more are read by their names, such as `wind_speed_of_gust`.",
        "The paper has no such data: its *Temperature*, *Humidity* and *Wind* are a reanalysis "
        "on a grid, without gaps.",
    ),
    files=(
        File(
            "inmet-2023-2024.nc",
            "df54c9739d7190bf3d5b09c61b320a8636106b462a2e6a4d352dbeeef1436c37",
            38_279_762,
        ),
    ),
)


def inmet_brazil(variables: str | Sequence[str] = VARIABLES) -> Dataset:
    """All stations.

    Args:
        variables: names of channels, e.g. ("air_temperature", "wind_speed").

    Raises:
        UsageError: a name is unknown.

    Example:
        >>> inmet_brazil("air_temperature")  # doctest: +SKIP
    """
    field = read_with(obtain(CARD), ReadConfig.model_validate({"variables": variables}))
    return Dataset((labelled(field, CARD),), CARD.name)
