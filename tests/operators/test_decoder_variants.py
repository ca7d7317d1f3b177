"""The ODE decoder against a Runge-Kutta integration of its right-hand side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.references import kernel_operator, randomise
from torch import Tensor

from stonet.config import ModelConfig
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.graph.neighbours import own_nodes, within_radius
from stonet.operators.branch import DecoderGraph
from stonet.operators.decoder import DecoderInput, Sizes
from stonet.operators.decoder_variants import OdeDecoder, build_decoder

pytest.importorskip("torchdiffeq")

BATCH, PAST, HORIZON, NODES, LATENT = 2, 3, 4, 8, 3
CPU, F64 = torch.device("cpu"), torch.float64
RADIUS = 0.45
EXACT = 1e-8  # tolerance of the solver
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # the steps of both integrations are finite


def scattered(number: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(queries: Points, nodes: Points, describe: str = "sharp") -> DecoderGraph:
    def one(there: Points) -> tuple:
        near = within_radius(there, nodes, RADIUS, describe)
        own = torch.from_numpy(own_nodes(there, nodes))
        return torch.from_numpy(there.embedded.copy()), near, own

    return DecoderGraph(*one(queries), DecoderGraph(*one(nodes))).to(CPU, F64)


def decoder_input(present: Tensor | None = None, lead: Tensor | None = None) -> DecoderInput:
    lead = torch.arange(1, HORIZON + 1, dtype=F64)[None] if lead is None else lead
    return DecoderInput(
        latent=torch.randn(BATCH, PAST, NODES, LATENT, dtype=F64),
        present=present,
        lag=torch.arange(1 - PAST, 1, dtype=F64).expand(len(lead), -1),
        lead=lead,
        calendar=torch.zeros(BATCH, lead.shape[1], 0, dtype=F64),
    )


def make(tolerance: float | None = None, **settings) -> OdeDecoder:
    config = ModelConfig(latent=LATENT, hidden=4, decoder="ode", **settings)
    decoder = randomise(build_decoder(Sizes(2, 0, 5, PAST, HORIZON, NODES), config))
    if tolerance is not None:
        decoder.tolerance = tolerance
    return decoder


def integrate(
    decoder: OdeDecoder, state: Tensor, graph: DecoderGraph, present: Tensor | None, end: float
):
    """Classical Runge-Kutta, 30 steps, of dv/dt = A sigma(W v + K v) + b."""
    nodes = graph.among_nodes
    place = nodes.position[None]

    def rate(v: Tensor) -> Tensor:
        moved = decoder.operator(v, v, place, place, nodes.neighbours, present)
        return moved @ decoder.rate.weight.T + decoder.rate.bias

    h = end / decoder.horizon / 30
    for _ in range(30):
        a = rate(state)
        b = rate(state + h / 2 * a)
        c = rate(state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + rate(state + h * c))
    return state


@torch.no_grad()
def test_the_rate_is_a_kernel_operator_of_positions():
    """The first step from a state: dv/dt = A sigma(W v + mean of kappa(x, x_j) v_j) + b."""
    nodes = scattered(NODES)
    decoder, graph = make(), connect(nodes, nodes)
    inputs = decoder_input(lead=torch.tensor([[1e-6]], dtype=F64))
    start, place = inputs.latent[:, -1], graph.position[None]
    edges = graph.among_nodes.neighbours
    moved = kernel_operator(decoder.operator, start, start, place, place, edges, None)
    rate = moved @ decoder.rate.weight.T + decoder.rate.bias
    found = (decoder(inputs, graph)[:, 0] - start) * HORIZON / 1e-6
    torch.testing.assert_close(found, rate, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_default_tolerance_is_small_enough():
    nodes = scattered(NODES)
    decoder, inputs, graph = make(), decoder_input(), connect(nodes, nodes)
    result = decoder(inputs, graph)
    decoder.tolerance = EXACT
    exact = decoder(inputs, graph)
    assert 0 < (result - exact).abs().max() < 0.005 * exact.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["full", "diag"])
def test_equals_the_integral_of_its_rate(kernel):
    nodes = scattered(NODES)
    decoder, inputs, graph = make(EXACT, kernel=kernel), decoder_input(), connect(nodes, nodes)
    result = decoder(inputs, graph)
    for z, end in ((1, 2.0), (3, 4.0)):
        exact = integrate(decoder, inputs.latent[:, -1], graph, None, end)
        assert (exact - inputs.latent[:, -1]).abs().max() > 0.1  # the state has changed
        torch.testing.assert_close(result[:, z], exact, **CLOSE)


@torch.no_grad()
def test_a_node_reads_its_state_and_another_point_the_mean_of_its_neighbours():
    nodes, elsewhere = scattered(NODES), scattered(3, seed=1)
    decoder, inputs = make(), decoder_input()
    at_nodes = decoder(inputs, connect(nodes, nodes))
    graph = connect(elsewhere.joined(nodes.take(np.array([5, 2]))), nodes)
    result = decoder(inputs, graph)
    torch.testing.assert_close(result[:, :, 3:], at_nodes[:, :, [5, 2]])
    target, source = graph.neighbours.edges()
    for q in range(3):
        mean = at_nodes[:, :, source[target == q]].mean(2)
        torch.testing.assert_close(result[:, :, q], mean)


@torch.no_grad()
def test_each_node_starts_from_its_newest_value():
    nodes = scattered(NODES)
    present = torch.ones(BATCH, PAST, NODES, dtype=torch.bool)
    present[0, 2, 1] = present[1, 1:, 4] = False
    inputs, decoder, graph = decoder_input(present), make(), connect(nodes, nodes)
    latest = inputs.latent.clone()
    latest[0, 2, 1], latest[1, 2, 4] = latest[0, 1, 1], latest[1, 0, 4]
    filled = decoder(replace(inputs, latent=latest, present=None), graph)
    torch.testing.assert_close(decoder(inputs, graph), filled)


@torch.no_grad()
def test_a_node_without_any_value_has_no_influence():
    nodes = scattered(NODES)
    present = torch.rand(BATCH, PAST, NODES) < 0.7
    present[:, -1], present[:, :, 3] = True, False
    decoder, inputs = make(EXACT), decoder_input(present)
    graph = connect(scattered(4, seed=1), nodes)
    result = decoder(inputs, graph)
    spoilt = inputs.latent.clone()
    spoilt[~present] = 1e30
    assert torch.equal(decoder(replace(inputs, latent=spoilt), graph), result)

    target, source = graph.neighbours.edges()
    present = present.any(1)
    exact = integrate(decoder, inputs.latent[:, -1] * present[..., None], graph, present, 4.0)
    for q in range(4):
        near = [j for j in source[target == q].tolist() if j != 3]
        torch.testing.assert_close(result[:, -1, q], exact[:, near].mean(1), **CLOSE)


@torch.no_grad()
def test_queries_and_times_do_not_influence_each_other():
    nodes, queries = scattered(NODES), scattered(4, seed=1)
    decoder, inputs = make(), decoder_input()
    together = decoder(inputs, connect(queries, nodes))
    for q in range(4):
        alone = decoder(inputs, connect(queries.take(np.array([q])), nodes))
        torch.testing.assert_close(alone[:, :, 0], together[:, :, q])
    for z in range(HORIZON):
        alone = decoder(inputs.at(torch.tensor([z])), connect(queries, nodes))
        torch.testing.assert_close(alone[:, 0], together[:, z])


@torch.no_grad()
def test_samples_may_have_different_times_in_any_order():
    nodes = scattered(NODES)
    lead = torch.tensor([[1.0, 3.5, 0.0], [2.2, 1.0, 4.4]], dtype=F64)
    inputs, decoder, graph = decoder_input(lead=lead), make(EXACT), connect(nodes, nodes)
    result = decoder(inputs, graph)
    torch.testing.assert_close(result[0, 2], inputs.latent[0, -1])  # lead 0: the state itself
    for b, z in np.ndindex(2, 3):
        exact = integrate(decoder, inputs.latent[:, -1], graph, None, float(lead[b, z]))
        torch.testing.assert_close(result[b, z], exact[b], **CLOSE)


@pytest.mark.parametrize("kernel", ["full", "diag"])
@pytest.mark.parametrize("describe", ["sharp", "offset"])
def test_every_parameter_gets_a_gradient(kernel, describe):
    nodes = scattered(NODES)
    decoder = make(kernel=kernel)
    graph = connect(scattered(4, seed=1), nodes, describe)
    decoder(decoder_input(), graph).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        if parameter.numel():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_more_than_one_term_is_refused():
    with pytest.raises(UsageError, match=r"network\.terms=1"):
        make(terms=2)
