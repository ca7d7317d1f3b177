r"""Other decoders, for the paper's ablations; `build_decoder` chooses one by `paper.decoder`.

"fixed"     the paper's first branch net: one weight per node, so that no point can be added
"ode"       the paper's Appendix B: dv/dt = F(v), with F a kernel operator that sees a_t(x)

`paper.terms` above 1 divides the horizon into equal segments with one decoder each.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.config import PaperConfig
from stonet.errors import UsageError
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.decoder import (
    DecoderInput,
    Latent,
    MergedDecoder,
    OperatorDecoder,
    Present,
    Sizes,
)
from stonet.operators.encoder import KernelOperator, ParametricFunction
from stonet.system.devices import in_float32, to_device

ODE_TOLERANCE = 1e-4  # of the ODE solver, relative and absolute


class FixedBranch(nn.Module):
    """The paper's first branch net: one weight xi_ij^k per node and input, for one set of nodes.

    Args:
        nodes: number of nodes.
        past: number of inputs.
        rank: width of the result.
        latent: width of v.
    """

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
        """The same for all queries and times; missing values count as zero.

        Args:
            latent: v at all inputs.
            present: whether a node has a value, by frame.
            lags: not used.
            graph: not used.
        """
        if present is not None:
            latent = latent.masked_fill(~present[..., None], 0.0)
        return self.map(latent.flatten(1))[:, None, None]


class OdeDecoder(nn.Module):
    """dv/dt = F(v; a_t), with F a kernel operator, carries a state forward from the issue time.

        v(x, t_0) = AGG(x, t_0)                        of all inputs: the revised branch at lead 0
        dv/dt     = A K_{a_t} v(x) + b                 K as in the encoder, at the time t
        u(x, t)   = P'(v(x, t))

    a_t(x) sees the place, the phases of the calendar at t and the lead. A node is read at its own
    state; a query that is no node reads the mean of its neighbours. The adaptive solver reads its
    error estimates, so this decoder alone waits for a GPU; it runs in float32.

    Args:
        sizes: of the data.
        config: of the network.
    """

    tolerance = ODE_TOLERANCE

    def __init__(self, sizes: Sizes, config: PaperConfig) -> None:
        super().__init__()
        self.horizon, self.rates = sizes.horizon, sizes.rates
        self.start = RevisedBranch(sizes.edge, config.latent, sizes.horizon, config)
        self.parametric = ParametricFunction(sizes.dimension, sizes.calendar + 1, config)
        changed = {"linear_path": False, "edges": "difference"}  # it sees x, and no edge features
        inputs = config.parametric + sizes.dimension
        self.operator = KernelOperator(inputs, config.model_copy(update=changed))
        self.rate = nn.Linear(config.latent, config.latent)

    @in_float32
    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """The state at the queries of the graph and the leads of the inputs.

        Args:
            inputs: encoded past and times.
            graph: of the queries.
        """
        odeint = _odeint()
        nodes = graph.among_nodes
        assert nodes is not None  # the model builds this graph for the ODE decoder
        present = None if inputs.present is None else inputs.present.any(1)
        lags = -inputs.lag[:, None]  # of the issue time
        state = self.start(inputs.latent, inputs.present, lags, nodes)[:, 0]
        start = inputs.lead.new_zeros(len(inputs.lead), 1)
        times = torch.cat([start, inputs.lead.clamp(min=0)], dim=1)
        distinct, position = torch.unique(times / self.horizon, return_inverse=True)
        place, edges = nodes.position, nodes.neighbours

        def rate(time: Tensor, v: Tensor) -> Tensor:
            a = self.parametric(self._features(time, inputs), place)
            a = torch.cat([a, place.expand(len(a), -1, -1)], dim=-1)
            return self.rate(self.operator(v, v, a, a, edges, present))

        solved = to_device(distinct, state.device)
        path = odeint(
            rate, state, solved, rtol=self.tolerance, atol=self.tolerance, method="dopri5"
        )
        read = _read(path, present, graph)  # time batch query latent
        sample = torch.arange(len(state), device=state.device)[:, None]
        return read[to_device(position[:, 1:], state.device).expand(len(state), -1), sample]

    def _features(
        self, time: Float[Tensor, ""], inputs: DecoderInput
    ) -> Float[Tensor, "samples feature"]:
        """Calendar and lead of a time in horizons; the phases are not wrapped on the way."""
        if not self.rates or inputs.issue is None:
            return time.reshape(1, 1)
        turned = time * self.horizon * inputs.issue.new_tensor(self.rates)
        return torch.cat([inputs.issue + turned, time.expand(len(inputs.issue), 1)], dim=-1)


def _odeint() -> Any:
    """The solver of torchdiffeq, an optional dependency."""
    try:
        from torchdiffeq import odeint
    except ImportError:
        raise UsageError("The ODE decoder needs torchdiffeq: pip install 'stonet[ode]'.") from None
    return odeint


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
    """One decoder for each of several equal segments of the horizon, chosen by the lead.

    Args:
        decoders: one for each segment.
        horizon: number of trained leads.
    """

    def __init__(self, decoders: list[nn.Module], horizon: int) -> None:
        super().__init__()
        self.decoders, self.horizon = nn.ModuleList(decoders), horizon

    def forward(
        self, inputs: DecoderInput, graph: DecoderGraph
    ) -> Float[Tensor, "batch future query latent"]:
        """Each lead by the decoder of its segment.

        Args:
            inputs: encoded past and times.
            graph: of the queries.
        """
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


def build_decoder(sizes: Sizes, config: PaperConfig) -> nn.Module:
    """The decoder of a configuration.

    Args:
        sizes: of the data.
        config: of the network.

    Raises:
        UsageError: if an ODE decoder is to have more than one term.
    """
    if config.decoder == "ode":
        if config.terms > 1:
            raise UsageError(
                "The ODE decoder integrates one state over the whole horizon: set paper.terms=1."
            )
        return OdeDecoder(sizes, config)
    decoders = [_build_one(sizes, config) for _ in range(config.terms)]
    return join_terms(decoders, sizes.horizon)


def join_terms(decoders: list[nn.Module], horizon: int) -> nn.Module:
    """One decoder for all leads, or one for each of equal segments of the horizon.

    Args:
        decoders: one for each segment.
        horizon: number of trained leads.
    """
    return decoders[0] if len(decoders) == 1 else TermDecoders(decoders, horizon)


def _build_one(sizes: Sizes, config: PaperConfig) -> nn.Module:
    """A decoder for all leads."""
    separate = config.indices == "separate"
    rank = config.latent**2 if separate else config.rank
    branch = (
        FixedBranch(sizes.nodes, sizes.past, rank, config.latent)
        if config.decoder == "fixed"
        else RevisedBranch(sizes.edge, rank, sizes.horizon, config)
    )
    return (OperatorDecoder if separate else MergedDecoder)(branch, sizes, config)
