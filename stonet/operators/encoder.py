r"""The graph kernel encoder: each frame is mapped to a solution representation v_enc.

    e_t  = [sin(w_1 t), cos(w_1 t), ...]                      time embedding, w learned
    a_t(x) = MLP([x, e_t])                                    parametric function
    (K v)(x) = sigma( W v(x) + mean_{x_j in N(x)} kappa(a_t(x), a_t(x_j), x, x_j) v(x_j) )

applied within each level, then from fine to coarse, then from coarse to fine.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from stonet.config import KernelConfig
from stonet.graph.multipole import MultipoleGraph
from stonet.graph.neighbours import Describe, Neighbours, edge_width
from stonet.operators.graph_kernel import GraphKernel
from stonet.system.devices import in_float32


class TimeEmbedding(nn.Module):
    """e_t = [sin(w t), cos(w t)] with learned w, where t is a vector of time features.

    Args:
        features: time features, each of order one.
        frequencies: sines and cosines.
    """

    def __init__(self, features: int, frequencies: int) -> None:
        super().__init__()
        self.width = 2 * frequencies if features else 0
        harmonics = torch.zeros(features, frequencies)
        for k in range(frequencies if features else 0):  # whole periods, feature by feature
            harmonics[k % features, k] = 2 * math.pi * (k // features + 1)
        self.frequencies = nn.Parameter(harmonics) if features else None

    @in_float32  # an angle of many turns has one digit after the point in bf16
    def forward(self, time: Float[Tensor, "... feature"]) -> Float[Tensor, "... embedding"]:
        """e_t; t itself without features.

        Args:
            time: t.
        """
        if self.frequencies is None:
            return time
        angle = time @ self.frequencies
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """A feed-forward network with one hidden layer and GELU.

    Args:
        inputs: width of the input.
        hidden: hidden units.
        outputs: width of the result.
    """
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class ParametricFunction(nn.Module):
    """a_t(x) = MLP([x, e_t]): what the kernels know of a place and a time.

    Args:
        dimension: of the coordinates.
        features: of a time.
        config: sizes.
    """

    def __init__(self, dimension: int, features: int, config: KernelConfig) -> None:
        super().__init__()
        self.embedding = TimeEmbedding(features, config.frequencies)
        width = dimension + self.embedding.width
        self.network = mlp(width, config.latent, config.parametric)

    def forward(
        self, time: Float[Tensor, "frame feature"], position: Float[Tensor, "node m"]
    ) -> Float[Tensor, "kernel node output"]:
        """a_t(x) at every time and place; one row for all times without features.

        Args:
            time: features of each frame.
            position: embedded coordinates.
        """
        rows = len(time) if self.embedding.width else 1
        embedded = self.embedding(time)[:rows, None].expand(-1, len(position), -1)
        return self.network(torch.cat([position.expand(rows, -1, -1), embedded], dim=-1))


class KernelOperator(nn.Module):
    """K: values on one set of points to new values on another (or the same) set.

        y = W v + (kernel integral),    K v = sigma(y)

    With `linear_path` there is a bias in y, and the result is v + y + sigma(y), which is close to v
    at the start of training.

    Args:
        inputs: features of a node.
        config: sizes and the form of the kernel.
    """

    def __init__(self, inputs: int, config: KernelConfig) -> None:
        super().__init__()
        edge = edge_width(encoder_edges(config), 0)
        self.kernel = GraphKernel(inputs, edge, config.latent, config.hidden, config.kernel)
        self.own = nn.Linear(config.latent, config.latent, bias=config.linear_path)  # W
        self.linear_path = config.linear_path
        if config.linear_path:
            with torch.no_grad():
                self.own.weight.mul_(0.1)
                self.kernel.weight.mul_(0.1)

    def forward(
        self,
        values: Float[Tensor, "frame target latent"],
        sources: Float[Tensor, "frame source latent"],
        target: Float[Tensor, "kernel target input"],
        source: Float[Tensor, "kernel source input"],
        neighbours: Neighbours,
        present: Bool[Tensor, "frame source"] | None,
    ) -> Float[Tensor, "frame target latent"]:
        """K v at the targets.

        Args:
            values: v at the targets.
            sources: v at the sources.
            target: features of the targets.
            source: features of the sources.
            neighbours: the edges.
            present: which sources have a value; None: all.
        """
        y = self.own(values) + self.kernel(sources, target, source, neighbours, present)
        return values + y + gelu(y) if self.linear_path else gelu(y)


def encoder_edges(config: KernelConfig) -> Describe:
    """The edge features of the encoder: none where its kernels see both places themselves.

    Args:
        config: of the encoder.
    """
    return "sharp" if config.edges == "sharp" else "nothing"


class EncoderLayer(nn.Module):
    """One pass over the levels: within each, then up to coarser, then down to finer levels.

    Args:
        inputs: width of a_t(x).
        levels: of the multipole graph.
        config: of the encoder.
    """

    def __init__(self, inputs: int, levels: int, config: KernelConfig) -> None:
        super().__init__()
        self.within = nn.ModuleList(KernelOperator(inputs, config) for _ in range(levels))
        self.up = nn.ModuleList(KernelOperator(inputs, config) for _ in range(levels - 1))
        self.down = nn.ModuleList(KernelOperator(inputs, config) for _ in range(levels - 1))

    def forward(
        self,
        values: list[Float[Tensor, "frame _ latent"]],
        inputs: list[Float[Tensor, "kernel _ input"]],
        present: list[Bool[Tensor, "frame _"] | None],
        graph: MultipoleGraph,
    ) -> list[Float[Tensor, "frame _ latent"]]:
        """New values on every level; all lists are ordered from fine to coarse.

        Args:
            values: v on each level.
            inputs: a_t(x) on each level.
            present: whether a node has a value; None: all have.
            graph: edges of the encoder.
        """
        values = [
            operator(v, v, a, a, edges, p)
            for operator, v, a, p, edges in zip(
                self.within, values, inputs, present, graph.within, strict=True
            )
        ]
        for fine, (operator, edges) in enumerate(zip(self.up, graph.up, strict=True)):
            here, there = fine + 1, fine
            values[here] = operator(
                values[here], values[there], inputs[here], inputs[there], edges, present[there]
            )
        pairs = list(enumerate(zip(self.down, graph.down, strict=True)))
        for fine, (operator, edges) in reversed(pairs):
            here, there = fine, fine + 1
            values[here] = operator(
                values[here], values[there], inputs[here], inputs[there], edges, present[there]
            )
        return values


class MultipoleEncoder(nn.Module):
    """Layers of the multipole graph kernel operator, for any number of points.

    Args:
        dimension: of the coordinates.
        features: time features of a frame.
        levels: of the multipole graph.
        config: sizes and the form of the kernels.
    """

    def __init__(self, dimension: int, features: int, levels: int, config: KernelConfig) -> None:
        super().__init__()
        self.sees_place = config.edges != "sharp"  # kappa(a(x), a(x_j), x, x_j), as in the paper
        self.parametric = ParametricFunction(dimension, features, config)
        inputs = config.parametric + (dimension if self.sees_place else 0)
        self.layers = nn.ModuleList(
            EncoderLayer(inputs, levels, config) for _ in range(config.layers)
        )

    def forward(
        self,
        values: Float[Tensor, "frame node latent"],
        time: Float[Tensor, "frame feature"],
        position: Float[Tensor, "node m"],
        present: Bool[Tensor, "frame node"] | None,
        graph: MultipoleGraph,
    ) -> Float[Tensor, "frame node latent"]:
        """v_enc of every frame; without time features all frames share one kernel.

        Args:
            values: lifted frames.
            time: time features of the frames.
            position: of the nodes.
            present: which nodes have a value in a frame; None: all.
            graph: the levels and their edges.
        """
        inputs = self.parametric(time, position)
        if self.sees_place:
            inputs = torch.cat([inputs, position.expand(len(inputs), -1, -1)], dim=-1)
        by_level = [values[:, members] for members in graph.members]
        inputs_by_level = [inputs[:, members] for members in graph.members]
        present_by_level = [None if present is None else present[:, m] for m in graph.members]
        for layer in self.layers:
            by_level = layer(by_level, inputs_by_level, present_by_level, graph)
        return torch.cat(by_level, dim=1)[:, graph.restore]
