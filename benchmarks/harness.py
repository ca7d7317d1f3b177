"""How things are measured: in turns, as medians, beside the machine's own matrix product.

Load on the machine hits all variants alike when they take turns, so ratios can be trusted where
seconds cannot. Peak memory is the high-water mark of a child process of its own.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from stonet.errors import StonetError

ROUNDS, FEWEST = 5, 2
PATIENCE = 40.0  # seconds after which no further round is begun
SHORT = 0.1  # seconds that a turn takes at least: short work is done several times over
SIDE = 1024  # of the matrices whose product is the machine's limit
Work = Callable[[], object]
Record = dict[str, Any]


def empty_record(bench: str, n: int, d: int | None, threads: int, peer: str) -> Record:
    """What every record tells; a ratio is the peer's over ours, so above 1 ours is better."""
    known = {"bench": bench, "n": n, "d": d, "threads": threads, "peer": peer}
    return known | dict.fromkeys(("time_ratio", "memory_ratio", "gemm_share", "max_error"))


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median over the rounds."""

    cpu: float
    wall: float
    rounds: int = 1


def alternate(variants: Mapping[str, Work], threads: int = 1) -> dict[str, Timing]:
    """Time all variants in turns, after a warm-up of each; seconds of one call."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    try:
        first = {name: _timed(work, 1)[1] for name, work in variants.items()}
        often = {
            name: 1 if first[name] > SHORT else max(1, int(SHORT / max(_timed(work, 1)[1], 1e-6)))
            for name, work in variants.items()
        }
        started = time.perf_counter()
        for _ in range(ROUNDS):
            for name, work in variants.items():
                seen[name].append(_timed(work, often[name]))
            if len(seen[name]) >= FEWEST and time.perf_counter() - started > PATIENCE:
                break
    finally:
        torch.set_num_threads(before)
    return {
        name: Timing(
            statistics.median(cpu for cpu, _ in rounds),
            statistics.median(wall for _, wall in rounds),
            len(rounds),
        )
        for name, rounds in seen.items()
    }


def _timed(work: Work, times: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        work()
    return (time.process_time() - cpu) / times, (time.perf_counter() - wall) / times


def product() -> Work:
    """A single-precision product of two square matrices: 2 SIDE^3 operations."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    return lambda: [a @ b for _ in range(4)]


def rate(timing: Timing) -> float:
    """Operations per second of CPU time, from the timing of `product`."""
    return 4 * 2 * SIDE**3 / timing.cpu


def operations(work: Work) -> int:
    """Multiplications and additions of all matrix products of a call on this thread."""
    aten = torch.ops.aten
    in_place = {  # which PyTorch's counter leaves out
        aten.addmm_: lambda _, a, b, **__: 2 * math.prod(a) * b[-1],
        aten.baddbmm_: lambda _, a, b, **__: 2 * math.prod(a) * b[-1],
    }
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        work()
    return int(counter.get_total_flops())


def peak_of(bench: str, variant: str, **case: Any) -> float:
    """MB that one call needs beyond its arguments, in a process of its own."""
    return float(in_child({"do": "peak", "bench": bench, "variant": variant, "case": case})["mb"])


def in_child(order: Record, processes: int = 1, **environment: str) -> Record:
    """What `benchmarks.child` answers to an order, alone or as the first of several."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            *(launcher if processes > 1 else ()),
            "benchmarks.child",
            json.dumps(order),
        ],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    if done.returncode:
        raise StonetError(f"A benchmark failed in its own process:\n{done.stderr[-2000:]}")
    answer: Record = json.loads(done.stdout.splitlines()[-1])
    return answer
