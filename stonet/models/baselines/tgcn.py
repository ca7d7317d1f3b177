r"""TGCN: "T-GCN: A Temporal Graph Convolutional Network for Traffic Prediction".

L. Zhao, Y. Song, C. Zhang, Y. Liu, P. Wang, T. Lin, M. Deng, H. Li, 2020: a gated recurrent unit
that sees a graph convolution f of the values instead of the values,

    z, r = sig(W_g [f_g(x), h] + b_g),  c = tanh(W_c [f_c(x), r h] + b_c),  h' = z h + (1 - z) c
    f_g(x) = D^-1/2 (A + I) D^-1/2 x Theta_g + a_g

Deviations: f is one linear layer for each gate (the paper has two layers with a ReLU, one f for
all gates), as in the code that others measure it with; two layers of cells in an encoder and a
decoder (the paper maps one layer's last state to all leads); A is 1 between nearest neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import dense
from stonet.models.baselines.graph_filters import Operator, adjacency, symmetric
from stonet.models.baselines.recurrent import Cell, Recurrent, State
from stonet.system.devices import in_float32


@dataclass(frozen=True)
class Sight:
    """What a cell sees of x, for all three gates: A^ x weight' + bias."""

    operator: Operator
    weight: Float[Tensor, "gates input"]
    bias: Float[Tensor, " gates"]


class TGCNCell(Cell):
    """One step of T-GCN; W_g is kept in two halves, for f_g(x) and for h."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.convolve = dense(inputs, hidden, maps=3)  # Theta and a, for z, r, c
        self.see = nn.Parameter(torch.stack([dense(hidden, hidden).weight for _ in range(3)]))
        self.keep = dense(hidden, hidden, maps=2)  # h to z, r
        self.renew = dense(hidden, hidden)  # r h to c
        nn.init.ones_(self.keep.bias)  # states begin as long memories

    def prepare(self, operators: Operator) -> Sight:
        """W_g f_g(x) is linear in x: its matrices are multiplied once, not with every x."""
        hidden = self.see.shape[1]
        theta = self.convolve.weight.view(3, hidden, -1)
        bias = self.see @ self.convolve.bias.view(3, hidden, 1)
        return Sight(operators, (self.see @ theta).flatten(0, 1), bias.flatten())

    def forward(self, x: Float[Tensor, "node batch input"], h: State, operators: Any) -> State:
        sight: Sight = operators
        seen = linear(sight.operator(x), sight.weight, sight.bias)
        split = 2 * h.shape[-1]
        z, r = torch.sigmoid(seen[..., :split] + self.keep(h)).chunk(2, dim=-1)
        c = torch.tanh(seen[..., split:] + self.renew(r * h))
        return in_float32(torch.lerp)(c, h, z)


class TGCN(Recurrent):
    """Graph convolutions in front of gated recurrent units; 128 hidden features, two layers."""

    lr = 2e-3
    understands = frozenset({"legacy"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes, TGCNCell, hidden=128, layers=2)

    def operators(self, nodes: Points) -> Operator:
        """GCN's matrix, D^-1/2 (A + I) D^-1/2."""
        a = symmetric(adjacency(nodes, self.near), loops=True)
        return Operator.of(a, *self._where)
