"""The ODE decoder against a hand-written integration of its own right-hand side."""

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
from stonet.operators import decoder as decoder_module
from stonet.operators.branch import Links
from stonet.operators.decoder import DecoderInput, OdeDecoder, Sizes, build_decoder

pytest.importorskip("torchdiffeq")

BATCH, PAST, HORIZON, NODES, LATENT = 2, 3, 4, 8, 3
CPU, F64 = torch.device("cpu"), torch.float64
RADIUS = 0.45
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # the steps of both integrations are finite


def scattered(number: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(queries: Points, nodes: Points, describe: str = "sharp") -> Links:
    def one(there: Points) -> tuple:
        near = within_radius(there, nodes, RADIUS, describe)
        own = torch.from_numpy(own_nodes(there, nodes))
        return torch.from_numpy(there.embedded.copy()), near, own

    return Links(*one(queries), Links(*one(nodes))).to(CPU, F64)


def question(present: Tensor | None = None, lead: Tensor | None = None) -> DecoderInput:
    lead = torch.arange(1, HORIZON + 1, dtype=F64)[None] if lead is None else lead
    return DecoderInput(
        latent=torch.randn(BATCH, PAST, NODES, LATENT, dtype=F64),
        present=present,
        lag=torch.arange(1 - PAST, 1, dtype=F64).expand(len(lead), -1),
        lead=lead,
        calendar=torch.zeros(BATCH, lead.shape[1], 0, dtype=F64),
    )


def make(**settings) -> OdeDecoder:
    config = ModelConfig(latent=LATENT, hidden=4, decoder="ode", **settings)
    return randomise(build_decoder(Sizes(2, 0, 5, PAST, HORIZON, NODES), config))


def integrate(decoder: OdeDecoder, state: Tensor, links: Links, known: Tensor | None, end: float):
    """Classical Runge-Kutta, 30 steps, of dv/dt = A sigma(W v + K v) + b."""
    nodes = links.among_nodes
    place = nodes.position[None]

    def rate(v: Tensor) -> Tensor:
        moved = decoder.operator(v, v, place, place, nodes.neighbours, known)
        return moved @ decoder.rate.weight.T + decoder.rate.bias

    h = end / decoder.horizon / 30
    for _ in range(30):
        a = rate(state)
        b = rate(state + h / 2 * a)
        c = rate(state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + rate(state + h * c))
    return state


@pytest.fixture
def exact_solver(monkeypatch):
    monkeypatch.setattr(decoder_module, "TOLERANCE", 1e-8)


@torch.no_grad()
def test_the_rate_is_a_kernel_operator_of_places_and_nothing_else():
    """The first step from a state: dv/dt = A sigma(W v + mean of kappa(x, x_j) v_j) + b."""
    nodes = scattered(NODES)
    decoder, links = make(), connect(nodes, nodes)
    asked = question(lead=torch.tensor([[1e-6]], dtype=F64))
    start, place = asked.latent[:, -1], links.position[None]
    edges = links.among_nodes.neighbours
    moved = kernel_operator(decoder.operator, start, start, place, place, edges, None)
    rate = moved @ decoder.rate.weight.T + decoder.rate.bias
    found = (decoder(asked, links)[:, 0] - start) * HORIZON / 1e-6
    torch.testing.assert_close(found, rate, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_solver_is_exact_enough(monkeypatch):
    nodes = scattered(NODES)
    decoder, asked, links = make(), question(), connect(nodes, nodes)
    answer = decoder(asked, links)
    monkeypatch.setattr(decoder_module, "TOLERANCE", 1e-8)
    exact = decoder(asked, links)
    assert 0 < (answer - exact).abs().max() < 0.005 * exact.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["full", "diag"])
def test_is_the_integral_of_its_rate(kernel, exact_solver):
    nodes = scattered(NODES)
    decoder, asked, links = make(kernel=kernel), question(), connect(nodes, nodes)
    answer = decoder(asked, links)
    for z, end in ((1, 2.0), (3, 4.0)):
        exact = integrate(decoder, asked.latent[:, -1], links, None, end)
        assert (exact - asked.latent[:, -1]).abs().max() > 0.1  # something has happened
        torch.testing.assert_close(answer[:, z], exact, **CLOSE)


@torch.no_grad()
def test_a_node_reads_its_own_state_and_another_point_the_mean_of_its_neighbours():
    nodes, elsewhere = scattered(NODES), scattered(3, seed=1)
    decoder, asked = make(), question()
    at_nodes = decoder(asked, connect(nodes, nodes))
    links = connect(elsewhere.joined(nodes.take(np.array([5, 2]))), nodes)
    answer = decoder(asked, links)
    torch.testing.assert_close(answer[:, :, 3:], at_nodes[:, :, [5, 2]])
    target, source = links.neighbours.edges()
    for q in range(3):
        mean = at_nodes[:, :, source[target == q]].mean(2)
        torch.testing.assert_close(answer[:, :, q], mean)


@torch.no_grad()
def test_each_node_starts_from_its_latest_value():
    nodes = scattered(NODES)
    present = torch.ones(BATCH, PAST, NODES, dtype=torch.bool)
    present[0, 2, 1] = present[1, 1:, 4] = False
    asked, decoder, links = question(present), make(), connect(nodes, nodes)
    latest = asked.latent.clone()
    latest[0, 2, 1], latest[1, 2, 4] = latest[0, 1, 1], latest[1, 0, 4]
    filled = decoder(replace(asked, latent=latest, present=None), links)
    torch.testing.assert_close(decoder(asked, links), filled)


@torch.no_grad()
def test_a_node_without_any_value_is_left_out(exact_solver):
    nodes = scattered(NODES)
    present = torch.rand(BATCH, PAST, NODES) < 0.7
    present[:, -1], present[:, :, 3] = True, False
    decoder, asked = make(), question(present)
    links = connect(scattered(4, seed=1), nodes)
    answer = decoder(asked, links)
    spoilt = asked.latent.clone()
    spoilt[~present] = 1e30
    assert torch.equal(decoder(replace(asked, latent=spoilt), links), answer)

    target, source = links.neighbours.edges()
    known = present.any(1)
    exact = integrate(decoder, asked.latent[:, -1] * known[..., None], links, known, 4.0)
    for q in range(4):
        near = [j for j in source[target == q].tolist() if j != 3]
        torch.testing.assert_close(answer[:, -1, q], exact[:, near].mean(1), **CLOSE)


@torch.no_grad()
def test_queries_and_times_do_not_mind_one_another():
    nodes, queries = scattered(NODES), scattered(4, seed=1)
    decoder, asked = make(), question()
    together = decoder(asked, connect(queries, nodes))
    for q in range(4):
        alone = decoder(asked, connect(queries.take(np.array([q])), nodes))
        torch.testing.assert_close(alone[:, :, 0], together[:, :, q])
    for z in range(HORIZON):
        alone = decoder(asked.at(torch.tensor([z])), connect(queries, nodes))
        torch.testing.assert_close(alone[:, 0], together[:, z])


@torch.no_grad()
def test_samples_may_ask_at_times_of_their_own_in_any_order(exact_solver):
    nodes = scattered(NODES)
    lead = torch.tensor([[1.0, 3.5, 0.0], [2.2, 1.0, 4.4]], dtype=F64)
    asked, decoder, links = question(lead=lead), make(), connect(nodes, nodes)
    answer = decoder(asked, links)
    torch.testing.assert_close(answer[0, 2], asked.latent[0, -1])  # lead 0: the state itself
    for b, z in np.ndindex(2, 3):
        exact = integrate(decoder, asked.latent[:, -1], links, None, float(lead[b, z]))
        torch.testing.assert_close(answer[b, z], exact[b], **CLOSE)


@pytest.mark.parametrize("kernel", ["full", "diag"])
@pytest.mark.parametrize("describe", ["sharp", "offset"])
def test_every_parameter_gets_a_gradient(kernel, describe):
    nodes = scattered(NODES)
    decoder = make(kernel=kernel)
    links = connect(scattered(4, seed=1), nodes, describe)
    decoder(question(), links).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        if parameter.numel():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_terms_are_refused():
    with pytest.raises(UsageError, match="one state through the whole horizon"):
        make(terms=2)
