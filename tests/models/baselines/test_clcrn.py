"""CLCRN: its kernel by hand on plane and sphere, local sums, its size, new points."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.contracts import Case, forecast, perturb, small_field, small_points
from torch import Tensor

from stonet.config import load_config
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.base import Inputs
from stonet.models.baselines.clcrn import (
    CLCRN,
    LengthScale,
    LocalConvolution,
    Neighbourhood,
    circle_shares,
    cylinder_offset,
)
from stonet.models.forecaster import Supervision

HERE = torch.device("cpu"), torch.float64
NODES, NEAR, CHANNELS, EXTRA, PAST, HORIZON = 7, 4, 2, 4, 3, 4
PLACES = {"plane": ("plane", 1), "sphere, two channels": ("sphere", 2)}
FORMS = {"": (), "embedded": ("baseline.embedding=3",)}


@cache
def case_of(place: str, form: str = "") -> Case:
    settings = ("model=clcrn", "baseline.neighbours=8", *FORMS[form])
    return Case.of(small_field(*PLACES[place]), *settings)


def made(*settings: str, kind: str = "sphere", nodes: Points | None = None) -> CLCRN:
    """A small model in float64 with perturbed parameters and a calendar."""
    small = (f"baseline.neighbours={NEAR}", "baseline.hidden=3", "baseline.extras=false", *settings)
    time_spec = TimeSpec(3600 * SECOND, PAST, HORIZON, calendar=True)
    nodes = small_points(kind, NODES) if nodes is None else nodes
    return perturb(CLCRN(load_config(settings=small), time_spec, CHANNELS, nodes).double())  # type: ignore


def some_inputs(batch: int = 2) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, PAST, NODES, CHANNELS + EXTRA), (batch, HORIZON, EXTRA)
    past, calendar = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(past, calendar, CHANNELS)


# The formulas for one pair of points at a time.


def offset_of(points: Points, i: int, j: int) -> tuple[np.ndarray, float]:
    """The offset from i to j in local coordinates, and the distance."""
    if points.kind == "plane":
        v = points.coordinates[j] - points.coordinates[i]
        return v, float(np.hypot(*v))
    (lat, lon), (lat_j, lon_j) = np.deg2rad(points.coordinates[[i, j]])
    d = float(
        np.arccos(
            np.clip(
                np.sin(lat) * np.sin(lat_j) + np.cos(lat) * np.cos(lat_j) * np.cos(lon - lon_j),
                -1,
                1,
            )
        )
    )
    if i == j:
        return np.zeros(2), 0.0
    flat = np.cos(lat_j) * np.array([np.cos(lon_j), np.sin(lon_j)])
    flat -= np.cos(lat) * np.array([np.cos(lon), np.sin(lon)])
    v = np.array([flat @ [-np.sin(lon), np.cos(lon)], np.sin(lat_j) - np.sin(lat)])
    return v * d / np.hypot(*v), d


def psi(angles: list[float]) -> list[float]:
    """Half the angles to the neighbouring directions, as circle_shares of the circle."""
    distinct = sorted(set(angles))
    result = []
    for angle in angles:
        place = distinct.index(angle)
        after = distinct[(place + 1) % len(distinct)] - angle
        before = angle - distinct[place - 1]
        gaps = [gap if gap > 0 else gap + 2 * np.pi for gap in (after, before)]
        result.append(sum(gaps) / (4 * np.pi) / angles.count(angle))
    return result


def dense_kernel(model: CLCRN, points: Points) -> Tensor:
    """K as a dense matrix."""
    net, scale = model.kernel, model.scale
    k = torch.zeros(len(points), len(points), dtype=torch.float64)
    place = torch.tensor(scale.position(points))
    for i in range(len(points)):
        pairs = [offset_of(points, i, j) for j in range(len(points))]
        near = sorted(range(len(points)), key=lambda j: pairs[j][1])[:NEAR]
        assert near[0] == i
        angles = [float(np.arctan2(*pairs[j][0][::-1])) for j in near[1:]]
        for j, share in zip(near, [1.0, *psi(angles)], strict=True):
            v, d = torch.tensor(pairs[j][0]) / scale.radius, pairs[j][1] / scale.radius
            x = torch.tanh(net.first(torch.cat([place[i], v])))
            x = torch.tanh(net.norm(torch.tanh(net.second(x))))
            chi = torch.relu(net.last(x))[0]
            alpha = net.query(place[i]) @ net.key(place[j])
            k[i, j] = chi * torch.exp(-abs(alpha) * d) * share
    return k


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@torch.no_grad()
def test_the_kernel_equals_the_formula_of_the_paper(kind: str) -> None:
    model = made(kind=kind)
    points = small_points(kind, NODES)
    around = model.operators(points)
    convolution = LocalConvolution(around, model.kernel(around))
    found = convolution(torch.eye(NODES, dtype=torch.float64))
    expected = dense_kernel(model, points)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert (found > 0).sum() > 2 * NODES  # the ReLU leaves most of them positive


@torch.no_grad()
def test_the_forecast_equals_the_formula_of_the_paper() -> None:
    model, inputs = made("baseline.embedding=2"), some_inputs()
    found = model.forecast_nodes(inputs, model.operators(model.nodes), None)
    k = dense_kernel(model, model.nodes)
    for sample in range(2):
        states = [torch.zeros(NODES, 3, dtype=torch.float64) for _ in range(2)]
        for x in inputs.past[sample]:
            entered = model.enter(torch.cat([model.lift(x), x, model.embedding], dim=-1))
            states = stepped(model.encoder, entered, states, k)
        value = torch.zeros(NODES, CHANNELS, dtype=torch.float64)
        for lead in range(HORIZON):
            calendar = inputs.calendar[sample, lead].expand(NODES, -1)
            states = stepped(model.decoder, torch.cat([value, calendar], dim=-1), states, k)
            value = model.readout(states[-1])
            torch.testing.assert_close(found[sample, lead], value, rtol=1e-10, atol=1e-10)


def stepped(cells, x: Tensor, states: list[Tensor], k: Tensor) -> list[Tensor]:
    """[z, r] = sig(Lin(K [x, h])), c = tanh(Lin(K [x, r h])), h' = z h + (1 - z) c."""
    new = []
    for cell, h in zip(cells, states, strict=True):
        weight, bias = cell.input_map.weight, cell.input_map.bias
        gates = torch.cat([weight[:6], cell.state_map.weight], dim=1)
        z, r = torch.sigmoid(k @ torch.cat([x, h], 1) @ gates.T + bias[:6]).chunk(2, 1)
        last = torch.cat([weight[6:], cell.reset_map.weight], dim=1)
        c = torch.tanh(k @ torch.cat([x, r * h], 1) @ last.T + bias[6:])
        x = z * h + (1 - z) * c
        new.append(x)
    return new


def test_targets_are_inputs_of_the_decoder_only_if_drawn() -> None:
    model, inputs = made(), some_inputs()
    around = model.operators(model.nodes)
    target = torch.full((2, HORIZON, NODES, CHANNELS), 9.0, dtype=torch.float64)
    mask = torch.ones_like(target, dtype=torch.bool)
    forced = Supervision(target, mask, 0.0, torch.zeros(HORIZON))
    alone = model.forecast_nodes(inputs, around, None)
    for supervision, same in (
        (forced, False),
        (replace(forced, teacher_forcing_draws=torch.ones(HORIZON)), True),
        (replace(forced, mask=~mask), True),  # missing targets
    ):
        assert torch.equal(model.forecast_nodes(inputs, around, supervision), alone) is same


# Positions and directions.


def test_the_offset_on_a_sphere_has_the_length_of_the_distance() -> None:
    points = small_points("sphere", 40)
    x, y = points.embedded[:, None].repeat(40, 1), points.embedded[None].repeat(40, 0)
    distance = points.geometry.distance(x, y)
    v = cylinder_offset(x, y, distance)
    np.testing.assert_allclose(np.hypot(v[..., 0], v[..., 1]), distance, atol=1e-12)
    east = points.coordinates[None, :, 1] > points.coordinates[:, None, 1]
    north = points.coordinates[None, :, 0] > points.coordinates[:, None, 0]
    off = ~np.eye(40, dtype=bool)
    assert (v[..., 0] > 0)[off].tolist() == east[off].tolist()
    assert (v[..., 1] > 0)[off].tolist() == north[off].tolist()


def test_the_offset_across_a_pole_points_to_it() -> None:
    points = Points(np.array([[80.0, 20], [80, 200], [-70, 0], [-70, 180], [90, 0]]), "sphere")
    x, y = points.embedded[[0, 2, 4]][:, None], points.embedded[[1, 3, 1]][:, None]
    v = cylinder_offset(x, y, points.geometry.distance(x, y))[:, 0]
    np.testing.assert_allclose(v[:2], np.deg2rad([[0, 20], [0, -40]]), atol=1e-9)
    assert np.isfinite(v).all() and np.hypot(*v[2]) == pytest.approx(np.deg2rad(10))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_directions_share_the_full_circle(count: int) -> None:
    """Regular directions equally, from any start; coincident ones divide their share."""
    for start in (0.0, 0.3, -np.pi):
        angle = start + 2 * np.pi * np.arange(count) / count
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        v = np.concatenate([np.zeros((1, 2)), ring, 2 * ring[:1]])[None]
        found = circle_shares(v, np.hypot(v[..., 0], v[..., 1]))[0]
        expected = np.full(count + 2, 1 / count)
        expected[[1, -1]] /= 2
        expected[0] = 1.0
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_shares_are_half_the_angles_on_both_sides() -> None:
    """The first direction follows the last; -180 and 180 degrees are one direction."""
    angles = np.deg2rad([-170.0, -20, 10, 100, 150, 180])
    v = np.stack([np.cos(angles), np.sin(angles)], axis=1)[None]
    v = np.concatenate([v, [[[-1.0, -0.0]]]], axis=1)
    found = circle_shares(v, np.ones(v.shape[:2]))[0] * 720
    expected = [10 + 150, 150 + 30, 30 + 90, 90 + 50, 50 + 30, (30 + 10) / 2, (30 + 10) / 2]
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert found.sum() == pytest.approx(720)


def test_coincident_points_have_no_direction() -> None:
    points = Points(np.array([[0.0, 0], [0, 0], [1, 0], [0, 1], [-1, -1]]))
    around = Neighbourhood.of(points, 5, LengthScale.of(points, 5), *HERE)
    assert around.share[:2, :2].eq(1).all()
    torch.testing.assert_close(around.share[0, 2:].sum(), torch.tensor(1.0).double())


@pytest.mark.parametrize("nodes", [1, 9])
def test_local_sums_and_their_gradients_equal_the_dense_product(nodes: int) -> None:
    points = small_points("plane", nodes)
    around = Neighbourhood.of(points, 4, LengthScale.of(points, 4), *HERE)
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(around.near.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(nodes, 2, 3, generator=generator, dtype=torch.float64)
    dense = torch.zeros(nodes, nodes, dtype=torch.float64).scatter(1, around.near, weight)
    found = LocalConvolution(around, weight)(x)
    torch.testing.assert_close(found, torch.einsum("ij,jbf->ibf", dense, x), rtol=0, atol=1e-12)
    weight.requires_grad_(), x.requires_grad_()
    assert torch.autograd.gradcheck(lambda w, x: LocalConvolution(around, w)(x), (weight, x))


@pytest.mark.parametrize(
    ("kind", "change"), [("plane", lambda x: 1e5 * x - 3e4), ("sphere", lambda x: x % 360)]
)
@torch.no_grad()
def test_units_and_the_range_of_longitudes_do_not_matter(kind: str, change) -> None:
    points = small_points(kind, NODES)
    points = Points(points.coordinates - [0, 5], kind)
    other = Points(change(points.coordinates), kind)
    inputs = some_inputs()
    one, two = made(nodes=points), made(nodes=other)
    two.load_state_dict(one.state_dict())
    torch.testing.assert_close(
        one.forecast_nodes(inputs, one.operators(points), None),
        two.forecast_nodes(inputs, two.operators(other), None),
        rtol=1e-9,
        atol=1e-9,
    )


# Its size, and new points.


def count_of(*settings: str) -> int:
    time_spec = TimeSpec(SECOND, 12, 12, calendar=False)
    nodes = small_points("sphere", 2048)
    config = load_config(settings=("baseline.extras=false", *settings))
    model = CLCRN(config, time_spec, 1, nodes)
    return sum(p.numel() for p in model.parameters())


def test_the_number_of_parameters() -> None:
    """In the published benchmark embeddings of 8 exist but are never trained."""
    assert count_of("baseline.embedding=8") == 22_742 + 2048 * 8
    assert count_of() == 22_742 - 8 * 32


def test_the_kernel_is_computed_once_per_forecast() -> None:
    case, calls = case_of("plane"), []
    model = case.model()
    assert isinstance(model, CLCRN)
    model.kernel.register_forward_hook(lambda *_: calls.append(1))
    forecast(model, case.batch(2), case.nodes)
    assert len(calls) == 1


def test_points_can_be_added_unless_nodes_have_embeddings() -> None:
    case = case_of("sphere, two channels")
    model, batch = case.model(), case.batch(2)
    new = small_points("sphere", 4, seed=9)
    joined = case.nodes.joined(new)
    frames, observed = (torch.cat([a, a[:, 5:9]], dim=1) for a in (batch.frames, batch.observed))
    wider = replace(batch, frames=frames, observed=observed)
    with_history = forecast(model, wider, joined, new)
    without = forecast(model, batch, case.nodes, new)
    assert model.inductive and with_history.isfinite().all()
    assert not torch.allclose(with_history, without)
    fixed = case_of("sphere, two channels", "embedded").fitted
    assert not fixed.inductive
    with pytest.raises(UsageError, match="CLCRN has weights for each of its 24 training points"):
        fixed.node_graph(joined)
