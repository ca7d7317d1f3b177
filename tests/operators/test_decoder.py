"""The decoders against the paper's formulas, one query and one time after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.references import assert_same, operator_decoder, randomise

from stonet.config import ModelConfig
from stonet.data.geometry import Points
from stonet.graph import neighbours as neighbours_module
from stonet.graph.neighbours import own_nodes, within_radius
from stonet.operators import branch as branch_module
from stonet.operators import spacetime_kernel as joint_module
from stonet.operators.branch import Links
from stonet.operators.decoder import DecoderInput, Sizes, TermDecoders, build_decoder

BATCH, PAST, HORIZON, NODES, LATENT = 2, 3, 4, 8, 3
CPU, F64 = torch.device("cpu"), torch.float64
VARIANTS = {
    "separable": {"separable": True},
    "joint": {"separable": False},
    "literal": {"decoder": "literal", "separable": False},
    "literal separable": {"decoder": "literal", "separable": True},
    "fixed": {"decoder": "fixed"},
}
EVERY = pytest.mark.parametrize("variant", VARIANTS)
INDUCTIVE = pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "fixed"])


def scattered(number: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).uniform(size=(number, 2)))


def connect(queries: Points, nodes: Points, radius: float = 0.45, **among) -> Links:
    links = Links(
        torch.from_numpy(queries.embedded.copy()),
        within_radius(queries, nodes, radius),
        torch.from_numpy(own_nodes(queries, nodes)),
        **among,
    )
    return links.to(CPU, F64)


def question(missing: bool = False, rows: int = 1, calendar: int = 0, nodes: int = NODES):
    lag = torch.arange(1 - PAST, 1, dtype=F64).expand(rows, -1)
    lead = torch.arange(1, HORIZON + 1, dtype=F64).expand(rows, -1)
    if rows > 1:  # every sample at times of its own
        lag, lead = lag - 0.3 * torch.rand(rows, PAST), lead + 0.3 * torch.rand(rows, HORIZON)
    return DecoderInput(
        latent=torch.randn(BATCH, PAST, nodes, LATENT, dtype=F64, requires_grad=True),
        present=torch.rand(BATCH, PAST, nodes) < 0.6 if missing else None,
        lag=lag.to(F64),
        lead=lead.to(F64),
        calendar=torch.rand(BATCH, HORIZON, calendar, dtype=F64),
    )


def make(variant: str = "separable", calendar: int = 0, nodes: int = NODES, **settings):
    sizes = {"latent": LATENT, "rank": 4, "hidden": 3, "frequencies": 3, "linear_path": False}
    config = ModelConfig(**(sizes | VARIANTS.get(variant, {}) | settings))
    return randomise(build_decoder(Sizes(2, calendar, 5, PAST, HORIZON, nodes), config))


@pytest.fixture
def links() -> Links:
    nodes = scattered(NODES)
    return connect(scattered(3, seed=1).joined(nodes.take(np.array([2]))), nodes)


@EVERY
@pytest.mark.parametrize("linear_path", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_is_the_written_out_formula(variant, linear_path, missing, links):
    decoder, asked = make(variant, linear_path=linear_path), question(missing)
    if missing:  # one query with nothing at all around it
        around = links.neighbours.edges()[1][links.neighbours.edges()[0] == 0]
        asked.present[0, :, around] = False
    wanted = [asked.latent, *decoder.parameters()]
    assert_same(decoder(asked, links), operator_decoder(decoder, asked, links), wanted)


@EVERY
@pytest.mark.parametrize("calendar", [0, 2])
def test_samples_may_have_times_of_their_own(variant, calendar, links):
    decoder, asked = make(variant, calendar), question(True, rows=BATCH, calendar=calendar)
    wanted = [asked.latent, *decoder.parameters()]
    assert_same(decoder(asked, links), operator_decoder(decoder, asked, links), wanted)


@INDUCTIVE
def test_small_pieces_change_nothing(variant, monkeypatch):
    nodes = scattered(NODES)
    decoder, asked, queries = make(variant), question(True), scattered(9, seed=1)
    whole = decoder(asked, connect(queries, nodes))
    monkeypatch.setattr(neighbours_module, "BLOCK", 4)
    monkeypatch.setattr(branch_module, "WORKSPACE", 150)
    monkeypatch.setattr(joint_module, "WORKSPACE", 150)
    assert_same(decoder(asked, connect(queries, nodes)), whole, [asked.latent])


@EVERY
def test_one_row_of_times_is_the_same_row_for_every_sample(variant, links):
    decoder, asked = make(variant), question(True)
    repeated = replace(asked, lag=asked.lag.expand(BATCH, -1), lead=asked.lead.expand(BATCH, -1))
    assert_same(decoder(repeated, links), decoder(asked, links), [asked.latent])


@EVERY
@pytest.mark.parametrize("terms", [1, 2])
def test_one_query_and_one_time_at_a_time_is_all_at_once(variant, terms):
    nodes, queries = scattered(NODES), scattered(5, seed=1)
    decoder, asked = make(variant, 1, terms=terms), question(True, calendar=1)
    together = decoder(asked, connect(queries, nodes))
    for q in range(5):
        alone = decoder(asked, connect(queries.take(np.array([q])), nodes))
        torch.testing.assert_close(alone[:, :, 0], together[:, :, q], rtol=1e-10, atol=1e-12)
    for z in range(HORIZON):
        alone = decoder(asked.at(torch.tensor([z])), connect(queries, nodes))
        torch.testing.assert_close(alone[:, 0], together[:, z], rtol=1e-10, atol=1e-12)


@EVERY
def test_a_masked_value_changes_nothing(variant, links):
    decoder, asked = make(variant), question(missing=True)
    spoilt = asked.latent.detach().clone()
    spoilt[~asked.present] = 1e30
    assert torch.equal(decoder(asked, links), decoder(replace(asked, latent=spoilt), links))


@INDUCTIVE
def test_an_input_missing_everywhere_in_time_is_a_node_removed(variant):
    nodes, queries = scattered(NODES), scattered(4, seed=1)
    decoder, asked = make(variant), question()
    present = torch.ones(BATCH, PAST, NODES, dtype=torch.bool)
    present[:, :, 3] = False
    kept = np.flatnonzero(np.arange(NODES) != 3)
    fewer = connect(queries, nodes.take(kept), 0.6)
    assert fewer.neighbours.isolated == 0
    masked = decoder(replace(asked, present=present), connect(queries, nodes, 0.6))
    removed = decoder(replace(asked, latent=asked.latent[:, :, kept]), fewer)
    torch.testing.assert_close(masked, removed, rtol=1e-10, atol=1e-12)


@INDUCTIVE
def test_a_point_beyond_the_radius_changes_nothing(variant):
    nodes, queries = scattered(NODES), scattered(4, seed=1)
    far = nodes.joined(Points(np.array([[9.0, 9.0]])))
    decoder, asked = make(variant), question(True)
    more = torch.cat([asked.latent, 1e3 * torch.ones(BATCH, PAST, 1, LATENT, dtype=F64)], dim=2)
    there = torch.cat([asked.present, torch.ones(BATCH, PAST, 1, dtype=torch.bool)], dim=2)
    plain = decoder(asked, connect(queries, nodes))
    joined = decoder(replace(asked, latent=more, present=there), connect(queries, far))
    torch.testing.assert_close(joined, plain, rtol=1e-10, atol=1e-12)


def test_only_the_fixed_branch_grows_with_the_points():
    def count(variant: str, nodes: int) -> int:
        return sum(p.numel() for p in make(variant, nodes=nodes).parameters())

    for variant in VARIANTS:
        grown = count(variant, NODES + 1) - count(variant, NODES)
        assert grown == (PAST * LATENT * 4 if variant == "fixed" else 0)


@EVERY
def test_every_parameter_gets_a_gradient(variant, links):
    decoder = make(variant)
    decoder(question(), links).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_with_a_linear_path_it_starts_as_nothing_to_correct(links):
    config = ModelConfig(latent=LATENT, rank=4, hidden=3)
    decoder = build_decoder(Sizes(2, 0, 5, PAST, HORIZON, NODES), config).double()
    assert torch.equal(decoder(question(), links), torch.zeros(BATCH, HORIZON, 4, LATENT))


@pytest.mark.parametrize("rows", [1, BATCH])
def test_the_lead_picks_the_decoder_of_its_term(rows, links):
    decoder, asked = make(terms=2), question(missing=True)
    assert isinstance(decoder, TermDecoders)
    leads = torch.tensor([[4.0, 0.5, 2.0, 2.01, 1.0, 3.0, 4.7, 0.0]] * rows, dtype=F64)
    leads = torch.stack([row.roll(b) for b, row in enumerate(leads)])  # its own for each sample
    calendar = torch.zeros(BATCH, 8, 0, dtype=F64)
    asked = replace(asked, lag=asked.lag.expand(rows, -1), lead=leads, calendar=calendar)
    answer = decoder(asked, links)
    each = [one(asked, links) for one in decoder.decoders]
    for b, z in np.ndindex(BATCH, 8):
        term = int(leads[b % rows, z] > 2)  # of horizon 4: (0, 2] and (2, 4], and beyond
        torch.testing.assert_close(answer[b, z], each[term][b, z], rtol=1e-10, atol=1e-12)
        assert not torch.allclose(answer[b, z], each[1 - term][b, z])
