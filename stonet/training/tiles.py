"""Tiles: node sets too large for one step, part by part, each with its halo.

The forecast at a tile's core is the one that all nodes together would give, so the losses of all
tiles add up to the loss.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from jaxtyping import Int64

from stonet.data.geometry import Points
from stonet.models.forecaster import Forecaster, Tile

WHOLE = 20_000  # points up to which one step takes them all
USUAL = 8_192  # points of a tile, beyond
KEPT = 8  # tiles whose scenes are kept

Core = Int64[np.ndarray, " _"]


class Tiles:
    """The nodes in tiles; scenes are made when they are first asked for, and a few are kept.

    Args:
        model: whose scenes these are.
        nodes: all the points that training sees.
        size: points in a tile; None: as many as suit the machine.
    """

    def __init__(self, model: Forecaster, nodes: Points, size: int | None = None) -> None:
        self.model, self.nodes = model, nodes
        self.cores = bisect(nodes, tile_count(model, len(nodes), size))
        if len(self.cores) > 1 and not model.tiled:
            model.adjacency(nodes)  # which refuses
        self.isolated = 0  # known after `prepare`
        self._made: OrderedDict[int, Tile] = OrderedDict()
        self._lock = threading.Lock()  # the next step is prepared beside the current one

    def __len__(self) -> int:
        return len(self.cores)

    def prepare(self) -> None:
        """What all tiles share; after the closed forms, which set the stencils' scale."""
        self._made.clear()
        if len(self) == 1:
            graphs = self.model.graphs(self.nodes)
            self._made[0] = Tile(None, len(self.nodes), graphs)
            self.isolated = self.model.isolated(graphs)
        else:
            self.adjacency = self.model.adjacency(self.nodes)
            self.isolated = self.adjacency.isolated

    def __getitem__(self, number: int) -> Tile:
        with self._lock:
            if number not in self._made:
                if len(self._made) == KEPT:
                    self._made.popitem(last=False)
                self._made[number] = self.model.tile(self.adjacency, self.cores[number])
            self._made.move_to_end(number)
            return self._made[number]


def tile_count(model: Forecaster, points: int, size: int | None) -> int:
    """How many tiles; models that see all points at once have one, unless they are asked."""
    if size is None:
        size = USUAL if model.tiled and points > WHOLE else points
    return -(-points // size)


def bisect(points: Points, count: int) -> list[Core]:
    """Compact parts of (almost) the same size, by halving across the longer side again and again.

    It depends on nothing random.
    """

    def halve(part: Core, count: int) -> list[Core]:
        if count == 1:
            return [np.sort(part)]
        place = points.embedded[part]
        longest = int(np.ptp(place, axis=0).argmax())
        order = part[np.argsort(place[:, longest], kind="stable")]
        cut = round(len(part) * (count // 2) / count)
        return halve(order[:cut], count // 2) + halve(order[cut:], count - count // 2)

    return halve(np.arange(len(points)), min(count, len(points)))
