"""The baselines' common ground: graphs and sparse operators against dense formulas, gaps, queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import Case, ask, double, small_field, small_points, stirred, with_gaps
from torch import Tensor

from stonet.config import Config, load_config
from stonet.data.batch import make_batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.base import NEAR, GridForecaster, Inputs
from stonet.models.baselines.graph_filters import (
    Matrix,
    Operator,
    adjacency,
    chebyshev,
    directed,
    laplacian,
    nearest,
    plain_laplacian,
    powers,
    random_walk,
    symmetric,
)
from stonet.models.forecaster import Supervision
from stonet.models.registry import build_model

HERE = torch.device("cpu"), torch.float64
PLACES = {"plane": ("plane", 1), "sphere": ("sphere", 2)}
TWINS = Points(np.array([[0.0, 0]] * 5 + [[1.0, 0], [0.0, 1], [3.0, 3]]))  # five share a place


def brute_force(points: Points, count: int) -> np.ndarray:
    """A[i, j] = 1 if j is among the `count` nearest of i, i itself counted but left out."""
    a = np.zeros((len(points), len(points)))
    for i, x in enumerate(points.embedded):
        distance = points.geometry.distance(x, points.embedded)
        distance[i] = -1.0
        a[i, np.argsort(distance)[1:count]] = 1.0
    return a


def some_graph(count: int = 6) -> tuple[Matrix, np.ndarray]:
    a = adjacency(small_points("plane", 30), count)
    return a, a.toarray()


@pytest.mark.parametrize("kind", ["plane", "sphere"])
@pytest.mark.parametrize("count", [1, 2, 7, 40, 99])
def test_the_graph_joins_nearest_points(kind: str, count: int) -> None:
    points = small_points(kind, 40)
    expected = brute_force(points, count)
    index = nearest(points, count)
    assert index.shape == (40, min(count, 40))
    assert (index[:, 0] == np.arange(40)).all()
    assert np.array_equal(directed(points, count).toarray(), expected)
    assert np.array_equal(adjacency(points, count).toarray(), np.maximum(expected, expected.T))


@pytest.mark.parametrize("count", [2, 3, 5, 6, 8])
def test_points_that_share_a_place_are_not_their_own_neighbours(count: int) -> None:
    index = nearest(TWINS, count)
    assert (index[:, 0] == np.arange(8)).all()
    assert all(len(set(row)) == count for row in index.tolist())
    for i, row in enumerate(index):
        distance = TWINS.geometry.distance(TWINS.embedded[i], TWINS.embedded)
        assert np.allclose(np.sort(distance[row]), np.sort(distance)[:count])
    a = adjacency(TWINS, count).toarray()
    assert not a.diagonal().any() and np.array_equal(a, a.T) and set(a.ravel()) <= {0.0, 1.0}


def test_the_normalisations_are_those_of_the_papers() -> None:
    a, dense = some_graph()
    degree = dense.sum(1)
    half = np.diag(degree**-0.5)
    with_loops = np.diag((degree + 1) ** -0.5)
    eye = np.eye(30)
    np.testing.assert_allclose(symmetric(a, loops=False).toarray(), half @ dense @ half)
    np.testing.assert_allclose(
        symmetric(a, loops=True).toarray(), with_loops @ (dense + eye) @ with_loops
    )
    np.testing.assert_allclose(random_walk(a).toarray(), dense / degree[:, None])
    np.testing.assert_allclose(
        laplacian(a).toarray(), (eye - half @ dense @ half) - eye, atol=1e-15
    )
    assert np.abs(np.linalg.eigvalsh(laplacian(a).toarray())).max() <= 1 + 1e-12


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 30])
def test_the_plain_laplacian_is_scaled_by_its_own_largest_eigenvalue(nodes: int) -> None:
    a = adjacency(small_points("plane", nodes), 4)
    full = np.diag(a.toarray().sum(1)) - a.toarray()
    largest = max(float(np.linalg.eigvalsh(full).max()), 1e-12)
    scaled = plain_laplacian(a).toarray()
    np.testing.assert_allclose(scaled, 2 * full / largest - np.eye(nodes), atol=1e-9)
    again = plain_laplacian(a).toarray()
    assert np.array_equal(scaled, again)  # its search starts from the same vector


def test_points_without_neighbours_make_no_numbers_of_their_own() -> None:
    """With neighbours=1 there is no edge: operators are zero, GCN's is the identity."""
    a = adjacency(small_points("plane", 10), 1)
    assert a.nnz == 0
    for made in (symmetric(a, loops=False), random_walk(a), laplacian(a)):
        assert not made.toarray().any()
    assert np.array_equal(symmetric(a, loops=True).toarray(), np.eye(10))
    assert np.array_equal(plain_laplacian(a).toarray(), -np.eye(10))


def test_an_operator_and_its_gradient_are_those_of_the_dense_matrix() -> None:
    dense = directed(small_points("plane", 12), 5).toarray()
    dense *= np.random.default_rng(0).normal(size=dense.shape)  # not symmetric at all
    operator = Operator.of(Matrix(dense), *HERE)
    x = torch.randn(3, 12, 4, dtype=torch.float64, requires_grad=True)
    seen, expected = operator(x.transpose(0, 1)), torch.tensor(dense) @ x.transpose(0, 1).flatten(1)
    torch.testing.assert_close(seen.flatten(1), expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn(12, 3, 4, dtype=torch.float64)
    mine = torch.autograd.grad((seen * weight).sum(), x)[0]
    other = torch.autograd.grad((expected * weight.flatten(1)).sum(), x)[0]
    torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(operator, (x.detach()[0].requires_grad_(),))


def test_chebyshev_terms_and_powers_are_polynomials_of_the_matrix() -> None:
    a, _ = some_graph()
    operator, x = Operator.of(laplacian(a), *HERE), torch.randn(30, 2, dtype=torch.float64)
    values, vectors = np.linalg.eigh(laplacian(a).toarray())
    spectrum = vectors.T @ x.numpy()
    for k, (term, power) in enumerate(
        zip(chebyshev(operator, x, 5), powers(operator, x, 5), strict=True)
    ):
        t_k = np.cos(k * np.arccos(np.clip(values, -1, 1)))  # T_k(cos a) = cos(k a)
        np.testing.assert_allclose(term, vectors @ (t_k[:, None] * spectrum), atol=1e-9)
        np.testing.assert_allclose(power, vectors @ (values[:, None] ** k * spectrum), atol=1e-9)
    assert len(chebyshev(operator, x, 1)) == len(powers(operator, x, 1)) == 1


class Known(GridForecaster):
    """A baseline whose forecast is known: a cubic in the lead times something at each node."""

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.seen: list[tuple[Inputs, Supervision | None]] = []

    def operators(self, nodes: Points) -> None:
        return None

    def roll(self, inputs: Inputs, operators: None, supervision: Supervision | None) -> Tensor:
        self.seen.append((inputs, supervision))
        lead = torch.arange(1, self.time_spec.horizon + 1, dtype=torch.float64)
        return inputs.last[:, None] * cubic(lead)[None, :, None, None]


def cubic(lead: Tensor) -> Tensor:
    return 1 - 0.5 * lead + 0.3 * lead**2 - 0.05 * lead**3


def known(place: str = "plane", *settings: str) -> tuple[Case, Known]:
    case = Case.of(small_field(*PLACES[place]), *settings)
    config = load_config("tiny", settings=settings)
    model = Known(config, case.run.time_spec, len(case.run.channels), case.nodes)
    windows = case.windows
    model.fit_closed_form(windows, windows, case.nodes)
    return case, model


def asked_at(case: Case, leads: list[float]):
    """Two windows without gaps, asked at these leads."""
    made, past = case.windows, np.array([10, 40])[:, None] + np.arange(case.run.time_spec.past)
    offsets = np.rint(np.array(leads) * case.run.time_spec.step).astype(np.int64)
    times = made.times[past[:, -1], None] + offsets
    return double(make_batch(made.at, made.times, past, times, case.run.time_spec, False))


def test_between_the_steps_a_forecast_is_a_cubic_through_them_and_the_present() -> None:
    case, model = known()
    leads = [0.0, 0.25, 1.0, 1.5, 2.9, 4.0]
    batch = asked_at(case, leads)
    last = batch.frames[batch.past[:, -1]]
    expected = last[:, None] * cubic(torch.tensor(leads, dtype=torch.float64))[None, :, None, None]
    torch.testing.assert_close(ask(model, batch, case.nodes), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_elsewhere_it_is_the_mean_of_the_nearest_nodes_by_inverse_square_distance(place) -> None:
    case, model = known(place)
    batch, new = asked_at(case, [1.0, 2.0, 3.0, 4.0]), small_points(case.nodes.kind, 6, seed=5)
    every = ask(model, batch, case.nodes)
    mixed = case.nodes.take(np.array([3, 8])).joined(new)
    answer = ask(model, batch, case.nodes, mixed)
    torch.testing.assert_close(answer[:, :, :2], every[:, :, [3, 8]])
    for q, x in enumerate(new.embedded):
        distance = np.linalg.norm(case.nodes.embedded - x, axis=1)
        near = np.argsort(distance)[:NEAR]
        weight = torch.tensor(distance[near] ** -2 / (distance[near] ** -2).sum())
        mean = (every[:, :, near] * weight[:, None]).sum(2)
        torch.testing.assert_close(answer[:, :, 2 + q], mean)


def test_gaps_are_filled_in_time_and_silent_nodes_by_their_neighbours() -> None:
    case, model = known("sphere", "baseline.neighbours=5")
    batch = asked_at(case, [1.0, 2.0, 3.0, 4.0])
    seen = torch.ones_like(batch.frames, dtype=torch.bool)
    first = int(batch.past[0, 0])
    seen[first + 2 : first + 4, 7, 0] = False  # a gap of two between known values
    seen[first + 4 :, 9, 1] = False  # nothing more from here on
    a = adjacency(case.nodes, 5).toarray()
    silent = [4, int(np.flatnonzero(a[4])[0])]  # two neighbours, channel 0 only
    seen[:, silent, 0] = False
    frames = batch.frames * seen
    ask(model, replace(batch, frames=frames, observed=seen), case.nodes)
    past, whole = model.seen[-1][0].past[0], batch.frames[batch.past[0]]
    low, high = whole[1, 7, 0], whole[4, 7, 0]
    torch.testing.assert_close(
        past[2:4, 7, 0], torch.stack([low + (high - low) / 3, low + (high - low) * 2 / 3])
    )
    torch.testing.assert_close(past[4:, 9, 1], whole[3, 9, 1].expand(2))
    for node in silent:
        speaking = [j for j in np.flatnonzero(a[node]) if j not in silent]
        mine = past[:, node, 0] - past[:, speaking, 0].mean(1)
        assert mine.abs().max() < 1e-12
    untouched = [n for n in range(24) if n not in (7, 9, *silent)]
    torch.testing.assert_close(past[:, untouched, :2], whole[:, untouched])


def test_where_nobody_speaks_the_mean_is_assumed() -> None:
    case, model = known("plane", "baseline.neighbours=3")
    batch = asked_at(case, [1.0, 2.0, 3.0, 4.0])
    nobody = torch.zeros_like(batch.frames, dtype=torch.bool)
    ask(model, replace(batch, frames=batch.frames * 0, observed=nobody), case.nodes)
    assert not model.seen[-1][0].past.any()


def test_a_missing_value_has_no_influence() -> None:
    case, model = known("sphere")
    batch = with_gaps(asked_at(case, [1.0, 2.0, 3.0, 4.0]), 0.3)
    other = replace(batch, frames=torch.where(batch.observed, batch.frames, 77.0))
    assert torch.equal(ask(model, batch, case.nodes), ask(model, other, case.nodes))


def test_the_calendar_is_that_of_the_inputs_and_of_the_targets() -> None:
    case, model = known("sphere")
    batch = asked_at(case, [1.0, 2.0, 3.0, 4.0])
    ask(model, batch, case.nodes)
    inputs = model.seen[-1][0]
    assert model.extra == 2  # of the day alone: five days tell no season

    def circle(features: Tensor) -> Tensor:
        return torch.cat([(2 * torch.pi * features).sin(), (2 * torch.pi * features).cos()], -1)

    close = {"rtol": 0, "atol": 5e-6}  # batches tell calendars in float32
    torch.testing.assert_close(inputs.time_spec, circle(batch.future_time), **close)
    past = circle(batch.frame_time[batch.past])[:, :, None].expand(-1, -1, 24, -1)
    torch.testing.assert_close(inputs.past[..., 2:], past, **close)


def a_lesson(case: Case) -> Supervision:
    target, mask = case.windows.targets(np.array([10, 40]))
    return Supervision(target.double(), mask, 0.5, torch.rand(4))


def test_labels_reach_a_rival_only_at_the_leads_it_knows() -> None:
    case, model = known()
    graphs, supervision = model.graphs(case.nodes), a_lesson(case)
    for leads, expected in (([1.0, 2, 3, 4], supervision), ([1.0, 2, 3.5, 4], None)):
        model(asked_at(case, leads), graphs, supervision)
        assert model.seen[-1][1] is expected
    fewer = Supervision(
        supervision.target[:, :2],
        supervision.mask[:, :2],
        0.5,
        supervision.teacher_forcing_draws[:2],
    )
    model(asked_at(case, [1.0, 2.0]), graphs, fewer)
    assert model.seen[-1][1] is None


def test_a_rival_on_a_base_learns_what_the_base_leaves_over() -> None:
    """If it forecast its labels exactly, base and baseline together would forecast the truth."""
    case, model = known("sphere", "baseline.base=ridge")
    graphs, supervision = model.graphs(case.nodes), a_lesson(case)
    batch = asked_at(case, [1.0, 2.0, 3.0, 4.0])
    model(batch, graphs, supervision)
    shown = model.seen[-1][1]
    assert shown is not None and model.base is not None
    look = model.base.regressors(batch, graphs.links.stencil)
    total = model.base.forecast(look, batch) + model.base.scale(look, batch) * shown.target
    torch.testing.assert_close(total, supervision.target, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("base", ["ridge", "persistence"])
@pytest.mark.parametrize("name", ["gcgru", "tgcn", "dcrnn"])
def test_with_nothing_to_add_a_rival_on_a_base_is_the_base(name: str, base: str) -> None:
    case = Case.of(small_field("sphere", 2), f"model={name}", f"baseline.base={base}")
    model, batch = case.run.model, with_gaps(case.windows.inputs(np.arange(3)), 0.2)
    queries = case.nodes.joined(small_points("sphere", 4, seed=5))
    graphs = model.graphs(case.nodes, queries)
    with torch.no_grad():
        expected = model.base(batch, graphs.links.stencil)
        torch.testing.assert_close(model(batch, graphs).forecast, expected)


def test_weights_that_belong_to_nodes_take_no_others() -> None:
    case, model = known()
    model.inductive = False
    model.graph(case.nodes)
    with pytest.raises(UsageError, match="Known has weights for each of its 24 training points"):
        model.graph(case.nodes.take(np.arange(24)[::-1].copy()))


@pytest.mark.parametrize(
    ("model", "setting"),
    [("tgcn", "order=2"), ("clcrn", "legacy=true"), ("stgcn", "embedding=3")],
)
def test_a_setting_without_use_is_refused(model: str, setting: str) -> None:
    config = load_config(settings=[f"model={model}", f"baseline.{setting}"])
    time_spec = TimeSpec(step=10**9, past=4, horizon=3, calendar=False)
    with pytest.raises(UsageError, match=f"no use for baseline.{setting.partition('=')[0]}"):
        build_model(config, time_spec, 1, small_points("plane", 20))


def test_a_rival_looks_back_no_further_than_it_says() -> None:
    """Whatever lies before its last `baseline.past` steps may be anything."""
    points, past = small_points("plane", 20), 9
    time_spec = TimeSpec(step=10**9, past=past, horizon=3, calendar=False)
    config = load_config(settings=["model=gcgru", "baseline.past=4", "baseline.hidden=4"])
    model = stirred(build_model(config, time_spec, 1, points))
    graphs = model.graphs(points)
    values = torch.randn(past, 20, 1, generator=torch.Generator().manual_seed(0))
    answers = []
    for early in (0.0, 5.0):
        frames = torch.cat([torch.full((5, 20, 1), early), values[5:]])
        seen = torch.ones_like(frames, dtype=torch.bool)
        times = np.arange(past + 3) * 10**9
        batch = make_batch(
            lambda index, f=frames, s=seen: (f[index], s[index]),
            times,
            np.arange(past)[None],
            times[None, past:],
            time_spec,
            False,
        )
        answers.append(model(batch, graphs).forecast)
    assert torch.equal(*answers)
    assert not torch.equal(answers[0][:, :1], answers[0][:, 1:2])
