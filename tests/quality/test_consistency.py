"""Consistency checks: units against values, stations against neighbours, positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.weather_stations import CHANNELS, assert_found, changed, moved, valid_field, with_value

from stonet.data.field import Field


def converted(node: int, channel: int, factor: float, offset: float = 0.0) -> Field:
    def change(values: np.ndarray) -> None:
        values[:, node, channel] = values[:, node, channel] * factor + offset

    return changed(change)


def with_units(**units: str) -> Field:
    return replace(valid_field(), units=tuple((CHANNELS | units).values()))


def with_extent(field: Field, **limits: float) -> Field:
    return replace(field, attrs={f"geospatial_{k}": v for k, v in limits.items()})


PLANTED = {  # name: field, level, pattern of the finding
    "declared K": (with_units(t2m="K"), "warning", r"t2m is declared .* K, .*look like degC"),
    "declared degC": (
        changed(lambda v: np.add(v[..., 0], 273.15, out=v[..., 0])),
        "warning",
        r"t2m is declared .* degC, .*look like K",
    ),
    "no unit": (with_units(t2m="1"), "note", r"t2m has no unit; .*look like degC"),
    "declared Pa": (with_units(pressure="Pa"), "warning", r"pressure .* Pa, .*like hPa"),
    "declared hPa": (
        changed(lambda v: np.multiply(v[..., 3], 100, out=v[..., 3])),
        "warning",
        r"pressure is declared .* hPa, .*look like Pa",
    ),
    "declared %": (
        changed(lambda v: np.multiply(v[..., 1], 0.01, out=v[..., 1])),
        "warning",
        r"rh is declared .* %, .*look like fractions of 1",
    ),
    "humidity above 100 %": (
        with_value(112.0, (33, 21, 1)),
        "warning",
        r"rh is above 100 %.*'S21' 112 % at 2024-03-02",
    ),
    "negative rain": (
        with_value(-1.5, (40, 30, 2)),
        "warning",
        r"precipitation is negative.*'S30' -1\.5 mm at 2024-03-02 16:00",
    ),
    "one in K": (converted(13, 0, 1.0, 273.15), "warning", r"'S13' .* another unit \(K inst"),
    "one in degF": (converted(14, 0, 1.8, 32.0), "warning", r"'S14' .* another unit \(degF inst"),
    "one in Pa": (converted(15, 3, 100.0), "warning", r"'S15' .*pressure.* another unit \(Pa inst"),
    "swapped": (moved(7, (9.0, 50.0)), "warning", r"'S07' .*latitude and longitude exch.*9, 50"),
    "longitude sign": (moved(8, (50.0, -9.0)), "warning", r"'S08' .*longitude with the wrong sign"),
    "latitude sign": (moved(9, (-50.0, 9.0)), "warning", r"'S09' .*latitude with the wrong sign"),
    "null island": (moved(10, (0.0, 0.0)), "warning", r"1 station lies at 0° N, 0° E.*'S10'"),
    "shared position": (
        moved(12, tuple(valid_field().points.coordinates[11])),
        "warning",
        r"2 stations share a position.*'S11', 'S12'",
    ),
    "longitudes": (moved(20, (50.0, 10.0 - 360)), "ok", r"regular"),
    "exchanged": (
        with_extent(valid_field(), lat_min=5, lat_max=15, lon_min=46, lon_max=54),
        "warning",
        r"Latitude and longitude seem to be exchanged",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_found_with_their_station(name: str) -> None:
    assert_found(*PLANTED[name])
