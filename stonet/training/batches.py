"""What a step is fed: a batch of windows on a tile, ready before it is asked for.

Everything is a pure function of (seed, epoch, step): a resumed run and a run on more processes see
the same, and the thread that prepares the next step decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.windows import Windows
from stonet.models.forecaster import Supervision, Tile
from stonet.system import distributed, threads
from stonet.system.devices import to_device
from stonet.training.tiles import Tiles

VISIT = 4  # steps in a row on a tile
T = TypeVar("T")


@dataclass(frozen=True)
class MicroBatch:
    """Some windows of a step, and what is to be learned from them."""

    batch: Batch
    supervision: Supervision


@dataclass(frozen=True)
class StepBatch:
    """All that a step needs, on the device where it is taken: a micro-batch for each thread."""

    micro_batches: tuple[MicroBatch, ...]
    tile: Tile


class BatchLoader:
    """Prepares the batch of any step: a pure function of (seed, epoch, step)."""

    def __init__(
        self, windows: Windows, tiles: Tiles, config: Config, device: torch.device
    ) -> None:
        self.windows, self.tiles, self.device = windows, tiles, device
        self.config, self.hidden = config.train, config.augmentation.hidden_sensors or 0.0
        whole = windows.batches(self.config.batch, self.config.consecutive or 1) * len(tiles)
        self.whole = whole  # steps that see every window on every tile
        self.per_epoch = min(self.config.steps or whole, whole)
        self.plan = lru_cache(2)(self._plan)  # an epoch's, while it lasts

    def choice(self, step: int) -> tuple[int, Int64[np.ndarray, " batch"]]:
        """Which tile, and which windows."""
        epoch, number = divmod(step, self.per_epoch)
        pairs, order = self.plan(epoch)
        tile, batch = pairs[number]
        return tile, order[batch]

    def _plan(self, epoch: int) -> tuple[list[tuple[int, int]], list[Int64[np.ndarray, " batch"]]]:
        """Every pair (tile, batch) once. Each tile is visited for a few batches in a row."""
        config, tiles = self.config, len(self.tiles)
        order = self.windows.order(config.batch, config.consecutive or 1, config.seed, epoch)
        draw = np.random.default_rng((config.seed, epoch, tiles))
        pairs = [
            (int(tile), batch)
            for first in range(0, len(order), VISIT)
            for tile in draw.permutation(tiles)
            for batch in range(first, min(first + VISIT, len(order)))
        ]
        return pairs, order

    def step_batch(self, step: int) -> StepBatch:
        """This process's share of the step."""
        number, chosen = self.choice(step)
        mine = np.array_split(chosen, distributed.size())[distributed.rank()]
        tile = self.tiles[number]
        shares = whole_runs(mine, threads.count(self.device))
        return StepBatch(tuple(self._micro_batch(step, share, tile) for share in shares), tile)

    def _micro_batch(
        self, step: int, chosen: Int64[np.ndarray, " batch"], tile: Tile
    ) -> MicroBatch:
        config, key = self.config, (self.config.seed, step)
        batch, target, mask = on_tile(self.windows, chosen, tile)
        count = len(self.tiles.nodes)
        batch = hide_sensors(batch, self.hidden, key, tile.nodes, count)
        draws = _uniform(target.shape[1], key)
        progress = step / max(self.per_epoch * config.epochs, 1)
        target, mask = to_device(target, self.device), to_device(mask, self.device)
        return MicroBatch(batch.to(self.device), Supervision(target, mask, progress, draws))


def whole_runs(
    chosen: Int64[np.ndarray, " batch"], shares: int
) -> list[Int64[np.ndarray, " some"]]:
    """So many shares or fewer, of whole runs: consecutive windows have frames in common."""
    runs = np.split(chosen, 1 + np.flatnonzero(np.diff(chosen) != 1))
    groups = np.array_split(np.arange(len(runs)), min(shares, len(runs)))
    return [np.concatenate([runs[i] for i in group]) for group in groups]


def on_tile(
    windows: Windows, chosen: Int64[np.ndarray, " batch"], tile: Tile
) -> tuple[Batch, Tensor, Tensor]:
    """Windows as a tile sees them: inputs at its nodes, targets (and their mask) at its core."""
    if tile.nodes is None:
        return windows.inputs(chosen), *windows.targets(chosen)
    core = windows.take(tile.nodes[: tile.core])
    return windows.take(tile.nodes).inputs(chosen), *core.targets(chosen)


@contextmanager
def prefetch(make: Callable[[int], T], last: int) -> Iterator[Callable[[int], T]]:
    """`make`, called by a thread for step n + 1 while step n is taken."""
    ready: dict[int, Future[T]] = {}
    with ThreadPoolExecutor(1, "stonet-loader") as thread:

        def take(step: int) -> T:
            step_batch = ready.pop(step, None) or thread.submit(make, step)
            ready.clear()
            result = step_batch.result()
            if step + 1 < last:
                ready[step + 1] = thread.submit(make, step + 1)
            return result

        try:
            yield take
        finally:
            for future in ready.values():
                future.cancel()


def hide_sensors(
    batch: Batch,
    share: float,
    key: tuple[int, int],
    nodes: Int64[np.ndarray, " node"] | None = None,
    count: int | None = None,
) -> Batch:
    """The batch with some sensors' values missing throughout, as if they had failed.

    They are drawn among all `count` sensors, of which the batch may hold some (`nodes`) only.
    """
    if share == 0:
        return batch
    kept = _uniform(count or batch.frames.shape[1], key) >= share
    kept = kept if nodes is None else kept[torch.from_numpy(nodes)]
    seen = batch.seen & kept[None, :, None]
    return replace(batch, frames=batch.frames * seen, observed=seen)


def _uniform(count: int, key: tuple[int, int]) -> Float[Tensor, " count"]:
    seed = int(np.random.SeedSequence(key).generate_state(1)[0])
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
