"""ERA5 temperature over the United Kingdom, hourly, March 2019."""

from __future__ import annotations

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.io.read import read_with

CARD = Card(
    name="era5-uk",
    title="Temperature at 2 m over the United Kingdom and Ireland, March 2019",
    kind="reanalysis: a weather model held to observations, not measured at the points",
    source="ERA5, Copernicus Climate Change Service (C3S), as shipped with xarray's tutorials",
    page="https://github.com/pydata/xarray-data",
    licence="Copernicus licence: free use, with attribution to C3S / ECMWF",
    channels="`t2m` (K)",
    shape="744 x 1617 x 1 (33 x 49 grid of 0.25°, 58 to 50° N, 10° W to 2° E)",
    step="1 h",
    period="March 2019",
    split="by time, 70/10/20 %; no unseen points of its own (`data.unseen`)",
    notes=("The paper's *Temperature* at hourly step: many points, a short record. No gap.",),
    files=(
        File(
            "era5-2mt-2019-03-uk.grib",
            "e5e82609f0e28e84822852e15d20c88dbb4b142a30264a7e6f87b9b5c7501df9",
            2_499_840,
            "https://raw.githubusercontent.com/pydata/xarray-data/"
            "ad8beddce86c0395426c3e72a4ef0fa0ddcb48f0/era5-2mt-2019-03-uk.grib",
        ),
    ),
)


def era5_uk() -> Dataset:
    """All 1617 points."""
    field = read_with(obtain(CARD), ReadConfig())
    return Dataset((labelled(field, CARD),), CARD.name)
