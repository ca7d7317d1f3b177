r"""The deep operator decoder: branch x trunk, at any point and any time.

    v_dec(x, t) = C (sigma(AGG(x, t)) * sigma(Trunk(x, t))),    Trunk(x, t) = MLP([x, e_t])

The paper's sum over i, v_k = sum_i c_i^k AGG_ik Trunk_k, is contained in the width of the branch
(`rank`) and the linear map C. The decoder reads the encoded past only through the neighbours of a
query, so a query need not be a node. `decoder_variants.py` has the other forms, and
`build_decoder`, which chooses one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from stonet.config import ModelConfig
from stonet.operators.branch import DecoderGraph
from stonet.operators.encoder import TimeEmbedding, mlp
from stonet.system.devices import to_device

Latent = Float[Tensor, "batch past node latent"]
Present = Bool[Tensor, "batch past node"] | None


@dataclass(frozen=True)
class DecoderInput:
    """The encoded past, and the times of the forecast.

    `lag` and `lead` stay in host memory, since they decide which computations are done: nothing
    has to wait for a GPU to learn them.
    """

    latent: Latent
    present: Present
    lag: Float[Tensor, "rows past"]
    lead: Float[Tensor, "rows future"]
    calendar: Float[Tensor, "batch future calendar"]

    def at(self, leads: Int[Tensor, " chosen"]) -> DecoderInput:
        """The same input for some of the future times, given by their positions."""
        calendar = self.calendar[:, to_device(leads, self.calendar.device)]
        return replace(self, lead=self.lead[:, leads], calendar=calendar)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder that follow from the data."""

    dimension: int  # of the coordinates
    calendar: int  # features of a time
    edge: int  # features of an edge
    past: int
    horizon: int
    nodes: int


class Trunk(nn.Module):
    """MLP([x, e_t]) before its activation.

    Args:
        sizes: of the data.
        config: of the network.
        width: outputs.
    """

    def __init__(self, sizes: Sizes, config: ModelConfig, width: int) -> None:
        super().__init__()
        self.horizon = sizes.horizon
        self.embedding = TimeEmbedding(1 + sizes.calendar, config.frequencies)
        self.network = mlp(sizes.dimension + self.embedding.width, config.latent, width)

    def forward(
        self, inputs: DecoderInput, position: Float[Tensor, "query m"]
    ) -> Float[Tensor, "samples future query rank"]:
        """One sample for all if they share their leads and there is no calendar."""
        lead, calendar = inputs.lead, inputs.calendar
        samples = max(len(lead), len(calendar) if calendar.shape[-1] else 1)
        phase = lead[..., None].expand(samples, -1, 1) / (4 * self.horizon)  # horizon: 1/4 turn
        time = torch.cat([to_device(phase, calendar.device), calendar[:samples]], dim=-1)
        embedded = self.embedding(time)[:, :, None].expand(-1, -1, len(position), -1)
        place = position.expand(*embedded.shape[:2], -1, -1)
        return self.network(torch.cat([place, embedded], dim=-1))


class OperatorDecoder(nn.Module):
    """C (sigma(branch) * sigma(trunk)).

    With `linear_path` it is C ((branch + sigma(branch)) * (1 + trunk)), and C starts at zero: an
    untrained network leaves the base forecast unchanged.

    Args:
        branch: the aggregation of the past, with `config.rank` outputs.
        sizes: of the data.
        config: of the network.
    """

    def __init__(self, branch: nn.Module, sizes: Sizes, config: ModelConfig) -> None:
        super().__init__()
        self.linear_path = config.linear_path
        self.branch = branch
        self.trunk = Trunk(sizes, config, config.rank)
        self.map = nn.Linear(config.rank, config.latent)  # C
        if config.linear_path:
            nn.init.zeros_(self.map.weight)
            nn.init.zeros_(self.map.bias)

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """v_dec at the queries of the graph and the leads of the inputs."""
        branch = apply_branch(self.branch, inputs, graph)
        trunk = self.trunk(inputs, graph.position)
        if self.linear_path:
            return self.map((branch + gelu(branch)) * (1 + trunk))
        return self.map(gelu(branch) * gelu(trunk))


def apply_branch(
    branch: nn.Module, inputs: DecoderInput, graph: DecoderGraph
) -> Float[Tensor, "batch future_or_1 query_or_1 rank"]:
    """The branch at the lags t - t_s of the inputs."""
    lags = inputs.lead[:, :, None] - inputs.lag[:, None, :]
    return branch(inputs.latent, inputs.present, lags, graph)
