"""The operator frame by frame: its basis, and branch x trunk against loops over points."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.contracts import Case, as_float64, forecast, small_field, small_points, small_task
from helpers.references import assert_same, balls, encoder, mlp, time_embedding
from torch import Tensor
from torch.nn.functional import gelu

from stonet.config import load_config
from stonet.models.contract import CHECKS
from stonet.models.forecaster import Graphs, narrow
from stonet.models.operator import OperatorNetwork, rounding_variance
from stonet.models.paper import PaperNodes, PaperQueries
from stonet.operators.branch_trunk import hat_functions
from stonet.operators.modal import whitened_modes
from stonet.training.trained_model import TrainedModel

MODEL = "model=stonet-operator"
VARIANTS = {"default": (), "terms": ("operator.terms=2",), "lags": ("operator.basis=lags",)}
PLACES = {"plane": ("plane", 1), "sphere": ("sphere", 2)}


@cache
def case(kind: str, variant: str = "default") -> Case:
    return Case.of(small_field(*PLACES[kind]), MODEL, *VARIANTS[variant])


def test_modes_are_white_and_small_ones_are_left_out() -> None:
    generator = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator))
    variance = torch.tensor([4.0, 1.0, 1e-3, 1e-6, 1e-9, 1e-13], dtype=torch.float64)
    covariance = basis * variance @ basis.T
    for noise, kept in ((0.0, 5), (1e-7, 4), (2e-4, 3), (1e3, 1)):
        modes = whitened_modes(covariance, noise)
        expected = torch.diag((torch.arange(6) < kept).double())
        torch.testing.assert_close(modes.T @ covariance @ modes, expected, atol=1e-5, rtol=0)
        assert (modes[:, kept:] == 0).all()


def test_the_noise_of_rounded_values_is_that_of_their_step() -> None:
    values = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    assert rounding_variance((values / 0.25).round() * 0.25) == pytest.approx(0.25**2 / 12)
    assert rounding_variance(values) < 1e-9
    assert rounding_variance(torch.ones(5, 2)) == 0


@pytest.mark.parametrize("kind", PLACES)
def test_the_modes_of_the_training_past_have_unit_variance(kind: str) -> None:
    made = case(kind)
    model, windows = made.fitted, made.windows
    assert isinstance(model, OperatorNetwork)
    batch = windows.inputs(np.arange(len(windows)))
    values = batch.frames[batch.past].double()
    own = (values.transpose(1, 2).flatten(2) - model.history_mean) @ model.history_modes
    found = torch.cov(own.flatten(0, 1).T, correction=0)
    kept = (model.history_modes != 0).any(0).double()
    assert kept.sum() > 1
    torch.testing.assert_close(found, torch.diag(kept), atol=1e-6, rtol=0)
    target, _ = windows.targets(np.arange(len(windows)))
    change = (target.double() - values[:, -1:]).abs().mean((0, 2))
    torch.testing.assert_close(model.scale.double(), 1.25 * change, rtol=1e-5, atol=1e-6)


def test_hats_are_linear_between_the_leads() -> None:
    lead = torch.tensor([[0.0, 0.5, 1.0, 2.25, 3.0, 4.5]])
    expected = [[0, 0, 0], [0.5, 0, 0], [1, 0, 0], [0, 0.75, 0.25], [0, 0, 1], [0, 0, 1]]
    assert hat_functions(lead, 3)[0].tolist() == expected


@pytest.mark.parametrize("kind", PLACES)
def test_the_forecast_is_the_formula(kind: str) -> None:
    """u(x, t_0) + s (P' C (h tau) + c) with sums over neighbours, past times and modes."""
    made = case(kind)
    model = made.model()
    assert isinstance(model, OperatorNetwork)
    batch = as_float64(made.windows.inputs(np.array([5, 9])))
    graphs = model.graphs(made.nodes)
    nodes, queries = narrow(graphs.nodes, PaperNodes), narrow(graphs.queries, PaperQueries)
    lifted = batch.frames @ model.lift.weight.T + model.lift.bias
    arguments = batch.frame_time, nodes.position, None, nodes.multipole
    latent = encoder(model.encoder, lifted, *arguments)
    near, result = balls(queries.decoder.neighbours), []
    for b in range(2):
        values, v = batch.frames[batch.past[b]], latent[batch.past[b]]
        h = [branch(model, v, values, near[q], q) for q in range(len(near))]
        for lead in range(1, model.time_spec.horizon + 1):
            calendar = batch.future_time[b, lead - 1]
            for q in range(len(near)):
                tau = trunk(model, nodes.position[q], lead, calendar)
                change = model.project(model.decoder.map.weight @ (h[q] * tau))
                scale, shift = model.scale[lead - 1], model.shift[lead - 1]
                result.append(values[-1, q] + scale * (change + shift))
    found = model(batch, graphs).forecast
    wanted = [p for p in model.parameters() if p.numel()]
    assert_same(found, torch.stack(result).view_as(found), wanted)


def branch(model: OperatorNetwork, v: Tensor, values: Tensor, ball: list, q: int) -> Tensor:
    """h(x) at a node: xi(dx, t_s) = kappa(dx) sum_m psi_m(t_s) B_m."""
    part, past, latent = model.decoder.branch, len(v), v.shape[-1]
    b_matrices = part.time.weight.unflatten(1, (past, latent))  # out mode latent
    b = part.threshold
    for j, edge in ball:
        hidden = gelu(part.edge.T @ edge + part.offset)
        last = part.weight.unflatten(0, (latent, -1))  # latent hidden rank
        kappa = torch.einsum("dhr,h->rd", last, hidden) + part.bias.T
        for s in range(past):
            xi = kappa @ sum(model.basis[s, m] * b_matrices[:, m] for m in range(past))
            b = b + xi @ v[s, j] / len(ball)
    modes = [sum(model.basis[s, m] * v[s, q] for s in range(past)) for m in range(past)]
    z = (values[:, q].flatten() - model.history_mean) @ model.history_modes
    b = b + part.own.weight @ torch.cat([*modes, z])
    h = b + gelu(b)
    return h + gelu(model.decoder.mix.weight @ h + model.decoder.mix.bias)


def trunk(model: OperatorNetwork, x: Tensor, lead: int, calendar: Tensor) -> Tensor:
    """tau = Q hat + m1([x, hat]) + m2([hat, e_t])."""
    part = model.decoder.trunk
    hat = torch.eye(model.time_spec.horizon, dtype=x.dtype)[lead - 1]
    tau = part.leads.weight @ hat + mlp(part.place, torch.cat([x, hat]))
    if part.calendar is None:
        return tau
    return tau + mlp(part.calendar, torch.cat([hat, time_embedding(part.embedding, calendar)]))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "default"])
def test_every_variant_keeps_the_contract(check, variant: str) -> None:
    check(case("sphere", variant))


def test_a_query_at_a_node_has_the_forecast_of_the_node() -> None:
    made = case("sphere")
    model, batch, nodes = made.model(), made.batch(2), made.nodes
    every, chosen = forecast(model, batch, nodes), np.array([0, 17])  # node 0 has no history
    mixed = nodes.take(chosen).joined(small_points(nodes.kind, 2, seed=9))
    made.assert_equal(forecast(model, batch, nodes, mixed)[:, :, :2], every[:, :, chosen])


def test_at_lead_zero_it_is_the_newest_value() -> None:
    made = case("plane")
    model = made.model()
    batch = as_float64(made.windows.inputs(np.array([3])))
    lead = torch.zeros(1, 1, dtype=torch.float64)
    now = replace(batch, lead=lead, future_time=batch.future_time[:, :1])
    found = forecast(model, now, made.nodes)[:, 0]
    torch.testing.assert_close(found, batch.frames[batch.past[:, -1]])


@pytest.mark.parametrize("kind", PLACES)
def test_a_tile_gives_the_forecast_of_all_nodes(kind: str) -> None:
    made = case(kind)
    model, batch = made.model(), made.batch()
    every, adjacency = forecast(model, batch, made.nodes), model.adjacency(made.nodes)
    for core in np.array_split(np.random.default_rng(0).permutation(len(made.nodes)), 3):
        tile = model.tile(adjacency, core)
        part = torch.from_numpy(tile.nodes)
        cut = replace(batch, frames=batch.frames[:, part], observed=batch.observed[:, part])
        with torch.no_grad():
            found = model(cut, Graphs(tile.graphs.nodes, tile.graphs.queries)).forecast
        made.assert_equal(found, every[:, :, core])


def test_the_preset_brings_its_own_training() -> None:
    assert load_config("operator").model == "stonet-operator"
    task = small_task(small_field("plane"), MODEL, "train.batch=none", "train.consecutive=none")
    train = TrainedModel.untrained(task).config.train
    assert (train.lr, train.batch, train.consecutive) == (1e-2, 16, 4)
    assert OperatorNetwork.muon and OperatorNetwork.adam_only == ("decoder.trunk",)
