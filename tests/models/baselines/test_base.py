"""The common part of the baselines: graphs, sparse operators, gaps, queries, teacher forcing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import (
    Case,
    as_float64,
    forecast,
    perturb,
    small_field,
    small_points,
    with_gaps,
)
from torch import Tensor

from stonet.config import Config, load_config
from stonet.data.batch import make_batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.base import INTERPOLATION_NODES, GraphBaseline, Inputs
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
from stonet.models.point_inputs import sun_at_leads
from stonet.models.registry import build_model

HERE = torch.device("cpu"), torch.float64
PLACES = {"plane": ("plane", 1), "sphere": ("sphere", 2)}
COINCIDENT = Points(np.array([[0.0, 0]] * 5 + [[1.0, 0], [0.0, 1], [3.0, 3]]))  # five equal


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
def test_edges_connect_nearest_points(kind: str, count: int) -> None:
    points = small_points(kind, 40)
    expected = brute_force(points, count)
    index = nearest(points, count)
    assert index.shape == (40, min(count, 40))
    assert (index[:, 0] == np.arange(40)).all()
    assert np.array_equal(directed(points, count).toarray(), expected)
    assert np.array_equal(adjacency(points, count).toarray(), np.maximum(expected, expected.T))


@pytest.mark.parametrize("count", [2, 3, 5, 6, 8])
def test_coincident_points_are_not_their_own_neighbours(count: int) -> None:
    index = nearest(COINCIDENT, count)
    assert (index[:, 0] == np.arange(8)).all()
    assert all(len(set(row)) == count for row in index.tolist())
    for i, row in enumerate(index):
        distance = COINCIDENT.geometry.distance(COINCIDENT.embedded[i], COINCIDENT.embedded)
        assert np.allclose(np.sort(distance[row]), np.sort(distance)[:count])
    a = adjacency(COINCIDENT, count).toarray()
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
def test_the_plain_laplacian_is_scaled_by_its_largest_eigenvalue(nodes: int) -> None:
    a = adjacency(small_points("plane", nodes), 4)
    full = np.diag(a.toarray().sum(1)) - a.toarray()
    largest = max(float(np.linalg.eigvalsh(full).max()), 1e-12)
    scaled = plain_laplacian(a).toarray()
    np.testing.assert_allclose(scaled, 2 * full / largest - np.eye(nodes), atol=1e-9)
    again = plain_laplacian(a).toarray()
    assert np.array_equal(scaled, again)  # the eigensolver starts from a fixed vector


def test_without_edges_operators_are_zero_or_the_identity() -> None:
    """With neighbours=1 there is no edge; the operator of GCN is the identity."""
    a = adjacency(small_points("plane", 10), 1)
    assert a.nnz == 0
    for made in (symmetric(a, loops=False), random_walk(a), laplacian(a)):
        assert not made.toarray().any()
    assert np.array_equal(symmetric(a, loops=True).toarray(), np.eye(10))
    assert np.array_equal(plain_laplacian(a).toarray(), -np.eye(10))


def test_an_operator_and_its_gradient_equal_the_dense_product() -> None:
    dense = directed(small_points("plane", 12), 5).toarray()
    dense *= np.random.default_rng(0).normal(size=dense.shape)  # not symmetric
    operator = Operator.of(Matrix(dense), *HERE)
    x = torch.randn(3, 12, 4, dtype=torch.float64, requires_grad=True)
    result = operator(x.transpose(0, 1))
    expected = torch.tensor(dense) @ x.transpose(0, 1).flatten(1)
    torch.testing.assert_close(result.flatten(1), expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn(12, 3, 4, dtype=torch.float64)
    mine = torch.autograd.grad((result * weight).sum(), x)[0]
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


class Cubic(GraphBaseline[None]):
    """A baseline with an exact forecast: a cubic in the lead times the newest value."""

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.calls: list[tuple[Inputs, Supervision | None]] = []

    def operators(self, nodes: Points) -> None:
        return None

    def forecast_nodes(
        self, inputs: Inputs, operators: None, supervision: Supervision | None
    ) -> Tensor:
        self.calls.append((inputs, supervision))
        lead = torch.arange(1, self.time_spec.horizon + 1, dtype=torch.float64)
        return inputs.last[:, None] * cubic(lead)[None, :, None, None]


def cubic(lead: Tensor) -> Tensor:
    return 1 - 0.5 * lead + 0.3 * lead**2 - 0.05 * lead**3


def cubic_case(place: str = "plane", *settings: str) -> tuple[Case, Cubic]:
    case = Case.of(small_field(*PLACES[place]), *settings)
    config, channels = load_config("tiny", settings=settings), len(case.trained.channels)
    model = Cubic(config, case.windows.time_spec, channels, case.nodes)
    model.fit_closed_form(case.windows, case.windows, case.nodes)
    return case, model


def batch_at(case: Case, leads: list[float]):
    """Two windows without gaps at these leads."""
    windows, time_spec = case.windows, case.windows.time_spec
    past = np.array([10, 40])[:, None] + np.arange(time_spec.past)
    offsets = np.rint(np.array(leads) * time_spec.step).astype(np.int64)
    times = windows.times[past[:, -1], None] + offsets
    return as_float64(make_batch(windows.at, windows.times, past, times, time_spec))


def test_between_leads_the_forecast_is_interpolated_by_a_cubic() -> None:
    """Through the trained leads and the value at the issue time."""
    case, model = cubic_case()
    leads = [0.0, 0.25, 1.0, 1.5, 2.9, 4.0]
    batch = batch_at(case, leads)
    last = batch.frames[batch.past[:, -1]]
    expected = last[:, None] * cubic(torch.tensor(leads, dtype=torch.float64))[None, :, None, None]
    torch.testing.assert_close(forecast(model, batch, case.nodes), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_other_places_have_the_mean_of_the_nearest_nodes_by_inverse_square_distance(place) -> None:
    case, model = cubic_case(place)
    batch, new = batch_at(case, [1.0, 2.0, 3.0, 4.0]), small_points(case.nodes.kind, 6, seed=5)
    every = forecast(model, batch, case.nodes)
    mixed = case.nodes.take(np.array([3, 8])).joined(new)
    result = forecast(model, batch, case.nodes, mixed)
    torch.testing.assert_close(result[:, :, :2], every[:, :, [3, 8]])
    for q, x in enumerate(new.embedded):
        distance = np.linalg.norm(case.nodes.embedded - x, axis=1)
        near = np.argsort(distance)[:INTERPOLATION_NODES]
        weight = torch.tensor(distance[near] ** -2 / (distance[near] ** -2).sum())
        mean = (every[:, :, near] * weight[:, None]).sum(2)
        torch.testing.assert_close(result[:, :, 2 + q], mean)


def test_gaps_are_filled_in_time_and_empty_nodes_by_their_neighbours() -> None:
    case, model = cubic_case("sphere", "baseline.neighbours=5")
    batch = batch_at(case, [1.0, 2.0, 3.0, 4.0])
    observed = torch.ones_like(batch.frames, dtype=torch.bool)
    first = int(batch.past[0, 0])
    observed[first + 2 : first + 4, 7, 0] = False  # a gap of two steps
    observed[first + 4 :, 9, 1] = False  # the end is missing
    a = adjacency(case.nodes, 5).toarray()
    empty = [4, int(np.flatnonzero(a[4])[0])]  # two neighbours, channel 0 only
    observed[:, empty, 0] = False
    frames = batch.frames * observed
    forecast(model, replace(batch, frames=frames, observed=observed), case.nodes)
    past, complete = model.calls[-1][0].past[0], batch.frames[batch.past[0]]
    low, high = complete[1, 7, 0], complete[4, 7, 0]
    torch.testing.assert_close(
        past[2:4, 7, 0], torch.stack([low + (high - low) / 3, low + (high - low) * 2 / 3])
    )
    torch.testing.assert_close(past[4:, 9, 1], complete[3, 9, 1].expand(2))
    for node in empty:
        observed = [j for j in np.flatnonzero(a[node]) if j not in empty]
        difference = past[:, node, 0] - past[:, observed, 0].mean(1)
        assert difference.abs().max() < 1e-12
    unchanged = [n for n in range(24) if n not in (7, 9, *empty)]
    torch.testing.assert_close(past[:, unchanged, :2], complete[:, unchanged])


def test_without_any_observation_the_inputs_are_the_mean() -> None:
    case, model = cubic_case("plane", "baseline.neighbours=3")
    batch = batch_at(case, [1.0, 2.0, 3.0, 4.0])
    observed = torch.zeros_like(batch.frames, dtype=torch.bool)
    forecast(model, replace(batch, frames=batch.frames * 0, observed=observed), case.nodes)
    assert not model.calls[-1][0].past[..., : model.channels].any()


def test_a_missing_value_has_no_influence() -> None:
    case, model = cubic_case("sphere")
    batch = with_gaps(batch_at(case, [1.0, 2.0, 3.0, 4.0]), 0.3)
    other = replace(batch, frames=torch.where(batch.observed, batch.frames, 77.0))
    assert torch.equal(forecast(model, batch, case.nodes), forecast(model, other, case.nodes))


def test_inputs_and_targets_have_their_calendar() -> None:
    case, model = cubic_case("sphere")
    batch = batch_at(case, [1.0, 2.0, 3.0, 4.0])
    forecast(model, batch, case.nodes)
    inputs = model.calls[-1][0]
    assert model.calendar_width == 2  # of the day: five days contain no season

    def circle(features: Tensor) -> Tensor:
        return torch.cat([(2 * torch.pi * features).sin(), (2 * torch.pi * features).cos()], -1)

    close = {"rtol": 0, "atol": 5e-6}  # the calendar of a batch is in float32
    torch.testing.assert_close(inputs.calendar, circle(batch.future_time), **close)
    past = circle(batch.frame_time[batch.past])[:, :, None].expand(-1, -1, 24, -1)
    torch.testing.assert_close(inputs.past[..., 2:4], past, **close)


def test_inputs_have_place_and_sun() -> None:
    """The sun at all leads with every step of the past, and at its lead with each lead."""
    case, model = cubic_case("sphere")
    batch = batch_at(case, [1.0, 2.0, 3.0, 4.0])
    forecast(model, batch, case.nodes)
    inputs, sites = model.calls[-1][0], model.node_graph(case.nodes).sites
    sun = sun_at_leads(batch, sites, model.time_spec)
    assert sun is not None and model.axes is not None
    width = model.axes.width
    for window, step, node in ((0, 0, 0), (1, 3, 7)):
        row = inputs.past[window, step, node, 4:]
        torch.testing.assert_close(row[:width].double(), sites.place[node].double())
        torch.testing.assert_close(row[width:].double(), sun[node, window].double())
        ahead = inputs.ahead()[window, step, node]
        assert torch.equal(ahead[:2], inputs.calendar[window, step])
        torch.testing.assert_close(ahead[-1].double(), sun[node, window, step + 1].double())
    assert inputs.past.shape[-1] == model.input_width
    assert inputs.ahead().shape[-1] == model.ahead_width
    plain = cubic_case("sphere", "baseline.extras=false")[1]
    forecast(plain, batch, case.nodes)
    assert plain.calls[-1][0].past.shape[-1] == plain.input_width == 4


def supervision_of(case: Case) -> Supervision:
    target, mask = case.windows.targets(np.array([10, 40]))
    return Supervision(target.double(), mask, 0.5, torch.rand(4))


def test_targets_are_used_at_the_trained_leads_only() -> None:
    case, model = cubic_case()
    graphs, supervision = model.graphs(case.nodes), supervision_of(case)
    for leads, expected in (([1.0, 2, 3, 4], supervision), ([1.0, 2, 3.5, 4], None)):
        model(batch_at(case, leads), graphs, supervision)
        assert model.calls[-1][1] is expected
    fewer = Supervision(
        supervision.target[:, :2],
        supervision.mask[:, :2],
        0.5,
        supervision.teacher_forcing_draws[:2],
    )
    model(batch_at(case, [1.0, 2.0]), graphs, fewer)
    assert model.calls[-1][1] is None


def test_on_a_base_the_targets_are_corrections_of_the_base() -> None:
    """Base plus scaled correction is the truth."""
    case, model = cubic_case("sphere", "baseline.base=ridge")
    graphs, supervision = model.graphs(case.nodes), supervision_of(case)
    batch = batch_at(case, [1.0, 2.0, 3.0, 4.0])
    model(batch, graphs, supervision)
    given = model.calls[-1][1]
    assert given is not None and model.base is not None
    regressors = model.base.regressors(batch, graphs.queries.stencil)
    scale = model.base.residual_scale(regressors, batch)
    total = model.base.forecast(regressors, batch) + scale * given.target
    torch.testing.assert_close(total, supervision.target, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("base", ["ridge", "persistence"])
@pytest.mark.parametrize("name", ["gcgru", "tgcn", "dcrnn"])
def test_without_a_correction_a_model_on_a_base_is_the_base(name: str, base: str) -> None:
    case = Case.of(small_field("sphere", 2), f"model={name}", f"baseline.base={base}")
    model, batch = case.fitted, with_gaps(case.windows.inputs(np.arange(3)), 0.2)
    queries = case.nodes.joined(small_points("sphere", 4, seed=5))
    graphs = model.graphs(case.nodes, queries)
    with torch.no_grad():
        expected = model.base(batch, graphs.queries.stencil)
        torch.testing.assert_close(model(batch, graphs).forecast, expected)


def test_a_model_with_weights_per_node_refuses_other_nodes() -> None:
    case, model = cubic_case()
    model.inductive = False
    model.node_graph(case.nodes)
    with pytest.raises(UsageError, match="Cubic has weights for each of its 24 training points"):
        model.node_graph(case.nodes.take(np.arange(24)[::-1].copy()))


@pytest.mark.parametrize(
    ("model", "setting"),
    [("tgcn", "order=2"), ("clcrn", "legacy=true"), ("stgcn", "embedding=3")],
)
def test_an_unsupported_setting_is_refused(model: str, setting: str) -> None:
    config = load_config(settings=[f"model={model}", f"baseline.{setting}"])
    time_spec = TimeSpec(step=10**9, past=4, horizon=3, calendar=False)
    with pytest.raises(UsageError, match=f"no use for baseline.{setting.partition('=')[0]}"):
        build_model(config, time_spec, 1, small_points("plane", 20))


def test_only_the_last_steps_of_the_past_are_used() -> None:
    """Values before the last `baseline.past` steps have no influence."""
    points, past = small_points("plane", 20), 9
    time_spec = TimeSpec(step=10**9, past=past, horizon=3, calendar=False)
    config = load_config(settings=["model=gcgru", "baseline.past=4", "baseline.hidden=4"])
    model = perturb(build_model(config, time_spec, 1, points))
    graphs = model.graphs(points)
    values = torch.randn(past, 20, 1, generator=torch.Generator().manual_seed(0))
    results = []
    for early in (0.0, 5.0):
        frames = torch.cat([torch.full((5, 20, 1), early), values[5:]])
        observed = torch.ones_like(frames, dtype=torch.bool)
        times = np.arange(past + 3) * 10**9
        batch = make_batch(
            lambda index, f=frames, s=observed: (f[index], s[index]),
            times,
            np.arange(past)[None],
            times[None, past:],
            time_spec,
        )
        results.append(model(batch, graphs).forecast)
    assert torch.equal(*results)
    assert not torch.equal(results[0][:, :1], results[0][:, 1:2])
