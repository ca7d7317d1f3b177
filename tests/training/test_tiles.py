"""Training on tiles: their losses add up to the loss, every step is reproducible, none is left out.

That a tile's forecast is the whole forecast is in test_halo.py.
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
from stonet.training import tiles as tiles_module
from stonet.training.batches import VISIT, BatchLoader, hide_sensors, on_tile
from stonet.training.fit import fit_run
from stonet.training.loss import error_sums
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.tiles import USUAL, WHOLE, Tiles, tile_count
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer

CPU = torch.device("cpu")


def test_losses_of_all_tiles_add_up_to_the_loss() -> None:
    """With gaps, an outage, shared frames and the reconstruction."""
    task = Task.of(small_dataset(), quick("network.base=ridge"))
    model = stirred(fitted_run(task).model).double()
    windows, chosen = task.windows("train"), np.array([3, 4, 5, 20])
    tiles = Tiles(model, task.nodes, 6)
    tiles.prepare()

    def sums(tile: Tile) -> torch.Tensor:
        batch, target, mask = on_tile(windows, chosen, tile)
        batch = double(hide_sensors(batch, 0.3, (0, 1), tile.nodes, 20))
        with torch.no_grad():
            output = model(batch, tile.graphs)
        return torch.stack(error_sums(output, batch, target.double(), mask, 0.3))

    whole = sums(Tile(None, 20, model.graphs(task.nodes)))
    assert len(tiles) == 4
    parts = sum(sums(tiles[number]) for number in range(4))
    torch.testing.assert_close(parts, whole, rtol=1e-10, atol=1e-10)


def test_the_validation_error_is_the_same_on_tiles() -> None:
    errors = []
    for settings in ((), ("train.tile=7",), ("train.tile=3",)):
        task = Task.of(small_dataset(), quick(*settings))
        run = fitted_run(task)
        stirred(run.model)
        trainer = Trainer(run, task)
        trainer.tiles.prepare()
        errors.append(trainer._validate())
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-6)


def test_an_epoch_sees_every_window_on_every_tile_once() -> None:
    task = Task.of(small_dataset(), quick("train.tile=5", "train.steps=none"))
    trainer = Trainer(TrainedModel.untrained(task), task)
    batches = trainer.windows.batches(4, 2)
    assert trainer.per_epoch == trainer.loader.whole == 4 * batches
    for epoch in range(3):
        steps = [trainer.loader.choice(epoch * trainer.per_epoch + n) for n in range(4 * batches)]
        seen = Counter((tile, int(window)) for tile, windows in steps for window in windows)
        assert set(seen.values()) == {1} and len(seen) == 4 * 4 * batches
        visited = [tile for tile, _ in steps]
        assert visited[:VISIT] == [visited[0]] * VISIT  # its graphs is made once for all of them
    again = BatchLoader(trainer.windows, trainer.tiles, trainer.run.config, CPU)
    for step in (17, 3, 11):  # whatever was asked before
        for one, other in zip(again.choice(step), trainer.loader.choice(step), strict=True):
            np.testing.assert_equal(one, other)
    orders = [[trainer.loader.choice(e * 4 * batches + n)[0] for n in range(40)] for e in range(3)]
    assert len(set(map(tuple, orders))) == 3


class Stop:
    """A watcher that presses Ctrl-C at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, progress: Progress) -> None:
        if progress.step == self.step:
            raise KeyboardInterrupt


def test_interrupted_and_resumed_on_tiles_is_uninterrupted_whatever_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = quick("train.tile=5", "train.steps=9", "train.epochs=1")

    def fit(name: str, resume: bool = False, stop: int = -1) -> bytes:
        fit_run(Task.of(small_dataset(), config), tmp_path / name, resume, Stop(stop))
        return next(RunFolder(tmp_path / name).states())[1]

    whole = fit("whole")
    monkeypatch.setattr(tiles_module, "KEPT", 1)
    with pytest.raises(KeyboardInterrupt):
        fit("parts", stop=5)
    assert fit("parts", resume=True) == whole


def test_few_scenes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_module, "KEPT", 2)
    task = Task.of(small_dataset(), quick())
    tiles = Tiles(TrainedModel.untrained(task).model, task.nodes, 5)
    tiles.prepare()
    first = tiles[0]
    assert tiles[0] is first and tiles[1] is not first and tiles[0] is first
    tiles[2]  # takes the place of 1, which was used before 0
    assert tiles[0] is first and len(tiles._made) == 2


def test_only_what_a_tile_needs_is_asked_of_the_data() -> None:
    task = Task.of(small_dataset(), quick())
    windows, chosen, nodes = task.windows("train"), np.array([0, 7]), np.array([11, 3, 5])
    hidden = np.random.default_rng(0).uniform(size=(len(windows.times), 20)) < 0.3
    for some in (windows, replace(windows, hidden=hidden), replace(windows, nodes=None)):
        part, whole = some.take(nodes).inputs(chosen), some.inputs(chosen)
        assert torch.equal(part.frames, whole.frames[:, nodes])
        assert torch.equal(part.seen, whole.seen[:, nodes])
        for one, other in zip(some.take(nodes).targets(chosen), some.targets(chosen), strict=True):
            assert torch.equal(one, other[:, :, nodes])


def test_tiles_come_by_themselves_only_where_they_help_and_can_be(tmp_path: Path) -> None:
    task = Task.of(small_dataset(), quick())
    model = TrainedModel.untrained(task).model
    assert [tile_count(model, n, None) for n in (20, WHOLE, WHOLE + 1)] == [1, 1, 3]
    assert tile_count(model, 131_072, None) == 131_072 // USUAL
    assert [tile_count(model, 20, size) for size in (1, 7, 20, 99)] == [20, 3, 1, 1]
    baseline = Task.of(small_dataset(), quick("model=dcrnn", "train.tile=7"))
    assert tile_count(TrainedModel.untrained(baseline).model, 10**6, None) == 1
    with pytest.raises(UsageError, match=r"cannot be trained in tiles.*train\.tile"):
        fit_run(baseline, tmp_path / "run", False, lambda progress: None)
    assert not list(tmp_path.iterdir())
