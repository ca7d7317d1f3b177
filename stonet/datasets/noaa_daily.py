"""Daily observations at 137 stations in the central United States, with gaps."""

from __future__ import annotations

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.io.read import read_with

UNITS = {"Tmax": "degF", "Tmin": "degF", "TDP": "degF", "Precip": "inch"}
CARD = Card(
    name="noaa-daily",
    title="Daily weather at 137 stations in the central United States, 1990 to 1993",
    kind="observed at stations, with missing values",
    source="NOAA National Climatic Data Center, as shipped in the R package STRbook "
    "(`NOAA_df_1990`), rewritten as a table of station, time, lat, lon and values",
    page="https://github.com/andrewzm/STRbook",
    licence="public domain (NOAA, United States government)",
    channels="`Tmax`, `Tmin`, `TDP` (dew point; degF), `Precip` (inch)",
    shape="1461 x 137 x 4",
    step="1 d",
    period="1990 to 1993",
    split="by time, 70/10/20 %; no unseen points of its own (`data.unseen`)",
    notes=(
        "Irregular points. Of all station-days 2.0 % lack `Tmax`, 2.5 % `Tmin`, 27.7 % `TDP` and "
        "3.5 % `Precip`.",
    ),
    files=(
        File(
            "stations.csv.gz",
            "ca5c2dfa1ac985e52fe39d59f06d250433ed9f357e6c4ab6394bcd8a77d599da",
            1_564_672,
        ),
    ),
)


def noaa_daily() -> Dataset:
    """All stations and all four channels."""
    field = read_with(obtain(CARD), ReadConfig(variables=tuple(UNITS)))
    units = tuple(UNITS[name] for name in field.channels)  # which the table does not state
    return Dataset((labelled(field, CARD, units=units),), CARD.name)
