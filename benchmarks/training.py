"""Training: minutes for an epoch of the paper's weather task, and baselines on the same points."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.data import LATENT, WINDOWS_PER_EPOCH, weather
from benchmarks.harness import (
    ROUNDS,
    Record,
    alternate,
    empty_record,
    in_process,
    operations,
    product,
    rate,
)
from stonet.config import OperatorConfig, PaperConfig
from stonet.system import threads as threading_settings
from stonet.system.progress import ProgressCallback
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

POINTS, STEPS = 2048, 6
SMALL = 120  # points of the study and the results
BATCH = "train.batch=8"
SHARED = OperatorConfig()  # of `stonet-operator`, which encodes a frame once for all its windows
PAPER_MINUTES, PAPER_GB = 10.7, 25.0  # the paper's Table 6, on a V100
BASELINES = ("gcgru", "dcrnn", "stgcn")


def step_call(n: int, *settings: str) -> Callable[[], None]:
    """A complete training step, with its batch, as a call."""
    return trainer_and_step(n, *settings)[1]


def trainer_and_step(n: int, *settings: str) -> tuple[Trainer, Callable[[], None]]:
    """A prepared trainer, and its next step as a call."""
    task = weather(n, *settings)
    trainer = Trainer(TrainedModel.untrained(task), task)
    trainer.prepare()
    number = itertools.count()
    return trainer, lambda: trainer.step(trainer.loader.step_batch(next(number)))


def run(watch: ProgressCallback) -> list[Record]:
    """Epoch and memory in a process of its own; baselines and variants in turns."""
    records = []
    for number, (model, settings) in enumerate((("stonet", [BATCH]), ("paper", ["train.batch=4"]))):
        watch(number, 5, f"epoch, {model}")
        records.append(_epoch(model, settings, threads=2))
    records.append(_small_step())
    watch(2, 5, "baselines")
    records += _baselines()
    watch(3, 5, "shared frames")
    records.append(_shared_frames())
    watch(4, 5, "threads")
    return [*records, _threads()]


def _epoch(model: str, settings: list[str], threads: int) -> Record:
    """Minutes of an epoch from the median step, and the peak memory of the process."""
    preset = "paper" if model == "paper" else "default"
    latent = PaperConfig().latent if model == "paper" else LATENT
    arguments = {"settings": settings, "preset": preset}
    cost = in_process(measure_steps, arguments, OMP_NUM_THREADS=str(threads))
    minutes = cost["seconds"] / cost["batch"] * WINDOWS_PER_EPOCH / 60
    gemm = alternate({"gemm": product()}, threads)["gemm"]
    gemm_seconds = cost["operations"] / (rate(gemm) * gemm.cpu / gemm.wall)  # of one step
    return empty_record("epoch", POINTS, latent, threads, "paper's V100") | {
        "model": model,
        "time_ratio": PAPER_MINUTES / minutes,
        "memory_ratio": PAPER_GB / cost["peak_gb"],
        "gemm_share": gemm_seconds / cost["seconds"],
        "tera_operations": cost["operations"] / 1e12,
        "minutes_at_gemm_rate": minutes * gemm_seconds / cost["seconds"],
        "minutes": minutes,
        "peak_gb": cost["peak_gb"],
        "in_model": cost["in_model"],
        "minutes_before": cost["before"] / 60,  # closed forms, once
    }


def _baselines() -> list[Record]:
    """Training steps of baselines over STONet's, at the same points."""
    calls = {"stonet": step_call(POINTS, BATCH)}
    calls |= {name: step_call(POINTS, f"model={name}", BATCH) for name in BASELINES}
    timings = alternate(calls)
    ours = timings["stonet"]
    return [
        empty_record("step", POINTS, LATENT, 1, name)
        | {
            "time_ratio": timings[name].cpu / ours.cpu,
            "wall_ratio": timings[name].wall / ours.wall,
            "ours_seconds": ours.wall,
        }
        for name in BASELINES
    ]


def _small_step() -> Record:
    """A training step at few points, on one thread, and its share of a product of matrices."""
    timings = alternate({"step": step_call(SMALL, "train.batch=16"), "gemm": product()})
    return empty_record("small step", SMALL, LATENT, 1, "none") | {
        "ms": 1e3 * timings["step"].cpu,
        "wall_ms": 1e3 * timings["step"].wall,
        "giga_operations_per_second_of_gemm": rate(timings["gemm"]) / 1e9,
    }


def _shared_frames() -> Record:
    """Frames of `stonet-operator`: two groups of four consecutive windows, or single windows."""
    calls = {
        name: step_call(512, "model=stonet-operator", BATCH, f"train.consecutive={count}")
        for name, count in (("consecutive", 4), ("single", 1))
    }
    timings = alternate(calls)
    record = empty_record("shared frames", 512, SHARED.latent, 1, "windows from anywhere")
    return record | {"time_ratio": timings["single"].cpu / timings["consecutive"].cpu}


def _threads() -> Record:
    """Wall time on one thread over two, with our threads and with PyTorch's."""
    ratios = in_process(compare_threads, {}, OMP_NUM_THREADS="2")
    gemm = [alternate({"gemm": product()}, threads)["gemm"].wall for threads in (1, 2)]
    record = empty_record("threads", POINTS, LATENT, 2, "one thread")
    return record | ratios | {"gemm_time_ratio": gemm[0] / gemm[1]}


def compare_threads() -> Record:
    """In a child: ratios of median steps over all rounds, and the range of the rounds' ratios."""
    call = step_call(POINTS, BATCH)
    ways = {  # PyTorch threads, our threads
        "one": (1, threading_settings.MAX_THREADS),
        "two": (2, threading_settings.MAX_THREADS),
        "torch": (2, 1),
    }
    rounds: list[dict[str, list[float]]] = []
    for _ in range(ROUNDS):
        rounds.append({way: [] for way in ways})
        for way, (threads, threading_settings.MAX_THREADS) in ways.items():
            torch.set_num_threads(threads)
            call()  # new threads are slow at first
            for _ in range(STEPS // 2):
                started = time.perf_counter()
                call()
                rounds[-1][way].append(time.perf_counter() - started)
    walls = {way: median([wall for each in rounds for wall in each[way]]) for way in ways}
    ratios = [median(each["one"]) / median(each["two"]) for each in rounds]
    return {
        "time_ratio": walls["one"] / walls["two"],
        "lowest": min(ratios),
        "highest": max(ratios),
        "torchs_time_ratio": walls["one"] / walls["torch"],
    }


def measure_steps(settings: list[str], preset: str) -> Record:
    """In a child: seconds of a step, the model's share of it, and the peak of the process."""
    from stonet.system.resources import peak_mb

    task = weather(POINTS, *settings, preset=preset)
    trainer, created = Trainer(TrainedModel.untrained(task), task), time.perf_counter()
    trainer.prepare()
    before = time.perf_counter() - created
    step_seconds, loading_seconds = [], []
    with trainer.step_batches() as step_batches:
        for number in range(STEPS if preset == "default" else 3):
            started = time.perf_counter()
            step_batch = step_batches(number)
            loaded = time.perf_counter()
            trainer.step(step_batch)
            step_seconds.append(time.perf_counter() - started)
            loading_seconds.append(loaded - started)
    peak = peak_mb() / 1e3
    torch.set_num_threads(1)  # operations on other threads would not be counted
    step_batch = trainer.loader.step_batch(len(step_seconds))
    return {
        "seconds": median(step_seconds[1:]),
        "batch": trainer.config.batch,
        "in_model": 1 - sum(loading_seconds[1:]) / sum(step_seconds[1:]),
        "peak_gb": peak,
        "before": before,
        "operations": operations(lambda: trainer.step(step_batch)),
    }
