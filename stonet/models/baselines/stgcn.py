r"""STGCN: "Spatio-Temporal Graph Convolutional Networks: A Deep Learning Framework for ...".

Convolutions only. A block is a gated convolution over time, one over the graph, and one over time
again,

    gated(x) = P(x) sig(Q(x)) + R(x),      P, Q, R convolutions of width w, without padding
    y = norm(gated(ReLU(sum_{k<K} T_k(L~) ReLU(gated(x)) Theta_k + b)))

with L~ = 2 L / lambda_max - I and L = I - D^-1/2 A D^-1/2. The last convolution gives all leads.

References:
    B. Yu, H. Yin, Z. Zhu, IJCAI 2018.

Deviations:
    - One block of 128 features with convolutions of width 6 for 12 steps, as in the benchmark that
      the sizes of the baselines come from; with baseline.layers=2 the width is 3, as in the paper.
    - All leads at once; the paper feeds one step back.
    - R has weights; in the paper it is x, padded.
    - lambda_max is 2, its upper bound.
    - A is 1 between nearest neighbours.
    - The norm is a gain and a bias for each node, as the batch norm of the benchmark is after
      training. Batch statistics would mix samples, and statistics of one sample remove the level of
      the field (larger errors on PV and on Wave).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GraphBaseline, Inputs, dense
from stonet.models.baselines.convolutional import Slots, States, by_node, split_leads, time_windows
from stonet.models.baselines.graph_filters import Operator, adjacency, chebyshev, laplacian
from stonet.models.forecaster import Supervision


class GatedConv(nn.Module):
    """P(x) sig(Q(x)) + R(x) of each `width` consecutive steps.

    Args:
        inputs: features of x.
        outputs: features of the result.
        width: steps of a convolution.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.maps = dense(width * inputs, outputs, maps=3)

    def forward(self, x: States) -> Slots:
        """The gated convolution, without padding.

        Args:
            x: states.
        """
        p, q, r = self.maps(time_windows(x, self.width)).chunk(3, dim=-1)
        return p * torch.sigmoid(q) + r


class Block(nn.Module):
    """Convolutions over time, graph and time, then a gain and a bias for each node.

    Args:
        widths: features before, within and after the block.
        order: K.
        width: steps of a convolution.
        nodes: number of nodes.
    """

    def __init__(self, widths: tuple[int, int, int], order: int, width: int, nodes: int) -> None:
        super().__init__()
        inputs, hidden, outputs = widths
        self.order = order
        self.before = GatedConv(inputs, hidden, width)
        self.space = dense(order * hidden, hidden)
        self.after = GatedConv(hidden, outputs, width)
        self.gain = nn.Parameter(torch.ones(nodes, 1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(nodes, 1, 1, 1))

    def forward(self, x: States, operator: Operator) -> Slots:
        """The block before its last activation.

        Args:
            x: states.
            operator: the scaled Laplacian.
        """
        x = torch.relu(self.before(x))
        x = torch.relu(self.space(torch.cat(chebyshev(operator, x, self.order), dim=-1)))
        return self.after(x) * self.gain + self.bias


class STGCN(GraphBaseline[Operator]):
    """Gated convolutions around a Chebyshev filter; K = 3, one block of 128 features."""

    raced = ((128, 5e-3), (32, 1e-2), (32, 3e-3))
    supported_settings = frozenset({"order"})
    inductive = False  # gains and biases belong to nodes

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, blocks = self.baseline.hidden or 128, self.baseline.layers or 1
        order = self.baseline.order or 3
        width = (self.time_spec.past - 1) // (2 * blocks) + 1  # the largest that fits the past
        self.used_steps = 2 * blocks * (width - 1) + 1  # newest steps that the forecast uses
        between = [hidden] * (blocks - 1)
        inputs = [self.input_width, *between]
        outputs = [*between, self.time_spec.horizon * channels]
        stack = [
            Block((a, hidden, b), order, width, len(nodes))
            for a, b in zip(inputs, outputs, strict=True)
        ]
        if self.base is not None:
            nn.init.zeros_(stack[-1].after.maps.weight)  # training starts from the base
        self.blocks = nn.ModuleList(stack)

    def operators(self, nodes: Points) -> Operator:
        """The scaled Laplacian L~."""
        return Operator.of(laplacian(adjacency(nodes, self.num_neighbours)), *self._device_dtype)

    def forecast_nodes(
        self, inputs: Inputs, operators: Operator, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """All leads from the last slot of the last block."""
        x = by_node(inputs)[:, :, -self.used_steps :]
        for block in self.blocks[:-1]:
            x = torch.relu(block(x, operators))
        return split_leads(self.blocks[-1](x, operators)[:, :, 0], self.channels)
