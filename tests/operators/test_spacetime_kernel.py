"""The joint kernel of offset and lag: regular output times share their lags, others do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.references import assert_same, randomise
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import gelu

from stonet.config import PaperConfig
from stonet.data.geometry import Points
from stonet.graph.neighbours import within_radius
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.spacetime_kernel import MAX_CHUNK_LAGS, order_lags

CPU, F64 = torch.device("cpu"), torch.float64
PAST = torch.arange(-4, 1, dtype=F64)
TIMES = {
    "regular": torch.arange(1.0, 5),
    "backwards": torch.arange(4.0, 0, -1),
    "one": torch.tensor([2.0]),
    "twice": torch.tensor([2.0, 2.0, 1.0]),
    "every other": torch.arange(1.0, 9, 2),
    "far apart": torch.tensor([1.0, 30.0]),
    "halves": torch.arange(0.5, 4, 0.5),
    "any": torch.tensor([0.3, 1.7, 2.9]),
}
EVERY = pytest.mark.parametrize("times", TIMES)


def lags_of(times: torch.Tensor, past: torch.Tensor = PAST) -> torch.Tensor:
    return times.to(F64)[:, None] - past


@EVERY
def test_every_output_time_reads_its_lags(times):
    lags = lags_of(TIMES[times])
    ordered = order_lags(lags)
    for row, start in zip(lags, ordered.start, strict=True):
        assert torch.equal(ordered.value[start : start + len(PAST)], row)
    assert sorted(t for chunk in ordered.chunks for t in chunk) == list(range(len(lags)))


@given(st.lists(st.floats(-3, 40), min_size=1, max_size=9), st.integers(1, 6))
def test_irregular_output_times_read_their_lags(times, past):
    lags = lags_of(torch.tensor(times), torch.arange(1 - past, 1, dtype=F64))
    ordered = order_lags(lags)
    for row, start in zip(lags, ordered.start, strict=True):
        assert torch.equal(ordered.value[start : start + past], row)
    for chunk in ordered.chunks:
        starts = [ordered.start[t] for t in chunk]
        assert starts == sorted(starts)
        assert starts[-1] + past - starts[0] <= max(MAX_CHUNK_LAGS, 2 * past)


@pytest.mark.parametrize(
    ("times", "stored"),
    [("regular", 8), ("backwards", 8), ("every other", 11), ("halves", 8 + 7), ("twice", 6)],
)
def test_regular_times_share_their_lags(times, stored):
    """12 leads after 12 inputs have 23 lags, not 144; times between steps are a second series."""
    assert len(order_lags(lags_of(TIMES[times])).value) == stored


@EVERY
@pytest.mark.parametrize("max_chunk_lags", [1, 24])
def test_equals_the_sum_over_neighbours_and_past_times(times, max_chunk_lags):
    place = np.random.default_rng(0).uniform(size=(9, 2))
    nodes, queries = Points(place), Points(place[:4] + 0.05)
    around = within_radius(queries, nodes, 0.4)
    graph = DecoderGraph(torch.zeros(4, 2), around, torch.full((4,), 9)).to(CPU, F64)
    config = PaperConfig(latent=3, hidden=4)
    branch = randomise(RevisedBranch(5, 2, 4, config))
    branch.max_chunk_lags, branch.workspace = max_chunk_lags, 400
    latent = torch.randn(2, len(PAST), 9, 3, dtype=F64, requires_grad=True)
    lags = lags_of(TIMES[times])

    expected = torch.zeros(2, len(lags), 4, 2, dtype=F64)
    for block in graph.neighbours.blocks:
        for row, sources, features in zip(block.rows, block.index, block.features, strict=True):
            for source, edge in zip(sources.tolist(), features, strict=True):
                if source < 9:
                    before = branch.place(edge) + branch.lag(lags[..., None] / 4)
                    xi = torch.einsum("tsm,dmr->tsdr", gelu(before), branch.weight.view(3, 4, 2))
                    message = torch.einsum("tsdr,bsd->btr", xi + branch.bias, latent[:, :, source])
                    mean = message / graph.neighbours.count[row]
                    expected = expected.index_add(2, row[None], mean[:, :, None])
    expected = expected + branch.threshold
    assert_same(branch(latent, None, lags[None], graph), expected, [latent, *branch.parameters()])
