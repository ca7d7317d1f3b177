"""The preset `paper` is the paper's formula: lift, encode, decode, project and loss, literally."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.contracts import as_float64, forecast, perturb, small_field, small_points
from helpers.paper_reference import Past, paper_network
from helpers.references import gradients

from stonet.config import PaperConfig, load_config, make_config
from stonet.data.batch import Batch
from stonet.data.field import Dataset
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.graph.neighbours import edge_features
from stonet.models.contract import CHECKS, make_case
from stonet.models.forecaster import Graphs, narrow
from stonet.models.paper import PaperNetwork, PaperQueries
from stonet.models.registry import MODELS
from stonet.training.loss import error_sums, masked_loss
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

SHORT = ("data.past=2", "data.horizon=3", "graph.decoder_degree=3", "graph.within_degree=2")
PLACES = {"plane": ("plane", 1), "plane, two channels": ("plane", 2), "sphere": ("sphere", 2)}
PLACES |= {"sphere, one channel": ("sphere", 1)}
NODES = 8
VARIANTS: dict[str, tuple[str, ...]] = {
    "paper": (),
    "merged": ("paper.indices=merged", "paper.trunk=mlp", "paper.separable=true"),
    "fixed": ("paper.decoder=fixed",),
    "ode": ("paper.decoder=ode", "paper.terms=1"),
    "sharp": ("paper.edges=sharp", "paper.linear_path=true", "paper.kernel=diag"),
    "shared frames": ("paper.window_time=false", "paper.frames=4", "paper.flags=true"),
    "radius": ("paper.edges=radius", "paper.layers=2", "paper.indices=merged"),
}


@cache
def trained(place: str) -> tuple[TrainedModel, Task]:
    """The preset with its own sizes, on eight points and with a short past."""
    kind, channels = PLACES[place]
    field = small_field(kind, channels, nodes=NODES)
    task = Task.of(Dataset((field,), "small"), load_config("paper", settings=SHORT))
    found = TrainedModel.untrained(task)
    perturb(found.model).double()
    return found, task


def test_the_preset_is_pinned() -> None:
    config = load_config("paper")
    assert config.paper == PaperConfig()
    assert config.paper.model_dump() == {
        "latent": 24,
        "hidden": 64,
        "parametric": 4,
        "frequencies": 12,
        "layers": 1,
        "kernel": "full",
        "edges": "difference",
        "linear_path": False,
        "rank": 24,
        "decoder": "revised",
        "indices": "separate",
        "trunk": "literal",
        "separable": False,
        "terms": 3,
        "frames": None,
        "flags": False,
        "window_time": True,
    }
    assert (config.model, config.data.past, config.graph.levels) == ("stonet-paper", 12, 3)
    degrees = config.graph.within_degree, config.graph.between_degree, config.graph.decoder_degree
    assert degrees == (20, 16, 13)
    train = trained("plane")[0].config.train
    assert (train.lr, train.alpha, train.schedule, train.batch) == (2e-3, 0.5, "step", 8)
    assert (train.epochs, train.consecutive) == (100, 1)
    assert trained("plane")[0].config.augmentation.hidden_sensors == 0


def test_a_user_overrides_the_training_of_the_model() -> None:
    field = small_field("plane", 1, nodes=NODES)
    config = load_config("paper", settings=(*SHORT, "train.alpha=0.25", "train.batch=3"))
    found = TrainedModel.untrained(Task.of(Dataset((field,), "small"), config)).config
    assert (found.train.alpha, found.train.batch, found.train.lr) == (0.25, 3, 2e-3)
    assert make_config(found.model_dump()).train == found.train


def test_offsets_are_differences_of_coordinates() -> None:
    plane = Points(np.array([[0.5, 0.25], [0.25, 0.75]]))
    sphere = Points(np.array([[0.0, 0.0], [0.0, 90.0], [90.0, 0.0]]), "sphere")
    expected = {"plane": [0.25, -0.5], "sphere": [1.0, -1.0, 0.0]}
    for points in (plane, sphere):
        here, there = np.array([0]), np.array([1])
        found = edge_features(points, points, here, there, 0.125, "difference")
        np.testing.assert_allclose(found, [expected[points.kind]], atol=1e-15)
        scaled = edge_features(points, points, here, there, 0.125, "offset")
        np.testing.assert_allclose(scaled, 8 * found, atol=1e-14)


def test_the_decoder_sees_differences_in_the_unit_of_the_positions() -> None:
    """A box from (10, 20) to (14, 24): half its side is 2."""
    nodes = Points(np.array([[10.0, 20.0], [14.0, 20.0], [10.0, 22.0], [14.0, 24.0]]))
    field = replace(small_field("plane", 1, nodes=4), points=nodes)
    task = Task.of(Dataset((field,), "box"), load_config("paper", settings=SHORT[:2]))
    model = TrainedModel.untrained(task).model
    graph = narrow(model.query_graph(nodes, nodes), PaperQueries).decoder
    assert graph.position.tolist() == [[-1, -1], [1, -1], [-1, 0], [1, 1]]
    (block,) = graph.neighbours.blocks
    row = block.rows.tolist().index(1)
    seen = dict(zip(block.index[row].tolist(), block.features[row].tolist(), strict=True))
    assert seen == {0: [2, 0], 1: [0, 0], 2: [2, -1], 3: [0, -2]}


@pytest.mark.parametrize("place", PLACES)
def test_the_preset_is_the_formula_of_the_paper(place: str) -> None:
    """Forecast, reconstruction, loss and the gradient of every parameter, in float64."""
    made, task = trained(place)
    model, windows = made.model, task.windows("train")
    assert isinstance(model, PaperNetwork)
    chosen = np.array([5])
    batch, (target, mask) = as_float64(windows.inputs(chosen)), windows.targets(chosen)
    output = model(batch, model.graphs(task.nodes))
    past = Past(batch.frames[batch.past[0]], batch.frame_time[batch.past[0]], batch.future_time[0])
    expected, reconstruction = paper_network(model, task.nodes, past)

    loss = losses(output, batch, target, mask, 0.5)
    truth = 0.5 * (reconstruction - past.values).abs().mean()
    truth = truth + (expected - target[0].double()).abs().mean()
    parameters = [p for p in model.parameters() if p.numel()]
    pairs = [(output.forecast[0], expected), (output.reconstruction, reconstruction)]
    pairs += [(loss, truth)]
    pairs += zip(gradients(loss, parameters), gradients(truth, parameters), strict=True)
    for found, wanted in pairs:
        scale = max(float(wanted.detach().abs().max()), 1e-3)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10 * scale)


def losses(output, batch: Batch, target, mask, alpha: float) -> torch.Tensor:
    """The loss of a training step."""
    (loss,), value = masked_loss([error_sums(output, batch, target.double(), mask, alpha)], alpha)
    torch.testing.assert_close(loss.detach(), value)
    return loss


@cache
def case(variant: str, kind: str):
    field = small_field(kind, 1 if kind == "plane" else 2)
    settings = ("model=stonet-paper", *VARIANTS[variant])
    made = make_case(MODELS["stonet-paper"], field, settings)
    return replace(made, tolerance=2e-3) if variant == "ode" else made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_keeps_the_contract(check, variant: str) -> None:
    check(case(variant, "sphere"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_query_at_a_node_has_the_forecast_of_the_node(variant: str) -> None:
    """Alone or with other queries, with or without history."""
    made = case(variant, "sphere")
    model, batch, nodes = made.model(), made.batch(2), made.nodes
    every, chosen = forecast(model, batch, nodes), np.array([0, 17])  # node 0 has no history
    mixed = nodes.take(chosen).joined(small_points(nodes.kind, 2, seed=9))
    together = forecast(model, batch, nodes, mixed)
    made.assert_equal(together[:, :, :2], every[:, :, chosen])
    alone = [forecast(model, batch, nodes, mixed.take(np.array([i]))) for i in range(4)]
    made.assert_equal(torch.cat(alone, dim=2), together)


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("variant", ["paper", "sharp", "radius"])
def test_a_tile_gives_the_forecast_of_all_nodes(kind: str, variant: str) -> None:
    made = case(variant, kind)
    assert_tiles_agree(made, made.model())


def assert_tiles_agree(made, model) -> None:
    batch = made.batch()
    every = forecast(model, batch, made.nodes)
    adjacency = model.adjacency(made.nodes)
    for core in np.array_split(np.random.default_rng(0).permutation(len(made.nodes)), 3):
        tile = model.tile(adjacency, core)
        part = torch.from_numpy(tile.nodes)
        observed = None if batch.observed is None else batch.observed[:, part]
        cut = replace(batch, frames=batch.frames[:, part], observed=observed)
        with torch.no_grad():
            found = model(cut, Graphs(tile.graphs.nodes, tile.graphs.queries)).forecast
        made.assert_equal(found, every[:, :, core])


def test_the_fixed_decoder_refuses_other_points() -> None:
    made = case("fixed", "plane")
    with pytest.raises(UsageError, match=r"paper\.decoder=revised"):
        made.model().graphs(made.nodes.take(np.arange(5)))


def test_frames_are_shared_unless_they_see_their_place_in_the_window() -> None:
    for variant, shared in (("paper", False), ("shared frames", True)):
        made = case(variant, "sphere")
        model = made.model()
        batch = as_float64(made.windows.inputs(np.array([3, 4])))
        rows = len(model.encode(batch, model.node_graph(made.nodes)).latent)
        assert rows == (len(batch.frames) if shared else batch.past.numel())
        assert model.frame_wise is shared
