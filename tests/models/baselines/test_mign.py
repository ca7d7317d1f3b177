"""MIGN: its formula in dense loops, the map of a region, and new stations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.contracts import perturb, small_points
from torch import Tensor

from stonet.config import load_config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.graph.healpix import healpix_centres, spherical_harmonics
from stonet.models.baselines.base import Inputs
from stonet.models.baselines.mign import MIGN, RegionMap

NODES, NEAR, PAST, HORIZON, CHANNELS = 7, 3, 4, 3, 2


def made(kind: str = "sphere", *settings: str) -> MIGN:
    small = (f"baseline.neighbours={NEAR}", "baseline.hidden=4", *settings)
    time_spec = TimeSpec(3600 * 10**9, PAST, HORIZON, calendar=True, sunny=kind == "sphere")
    nodes = small_points(kind, NODES)  # type: ignore[arg-type]
    return perturb(MIGN(load_config(settings=small), time_spec, CHANNELS, nodes).double())  # type: ignore[return-value]


def some_inputs(model: MIGN) -> Inputs:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    extra = drawn(2, HORIZON, NODES, model.ahead_width - model.calendar_width)
    past = drawn(2, PAST, NODES, model.input_width)
    return Inputs(past, drawn(2, HORIZON, model.calendar_width), CHANNELS, extra)


def nearest(target: np.ndarray, sources: np.ndarray) -> np.ndarray:
    return np.argsort([math.dist(target, source) for source in sources])[:NEAR]


def normalised(targets: Points, sources: Points) -> Tensor:
    """D^-1/2 A D^-1/2, entry by entry."""
    a = np.zeros((len(targets), len(sources)))
    for i, target in enumerate(targets.embedded):
        a[i, nearest(target, sources.embedded)] = 1
    rows, columns = a.sum(1), a.sum(0)
    for i, j in zip(*np.nonzero(a), strict=True):
        a[i, j] = 1 / math.sqrt(rows[i] * columns[j])
    return torch.from_numpy(a)


def leaky(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.01 * x)


def literal(model: MIGN, inputs: Inputs, window: int) -> Tensor:
    """(future, node, channel) of one window, step by step."""
    placed, pixels = model.region(model.nodes), model.pixels
    y_stations, y_pixels = (torch.from_numpy(spherical_harmonics(p)) for p in (placed, pixels))
    y_stations, y_pixels = y_stations * model.station_weights, y_pixels * model.pixel_weights
    to_mesh, from_mesh = normalised(pixels, placed), normalised(placed, pixels)
    on_mesh = model.operators(
        model.nodes
    ).on_mesh.matrix.to_dense()  # pixels lie at equal distances
    assert ((on_mesh > 0).sum(1) == NEAR).all() and (on_mesh.diagonal() > 0).all()
    steps = []
    for t in range(PAST):
        x = torch.cat([inputs.past[window, t], y_stations], dim=1)
        m = leaky(model.enter(to_mesh @ x))
        steps.append(m + leaky(model.exchange(on_mesh @ m)))
    mesh = torch.stack(steps, dim=1)  # pixel past hidden
    attended = torch.zeros_like(mesh)
    for pixel in range(len(mesh)):
        q, k, v = model.project(mesh[pixel]).chunk(3, dim=-1)
        size = q.shape[1] // model.heads
        parts = [slice(h * size, (h + 1) * size) for h in range(model.heads)]
        scores = [torch.softmax(q[:, p] @ k[:, p].T / math.sqrt(size), -1) for p in parts]
        heads = [s @ v[:, p] for s, p in zip(scores, parts, strict=True)]
        attended[pixel] = model.merge(torch.cat(heads, dim=-1))
    result = torch.zeros(HORIZON, NODES, CHANNELS).double()
    for lead in range(HORIZON):
        direct = torch.einsum("pth,t->ph", mesh, model.steps.weight[lead]) + model.steps.bias[lead]
        second = torch.einsum("pth,t->ph", attended, model.attended_steps.weight[lead])
        second = second + model.attended_steps.bias[lead]
        state = direct.clamp(min=0) + second.clamp(min=0)
        message = leaky(from_mesh @ model.leave(torch.cat([state, y_pixels], dim=1)))
        for node in range(NODES):
            series = inputs.past[window, :, node, :CHANNELS].flatten()
            known = inputs.ahead()[window, lead, node]
            own = model.own(torch.cat([series, known, y_stations[node]]))
            scores = [model.weigh(torch.tanh(model.score(s))) for s in (message[node], own)]
            alpha = torch.softmax(torch.cat(scores), dim=0)
            result[lead, node] = model.readout(alpha[0] * message[node] + alpha[1] * own)
    return result


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@torch.no_grad()
def test_the_forecast_equals_the_formula(kind: str) -> None:
    model = made(kind)
    inputs = some_inputs(model)
    result = model.forecast_nodes(inputs, model.operators(model.nodes), None)
    for window in range(2):
        torch.testing.assert_close(result[window], literal(model, inputs, window))


def test_a_region_becomes_a_hemisphere() -> None:
    """Distances from the centre keep their ratios; directions are kept."""
    for nodes in (small_points("plane", 40), small_points("sphere", 40)):
        region = RegionMap.of(nodes)
        here = np.broadcast_to(region.centre, nodes.embedded.shape)
        before, after = nodes.geometry.distance(here, nodes.embedded), region(nodes).embedded[:, 2]
        np.testing.assert_allclose(np.arccos(after) / before, region.stretch)
        assert np.isclose(np.arccos(after).max(), np.pi / 2) and np.isclose(region.share, 0.5)


def test_the_globe_is_only_rotated() -> None:
    globe = healpix_centres(3)
    globe = globe.take(np.flatnonzero(globe.coordinates[:, 0] > -60))
    region = RegionMap.of(globe)
    one, other = globe.embedded, region(globe).embedded
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-9)


def test_the_mesh_belongs_to_the_region_and_not_to_the_stations() -> None:
    """About as many pixels as training stations; new stations use the same pixels."""
    config = load_config(settings=["baseline.hidden=4"])
    nodes = small_points("sphere", 200)
    model = MIGN(config, TimeSpec(10**9, 4, 3, calendar=False), 1, nodes)
    assert 100 < len(model.pixels) < 300
    others = small_points("sphere", 30, seed=3)
    graph = model.operators(others)
    assert graph.to_mesh.matrix.shape == (len(model.pixels), 30)
    assert graph.from_mesh.matrix.shape == (30, len(model.pixels))
