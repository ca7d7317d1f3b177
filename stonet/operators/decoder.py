r"""The deep operator decoder: branch x trunk, at any point and any time.

    v_dec_k(x, t) = sum_i c_i^k AGG_ik(x, t) Trunk_k(x, t),    Trunk(x, t) = sigma(MLP([x, e_t]))

The index i is merged into the branch's width (`rank`) and the linear map C, or kept ("literal").
The decoder reads the encoded past only through a query's neighbours, so a query need not be a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from stonet.config import ModelConfig
from stonet.errors import UsageError
from stonet.operators.branch import FixedBranch, Links, RevisedBranch
from stonet.operators.encoder import KernelOperator, TimeEmbedding, mlp
from stonet.system.devices import in_float32, to_device

TOLERANCE = 1e-4  # of the ODE solver, relative and absolute
Latent = Float[Tensor, "batch past node latent"]
Present = Bool[Tensor, "batch past node"] | None


@dataclass(frozen=True)
class DecoderInput:
    """The encoded past, and for which times the future is asked.

    Times decide which way a computation goes: `lag` and `lead` are in the host's memory, and are
    sent where they are needed. So nobody has to wait for a GPU to know them.
    """

    latent: Latent
    present: Present
    lag: Float[Tensor, "rows past"]
    lead: Float[Tensor, "rows future"]
    calendar: Float[Tensor, "batch future calendar"]

    def at(self, columns: Int[Tensor, " chosen"]) -> DecoderInput:
        """The same question for some of its times."""
        calendar = self.calendar[:, to_device(columns, self.calendar.device)]
        return replace(self, lead=self.lead[:, columns], calendar=calendar)


@dataclass(frozen=True)
class Sizes:
    """What the data decide of a decoder's shape."""

    dimension: int  # of the coordinates
    calendar: int  # features of a time
    edge: int  # features of an edge
    past: int
    horizon: int
    nodes: int


class OperatorDecoder(nn.Module):
    """C (sigma(branch) * sigma(trunk)); with `linear_path` both start as if sigma were absent."""

    def __init__(self, sizes: Sizes, config: ModelConfig) -> None:
        super().__init__()
        self.horizon, self.linear_path = sizes.horizon, config.linear_path
        self.literal = config.decoder == "literal"
        width = config.latent if self.literal else config.rank
        rank = config.latent**2 if self.literal else config.rank
        self.branch: nn.Module = (
            FixedBranch(sizes.nodes, sizes.past, rank, config.latent)
            if config.decoder == "fixed"
            else RevisedBranch(sizes.edge, rank, sizes.horizon, config)
        )
        self.embedding = TimeEmbedding(1 + sizes.calendar, config.frequencies)
        self.trunk = mlp(sizes.dimension + self.embedding.width, config.latent, width)
        if self.literal:
            self.combine = nn.Parameter(
                torch.randn(config.latent, config.latent) / config.latent
            )  # c_i^k
        else:
            self.map = nn.Linear(rank, config.latent)  # C
            if config.linear_path:
                nn.init.zeros_(self.map.weight)  # starts as "nothing to correct"
                nn.init.zeros_(self.map.bias)

    def forward(
        self, asked: DecoderInput, links: Links
    ) -> Float[Tensor, "batch future query latent"]:
        lags = asked.lead[:, :, None] - asked.lag[:, None, :]
        branch = self.branch(asked.latent, asked.present, lags, links)
        trunk = self._trunk(asked.lead, asked.calendar, links.position)
        if self.literal:
            kept = gelu(branch).unflatten(-1, self.combine.shape)  # AGG_ik
            return torch.einsum("btqik,ik->btqk", kept, self.combine) * gelu(trunk)
        if self.linear_path:
            return self.map((branch + gelu(branch)) * (1 + trunk))
        return self.map(gelu(branch) * gelu(trunk))

    def _trunk(
        self,
        lead: Float[Tensor, "rows future"],
        calendar: Float[Tensor, "batch future calendar"],
        position: Float[Tensor, "query m"],
    ) -> Float[Tensor, "samples future query rank"]:
        """Once for all samples where they ask the same times and no calendar tells them apart."""
        samples = max(len(lead), len(calendar) if calendar.shape[-1] else 1)
        early = lead[..., None].expand(samples, -1, 1) / (4 * self.horizon)  # a quarter turn in all
        time = torch.cat([to_device(early, calendar.device), calendar[:samples]], dim=-1)
        embedded = self.embedding(time)[:, :, None].expand(-1, -1, len(position), -1)
        place = position.expand(*embedded.shape[:2], -1, -1)
        return self.trunk(torch.cat([place, embedded], dim=-1))


class OdeDecoder(nn.Module):
    """The paper's Appendix B: dv/dt = F(v), F a kernel operator, carries the encoded state forward.

    A node is read where it is; a query that is no node reads the mean of its neighbours. The solver
    looks at its errors to choose its steps: the only decoder that waits for a GPU, and in float32.
    """

    def __init__(self, dimension: int, horizon: int, config: ModelConfig) -> None:
        super().__init__()
        self.horizon = horizon
        self.operator = KernelOperator(
            dimension, config.model_copy(update={"linear_path": False, "sharp": False})
        )
        self.rate = nn.Linear(config.latent, config.latent)

    @in_float32
    def forward(
        self, asked: DecoderInput, links: Links
    ) -> Float[Tensor, "batch future query latent"]:
        odeint = _odeint()
        state, known = _latest(asked.latent, asked.present)
        start = asked.lead.new_zeros(len(asked.lead), 1)  # at the issue time
        times = torch.cat([start, asked.lead.clamp(min=0)], dim=1)
        moments, which = torch.unique(times / self.horizon, return_inverse=True)
        nodes = links.among_nodes
        assert nodes is not None  # the model links the nodes among themselves for this decoder
        place, edges = nodes.position[None], nodes.neighbours

        def rate(_: Tensor, v: Tensor) -> Tensor:
            return self.rate(self.operator(v, v, place, place, edges, known))

        when = to_device(moments, state.device)
        path = odeint(rate, state, when, rtol=TOLERANCE, atol=TOLERANCE, method="dopri5")
        read = _read(path, known, links)  # moment batch query latent
        sample = torch.arange(len(state), device=state.device)[:, None]
        return read[to_device(which[:, 1:], state.device).expand(len(state), -1), sample]


def _odeint() -> Any:
    try:
        from torchdiffeq import odeint
    except ImportError:
        raise UsageError("The ODE decoder needs torchdiffeq: pip install 'stonet[ode]'.") from None
    return odeint


def _latest(latent: Latent, present: Present) -> tuple[Tensor, Tensor | None]:
    """Each node's most recent encoded value, 0 where it has none, and which nodes have one."""
    if present is None:
        return latent[:, -1], None
    position = torch.arange(present.shape[1], device=present.device)[None, :, None]
    last = torch.where(present, position, -1).amax(1)  # batch node
    index = last.clamp(min=0)[:, None, :, None].expand(-1, 1, -1, latent.shape[-1])
    known = last >= 0
    return latent.gather(1, index)[:, 0].masked_fill(~known[..., None], 0.0), known


def _read(
    path: Float[Tensor, "moment batch node latent"],
    known: Bool[Tensor, "batch node"] | None,
    links: Links,
) -> Float[Tensor, "moment batch query latent"]:
    weight = path.new_ones(path.shape[1:3]) if known is None else known.to(path.dtype)
    masked = pad(path * weight[..., None], (0, 0, 0, 1))
    weight = pad(weight, (0, 1))
    result = path.new_zeros(*path.shape[:2], len(links.own), path.shape[-1])
    for block in links.neighbours.blocks:
        total = masked[:, :, block.index].sum(3)
        result[:, :, block.rows] = (
            total / weight[:, block.index].sum(-1).clamp(min=1)[None, ..., None]
        )
    mine = weight[:, links.own]  # 1 where the query is a node with a value
    return torch.where(mine[None, ..., None] > 0, masked[:, :, links.own], result)


class TermDecoders(nn.Module):
    """One decoder for each of equal segments of the horizon; a query's lead time picks its own."""

    def __init__(self, decoders: list[nn.Module], horizon: int) -> None:
        super().__init__()
        self.decoders, self.horizon = nn.ModuleList(decoders), horizon

    def forward(
        self, asked: DecoderInput, links: Links
    ) -> Float[Tensor, "batch future query latent"]:
        count, lead = len(self.decoders), asked.lead
        term = (torch.ceil(lead * count / self.horizon - 1e-4) - 1).clamp(0, count - 1)
        if len(lead) > 1:  # samples with times of their own: ask all, keep the right one
            every = torch.stack([decoder(asked, links) for decoder in self.decoders], dim=-1)
            mine = torch.nn.functional.one_hot(term.long(), count)
            return (every * to_device(mine, every.device)[:, :, None, None]).sum(-1)
        parts, order = [], []
        for number, decoder in enumerate(self.decoders):
            columns = torch.nonzero(term[0] == number)[:, 0]
            if len(columns):
                parts.append(decoder(asked.at(columns), links))
                order.append(columns)
        back = torch.argsort(torch.cat(order))
        return torch.cat(parts, dim=1)[:, to_device(back, parts[0].device)]


def build_decoder(sizes: Sizes, config: ModelConfig) -> nn.Module:
    """The decoder, or decoders, that the configuration asks for."""
    if config.decoder == "ode":
        if config.terms > 1:
            raise UsageError(
                "The ODE decoder carries one state through the whole horizon: set network.terms=1."
            )
        return OdeDecoder(sizes.dimension, sizes.horizon, config)
    made: list[nn.Module] = [OperatorDecoder(sizes, config) for _ in range(config.terms)]
    return made[0] if len(made) == 1 else TermDecoders(made, sizes.horizon)
