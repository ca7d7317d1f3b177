r"""Multipole passes: kernel sums within levels, up to coarser and down to finer ones.

    v <- v + y + gelu(y),    y = W v + b + sum_k A_k mean_j h_k(x, x_j) v_j

The linear path v + y keeps the signal's size from the first step on; with `gelu(y)` alone the
encoder would shrink it tenfold.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from stonet.graph.multipole import MultipoleGraph
from stonet.graph.neighbours import Neighbours
from stonet.operators.kernel_sum import KernelSum

KERNEL_GAIN = 0.3  # size of the kernel sum at the start, relative to v
OWN_GAIN = 0.1  # of W, relative to PyTorch's initialisation


class KernelPass(nn.Module):
    """One kernel sum with its residual path.

    Args:
        edge: features of an edge.
        latent: width of v.
        kernels: products in the kernel.
        hidden: hidden units of the kernel.
    """

    def __init__(self, edge: int, latent: int, kernels: int, hidden: int) -> None:
        super().__init__()
        self.kernel = KernelSum(edge, latent, latent, kernels, hidden, KERNEL_GAIN)
        self.own = nn.Linear(latent, latent)  # W
        with torch.no_grad():
            self.own.weight.mul_(OWN_GAIN)

    def forward(
        self,
        values: Float[Tensor, "target batch latent"],
        sources: Float[Tensor, "source batch latent"],
        neighbours: Neighbours,
        present: Bool[Tensor, "source batch"] | None,
    ) -> Float[Tensor, "target batch latent"]:
        """New values at the targets.

        Args:
            values: v at the targets.
            sources: v at the sources.
            neighbours: of the targets.
            present: whether a source has a value; None: all have.
        """
        y = self.own(values) + self.kernel(sources, neighbours, present)
        return values + y + gelu(y)


class MultipoleLayer(nn.Module):
    """Within each level, then up to coarser, then down to finer levels.

    Args:
        levels: of the multipole graph.
        edge: features of an edge.
        latent: width of v.
        kernels: products in a kernel.
        hidden: hidden units of a kernel.
    """

    def __init__(self, levels: int, edge: int, latent: int, kernels: int, hidden: int) -> None:
        super().__init__()
        size = (edge, latent, kernels, hidden)
        self.within = nn.ModuleList(KernelPass(*size) for _ in range(levels))
        self.up = nn.ModuleList(KernelPass(*size) for _ in range(levels - 1))
        self.down = nn.ModuleList(KernelPass(*size) for _ in range(levels - 1))

    def forward(
        self,
        values: Float[Tensor, "node batch latent"],
        graph: MultipoleGraph,
        present: Bool[Tensor, "node batch"] | None = None,
    ) -> Float[Tensor, "node batch latent"]:
        """New values at all nodes.

        Args:
            values: v.
            graph: the levels and their edges.
            present: which nodes have a history; None: all.
        """
        level = [values[members] for members in graph.members]
        there = [None if present is None else present[members] for members in graph.members]
        passes = zip(self.within, level, graph.within, there, strict=True)
        level = [step(v, v, edges, p) for step, v, edges, p in passes]
        for fine, (step, edges) in enumerate(zip(self.up, graph.up, strict=True)):
            level[fine + 1] = step(level[fine + 1], level[fine], edges, there[fine])
        for fine, (step, edges) in reversed(
            list(enumerate(zip(self.down, graph.down, strict=True)))
        ):
            level[fine] = step(level[fine], level[fine + 1], edges, there[fine + 1])
        return torch.cat(level)[graph.restore]
