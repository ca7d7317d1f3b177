r"""ASTGCN: "Attention Based Spatial-Temporal Graph Convolutional Networks for Traffic Flow ...".

Blocks as in MSTGCN with attention over steps and over nodes, which depends on the sample:

    E = softmax(V_e sig((X' U_1) U_2 (U_3 X) + b_e)),   X^ = X E                     over steps
    S = softmax(V_s sig((X^ W_1) W_2 (W_3 X^)' + b_s))                               over nodes
    g_t = ReLU(sum_{k<K} (T_k(L~) . S) x_t Theta_k + b)

where . is the element-wise product, and each softmax sums to 1 over the index that is then summed.

V_s and b_s have N² entries each, and S is N x N for every sample: V_s sig(...) alone costs N³
multiplications per sample, 0.13 billion for 512 nodes and 8.6 billion for 2048. T_k . S is as
sparse as T_k, but a dense product is no slower than one over edges.

References:
    S. Guo, Y. Lin, N. Feng, C. Song, H. Wan, AAAI 2019.

Deviations:
    - Those of MSTGCN.
    - One block of 64 features; the paper has two.
    - The attention over steps acts through S only, as in the authors' code.
    - S is multiplied by N, so that uniform attention is MSTGCN. Otherwise g starts 1/N times too
      small and little is learned through it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GraphBaseline, Inputs, dense
from stonet.models.baselines.convolutional import ConvBlock, States, by_node, split_leads, strides
from stonet.models.baselines.graph_filters import adjacency, plain_laplacian
from stonet.models.forecaster import Supervision

Filters = Float[Tensor, "order target source"]  # T_0, T_1, ... of the scaled Laplacian, dense


class Attention(nn.Module):
    """N S of each sample, from its states at all nodes and steps.

    Args:
        nodes: N.
        steps: time steps of the states.
        features: of a state.
    """

    def __init__(self, nodes: int, steps: int, features: int) -> None:
        super().__init__()
        self.u1, self.u2, self.u3 = weight(nodes), weight(features, nodes), weight(features)
        self.ve, self.be = weight(steps, steps), weight(steps, steps)
        self.w1, self.w2, self.w3 = weight(steps), weight(features, steps), weight(features)
        self.vs, self.bs = weight(nodes, nodes), weight(nodes, nodes)

    def forward(self, x: States) -> Float[Tensor, "target batch source"]:
        """The attention over nodes.

        Args:
            x: states at all nodes and steps.
        """
        x = torch.einsum("nbtf,bts->nbsf", x, self.over_steps(x))
        left = torch.einsum("nbtf,t->nbf", x, self.w1) @ self.w2  # node batch time
        scores = torch.einsum("nbt,mbt->nbm", left, x @ self.w3) + self.bs[:, None]
        mixed = self.vs @ torch.sigmoid(scores).flatten(1)  # all samples in one product
        return len(x) * torch.softmax(mixed.view(scores.shape), dim=2)

    def over_steps(self, x: States) -> Float[Tensor, "batch source target"]:
        """E: the attention over steps.

        Args:
            x: states at all nodes and steps.
        """
        left = torch.einsum("nbtf,n->btf", x, self.u1) @ self.u2  # batch time node
        scores = torch.einsum("btn,nbs->bts", left, x @ self.u3) + self.be
        return torch.softmax(self.ve @ torch.sigmoid(scores), dim=1)


class ASTGCN(GraphBaseline[Filters]):
    """Chebyshev filters under attention; K = 3, one block of 64 features."""

    lr = 1e-2
    raced = ((64, 1e-2), (64, 3e-3), (32, 1e-2))
    supported_settings = frozenset({"order"})
    inductive = False  # V_s, b_s, U_1 and U_2 belong to nodes

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, blocks = self.baseline.hidden or 64, self.baseline.layers or 1
        self.order = self.baseline.order or 3
        inputs, steps = self.input_width, self.time_spec.past
        self.attentions, self.blocks = nn.ModuleList(), nn.ModuleList()
        for stride in strides(self.time_spec.past, blocks):
            self.attentions.append(Attention(len(nodes), steps, inputs))
            self.blocks.append(ConvBlock(inputs, hidden, self.order, stride))
            inputs, steps = hidden, (steps - 1) // stride + 1
        self.readout = dense(steps * hidden, self.time_spec.horizon * channels)
        if self.base is not None:
            nn.init.zeros_(self.readout.weight)  # training starts from the base

    def operators(self, nodes: Points) -> Filters:
        """T_0(L~), T_1(L~), ..., dense."""
        scaled = plain_laplacian(adjacency(nodes, self.num_neighbours)).toarray()
        filters = [torch.eye(len(nodes), dtype=torch.float64), torch.from_numpy(scaled)]
        while len(filters) < self.order:
            filters.append(2 * filters[1] @ filters[-1] - filters[-2])
        return torch.stack(filters[: self.order]).to(*self._device_dtype)

    def forecast_nodes(
        self, inputs: Inputs, operators: Filters, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """All leads by a linear map of the last block's states."""
        x = by_node(inputs)
        for attention, block in zip(self.attentions, self.blocks, strict=True):
            x = block(x, filtered(x, operators, attention(x)))
        return split_leads(self.readout(x.flatten(2)), self.channels)


def filtered(
    x: States, filters: Filters, attention: Float[Tensor, "target batch source"]
) -> list[States]:
    """(T_k . S) x for every k, where S differs between samples.

    Args:
        x: states.
        filters: T_k as dense matrices.
        attention: S.
    """
    own = attention.diagonal(dim1=0, dim2=2).T[..., None, None]  # node batch 1 1: T_0 is I
    sources = x.transpose(0, 1).flatten(2)  # batch node window
    others = [
        ((t[:, None] * attention).transpose(0, 1) @ sources).transpose(0, 1).reshape(x.shape)
        for t in filters[1:]
    ]
    return [own * x, *others]


def weight(*shape: int) -> nn.Parameter:
    """A parameter with Xavier initial values; a vector counts as a matrix of one column.

    Args:
        *shape: of the parameter.
    """
    drawn = torch.empty(shape if len(shape) > 1 else (*shape, 1))
    return nn.Parameter(nn.init.xavier_uniform_(drawn).view(shape))
