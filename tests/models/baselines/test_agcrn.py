"""AGCRN: its formula in dense loops, a GRU as its special case, and its size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.contracts import Case, forecast, perturb, small_field, small_points
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from stonet.config import load_config
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.models.baselines.agcrn import AGCRN, AdaptiveGRU
from stonet.models.baselines.base import Inputs
from stonet.models.forecaster import Supervision

NODES, CHANNELS, EXTRA, PAST, HORIZON = 6, 2, 4, 3, 5


def made(*settings: str, nodes: Points | None = None) -> AGCRN:
    """A small model in float64 with perturbed parameters and a calendar."""
    config = load_config(
        settings=("baseline.extras=false", "baseline.hidden=3", "baseline.embedding=2", *settings)
    )
    time_spec = TimeSpec(3600 * SECOND, PAST, HORIZON, calendar=True)
    model = AGCRN(config, time_spec, CHANNELS, nodes or small_points("plane", NODES))
    return perturb(model.double())  # type: ignore[return-value]


def some_inputs(batch: int = 2, nodes: int = NODES) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, PAST, nodes, CHANNELS + EXTRA), (batch, HORIZON, EXTRA)
    past, calendar = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return Inputs(past, calendar, CHANNELS)


def by_hand(layer: AdaptiveGRU, xs: list[Tensor], e: Tensor, order: int) -> list[Tensor]:
    """One sample, node by node and term by term."""
    nodes, hidden = len(e), layer.hidden
    a = torch.stack([(e @ e[n]).clamp(min=0).exp() for n in range(nodes)])
    a = a / a.sum(1, keepdim=True)
    terms = [torch.eye(nodes, dtype=e.dtype), a, 2 * a @ a - torch.eye(nodes, dtype=e.dtype)]

    def convolved(x: Tensor, pool: Tensor, gate: int) -> Tensor:
        rows, width = [], x.shape[1]
        for n in range(nodes):
            total = torch.zeros(hidden, dtype=e.dtype)
            for d in range(e.shape[1]):
                for k in range(order):
                    matrix = pool[d, k * width : (k + 1) * width]
                    around = sum(terms[k][n, m] * x[m] for m in range(nodes))
                    total += e[n, d] * (around @ matrix[:, gate * hidden : (gate + 1) * hidden])
            rows.append(total)
        return torch.stack(rows)

    h, states = torch.zeros(nodes, hidden, dtype=e.dtype), []
    for x in xs:
        bias = [e @ layer.bias[:, g * hidden : (g + 1) * hidden] for g in range(3)]
        z, r = (
            torch.sigmoid(
                convolved(x, layer.input_map, g) + convolved(h, layer.state_map, g) + bias[g]
            )
            for g in (0, 1)
        )
        reset = convolved(z * h, layer.reset_map, 0)
        c = torch.tanh(convolved(x, layer.input_map, 2) + reset + bias[2])
        h = r * h + (1 - r) * c
        states.append(h)
    return states


@pytest.mark.parametrize("order", [1, 2, 3])
@torch.no_grad()
def test_the_forecast_equals_the_formula_of_the_paper(order: int) -> None:
    model, inputs = made(f"baseline.order={order}"), some_inputs()
    found = model.forecast_nodes(inputs, None, None)
    for sample in range(2):
        xs = list(inputs.past[sample])
        for layer in model.layers:
            xs = by_hand(layer, xs, model.embedding, order)
        leads = xs[-1] @ model.readout.weight.T + model.readout.bias
        for lead in range(HORIZON):
            torch.testing.assert_close(
                found[sample, lead],
                leads[:, lead * CHANNELS : (lead + 1) * CHANNELS],
                rtol=1e-10,
                atol=1e-10,
            )


@torch.no_grad()
def test_without_graph_and_embeddings_it_is_a_gru() -> None:
    """torch resets after the matrix, AGCRN before it: equal for a diagonal matrix."""
    model, inputs, width = (
        made("baseline.order=1", "baseline.layers=1", "baseline.embedding=1"),
        6,
        3,
    )
    model.embedding.fill_(1.0)
    layer, x = model.layers[0], some_inputs()
    gru = nn.GRU(inputs, width, batch_first=True).double()
    diagonal = torch.diag(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64))
    layer.reset_map.copy_(diagonal[None])
    x_map, h_map, bias = layer.input_map[0], layer.state_map[0], layer.bias[0]
    z, r, c = (slice(g * width, (g + 1) * width) for g in range(3))  # torch calls them r, z, n
    gru.weight_ih_l0.copy_(torch.cat([x_map[:, z], x_map[:, r], x_map[:, c]], dim=1).T)
    gru.weight_hh_l0.copy_(torch.cat([h_map[:, z].T, h_map[:, r].T, diagonal]))
    gru.bias_ih_l0.copy_(torch.cat([bias[z], bias[r], bias[c]]))
    gru.bias_hh_l0.zero_()
    alone = x.past.transpose(1, 2).reshape(2 * NODES, PAST, inputs)
    expected = gru(alone)[0].unflatten(0, (2, NODES)).permute(2, 1, 0, 3)
    found = layer(x.past.permute(1, 2, 0, 3), model.embedding, torch.zeros(NODES, NODES).double())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_node_is_identified_by_its_embedding_only() -> None:
    """Permuted nodes with their embeddings give the permuted forecast; positions do not matter."""
    model, inputs = made(), some_inputs()
    before = model.forecast_nodes(inputs, None, None)
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))
    model.embedding.copy_(model.embedding[order].clone())
    moved = Inputs(inputs.past[:, :, order], inputs.calendar, CHANNELS)
    torch.testing.assert_close(
        model.forecast_nodes(moved, None, None), before[:, :, order], rtol=1e-10, atol=1e-10
    )


def test_targets_have_no_influence() -> None:
    model, inputs = made(), some_inputs()
    target = torch.full((2, HORIZON, NODES, CHANNELS), 9.0, dtype=torch.float64)
    supervision = Supervision(
        target, torch.ones_like(target, dtype=torch.bool), 0.0, torch.zeros(HORIZON)
    )
    forced, alone = (model.forecast_nodes(inputs, None, given) for given in (supervision, None))
    assert torch.equal(forced, alone)


def test_the_number_of_parameters() -> None:
    """The published benchmark has an embedding per layer (N x 4) and one readout per step."""
    config = load_config(settings=["baseline.order=2", "baseline.extras=false"])
    nodes = small_points("sphere", 2048)
    model = AGCRN(config, TimeSpec(SECOND, 12, 12, calendar=False), 1, nodes)
    count = sum(p.numel() for p in model.parameters())
    readout, rolled = 32 * 12 + 12, 32 + 1
    assert count + 2048 * 4 - readout + rolled == 91_681


def test_weights_of_nodes_are_not_repeated_for_each_sample() -> None:
    """Memory for the gradient grows with weights plus samples, not with their product."""
    batch, nodes = 64, 40
    model = made("baseline.hidden=16", "baseline.embedding=4", nodes=small_points("plane", nodes))
    kept: list[int] = []
    inputs = some_inputs(batch, nodes)
    with saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t):
        model.forecast_nodes(inputs, None, None).sum().backward()
    weights, states = nodes * 2 * 16 * 48, PAST * nodes * batch * 48
    assert max(kept) <= max(weights, states) < weights * batch / 8


def test_other_nodes_are_refused_and_other_queries_interpolated() -> None:
    case = Case.of(small_field(), "model=agcrn")
    some = case.nodes.take(np.arange(20))
    with pytest.raises(UsageError, match="AGCRN has weights for each of its 24 training points"):
        case.fitted.node_graph(some)
    assert not case.fitted.inductive
    elsewhere = forecast(case.model(), case.batch(1), case.nodes, small_points("plane", 3, seed=5))
    assert elsewhere.isfinite().all()
