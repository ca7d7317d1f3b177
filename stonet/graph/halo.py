"""The halo of some nodes: all other nodes that their forecast depends on.

The dependencies are followed backwards through the edges of the complete graph. No edge is searched
anew, so that a subgraph gives the same forecast at its core as the complete graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int32, Int64

from stonet.data.geometry import Points
from stonet.graph.multipole import MultipoleGraph, Radii
from stonet.graph.neighbours import Describe, Neighbours, edges_within, neighbours_of

Nodes = Int64[np.ndarray, " _"]  # positions among all nodes
Some = Bool[np.ndarray, " _"]  # of all nodes


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges among all nodes, by target.

    Args:
        start: position of the first edge to each node; its last entry is the number of edges.
        source: of each edge.
        radius: of the neighbourhood; 0 without edges.
    """

    start: Int64[np.ndarray, " all_and_one"]
    source: Int32[np.ndarray, " edge"]
    radius: float

    def of(self, targets: Some) -> tuple[Nodes, Nodes]:
        """(target, source) of the edges to these targets.

        Args:
            targets: whether each node is a target.
        """
        chosen = np.flatnonzero(targets)
        first, count = self.start[chosen], np.diff(self.start)[chosen]
        offset = np.repeat(first - np.cumsum(count) + count, count)
        return np.repeat(chosen, count), self.source[offset + np.arange(len(offset))].astype(
            np.int64
        )


@dataclass(frozen=True)
class Adjacency:
    """All edges among the nodes: of encoder and decoder, and the nodes for interpolation.

    Args:
        nodes: all points.
        level: of each node, 0 the finest.
        within: edges within each level.
        up: edges to the next coarser level.
        down: edges to the next finer level.
        decoder: edges from which the decoder reads.
        near: nodes from which each node is interpolated.
        isolated: nodes without a neighbour.
    """

    nodes: Points
    level: Nodes
    within: tuple[Edges, ...]
    up: tuple[Edges, ...]
    down: tuple[Edges, ...]
    decoder: Edges
    near: Int32[np.ndarray, "all near"] | None
    isolated: int


@dataclass(frozen=True)
class Subgraph:
    """Some nodes (`core` of them first, then their halo) and the edges that the core needs.

    Args:
        nodes: positions of the points among all nodes.
        points: core and halo.
        core: points of the forecast.
        multipole: edges of the encoder among `points`.
        decoder: edges from `points` to `core`.
        near: nodes from which each point of the core is interpolated.
    """

    nodes: Nodes
    points: Points
    core: Points
    multipole: MultipoleGraph
    decoder: Neighbours
    near: Int64[np.ndarray, "core near"] | None


def build_adjacency(
    nodes: Points, level: Nodes, radii: Radii, near: Int64[np.ndarray, "all near"] | None
) -> Adjacency:
    """All edges among the nodes, without edge features.

    Args:
        nodes: all points.
        level: of each node in the multipole graph.
        radii: of the edges.
        near: nodes in the stencil of each node (None: the model has no linear base).
    """
    members = [np.flatnonzero(level == number) for number in range(len(radii.within))]
    isolated = 0

    def connect(target: Nodes, source: Nodes, radius: float) -> Edges:
        nonlocal isolated
        if not len(target) or not len(source):
            return Edges(np.zeros(len(nodes) + 1, np.int64), np.zeros(0, np.int32), radius)
        a, b, empty = edges_within(nodes.take(target), nodes.take(source), radius)
        isolated += empty
        a, b = target[a], source[b]
        start = np.concatenate([[0], np.cumsum(np.bincount(a, minlength=len(nodes)))])
        order = np.argsort(a, kind="stable")
        return Edges(start.astype(np.int64), b[order].astype(np.int32), radius)

    every = np.arange(len(nodes))
    between = list(zip(members, members[1:], radii.between, strict=False))
    return Adjacency(
        nodes,
        level,
        tuple(connect(m, m, r) for m, r in zip(members, radii.within, strict=True)),
        tuple(connect(coarse, fine, r) for fine, coarse, r in between),
        tuple(connect(fine, coarse, r) for fine, coarse, r in between),
        connect(every, every, radii.decoder),
        None if near is None else near.astype(np.int32),
        isolated,
    )


def subgraph(
    adjacency: Adjacency, core: Nodes, layers: int, encoder: Describe, decoder: Describe
) -> Subgraph:
    """The nodes and edges that forecast and reconstruction at the core depend on.

    Args:
        adjacency: of all nodes.
        core: positions of the nodes to forecast.
        layers: of the encoder.
        encoder: edge features of the encoder.
        decoder: edge features of the decoder.
    """
    need = np.zeros(len(adjacency.nodes), bool)
    need[core] = True
    in_core = need.copy()
    need[adjacency.decoder.of(in_core)[1]] = True
    if adjacency.near is not None:  # before the walk: their encoded past may be read
        need[adjacency.near[core]] = True
    targets: dict[Edges, Some] = {}
    nobody = np.zeros_like(need)
    for _ in range(layers):  # from the last layer to the first, which needs most
        for edges in (*adjacency.down, *reversed(adjacency.up), *adjacency.within):
            targets[edges] = need.copy()
            need[edges.of(need)[1]] = True
    need[core] = False
    nodes = np.concatenate([core, np.flatnonzero(need)])
    points, position = adjacency.nodes.take(nodes), np.full(len(adjacency.nodes), -1)
    position[nodes] = np.arange(len(nodes))
    level = adjacency.level[nodes]
    members = [np.flatnonzero(level == number) for number in range(len(adjacency.within))]
    rank = np.empty_like(nodes)
    for member in members:
        rank[member] = np.arange(len(member))

    def connect(edges: Edges, to: int, of: int) -> Neighbours:
        target, source = edges.of(targets.get(edges, nobody))
        if not len(target):
            return Neighbours((), torch.zeros(len(members[to])), len(members[of]), 0)
        ends = points.take(members[to]), points.take(members[of])
        local = rank[position[target]], rank[position[source]]
        return neighbours_of(*ends, *local, edges.radius, encoder)

    order = np.concatenate(members)
    target, source = adjacency.decoder.of(in_core)
    middle = points.take(np.arange(len(core)))
    return Subgraph(
        nodes,
        points,
        middle,
        MultipoleGraph(
            members=tuple(torch.from_numpy(member) for member in members),
            within=tuple(connect(e, n, n) for n, e in enumerate(adjacency.within)),
            up=tuple(connect(e, n + 1, n) for n, e in enumerate(adjacency.up)),
            down=tuple(connect(e, n, n + 1) for n, e in enumerate(adjacency.down)),
            restore=torch.from_numpy(np.argsort(order)),
        ),
        neighbours_of(
            middle, points, position[target], position[source], adjacency.decoder.radius, decoder
        ),
        None if adjacency.near is None else position[adjacency.near[core]],
    )
