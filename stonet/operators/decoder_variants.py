r"""Other decoders, for the paper's ablations; `build_decoder` chooses one by `network.decoder`.

"literal"   v_k = sum_i c_i^k sigma(AGG_ik) sigma(Trunk_k), every term of the paper's sum by itself
"fixed"     the paper's first branch net: one weight per node, so that no point can be added
"ode"       the paper's Appendix B: dv/dt = F(v) integrated from the newest encoded state

`network.terms` above 1 divides the horizon into equal segments with one decoder each.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from stonet.config import ModelConfig
from stonet.errors import UsageError
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.decoder import (
    DecoderInput,
    Latent,
    OperatorDecoder,
    Present,
    Sizes,
    Trunk,
    apply_branch,
)
from stonet.operators.encoder import KernelOperator
from stonet.system.devices import in_float32, to_device

ODE_TOLERANCE = 1e-4  # of the ODE solver, relative and absolute


class LiteralDecoder(nn.Module):
    """v_k = sum_i c_i^k sigma(AGG_ik) sigma(Trunk_k); the branch has latent^2 outputs."""

    def __init__(self, sizes: Sizes, config: ModelConfig) -> None:
        super().__init__()
        latent = config.latent
        self.branch = RevisedBranch(sizes.edge, latent**2, sizes.horizon, config)
        self.trunk = Trunk(sizes, config, latent)
        self.combine = nn.Parameter(torch.randn(latent, latent) / latent)  # c_i^k

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """v_dec at the queries of the graph and the leads of the inputs."""
        branch = apply_branch(self.branch, inputs, graph)
        terms = gelu(branch).unflatten(-1, self.combine.shape)  # AGG_ik
        trunk = gelu(self.trunk(inputs, graph.position))
        return torch.einsum("btqik,ik->btqk", terms, self.combine) * trunk


class FixedBranch(nn.Module):
    """The paper's first branch net: one weight per node and input, valid for one set of nodes."""

    def __init__(self, nodes: int, past: int, rank: int, latent: int) -> None:
        super().__init__()
        self.map = nn.Linear(past * nodes * latent, rank)

    def forward(
        self,
        latent: Latent,
        present: Present,
        lags: Float[Tensor, "rows future past"],
        graph: DecoderGraph,
    ) -> Float[Tensor, "batch 1 1 rank"]:
        """The same for all queries and times; missing values count as zero."""
        if present is not None:
            latent = latent.masked_fill(~present[..., None], 0.0)
        return self.map(latent.flatten(1))[:, None, None]


class OdeDecoder(nn.Module):
    """dv/dt = F(v), with F a kernel operator, carries the encoded state forward in time.

    A node is read at its own state; a query that is no node reads the mean of its neighbours. The
    adaptive solver reads its error estimates, so this decoder alone waits for a GPU; it runs in
    float32.
    """

    tolerance = ODE_TOLERANCE

    def __init__(self, dimension: int, horizon: int, config: ModelConfig) -> None:
        super().__init__()
        self.horizon = horizon
        self.operator = KernelOperator(
            dimension, config.model_copy(update={"linear_path": False, "sharp": False})
        )
        self.rate = nn.Linear(config.latent, config.latent)

    @in_float32
    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """The state at the queries of the graph and the leads of the inputs."""
        odeint = _odeint()
        state, present = _latest(inputs.latent, inputs.present)
        start = inputs.lead.new_zeros(len(inputs.lead), 1)  # at the issue time
        times = torch.cat([start, inputs.lead.clamp(min=0)], dim=1)
        distinct, position = torch.unique(times / self.horizon, return_inverse=True)
        nodes = graph.among_nodes
        assert nodes is not None  # the model builds this graph for the ODE decoder
        place, edges = nodes.position[None], nodes.neighbours

        def rate(_: Tensor, v: Tensor) -> Tensor:
            return self.rate(self.operator(v, v, place, place, edges, present))

        solved = to_device(distinct, state.device)
        path = odeint(
            rate, state, solved, rtol=self.tolerance, atol=self.tolerance, method="dopri5"
        )
        read = _read(path, present, graph)  # time batch query latent
        sample = torch.arange(len(state), device=state.device)[:, None]
        return read[to_device(position[:, 1:], state.device).expand(len(state), -1), sample]


def _odeint() -> Any:
    """The solver of torchdiffeq, an optional dependency."""
    try:
        from torchdiffeq import odeint
    except ImportError:
        raise UsageError("The ODE decoder needs torchdiffeq: pip install 'stonet[ode]'.") from None
    return odeint


def _latest(latent: Latent, present: Present) -> tuple[Tensor, Tensor | None]:
    """The newest encoded value of each node, 0 if it has none, and which nodes have one."""
    if present is None:
        return latent[:, -1], None
    position = torch.arange(present.shape[1], device=present.device)[None, :, None]
    last = torch.where(present, position, -1).amax(1)  # batch node
    index = last.clamp(min=0)[:, None, :, None].expand(-1, 1, -1, latent.shape[-1])
    has_value = last >= 0
    return latent.gather(1, index)[:, 0].masked_fill(~has_value[..., None], 0.0), has_value


def _read(
    path: Float[Tensor, "time batch node latent"],
    present: Bool[Tensor, "batch node"] | None,
    graph: DecoderGraph,
) -> Float[Tensor, "time batch query latent"]:
    """The states at the queries: a node's own, or the mean of the neighbours."""
    weight = path.new_ones(path.shape[1:3]) if present is None else present.to(path.dtype)
    masked = pad(path * weight[..., None], (0, 0, 0, 1))
    weight = pad(weight, (0, 1))
    result = path.new_zeros(*path.shape[:2], len(graph.own), path.shape[-1])
    for block in graph.neighbours.blocks:
        total = masked[:, :, block.index].sum(3)
        count = weight[:, block.index].sum(-1).clamp(min=1)
        result[:, :, block.rows] = total / count[None, ..., None]
    own = weight[:, graph.own]  # 1 where the query is a node with a value
    return torch.where(own[None, ..., None] > 0, masked[:, :, graph.own], result)


class TermDecoders(nn.Module):
    """One decoder for each of several equal segments of the horizon, chosen by the lead."""

    def __init__(self, decoders: list[nn.Module], horizon: int) -> None:
        super().__init__()
        self.decoders, self.horizon = nn.ModuleList(decoders), horizon

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """Each lead by the decoder of its segment."""
        count, lead = len(self.decoders), inputs.lead
        term = (torch.ceil(lead * count / self.horizon - 1e-4) - 1).clamp(0, count - 1)
        if len(lead) > 1:  # samples with different times: compute all segments, keep one
            every = torch.stack([decoder(inputs, graph) for decoder in self.decoders], dim=-1)
            chosen = torch.nn.functional.one_hot(term.long(), count)
            return (every * to_device(chosen, every.device)[:, :, None, None]).sum(-1)
        parts, order = [], []
        for number, decoder in enumerate(self.decoders):
            leads = torch.nonzero(term[0] == number)[:, 0]
            if len(leads):
                parts.append(decoder(inputs.at(leads), graph))
                order.append(leads)
        back = torch.argsort(torch.cat(order))
        return torch.cat(parts, dim=1)[:, to_device(back, parts[0].device)]


def build_decoder(sizes: Sizes, config: ModelConfig) -> nn.Module:
    """The decoder of a configuration.

    Raises:
        UsageError: if an ODE decoder is to have more than one term.
    """
    if config.decoder == "ode":
        if config.terms > 1:
            raise UsageError(
                "The ODE decoder integrates one state over the whole horizon: set network.terms=1."
            )
        return OdeDecoder(sizes.dimension, sizes.horizon, config)
    decoders = [_build_one(sizes, config) for _ in range(config.terms)]
    return decoders[0] if len(decoders) == 1 else TermDecoders(decoders, sizes.horizon)


def _build_one(sizes: Sizes, config: ModelConfig) -> nn.Module:
    """A decoder for all leads."""
    if config.decoder == "literal":
        return LiteralDecoder(sizes, config)
    branch = (
        FixedBranch(sizes.nodes, sizes.past, config.rank, config.latent)
        if config.decoder == "fixed"
        else RevisedBranch(sizes.edge, config.rank, sizes.horizon, config)
    )
    return OperatorDecoder(branch, sizes, config)
