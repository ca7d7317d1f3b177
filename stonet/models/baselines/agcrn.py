r"""AGCRN: "Adaptive Graph Convolutional Recurrent Network for Traffic Forecasting".

Gated recurrent units on a learned graph, with separate weights for every node; graph and weights
are functions of one embedding E of the nodes,

    A = softmax(ReLU(E E')),    S[x] = (x, A x, 2 A (A x) - x, ...)
    G * x = sum_k S_k[x]_n (E W)_nk + (E b)_n
    z, r = sig(G_1 * [x, h]),  c = tanh(G_2 * [x, z h]),  h' = r h + (1 - r) c

All leads are read from the last state of the last layer. The positions of the points are not used.

References:
    L. Bai, L. Yao, C. Li, X. Wang, C. Wang, NeurIPS 2020.

Deviations:
    - Sizes as in the comparison of the STONet paper: 32 hidden features and embeddings of 4; the
      paper has 64 and 10. That comparison had one embedding per layer and rolled the forecast out;
      here both are as in the paper.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GraphBaseline, Inputs
from stonet.models.forecaster import Supervision
from stonet.system.devices import in_float32

State = Float[Tensor, "node batch hidden"]


class AdaptiveGRU(nn.Module):
    """A layer of gated recurrent units with separate weights for every node.

    The weights of the nodes are computed from their embeddings once for all windows and steps.

    Args:
        inputs: features of x.
        hidden: features of h.
        order: K, terms of the graph convolution.
        embedding: size of E.
    """

    def __init__(self, inputs: int, hidden: int, order: int, embedding: int) -> None:
        super().__init__()
        self.hidden, self.order = hidden, order
        self.input_map = _pool(embedding, order * inputs, 3 * hidden, hidden)  # x to z, r, c
        self.state_map = _pool(embedding, order * hidden, 2 * hidden, hidden)  # h to z, r
        self.reset_map = _pool(embedding, order * hidden, hidden, hidden)  # z h to c
        self.bias = nn.Parameter(torch.zeros(embedding, 3 * hidden))

    def forward(
        self,
        x: Float[Tensor, "past node batch input"],
        nodes: Float[Tensor, "node embedding"],
        graph: Float[Tensor, "node node"],
    ) -> Float[Tensor, "past node batch hidden"]:
        """The states at all steps; the part of x is computed for all steps together.

        Args:
            x: inputs at all steps.
            nodes: E, the embeddings.
            graph: the learned matrix.
        """
        past, count, batch, _ = x.shape
        state_map, reset_map = (
            torch.tensordot(nodes, pool, 1) for pool in (self.state_map, self.reset_map)
        )
        together = x.transpose(0, 1).reshape(count, past * batch, -1)
        gates = _convolve(together, graph, self.order) @ torch.tensordot(nodes, self.input_map, 1)
        gates = gates + (nodes @ self.bias)[:, None]
        split = 2 * self.hidden
        h, states = x.new_zeros(count, batch, self.hidden), []
        for step in gates.unflatten(1, (past, batch)).unbind(1):
            from_state = _convolve(h, graph, self.order) @ state_map
            z, r = torch.sigmoid(step[..., :split] + from_state).chunk(2, dim=-1)
            c = torch.tanh(step[..., split:] + _convolve(z * h, graph, self.order) @ reset_map)
            h = in_float32(torch.lerp)(c, h, r)
            states.append(h)
        return torch.stack(states)


class AGCRN(GraphBaseline[None]):
    """A learned graph and weights for each node; K = 2, 32 hidden features, two layers."""

    raced = ((32, 5e-3), (16, 1e-2))
    supported_settings = frozenset({"embedding", "order"})
    inductive = False  # every node has an embedding

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, order = self.baseline.hidden or 32, self.baseline.order or 2
        embedding, layers = self.baseline.embedding or 4, self.baseline.layers or 2
        inputs = [self.input_width] + [hidden] * (layers - 1)
        self.embedding = nn.Parameter(torch.randn(len(nodes), embedding))
        self.layers = nn.ModuleList(AdaptiveGRU(i, hidden, order, embedding) for i in inputs)
        self.readout = nn.Linear(hidden, self.time_spec.horizon * channels)
        nn.init.zeros_(self.readout.bias)
        nn.init.zeros_(self.readout.weight)  # training starts from the mean, or from the base

    def operators(self, nodes: Points) -> None:
        """The graph is learned, not given."""
        return None

    def forecast_nodes(
        self, inputs: Inputs, operators: None, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """All leads from the last state of the last layer."""
        x = inputs.past.permute(1, 2, 0, 3)  # past node batch feature
        graph = torch.softmax(torch.relu(self.embedding @ self.embedding.T), dim=1)
        for layer in self.layers:
            x = layer(x, self.embedding, graph)
        leads = self.readout(x[-1]).unflatten(-1, (self.time_spec.horizon, self.channels))
        return leads.permute(1, 2, 0, 3)  # from node batch future channel


def _convolve(
    x: Float[Tensor, "node batch feature"], graph: Float[Tensor, "node node"], order: int
) -> Float[Tensor, "node batch terms"]:
    """T_0(A) x ... T_{order-1}(A) x, concatenated."""
    flat = x.reshape(len(x), -1)
    terms = [flat, graph @ flat] if order > 1 else [flat]
    for _ in range(2, order):
        terms.append(2 * (graph @ terms[-1]) - terms[-2])
    return torch.cat([term.view(x.shape) for term in terms], dim=-1)


def _pool(embedding: int, inputs: int, outputs: int, width: int) -> nn.Parameter:
    """Matrices for every feature of an embedding; their sum has the scale of Xavier weights."""
    bound = math.sqrt(6.0 / (inputs + width) / embedding)
    return nn.Parameter(torch.empty(embedding, inputs, outputs).uniform_(-bound, bound))
