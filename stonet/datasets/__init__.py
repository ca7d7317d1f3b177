"""Where Fields come from: the data sets by name."""

from __future__ import annotations

from collections.abc import Callable

from stonet.datasets.wave import wave
from stonet.errors import unknown_name
from stonet.field import Dataset

DATASETS: dict[str, Callable[[], Dataset]] = {"wave": wave}


def open_dataset(name: str) -> Dataset:
    """The data set of this name.

    Example:
        >>> open_dataset("wave").points.kind
        'plane'
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return DATASETS[name]()
