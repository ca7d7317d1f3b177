"""Batches and tiles: tile losses add up to the loss; steps are reproducible and complete.

tests/graph/test_halo.py checks that a tile's forecast equals that of all nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.contracts import double, fitted_run, stirred
from helpers.small import quick, small_dataset

from stonet.errors import UsageError
from stonet.models.forecaster import Tile
from stonet.training.batches import (
    MAX_UNTILED_POINTS,
    STEPS_PER_TILE,
    TILE_POINTS,
    BatchLoader,
    Tiles,
    hidden_sensors,
    hide_sensors,
    on_tile,
    tile_count,
)
from stonet.training.fit import fit_run
from stonet.training.loss import error_sums
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer

CPU = torch.device("cpu")


def test_losses_of_all_tiles_add_up_to_the_loss() -> None:
    """With gaps, hidden sensors, shared frames and the reconstruction."""
    task = Task.of(small_dataset(), quick("network.anchor=linear"))
    model = stirred(fitted_run(task).model).double()
    windows, chosen = task.windows("train"), np.array([3, 4, 5, 20])
    tiles = Tiles(model, task.nodes, 6)
    tiles.prepare()
    hidden = hidden_sensors(task.nodes, 0.3, 0.0, (0, 1))

    def sums(tile: Tile) -> torch.Tensor:
        batch, target, mask = on_tile(windows, chosen, tile)
        there = hidden if tile.nodes is None else hidden[tile.nodes]
        batch = double(hide_sensors(batch, there))
        with torch.no_grad():
            output = model(batch, tile.graphs)
        return torch.stack(error_sums(output, batch, target.double(), mask, 0.3))

    expected = sums(Tile(None, 20, model.graphs(task.nodes)))
    assert len(tiles) == 4
    total = sum(sums(tiles[number]) for number in range(4))
    torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-10)


def test_the_validation_error_is_the_same_on_tiles() -> None:
    errors = []
    for settings in ((), ("train.tile=7",), ("train.tile=3",)):
        task = Task.of(small_dataset(), quick(*settings))
        trained = fitted_run(task)
        stirred(trained.model)
        trainer = Trainer(trained, task)
        trainer.tiles.prepare()
        errors.append(trainer._validate())
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-6)


def test_an_epoch_trains_on_every_window_on_every_tile_once() -> None:
    task = Task.of(small_dataset(), quick("train.tile=5", "train.steps=none"))
    trainer = Trainer(TrainedModel.untrained(task), task)
    batches = trainer.windows.batches(4, 2)
    assert trainer.steps_per_epoch == trainer.loader.steps_per_pass == 4 * batches
    select = trainer.loader.selection
    for epoch in range(3):
        steps = [select(epoch * trainer.steps_per_epoch + n) for n in range(4 * batches)]
        counts = Counter((tile, int(window)) for tile, windows in steps for window in windows)
        assert set(counts.values()) == {1} and len(counts) == 4 * 4 * batches
        tiles = [tile for tile, _ in steps]
        assert tiles[:STEPS_PER_TILE] == [tiles[0]] * STEPS_PER_TILE  # whose graphs are built once
    again = BatchLoader(trainer.windows, trainer.tiles, trainer.trained.config, CPU)
    for step in (17, 3, 11):  # in any order
        for one, other in zip(again.selection(step), select(step), strict=True):
            np.testing.assert_equal(one, other)
    orders = [[select(e * 4 * batches + n)[0] for n in range(40)] for e in range(3)]
    assert len(set(map(tuple, orders))) == 3


class Stop:
    """A progress callback that interrupts at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, progress: Progress) -> None:
        if progress.step == self.step:
            raise KeyboardInterrupt


def test_a_resumed_training_on_tiles_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Whatever the number of cached tiles."""
    task = Task.of(small_dataset(), quick("train.tile=5", "train.steps=9", "train.epochs=1"))

    def fit(name: str, max_cached: int, resume: bool = False, stop: int = -1) -> bytes:
        trainer, folder = Trainer(TrainedModel.untrained(task), task), RunFolder(tmp_path / name)
        trainer.tiles.max_cached = max_cached
        trainer.fit(folder, resume, Stop(stop))
        return next(folder.states())[1]

    uninterrupted = fit("uninterrupted", 8)
    with pytest.raises(KeyboardInterrupt):
        fit("resumed", 1, stop=5)
    assert fit("resumed", 1, resume=True) == uninterrupted


def test_the_least_recently_used_tile_leaves_the_cache() -> None:
    task = Task.of(small_dataset(), quick())
    tiles = Tiles(TrainedModel.untrained(task).model, task.nodes, 5, max_cached=2)
    tiles.prepare()
    first = tiles[0]
    assert tiles[0] is first and tiles[1] is not first and tiles[0] is first
    tiles[2]  # replaces 1, which was used before 0
    assert tiles[0] is first and len(tiles._cache) == 2


def test_windows_at_some_nodes_equal_those_nodes_of_all_windows() -> None:
    task = Task.of(small_dataset(), quick())
    windows, chosen, nodes = task.windows("train"), np.array([0, 7]), np.array([11, 3, 5])
    hidden = np.random.default_rng(0).uniform(size=(len(windows.times), 20)) < 0.3
    for some in (windows, replace(windows, hidden=hidden), replace(windows, nodes=None)):
        part, every = some.take(nodes).inputs(chosen), some.inputs(chosen)
        assert torch.equal(part.frames, every.frames[:, nodes])
        assert torch.equal(part.seen, every.seen[:, nodes])
        for one, other in zip(some.take(nodes).targets(chosen), some.targets(chosen), strict=True):
            assert torch.equal(one, other[:, :, nodes])


def test_tiles_are_used_for_many_points_and_models_that_support_them(tmp_path: Path) -> None:
    task = Task.of(small_dataset(), quick())
    model = TrainedModel.untrained(task).model
    sizes = (20, MAX_UNTILED_POINTS, MAX_UNTILED_POINTS + 1)
    assert [tile_count(model, n, None) for n in sizes] == [1, 1, 3]
    assert tile_count(model, 131_072, None) == 131_072 // TILE_POINTS
    assert [tile_count(model, 20, size) for size in (1, 7, 20, 99)] == [20, 3, 1, 1]
    baseline = Task.of(small_dataset(), quick("model=dcrnn", "train.tile=7"))
    assert tile_count(TrainedModel.untrained(baseline).model, 10**6, None) == 1
    with pytest.raises(UsageError, match=r"cannot be trained in tiles.*train\.tile"):
        fit_run(baseline, tmp_path / "run", False, lambda progress: None)
    assert not list(tmp_path.iterdir())


def test_batches_are_a_pure_function_of_seed_and_epoch() -> None:
    windows = Task.of(small_dataset(), quick()).windows("train")
    orders = {epoch: windows.order(4, 2, 7, epoch) for epoch in range(4)}
    np.random.default_rng().random()
    for epoch in reversed(range(4)):
        np.testing.assert_equal(windows.order(4, 2, 7, epoch), orders[epoch])
        drawn = np.concatenate(orders[epoch])
        assert len(set(drawn)) == len(drawn) and len(drawn) >= len(windows) - 4
    others = [orders[0], orders[1], windows.order(4, 2, 8, 0)]
    assert len({tuple(np.concatenate(order)) for order in others}) == 3


def test_hidden_sensors_depend_on_seed_and_step() -> None:
    task = Task.of(small_dataset(), quick())
    batch = task.windows("train").inputs(np.arange(4))
    assert batch.observed is not None
    drawn = set()
    for key in ((0, 1), (0, 2), (1, 1)):
        hidden = hidden_sensors(task.nodes, 0.5, 0.0, key)
        torch.rand(3)
        assert np.array_equal(hidden, hidden_sensors(task.nodes, 0.5, 0.0, key))
        drawn.add(tuple(hidden.tolist()))
        assert 3 < int(hidden.sum()) < 17
        result = hide_sensors(batch, hidden)
        kept = torch.from_numpy(~hidden)[None, :, None]
        assert torch.equal(result.observed, batch.observed & kept)
        assert torch.equal(result.frames, torch.where(result.observed, batch.frames, 0.0))
    assert len(drawn) == 3
    assert hide_sensors(batch, np.zeros(len(task.nodes), bool)) is batch


def test_a_hidden_region_holds_the_sensors_nearest_to_one_of_them() -> None:
    nodes = Task.of(small_dataset(), quick()).nodes
    hidden = np.flatnonzero(hidden_sensors(nodes, 0.3, 1.0, (0, 5)))
    assert len(hidden) == round(0.3 * len(nodes))
    distance = np.linalg.norm(nodes.embedded[:, None] - nodes.embedded[None], axis=-1)
    nearest = [set(np.argsort(row)[: len(hidden)]) for row in distance]
    assert set(hidden) in nearest
