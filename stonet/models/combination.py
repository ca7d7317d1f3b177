r"""Combination: a network, and reference forecasts where validation favours them.

    u(x, t0 + lead) = sum over members m of  share[m](lead, channel) u_m(x, t0 + lead)

The shares add up to 1 at every trained lead. `stonet.training.fallback` chooses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.windows import Windows
from stonet.models.anchor import between_knots
from stonet.models.forecaster import (
    Encoding,
    Forecaster,
    Graphs,
    NodeGraph,
    QueryGraph,
    narrow,
)

NETWORK = "network"  # name of the member that was trained


@dataclass(frozen=True)
class MemberNodes(NodeGraph):
    """The node graph of each member.

    Args:
        parts: by name of the member.
    """

    parts: Mapping[str, NodeGraph]


@dataclass(frozen=True)
class MemberQueries(QueryGraph):
    """The query graph of each member.

    Args:
        parts: by name of the member.
    """

    parts: Mapping[str, QueryGraph]


@dataclass(frozen=True)
class MemberEncodings(Encoding):
    """The encoding of each member.

    Args:
        parts: by name of the member.
    """

    parts: Mapping[str, Encoding]


class Combination(Forecaster):
    """Several forecasters, each with a share that depends on lead and channel.

    A member without any share is stored but not computed.

    Args:
        members: by name; the trained network is `NETWORK`.
        shares: of each member, in their order, at the leads 1, ..., horizon.

    Example:
        >>> model = Combination({"network": network, "persistence": reference}, shares)
    """

    shares: Tensor

    def __init__(
        self, members: Mapping[str, Forecaster], shares: Float[Tensor, "member lead channel"]
    ) -> None:
        super().__init__()
        self.members = nn.ModuleDict(members)
        self.names = tuple(members)
        self.inductive = all(member.inductive for member in members.values())
        self.register_buffer("shares", torch.cat([shares[:, :1], shares], dim=1))  # from lead 0

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the members with a share."""
        return tuple(n for n, share in zip(self.names, self.shares, strict=True) if share.any())

    def member(self, name: str) -> Forecaster:
        """A member by its name.

        Args:
            name: of the member.
        """
        return narrow(self.members[name], Forecaster)  # type: ignore[type-abstract]

    def node_graph(self, nodes: Points) -> MemberNodes:
        """The node graphs of all used members."""
        return MemberNodes({name: self.member(name).node_graph(nodes) for name in self.used})

    def query_graph(self, nodes: Points, queries: Points) -> MemberQueries:
        """The query graphs of all used members."""
        return MemberQueries(
            {name: self.member(name).query_graph(nodes, queries) for name in self.used}
        )

    def encode(self, batch: Batch, graph: NodeGraph) -> MemberEncodings:
        """The past as each used member encodes it."""
        parts = narrow(graph, MemberNodes).parts
        return MemberEncodings(
            {name: self.member(name).encode(batch, part) for name, part in parts.items()}
        )

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The weighted mean of the members' forecasts; between trained leads shares are linear."""
        encodings = narrow(encoding, MemberEncodings).parts
        nodes, queries = narrow(graphs.nodes, MemberNodes), narrow(graphs.queries, MemberQueries)
        total = None
        for name, shares in zip(self.names, self.shares, strict=True):
            if name not in encodings:
                continue
            own = Graphs(nodes.parts[name], queries.parts[name])
            forecast = self.member(name).decode(encodings[name], batch, own)
            weight = between_knots(shares[None, None].to(forecast), batch.lead.to(forecast))
            part = weight[0, :, :, None] * forecast
            total = part if total is None else total + part
        assert total is not None  # shares add up to 1
        return total

    def isolated(self, graphs: Graphs) -> int:
        """Points without a neighbour, as the first used member counts them."""
        first = self.used[0]
        nodes, queries = narrow(graphs.nodes, MemberNodes), narrow(graphs.queries, MemberQueries)
        return self.member(first).isolated(Graphs(nodes.parts[first], queries.parts[first]))

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Fit the closed forms of all members."""
        for name in self.names:
            self.member(name).fit_closed_form(train, validation, nodes)
