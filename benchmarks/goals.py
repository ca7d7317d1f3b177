"""What we want of the figures, and whether they say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Record


@dataclass(frozen=True)
class Goal:
    """A value of some records that should be at least, or at most, a bound."""

    text: str
    where: str  # "key=value key=value"
    key: str
    least: float | None = None
    most: float | None = None

    def measured(self, records: Sequence[Record]) -> float | None:
        """The worst of the records it speaks of; None where none was measured."""
        wanted = [pair.split("=") for pair in self.where.split()]
        found = [
            record[self.key]
            for record in records
            if record.get(self.key) is not None
            and all(str(record.get(key)) == value for key, value in wanted)
        ]
        if not found:
            return None
        return float(max(found) if self.least is None else min(found))

    def line(self, records: Sequence[Record]) -> str:
        """A row of the table of goals."""
        found = self.measured(records)
        bound = f"at most {self.most:.3g}" if self.least is None else f"at least {self.least:.3g}"
        if found is None:
            return f"| {self.text} | {bound} | | not measured |"
        low, high = self.least or float("-inf"), self.most or float("inf")
        verdict = "reached" if low <= found <= high else "**missed**"
        return f"| {self.text} | {bound} | {found:.3g} | {verdict} |"


ENCODER = "bench=encoder threads=1 frames=1 peer=nnconv"
DECODER = "bench=decoder threads=1 regular=True n=2048"
GOALS = (
    Goal(
        "encoder, 2048 points, d=64: NNConv's time over ours",
        f"{ENCODER} n=2048 d=64",
        "time_ratio",
        least=15.0,
    ),
    Goal(
        "encoder, 2048 points, d=32: NNConv's time over ours",
        f"{ENCODER} n=2048 d=32",
        "time_ratio",
        least=8.0,
    ),
    Goal(
        "encoder, 137 points, d=32: NNConv's time over ours",
        f"{ENCODER} n=137 d=32",
        "time_ratio",
        least=5.0,
    ),
    Goal(
        "encoder, 2 frames, d=64: NNConv's memory over ours",
        "bench=encoder frames=2 peer=nnconv",
        "memory_ratio",
        least=20.0,
    ),
    Goal("encoder, 48 frames, d=64: peak MB", "bench=encoder frames=48", "ours_mb", most=300.0),
    Goal(
        "encoder, d=64: share of the machine's GEMM rate",
        f"{ENCODER} n=2048 d=64",
        "gemm_share",
        least=0.35,
    ),
    Goal(
        "encoder, 131,072 points: seconds per point over those at 2048",
        "bench=linear n=131072",
        "per_point",
        most=1.25,
    ),
    Goal("encoder: float64 error against the formula", "peer=literal", "max_error", most=1e-12),
    Goal(
        "decoder, d=64: pair by pair over ours", f"{DECODER} peer=pairs", "time_ratio", least=15.0
    ),
    Goal(
        "decoder, d=64: by distinct lags over ours", f"{DECODER} peer=lags", "time_ratio", least=2.0
    ),
    Goal("decoder, d=64: peak MB", f"{DECODER} peer=none", "ours_mb", most=300.0),
    Goal(
        "decoder: regular times over irregular ones",
        "bench=irregular",
        "time_ratio",
        least=1.0 / 1.5,
    ),
    Goal(
        "decoder, d=64: share of the machine's GEMM rate",
        f"{DECODER} peer=pairs",
        "gemm_share",
        least=0.35,
    ),
    Goal("decoder: float64 error against the formula", "peer=pairs", "max_error", most=1e-12),
    Goal(
        "training: minutes for an epoch of the weather task (the default; base and schooling, "
        "which come once before it, apart)",
        "bench=epoch model=stonet",
        "minutes",
        most=10.7,
    ),
    Goal(
        "training: the same with the paper's own formula (preset `paper`)",
        "bench=epoch model=paper",
        "minutes",
        most=10.7,
    ),
    Goal("training: peak GB on the weather task", "bench=epoch model=stonet", "peak_gb", most=2.0),
    Goal(
        "training: share of a step that the model takes",
        "bench=epoch model=stonet",
        "in_model",
        least=0.95,
    ),
    Goal("training: one thread's time over two threads'", "bench=threads", "time_ratio", least=1.7),
    Goal(
        "inference: ms for a new frame and a forecast, 500 sensors",
        "bench=forecast peer=none",
        "ms",
        most=100.0,
    ),
    Goal(
        "inference: peak GB of a million queries x 12 times", "bench=queries", "peak_gb", most=2.147
    ),
    Goal(
        "inference: peak memory of a year of hourly hindcasts over a month's",
        "bench=hindcast",
        "peak_over_a_months",
        most=1.15,
    ),
    Goal(
        "scale: the law of docs/scaling.md, worst error at the steps that it was fitted to",
        "bench=cost",
        "error",
        most=0.25,
    ),
    Goal(
        "scale: one process's time over two processes'", "bench=processes", "time_ratio", least=1.7
    ),
)
