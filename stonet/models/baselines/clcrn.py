r"""CLCRN: "Conditional Local Convolution for Spatio-Temporal Meteorological Forecasting".

H. Lin, Z. Gao, Y. Xu, L. Wu, L. Li, S. Z. Li, 2022: gated recurrent units whose matrices act on a
convolution with a kernel that is learned as a function of place and direction,

    (K * h)_i = sum_{j near i} chi_ij exp(-|alpha_ij| d_ij) (psi_ij + delta_ij) h_j
    chi_ij = ReLU(MLP(p_i, v_ij)),    alpha_ij = (Q p_i) . (R p_j)
    z, r = sig(W K*[x, h] + b),  c = tanh(V K*[x, r h] + d),  h' = z h + (1 - z) c

p is a point's place, v_ij the way from i to j in the local tangent space, d_ij its length and
psi_ij the part of the full turn that j stands for.

Deviations: the kernel is the paper's, not the one that the authors' code runs (there distance and
orientation are swapped, and the last direction does not meet the first). On a plane, which the
paper does not treat, v = (dx, dy). Lengths are measured in units of the training points' usual
surroundings, so that regions of any size are alike; layer norm in place of batch norm over pairs,
and no saturation of the MLP's inputs. Node embeddings, which the authors' code never trains, are
left out, so that points may join; baseline.embedding gives trained ones of that size.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import Inputs, dense
from stonet.models.baselines.local_kernel import Frame, Surroundings, WeightedSum
from stonet.models.baselines.recurrent import GraphGRU, Recurrent
from stonet.models.forecaster import Supervision

LIFTED = 8  # features of the lifted inputs, and of places in alpha


class Kernel(nn.Module):
    """K_ij for all neighbours; one for all layers, encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = dense(4, 4), dense(4, 8), dense(8, 1)
        self.norm = nn.LayerNorm(8)
        self.query, self.key = dense(2, LIFTED), dense(2, LIFTED)
        nn.init.ones_(self.last.bias)  # chi starts above zero, where ReLU has a slope

    def forward(self, surroundings: Surroundings) -> Float[Tensor, "node near"]:
        near, place = surroundings.near, surroundings.position
        here = place[:, None].expand(-1, near.shape[1], -1)
        hidden = torch.tanh(self.first(torch.cat([here, surroundings.offset], dim=-1)))
        hidden = torch.tanh(self.norm(torch.tanh(self.second(hidden))))
        chi = torch.relu(self.last(hidden))[..., 0]
        alpha = (self.query(place)[:, None] * self.key(place)[near]).sum(-1)
        return chi * torch.exp(-alpha.abs() * surroundings.distance) * surroundings.share


class CLCRN(Recurrent):
    """The learned kernel in gated recurrent units; 32 hidden features, two layers."""

    lr = 1e-2
    understands = frozenset({"embedding"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        def cell(inputs: int, hidden: int) -> GraphGRU:
            return GraphGRU(inputs, hidden, 1, lambda x, convolution: convolution(x))

        hidden, embedding = config.baseline.hidden or 32, config.baseline.embedding or 0
        super().__init__(config, time_spec, channels, nodes, cell, hidden, layers=2, entry=hidden)
        features = channels + self.extra
        self.frame = Frame.of(nodes, self.near)
        self.kernel = Kernel()
        self.lift = dense(features, LIFTED)
        self.enter = dense(LIFTED + embedding + features, hidden)
        self.inductive = not embedding
        self.embedding = nn.Parameter(torch.randn(len(nodes), embedding)) if embedding else None

    def operators(self, nodes: Points) -> Surroundings:
        """Who is near whom, and how they lie."""
        return Surroundings.of(nodes, self.near, self.frame, *self._where)

    def roll(
        self, inputs: Inputs, operators: Surroundings, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """As every recurrent model, with lifted inputs and the kernel of the moment."""
        x = inputs.past
        parts = [self.lift(x), x]
        if self.embedding is not None:
            parts.append(self.embedding.expand(*x.shape[:2], -1, -1))
        lifted = replace(inputs, past=self.enter(torch.cat(parts, dim=-1)))
        return super().roll(lifted, WeightedSum(operators, self.kernel(operators)), supervision)
