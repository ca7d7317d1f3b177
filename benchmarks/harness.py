"""Timing and memory: variants in turns, medians, and the machine's own matrix product beside them.

Other load on the machine affects all variants alike when they take turns, so ratios can be trusted
where seconds cannot. Peak memory is the high-water mark of a separate process, which runs
`python -m benchmarks.harness JOB` and prints its result as one line of JSON.
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
from importlib import import_module
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from stonet.errors import StonetError

ROUNDS, MIN_ROUNDS = 5, 2
MAX_SECONDS = 40.0  # no further round is started after this time
MIN_TURN_SECONDS = 0.1  # shorter calls are repeated within a turn
MATRIX_SIDE = 1024  # of the product that gives the machine's peak rate
PRODUCTS_PER_CALL = 4
Work = Callable[[], object]
Record = dict[str, Any]
Watch = Callable[[int, int, str], None]  # steps done, steps in all, name of the next step


def empty_record(bench: str, n: int, d: int | None, threads: int, peer: str) -> Record:
    """The fields that every record has; a ratio is peer over ours, so above 1 ours is better.

    Args:
        bench: what is measured.
        n: number of points.
        d: latent width.
        threads: of the process that is measured.
        peer: what ours is compared with.
    """
    fields = {"bench": bench, "n": n, "d": d, "threads": threads, "peer": peer}
    return fields | dict.fromkeys(("time_ratio", "memory_ratio", "gemm_share", "max_error"))


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, as the median over the rounds."""

    cpu: float
    wall: float
    rounds: int = 1


def alternate(variants: Mapping[str, Work], threads: int = 1) -> dict[str, Timing]:
    """Time all variants in turns, after one warm-up call of each.

    Args:
        variants: name -> call without arguments.
        threads: PyTorch threads while timing.

    Returns:
        Name -> seconds of one call.
    """
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    try:
        warm_up = {name: _timed(work, 1)[1] for name, work in variants.items()}
        repeats = {name: _repeats(work, warm_up[name]) for name, work in variants.items()}
        started = time.perf_counter()
        for number in range(1, ROUNDS + 1):
            for name, work in variants.items():
                turns[name].append(_timed(work, repeats[name]))
            if number >= MIN_ROUNDS and time.perf_counter() - started > MAX_SECONDS:
                break
    finally:
        torch.set_num_threads(threads_before)
    return {
        name: Timing(
            statistics.median(cpu for cpu, _ in rounds),
            statistics.median(wall for _, wall in rounds),
            len(rounds),
        )
        for name, rounds in turns.items()
    }


def _repeats(work: Work, warm_up_seconds: float) -> int:
    """Calls per turn, so that a turn takes at least MIN_TURN_SECONDS."""
    if warm_up_seconds > MIN_TURN_SECONDS:
        return 1
    return max(1, int(MIN_TURN_SECONDS / max(_timed(work, 1)[1], 1e-6)))


def _timed(work: Work, times: int) -> tuple[float, float]:
    """CPU and wall seconds of one call, averaged over `times` calls."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        work()
    return (time.process_time() - cpu) / times, (time.perf_counter() - wall) / times


def product() -> Work:
    """Single-precision products of two square matrices: 2 MATRIX_SIDE^3 operations each."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(MATRIX_SIDE, MATRIX_SIDE, generator=generator) for _ in range(2))
    return lambda: [a @ b for _ in range(PRODUCTS_PER_CALL)]


def rate(timing: Timing) -> float:
    """Operations per second of CPU time, from the timing of `product`."""
    return PRODUCTS_PER_CALL * 2 * MATRIX_SIDE**3 / timing.cpu


def operations(work: Work) -> int:
    """Multiplications and additions of all matrix products of a call on this thread."""
    aten = torch.ops.aten
    in_place = {  # not counted by PyTorch itself
        aten.addmm_: lambda _, a, b, **__: 2 * math.prod(a) * b[-1],
        aten.baddbmm_: lambda _, a, b, **__: 2 * math.prod(a) * b[-1],
    }
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        work()
    return int(counter.get_total_flops())


def in_process(
    function: Callable[..., Record], arguments: Record, processes: int = 1, **environment: str
) -> Record:
    """Run a module-level function in a new process and return its result.

    Args:
        function: takes and returns what JSON can hold.
        arguments: keyword arguments of the function.
        processes: above 1, so many processes under torchrun; the result is that of rank 0.
        environment: variables set in the new process.

    Raises:
        StonetError: the process failed; the message ends with its stderr.
    """
    job = {"function": f"{function.__module__}:{function.__name__}", "arguments": arguments}
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    command = [sys.executable, "-m", *(launcher if processes > 1 else ()), "benchmarks.harness"]
    done = subprocess.run(
        [*command, json.dumps(job)], capture_output=True, text=True, env=os.environ | environment
    )
    if done.returncode:
        raise StonetError(f"A benchmark failed in its own process:\n{done.stderr[-2000:]}")
    result: Record = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run the job given as JSON and print its result; rank 0 only, under torchrun."""
    from stonet.system import distributed

    job = json.loads(sys.argv[1])
    module, _, name = job["function"].partition(":")
    result = getattr(import_module(module), name)(**job["arguments"])
    if distributed.is_first():
        print(json.dumps(result))


if __name__ == "__main__":
    main()
