"""MultipoleGraph: points in random levels, with edges within and between adjacent levels."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64, UInt64
from torch import Tensor

from stonet.config import Config, GraphConfig
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.graph.neighbours import Describe, Neighbours, radius_for_degree, within_radius


@dataclass(frozen=True)
class Radii:
    """The radius of each kind of edge, determined once on the training points.

    Args:
        within: one for each level.
        between: between levels l and l + 1.
        decoder: from nodes to queries.
    """

    within: tuple[float, ...]
    between: tuple[float, ...]
    decoder: float


@dataclass(frozen=True)
class MultipoleGraph:
    """The edges of the encoder. Level 0 is the finest; "up" goes to the next coarser level.

    Args:
        members: of each level: positions among the nodes.
        within: neighbours within each level.
        up: targets in level l + 1, sources in level l.
        down: targets in level l, sources in level l + 1.
        restore: from the order of the levels back to the order of the nodes.
    """

    members: tuple[Int[Tensor, " _"], ...]
    within: tuple[Neighbours, ...]
    up: tuple[Neighbours, ...]
    down: tuple[Neighbours, ...]
    restore: Int[Tensor, " node"]

    def to(self, device: torch.device, dtype: torch.dtype) -> MultipoleGraph:
        """The graph on a device, with edge features in this precision.

        Args:
            device: a processor or a GPU.
            dtype: of the edge features.
        """

        def move(family: tuple[Neighbours, ...]) -> tuple[Neighbours, ...]:
            return tuple(n.to(device, dtype) for n in family)

        return MultipoleGraph(
            tuple(m.to(device) for m in self.members),
            move(self.within),
            move(self.up),
            move(self.down),
            self.restore.to(device),
        )

    @property
    def isolated(self) -> int:
        """Number of points without a neighbour within a radius, linked to the nearest one."""
        return sum(n.isolated for family in (self.within, self.up, self.down) for n in family)


def assign_levels(points: Points, levels: int, seed: int) -> Int64[np.ndarray, " node"]:
    """A random partition into shares 1/2, 1/4, ...; the last two are equal (2048: 1024, 512, 512).

    The draw is keyed by (seed, coordinates): the order of the points has no effect.

    Args:
        points: to divide.
        levels: number of levels.
        seed: of the draw.
    """
    draw = _keys(points.embedded, seed)
    rank = np.empty(len(points), dtype=np.int64)
    rank[np.lexsort((*points.embedded.T, draw))] = np.arange(len(points))
    shares = [0.5 ** (level + 1) for level in range(levels - 1)]
    cuts = np.floor(np.cumsum(shares) * len(points) + 0.5)
    return np.searchsorted(cuts, rank, side="right").astype(np.int64)


def levels_for(
    points: Points, known: Points, known_levels: Int64[np.ndarray, " known"], seed: int
) -> Int64[np.ndarray, " node"]:
    """Levels of points: training points keep their levels, new points have level 0.

    Without any training point the coarse levels would be empty; then all points are divided.

    Args:
        points: whose levels are needed.
        known: the training points.
        known_levels: of the training points.
        seed: of a new division.
    """
    lookup = {
        key: int(level) for key, level in zip(_position_keys(known), known_levels, strict=True)
    }
    if not any(key in lookup for key in _position_keys(points)):  # another sensor network
        return assign_levels(points, int(known_levels.max()) + 1, seed)
    return np.array([lookup.get(key, 0) for key in _position_keys(points)], dtype=np.int64)


def find_radii(points: Points, level: Int64[np.ndarray, " node"], config: GraphConfig) -> Radii:
    """The radii of the settings, or those that give the mean degrees of the settings.

    Args:
        points: the training points.
        level: of each point.
        config: radii, or mean degrees.

    Raises:
        UsageError: there are too many levels, or the number of radii does not fit.
    """
    sets = [
        points.take(np.flatnonzero(level == number))
        for number in range(config.levels)
        if (level == number).any()
    ]
    if len(sets) < config.levels:
        raise UsageError(
            f"{config.levels} levels of {len(points)} points leave a level empty. "
            "Use fewer levels (graph.levels=1) or more points."
        )
    within = config.within_radii or tuple(
        radius_for_degree(s, s, config.within_degree) for s in sets
    )
    between = config.between_radii or tuple(
        radius_for_degree(fine, coarse, config.between_degree)
        for fine, coarse in itertools.pairwise(sets)
    )
    decoder = config.decoder_radius or radius_for_degree(points, points, config.decoder_degree)
    for name, given, needed in (
        ("within_radii", within, config.levels),
        ("between_radii", between, config.levels - 1),
        ("decoder_radius", (decoder,), 1),
    ):
        if len(given) != needed or min(given, default=1.0) <= 0:
            raise UsageError(
                f"graph.{name} is {given}; {config.levels} levels need {needed} of them, all > 0."
            )
    return Radii(tuple(within), tuple(between), decoder)


def build_graph(
    points: Points, level: Int64[np.ndarray, " node"], radii: Radii, describe: Describe = "sharp"
) -> MultipoleGraph:
    """Edges within each level, from fine to coarse and from coarse to fine levels.

    Args:
        points: the nodes.
        level: of each node.
        radii: of the edges.
        describe: edge features.
    """
    count = len(radii.within)
    members = [np.flatnonzero(level == number) for number in range(count)]
    sets = [_subset(points, index) for index in members]
    order = np.concatenate(members)
    restore = np.empty_like(order)
    restore[order] = np.arange(len(order))

    def connect(target: Points | None, source: Points | None, radius: float) -> Neighbours:
        if target is None or source is None:  # an empty level
            targets = 0 if target is None else len(target)
            return Neighbours((), torch.zeros(targets), 0 if source is None else len(source), 0)
        return within_radius(target, source, radius, describe)

    between = list(zip(sets, sets[1:], radii.between, strict=False))
    return MultipoleGraph(
        members=tuple(torch.from_numpy(index) for index in members),
        within=tuple(connect(s, s, r) for s, r in zip(sets, radii.within, strict=True)),
        up=tuple(connect(coarse, fine, r) for fine, coarse, r in between),
        down=tuple(connect(fine, coarse, r) for fine, coarse, r in between),
        restore=torch.from_numpy(restore),
    )


def _subset(points: Points, index: Int64[np.ndarray, " member"]) -> Points | None:
    return points.take(index) if len(index) else None


def _position_keys(points: Points) -> list[bytes]:
    """A key for each position, equal for longitudes 360 degrees apart and for -0.0 and 0.0."""
    rounded = np.round(points.embedded, 9) + 0.0
    return [row.tobytes() for row in rounded]


def _keys(embedded: Float64[np.ndarray, "node m"], seed: int) -> UInt64[np.ndarray, " node"]:
    """A hash of (seed, position) for each point: splitmix64 of the rounded coordinates."""
    bits = (np.round(embedded, 9) + 0.0).view(np.uint64)
    state = np.full(len(embedded), np.uint64(seed % 2**64), dtype=np.uint64)
    for column in bits.T:
        state = state ^ column
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def resolve_graph(config: Config, nodes: Points) -> Config:
    """The configuration with radii for these points and at most as many levels as they can fill.

    Args:
        config: with radii or mean degrees in section `graph`.
        nodes: the training points.
    """
    graph = config.graph
    fewer = max(1, min(graph.levels, int(np.log2(max(len(nodes), 1)))))
    graph = graph.model_copy(update={"levels": fewer})
    radii = find_radii(nodes, assign_levels(nodes, fewer, graph.seed), graph)
    found = {
        "within_radii": radii.within,
        "between_radii": radii.between,
        "decoder_radius": radii.decoder,
    }
    return config.model_copy(update={"graph": GraphConfig(**graph.model_dump() | found)})
