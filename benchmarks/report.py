"""What was measured, for people: a table at the terminal, and docs/performance.md.

`python -m benchmarks.report` writes the page anew from the committed records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.goals import GOALS
from benchmarks.harness import Record

COLUMNS = ("bench", "n", "d", "threads", "peer")
NOTES = (
    "- Two threads: a step's windows are shared out between them. PyTorch's own way "
    "(`torchs_time_ratio`) shares one operation after another, of which gathering rows and "
    "products of many small matrices gain little; what two threads gain for a single large product "
    "is `gemm_time_ratio`. Base, schooling and forecasts have PyTorch's way.",
    "- The paper's own formula on the weather task: its matrix products alone would take "
    "`minutes_at_gemm_rate` at this machine's rate for a single large product, more than the goal. "
    "They are what most of a step goes to: 65 %; GELU 11 %, gathering and adding rows 9 % (*lab*, "
    "torch.profiler on one thread, November 18, b054956). The default has narrower kernels and one "
    "term.",
    "- Torch's own settings, as users have them. With large pages (`THP_MEM_ALLOC_ENABLE=1`), "
    "which help whoever takes much memory, NNConv comes to 11.6 (d=64) and 6.2 (d=32) times our "
    "time at 2048 points in `stonet bench operator` (commit 255209f): the goals are then missed.",
    "- One frame at a time at few points, the kernel integral is bound by the start-up of some "
    "thirty small pieces of work; a training step has dozens of frames.",
)
RATIOS = ("time_ratio", "wall_ratio", "memory_ratio")


def bench_table(records: Sequence[Record]) -> Table:
    """Every record, one line each."""
    table = Table(title="Peer over ours: above 1, ours is better")
    for name in (*COLUMNS, "time x", "wall x", "memory x", "GEMM share", "error", "more"):
        table.add_column(name, justify="left" if name in ("bench", "peer", "more") else "right")
    for record in records:
        table.add_row(*_cells(record))
    return table


def _cells(record: Record) -> list[str]:
    shown = {*COLUMNS, *RATIOS, "gemm_share", "max_error", "extrapolated", "part"}
    more = ", ".join(f"{k} {short(v)}" for k, v in record.items() if k not in shown)
    mark = "*" if record.get("extrapolated") else ""
    return [
        *(short(record[name]) for name in COLUMNS),
        *(short(record.get(name)) + (mark if record.get(name) else "") for name in RATIOS),
        short(record.get("gemm_share")),
        short(record.get("max_error")),
        more,
    ]


def short(value: Any) -> str:
    """Three digits."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def page(result: dict[str, Any]) -> str:
    """docs/performance.md."""
    records = result["records"]
    lines = [
        "# Performance",
        "",
        "Made by `make bench`, from `docs/performance.json`; do not edit. Ratios are peer over "
        "ours. Operators (`encoder`, `decoder`): taken in turns in one process, medians over "
        "`rounds` of CPU time (forward and backward), the same graph and weights; `*`: a part of "
        "the peer's work was timed and multiplied, since the whole does not fit. `step` and "
        "`forecast`: baselines with weights of their own at the same points, CPU time in turns. "
        "`epoch`: against what the paper prints for its V100. `threads` and `processes`: wall "
        "time, one against two. `variant`: bf16 (`train.precision`) and two uses of torch.compile "
        "that are not offered, over what is taken by default. Memory is the "
        "high-water mark of a process of its own, arguments left out.",
        "",
        *(_about(name, run) for name, run in result["runs"].items()),
        "",
        "## Goals",
        "",
        "| | goal | measured | |",
        "|---|---|---|---|",
    ]
    lines += [goal.line(records) for goal in GOALS]
    lines += ["", "## Notes on the goals", "", *NOTES, ""]
    lines += ["## All records", ""]
    head = (*COLUMNS, "time", "wall", "memory", "GEMM share", "error", "more")
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cells(record)) + " |" for record in records]
    return "\n".join(lines) + "\n"


def _about(name: str, run: dict[str, Any]) -> str:
    machine = f"{run['processor']}, {run['cores']} cores, {run['memory_gb']} GB"
    software = f"torch {run['torch']}, commit `{run['commit']}`"
    return f"- {name}: {run['date']}, {machine}, load {run['load']} before, {software}"


def main() -> None:
    """Write the page anew."""
    docs = Path("docs")
    (docs / "performance.md").write_text(page(json.loads((docs / "performance.json").read_text())))


if __name__ == "__main__":
    main()
