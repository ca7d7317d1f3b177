"""Several station files read as one field."""

from __future__ import annotations

import numpy as np

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.io.lazy_source import LazySource
from stonet.io.merge import assemble

HOUR = 3600 * 10**9


PLACES = {name: (50.0 + i, 7.0 * i) for i, name in enumerate("abcdef")}


def content(
    times: list[int], names: str, channels: tuple[str, ...], values: np.ndarray, origin: str = "f"
) -> LazySource:
    points = Points(np.array([PLACES[name] for name in names]), "sphere", tuple(names))
    values = np.asarray(values, np.float32)
    return LazySource(
        origin=origin,
        times=HOUR * np.array(times, dtype=np.int64),
        points=points,
        channels=channels,
        units=tuple(f"unit of {name}" for name in channels),
        frames=lambda start, stop: values[start:stop],
    )


def joined(contents: list[LazySource], **options: object) -> Field:
    return assemble(contents, ReadConfig(**options))
