"""Ours against peers, in one process tree, as ratios. One file for each benchmark."""

from __future__ import annotations

from collections.abc import Callable

from stonet.benchmarks.hindcast import run as measure_hindcast
from stonet.benchmarks.inference import run as measure_inference
from stonet.benchmarks.measure import Record, Watch
from stonet.benchmarks.operator import run as measure_operator
from stonet.benchmarks.scale import run as measure_scale
from stonet.benchmarks.training import run as measure_training
from stonet.benchmarks.variants import run as measure_variants

BENCHMARKS: dict[str, Callable[[Watch], list[Record]]] = {
    "operator": measure_operator,
    "training": measure_training,
    "inference": measure_inference,
    "scale": measure_scale,
    "hindcast": measure_hindcast,
    "variants": measure_variants,
}
