"""The two heavy operators against their peers: forward and backward, same graph, same weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Record, Work, alternate, empty_record, peak_of, product, rate
from benchmarks.peers import (
    Kernel,
    LiteralBranch,
    autograd_kernel,
    gno,
    literal_kernel,
    nnconv,
    our_kernel,
    trained,
)
from stonet.config import ModelConfig
from stonet.data.geometry import Points
from stonet.graph.neighbours import edge_width, radius_for_degree, within_radius
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.graph_kernel import GraphKernel
from stonet.system.progress import ProgressCallback
from stonet.system.resources import peak_mb, reset_peak, resident_mb

INPUTS, STEPS = 7, 12  # what kappa sees of each end: a_t(x) and x; times in and out
Gradients = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True)
class Encoder:
    """One kernel integral over some frames."""

    n: int
    d: int
    frames: int = 1
    hidden: int = 64
    degree: float = 19.0
    double: bool = False

    def build(self) -> dict[str, Gradients]:
        """Every variant as a call that gives its result and all gradients."""
        torch.manual_seed(0)
        neighbours = within_radius(*_graph(self.n, self.degree), describe="nothing")
        kind = torch.float64 if self.double else torch.float32
        neighbours = neighbours.to(torch.device("cpu"), kind)
        full = GraphKernel(INPUTS, 0, self.d, self.hidden, "full").to(kind)
        diagonal = GraphKernel(INPUTS, 0, self.d, self.hidden, "diag").to(kind)
        shape = self.frames, self.n
        values, inputs = torch.randn(*shape, self.d), torch.randn(*shape, INPUTS)
        values, inputs = (x.to(kind).requires_grad_() for x in (values, inputs))
        upstream = torch.randn(*shape, self.d).to(kind)

        def graded(kernel: Kernel) -> Gradients:
            apply, weights = kernel

            def call() -> Sequence[Tensor]:
                result = apply(values, inputs)
                return result, *torch.autograd.grad(result, (values, inputs, *weights), upstream)

            return call

        made = {
            "ours": graded(our_kernel(full, neighbours)),
            "literal": graded(literal_kernel(full, neighbours)),
            "autograd": graded(autograd_kernel(full, neighbours)),
        }
        if installed("torch_geometric"):
            made["nnconv"] = graded(nnconv(full, neighbours))
        made["ours diagonal"] = graded(our_kernel(diagonal, neighbours))
        if installed("neuralop"):
            made["gno"] = graded(gno(diagonal, neighbours))
        return made

    @property
    def operations(self) -> float:
        """Of forward and backward: three passes of the factorised sum."""
        per_node = self.degree * self.hidden * self.d + self.hidden * self.d**2 + self.d**2
        return 3 * 2 * per_node * self.n * self.frames


@dataclass(frozen=True)
class Decoder:
    """The branch with a joint xi: twelve steps in, twelve out, asked at the nodes."""

    n: int
    d: int
    batch: int = 4
    hidden: int = 64
    degree: float = 20.0
    regular: bool = True
    double: bool = False
    sample: int = 6  # groups of pairs of which a literal sum is timed

    def build(self) -> dict[str, Gradients]:
        """Every variant as a call that gives its result and all gradients."""
        torch.manual_seed(0)
        points, _, radius = _graph(self.n, self.degree)
        kind = torch.float64 if self.double else torch.float32
        neighbours = within_radius(points, points, radius, "sharp")
        links = DecoderGraph(
            torch.tensor(points.embedded).float(), neighbours, torch.arange(self.n)
        ).to(torch.device("cpu"), kind)
        config = ModelConfig(latent=self.d, rank=self.d, hidden=self.hidden, separable=False)
        branch = RevisedBranch(edge_width("sharp", 3), self.d, STEPS, config).to(kind)
        latent = torch.randn(self.batch, STEPS, self.n, self.d).to(kind).requires_grad_()
        lags = self._lags().to(kind)
        upstream = torch.randn(self.batch, STEPS, self.n, self.d).to(kind)
        wanted = latent, *trained(branch, but="threshold")

        def ours() -> Sequence[Tensor]:
            result = branch(latent, None, lags, links)
            return result, *torch.autograd.grad(result, wanted, upstream)

        def literally(shared: bool) -> Gradients:
            sums = LiteralBranch(branch, links, lags, shared)

            def call() -> Sequence[Tensor]:
                total: list[Tensor] | None = None
                for group in sums.sample(self.sample):
                    part = sums.part(latent, group)
                    found = [part.detach(), *torch.autograd.grad(part, wanted, upstream)]
                    total = (
                        found
                        if total is None
                        else [a + b for a, b in zip(total, found, strict=True)]
                    )
                return total or []

            return call

        return {"ours": ours, "pairs": literally(False), "lags": literally(True)}

    def factor(self, peer: str) -> float:
        """How many times as long the whole sum takes as the sampled groups."""
        groups = STEPS**2 if peer == "pairs" else len(torch.unique(self._lags()))
        return max(1.0, groups / self.sample)

    @property
    def operations(self) -> float:
        """Of forward and backward: three passes of the factorised sum."""
        pairs = STEPS**2 * self.degree * self.hidden * self.d
        last = STEPS * (self.hidden + 1) * self.d**2
        return 3 * 2 * (pairs + last) * self.n * self.batch

    def _lags(self) -> Tensor:
        steps = torch.arange(STEPS, dtype=torch.float32)
        if self.regular:
            return (1 + steps[:, None] + steps.flip(0))[None]
        generator = torch.Generator().manual_seed(1)
        future, past = (steps + torch.rand(STEPS, generator=generator) for _ in range(2))
        return (1 + future[:, None] + past.flip(0))[None]


CASES: dict[str, type[Encoder] | type[Decoder]] = {"encoder": Encoder, "decoder": Decoder}


def compare_operator(
    name: str, threads: int = 1, memory: bool = False, **case: Any
) -> list[Record]:
    """One record for each peer: how many times as much as ours it takes."""
    made = CASES[name](**case)
    calls: dict[str, Work] = dict(made.build())
    time_spec = alternate(calls | {"gemm": product()}, threads)
    limit, error = rate(time_spec["gemm"]), worst_error(name, **case)
    records = []
    for peer in calls:
        if peer.startswith("ours"):
            continue
        own = "ours diagonal" if peer == "gno" else "ours"
        factor = made.factor(peer) if isinstance(made, Decoder) else 1.0
        peaks = {v: peak_of(name, v, **case) for v in (own, peer)} if memory else {}
        share = made.operations / time_spec[own].cpu / limit if own == "ours" else None
        record = record_of(name, made, threads, peer) | {
            "time_ratio": factor * time_spec[peer].cpu / time_spec[own].cpu,
            "wall_ratio": factor * time_spec[peer].wall / time_spec[own].wall,
            "gemm_share": share,
            "max_error": error.get(peer),
            "ours_seconds": time_spec[own].wall,
            "rounds": time_spec[own].rounds,
            "extrapolated": factor > 1,
        }
        if peaks:
            record |= {"memory_ratio": peaks[peer] / max(peaks[own], 1e-3)}
            record |= {"ours_mb": peaks[own], "peer_mb": peaks[peer]}
        records.append(record)
    return records


def record_of(name: str, made: Encoder | Decoder, threads: int, peer: str) -> Record:
    """The empty record of a case."""
    extra = {k: v for k, v in asdict(made).items() if k not in ("n", "d", "double", "sample")}
    return empty_record(name, made.n, made.d, threads, peer) | extra


def worst_error(name: str, **case: Any) -> dict[str, float]:
    """Largest difference in float64, results and gradients, relative to the largest entry.

    On at most 96 points, since here every pair of times is summed literally.
    """
    small = {**case, "n": min(int(case["n"]), 96), "double": True}
    small |= {"sample": STEPS**2} if name == "decoder" else {}
    with torch.random.fork_rng(devices=[]):
        calls = CASES[name](**small).build()
    found = {peer: [part.detach() for part in call()] for peer, call in calls.items()}
    errors = {}
    for peer in found.keys() - {"ours", "ours diagonal"}:
        own = found["ours diagonal" if peer == "gno" else "ours"]
        # the weights of foreign peers lie otherwise than ours: compare what they pass on
        alike = 3 if peer in ("nnconv", "gno") else len(own)
        pairs = zip(found[peer][:alike], own[:alike], strict=True)
        errors[peer] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return errors


def _graph(n: int, degree: float) -> tuple[Points, Points, float]:
    draw = np.random.default_rng(0).normal(size=(n, 3))
    draw /= np.linalg.norm(draw, axis=1, keepdims=True)
    latitude, longitude = np.arcsin(draw[:, 2]), np.arctan2(draw[:, 1], draw[:, 0])
    points = Points(np.degrees(np.stack([latitude, longitude], axis=1)), "sphere")
    return points, points, radius_for_degree(points, points, degree)


def installed(package: str) -> bool:
    """Whether a peer can be asked."""
    return importlib.util.find_spec(package) is not None


def run(watch: ProgressCallback) -> list[Record]:
    """The published cases: sizes of the paper's tasks, one thread; the largest on two as well."""
    orders: list[tuple[str, dict[str, Any]]] = [
        ("encoder", {"n": 137, "d": 32}),
        ("encoder", {"n": 512, "d": 64}),
        ("encoder", {"n": 2048, "d": 32}),
        ("encoder", {"n": 2048, "d": 64}),
        ("encoder", {"n": 2048, "d": 64, "threads": 2}),
        ("encoder", {"n": 2048, "d": 64, "frames": 2, "memory": True}),
        ("decoder", {"n": 137, "d": 64}),
        ("decoder", {"n": 512, "d": 64}),
        ("decoder", {"n": 512, "d": 64, "regular": False}),
        ("decoder", {"n": 2048, "d": 64}),
    ]
    records = []
    for number, (name, case) in enumerate(orders):
        watch(number, len(orders) + 2, f"{name} n={case['n']} d={case['d']}")
        records += compare_operator(name, **case)
    watch(len(orders), len(orders) + 2, "peak memory")
    records += [_alone("encoder", n=2048, d=64, frames=48), _alone("decoder", n=2048, d=64)]
    watch(len(orders) + 1, len(orders) + 2, "irregular times")
    return [*records, _irregular(n=512, d=64)]


def peak(bench: str, variant: str, case: dict[str, Any]) -> Record:
    """In a child: MB of one call beyond its arguments; start-up of the libraries left out."""
    torch.set_num_threads(1)
    CASES[bench](**{**case, "n": 64}).build()[variant]()
    call = CASES[bench](**case).build()[variant]
    reset_peak()
    before = resident_mb()
    call()
    return {"mb": peak_mb() - before}


def _alone(name: str, **case: Any) -> Record:
    """Our peak memory where no peer fits."""
    made = CASES[name](**case)
    ours = peak_of(name, "ours", **case)
    return {**record_of(name, made, 1, "none"), "ours_mb": ours}


def _irregular(**case: Any) -> Record:
    """Times without a common step, beside regular ones: the ratio is what they cost more."""
    made = Decoder(**case, regular=False)
    time_spec = alternate({"ours": made.build()["ours"], "even": Decoder(**case).build()["ours"]})
    found = record_of("irregular", made, 1, "regular times")
    return found | {"time_ratio": time_spec["even"].cpu / time_spec["ours"].cpu}
