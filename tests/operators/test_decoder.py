"""The decoders against the formulas of the paper, one query and one time after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.references import assert_same, operator_decoder, randomise

from stonet.config import PaperConfig
from stonet.data.geometry import Points
from stonet.graph import neighbours as neighbours_module
from stonet.graph.neighbours import own_nodes, within_radius
from stonet.operators.branch import DecoderGraph
from stonet.operators.decoder import DecoderInput, Sizes
from stonet.operators.decoder_variants import TermDecoders, build_decoder

BATCH, PAST, HORIZON, NODES, LATENT = 2, 3, 4, 8, 3
CPU, F64 = torch.device("cpu"), torch.float64
VARIANTS = {
    "separable": {"separable": True, "indices": "merged", "trunk": "mlp"},
    "joint": {"indices": "merged", "trunk": "mlp"},
    "paper": {},
    "separate separable": {"separable": True, "trunk": "mlp"},
    "fixed": {"decoder": "fixed"},
    "fixed merged": {"decoder": "fixed", "indices": "merged"},
}
EVERY = pytest.mark.parametrize("variant", VARIANTS)
INDUCTIVE = pytest.mark.parametrize("variant", [v for v in VARIANTS if "fixed" not in v])


def scattered(number: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(queries: Points, nodes: Points, radius: float = 0.45) -> DecoderGraph:
    graph = DecoderGraph(
        torch.from_numpy(queries.embedded.copy()),
        within_radius(queries, nodes, radius),
        torch.from_numpy(own_nodes(queries, nodes)),
    )
    return graph.to(CPU, F64)


def decoder_input(missing: bool = False, rows: int = 1, calendar: int = 0, nodes: int = NODES):
    lag = torch.arange(1 - PAST, 1, dtype=F64).expand(rows, -1)
    lead = torch.arange(1, HORIZON + 1, dtype=F64).expand(rows, -1)
    if rows > 1:  # different times in every sample
        lag, lead = lag - 0.3 * torch.rand(rows, PAST), lead + 0.3 * torch.rand(rows, HORIZON)
    return DecoderInput(
        latent=torch.randn(BATCH, PAST, nodes, LATENT, dtype=F64, requires_grad=True),
        present=torch.rand(BATCH, PAST, nodes) < 0.6 if missing else None,
        lag=lag.to(F64),
        lead=lead.to(F64),
        calendar=torch.rand(BATCH, HORIZON, calendar, dtype=F64),
    )


def make(variant: str = "separable", calendar: int = 0, nodes: int = NODES, **settings):
    sizes = {"latent": LATENT, "rank": 4, "hidden": 3, "frequencies": 3, "terms": 1}
    config = PaperConfig(**(sizes | VARIANTS.get(variant, {}) | settings))
    return randomise(build_decoder(Sizes(2, calendar, 5, PAST, HORIZON, nodes), config))


@pytest.fixture
def graph() -> DecoderGraph:
    nodes = scattered(NODES)
    return connect(scattered(3, seed=1).joined(nodes.take(np.array([2]))), nodes)


@EVERY
@pytest.mark.parametrize("linear_path", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_equals_the_formula_of_the_paper(variant, linear_path, missing, graph):
    decoder, inputs = make(variant, linear_path=linear_path), decoder_input(missing)
    if missing:  # one query without any value around it
        around = graph.neighbours.edges()[1][graph.neighbours.edges()[0] == 0]
        inputs.present[0, :, around] = False
    wanted = [inputs.latent, *decoder.parameters()]
    assert_same(decoder(inputs, graph), operator_decoder(decoder, inputs, graph), wanted)


@EVERY
@pytest.mark.parametrize("calendar", [0, 2])
def test_samples_may_have_different_times(variant, calendar, graph):
    decoder, inputs = make(variant, calendar), decoder_input(True, rows=BATCH, calendar=calendar)
    wanted = [inputs.latent, *decoder.parameters()]
    assert_same(decoder(inputs, graph), operator_decoder(decoder, inputs, graph), wanted)


@INDUCTIVE
def test_the_workspace_changes_nothing(variant, monkeypatch):
    nodes = scattered(NODES)
    decoder, inputs, queries = make(variant), decoder_input(True), scattered(9, seed=1)
    expected = decoder(inputs, connect(queries, nodes))
    monkeypatch.setattr(neighbours_module, "BLOCK", 4)
    decoder.branch.workspace = 150
    assert_same(decoder(inputs, connect(queries, nodes)), expected, [inputs.latent])


@EVERY
def test_one_row_of_times_applies_to_every_sample(variant, graph):
    decoder, inputs = make(variant), decoder_input(True)
    repeated = replace(inputs, lag=inputs.lag.expand(BATCH, -1), lead=inputs.lead.expand(BATCH, -1))
    assert_same(decoder(repeated, graph), decoder(inputs, graph), [inputs.latent])


@EVERY
@pytest.mark.parametrize("terms", [1, 2])
def test_queries_and_times_do_not_influence_each_other(variant, terms):
    nodes, queries = scattered(NODES), scattered(5, seed=1)
    decoder, inputs = make(variant, 1, terms=terms), decoder_input(True, calendar=1)
    together = decoder(inputs, connect(queries, nodes))
    for q in range(5):
        alone = decoder(inputs, connect(queries.take(np.array([q])), nodes))
        torch.testing.assert_close(alone[:, :, 0], together[:, :, q], rtol=1e-10, atol=1e-12)
    for z in range(HORIZON):
        alone = decoder(inputs.at(torch.tensor([z])), connect(queries, nodes))
        torch.testing.assert_close(alone[:, 0], together[:, z], rtol=1e-10, atol=1e-12)


@EVERY
def test_a_masked_value_has_no_influence(variant, graph):
    decoder, inputs = make(variant), decoder_input(missing=True)
    spoilt = inputs.latent.detach().clone()
    spoilt[~inputs.present] = 1e30
    assert torch.equal(decoder(inputs, graph), decoder(replace(inputs, latent=spoilt), graph))


@INDUCTIVE
def test_a_node_that_is_always_missing_has_the_effect_of_a_removed_one(variant):
    nodes, queries = scattered(NODES), scattered(4, seed=1)
    decoder, inputs = make(variant), decoder_input()
    present = torch.ones(BATCH, PAST, NODES, dtype=torch.bool)
    present[:, :, 3] = False
    kept = np.flatnonzero(np.arange(NODES) != 3)
    fewer = connect(queries, nodes.take(kept), 0.6)
    assert fewer.neighbours.isolated == 0
    masked = decoder(replace(inputs, present=present), connect(queries, nodes, 0.6))
    removed = decoder(replace(inputs, latent=inputs.latent[:, :, kept]), fewer)
    torch.testing.assert_close(masked, removed, rtol=1e-10, atol=1e-12)


@INDUCTIVE
def test_a_point_beyond_the_radius_has_no_influence(variant):
    nodes, queries = scattered(NODES), scattered(4, seed=1)
    far = nodes.joined(Points(np.array([[9.0, 9.0]])))
    decoder, inputs = make(variant), decoder_input(True)
    more = torch.cat([inputs.latent, 1e3 * torch.ones(BATCH, PAST, 1, LATENT, dtype=F64)], dim=2)
    there = torch.cat([inputs.present, torch.ones(BATCH, PAST, 1, dtype=torch.bool)], dim=2)
    plain = decoder(inputs, connect(queries, nodes))
    joined = decoder(replace(inputs, latent=more, present=there), connect(queries, far))
    torch.testing.assert_close(joined, plain, rtol=1e-10, atol=1e-12)


def test_only_the_fixed_branch_has_weights_per_point():
    def count(variant: str, nodes: int) -> int:
        return sum(p.numel() for p in make(variant, nodes=nodes).parameters())

    for variant in VARIANTS:
        grown = count(variant, NODES + 1) - count(variant, NODES)
        expected = {"fixed": PAST * LATENT * LATENT**2, "fixed merged": PAST * LATENT * 4}
        assert grown == expected.get(variant, 0)  # xi_ij^k, or one row for each output


@EVERY
def test_every_parameter_gets_a_gradient(variant, graph):
    decoder = make(variant)
    decoder(decoder_input(), graph).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_with_a_linear_path_the_untrained_output_is_zero(graph):
    config = PaperConfig(
        latent=LATENT, rank=4, hidden=3, terms=1, indices="merged", linear_path=True
    )
    decoder = build_decoder(Sizes(2, 0, 5, PAST, HORIZON, NODES), config).double()
    assert torch.equal(decoder(decoder_input(), graph), torch.zeros(BATCH, HORIZON, 4, LATENT))


@pytest.mark.parametrize("rows", [1, BATCH])
def test_the_lead_chooses_the_decoder_of_its_term(rows, graph):
    decoder, inputs = make(terms=2), decoder_input(missing=True)
    assert isinstance(decoder, TermDecoders)
    leads = torch.tensor([[4.0, 0.5, 2.0, 2.01, 1.0, 3.0, 4.7, 0.0]] * rows, dtype=F64)
    leads = torch.stack([row.roll(b) for b, row in enumerate(leads)])  # different in each sample
    calendar = torch.zeros(BATCH, 8, 0, dtype=F64)
    inputs = replace(inputs, lag=inputs.lag.expand(rows, -1), lead=leads, calendar=calendar)
    result = decoder(inputs, graph)
    each = [one(inputs, graph) for one in decoder.decoders]
    for b, z in np.ndindex(BATCH, 8):
        term = int(leads[b % rows, z] > 2)  # of horizon 4: (0, 2] and (2, 4], and beyond
        torch.testing.assert_close(result[b, z], each[term][b, z], rtol=1e-10, atol=1e-12)
        assert not torch.allclose(result[b, z], each[1 - term][b, z])
