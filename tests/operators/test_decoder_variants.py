"""The ODE decoder against a Runge-Kutta integration of its right-hand side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.references import aggregate, kernel_operator, mlp, randomise, time_embedding
from torch import Tensor

from stonet.config import PaperConfig
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
RATES = (0.04,)  # of the calendar, by step
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
        calendar=torch.zeros(BATCH, lead.shape[1], 1, dtype=F64),
        issue=torch.tensor([[0.1], [0.7]], dtype=F64),
    )


def make(tolerance: float | None = None, **settings) -> OdeDecoder:
    sizes = {"latent": LATENT, "hidden": 4, "parametric": 2, "frequencies": 3, "terms": 1}
    config = PaperConfig(decoder="ode", **sizes | settings)
    decoder = randomise(build_decoder(Sizes(2, 1, 5, PAST, HORIZON, NODES, RATES), config))
    if tolerance is not None:
        decoder.tolerance = tolerance
    return decoder


def initial(decoder: OdeDecoder, inputs: DecoderInput, graph: DecoderGraph) -> Tensor:
    """AGG over all inputs at the issue time, at every node."""
    now = replace(
        inputs,
        lead=torch.zeros(1, 1, dtype=F64),
        lag=inputs.lag[:1],
        calendar=inputs.calendar[:, :1],
    )
    nodes = graph.among_nodes
    values = [aggregate(decoder.start, now, nodes, b, 0, q) for b, q in np.ndindex(BATCH, NODES)]
    return torch.stack(values).view(BATCH, NODES, LATENT)


def features(decoder: OdeDecoder, inputs: DecoderInput, place: Tensor, tau: float) -> Tensor:
    """[a_t(x), x] at a time in horizons, sample by sample and node by node."""
    rows = []
    for issue in inputs.issue:
        time = torch.cat([issue + tau * HORIZON * RATES[0], torch.tensor([tau], dtype=F64)])
        embedded = time_embedding(decoder.parametric.embedding, time)
        a = [mlp(decoder.parametric.network, torch.cat([x, embedded])) for x in place]
        rows.append(torch.cat([torch.stack(a), place], dim=1))
    return torch.stack(rows)


def integrate(
    decoder: OdeDecoder,
    inputs: DecoderInput,
    graph: DecoderGraph,
    end: float,
    present: Tensor | None = None,
) -> Tensor:
    """Classical Runge-Kutta, 30 steps, of dv/dt = A sigma(W v + K_{a_t} v) + b from AGG."""
    nodes, state = graph.among_nodes, initial(decoder, inputs, graph)
    h = end / HORIZON / 30

    def rate(tau: float, v: Tensor) -> Tensor:
        a = features(decoder, inputs, nodes.position, tau)
        moved = decoder.operator(v, v, a, a, nodes.neighbours, present)
        return moved @ decoder.rate.weight.T + decoder.rate.bias

    for step in range(30):
        tau = step * h
        a = rate(tau, state)
        b = rate(tau + h / 2, state + h / 2 * a)
        c = rate(tau + h / 2, state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + rate(tau + h, state + h * c))
    return state


@torch.no_grad()
def test_it_starts_from_all_inputs() -> None:
    nodes = scattered(NODES)
    decoder, graph = make(), connect(nodes, nodes)
    inputs = decoder_input(lead=torch.zeros(1, 1, dtype=F64))
    expected = initial(decoder, inputs, graph)
    torch.testing.assert_close(decoder(inputs, graph)[:, 0], expected)
    for s in range(PAST):
        changed = inputs.latent.clone()
        changed[:, s] += 1
        found = decoder(replace(inputs, latent=changed), graph)[:, 0]
        assert (found - expected).abs().min() > 1e-6


@torch.no_grad()
def test_the_rate_is_a_kernel_operator_of_the_parametric_function():
    """The first step: dv/dt = A sigma(W v + mean of kappa(a, a_j, x, x_j) v_j) + b."""
    nodes = scattered(NODES)
    decoder, graph = make(), connect(nodes, nodes)
    inputs = decoder_input(lead=torch.tensor([[1e-6]], dtype=F64))
    start, edges = initial(decoder, inputs, graph), graph.among_nodes.neighbours
    a = features(decoder, inputs, graph.position, 0.0)
    moved = kernel_operator(decoder.operator, start, start, a, a, edges, None)
    rate = moved @ decoder.rate.weight.T + decoder.rate.bias
    found = (decoder(inputs, graph)[:, 0] - start) * HORIZON / 1e-6
    torch.testing.assert_close(found, rate, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("shifted", ["issue", "rates"])
def test_the_rate_knows_the_time(shifted):
    nodes = scattered(NODES)
    decoder, graph, inputs = make(), connect(nodes, nodes), decoder_input()
    before = decoder(inputs, graph)
    if shifted == "rates":
        decoder.rates = (0.2,)
    else:
        inputs = replace(inputs, issue=inputs.issue + 0.2)
    assert (decoder(inputs, graph) - before).abs().max() > 1e-3


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
        exact = integrate(decoder, inputs, graph, end)
        assert (exact - initial(decoder, inputs, graph)).abs().max() > 0.1  # it has changed
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
    exact = integrate(decoder, inputs, graph, 4.0, present)
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
    start = initial(decoder, inputs, graph)
    torch.testing.assert_close(result[0, 2], start[0])  # lead 0: the state itself
    for b, z in np.ndindex(2, 3):
        exact = integrate(decoder, inputs, graph, float(lead[b, z]))
        torch.testing.assert_close(result[b, z], exact[b], **CLOSE)


@pytest.mark.parametrize("kernel", ["full", "diag"])
def test_every_parameter_gets_a_gradient(kernel):
    nodes = scattered(NODES)
    decoder = make(kernel=kernel)
    decoder(decoder_input(), connect(scattered(4, seed=1), nodes)).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        if parameter.numel():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_more_than_one_term_is_refused():
    with pytest.raises(UsageError, match=r"paper\.terms=1"):
        make(terms=2)
