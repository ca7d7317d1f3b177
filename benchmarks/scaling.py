"""Scale: cost per point as the points grow, two processes, tiles."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.cost import run as measure_cost
from benchmarks.data import weather
from benchmarks.harness import Record, Watch, alternate, empty_record, in_child
from benchmarks.operator import Encoder
from benchmarks.training import BRIEFLY
from stonet.evaluation.comparison import Stopwatch
from stonet.models.forecaster import narrow
from stonet.models.stonet import EncoderGraph
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

SIZES = (2048, 8192, 32_768, 131_072)
PROCESSES = 2


def run(watch: Watch) -> list[Record]:
    """From the kernel integral to whole trainings."""
    total = len(SIZES) + 2
    records = []
    for number, n in enumerate(SIZES):
        watch(number, total, f"encoder layer, {n} points")
        records.append(_layer(n))
    first = records[0]["ours_seconds"] / SIZES[0]
    for record in records:
        record["per_point"] = record["ours_seconds"] / record["n"] / first
    watch(len(SIZES), total, "two processes")
    records.append(_processes())
    watch(len(SIZES) + 1, total, f"tiles, {SIZES[-1]} points")
    return [*records, _tiles(), *measure_cost(watch)]


def _layer(n: int) -> Record:
    """One frame through a kernel integral, forward and backward."""
    time_spec = alternate({"ours": Encoder(n, 64).build()["ours"]})
    return empty_record("linear", n, 64, 1, "none") | {"ours_seconds": time_spec["ours"].cpu}


def _processes() -> Record:
    """Windows per second of two processes on one thread each, against one such process."""
    order = {"do": "steps", "settings": ["train.batch=16", "train.consecutive=8"]}
    alone = in_child(order, OMP_NUM_THREADS="1")["seconds"]
    both = in_child(order, PROCESSES, OMP_NUM_THREADS="1")["seconds"]
    record = empty_record("processes", 2048, 24, 1, "one process")
    return record | {"time_ratio": alone / both, "processes": PROCESSES}


def _tiles() -> Record:
    found = in_child({"do": "tiled", "n": SIZES[-1]}, OMP_NUM_THREADS="2")
    return empty_record("tiles", SIZES[-1], 24, 2, "none") | found


def steps(settings: list[str]) -> Record:
    """In a child, or several: the median seconds of a training step."""
    task = weather(2048, *settings, BRIEFLY, "train.epochs=1", "train.steps=8")
    trainer, time_spec = Trainer(TrainedModel.untrained(task), task), Stopwatch()
    trainer.fit(watch=time_spec)
    return {"seconds": time_spec.per_step}


def tiled(n: int) -> Record:
    """In a child: so many sensors that a step sees one tile of them."""
    from stonet.system.resources import peak_mb

    started = time.perf_counter()
    short = ("train.epochs=1", "train.steps=6", "train.batch=2", "train.validation_windows=1")
    task = weather(n, *short, "data.split=[0.4,0.3,0.3]", frames=80)
    trainer, time_spec = Trainer(TrainedModel.untrained(task), task), Stopwatch()
    trainer.fit(watch=time_spec)
    return {
        "step_seconds": median(time_spec.steps),
        "tiles": len(trainer.tiles),
        "points_with_halo": len(narrow(trainer.tiles[0].graphs.nodes, EncoderGraph).position),
        "all_seconds": time.perf_counter() - started,
        "peak_gb": peak_mb() / 1e3,
    }
