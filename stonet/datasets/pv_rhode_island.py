"""Modelled photovoltaic power at 100 sites in Rhode Island, 2012."""

from __future__ import annotations

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.io.read import read_with

CARD = Card(
    name="pv-rhode-island",
    title="Capacity factor of photovoltaic plants in Rhode Island, 2012",
    kind="modelled: NREL's reV from satellite irradiance (NSRDB), not metered",
    source="test data of NREL's reV, `tests/data/gen_out/gen_ri_pv_2012_x000.h5`",
    page="https://github.com/NREL/reV",
    licence="BSD-3-Clause (reV); NSRDB data are public",
    channels="`cf_profile` (1: share of the capacity)",
    shape="17520 x 100 x 1",
    step="30 min",
    period="2012, UTC, without 29 February",
    split="by time, 70/10/20 %; no unseen points of its own (`data.unseen`)",
    notes=(
        "The paper's *Solar energy* task with coordinates, at another place and step. Zero at "
        "night, about half of all values. Altitudes are in `sites`.",
    ),
    folder="nrel-pv-rhode-island",
    files=(
        File(
            "gen_ri_pv_2012_x000.h5",
            "6e6b7e2ba08aeac0bd2ed1fcc1cf877b1bdbf9bf3974c379fc277237a8a1f08d",
            3_871_608,
            "https://github.com/NREL/reV/raw/main/tests/data/gen_out/gen_ri_pv_2012_x000.h5",
        ),
    ),
)


def pv_rhode_island() -> Dataset:
    """All 100 sites."""
    field = read_with(
        obtain(CARD), ReadConfig(variables=("cf_profile",), units={"cf_profile": "1"})
    )
    return Dataset((labelled(field, CARD),), CARD.name)
