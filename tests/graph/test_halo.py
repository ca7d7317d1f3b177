"""A tile gives the same forecast at its core as all nodes together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import Case, small_field

from stonet.data.batch import Batch
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.models.forecaster import Output, Tile
from stonet.training.batches import bisect

TWO_LEVELS = ("graph.levels=2", "network.layers=2")
PAPER = ("model=stonet-paper", "graph.levels=2", "paper.layers=2")
SETTINGS = {
    "two": TWO_LEVELS,
    "three": ("graph.levels=3", "graph.within_degree=4"),
    "no encoder": ("network.layers=0",),
    "linear anchor": ("network.anchor=linear",),
    "paper": (*PAPER, "paper.terms=2"),
    "operator": ("model=stonet-operator", "graph.levels=1", "operator.layers=2"),
}
FEW = ("graph.within_degree=2.5", "graph.between_degree=1.5", "graph.decoder_degree=2.5")


def restricted(batch: Batch, nodes: np.ndarray) -> Batch:
    chosen = torch.from_numpy(nodes)
    observed = None if batch.observed is None else batch.observed[:, chosen]
    return replace(batch, frames=batch.frames[:, chosen], observed=observed)


def a_case(kind: str, *settings: str, points: int = 110) -> Case:
    field = small_field(kind, 1 + (kind == "sphere"), points)
    return Case.of(on_a_grid(field) if kind == "plane" else field, *settings, *FEW)


def on_a_grid(field: Field) -> Field:
    """Half of the points on a regular grid, where many neighbours are equally far; some alone."""
    side = np.arange(7) / 7
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    places = field.points.coordinates.copy()
    places[: len(grid)] = grid
    places[-3:] = [[4.0, 4.0], [4.5, 0.0], [-3.0, 1.0]]  # far from everyone
    return replace(field, points=Points(places))


@torch.no_grad()
def whole_and_tiles(case: Case, count: int) -> tuple[Output, list[tuple[Tile, np.ndarray, Output]]]:
    model, batch = case.model(), case.batch()
    adjacency = model.adjacency(case.nodes)
    parts = []
    for core in bisect(case.nodes, count):
        tile = model.tile(adjacency, core)
        assert tile.nodes is not None
        parts.append((tile, core, model(restricted(batch, tile.nodes), tile.graphs)))
    return model(batch, model.graphs(case.nodes)), parts


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("variant", SETTINGS)
def test_a_tile_gives_the_forecast_of_all_nodes_at_its_core(variant: str, kind: str) -> None:
    case = a_case(kind, *SETTINGS[variant])
    whole, parts = whole_and_tiles(case, 7)
    adjacency = case.fitted.adjacency(case.nodes)
    assert adjacency.isolated == case.fitted.isolated(case.fitted.graphs(case.nodes))
    assert adjacency.isolated > 0 or kind == "sphere" or "graph.levels=1" in SETTINGS[variant]
    sizes = [len(tile.nodes) for tile, _, _ in parts]
    assert min(sizes) < len(case.nodes) < sum(sizes)  # there are halos, and they are not all
    for tile, core, part in parts:
        assert tile.nodes is not None and tile.core == len(core)
        np.testing.assert_equal(tile.nodes[: tile.core], core)
        chosen = torch.from_numpy(core)
        ahead = whole.forecast[:, :, chosen]
        torch.testing.assert_close(part.forecast, ahead, rtol=1e-11, atol=1e-12)
        if whole.reconstruction is not None:
            again = part.reconstruction[:, : tile.core]
            expected = whole.reconstruction[:, chosen]
            torch.testing.assert_close(again, expected, rtol=1e-11, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("settings", [TWO_LEVELS, ("network.anchor=linear",)])
def test_a_tile_whose_sensors_fail_has_the_whole_forecast(settings: tuple[str, ...]) -> None:
    """The encoded past of the nearest nodes stands in for that of the core, as far as it takes."""
    case = a_case("sphere", *settings)
    model, batch = case.model(), case.batch()
    core = bisect(case.nodes, 9)[4]
    tile = model.tile(model.adjacency(case.nodes), core)
    assert tile.nodes is not None and batch.observed is not None
    observed = batch.observed.clone()
    observed[:, torch.from_numpy(core[1:])] = False
    batch = replace(batch, frames=batch.frames * observed, observed=observed)
    whole = model(batch, model.graphs(case.nodes)).forecast[:, :, torch.from_numpy(core)]
    part = model(restricted(batch, tile.nodes), tile.graphs).forecast
    torch.testing.assert_close(part, whole, rtol=1e-11, atol=1e-12)


def test_every_node_of_the_halo_is_needed() -> None:
    """What lies in the halo of the encoder changes the core; what lies outside cannot."""
    case = a_case("sphere", *PAPER)
    model, batch = case.model(), case.batch(missing=0.0)
    tile = model.tile(model.adjacency(case.nodes), bisect(case.nodes, 7)[3])
    assert tile.nodes is not None
    frames = batch.frames.requires_grad_()
    output = model(batch, model.graphs(case.nodes))
    chosen = torch.from_numpy(tile.nodes[: tile.core])
    assert output.reconstruction is not None
    seen = output.forecast[:, :, chosen].abs().sum() + output.reconstruction[:, chosen].abs().sum()
    touched = torch.autograd.grad(seen, frames)[0].abs().sum((0, 2)) > 0
    np.testing.assert_equal(np.flatnonzero(touched), np.sort(tile.nodes))


def test_coincident_points_stay_separate() -> None:
    field = small_field("plane", 1, 60)
    places = field.points.coordinates.copy()
    places[30:] = places[:30]
    case = Case.of(replace(field, points=Points(places)), *TWO_LEVELS)
    whole, parts = whole_and_tiles(case, 4)
    for _, core, part in parts:
        ahead = whole.forecast[:, :, torch.from_numpy(core)]
        torch.testing.assert_close(part.forecast, ahead, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 160])
@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_tiles_are_a_balanced_partition(kind: str, count: int) -> None:
    points = small_field(kind, 1, 160).points
    cores = bisect(points, count)
    np.testing.assert_equal(np.sort(np.concatenate(cores)), np.arange(160))
    sizes = [len(core) for core in cores]
    assert len(cores) == count and max(sizes) - min(sizes) <= 1
    spread = np.mean([points.embedded[core].std(0).sum() for core in cores])
    assert count == 1 or spread < points.embedded.std(0).sum()


@pytest.mark.parametrize(
    "settings", [("model=dcrnn",), ("model=stonet-paper", "paper.decoder=fixed")]
)
def test_models_that_need_all_points_cannot_be_tiled(settings: tuple[str, ...]) -> None:
    case = Case.of(small_field(), *settings)
    with pytest.raises(UsageError, match=r"all points at once and cannot be trained in tiles"):
        case.fitted.adjacency(case.nodes)
