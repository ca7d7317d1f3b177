"""Training: seconds for an epoch of the paper's weather task, beside baselines on the same points."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.data import WINDOWS, weather
from benchmarks.harness import (
    ROUNDS,
    Record,
    alternate,
    empty_record,
    in_child,
    operations,
    product,
    rate,
)
from stonet.system import threads as threading_settings
from stonet.system.progress import ProgressCallback
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

N, BATCH, STEPS = 2048, 8, 6
SHARED = ("train.batch=8",)  # in runs of four windows, as by default: 30 frames instead of 96
PAPER_MINUTES, PAPER_GB = 10.7, 25.0  # its Table 6, on a V100
BASELINES = ("gcgru", "dcrnn", "stgcn")
BRIEFLY = "pretraining.steps=50"  # where only steps are timed


def stepper(n: int, *settings: str) -> Callable[[], None]:
    """A real training step, batch and all, as a call."""
    task = weather(n, BRIEFLY, *settings)
    trainer = Trainer(TrainedModel.untrained(task), task)
    trainer.prepare()
    number = itertools.count()
    return lambda: trainer.step(trainer.loader.step_batch(next(number)))


def run(watch: ProgressCallback) -> list[Record]:
    """Epoch and memory in a process of its own; baselines and variants in turns."""
    orders = [("stonet", list(SHARED)), ("paper", ["train.batch=4"])]
    records = []
    for number, (model, settings) in enumerate(orders):
        watch(number, 5, f"epoch, {model}")
        records.append(epoch_record(model, settings, threads=2))
    watch(2, 5, "baselines")
    records += _beside_rivals()
    watch(3, 5, "shared frames")
    records.append(_shared_frames())
    watch(4, 5, "threads")
    return [*records, _threads()]


def epoch_record(model: str, settings: list[str], threads: int) -> Record:
    """An epoch's minutes from the median step, and the whole process's peak."""
    found = in_child(
        {"do": "epoch", "settings": settings, "preset": "paper" if model == "paper" else "default"},
        OMP_NUM_THREADS=str(threads),
    )
    record = empty_record("epoch", N, 24, threads, "paper's V100")
    minutes = found["seconds"] / found["batch"] * WINDOWS / 60
    limit = alternate({"gemm": product()}, threads)["gemm"]
    least = found["operations"] / (rate(limit) * limit.cpu / limit.wall)  # seconds of a step
    return record | {
        "model": model,
        "time_ratio": PAPER_MINUTES / minutes,
        "memory_ratio": PAPER_GB / found["peak_gb"],
        "gemm_share": least / found["seconds"],
        "tera_operations": found["operations"] / 1e12,
        "minutes_at_gemm_rate": minutes * least / found["seconds"],
        "minutes": minutes,
        "peak_gb": found["peak_gb"],
        "in_model": found["in_model"],
        "minutes_before": found["before"] / 60,  # base and schooling, once
    }


def _beside_rivals() -> list[Record]:
    calls = {"stonet": stepper(N, *SHARED)}
    calls |= {name: stepper(N, f"model={name}", *SHARED) for name in BASELINES}
    time_spec = alternate(calls)
    return [
        empty_record("step", N, 24, 1, name)
        | {
            "time_ratio": time_spec[name].cpu / time_spec["stonet"].cpu,
            "wall_ratio": time_spec[name].wall / time_spec["stonet"].wall,
            "ours_seconds": time_spec["stonet"].wall,
        }
        for name in BASELINES
    ]


def _shared_frames() -> Record:
    """Two runs of four windows against eight from anywhere."""
    calls = {
        "run": stepper(512, *SHARED),
        "single": stepper(512, "train.batch=8", "train.consecutive=1"),
    }
    time_spec = alternate(calls)
    record = empty_record("shared frames", 512, 24, 1, "windows from anywhere")
    return record | {"time_ratio": time_spec["single"].cpu / time_spec["run"].cpu}


def _threads() -> Record:
    """Wall time on one thread against two, and two as PyTorch uses them."""
    record = empty_record("threads", N, 24, 2, "one thread")
    found = in_child({"do": "threads"}, OMP_NUM_THREADS="2")
    limit = [alternate({"gemm": product()}, threads)["gemm"].wall for threads in (1, 2)]
    return record | found | {"gemm_time_ratio": limit[0] / limit[1]}


def by_threads() -> dict[str, float]:
    """In a child: ratios of median steps, and of the medians of each round; in turns."""
    call = stepper(N, *SHARED)
    ways = {
        "one": (1, threading_settings.MOST),
        "two": (2, threading_settings.MOST),
        "torch": (2, 1),
    }  # threads; hands
    rounds: list[dict[str, list[float]]] = []
    for _ in range(ROUNDS):
        rounds.append({way: [] for way in ways})
        for way, (threads, threading_settings.MOST) in ways.items():
            torch.set_num_threads(threads)
            call()  # threads that were just made are slow
            for _ in range(STEPS // 2):
                started = time.perf_counter()
                call()
                rounds[-1][way].append(time.perf_counter() - started)
    walls = {way: median([wall for each in rounds for wall in each[way]]) for way in ways}
    each = [median(one["one"]) / median(one["two"]) for one in rounds]
    return {
        "time_ratio": walls["one"] / walls["two"],
        "lowest": min(each),
        "highest": max(each),
        "torchs_time_ratio": walls["one"] / walls["torch"],
    }


def epoch(settings: list[str], preset: str) -> dict[str, float]:
    """In a child: seconds of a step, share of it in the model, and the peak of the process."""
    from stonet.system.resources import peak_mb

    task = weather(N, *settings, preset=preset)
    trainer, opened = Trainer(TrainedModel.untrained(task), task), time.perf_counter()
    trainer.prepare()
    before = time.perf_counter() - opened
    spent, fed = [], []
    with trainer.step_batches() as step_batches:
        for number in range(STEPS if preset == "default" else 3):
            started = time.perf_counter()
            step_batch = step_batches(number)
            taken = time.perf_counter()
            trainer.step(step_batch)
            spent.append(time.perf_counter() - started)
            fed.append(taken - started)
    peak = peak_mb() / 1e3
    torch.set_num_threads(1)  # others' products would not be counted
    step_batch = trainer.loader.step_batch(len(spent))
    return {
        "seconds": median(spent[1:]),
        "batch": trainer.config.batch,
        "in_model": 1 - sum(fed[1:]) / sum(spent[1:]),
        "peak_gb": peak,
        "before": before,
        "operations": operations(lambda: trainer.step(step_batch)),
    }
