r"""GCGRU: "Structured Sequence Modeling with Graph Convolutional Recurrent Networks".

Y. Seo, M. Defferrard, P. Vandergheynst, X. Bresson, 2018: a gated recurrent unit (their GConvGRU)
whose matrices are Chebyshev filters of the graph Laplacian,

    W * x = sum_{k<K} T_k(L~) x W_k,    L~ = 2 L / lambda_max - I,    L = I - D^-1/2 A D^-1/2
    z, r = sig(W * x + U * h + b),  c = tanh(V * x + V' * (r h) + d),  h' = z h + (1 - z) c

Deviations: lambda_max is taken as 2, its upper bound, so that no eigenvalue is needed; the paper
only shows the LSTM in full and forecasts one step, here an encoder and a decoder go on; A is 1
between nearest neighbours.
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


class GCGRU(Recurrent):
    """Chebyshev filters in gated recurrent units; K = 3, 64 hidden features, two layers."""

    lr = 2e-3
    understands = frozenset({"legacy", "order"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        order = config.baseline.order or 3

        def spread(
            x: Float[Tensor, "node batch feature"], operator: Operator
        ) -> Float[Tensor, "node batch terms"]:
            return torch.cat(chebyshev(operator, x, order), dim=-1)

        def cell(inputs: int, hidden: int) -> GraphGRU:
            return GraphGRU(inputs, hidden, order, spread, two_biases=True)

        super().__init__(config, time_spec, channels, nodes, cell, hidden=64, layers=2)

    def operators(self, nodes: Points) -> Operator:
        """The scaled Laplacian L~."""
        return Operator.of(laplacian(adjacency(nodes, self.near)), *self._where)
