"""Variants of a training step that are offered, or are not, because of what is measured here.

bf16       train.precision, which pays where a device has units for it
compiled   the network by torch.compile, but for its kernel sums: written out by hand they are no
           graph that it can follow
twin       a kernel integral left to autograd and compiled, against the one written by hand
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from benchmarks import operator
from benchmarks.data import weather
from benchmarks.harness import Record, alternate, empty_record, in_child
from benchmarks.peers import Kernel, autograd_kernel
from stonet.data.batch import Batch
from stonet.graph.neighbours import Neighbours
from stonet.linear.regression import LinearForecast
from stonet.operators.branch import RevisedBranch
from stonet.operators.graph_kernel import GraphKernel
from stonet.system.progress import ProgressCallback
from stonet.system.resources import peak_mb, reset_peak, resident_mb
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

REPEATS = 5
N, SHARED = 512, ("train.batch=8", "train.consecutive=8")
BY_HAND: tuple[tuple[Any, str], ...] = (
    (GraphKernel, "forward"),
    (RevisedBranch, "forward"),
    (LinearForecast, "regressors"),
    (Batch, "newest"),
)


def run(watch: ProgressCallback) -> list[Record]:
    """Each beside the step as it is, in a process of its own."""
    orders: list[Record] = [
        {"do": "bf16"},
        {"do": "compiled"},
        {"do": "twin", "d": 64, "hidden": 64, "frames": 1},
        {"do": "twin", "d": 24, "hidden": 16, "frames": 19},  # as in the step above
    ]
    records = []
    for number, order in enumerate(orders):
        watch(number, len(orders), order["do"])
        with tempfile.TemporaryDirectory() as fresh:  # nothing that was compiled before
            alone = {"TORCHINDUCTOR_CACHE_DIR": fresh, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            found = in_child({**order, "n": N}, 1, OMP_NUM_THREADS="1", **alone)
        records.append(empty_record("variant", N, order.get("d", 24), 1, order["do"]) | found)
    return records


def bf16(n: int) -> Record:
    """In a child: a step in bf16 over one in float32."""
    (_, exact), (_, rough) = stepping(n), stepping(n, "train.precision=bf16")
    return _beside(exact, rough)


def compiled(n: int, backend: str = "inductor") -> Record:
    """In a child: a step with everything compiled that can be over one as it is."""
    for owner, name in BY_HAND:
        setattr(owner, name, torch.compiler.disable(getattr(owner, name)))
    torch._dynamo.config.recompile_limit = 64  # layers of one class, each with its own sizes
    (trainer, plain), (other, step) = stepping(n), stepping(n)
    other.model.compile(backend=backend)
    seconds = _first(step)
    plain()
    differ = abs(other.loss / trainer.loss - 1)
    return _beside(plain, step) | {"first_seconds": seconds, "max_error": differ}


def twin(n: int, d: int, hidden: int, frames: int, backend: str = "inductor") -> Record:
    """In a child: the compiled twin of our kernel integral over ours, forward and backward."""

    def compiled_kernel(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
        call, weights = autograd_kernel(kernel, neighbours)
        return torch.compile(call, dynamic=False, backend=backend), weights

    setattr(operator, "autograd_kernel", compiled_kernel)  # noqa: B010
    made = operator.Encoder(n, d, frames, hidden).build()
    ours, other = made["ours"], made["autograd"]
    seconds = _first(other)
    used = _memory(other), _memory(ours)
    return _beside(ours, other) | {
        "first_seconds": seconds,
        "frames": frames,
        "hidden": hidden,
        "ours_mb": used[1],
        "variant_mb": used[0],
    }


def stepping(n: int, *settings: str) -> tuple[Trainer, Callable[[], None]]:
    """A trainer, and its next step as a call."""
    task = weather(n, *SHARED, *settings)
    trainer = Trainer(TrainedModel.untrained(task), task)
    trainer.prepare()
    number = itertools.count()
    return trainer, lambda: trainer.step(trainer.loader.step_batch(next(number)))


def _first(call: Callable[[], object]) -> float:
    """CPU seconds of the first call, in which everything is compiled; the C compiler's too."""
    started = os.times()
    call()
    return sum(os.times()[:4]) - sum(started[:4])


def _memory(call: Callable[[], object]) -> float:
    """MB that a call takes beyond what was there."""
    reset_peak()
    before = resident_mb()
    call()
    return peak_mb() - before


def _beside(plain: Callable[[], object], variant: Callable[[], object]) -> Record:
    """The variant over what is there, above 1: it is slower; several times, for the spread."""
    clocks = [alternate({"plain": plain, "variant": variant}) for _ in range(REPEATS)]
    ratios = sorted(time_spec["variant"].cpu / time_spec["plain"].cpu for time_spec in clocks)
    return {
        "time_ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "ours_seconds": median(time_spec["plain"].cpu for time_spec in clocks),
    }
