"""The encoder against the formulas of the paper, by node, frame and level."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.references import assert_same, encoder, gradients, randomise
from torch import Tensor

from stonet.config import OperatorConfig, PaperConfig
from stonet.data.geometry import Points
from stonet.graph.multipole import MultipoleGraph, Radii, assign_levels, build_graph
from stonet.operators.encoder import MultipoleEncoder, TimeEmbedding

NODES, FRAMES = 14, 2
CPU = torch.device("cpu")


def scattered(number: int = NODES, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(points: Points, levels: int, sharp: bool) -> MultipoleGraph:
    radii = Radii((0.4, 0.6, 0.8)[:levels], (0.6, 0.8)[: levels - 1], 0.3)
    level = assign_levels(points, levels, 2022)
    graph = build_graph(points, level, radii, "sharp" if sharp else "nothing")
    return graph.to(CPU, torch.float64)


def make(levels: int = 3, features: int = 2, **settings) -> MultipoleEncoder:
    sizes = {"latent": 3, "hidden": 4, "parametric": 2, "frequencies": 3}
    sizes |= {"edges": "sharp"} | settings
    return randomise(MultipoleEncoder(2, features, levels, PaperConfig(**sizes)))


def example(points: Points, features: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Values, times and positions."""
    values = torch.randn(FRAMES, len(points), 3, dtype=torch.float64, requires_grad=True)
    time = torch.rand(FRAMES, features, dtype=torch.float64)
    return values, time, torch.from_numpy(points.embedded.copy())


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("linear_path", [False, True])
@pytest.mark.parametrize("sharp", [False, True])
def test_equals_the_formula_of_the_paper(levels, linear_path, sharp):
    points = scattered()
    module = make(levels, linear_path=linear_path, edges="sharp" if sharp else "difference")
    values, *rest = example(points)
    graph = connect(points, levels, sharp)
    present = torch.rand(FRAMES, NODES) < 0.7
    expected = encoder(module, values, *rest, present, graph)
    wanted = [values, *(p for p in module.parameters() if p.numel())]
    assert_same(module(values, *rest, present, graph), expected, wanted)


@pytest.mark.parametrize("settings", [{"layers": 2}, {"kernel": "diag"}, {"features": 0}])
def test_variants_equal_the_formula_of_the_paper(settings):
    points, features = scattered(), settings.get("features", 2)
    module = make(**settings)
    values, *rest = example(points, features)
    graph = connect(points, 3, sharp=True)
    expected = encoder(module, values, *rest, None, graph)
    assert_same(module(values, *rest, None, graph), expected, [values, *module.parameters()])


def test_the_time_embedding_is_sines_and_cosines_of_learned_frequencies():
    embedding = randomise(TimeEmbedding(2, 3))
    time = torch.rand(5, 2, dtype=torch.float64)
    w = embedding.frequencies.detach()
    for moment, embedded in zip(time, embedding(time), strict=True):
        angles = [float(moment[0] * w[0, k] + moment[1] * w[1, k]) for k in range(3)]
        expected = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        np.testing.assert_allclose(embedded.detach(), expected, rtol=1e-12)
    learned = gradients(embedding(time), [embedding.frequencies])[0]
    assert learned.abs().min() > 0


def test_frequencies_start_as_whole_periods_of_each_feature():
    embedding = TimeEmbedding(2, 6)
    turns = embedding.frequencies.detach() / (2 * math.pi)
    assert turns.tolist() == [[1, 0, 2, 0, 3, 0], [0, 1, 0, 2, 0, 3]]
    time = torch.rand(4, 2)
    torch.testing.assert_close(embedding(time + 1), embedding(time), atol=1e-4, rtol=0)


def test_relabelling_the_nodes_relabels_the_encoding():
    points, order = scattered(), torch.randperm(NODES)
    module = make()
    values, time, position = example(points)
    present = torch.rand(FRAMES, NODES) < 0.7
    plain = module(values, time, position, present, connect(points, 3, True))
    shuffled = points.take(order.numpy())
    graph = connect(shuffled, 3, True)
    again = module(values[:, order], time, position[order], present[:, order], graph)
    torch.testing.assert_close(again, plain[:, order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("features", [0, 2])
def test_frames_do_not_influence_each_other(features):
    """A frame that several windows share can be encoded once."""
    points = scattered()
    module = make(features=features)
    values, time, position = example(points, features)
    present = torch.rand(FRAMES, NODES) < 0.7
    graph = connect(points, 3, True)
    together = module(values, time, position, present, graph)
    for f in range(FRAMES):
        part = slice(f, f + 1)
        alone = module(values[part], time[part], position, present[part], graph)
        torch.testing.assert_close(alone, together[part], rtol=1e-12, atol=1e-12)
    windows = torch.tensor([0, 1, 1, 0, 1])
    repeated = module(values[windows], time[windows], position, present[windows], graph)
    torch.testing.assert_close(repeated, together[windows], rtol=1e-12, atol=1e-12)


def test_time_acts_through_the_parametric_function():
    points = scattered()
    module = make()
    values, time, position = example(points)
    graph = connect(points, 3, True)
    time.requires_grad_()
    result = module(values, time, position, None, graph)
    assert gradients(result, [time])[0].abs().min() > 1e-6
    with torch.no_grad():  # a parametric function without time
        module.parametric.network[0].weight[:, 2:] = 0
    still = [module(values, t, position, None, graph) for t in (time, time + 0.3)]
    assert torch.equal(*still)


def test_missing_nodes_have_no_influence_on_others():
    points = scattered()
    module = make(layers=2)
    values, time, position = example(points)
    graph = connect(points, 3, True)
    present = torch.rand(FRAMES, NODES) < 0.7
    spoilt = values.detach().clone()
    spoilt[~present] = 1e30
    clean, dirty = (module(v, time, position, present, graph) for v in (values, spoilt))
    assert torch.equal(clean[present], dirty[present])


@pytest.mark.parametrize("settings", [{"linear_path": True}, {"edges": "difference", "layers": 2}])
def test_every_parameter_gets_a_gradient(settings):
    points = scattered()
    module = make(**settings)
    values, *rest = example(points)
    module(values, *rest, None, connect(points, 3, not module.sees_place)).square().sum().backward()
    for name, parameter in module.named_parameters():
        if parameter.numel():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_one_set_of_parameters_serves_any_number_of_points():
    module = make()
    for number in (8, 40):
        points = scattered(number, seed=number)
        values, time, position = example(points)
        encoded = module(values, time, position, None, connect(points, 3, True))
        assert torch.isfinite(encoded).all() and encoded.shape == values.shape


def test_with_a_linear_path_the_untrained_encoding_is_near_its_input():
    points = scattered(60)
    graph = connect(points, 3, True)
    module = MultipoleEncoder(2, 0, 3, OperatorConfig(latent=16)).double()
    values = torch.randn(1, 60, 16, dtype=torch.float64)
    time, position = (
        torch.zeros(1, 0, dtype=torch.float64),
        torch.from_numpy(points.embedded.copy()),
    )
    encoded = module(values, time, position, None, graph)
    flat = torch.stack([values.flatten(), encoded.detach().flatten()])
    assert torch.corrcoef(flat)[0, 1] > 0.9
