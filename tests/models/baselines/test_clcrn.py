"""CLCRN: its kernel by hand on plane and sphere, sums over neighbours, its size, new points."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.contracts import BATTERY, Case, ask, small_field, small_points, stirred
from stonet.models.baselines.local_kernel import Frame, Surroundings, WeightedSum, horizon, shares
from torch import Tensor

from stonet.config import load_config
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.base import Inputs
from stonet.models.baselines.clcrn import CLCRN
from stonet.models.forecaster import Supervision

HERE = torch.device("cpu"), torch.float64
NODES, NEAR, CHANNELS, EXTRA, PAST, HORIZON = 7, 4, 2, 4, 3, 4
PLACES = {"plane": ("plane", 1), "sphere, two channels": ("sphere", 2)}
FORMS = {"": (), "embedded": ("baseline.embedding=3",)}


@cache
def case_of(place: str, form: str = "") -> Case:
    settings = ("model=clcrn", "baseline.neighbours=8", *FORMS[form])
    return Case.of(small_field(*PLACES[place]), *settings, relabels=not form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("truth", BATTERY, ids=lambda truth: truth.__name__)
def test_clcrn_keeps_the_promises(truth, place: str, form: str) -> None:
    truth(case_of(place, form))


def made(*settings: str, kind: str = "sphere", nodes: Points | None = None) -> CLCRN:
    """A small one in float64, no parameter at rest, with a calendar."""
    small = (f"baseline.neighbours={NEAR}", "baseline.hidden=3", *settings)
    time_spec = TimeSpec(3600 * SECOND, PAST, HORIZON, calendar=True)
    nodes = small_points(kind, NODES) if nodes is None else nodes
    return stirred(CLCRN(load_config(settings=small), time_spec, CHANNELS, nodes).double())  # type: ignore


def some_inputs(batch: int = 2) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, PAST, NODES, CHANNELS + EXTRA), (batch, HORIZON, EXTRA)
    past, time_spec = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(past, time_spec, CHANNELS)


# Slow and literal: one pair of points at a time, in the textbook's own terms.


def way(points: Points, i: int, j: int) -> tuple[np.ndarray, float]:
    """Local coordinates of j seen from i, and the distance."""
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
    """Every direction's half gaps to both sides, around the full turn."""
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
    """K as a full matrix."""
    net, frame = model.kernel, model.frame
    k = torch.zeros(len(points), len(points), dtype=torch.float64)
    place = torch.tensor(frame.position(points))
    for i in range(len(points)):
        ways = [way(points, i, j) for j in range(len(points))]
        near = sorted(range(len(points)), key=lambda j: ways[j][1])[:NEAR]
        assert near[0] == i
        angles = [float(np.arctan2(*ways[j][0][::-1])) for j in near[1:]]
        for j, share in zip(near, [1.0, *psi(angles)], strict=True):
            v, d = torch.tensor(ways[j][0]) / frame.reach, ways[j][1] / frame.reach
            x = torch.tanh(net.first(torch.cat([place[i], v])))
            x = torch.tanh(net.norm(torch.tanh(net.second(x))))
            chi = torch.relu(net.last(x))[0]
            alpha = net.query(place[i]) @ net.key(place[j])
            k[i, j] = chi * torch.exp(-abs(alpha) * d) * share
    return k


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@torch.no_grad()
def test_the_kernel_is_the_papers_formula(kind: str) -> None:
    model = made(kind=kind)
    points = small_points(kind, NODES)
    around = model.operators(points)
    weight = WeightedSum(around, model.kernel(around))
    found = weight(torch.eye(NODES, dtype=torch.float64))
    expected = dense_kernel(model, points)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert (found > 0).sum() > 2 * NODES  # not all is cut off by the ReLU


@torch.no_grad()
def test_the_forecast_is_the_papers_formula() -> None:
    model, inputs = made("baseline.embedding=2"), some_inputs()
    found = model.roll(inputs, model.operators(model.nodes), None)
    k = dense_kernel(model, model.nodes)
    for sample in range(2):
        states = [torch.zeros(NODES, 3, dtype=torch.float64) for _ in range(2)]
        for x in inputs.past[sample]:
            entered = model.enter(torch.cat([model.lift(x), x, model.embedding], dim=-1))
            states = stepped(model.encoder, entered, states, k)
        value = torch.zeros(NODES, CHANNELS, dtype=torch.float64)
        for lead in range(HORIZON):
            time_spec = inputs.time_spec[sample, lead].expand(NODES, -1)
            states = stepped(model.decoder, torch.cat([value, time_spec], dim=-1), states, k)
            value = model.readout(states[-1])
            torch.testing.assert_close(found[sample, lead], value, rtol=1e-10, atol=1e-10)


def stepped(cells, x: Tensor, states: list[Tensor], k: Tensor) -> list[Tensor]:
    """[z, r] = sig(Lin(K [x, h])), c = tanh(Lin(K [x, r h])), h' = z h + (1 - z) c."""
    new = []
    for cell, h in zip(cells, states, strict=True):
        gates = torch.cat([cell.see.weight[:6], cell.keep.weight], dim=1)
        z, r = torch.sigmoid(k @ torch.cat([x, h], 1) @ gates.T + cell.see.bias[:6]).chunk(2, 1)
        last = torch.cat([cell.see.weight[6:], cell.renew.weight], dim=1)
        c = torch.tanh(k @ torch.cat([x, r * h], 1) @ last.T + cell.see.bias[6:])
        x = z * h + (1 - z) * c
        new.append(x)
    return new


def test_labels_are_shown_to_the_decoder_in_training_only() -> None:
    model, inputs = made(), some_inputs()
    around = model.operators(model.nodes)
    target = torch.full((2, HORIZON, NODES, CHANNELS), 9.0, dtype=torch.float64)
    mask = torch.ones_like(target, dtype=torch.bool)
    shown = Supervision(target, mask, 0.0, torch.zeros(HORIZON))
    alone = model.roll(inputs, around, None)
    for supervision, same in (
        (shown, False),
        (replace(shown, teacher_forcing_draws=torch.ones(HORIZON)), True),
        (replace(shown, mask=~mask), True),  # labels that are missing cannot be shown
    ):
        assert torch.equal(model.roll(inputs, around, supervision), alone) is same


# What lies where.


def test_the_way_on_a_sphere_is_as_long_as_the_distance() -> None:
    points = small_points("sphere", 40)
    x, y = points.embedded[:, None].repeat(40, 1), points.embedded[None].repeat(40, 0)
    distance = points.geometry.distance(x, y)
    v = horizon(x, y, distance)
    np.testing.assert_allclose(np.hypot(v[..., 0], v[..., 1]), distance, atol=1e-12)
    east = points.coordinates[None, :, 1] > points.coordinates[:, None, 1]
    north = points.coordinates[None, :, 0] > points.coordinates[:, None, 0]
    off = ~np.eye(40, dtype=bool)
    assert (v[..., 0] > 0)[off].tolist() == east[off].tolist()
    assert (v[..., 1] > 0)[off].tolist() == north[off].tolist()


def test_the_way_across_a_pole_points_to_it() -> None:
    points = Points(np.array([[80.0, 20], [80, 200], [-70, 0], [-70, 180], [90, 0]]), "sphere")
    x, y = points.embedded[[0, 2, 4]][:, None], points.embedded[[1, 3, 1]][:, None]
    v = horizon(x, y, points.geometry.distance(x, y))[:, 0]
    np.testing.assert_allclose(v[:2], np.deg2rad([[0, 20], [0, -40]]), atol=1e-9)
    assert np.isfinite(v).all() and np.hypot(*v[2]) == pytest.approx(np.deg2rad(10))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_directions_share_the_full_turn(count: int) -> None:
    """Regular ones alike, wherever the first one points; doubled ones divide what is theirs."""
    for start in (0.0, 0.3, -np.pi):
        angle = start + 2 * np.pi * np.arange(count) / count
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        v = np.concatenate([np.zeros((1, 2)), ring, 2 * ring[:1]])[None]
        found = shares(v, np.hypot(v[..., 0], v[..., 1]))[0]
        expected = np.full(count + 2, 1 / count)
        expected[[1, -1]] /= 2
        expected[0] = 1.0
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_shares_are_half_the_gaps_on_both_sides() -> None:
    """The last direction is followed by the first; due west is one direction, from both sides."""
    angles = np.deg2rad([-170.0, -20, 10, 100, 150, 180])
    v = np.stack([np.cos(angles), np.sin(angles)], axis=1)[None]
    v = np.concatenate([v, [[[-1.0, -0.0]]]], axis=1)
    found = shares(v, np.ones(v.shape[:2]))[0] * 720
    expected = [10 + 150, 150 + 30, 30 + 90, 90 + 50, 50 + 30, (30 + 10) / 2, (30 + 10) / 2]
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert found.sum() == pytest.approx(720)


def test_points_in_one_place_stand_for_no_direction() -> None:
    points = Points(np.array([[0.0, 0], [0, 0], [1, 0], [0, 1], [-1, -1]]))
    around = Surroundings.of(points, 5, Frame.of(points, 5), *HERE)
    assert around.share[:2, :2].eq(1).all()
    torch.testing.assert_close(around.share[0, 2:].sum(), torch.tensor(1.0).double())


@pytest.mark.parametrize("nodes", [1, 9])
def test_sums_over_neighbours_and_their_gradients_are_those_of_a_matrix(nodes: int) -> None:
    points = small_points("plane", nodes)
    around = Surroundings.of(points, 4, Frame.of(points, 4), *HERE)
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(around.near.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(nodes, 2, 3, generator=generator, dtype=torch.float64)
    dense = torch.zeros(nodes, nodes, dtype=torch.float64).scatter(1, around.near, weight)
    found = WeightedSum(around, weight)(x)
    torch.testing.assert_close(found, torch.einsum("ij,jbf->ibf", dense, x), rtol=0, atol=1e-12)
    weight.requires_grad_(), x.requires_grad_()
    assert torch.autograd.gradcheck(lambda w, x: WeightedSum(around, w)(x), (weight, x))


@pytest.mark.parametrize(
    ("kind", "change"), [("plane", lambda x: 1e5 * x - 3e4), ("sphere", lambda x: x % 360)]
)
@torch.no_grad()
def test_units_and_the_count_of_longitudes_are_nothing(kind: str, change) -> None:
    points = small_points(kind, NODES)
    points = Points(points.coordinates - [0, 5], kind)
    other = Points(change(points.coordinates), kind)
    inputs = some_inputs()
    one, two = made(nodes=points), made(nodes=other)
    two.load_state_dict(one.state_dict())
    torch.testing.assert_close(
        one.roll(inputs, one.operators(points), None),
        two.roll(inputs, two.operators(other), None),
        rtol=1e-9,
        atol=1e-9,
    )


# Its size and who may join.


def count_of(*settings: str) -> int:
    time_spec = TimeSpec(SECOND, 12, 12, calendar=False)
    nodes = small_points("sphere", 2048)
    model = CLCRN(load_config(settings=settings), time_spec, 1, nodes)
    return sum(p.numel() for p in model.parameters())


def test_the_number_of_parameters() -> None:
    """The harness' embeddings of 8 are never trained; without them, nothing reads them either."""
    assert count_of("baseline.embedding=8") == 22_742 + 2048 * 8
    assert count_of() == 22_742 - 8 * 32


def test_the_kernel_is_made_once_for_a_forecast() -> None:
    case, made_so_often = case_of("plane"), []
    model = case.model()
    assert isinstance(model, CLCRN)
    model.kernel.register_forward_hook(lambda *_: made_so_often.append(1))
    ask(model, case.batch(2), case.nodes)
    assert len(made_so_often) == 1


def test_new_points_may_join_unless_nodes_have_embeddings() -> None:
    case = case_of("sphere, two channels")
    model, batch = case.model(), case.batch(2)
    new = small_points("sphere", 4, seed=9)
    joined = case.nodes.joined(new)
    frames, observed = (torch.cat([a, a[:, 5:9]], dim=1) for a in (batch.frames, batch.observed))
    wider = replace(batch, frames=frames, observed=observed)
    there = ask(model, wider, joined, new)
    between = ask(model, batch, case.nodes, new)
    assert model.inductive and there.isfinite().all() and not torch.allclose(there, between)
    fixed = case_of("sphere, two channels", "embedded").run.model
    assert not fixed.inductive
    with pytest.raises(UsageError, match="CLCRN has weights for each of its 24 training points"):
        fixed.graph(joined)
