r"""AGCRN: "Adaptive Graph Convolutional Recurrent Network for Traffic Forecasting".

L. Bai, L. Yao, C. Li, X. Wang, C. Wang, 2020: gated recurrent units on a graph that is learned, as
are weights of its own for every node; both come from one embedding E of the nodes,

    A = softmax(ReLU(E E')),    S[x] = (x, A x, 2 A (A x) - x, ...)
    G * x = sum_k S_k[x]_n (E W)_nk + (E b)_n
    z, r = sig(G_1 * [x, h]),  c = tanh(G_2 * [x, z h]),  h' = r h + (1 - r) c

All leads are read at once from the last layer's last state. Where points are is not used.

Deviations: sizes as in STONet's comparison (32 hidden features, embeddings of 4; the paper has 64
and 10). There, the layers had embeddings of their own and the forecast was rolled out; here both
are as in the paper.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GridForecaster, Inputs
from stonet.models.forecaster import Supervision
from stonet.system.devices import in_float32

State = Float[Tensor, "node batch hidden"]


class AdaptiveGRU(nn.Module):
    """A layer: gated recurrent units with weights of their own for every node.

    The nodes' weights are made from their embeddings once for all windows and steps.
    """

    def __init__(self, inputs: int, hidden: int, order: int, embedding: int) -> None:
        super().__init__()
        self.hidden, self.order = hidden, order
        self.see = _pool(embedding, order * inputs, 3 * hidden, hidden)  # x to z, r, c
        self.keep = _pool(embedding, order * hidden, 2 * hidden, hidden)  # h to z, r
        self.renew = _pool(embedding, order * hidden, hidden, hidden)  # z h to c
        self.bias = nn.Parameter(torch.zeros(embedding, 3 * hidden))

    def forward(
        self,
        x: Float[Tensor, "past node batch input"],
        nodes: Float[Tensor, "node embedding"],
        graph: Float[Tensor, "node node"],
    ) -> Float[Tensor, "past node batch hidden"]:
        """All states; what comes from x is computed for all steps at once."""
        past, count, batch, _ = x.shape
        keep, renew = (torch.tensordot(nodes, pool, 1) for pool in (self.keep, self.renew))
        together = x.transpose(0, 1).reshape(count, past * batch, -1)
        seen = _spread(together, graph, self.order) @ torch.tensordot(nodes, self.see, 1)
        seen = seen + (nodes @ self.bias)[:, None]
        split = 2 * self.hidden
        h, states = x.new_zeros(count, batch, self.hidden), []
        for step in seen.unflatten(1, (past, batch)).unbind(1):
            gates = torch.sigmoid(step[..., :split] + _spread(h, graph, self.order) @ keep)
            z, r = gates.chunk(2, dim=-1)
            c = torch.tanh(step[..., split:] + _spread(z * h, graph, self.order) @ renew)
            h = in_float32(torch.lerp)(c, h, r)
            states.append(h)
        return torch.stack(states)


class AGCRN(GridForecaster):
    """A learned graph and weights for each node; K = 2, 32 hidden features, two layers."""

    understands = frozenset({"embedding", "order"})

    inductive = False  # every node has an embedding

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, order = self.baseline.hidden or 32, self.baseline.order or 2
        embedding, layers = self.baseline.embedding or 4, self.baseline.layers or 2
        inputs = [channels + self.extra] + [hidden] * (layers - 1)
        self.embedding = nn.Parameter(torch.randn(len(nodes), embedding))
        self.layers = nn.ModuleList(AdaptiveGRU(i, hidden, order, embedding) for i in inputs)
        self.readout = nn.Linear(hidden, self.time_spec.horizon * channels)
        nn.init.zeros_(self.readout.bias)
        nn.init.zeros_(self.readout.weight)  # training starts from the mean, or from the base

    def operators(self, nodes: Points) -> None:
        """The graph is learned, not given."""
        return None

    def roll(
        self, inputs: Inputs, operators: None, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        x = inputs.past.permute(1, 2, 0, 3)  # past node batch feature
        graph = torch.softmax(torch.relu(self.embedding @ self.embedding.T), dim=1)
        for layer in self.layers:
            x = layer(x, self.embedding, graph)
        leads = self.readout(x[-1]).unflatten(-1, (self.time_spec.horizon, self.channels))
        return leads.permute(1, 2, 0, 3)  # from node batch future channel


def _spread(
    x: Float[Tensor, "node batch feature"], graph: Float[Tensor, "node node"], order: int
) -> Float[Tensor, "node batch terms"]:
    """T_0(A) x ... T_{order-1}(A) x, side by side."""
    flat = x.reshape(len(x), -1)
    terms = [flat, graph @ flat] if order > 1 else [flat]
    for _ in range(2, order):
        terms.append(2 * (graph @ terms[-1]) - terms[-2])
    return torch.cat([term.view(x.shape) for term in terms], dim=-1)


def _pool(embedding: int, inputs: int, outputs: int, width: int) -> nn.Parameter:
    """Matrices for every feature of an embedding, which together give a node Xavier's weights."""
    bound = math.sqrt(6.0 / (inputs + width) / embedding)
    return nn.Parameter(torch.empty(embedding, inputs, outputs).uniform_(-bound, bound))
