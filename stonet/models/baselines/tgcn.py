r"""TGCN: "T-GCN: A Temporal Graph Convolutional Network for Traffic Prediction".

A gated recurrent unit whose input is a graph convolution f of the values,

    z, r = sig(W_g [f_g(x), h] + b_g),  c = tanh(W_c [f_c(x), r h] + b_c),  h' = z h + (1 - z) c
    f_g(x) = D^-1/2 (A + I) D^-1/2 x Theta_g + a_g

References:
    L. Zhao, Y. Song, C. Zhang, Y. Liu, P. Wang, T. Lin, M. Deng, H. Li, IEEE Transactions on
    Intelligent Transportation Systems, 2020.

Deviations:
    - f is one linear layer for each gate, as in the code of later comparisons; the paper has two
      layers with a ReLU, the same f for all gates.
    - Two layers of cells in an encoder and a decoder; the paper maps the last state of one layer to
      all leads.
    - A is 1 between nearest neighbours.
    - Those of `recurrent.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class GateInputs:
    """W_g f_g(x) for all three gates, as one map: A^ x weight' + bias.

    Args:
        operator: A^, the normalised adjacency.
        weight: of all gates.
        bias: of all gates.
    """

    operator: Operator
    weight: Float[Tensor, "gates input"]
    bias: Float[Tensor, " gates"]


class TGCNCell(Cell[Operator, GateInputs]):
    """One step of T-GCN; W_g is stored in two parts, for f_g(x) and for h.

    Args:
        inputs: features of x.
        hidden: features of h.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.convolve = dense(inputs, hidden, maps=3)  # Theta and a, for z, r, c
        self.input_map = nn.Parameter(torch.stack([dense(hidden, hidden).weight for _ in range(3)]))
        self.state_map = dense(hidden, hidden, maps=2)  # h to z, r
        self.reset_map = dense(hidden, hidden)  # r h to c
        nn.init.ones_(self.state_map.bias)  # initially, states change slowly

    def prepare(self, operators: Operator) -> GateInputs:
        """W_g f_g(x) is linear in x: its matrices are multiplied once per forecast."""
        hidden = self.input_map.shape[1]
        theta = self.convolve.weight.view(3, hidden, -1)
        bias = self.input_map @ self.convolve.bias.view(3, hidden, 1)
        return GateInputs(operators, (self.input_map @ theta).flatten(0, 1), bias.flatten())

    def forward(
        self, x: Float[Tensor, "node batch input"], h: State, operators: GateInputs
    ) -> State:
        """The next state."""
        gates = linear(operators.operator(x), operators.weight, operators.bias)
        split = 2 * h.shape[-1]
        z, r = torch.sigmoid(gates[..., :split] + self.state_map(h)).chunk(2, dim=-1)
        c = torch.tanh(gates[..., split:] + self.reset_map(r * h))
        return in_float32(torch.lerp)(c, h, z)


class TGCN(Recurrent[Operator]):
    """Graph convolutions in front of gated recurrent units; 128 hidden features, two layers."""

    lr = 2e-3
    raced = ((128, 2e-3), (32, 1e-2), (16, 1e-2))
    supported_settings = frozenset({"legacy"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes, TGCNCell, hidden=128, layers=2)

    def operators(self, nodes: Points) -> Operator:
        """D^-1/2 (A + I) D^-1/2, the matrix of GCN."""
        a = symmetric(adjacency(nodes, self.num_neighbours), loops=True)
        return Operator.of(a, *self._device_dtype)
