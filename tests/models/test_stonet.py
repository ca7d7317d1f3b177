"""STONet: any points, any times, new points, missing values; equal to its formula."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.contracts import Case, as_float64, forecast, small_field, small_points, small_task

from stonet.data.batch import Batch, make_batch
from stonet.data.geometry import Points
from stonet.models.stonet import STONetwork
from stonet.training.trained_model import TrainedModel

VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "last value": ("network.anchor=last",),
    "daily cycle": ("data.past=24",),
    "linear anchor": ("network.anchor=linear",),
    "no encoder": ("network.layers=0",),
    "two layers, one level": ("network.layers=2", "graph.levels=1"),
    "no sun": ("network.sun=false",),
}
PLACES = {"plane": ("plane", 1), "sphere, two channels": ("sphere", 2)}


@cache
def case_of(place: str, *settings: str) -> Case:
    """One case for all tests; none changes its model."""
    frames = 320 if "data.past=24" in settings else 120
    return Case.of(small_field(*PLACES[place], frames=frames), *settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_query_at_a_node_has_the_forecast_of_the_node(variant: str) -> None:
    """Alone or with other queries, with or without history."""
    case = case_of("sphere, two channels", *VARIANTS[variant])
    model, batch, nodes = case.model(), case.batch(2), case.nodes
    every = forecast(model, batch, nodes)
    chosen = np.array([0, 17])  # node 0 has no history
    mixed = nodes.take(chosen).joined(small_points(nodes.kind, 2, seed=9))
    together = forecast(model, batch, nodes, mixed)
    case.assert_equal(together[:, :, :2], every[:, :, chosen])
    alone = [forecast(model, batch, nodes, mixed.take(np.array([i]))) for i in range(len(mixed))]
    case.assert_equal(torch.cat(alone, dim=2), together)


def without_correction(model: STONetwork) -> STONetwork:
    """The model with u = 0 in the decoder."""
    with torch.no_grad():
        for name, parameter in model.decoder.named_parameters():
            if name == "bias" or name.startswith(("trunk_lead", "trunk_place", "trunk_time")):
                parameter.zero_()
    return model


@pytest.mark.parametrize("place", PLACES)
def test_without_a_correction_the_forecast_is_the_anchor(place: str) -> None:
    case = case_of(place, "network.anchor=linear")
    model, batch = without_correction(case.model()), case.batch(3)
    graphs = model.graphs(case.nodes)
    linear = model.base(batch, graphs.queries.stencil)
    torch.testing.assert_close(model(batch, graphs).forecast, linear, rtol=1e-6, atol=1e-6)
    case = case_of(place, "network.anchor=last")
    model, batch = without_correction(case.model()), case.batch(3, missing=0.0)
    newest = batch.frames[batch.past[:, -1], None].expand(-1, 4, -1, -1)
    case.assert_equal(forecast(model, batch, case.nodes), newest)


@pytest.mark.parametrize("variant", VARIANTS)
def test_at_lead_zero_the_forecast_is_the_newest_value(variant: str) -> None:
    """Where it was observed, whatever the network has learned; the linear one up to its ridge."""
    case = case_of("sphere, two channels", *VARIANTS[variant])
    batch = replace(window(case, np.array([0])), lead=torch.zeros(1, 1).double())
    newest = batch.frames[batch.past[:, -1], None]
    found = forecast(case.model(), batch, case.nodes)
    close = 5e-3 if variant == "linear anchor" else 1e-5
    torch.testing.assert_close(found, newest, rtol=0, atol=close)


@pytest.mark.parametrize("variant", VARIANTS)
def test_leads_do_not_influence_each_other(variant: str) -> None:
    case = case_of("sphere, two channels", *VARIANTS[variant])
    model, step = case.model(), case.windows.time_spec.step
    leads = np.array([0.25, 1.0, 2.0, 3.9, 4.8])
    future = np.rint(leads * step).astype(np.int64)
    together = forecast(model, window(case, future), case.nodes)
    alone = [
        forecast(model, window(case, future[i : i + 1]), case.nodes) for i in range(len(leads))
    ]
    case.assert_equal(torch.cat(alone, dim=1), together)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_forecast_is_continuous_in_time(variant: str) -> None:
    """Within a term, across trained leads, and beyond the horizon."""
    case = case_of("sphere, two channels", *VARIANTS[variant])
    model, step = case.model(), case.windows.time_spec.step
    for lead in (0.5, 1.0, 3.0, 4.0, 4.7):
        around = np.rint((lead + np.array([-1e-4, 0, 1e-4])) * step).astype(np.int64)
        found = forecast(model, window(case, around), case.nodes)
        assert (found - found[:, 1:2]).abs().max() < 0.02


def window(case: Case, leads: np.ndarray) -> Batch:
    """One window without gaps at these leads in nanoseconds."""
    windows, time_spec = case.windows, case.windows.time_spec
    past = np.arange(30, 30 + time_spec.past)[None]
    future = windows.times[past[:, -1], None] + leads
    return as_float64(make_batch(windows.at, windows.times, past, future, time_spec))


@pytest.mark.parametrize("variant", VARIANTS)
def test_windows_with_different_times_may_share_a_batch(variant: str) -> None:
    case = case_of("sphere, two channels", *VARIANTS[variant])
    made, time_spec = case.windows, case.windows.time_spec
    jitter = np.random.default_rng(4).uniform(-0.3, 0.3, len(made.times))
    times = made.times + np.rint(jitter * time_spec.step).astype(np.int64)
    past = np.array([10, 40])[:, None] + np.arange(time_spec.past)
    leads = np.rint(np.array([[0.5, 2.2], [1.0, 3.9]]) * time_spec.step).astype(np.int64)

    def batch(rows: slice) -> Batch:
        future = times[past[rows, -1], None] + leads[rows]
        arguments = times, past[rows], future, time_spec
        return as_float64(make_batch(made.at, *arguments))

    model = case.model()
    together = forecast(model, batch(slice(None)), case.nodes)
    alone = torch.cat([forecast(model, batch(slice(i, i + 1)), case.nodes) for i in range(2)])
    case.assert_equal(together, alone)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_point_beyond_every_radius_has_no_influence(variant: str) -> None:
    case = case_of("plane", *VARIANTS[variant])
    model, batch = case.model(), case.batch(2)
    far = case.nodes.joined(Points(np.array([[300.0, 300.0]]), names=("far",)))
    value = torch.full_like(batch.frames[:, :1], 50.0)
    present = torch.ones_like(value, dtype=torch.bool)
    wider = replace(
        batch,
        frames=torch.cat([batch.frames, value], dim=1),
        observed=torch.cat([batch.observed, present], dim=1),
    )
    case.assert_equal(forecast(model, wider, far, case.nodes), forecast(model, batch, case.nodes))


@pytest.mark.parametrize("variant", VARIANTS)
def test_new_points_count_by_their_history(variant: str) -> None:
    """New points with history change the forecast; new points without history do not."""
    case = case_of("plane", *VARIANTS[variant])
    model, batch, new = case.model(), case.batch(2), small_points("plane", 5, seed=8)
    nodes = case.nodes.joined(new)
    level = model.node_graph(nodes).multipole.members
    assert set(range(24, 29)) <= set(level[0].tolist())
    frames = torch.cat([batch.frames, batch.frames[:, 5:10]], dim=1)

    def joined(history: bool) -> torch.Tensor:
        more = torch.full_like(batch.observed[:, :5], history)
        observed = torch.cat([batch.observed, more], dim=1)
        return forecast(model, replace(batch, frames=frames * observed, observed=observed), nodes)

    without = forecast(model, batch, case.nodes, nodes)
    with_history = joined(history=True)
    assert with_history.isfinite().all() and not torch.allclose(with_history, without)
    case.assert_equal(joined(history=False), without)


@pytest.mark.parametrize("place", PLACES)
def test_entirely_new_nodes_are_partitioned_into_levels(place: str) -> None:
    case = case_of(place)
    model, nodes = case.model(), small_points(case.nodes.kind, 20, seed=11)
    members = model.node_graph(nodes).multipole.members
    assert [len(m) for m in members] == [10, 10]
    batch = case.batch(2)
    fewer = replace(batch, frames=batch.frames[:, :20], observed=batch.observed[:, :20])
    assert forecast(model, fewer, nodes, case.nodes).isfinite().all()
    alone = replace(batch, frames=batch.frames[:, 5:6], observed=batch.observed[:, 5:6])
    assert forecast(model, alone, nodes.take(np.array([0])), case.nodes).isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_number_of_parameters_does_not_depend_on_the_number_of_points(variant: str) -> None:
    def size(nodes: int) -> int:
        frames = 320 if "data.past=24" in VARIANTS[variant] else 120
        task = small_task(small_field(nodes=nodes, frames=frames), *VARIANTS[variant])
        return sum(p.numel() for p in TrainedModel.untrained(task).model.parameters())

    assert size(16) == size(30)


def test_few_points_have_fewer_levels() -> None:
    for count, levels in ((1, 1), (2, 1), (3, 1), (4, 2), (24, 2)):
        task = small_task(small_field(nodes=count))
        assert task.config.graph.levels == levels
        graph = TrainedModel.untrained(task).model.node_graph(task.nodes)
        assert len(graph.multipole.members) == levels


def test_the_forecast_converges_with_more_points() -> None:
    """Means over neighbours become integrals: each halving of the spacing changes less."""
    radii = ("graph.levels=1", "graph.within_radii=[0.3]", "graph.decoder_radius=0.3")
    case = case_of("plane", *radii)
    time_spec = case.windows.time_spec
    model, batch = case.model(), window(case, time_spec.step * np.arange(1, 3))
    queries = small_points("plane", 20, seed=5)

    def on_grid(side: int) -> torch.Tensor:
        x, y = np.meshgrid(*[(np.arange(side) + 0.5) / side] * 2)
        nodes = Points(np.stack([x.ravel(), y.ravel()], axis=1))
        t = torch.arange(time_spec.past).double()[:, None, None]
        place = torch.tensor(nodes.coordinates)[None, :, :1]
        return forecast(
            model, replace(batch, frames=torch.sin(4 * place - 0.5 * t)), nodes, queries
        )

    results = [on_grid(side) for side in (5, 10, 20, 40)]
    changes = [float((b - a).abs().mean()) for a, b in pairwise(results)]
    assert changes[0] > 1.2 * changes[1] > 1.2**2 * changes[2] > 0, changes


@pytest.mark.parametrize(("noise", "anchor"), [(0.0, {"network.anchor": "linear"}), (0.3, {})])
def test_smooth_fields_suggest_the_linear_forecast_as_anchor(
    noise: float, anchor: dict[str, str]
) -> None:
    field = small_field("plane", nodes=12, frames=200)
    wave = np.sin(0.3 * np.arange(200))[:, None] * np.arange(1, 13)
    wave = wave + np.cos(0.11 * np.arange(200))[:, None]
    drawn = np.random.default_rng(0).normal(size=wave.shape)
    values = (wave + noise * wave.std() * drawn).astype(np.float32)[..., None]
    task = small_task(replace(field, values=values, mask=None))
    model = TrainedModel.untrained(task).model
    assert model.suggested(task.windows("train"), task.nodes) == anchor
