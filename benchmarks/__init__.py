"""Ours against peers, in one process tree, as ratios. One file for each benchmark."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.harness import Record
from benchmarks.hindcast import run as measure_hindcast
from benchmarks.inference import run as measure_inference
from benchmarks.operator import run as measure_operator
from benchmarks.scaling import run as measure_scale
from benchmarks.training import run as measure_training
from benchmarks.variants import run as measure_variants
from stonet.system.progress import ProgressCallback

BENCHMARKS: dict[str, Callable[[ProgressCallback], list[Record]]] = {
    "operator": measure_operator,
    "training": measure_training,
    "inference": measure_inference,
    "scale": measure_scale,
    "hindcast": measure_hindcast,
    "variants": measure_variants,
}
