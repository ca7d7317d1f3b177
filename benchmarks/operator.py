"""The costly operators against their peers: forward and backward, same graph and weights.

`kernel sum` is the operator of the default network; `encoder` and `decoder` are those of the
paper's network.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import (
    Record,
    Watch,
    Work,
    alternate,
    empty_record,
    in_process,
    product,
    rate,
)
from benchmarks.peers import (
    Kernel,
    LiteralBranch,
    SumKernel,
    autograd_kernel,
    autograd_sum,
    gno,
    literal_kernel,
    literal_sum,
    nnconv,
    nnconv_sum,
    our_kernel,
    our_sum,
    trainable,
)
from stonet.config import NetworkConfig, PaperConfig
from stonet.data.geometry import Points
from stonet.graph.neighbours import Neighbours, edge_width, radius_for_degree, within_radius
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.graph_kernel import GraphKernel
from stonet.operators.kernel_sum import KernelSum
from stonet.system.resources import peak_mb, reset_peak, resident_mb

INPUTS = 7  # features of each end of an edge in kappa: a_t(x) and x
STEPS = 12  # frames in, and frames out
MAX_ERROR_POINTS = 96  # in the check against the literal sum
Gradients = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True)
class Encoder:
    """A kernel integral over `frames` frames at `n` points, with latent width `d`."""

    n: int
    d: int
    frames: int = 1
    hidden: int = 64
    degree: float = 19.0
    double: bool = False

    def build(self) -> dict[str, Gradients]:
        """Every variant as a call that returns its result and all gradients."""
        torch.manual_seed(0)
        neighbours = within_radius(*_graph(self.n, self.degree), describe="nothing")
        dtype = torch.float64 if self.double else torch.float32
        neighbours = neighbours.to(torch.device("cpu"), dtype)
        full = GraphKernel(INPUTS, 0, self.d, self.hidden, "full").to(dtype)
        diagonal = GraphKernel(INPUTS, 0, self.d, self.hidden, "diag").to(dtype)
        shape = self.frames, self.n
        values, inputs = torch.randn(*shape, self.d), torch.randn(*shape, INPUTS)
        values, inputs = (x.to(dtype).requires_grad_() for x in (values, inputs))
        upstream = torch.randn(*shape, self.d).to(dtype)

        def with_gradients(kernel: Kernel) -> Gradients:
            apply, weights = kernel

            def call() -> Sequence[Tensor]:
                result = apply(values, inputs)
                return result, *torch.autograd.grad(result, (values, inputs, *weights), upstream)

            return call

        calls = {
            "ours": with_gradients(our_kernel(full, neighbours)),
            "literal": with_gradients(literal_kernel(full, neighbours)),
            "autograd": with_gradients(autograd_kernel(full, neighbours)),
        }
        if installed("torch_geometric"):
            calls["nnconv"] = with_gradients(nnconv(full, neighbours))
        calls["ours diagonal"] = with_gradients(our_kernel(diagonal, neighbours))
        if installed("neuralop"):
            calls["gno"] = with_gradients(gno(diagonal, neighbours))
        return calls

    @property
    def operations(self) -> float:
        """Operations of forward and backward: three passes of the factorised sum."""
        per_node = self.degree * self.hidden * self.d + self.hidden * self.d**2 + self.d**2
        return 3 * 2 * per_node * self.n * self.frames


@dataclass(frozen=True)
class Decoder:
    """The branch with a joint xi at `n` nodes: twelve frames in, twelve out."""

    n: int
    d: int
    batch: int = 4
    hidden: int = 64
    degree: float = 20.0
    regular: bool = True
    double: bool = False
    sample: int = 6  # groups of time pairs that are timed of a literal sum

    def build(self) -> dict[str, Gradients]:
        """Every variant as a call that returns its result and all gradients."""
        torch.manual_seed(0)
        points, _, radius = _graph(self.n, self.degree)
        dtype = torch.float64 if self.double else torch.float32
        neighbours = within_radius(points, points, radius, "sharp")
        links = DecoderGraph(
            torch.tensor(points.embedded).float(), neighbours, torch.arange(self.n)
        ).to(torch.device("cpu"), dtype)
        config = PaperConfig(latent=self.d, hidden=self.hidden, separable=False)
        branch = RevisedBranch(edge_width("sharp", 3), self.d, STEPS, config).to(dtype)
        latent = torch.randn(self.batch, STEPS, self.n, self.d).to(dtype).requires_grad_()
        lags = self._lags().to(dtype)
        upstream = torch.randn(self.batch, STEPS, self.n, self.d).to(dtype)
        leaves = latent, *trainable(branch, exclude="threshold")

        def ours() -> Sequence[Tensor]:
            result = branch(latent, None, lags, links)
            return result, *torch.autograd.grad(result, leaves, upstream)

        def literal(shared: bool) -> Gradients:
            sums = LiteralBranch(branch, links, lags, shared)

            def call() -> Sequence[Tensor]:
                total: list[Tensor] = []
                for group in sums.sample(self.sample):
                    part = sums.part(latent, group)
                    terms = [part.detach(), *torch.autograd.grad(part, leaves, upstream)]
                    total = [a + b for a, b in zip(total, terms, strict=True)] if total else terms
                return total

            return call

        return {"ours": ours, "pairs": literal(False), "lags": literal(True)}

    def factor(self, peer: str) -> float:
        """Number of groups in the complete sum over the number that is timed."""
        groups = STEPS**2 if peer == "pairs" else len(torch.unique(self._lags()))
        return max(1.0, groups / self.sample)

    @property
    def operations(self) -> float:
        """Operations of forward and backward: three passes of the factorised sum."""
        pairs = STEPS**2 * self.degree * self.hidden * self.d
        last = STEPS * (self.hidden + 1) * self.d**2
        return 3 * 2 * (pairs + last) * self.n * self.batch

    def _lags(self) -> Tensor:
        """Lag of every pair of target and input time, in steps: (1, future, past)."""
        steps = torch.arange(STEPS, dtype=torch.float32)
        if self.regular:
            return (1 + steps[:, None] + steps.flip(0))[None]
        generator = torch.Generator().manual_seed(1)
        future, past = (steps + torch.rand(STEPS, generator=generator) for _ in range(2))
        return (1 + future[:, None] + past.flip(0))[None]


@dataclass(frozen=True)
class Sum:
    """A kernel sum over `frames` windows at `n` points, with latent width `d`."""

    n: int
    d: int
    frames: int = 8
    kernels: int = NetworkConfig().kernels
    hidden: int = NetworkConfig().hidden
    degree: float = 19.0
    double: bool = False

    def build(self) -> dict[str, Gradients]:
        """Every variant as a call that returns its result and all gradients."""
        torch.manual_seed(0)
        dtype = torch.float64 if self.double else torch.float32
        neighbours = within_radius(*_graph(self.n, self.degree), describe="sharp")
        neighbours = neighbours.to(torch.device("cpu"), dtype)
        width = edge_width("sharp", 3)
        kernel = KernelSum(width, self.d, self.d, self.kernels, self.hidden, 1.0).to(dtype)
        values = torch.randn(self.n, self.frames, self.d).to(dtype).requires_grad_()
        upstream = torch.randn(self.n, self.frames, self.d).to(dtype)

        def with_gradients(make: Callable[[KernelSum, Neighbours], SumKernel]) -> Gradients:
            apply, weights = make(kernel, neighbours)

            def call() -> Sequence[Tensor]:
                result = apply(values)
                return result, *torch.autograd.grad(result, (values, *weights), upstream)

            return call

        calls = {
            "ours": with_gradients(our_sum),
            "literal": with_gradients(literal_sum),
            "autograd": with_gradients(autograd_sum),
        }
        if installed("torch_geometric"):
            calls["nnconv"] = with_gradients(nnconv_sum)
        return calls

    @property
    def operations(self) -> float:
        """Operations of forward and backward: three passes of the sum and its map."""
        per_node = self.degree * self.kernels * self.d + self.kernels * self.d**2
        return 3 * 2 * per_node * self.n * self.frames


Case = Encoder | Decoder | Sum
CASES: dict[str, type[Case]] = {"encoder": Encoder, "decoder": Decoder, "kernel sum": Sum}


def compare_operator(
    name: str, threads: int = 1, memory: bool = False, **case: Any
) -> list[Record]:
    """One record per peer: its time, and optionally its memory, over ours.

    Args:
        name: of CASES.
        threads: PyTorch threads while timing.
        memory: also measure peak memory, in processes of their own.
        case: its fields.
    """
    operator = CASES[name](**case)
    calls: dict[str, Work] = dict(operator.build())
    timings = alternate(calls | {"gemm": product()}, threads)
    limit, error = rate(timings["gemm"]), max_errors(name, **case)
    records = []
    for peer in calls:
        if peer.startswith("ours"):
            continue
        own = "ours diagonal" if peer == "gno" else "ours"
        factor = operator.factor(peer) if isinstance(operator, Decoder) else 1.0
        peaks = {v: _peak_mb(name, v, **case) for v in (own, peer)} if memory else {}
        share = operator.operations / timings[own].cpu / limit if own == "ours" else None
        record = _case_record(name, operator, threads, peer) | {
            "time_ratio": factor * timings[peer].cpu / timings[own].cpu,
            "wall_ratio": factor * timings[peer].wall / timings[own].wall,
            "gemm_share": share,
            "max_error": error.get(peer),
            "ours_seconds": timings[own].wall,
            "rounds": timings[own].rounds,
            "extrapolated": factor > 1,
        }
        if peaks:
            record |= {"memory_ratio": peaks[peer] / max(peaks[own], 1e-3)}
            record |= {"ours_mb": peaks[own], "peer_mb": peaks[peer]}
        records.append(record)
    return records


def _case_record(name: str, case: Case, threads: int, peer: str) -> Record:
    """An empty record with the sizes of the case."""
    extra = {k: v for k, v in asdict(case).items() if k not in ("n", "d", "double", "sample")}
    return empty_record(name, case.n, case.d, threads, peer) | extra


def max_errors(name: str, **case: Any) -> dict[str, float]:
    """Largest float64 difference of results and gradients, relative to the largest entry.

    At no more than MAX_ERROR_POINTS points: here every pair of times is summed literally.
    """
    small = {**case, "n": min(int(case["n"]), MAX_ERROR_POINTS), "double": True}
    small |= {"sample": STEPS**2} if name == "decoder" else {}
    with torch.random.fork_rng(devices=[]):
        calls = CASES[name](**small).build()
    results = {peer: [part.detach() for part in call()] for peer, call in calls.items()}
    errors = {}
    for peer in results.keys() - {"ours", "ours diagonal"}:
        own = results["ours diagonal" if peer == "gno" else "ours"]
        # other libraries lay out their weights differently: compare result and input gradients
        inputs = 2 if name == "kernel sum" else 3
        compared = inputs if peer in ("nnconv", "gno") else len(own)
        pairs = zip(results[peer][:compared], own[:compared], strict=True)
        errors[peer] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return errors


def _graph(n: int, degree: float) -> tuple[Points, Points, float]:
    """Sources, targets and radius of a random graph on the sphere with this mean degree."""
    draw = np.random.default_rng(0).normal(size=(n, 3))
    draw /= np.linalg.norm(draw, axis=1, keepdims=True)
    latitude, longitude = np.arcsin(draw[:, 2]), np.arctan2(draw[:, 1], draw[:, 0])
    points = Points(np.degrees(np.stack([latitude, longitude], axis=1)), "sphere")
    return points, points, radius_for_degree(points, points, degree)


def installed(package: str) -> bool:
    """Whether a peer's package can be imported."""
    return importlib.util.find_spec(package) is not None


def run(watch: Watch) -> list[Record]:
    """The published cases: sizes of the paper's tasks on one thread, the largest also on two."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("kernel sum", {"n": 137, "d": 64}),
        ("kernel sum", {"n": 2048, "d": 64}),
        ("kernel sum", {"n": 2048, "d": 64, "threads": 2}),
        ("kernel sum", {"n": 2048, "d": 64, "frames": 2, "memory": True}),
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
    for number, (name, case) in enumerate(cases):
        watch(number, len(cases) + 2, f"{name} n={case['n']} d={case['d']}")
        records += compare_operator(name, **case)
    watch(len(cases), len(cases) + 2, "peak memory")
    records.append(_memory("kernel sum", n=2048, d=64, frames=48))
    records += [_memory("encoder", n=2048, d=64, frames=48), _memory("decoder", n=2048, d=64)]
    watch(len(cases) + 1, len(cases) + 2, "irregular times")
    return [*records, _irregular(n=512, d=64)]


def _peak_mb(name: str, variant: str, **case: Any) -> float:
    """MB that one call needs beyond its arguments, in a process of its own."""
    arguments = {"name": name, "variant": variant, "case": case}
    return float(in_process(peak_of_call, arguments)["mb"])


def peak_of_call(name: str, variant: str, case: dict[str, Any]) -> Record:
    """In a child: MB of one call beyond its arguments, without the start-up of libraries."""
    torch.set_num_threads(1)
    CASES[name](**{**case, "n": 64}).build()[variant]()
    call = CASES[name](**case).build()[variant]
    reset_peak()
    before = resident_mb()
    call()
    return {"mb": peak_mb() - before}


def _memory(name: str, **case: Any) -> Record:
    """Our peak memory at a size at which no peer fits into memory."""
    record = _case_record(name, CASES[name](**case), 1, "none")
    return record | {"ours_mb": _peak_mb(name, "ours", **case)}


def _irregular(**case: Any) -> Record:
    """The time of regular times over that of times without a common step."""
    irregular, regular = Decoder(**case, regular=False), Decoder(**case)
    timings = alternate({"ours": irregular.build()["ours"], "regular": regular.build()["ours"]})
    record = _case_record("irregular", irregular, 1, "regular times")
    return record | {"time_ratio": timings["regular"].cpu / timings["ours"].cpu}
