"""Lazy sources of a few stations, and the Field that they merge to."""

from __future__ import annotations

import numpy as np

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.io.lazy_source import LazySource
from stonet.io.merge import merge_sources

HOUR = 3600 * 10**9
POSITIONS = {name: (50.0 + i, 7.0 * i) for i, name in enumerate("abcdef")}


def make_source(
    hours: list[int], names: str, channels: tuple[str, ...], values: np.ndarray, origin: str = "f"
) -> LazySource:
    """A source with a station for each letter of `names`."""
    points = Points(np.array([POSITIONS[name] for name in names]), "sphere", tuple(names))
    values = np.asarray(values, np.float32)
    return LazySource(
        origin=origin,
        times=HOUR * np.array(hours, dtype=np.int64),
        points=points,
        channels=channels,
        units=tuple(f"unit of {name}" for name in channels),
        frames=lambda start, stop: values[start:stop],
    )


def merged(sources: list[LazySource], **options: object) -> Field:
    """The Field of all sources, read with these options."""
    return merge_sources(sources, ReadConfig(**options))
