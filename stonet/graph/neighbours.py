"""Neighbours within a radius or nearest neighbours, by k-d trees.

Neighbours within a radius are stored as padded blocks of targets with similar degree. Padding
points to one additional source row of zeros, so that operators need no special case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from scipy.spatial import cKDTree
from torch import Tensor

from stonet.data.geometry import Points

BLOCK = 256  # targets in a block: small enough for the cache, large enough for the GEMM
FEW = 48  # smallest number of targets in a block, even if their degrees differ
ALIKE = 1.1  # largest degree of a larger block, over its smallest
SLACK = 1e-12  # relative; d(x, y) <= radius is inclusive, as in the paper
Describe = Literal["nothing", "difference", "offset", "sharp"]  # features of an edge


@dataclass(frozen=True)
class Block:
    """Targets of similar degree with their neighbours.

    Args:
        rows: positions among the targets.
        index: sources; padding = number of sources.
        features: of each edge; zero where padded.
    """

    rows: Int[Tensor, " row"]
    index: Int[Tensor, "row degree"]
    features: Float[Tensor, "row degree feature"]

    def to(self, device: torch.device, dtype: torch.dtype) -> Block:
        """The block on a device, with features in this precision.

        Args:
            device: a processor or a GPU.
            dtype: of the edge features.
        """
        return Block(self.rows.to(device), self.index.to(device), self.features.to(device, dtype))


@dataclass(frozen=True)
class Neighbours:
    """N(x) for every target x: the sources within the radius.

    Args:
        blocks: together they contain every target once.
        count: |N(x)|.
        num_sources: number of sources.
        isolated: targets without a source within the radius, linked to the nearest one.
    """

    blocks: tuple[Block, ...]
    count: Float[Tensor, " target"]
    num_sources: int
    isolated: int

    def to(self, device: torch.device, dtype: torch.dtype) -> Neighbours:
        """The neighbours on a device, with features in this precision.

        Args:
            device: a processor or a GPU.
            dtype: of edge features and counts.
        """
        blocks = tuple(block.to(device, dtype) for block in self.blocks)
        return Neighbours(blocks, self.count.to(device, dtype), self.num_sources, self.isolated)

    def edges(self) -> tuple[Int[Tensor, " edge"], Int[Tensor, " edge"]]:
        """(target, source) of every edge, sorted by target."""
        none = [torch.zeros(0, dtype=torch.int64, device=self.count.device)]
        targets = [b.rows[:, None].expand_as(b.index).flatten() for b in self.blocks]
        sources = [b.index.flatten() for b in self.blocks]
        target, source = torch.cat(none + targets), torch.cat(none + sources)
        real = source < self.num_sources
        target, source = target[real], source[real]
        order = torch.argsort(target, stable=True)
        return target[order], source[order]


def nearest_nodes(
    queries: Points, nodes: Points, count: int = 1
) -> tuple[Float64[np.ndarray, "query near"], Int64[np.ndarray, "query near"]]:
    """The nearest nodes of each query.

    Args:
        queries: points whose neighbours are searched.
        nodes: points among which they are searched.
        count: number of neighbours; at most all nodes.

    Returns:
        The straight distances in the embedding and the positions among the nodes, nearest first.
    """
    columns = list(range(1, min(count, len(nodes)) + 1))
    distance, index = cKDTree(nodes.embedded).query(queries.embedded, k=columns)
    return np.asarray(distance), np.asarray(index, dtype=np.int64)


def count_within(points: Points, radius: float) -> Int64[np.ndarray, " node"]:
    """Number of points within the radius of each point, itself included.

    Args:
        points: all points.
        radius: inclusive.
    """
    chord = points.geometry.chord(radius) * (1 + SLACK)
    tree = cKDTree(points.embedded)
    return np.asarray(tree.query_ball_point(points.embedded, chord, return_length=True))


def within_radius(
    targets: Points, sources: Points, radius: float, describe: Describe = "sharp"
) -> Neighbours:
    """All sources with d(x, x_j) <= radius for each target x; the nearest one if there is none.

    Args:
        targets: points whose neighbours are searched.
        sources: points among which they are searched.
        radius: on a sphere in radians.
        describe: edge features.
    """
    target, source, isolated = edges_within(targets, sources, radius)
    return neighbours_of(targets, sources, target, source, radius, describe, isolated)


def edges_within(
    targets: Points, sources: Points, radius: float
) -> tuple[Int64[np.ndarray, " edge"], Int64[np.ndarray, " edge"], int]:
    """(target, source) of every edge, and the number of targets linked to the nearest source.

    Args:
        targets: points whose neighbours are searched.
        sources: points among which they are searched.
        radius: inclusive.
    """
    target, source = pairs_within(targets, sources, radius)
    empty = np.flatnonzero(np.bincount(target, minlength=len(targets)) == 0)
    if len(empty):
        closest = nearest_nodes(targets.take(empty), sources)[1][:, 0]
        target = np.concatenate([target, empty])
        source = np.concatenate([source, closest])
    return target, source, len(empty)


def neighbours_of(
    targets: Points,
    sources: Points,
    target: Int64[np.ndarray, " edge"],
    source: Int64[np.ndarray, " edge"],
    radius: float,
    describe: Describe,
    isolated: int = 0,
) -> Neighbours:
    """Edges with their features, in blocks.

    Args:
        targets: all targets.
        sources: all sources.
        target: of each edge.
        source: of each edge.
        radius: the unit of length of the features.
        describe: edge features.
        isolated: number of targets linked to the nearest source only.
    """
    order = np.argsort(target, kind="stable")
    edges = target[order], source[order]
    degree = np.bincount(target, minlength=len(targets))
    described = edge_features(targets, sources, *edges, radius, describe)
    blocks = _blocks(*edges, described, degree, len(sources))
    return Neighbours(blocks, torch.from_numpy(degree).float(), len(sources), isolated)


def pairs_within(
    targets: Points, sources: Points, radius: float
) -> tuple[Int64[np.ndarray, " edge"], Int64[np.ndarray, " edge"]]:
    """(target, source) of all pairs within the radius, inclusive.

    Args:
        targets: the first points of the pairs.
        sources: the second points of the pairs.
        radius: inclusive.
    """
    geometry = targets.geometry
    chord = geometry.chord(radius) * (1 + 1e-9) + 1e-15  # slightly larger; the exact test follows
    near = cKDTree(sources.embedded).query_ball_point(targets.embedded, chord, return_sorted=True)
    lengths = np.fromiter((len(row) for row in near), np.int64, len(near))
    target = np.repeat(np.arange(len(targets)), lengths)
    source = np.concatenate([np.asarray(row, dtype=np.int64) for row in near]).astype(np.int64)
    exact = geometry.distance(targets.embedded[target], sources.embedded[source])
    keep = exact <= radius * (1 + SLACK)
    return target[keep], source[keep]


def edge_features(
    targets: Points,
    sources: Points,
    target: Int64[np.ndarray, " edge"],
    source: Int64[np.ndarray, " edge"],
    radius: float,
    describe: Describe,
) -> Float64[np.ndarray, "edge feature"]:
    """Features of each edge; lengths are divided by the radius.

    "difference" is the paper's x - x_j, in the unit of the coordinates; "offset" is the same over
    the radius. "sharp" is the offset in local directions at x, the distance and its square, and
    whether x_j is x itself.

    Args:
        targets: all targets.
        sources: all sources.
        target: of each edge.
        source: of each edge.
        radius: the unit of length.
        describe: which features.
    """
    geometry = targets.geometry
    x, y = targets.embedded[target], sources.embedded[source]
    if describe == "nothing":
        return np.zeros((len(target), 0))
    if describe != "sharp":
        return x - y if describe == "difference" else (x - y) / radius
    distance = geometry.distance(x, y)[:, None] / radius
    offset = geometry.offset(x, y) / radius
    return np.concatenate([offset, distance, distance**2, same_place(distance)], axis=1)


def edge_width(describe: Describe, dimension: int) -> int:
    """Number of features of an edge.

    Args:
        describe: which features.
        dimension: of the embedding.
    """
    return {"nothing": 0, "difference": dimension, "offset": dimension, "sharp": 5}[describe]


def same_place(distance: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """1 where two points coincide within rounding, else 0.

    Args:
        distance: in the units of the geometry.
    """
    return (distance <= 1e-9).astype(np.float64)


def own_nodes(queries: Points, nodes: Points) -> Int64[np.ndarray, " query"]:
    """The node at the position of each query, or the number of nodes if there is none.

    If queries and nodes are equal, each is its own node, even where two of them coincide.

    Args:
        queries: points to look up.
        nodes: points to find.
    """
    if queries == nodes:
        return np.arange(len(nodes))
    distance, index = nearest_nodes(queries, nodes)
    return np.where(same_place(distance[:, 0]) > 0, index[:, 0], len(nodes))


def radius_for_degree(targets: Points, sources: Points, degree: float) -> float:
    """The smallest radius that gives the targets `degree` sources on average.

    Args:
        targets: points with neighbours.
        sources: the neighbours.
        degree: mean number of sources.
    """
    wanted = math.ceil(min(degree, len(sources)) * len(targets))
    chord = _chord_for_pairs(cKDTree(targets.embedded), cKDTree(sources.embedded), wanted)
    low, high = 0.0, _extent(targets, sources)
    for _ in range(60):  # bisection: the radius of this chord
        middle = (low + high) / 2
        low, high = (low, middle) if targets.geometry.chord(middle) >= chord else (middle, high)
    return max(high, 1e-12)


def _chord_for_pairs(targets: cKDTree, sources: cKDTree, wanted: int) -> float:
    """The smallest straight distance within which `wanted` pairs lie."""
    each = min(sources.n, -(-wanted // targets.n))
    distance = np.asarray(sources.query(targets.data, k=[each])[0])
    low, high, middle = 0.0, float(distance.max()), float(np.median(distance))
    for _ in range(60):  # bisection, until few enough pairs are left to list
        count = int(targets.count_neighbors(sources, middle))
        low, high = (low, middle) if count >= wanted else (middle, high)
        if wanted <= count <= 2 * wanted:
            break
        middle = (low + high) / 2
    near = targets.sparse_distance_matrix(sources, high * (1 + 1e-9), output_type="ndarray")["v"]
    return float(np.partition(near, wanted - 1)[wanted - 1])


def _extent(targets: Points, sources: Points) -> float:
    if np.isfinite(targets.geometry.diameter):
        return targets.geometry.diameter
    both = np.concatenate([targets.embedded, sources.embedded])
    return float(np.linalg.norm(np.ptp(both, axis=0))) * (1 + 1e-9)


def _blocks(
    target: Int64[np.ndarray, " edge"],
    source: Int64[np.ndarray, " edge"],
    features: Float64[np.ndarray, "edge feature"],
    degree: Int64[np.ndarray, " target"],
    num_sources: int,
) -> tuple[Block, ...]:
    """Targets sorted by degree, in blocks that are padded to the largest degree of the block."""
    start = np.concatenate([[0], np.cumsum(degree)])
    by_degree = np.argsort(degree, kind="stable")
    blocks, first = [], int((degree == 0).sum())
    few = FEW if len(degree) > BLOCK else BLOCK  # for few points, small blocks would be slower
    while first < len(degree):
        rows = by_degree[first : first + BLOCK]
        alike = np.searchsorted(degree[rows], ALIKE * degree[rows[0]], side="right")
        rows = rows[: max(int(alike), few)]
        first += len(rows)
        column = np.arange(degree[rows].max())
        slot = start[rows][:, None] + column
        real = column < degree[rows][:, None]
        slot = np.where(real, slot, 0)
        index = np.where(real, source[slot], num_sources)
        described = np.where(real[..., None], features[slot], 0.0)
        parts = [torch.from_numpy(part) for part in (rows, index, described)]
        blocks.append(Block(parts[0], parts[1], parts[2].float()))
    return tuple(blocks)
