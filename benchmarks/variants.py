"""Variants of a training step, measured to decide which are offered.

bf16       train.precision; pays on devices with bf16 units
compiled   the network under torch.compile, except the kernel sums, whose hand-written backward
           torch.compile cannot trace
twin       a kernel integral left to autograd and compiled, against the hand-written one
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from benchmarks import operator
from benchmarks.data import LATENT
from benchmarks.harness import Record, Watch, alternate, empty_record, in_process
from benchmarks.peers import Kernel, autograd_kernel
from benchmarks.training import trainer_and_step
from stonet.data.batch import Batch
from stonet.graph.neighbours import Neighbours
from stonet.operators.graph_kernel import GraphKernel
from stonet.operators.kernel_sum import KernelSum
from stonet.system.resources import peak_mb, reset_peak, resident_mb

REPEATS = 5
POINTS, SETTINGS = 512, ("train.batch=8", "train.consecutive=8")
NOT_COMPILED: tuple[tuple[Any, str], ...] = (
    (KernelSum, "forward"),
    (Batch, "newest"),
)


def run(watch: Watch) -> list[Record]:
    """Each variant against the step as it is, in a process of its own."""
    variants: list[tuple[Callable[..., Record], Record]] = [
        (bf16, {}),
        (compiled, {}),
        (twin, {"d": 64, "hidden": 64, "frames": 1}),
        (twin, {"d": 24, "hidden": 64, "frames": 48}),  # the paper's sizes: four windows
    ]
    records = []
    for number, (variant, sizes) in enumerate(variants):
        name = variant.__name__
        watch(number, len(variants), name)
        with tempfile.TemporaryDirectory() as cache:  # without earlier compilations
            inductor = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            arguments = {**sizes, "n": POINTS}
            ratios = in_process(variant, arguments, 1, OMP_NUM_THREADS="1", **inductor)
        records.append(empty_record("variant", POINTS, sizes.get("d", LATENT), 1, name) | ratios)
    return records


def bf16(n: int) -> Record:
    """In a child: a step in bf16 over one in float32."""
    _, single = trainer_and_step(n, *SETTINGS)
    _, half = trainer_and_step(n, *SETTINGS, "train.precision=bf16")
    return _compare(single, half)


def compiled(n: int, backend: str = "inductor") -> Record:
    """In a child: a step with all that can be compiled, over a plain step."""
    for owner, name in NOT_COMPILED:
        setattr(owner, name, torch.compiler.disable(getattr(owner, name)))
    torch._dynamo.config.recompile_limit = 64  # layers of one class have different sizes
    plain_trainer, plain_step = trainer_and_step(n, *SETTINGS)
    trainer, step = trainer_and_step(n, *SETTINGS)
    trainer.model.compile(backend=backend)
    seconds = _first_call_seconds(step)
    plain_step()
    difference = abs(trainer.loss / plain_trainer.loss - 1)
    return _compare(plain_step, step) | {"first_seconds": seconds, "max_error": difference}


def twin(n: int, d: int, hidden: int, frames: int, backend: str = "inductor") -> Record:
    """In a child: the compiled autograd kernel integral over ours, forward and backward."""

    def compiled_kernel(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
        call, weights = autograd_kernel(kernel, neighbours)
        return torch.compile(call, dynamic=False, backend=backend), weights

    setattr(operator, "autograd_kernel", compiled_kernel)  # noqa: B010
    calls = operator.Encoder(n, d, frames, hidden).build()
    ours, other = calls["ours"], calls["autograd"]
    first_seconds = _first_call_seconds(other)
    variant_mb, ours_mb = _memory_mb(other), _memory_mb(ours)
    return _compare(ours, other) | {
        "first_seconds": first_seconds,
        "frames": frames,
        "hidden": hidden,
        "ours_mb": ours_mb,
        "variant_mb": variant_mb,
    }


def _first_call_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of the first call, compilation and the C compiler included."""
    started = os.times()
    call()
    return sum(os.times()[:4]) - sum(started[:4])


def _memory_mb(call: Callable[[], object]) -> float:
    """Peak MB of a call beyond the memory in use before it."""
    reset_peak()
    before = resident_mb()
    call()
    return peak_mb() - before


def _compare(plain: Callable[[], object], variant: Callable[[], object]) -> Record:
    """CPU time of the variant over the plain call (above 1: slower), and the range of repeats."""
    repeats = [alternate({"plain": plain, "variant": variant}) for _ in range(REPEATS)]
    ratios = sorted(timings["variant"].cpu / timings["plain"].cpu for timings in repeats)
    return {
        "time_ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "ours_seconds": median(timings["plain"].cpu for timings in repeats),
    }
