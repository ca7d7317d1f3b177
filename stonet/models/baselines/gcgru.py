r"""GCGRU: "Structured Sequence Modeling with Graph Convolutional Recurrent Networks".

A gated recurrent unit (the paper's GConvGRU) whose matrices are Chebyshev filters of the graph
Laplacian,

    W * x = sum_{k<K} T_k(L~) x W_k,    L~ = 2 L / lambda_max - I,    L = I - D^-1/2 A D^-1/2
    z, r = sig(W * x + U * h + b),  c = tanh(V * x + V' * (r h) + d),  h' = z h + (1 - z) c

References:
    Y. Seo, M. Defferrard, P. Vandergheynst, X. Bresson, ICONIP 2018.

Deviations:
    - lambda_max is 2, its upper bound, so that no eigenvalue is needed.
    - An encoder and a decoder for several steps; the paper forecasts one step and gives only its
      LSTM in full.
    - A is 1 between nearest neighbours.
    - Those of `recurrent.py`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.graph_filters import Operator, adjacency, chebyshev, laplacian
from stonet.models.baselines.recurrent import GraphGRU, Recurrent


class GCGRU(Recurrent[Operator]):
    """Chebyshev filters in gated recurrent units; K = 3, 64 hidden features, two layers."""

    lr = 2e-3
    raced = ((64, 2e-3), (32, 5e-3), (16, 1e-2))
    supported_settings = frozenset({"legacy", "order"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        order = config.baseline.order or 3

        def convolve(
            x: Float[Tensor, "node batch feature"], operator: Operator
        ) -> Float[Tensor, "node batch terms"]:
            return torch.cat(chebyshev(operator, x, order), dim=-1)

        def cell(inputs: int, hidden: int) -> GraphGRU[Operator]:
            return GraphGRU(inputs, hidden, order, convolve, two_biases=True)

        super().__init__(config, time_spec, channels, nodes, cell, hidden=64, layers=2)

    def operators(self, nodes: Points) -> Operator:
        """The scaled Laplacian L~."""
        return Operator.of(laplacian(adjacency(nodes, self.num_neighbours)), *self._device_dtype)
