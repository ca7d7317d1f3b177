r"""DCRNN: "Diffusion Convolutional Recurrent Neural Network: Data-Driven Traffic Forecasting".

A gated recurrent unit whose matrices are diffusions along and against the edges, in an encoder and
a decoder with scheduled sampling,

    W * x = sum_{k<K} (D_O^-1 A)^k x W_k1 + (D_I^-1 A')^k x W_k2
    r, u = sig(W * [x, h] + b),  c = tanh(V * [x, r h] + d),  h' = u h + (1 - u) c

The graph is directed: in a symmetric graph both diffusions would be equal.

References:
    Y. Li, R. Yu, C. Shahabi, Y. Liu, ICLR 2018.

Deviations:
    - One matrix for the term k = 0, as in the authors' code; the formula has two, whose sum acts.
    - Edges of weight 1 from each point to its nearest ones; the paper has Gaussian weights of road
      distances.
    - Those of `recurrent.py`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from torch import Tensor

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.graph_filters import Operator, directed, powers, random_walk
from stonet.models.baselines.recurrent import GraphGRU, Recurrent

Walks = tuple[Operator, Operator]  # along the edges, against them


class DCRNN(Recurrent[Walks]):
    """Diffusions in gated recurrent units; two steps (K = 3), 64 hidden features, two layers."""

    lr = 2e-3
    raced = ((64, 2e-3), (32, 5e-3), (16, 1e-2))
    supported_settings = frozenset({"legacy", "order"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        order = config.baseline.order or 3

        def convolve(
            x: Float[Tensor, "node batch feature"], walks: Walks
        ) -> Float[Tensor, "node batch terms"]:
            along, against = (powers(walk, x, order)[1:] for walk in walks)
            return torch.cat([x, *along, *against], dim=-1)

        def cell(inputs: int, hidden: int) -> GraphGRU[Walks]:
            return GraphGRU(inputs, hidden, 2 * order - 1, convolve)

        super().__init__(config, time_spec, channels, nodes, cell, hidden=64, layers=2)

    def operators(self, nodes: Points) -> Walks:
        """D_O^-1 A and D_I^-1 A'."""
        a = directed(nodes, self.num_neighbours)
        along, against = (
            Operator.of(random_walk(b), *self._device_dtype) for b in (a, csr_array(a.T))
        )
        return along, against
