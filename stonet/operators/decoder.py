r"""The deep operator decoder: branch x trunk, at any point and any time.

    v_k = sum_i c_i^k sigma(AGG_ik) sigma(Trunk_k)      "separate" indices, as in the paper
    v   = C (sigma(AGG) * sigma(Trunk))                 "merged": the sum over i is in C

    Trunk_k(x, t) = eta_k [x, t] + zeta_k               "literal"
    Trunk(x, t)   = MLP([x, e_t])                       "mlp"

The time t is the lead in horizons, and the phases of the calendar. The decoder reads the encoded
past only through the neighbours of a query, so a query need not be a node.
`decoder_variants.py` has the other forms, and `build_decoder`, which chooses one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from stonet.config import PaperConfig
from stonet.operators.branch import DecoderGraph
from stonet.operators.encoder import TimeEmbedding, mlp
from stonet.system.devices import to_device

Latent = Float[Tensor, "batch past node latent"]
Present = Bool[Tensor, "batch past_or_1 node"] | None


@dataclass(frozen=True)
class DecoderInput:
    """The encoded past, and the times of the forecast.

    `lag` and `lead` stay in host memory, since they decide which computations are done: nothing
    has to wait for a GPU to learn them.

    Args:
        latent: the encoded past.
        present: whether a node has a value, by frame.
        lag: of the inputs, in steps.
        lead: of the targets, in steps.
        calendar: phases of the targets.
        issue: at the issue time, for the ODE.
        history: modes of each node's own past.
    """

    latent: Latent
    present: Present
    lag: Float[Tensor, "rows past"]
    lead: Float[Tensor, "rows future"]
    calendar: Float[Tensor, "batch future calendar"]
    issue: Float[Tensor, "batch calendar"] | None = None
    history: Float[Tensor, "batch node mode"] | None = None

    def at(self, leads: Int[Tensor, " chosen"]) -> DecoderInput:
        """The same input for some of the future times, given by their positions.

        Args:
            leads: positions of future times.
        """
        calendar = self.calendar[:, to_device(leads, self.calendar.device)]
        return replace(self, lead=self.lead[:, leads], calendar=calendar)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder that follow from the data.

    Args:
        dimension: of the coordinates.
        calendar: features of a time.
        edge: features of an edge.
        past: number of inputs.
        horizon: number of trained leads.
        nodes: number of training points.
        rates: of the calendar features, by step.
    """

    dimension: int
    calendar: int
    edge: int
    past: int
    horizon: int
    nodes: int
    rates: tuple[float, ...] = ()


class LiteralTrunk(nn.Module):
    """eta_k [x, t] + zeta_k, before its activation.

    Args:
        sizes: of the data.
        width: outputs.
    """

    def __init__(self, sizes: Sizes, width: int) -> None:
        super().__init__()
        self.horizon = sizes.horizon
        self.network = nn.Linear(sizes.dimension + 1 + sizes.calendar, width)  # eta, zeta

    def forward(
        self, inputs: DecoderInput, position: Float[Tensor, "query m"]
    ) -> Float[Tensor, "samples future query rank"]:
        """One sample for all if they share their leads and there is no calendar.

        Args:
            inputs: give the times.
            position: of the queries.
        """
        return self.network(with_place(trunk_time(inputs, self.horizon), position))


class Trunk(nn.Module):
    """MLP([x, e_t]) before its activation.

    Args:
        sizes: of the data.
        config: of the network.
        width: outputs.
    """

    def __init__(self, sizes: Sizes, config: PaperConfig, width: int) -> None:
        super().__init__()
        self.horizon = sizes.horizon
        self.embedding = TimeEmbedding(1 + sizes.calendar, config.frequencies)
        self.network = mlp(sizes.dimension + self.embedding.width, config.latent, width)

    def forward(
        self, inputs: DecoderInput, position: Float[Tensor, "query m"]
    ) -> Float[Tensor, "samples future query rank"]:
        """One sample for all if they share their leads and there is no calendar.

        Args:
            inputs: give the times.
            position: of the queries.
        """
        time = trunk_time(inputs, 4 * self.horizon)  # a quarter turn over the horizon
        return self.network(with_place(self.embedding(time), position))


def trunk_time(inputs: DecoderInput, unit: int) -> Float[Tensor, "samples future feature"]:
    """The lead in this unit and the calendar; one sample for all if they have the same times.

    Args:
        inputs: give the times.
        unit: of the lead, in steps.
    """
    lead, calendar = inputs.lead, inputs.calendar
    samples = max(len(lead), len(calendar) if calendar.shape[-1] else 1)
    scaled = lead[..., None].expand(samples, -1, 1) / unit
    return torch.cat([to_device(scaled, calendar.device), calendar[:samples]], dim=-1)


def with_place(
    time: Float[Tensor, "samples future feature"], position: Float[Tensor, "query m"]
) -> Float[Tensor, "samples future query both"]:
    """[x, t] for every time and place.

    Args:
        time: features of each time.
        position: of the queries.
    """
    time = time[:, :, None].expand(-1, -1, len(position), -1)
    return torch.cat([position.expand(*time.shape[:2], -1, -1), time], dim=-1)


def build_trunk(sizes: Sizes, config: PaperConfig, width: int) -> nn.Module:
    """The trunk of a configuration.

    Args:
        sizes: of the data.
        config: of the network.
        width: outputs.
    """
    if config.trunk == "literal":
        return LiteralTrunk(sizes, width)
    return Trunk(sizes, config, width)


class OperatorDecoder(nn.Module):
    """v_k = sum_i c_i^k sigma(branch_ik) sigma(trunk_k): every term of the paper's sum.

    Args:
        branch: the aggregation of the past, with latent^2 outputs.
        sizes: of the data.
        config: of the network.
    """

    def __init__(self, branch: nn.Module, sizes: Sizes, config: PaperConfig) -> None:
        super().__init__()
        latent = config.latent
        self.branch = branch
        self.trunk = build_trunk(sizes, config, latent)
        self.combine = nn.Parameter(torch.randn(latent, latent) / latent)  # c_i^k

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """v_dec at the queries of the graph and the leads of the inputs.

        Args:
            inputs: encoded past and times.
            graph: of the queries.
        """
        branch = apply_branch(self.branch, inputs, graph)
        terms = gelu(branch).unflatten(-1, self.combine.shape)  # AGG_ik
        trunk = gelu(self.trunk(inputs, graph.position))
        return torch.einsum("btqik,ik->btqk", terms, self.combine) * trunk


class MergedDecoder(nn.Module):
    """C (sigma(branch) * sigma(trunk)), with `rank` outputs of branch and trunk.

    With `linear_path` it is C ((branch + sigma(branch)) * (1 + trunk)), and C starts at zero: an
    untrained network leaves the base forecast unchanged.

    Args:
        branch: the aggregation of the past, with `config.rank` outputs.
        sizes: of the data.
        config: of the network.
    """

    def __init__(self, branch: nn.Module, sizes: Sizes, config: PaperConfig) -> None:
        super().__init__()
        self.linear_path = config.linear_path
        self.branch = branch
        self.trunk = build_trunk(sizes, config, config.rank)
        self.map = nn.Linear(config.rank, config.latent, bias=False)  # C
        if config.linear_path:
            nn.init.zeros_(self.map.weight)

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """v_dec at the queries of the graph and the leads of the inputs.

        Args:
            inputs: encoded past and times.
            graph: of the queries.
        """
        branch = apply_branch(self.branch, inputs, graph)
        trunk = self.trunk(inputs, graph.position)
        if self.linear_path:
            return self.map((branch + gelu(branch)) * (1 + trunk))
        return self.map(gelu(branch) * gelu(trunk))


def apply_branch(
    branch: nn.Module, inputs: DecoderInput, graph: DecoderGraph
) -> Float[Tensor, "batch future_or_1 query_or_1 rank"]:
    """The branch at the lags t - t_s of the inputs.

    Args:
        branch: of a decoder.
        inputs: encoded past and times.
        graph: of the queries.
    """
    lags = inputs.lead[:, :, None] - inputs.lag[:, None, :]
    return branch(inputs.latent, inputs.present, lags, graph)
