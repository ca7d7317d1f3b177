r"""Branch x trunk with xi in a basis of temporal modes, whitened on the training past.

    xi(dx, t) = kappa(dx) sum_m psi_m(t) B_m         kappa: a network of the offset, B_m: matrices
    b(x)      = theta + mean_{x_j in N(x)} sum_t xi(x - x_j, t) v_enc_t(x_j) + D [w(x); z(x)]
    h         = b + gelu(b),    h <- h + gelu(E h)
    tau(x, t) = Q hat(t) + m1([x, hat(t)]) + m2([hat(t), e_t])
    v_dec     = C (h * tau)

w_m(x) = sum_t psi_m(t) v_enc_t(x) are the modes of a node's own encoded past, z(x) those of its own
values. The columns of psi are orthonormal under the covariance of the past, so that small changes
of a smooth field count as much as large ones; lags by themselves are ill conditioned. hat(t) are
linear hat functions on the trained leads, so that any lead can be asked; t is the lead.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from stonet.config import OperatorConfig
from stonet.operators.branch import DecoderGraph, Nearest
from stonet.operators.branch_trunk import hat_functions
from stonet.operators.decoder import DecoderInput, Sizes
from stonet.operators.encoder import TimeEmbedding, mlp
from stonet.operators.graph_kernel import WORKSPACE_FLOATS, full_sum, neighbour_count
from stonet.operators.temporal_modes import whitening
from stonet.system.devices import to_device

FLOOR = 1e-12  # smallest eigenvalue of a kept mode, over the first
TIMES_NOISE = 4.0  # smallest eigenvalue of a kept mode, over the variance of the noise


def whitened_modes(
    covariance: Float64[Tensor, "feature feature"], noise: float
) -> Float64[Tensor, "feature mode"]:
    """Columns of unit variance, largest first; zero for modes that could be noise alone.

    Args:
        covariance: of the past.
        noise: variance of each feature's noise.
    """
    return whitening(covariance, FLOOR, least=TIMES_NOISE * noise)


def at_queries(
    values: Float[Tensor, "batch node feature"],
    nearest: Nearest,
    known: Bool[Tensor, "batch node feature_or_1"] | None,
) -> Float[Tensor, "batch query feature"]:
    """A node's own values; elsewhere, or if it has none, the mean of the nearest, by 1/distance^2.

    Args:
        values: at the nodes.
        nearest: the nodes next to each query.
        known: which values there are; None: all.
    """
    if known is None and nearest.own is not None:
        return values[:, nearest.own]
    if known is None:
        return torch.einsum("bqkf,qk->bqf", values[:, nearest.index], nearest.weight)
    weight = nearest.weight[None, :, :, None] * known[:, nearest.index]
    total = weight.sum(2)
    mean = (values[:, nearest.index] * weight).sum(2)
    return mean / torch.where(total > 0, total, 1.0)


class ModalBranch(nn.Module):
    """b(x): the aggregate of the past around a query, the same for all leads.

    Args:
        sizes: of the data.
        config: of the network.
        history: modes of a node's own values.
    """

    workspace = WORKSPACE_FLOATS

    def __init__(self, sizes: Sizes, config: OperatorConfig, history: int) -> None:
        super().__init__()
        latent, hidden, rank = config.latent, config.hidden, config.rank
        modes = sizes.past * latent
        self.time = nn.Linear(modes, latent, bias=False)  # B
        self.own = nn.Linear(modes + history, rank, bias=False)  # D
        self.edge = nn.Parameter(torch.randn(sizes.edge, hidden) / math.sqrt(sizes.edge))
        self.offset = nn.Parameter(torch.randn(hidden) / math.sqrt(sizes.edge))
        rows = latent * hidden
        self.weight = nn.Parameter(0.5 * torch.randn(rows, rank) / math.sqrt(rows))
        self.bias = nn.Parameter(torch.zeros(latent, rank))
        self.threshold = nn.Parameter(torch.zeros(rank))  # theta

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch query rank"]:
        """The branch b at every query; `inputs.latent` holds the modes w of the encoded past.

        Args:
            inputs: encoded past and times.
            graph: of the queries.
        """
        assert inputs.history is not None and graph.nearest is not None  # the operator's own
        present = None if inputs.present is None else inputs.present[:, 0]
        modes = inputs.latent.transpose(1, 2).flatten(2)  # batch node (mode latent)
        own = self.own(torch.cat([modes, inputs.history], dim=-1))
        known = None if present is None else present[..., None]
        messages = self.time(modes)
        if known is not None:
            messages = messages.masked_fill(~known, 0.0)
        values = pad(messages.transpose(0, 1)[None], (0, 0, 0, 0, 0, 1))
        nodes, queries = values.shape[1], len(graph.position)
        summed = full_sum(
            values,
            self.offset.expand(1, queries, -1),
            values.new_zeros(1, nodes, len(self.offset)),
            self.edge,
            self.weight,
            self.bias,
            graph.neighbours,
            self.workspace,
        )
        mean = summed[0].transpose(0, 1) / neighbour_count(graph.neighbours, present)[..., None]
        return mean + at_queries(own, graph.nearest, known) + self.threshold


class HatTrunk(nn.Module):
    """tau(x, t) = Q hat(t) + m1([x, hat(t)]) + m2([hat(t), e_t]); small at the start.

    Args:
        sizes: of the data.
        config: of the network.
    """

    def __init__(self, sizes: Sizes, config: OperatorConfig) -> None:
        super().__init__()
        self.horizon = sizes.horizon
        self.leads = nn.Linear(sizes.horizon, config.rank, bias=False)  # Q
        self.place = mlp(sizes.dimension + sizes.horizon, config.latent, config.rank)
        self.embedding = TimeEmbedding(sizes.calendar, config.frequencies)
        width = self.embedding.width
        self.calendar = mlp(width + sizes.horizon, config.latent, config.rank) if width else None
        with torch.no_grad():
            self.leads.weight.zero_()
            for network in (self.place, self.calendar):
                if network is not None:
                    for parameter, factor in zip(network[2].parameters(), (0.1, 0.0), strict=True):
                        parameter.mul_(factor)

    def forward(
        self, inputs: DecoderInput, position: Float[Tensor, "query m"]
    ) -> Float[Tensor, "samples future query rank"]:
        """One sample for all if they share their leads and there is no calendar.

        Args:
            inputs: give the times.
            position: of the queries.
        """
        hat = to_device(hat_functions(inputs.lead, self.horizon), position.device)
        shape = (*hat.shape[:2], len(position), -1)
        both = [position.expand(shape), hat[:, :, None].expand(shape)]
        result = self.place(torch.cat(both, dim=-1)) + self.leads(hat)[:, :, None]
        if self.calendar is None:
            return result
        embedded = self.embedding(inputs.calendar)
        hat = hat.expand(len(embedded), -1, -1)
        return result + self.calendar(torch.cat([hat, embedded], dim=-1))[:, :, None]


class ModalDecoder(nn.Module):
    """v_dec = C (h * tau), with h from the branch.

    Args:
        sizes: of the data.
        config: of the network.
        history: modes of a node's own values.
    """

    def __init__(self, sizes: Sizes, config: OperatorConfig, history: int) -> None:
        super().__init__()
        self.branch = ModalBranch(sizes, config, history)
        self.mix = nn.Linear(config.rank, config.rank)  # E
        self.trunk = HatTrunk(sizes, config)
        self.map = nn.Linear(config.rank, config.latent, bias=False)  # C
        nn.init.normal_(self.map.weight, std=1 / math.sqrt(config.rank))

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """v_dec at the queries of the graph and the leads of the inputs.

        Args:
            inputs: encoded past and times.
            graph: of the queries.
        """
        b = self.branch(inputs, graph)
        h = b + gelu(b)
        h = h + gelu(self.mix(h))
        return self.map(h[:, None] * self.trunk(inputs, graph.position))
