"""Goals, the table at the terminal, and docs/performance.md.

`python -m benchmarks.report` writes the page from the committed records, docs/performance.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import Record
from stonet.cli.console import plain_table
from stonet.experiments.tables import markdown_table

KEYS = ("bench", "n", "d", "threads", "peer")
RATIOS = ("time_ratio", "wall_ratio", "memory_ratio")
COLUMNS = (
    *("benchmark", "points n", "width d", "threads", "peer"),
    *("CPU time ratio", "wall time ratio", "memory ratio"),
    *("GEMM share", "max. error", "other figures"),
)
INTRO = (
    "Made by `make bench` from `docs/performance.json`; do not edit. `python -m benchmarks NAME` "
    "measures one part again.\n\n"
    "Ratios are peer over ours: above 1, ours is better. `kernel sum` (of the default network), "
    "`encoder`, `decoder` (of the paper's): one operator, "
    "forward and backward, on the same graph with the same weights; variants take turns in one "
    "process, and the ratio is that of the median CPU times over `rounds`. A `*` marks a peer of "
    "which only a part was timed and extrapolated, since all of it does not fit into memory. "
    "`step`, `forecast`: baselines at the same points, CPU time in turns. `epoch`: against the "
    "time that the paper reports for a V100. `threads`, `processes`: wall time of one over that of "
    "two. `variant`: bf16 (`train.precision`) and two uses of torch.compile that are not offered, "
    "over the default. Memory is the peak of a separate process, without the arguments of the "
    "call. *GEMM share* is the rate of operations over that of a single-precision matrix product "
    "on the same machine; *max. error* is relative to the largest entry."
)
NOTES = (
    "- Records at commits before 215d463 are of an earlier network: there `stonet` was a linear "
    "forecast, corrected by a smaller operator (d = 24) and a residual network. `encoder` and "
    "`decoder` were its operators, and are now those of `stonet-paper` and `stonet-operator`.",
    "- Two threads: the windows of a step are divided between them. PyTorch's own threads "
    "(`torchs_time_ratio`) divide one operation after another; gathering rows and products of many "
    "small matrices gain little from that. `gemm_time_ratio` is the gain of two threads for a "
    "single large product. Closed forms and forecasts use PyTorch's threads.",
    "- The paper's own formula on the weather task: its matrix products alone would take "
    "`minutes_at_gemm_rate` at this machine's rate for a single large product, more than the goal. "
    "They make up 65 % of a step; GELU 11 %, gathering and adding rows 9 % (torch.profiler on one "
    "thread, November 18, commit b054956). The default network has other kernels.",
    "- PyTorch runs with its default settings. With large pages (`THP_MEM_ALLOC_ENABLE=1`), which "
    "favour code that allocates much memory, NNConv takes 11.6 (d=64) and 6.2 (d=32) times our "
    "time at 2048 points in `python -m benchmarks operator` (commit 255209f): the goals are then "
    "missed.",
    "- With one frame and few points, the kernel integral is limited by the start-up of about "
    "thirty small operations; a training step has dozens of frames.",
)


@dataclass(frozen=True)
class Goal:
    """A bound on one figure of all records that match `where`."""

    text: str
    where: str  # "key=value key=value"
    key: str
    least: float | None = None
    most: float | None = None

    def measured(self, records: Sequence[Record]) -> float | None:
        """The worst figure of the matching records; None where nothing was measured."""
        conditions = [pair.split("=") for pair in re.split(r" (?=\w+=)", self.where)]
        figures = [
            record[self.key]
            for record in records
            if record.get(self.key) is not None
            and all(str(record.get(key)) == value for key, value in conditions)
        ]
        if not figures:
            return None
        return float(max(figures) if self.least is None else min(figures))

    def row(self, records: Sequence[Record]) -> list[str]:
        """A row of the table of goals: text, bound, measured, verdict."""
        figure = self.measured(records)
        bound = f"at most {self.most:.3g}" if self.least is None else f"at least {self.least:.3g}"
        if figure is None:
            return [self.text, bound, "", "not measured"]
        low, high = self.least or float("-inf"), self.most or float("inf")
        verdict = "reached" if low <= figure <= high else "**missed**"
        return [self.text, bound, f"{figure:.3g}", verdict]


SUM = "bench=kernel sum threads=1"
ENCODER = "bench=encoder threads=1 frames=1 peer=nnconv"
DECODER = "bench=decoder threads=1 regular=True n=2048"
EPOCH = "bench=epoch model=stonet"
GOALS = (
    Goal("encoder, 2048 points, d=64: time of NNConv over ours", f"{ENCODER} n=2048 d=64",
         "time_ratio", least=15.0),
    Goal("encoder, 2048 points, d=32: time of NNConv over ours", f"{ENCODER} n=2048 d=32",
         "time_ratio", least=8.0),
    Goal("encoder, 137 points, d=32: time of NNConv over ours", f"{ENCODER} n=137 d=32",
         "time_ratio", least=5.0),
    Goal("encoder, 2 frames, d=64: memory of NNConv over ours",
         "bench=encoder frames=2 peer=nnconv", "memory_ratio", least=20.0),
    Goal("encoder, 48 frames, d=64: peak memory (MB)", "bench=encoder frames=48", "ours_mb",
         most=300.0),
    Goal("encoder, d=64: share of the machine's GEMM rate", f"{ENCODER} n=2048 d=64",
         "gemm_share", least=0.35),
    Goal("encoder: seconds per point at 131,072 points over those at 2048",
         "bench=linear n=131072", "per_point", most=1.25),
    Goal("encoder: float64 error against the formula", "peer=literal", "max_error", most=1e-12),
    Goal("decoder, d=64: time of one pair of times after another over ours",
         f"{DECODER} peer=pairs", "time_ratio", least=15.0),
    Goal("decoder, d=64: time of one lag after another over ours", f"{DECODER} peer=lags",
         "time_ratio", least=2.0),
    Goal("decoder, d=64: peak memory (MB)", f"{DECODER} peer=none", "ours_mb", most=300.0),
    Goal("decoder: time of regular over irregular times", "bench=irregular", "time_ratio",
         least=1.0 / 1.5),
    Goal("decoder, d=64: share of the machine's GEMM rate", f"{DECODER} peer=pairs",
         "gemm_share", least=0.35),
    Goal("decoder: float64 error against the formula", "peer=pairs", "max_error", most=1e-12),
    Goal("kernel sum, 2048 points, d=64: time of NNConv over ours", f"{SUM} peer=nnconv n=2048",
         "time_ratio", least=5.0),
    Goal("kernel sum: float64 error against the formula", f"{SUM} peer=literal", "max_error",
         most=1e-12),
    Goal("training: minutes for an epoch of the weather task (default preset, without "
         "closed forms)", EPOCH, "minutes", most=10.7),
    Goal("training: a step at 120 points, 16 windows, d=64 (ms)", "bench=small step",
         "ms", most=40.0),
    Goal("training: minutes for the same with the paper's own formula (preset `paper`)",
         "bench=epoch model=paper", "minutes", most=10.7),
    Goal("training: peak memory on the weather task (GB)", EPOCH, "peak_gb", most=2.0),
    Goal("training: the model's share of the time of a step", EPOCH, "in_model", least=0.95),
    Goal("training: time on one thread over two", "bench=threads", "time_ratio", least=1.7),
    Goal("inference: a new frame and a forecast at 500 sensors (ms)", "bench=forecast peer=none",
         "ms", most=20.0),
    Goal("inference: peak memory of a million queries x 12 times (GB)", "bench=queries",
         "peak_gb", most=2.147),
    Goal("inference: peak memory of a year of hourly hindcasts over that of a month",
         "bench=hindcast", "peak_over_a_months", most=1.15),
    Goal("service: the first forecast of 500 stations with intervals (s)",
         "bench=first forecast", "seconds", most=2.0),
    Goal("service: a click on the map, warm (ms)", "bench=click", "ms", most=200.0),
    Goal("scale: largest relative error of the cost law (docs/scaling.md) at the steps it was "
         "fitted to", "bench=cost", "error", most=0.25),
    Goal("scale: time of one process over two", "bench=processes", "time_ratio", least=1.7),
)  # fmt: skip


def records_table(records: Sequence[Record]) -> Table:
    """All records for the terminal, one row each."""
    rows = [_cells(record) for record in records]
    text = ("benchmark", "peer", "other figures")
    return plain_table("Peer over ours: above 1, ours is better", COLUMNS, rows, text)


def _cells(record: Record) -> list[str]:
    """One row: the columns, then all other figures by name."""
    shown = {*KEYS, *RATIOS, "gemm_share", "max_error", "extrapolated", "part"}
    others = ", ".join(f"{k} {_short(v)}" for k, v in record.items() if k not in shown)
    mark = "*" if record.get("extrapolated") else ""
    return [
        *(_short(record[name]) for name in KEYS),
        *(_short(record.get(name)) + (mark if record.get(name) else "") for name in RATIOS),
        _short(record.get("gemm_share")),
        _short(record.get("max_error")),
        others,
    ]


def _short(value: Any) -> str:
    """Three significant digits; nothing for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def page(result: dict[str, Any]) -> str:
    """The text of docs/performance.md, from the content of docs/performance.json."""
    records = result["records"]
    goals = [goal.row(records) for goal in GOALS]
    lines = ["# Performance", "", INTRO, ""]
    lines += [*(_machine(name, run) for name, run in result["runs"].items()), ""]
    lines += ["## Goals", "", *markdown_table(["figure", "goal", "measured", "verdict"], goals)]
    lines += ["## Notes on the goals", "", *NOTES, ""]
    lines += ["## All records", "", *markdown_table(COLUMNS, [_cells(r) for r in records])]
    return "\n".join(lines)


def _machine(name: str, run: dict[str, Any]) -> str:
    """Where and when a benchmark was measured."""
    machine = f"{run['processor']}, {run['cores']} cores, {run['memory_gb']} GB"
    software = f"torch {run['torch']}, commit `{run['commit']}`"
    return f"- {name}: {run['date']}, {machine}, load {run['load']} before, {software}"


def main() -> None:
    """Write docs/performance.md from docs/performance.json."""
    docs = Path("docs")
    (docs / "performance.md").write_text(page(json.loads((docs / "performance.json").read_text())))


if __name__ == "__main__":
    main()
