r"""Branch x trunk: from the encoded past around a query to its value at any lead.

    b    = theta + sum_k B_k mean_{j in N(x)} h_k(x, x_j) v_j + D s          branch
           + attention of s over the v_j, with `heads`
    h    = b + gelu(b);   h <- h + gelu(E h)
    tau  = Q hat(lead) + m1([x, hat(lead)]) + m2([hat(lead), e_t])           trunk
    u    = <h, tau> / sqrt(R) + c hat(lead)                                  projection

s is the state of the query itself: its encoded past and its inputs. A query without a past has the
state that its neighbours suggest, and a matrix D of its own. hat are hat functions between the
trained leads, so that any lead can be asked; they are zero at lead 0.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from stonet.graph.neighbours import Neighbours
from stonet.operators.attention import NeighbourAttention
from stonet.operators.kernel_sum import KernelSum
from stonet.system.devices import to_device

BRANCH_GAIN = 0.5  # size of the neighbours' part of the branch at the start
TRUNK_HIDDEN = 64  # hidden units of m1 and m2
TRUNK_GAIN = 0.1  # of their last layers, relative to PyTorch's initialisation


def hat_functions(
    lead: Float[Tensor, "rows future"], horizon: int
) -> Float[Tensor, "rows future horizon"]:
    """Weights of the trained leads 1, ..., horizon: linear between them, 0 at lead 0.

    Args:
        lead: of the targets, in steps.
        horizon: the last trained lead.
    """
    knots = torch.arange(1, horizon + 1, device=lead.device, dtype=lead.dtype)
    return (1 - (lead.clamp(0, horizon)[..., None] - knots).abs()).clamp(min=0)


class BranchTrunk(nn.Module):
    """The decoder: at any query and lead.

    Args:
        edge: features of an edge.
        latent: width of v.
        state: width of s.
        place: coordinates of a point.
        time: features of a target time.
        horizon: number of trained leads.
        channels: of the field.
        rank: R, width of branch and trunk.
        kernels: products in the kernel.
        hidden: hidden units of the kernel.
        heads: of the attention; 0: none.
    """

    def __init__(
        self,
        *,
        edge: int,
        latent: int,
        state: int,
        place: int,
        time: int,
        horizon: int,
        channels: int,
        rank: int,
        kernels: int,
        hidden: int,
        heads: int = 0,
    ) -> None:
        super().__init__()
        self.horizon, self.channels, self.rank = horizon, channels, rank
        self.around = KernelSum(edge, latent, rank, kernels, hidden, BRANCH_GAIN)  # B
        self.attention = None
        if heads:
            self.attention = NeighbourAttention(edge, state, latent, rank, heads, hidden)
        self.own = nn.Linear(state, rank)  # D, theta
        self.without_history = nn.Linear(state, rank)
        self.mix = nn.Linear(rank, rank)  # E
        width = rank * channels
        self.trunk_lead = nn.Linear(horizon, width, bias=False)  # Q
        self.trunk_place = TrunkNetwork(place + horizon, width)  # m1
        self.trunk_time = TrunkNetwork(horizon + time, width) if time else None  # m2
        self.bias = nn.Parameter(torch.zeros(horizon, channels))  # c
        nn.init.zeros_(self.trunk_lead.weight)

    def branch(
        self,
        encoded: Float[Tensor, "node batch latent"],
        state: Float[Tensor, "query batch state"],
        neighbours: Neighbours,
        present: Bool[Tensor, "node batch"] | None,
        has_history: Bool[Tensor, "query batch_or_1"] | None,
        kept: Float[Tensor, "query 1 rank"] | None = None,
    ) -> Float[Tensor, "query batch rank"]:
        """H at every query.

        Args:
            encoded: v at the nodes.
            state: s at the queries.
            neighbours: the nodes around each query.
            present: which nodes have a history; None: all.
            has_history: which queries have one; None: all.
            kept: factors of b, 0 where it is dropped; None: nowhere.
        """
        own = self.own(state)
        if has_history is not None:
            own = torch.where(has_history[..., None], own, self.without_history(state))
        b = own + self.around(encoded, neighbours, present)
        if self.attention is not None:
            b = b + self.attention(state, encoded, neighbours, present)
        b = b if kept is None else b * kept
        h = b + gelu(b)
        return h + gelu(self.mix(h))

    def forward(
        self,
        branch: Float[Tensor, "query batch rank"],
        lead: Float[Tensor, "rows future"],
        place: Float[Tensor, "query place"],
        time: Float[Tensor, "batch future feature"],
    ) -> Float[Tensor, "query batch future channel"]:
        """U at every query and lead, in units of the anchor's error.

        Args:
            branch: h.
            lead: in steps; one row for all windows or one each.
            place: coordinates of the queries.
            time: features of the target times.
        """
        hat = hat_functions(lead, self.horizon)  # rows future horizon
        by_place = self._by_place(branch, hat, place)
        if self.trunk_time is not None:
            both = torch.cat([hat.expand(time.shape[0], -1, -1), time], dim=-1)
            tau = self.trunk_time(both).unflatten(-1, (self.channels, self.rank))
            by_place = by_place + torch.einsum("nbr,btcr->nbtc", branch, tau)
        return by_place / math.sqrt(self.rank) + hat @ self.bias

    def _by_place(
        self,
        branch: Float[Tensor, "query batch rank"],
        hat: Float[Tensor, "rows future horizon"],
        place: Float[Tensor, "query place"],
    ) -> Float[Tensor, "query batch future channel"]:
        """<h, Q hat + m1([x, hat])>; the trunk is shared by all windows with the same leads."""
        inner, outer = self.trunk_place.inner, self.trunk_place.outer
        split = place.shape[-1]
        at_place = place @ inner.weight[:, :split].T + inner.bias
        at_lead = hat @ inner.weight[:, split:].T
        results = []
        for row in range(len(hat)):  # one, unless times are irregular
            tau = outer(gelu(at_place[:, None] + at_lead[row])) + self.trunk_lead(hat[row])
            some = branch if len(hat) == 1 else branch[:, row : row + 1]
            flat = tau.unflatten(-1, (self.channels, self.rank)).flatten(1, 2)
            results.append(torch.bmm(some, flat.transpose(1, 2)))
        result = torch.cat(results, dim=1)
        return result.unflatten(-1, (hat.shape[1], self.channels))


def keep(
    queries: Float[Tensor, "query _"], rank: int, drop: float, seed: int
) -> Float[Tensor, "query 1 rank"]:
    """The factors of dropout: one draw for all windows, so that they may be divided at will.

    Args:
        queries: whose number, type and device the result has.
        rank: width of the branch.
        drop: share that is dropped.
        seed: of the draw.
    """
    shape = len(queries), 1, rank
    draws = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    kept = (draws >= drop).to(queries.dtype) / (1 - drop)
    return to_device(kept, queries.device)


class TrunkNetwork(nn.Module):
    """A network with one hidden layer that starts small.

    Args:
        inputs: width of the input.
        width: of the result.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, TRUNK_HIDDEN)
        self.outer = nn.Linear(TRUNK_HIDDEN, width)
        with torch.no_grad():
            self.outer.weight.mul_(TRUNK_GAIN)
            self.outer.bias.zero_()

    def forward(self, inputs: Float[Tensor, "*shape input"]) -> Float[Tensor, "*shape width"]:
        """The network's result.

        Args:
            inputs: times, with or without places.
        """
        result: Tensor = self.outer(gelu(self.inner(inputs)))
        return result
