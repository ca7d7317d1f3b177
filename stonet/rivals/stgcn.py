r"""STGCN: "Spatio-Temporal Graph Convolutional Networks: A Deep Learning Framework for ...".

B. Yu, H. Yin, Z. Zhu, 2018.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from stonet.clock import Clock
from stonet.config import Config
from stonet.forecaster import Lesson
from stonet.geometry import Points
from stonet.rivals.common import GridForecaster, Inputs
from stonet.rivals.recurrent import dense
from stonet.rivals.sparse import Operator, adjacency, chebyshev, laplacian
from stonet.rivals.temporal import States, by_node, stretches, unpacked
import os
V = os.environ.get("V", "norm")

class GatedConv(nn.Module):
    """P sig(Q) + R, three convolutions over time."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.maps = dense(width * inputs, outputs, maps=3)

    def forward(self, x: States) -> States:
        p, q, r = self.maps(stretches(x, self.width)).chunk(3, dim=-1)
        return p * torch.sigmoid(q) + r


class NodeNorm(nn.Module):
    """Normalised over all steps and features of a sample's node; a gain and a bias per node."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(nodes))
        self.bias = nn.Parameter(torch.zeros(nodes))

    def forward(self, x: States) -> States:
        if V == "norm" : x = layer_norm(x, x.shape[2:])
        elif V == "feat": x = layer_norm(x, x.shape[3:])
        elif V == "all": x = layer_norm(x.permute(1,0,2,3), (x.shape[0], *x.shape[2:])).permute(1,0,2,3)
        gain, bias = (w[:, None, None, None] for w in (self.gain, self.bias))
        return x * gain + bias


class Block(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int, order: int, width: int, nodes: int) -> None:
        super().__init__()
        self.order = order
        self.before = GatedConv(inputs, hidden, width)
        self.space = dense(order * hidden, hidden)
        self.norm = NodeNorm(nodes)
        self.after = GatedConv(hidden, outputs, width)

    def forward(self, x: States, operator: Operator) -> States:
        x = torch.relu(self.before(x))
        x = torch.relu(self.space(torch.cat(chebyshev(operator, x, self.order), dim=-1)))
        if V == "out": return self.norm(self.after(x))
        return self.after(self.norm(x))


class STGCN(GridForecaster):
    inductive = False  # gains and biases belong to nodes

    def __init__(self, config: Config, clock: Clock, channels: int, nodes: Points) -> None:
        super().__init__(config, clock, channels, nodes)
        hidden, blocks, order = self.rival.hidden or 128, self.rival.layers or 1, self.rival.order or 3
        width = (clock.past - 1) // (2 * blocks) + 1
        self.reach = 2 * blocks * (width - 1) + 1
        inputs = [channels + self.extra] + [hidden] * (blocks - 1)
        outputs = [hidden] * (blocks - 1) + [clock.horizon * channels]
        self.blocks = nn.ModuleList(
            Block(i, hidden, o, order, width, len(nodes)) for i, o in zip(inputs, outputs, strict=True)
        )

    def operators(self, nodes: Points) -> Operator:
        """The scaled Laplacian L~."""
        return Operator.of(laplacian(adjacency(nodes, self.rival.neighbours)), *self._where)

    def roll(
        self, inputs: Inputs, operators: Operator, lesson: Lesson | None
    ) -> Float[Tensor, "batch future node channel"]:
        x = by_node(inputs)[:, :, -self.reach :]
        for number, block in enumerate(self.blocks):
            x = block(x if number == 0 else torch.relu(x), operators)
        return unpacked(x[:, :, 0], self.channels)
