"""Fields of weather stations, valid and with planted errors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.quality.checks import Finding
from stonet.quality.report import Report, check

HOUR = 3600 * 10**9
START = int(np.datetime64("2024-03-01", "ns").astype(np.int64))
FRAMES, STATIONS = 600, 40
CHANNELS = {"t2m": "degC", "rh": "%", "precipitation": "mm", "pressure": "hPa"}


def valid_field(frames: int = FRAMES, stations: int = STATIONS, seed: int = 0) -> Field:
    """Synthetic weather of central Europe: daily cycle, fronts, noise and rain, few gaps."""
    rng = np.random.default_rng(seed)
    places = np.stack([rng.uniform(46, 54, stations), rng.uniform(5, 15, stations)], axis=1)
    t = np.arange(frames)[:, None]
    front = np.sin(2 * np.pi * t / 130 + places[:, 1] / 5)
    temperature = 10 + 5 * np.sin(2 * np.pi * t / 24) + 4 * front - (places[:, 0] - 50)
    humidity = np.clip(75 - 15 * np.sin(2 * np.pi * t / 24) + 18 * front, 5, 100)
    rain = np.maximum(0, rng.gamma(0.3, 3.0, (frames, stations)) - 2.0) * (front > 0)
    pressure = 1013 - 12 * front
    noise = rng.normal(size=(4, frames, stations)) * np.array([0.5, 1.0, 0.0, 0.5])[:, None, None]
    fields = np.stack([temperature, humidity, rain, pressure]) + noise
    fields[1] = np.minimum(fields[1], 100)
    values = np.moveaxis(fields, 0, 2).round(2).astype(np.float32)
    values[rng.uniform(size=values.shape) < 0.01] = np.nan
    names = tuple(f"S{i:02d}" for i in range(stations))
    return Field(
        values,
        START + HOUR * np.arange(frames),
        Points(places, "sphere", names),
        tuple(CHANNELS),
        units=tuple(CHANNELS.values()),
    )


def changed(change) -> Field:
    """The valid field with its values changed in place by `change`."""
    field = valid_field()
    values = field.values.copy()
    change(values)
    return replace(field, values=values, mask=None)


def moved(node: int, place: tuple[float, float]) -> Field:
    """The valid field with one station at another latitude and longitude."""
    field = valid_field()
    places = field.points.coordinates.copy()
    places[node] = place
    return replace(field, points=Points(places, "sphere", field.points.names))


def with_value(value: float, where: tuple) -> Field:
    """The valid field with this value at an index of (time, station, channel)."""

    def change(values: np.ndarray) -> None:
        values[where] = value

    return changed(change)


def retimed(times: np.ndarray) -> Field:
    """The valid field at other times."""
    return replace(valid_field(), times=times)


def warnings_of(report: Report) -> list[Finding]:
    """The findings that need attention."""
    return [f for f in report.findings if f.level in ("error", "warning")]


def assert_found(field: Field, level: str, pattern: str) -> None:
    """The check finds what matches the pattern, and no other warning."""
    report = check(field)
    texts = [(f.level, f"{f.what} {f.where} {f.advice}") for f in report.findings]
    assert any(found == level and re.search(pattern, text) for found, text in texts), texts
    assert len(warnings_of(report)) == (level in ("warning", "error")), warnings_of(report)
