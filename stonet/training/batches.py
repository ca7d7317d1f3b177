"""What a training step sees: some windows, at all nodes or on one spatial tile of them.

Node sets too large for one step are cut into tiles, each with its halo. The forecast at a tile's
core equals that of all nodes together, so the losses of all tiles add up to the loss.

Every batch is a pure function of (seed, epoch, step): a resumed training and a training on more
processes see the same batches.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.windows import Windows
from stonet.graph.neighbours import nearest_nodes
from stonet.models.forecaster import Forecaster, Supervision, Tile
from stonet.system import distributed, threads
from stonet.system.devices import to_device

STEPS_PER_TILE = 4  # consecutive steps on one tile, for which its graphs are built once
MAX_UNTILED_POINTS = 20_000  # up to which a step sees all points
TILE_POINTS = 8_192  # of a tile, beyond
MAX_CACHED_TILES = 8  # whose graphs are kept in memory
T = TypeVar("T")
Index = Int64[np.ndarray, " _"]


@dataclass(frozen=True)
class MicroBatch:
    """Some windows of a step, with their targets.

    Args:
        batch: inputs.
        target: values after the issue time.
        mask: of the target.
        draws: for teacher forcing.
        seed: of the step.
    """

    batch: Batch
    target: Float[Tensor, "batch future node channel"]
    mask: Bool[Tensor, "batch future node channel"]
    draws: Float[Tensor, " future"]
    seed: int

    def supervision(self, progress: float) -> Supervision:
        """The targets at this completed share of the training.

        Args:
            progress: completed share of the training, from 0 to 1.
        """
        return Supervision(self.target, self.mask, progress, self.draws, self.seed)


@dataclass(frozen=True)
class StepBatch:
    """The input of one training step, on its device: one micro-batch for each thread.

    Args:
        micro_batches: together the windows of this process.
        tile: the nodes.
    """

    micro_batches: tuple[MicroBatch, ...]
    tile: Tile


class Tiles:
    """The nodes in spatial tiles; their graphs are built on first use and cached.

    Args:
        model: builds the graphs.
        nodes: the training points.
        size: points in a tile (None: all points up to 20,000, else 8,192).
        max_cached: tiles whose graphs are kept in memory.
    """

    def __init__(
        self,
        model: Forecaster,
        nodes: Points,
        size: int | None = None,
        max_cached: int = MAX_CACHED_TILES,
    ) -> None:
        self.model, self.nodes, self.max_cached = model, nodes, max_cached
        self.cores = bisect(nodes, tile_count(model, len(nodes), size))
        if len(self.cores) > 1 and not model.tiled:
            model.adjacency(nodes)  # raises the model's own error
        self.isolated = 0  # points without a neighbour; counted by `prepare`
        self._cache: OrderedDict[int, Tile] = OrderedDict()
        self._lock = threading.Lock()  # the next step is prepared in another thread

    def __len__(self) -> int:
        return len(self.cores)

    def prepare(self) -> None:
        """Build what all tiles share, after the closed forms, which set the stencils' scale."""
        self._cache.clear()
        if len(self) == 1:
            graphs = self.model.graphs(self.nodes)
            self._cache[0] = Tile(None, len(self.nodes), graphs)
            self.isolated = self.model.isolated(graphs)
        else:
            self.adjacency = self.model.adjacency(self.nodes)
            self.isolated = self.adjacency.isolated

    def __getitem__(self, number: int) -> Tile:
        with self._lock:
            if number not in self._cache:
                if len(self._cache) == self.max_cached:
                    self._cache.popitem(last=False)
                self._cache[number] = self.model.tile(self.adjacency, self.cores[number])
            self._cache.move_to_end(number)
            return self._cache[number]


def tile_count(model: Forecaster, points: int, size: int | None) -> int:
    """The number of tiles; a model that depends on all points has one unless `size` is given.

    Args:
        model: to be trained.
        points: number of points.
        size: points in a tile, as set by the user; None: the model decides.
    """
    if size is None:
        size = TILE_POINTS if model.tiled and points > MAX_UNTILED_POINTS else points
    return -(-points // size)


def bisect(points: Points, count: int) -> list[Index]:
    """Compact parts of nearly equal size, by repeated halving across the longest side.

    The result is deterministic.

    Args:
        points: to be divided.
        count: number of parts.
    """

    def halve(part: Index, count: int) -> list[Index]:
        if count == 1:
            return [np.sort(part)]
        position = points.embedded[part]
        longest = int(np.ptp(position, axis=0).argmax())
        order = part[np.argsort(position[:, longest], kind="stable")]
        cut = round(len(part) * (count // 2) / count)
        return halve(order[:cut], count // 2) + halve(order[cut:], count - count // 2)

    return halve(np.arange(len(points)), min(count, len(points)))


class BatchLoader:
    """Prepares the batch of any step.

    Args:
        windows: of the training part.
        tiles: of the training points.
        config: its `train` and `augmentation` sections are used.
        device: where the batches are sent.
    """

    def __init__(
        self, windows: Windows, tiles: Tiles, config: Config, device: torch.device
    ) -> None:
        self.windows, self.tiles, self.device = windows, tiles, device
        self.config, self.hidden = config.train.complete, config.augmentation.hidden_sensors or 0.0
        self.regions = config.augmentation.hidden_regions
        batches = windows.batches(self.config.batch, self.config.consecutive or 1)
        self.steps_per_pass = batches * len(tiles)  # every window on every tile once
        self.steps_per_epoch = min(self.config.steps or self.steps_per_pass, self.steps_per_pass)
        self._cached_plan = lru_cache(2)(self._epoch_plan)

    def selection(self, step: int) -> tuple[int, Int64[np.ndarray, " batch"]]:
        """The tile and the windows of a step.

        Args:
            step: number of the step, from 0.
        """
        epoch, number = divmod(step, self.steps_per_epoch)
        pairs, batches = self._cached_plan(epoch)
        tile, batch = pairs[number]
        return tile, batches[batch]

    def _epoch_plan(
        self, epoch: int
    ) -> tuple[list[tuple[int, int]], list[Int64[np.ndarray, " batch"]]]:
        """Every pair (tile, batch) once, several batches in a row on each tile; the batches."""
        config, tiles = self.config, len(self.tiles)
        batches = self.windows.order(config.batch, config.consecutive or 1, config.seed, epoch)
        generator = np.random.default_rng((config.seed, epoch, tiles))
        pairs = [
            (int(tile), batch)
            for first in range(0, len(batches), STEPS_PER_TILE)
            for tile in generator.permutation(tiles)
            for batch in range(first, min(first + STEPS_PER_TILE, len(batches)))
        ]
        return pairs, batches

    def step_batch(self, step: int) -> StepBatch:
        """This process's share of a step.

        Args:
            step: number of the step, from 0.
        """
        number, chosen = self.selection(step)
        share = np.array_split(chosen, distributed.size())[distributed.rank()]
        tile = self.tiles[number]
        parts = split_consecutive(share, threads.count(self.device))
        return StepBatch(tuple(self._micro_batch(step, part, tile) for part in parts), tile)

    def _micro_batch(
        self, step: int, chosen: Int64[np.ndarray, " batch"], tile: Tile
    ) -> MicroBatch:
        """Windows with hidden sensors, their targets, and draws for teacher forcing."""
        key = (self.config.seed, step)
        batch, target, mask = on_tile(self.windows, chosen, tile)
        if self.hidden:
            hidden = hidden_sensors(self.tiles.nodes, self.hidden, self.regions, key)
            batch = hide_sensors(batch, hidden if tile.nodes is None else hidden[tile.nodes])
        draws = _uniform_draws(target.shape[1], key)
        target, mask = to_device(target, self.device), to_device(mask, self.device)
        return MicroBatch(batch.to(self.device), target, mask, draws, _seed(key))


def split_consecutive(chosen: Int64[np.ndarray, " batch"], parts: int) -> list[Index]:
    """At most `parts` parts; consecutive windows stay together, since they share frames.

    Args:
        chosen: positions of windows, increasing.
        parts: number of threads.
    """
    groups = np.split(chosen, 1 + np.flatnonzero(np.diff(chosen) != 1))
    shares = np.array_split(np.arange(len(groups)), min(parts, len(groups)))
    return [np.concatenate([groups[i] for i in share]) for share in shares]


def on_tile(
    windows: Windows, chosen: Int64[np.ndarray, " batch"], tile: Tile
) -> tuple[Batch, Tensor, Tensor]:
    """Inputs at the nodes of a tile; targets and their mask at its core.

    Args:
        windows: at all nodes.
        chosen: positions of windows.
        tile: some of the nodes.
    """
    if tile.nodes is None:
        return windows.inputs(chosen), *windows.targets(chosen)
    core = windows.take(tile.nodes[: tile.core])
    return windows.take(tile.nodes).inputs(chosen), *core.targets(chosen)


@contextmanager
def prefetch(make: Callable[[int], T], steps: int | None) -> Iterator[Callable[[int], T]]:
    """`make` as a function of the step; a thread makes step n + 1 while step n is used.

    Args:
        make: called with the number of a step.
        steps: of the whole training (None: not known).
    """
    ready: dict[int, Future[T]] = {}
    with ThreadPoolExecutor(1, "stonet-loader") as thread:

        def take(step: int) -> T:
            future = ready.pop(step, None) or thread.submit(make, step)
            ready.clear()
            result = future.result()
            if steps is None or step + 1 < steps:
                ready[step + 1] = thread.submit(make, step + 1)
            return result

        try:
            yield take
        finally:
            for future in ready.values():
                future.cancel()


def hidden_sensors(
    sensors: Points, share: float, regions: float, key: tuple[int, int]
) -> Bool[np.ndarray, " sensor"]:
    """The sensors that a step hides: single ones, or a region of neighbouring ones.

    A sensor whose neighbours report is easily interpolated; a region without sensors is what a
    forecast far from any sensor meets.

    Args:
        sensors: all of them.
        share: of the sensors that are hidden.
        regions: share of the steps that hide a region.
        key: of the random draws: (seed, step).
    """
    draws = _uniform_draws(len(sensors) + 2, key).numpy()
    region, centre, each = draws[0] < regions, int(draws[1] * len(sensors)), draws[2:]
    if not region:
        return np.asarray(each < share)
    near = nearest_nodes(
        sensors.take(np.array([centre])), sensors, max(1, round(share * len(sensors)))
    )
    hidden = np.zeros(len(sensors), dtype=bool)
    hidden[near[1][0]] = share > 0
    return hidden


def hide_sensors(batch: Batch, hidden: Bool[np.ndarray, " node"]) -> Batch:
    """The batch without any value of the hidden nodes, as if they had failed.

    Args:
        batch: inputs.
        hidden: which nodes.
    """
    if not hidden.any():
        return batch
    observed = batch.seen & torch.from_numpy(~hidden)[None, :, None]
    return replace(batch, frames=batch.frames * observed, observed=observed)


def _uniform_draws(count: int, key: tuple[int, int]) -> Float[Tensor, " count"]:
    """Numbers in [0, 1) that depend on the key only."""
    return torch.rand(count, generator=torch.Generator().manual_seed(_seed(key)))


def _seed(key: tuple[int, int]) -> int:
    """One number for (seed, step)."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])
