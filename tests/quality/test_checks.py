"""Checks of single stations: gaps, missing values, flat lines, outliers, fill values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.weather_stations import (
    FRAMES,
    HOUR,
    START,
    STATIONS,
    assert_found,
    retimed,
    valid_field,
    with_value,
)

from stonet.data.field import Field

HOURS = START + HOUR * np.arange(FRAMES)
JITTER = np.random.default_rng(0).integers(-HOUR // 10, HOUR // 10, FRAMES)
CLIMB = np.cumsum(np.random.default_rng(0).integers(HOUR // 5, 5 * HOUR, FRAMES)) + START


def with_gap(length: int) -> Field:
    return retimed(HOURS + HOUR * length * (np.arange(FRAMES) >= 200))


def asynchronous() -> Field:
    """Every station reports in every fourth frame, not all in the same ones."""
    field = valid_field()
    mask = (np.arange(FRAMES)[:, None] + np.arange(STATIONS)) % 4 == 0
    return replace(field, mask=field.observed & mask[..., None])


PLANTED = {  # name: field, level, pattern of the finding
    "gap": (with_gap(10), "note", r"1 gap .*10 frames .*2024-03-09 07:00 to 2024-03-09 18:00"),
    "long gap": (with_gap(100), "warning", r"100 frames .*14\.3%.*2024-03-09 07:00 to 2024-03-13"),
    "jitter": (retimed(HOURS + JITTER), "note", r"steps differ from .* by up to 1\d\.\d+ min"),
    "no step": (retimed(CLIMB), "warning", r"no regular step.*2024-03-01"),
    "mostly missing": (
        with_value(np.nan, (slice(100, 500), 3, 0)),
        "warning",
        r"1 station lacks more than 50%.*'S03' 67% of t2m, longest gap 2024-03-05 03:00 to "
        r"2024-03-21 20:00 \(16\.71 d\)",
    ),
    "late": (
        with_value(np.nan, (slice(0, 120), 5)),
        "note",
        r"1 record starts late.*'S05' 2024-03-06",
    ),
    "early": (
        with_value(np.nan, (slice(480, None), 6, 1)),
        "note",
        r"1 record ends early.*'S06' 2024-03-20",
    ),
    "silent": (
        with_value(np.nan, (slice(560, None), 6)),
        "warning",
        r"1 station of 40 is silent at the end.*'S06' since 2024-03-24 07:00 \(1\.667 d\)",
    ),
    "dead channel": (with_value(np.nan, (slice(None), 9, 1)), "note", r"never reports rh.*'S09'"),
    "asynchronous": (
        asynchronous(),
        "warning",
        r"Stations report at different times.*about every 4 h",
    ),
    "constant": (
        with_value(12.5, (slice(None), 4, 0)),
        "warning",
        r"constant t2m.*'S04' 12\.5 degC",
    ),
    "constant channel": (with_value(1000, (..., 3)), "warning", r"pressure is constant.*1000 hPa"),
    "stuck": (
        with_value(7.25, (slice(300, 340), 8, 0)),
        "warning",
        r"1 sensor of t2m sticks.*'S08' 7\.25 degC, 2024-03-13 12:00 to 2024-03-15 03:00",
    ),
    "outlier": (
        with_value(451.0, (222, 17, 0)),
        "warning",
        r"1 value of t2m is far from all others.*'S17' 451 degC at 2024-03-10 06:00",
    ),
    "fill value": (
        with_value(-999.0, (slice(50, 60), 11, 0)),
        "warning",
        r"10 values of t2m are -999.*1 station, first 'S11', 2024-03-03 02:00.*g=-999",
    ),
    "many fill values": (
        with_value(999.9, (slice(None, None, 3), slice(0, 20), 1)),
        "warning",
        r"4000 values of rh are 999\.9.*20 stations, first 'S00', 2024-03-01",
    ),
    "single fill value": (
        with_value(9999.0, (70, 2, 3)),
        "warning",
        r"'S02' 9999 hPa at 2024-03-03 22:00",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_found_with_their_station(name: str) -> None:
    assert_found(*PLANTED[name])
