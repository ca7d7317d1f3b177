"""Ours against peers, in one process tree, as ratios. One file for each benchmark."""

from __future__ import annotations

from collections.abc import Callable

from stonet.benchmarks import inference, operator, scale, training
from stonet.benchmarks.measure import Record, Watch

BENCHMARKS: dict[str, Callable[[Watch], list[Record]]] = {
    "operator": operator.run,
    "training": training.run,
    "inference": inference.run,
    "scale": scale.run,
}
