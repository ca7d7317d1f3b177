"""DLinear, N-HiTS and PatchTST: their formulas, one series and one step at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.contracts import Case, perturb, small_field, small_points
from torch import Tensor

from stonet.config import load_config
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GraphBaseline, Inputs
from stonet.models.baselines.dlinear import DLinear, moving_average
from stonet.models.baselines.nhits import NHITS, interpolation
from stonet.models.baselines.patchtst import PatchTST
from stonet.models.registry import build_model

NODES, CHANNELS, HORIZON, HOUR = 5, 2, 5, 3600 * 10**9
NAMES = ("dlinear", "nhits", "patchtst")


def made(name: str, past: int, *settings: str) -> GraphBaseline:
    """A small model in float64 with perturbed parameters, a calendar and the sun."""
    config = load_config(settings=(f"model={name}", "baseline.hidden=4", *settings))
    time_spec = TimeSpec(HOUR, past, HORIZON, calendar=True, sunny=True)
    model = build_model(config, time_spec, CHANNELS, small_points("sphere", NODES))
    assert isinstance(model, GraphBaseline)
    return perturb(model.double())


def some_inputs(model: GraphBaseline) -> Inputs:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    past = drawn(2, model.time_spec.past, NODES, model.input_width)
    extra = drawn(2, HORIZON, NODES, model.ahead_width - model.calendar_width)
    return Inputs(past, drawn(2, HORIZON, model.calendar_width), CHANNELS, extra)


def literal_dlinear(model: DLinear, x: Tensor, known: Tensor) -> Tensor:
    """(channel, past) to (channel, future)."""
    half, result = model.window // 2, torch.zeros(CHANNELS, HORIZON).double()
    for c in range(CHANNELS):
        around = [[max(0, min(len(x[c]) - 1, t + i)) for i in range(-half, half + 1)]
                  for t in range(len(x[c]))]  # fmt: skip
        trend = torch.stack([sum(x[c][i] for i in some) / len(some) for some in around])
        for k in range(HORIZON):
            own = model.trend[c, k] @ trend + model.remainder[c, k] @ (x[c] - trend)
            row = model.covariates.linear.weight[c * HORIZON + k]
            result[c, k] = own + model.bias[c, k] + row @ known
    return result


def literal_nhits(model: NHITS, x: Tensor, known: Tensor) -> Tensor:
    forecast, past = torch.zeros(CHANNELS, HORIZON).double(), x.shape[1]
    for block in model.blocks:
        k = block.pool
        pooled = [x[c, i : i + k].max() for c in range(CHANNELS) for i in range(0, past, k)]
        h = torch.cat([torch.stack(pooled), known])
        for layer in block.body[::2]:
            h = (layer.weight @ h + layer.bias).clamp(min=0)
        theta = (block.theta.weight @ h + block.theta.bias).view(CHANNELS, -1)
        knots = math.ceil(past / k)
        back, ahead = theta[:, :knots], theta[:, knots:]
        assert ahead.shape[1] == math.ceil(HORIZON / k)
        x = x - torch.stack([between(row, past) for row in back])
        forecast = forecast + torch.stack([between(row, HORIZON) for row in ahead])
    return forecast


def between(knots: Tensor, steps: int) -> Tensor:
    """Linear interpolation of evenly spaced knots."""
    result = []
    for step in range(steps):
        t = step * (len(knots) - 1) / (steps - 1)
        low = min(int(t), max(len(knots) - 2, 0))
        high = min(low + 1, len(knots) - 1)
        result.append(knots[low] + (knots[high] - knots[low]) * (t - low))
    return torch.stack(result)


def literal_patchtst(model: PatchTST, x: Tensor, known: Tensor) -> Tensor:
    result = torch.zeros(CHANNELS, HORIZON).double()
    for c in range(CHANNELS):
        mean, std = x[c].mean(), (x[c].var(correction=0) + 0.01).sqrt()
        row = torch.cat([(x[c] - mean) / std, ((x[c, -1] - mean) / std).repeat(model.stride)])
        starts = range(0, len(row) - model.patch + 1, model.stride)
        z = torch.stack([
            model.embed.weight @ row[s : s + model.patch] + model.embed.bias + model.position[n]
            for n, s in enumerate(starts)
        ])  # fmt: skip
        for layer in model.layers:
            z = transformer(layer, z)
        for k in range(HORIZON):
            own = model.readout[c, k] @ z.flatten() + model.bias[c, k]
            own = own + model.covariates.linear.weight[c * HORIZON + k] @ known
            result[c, k] = mean + std * own
    return result


def transformer(layer, z: Tensor) -> Tensor:
    q, k, v = (z @ layer.project.weight.T + layer.project.bias).chunk(3, dim=-1)
    size, heads = z.shape[1] // layer.heads, []
    for h in range(layer.heads):
        part = slice(h * size, (h + 1) * size)
        weights = torch.softmax(q[:, part] @ k[:, part].T / math.sqrt(size), dim=-1)
        heads.append(weights @ v[:, part])
    z = normal(layer.norm_attention, z + layer.merge(torch.cat(heads, dim=-1)))
    inner = layer.wide(z)
    inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return normal(layer.norm_network, z + layer.narrow(inner))


def normal(norm, z: Tensor) -> Tensor:
    centred = z - z.mean(1, keepdim=True)
    return centred / (z.var(1, correction=0, keepdim=True) + norm.eps).sqrt() * norm.weight + (
        norm.bias
    )


LITERAL = {"dlinear": literal_dlinear, "nhits": literal_nhits, "patchtst": literal_patchtst}


@pytest.mark.parametrize("past", [7, 24, 50])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_forecast_equals_the_formula(name: str, past: int) -> None:
    model = made(name, past)
    inputs = some_inputs(model)
    result = model.forecast_nodes(inputs, None, None)
    ahead = inputs.ahead()
    for window in range(2):
        for node in range(NODES):
            series = inputs.past[window, :, node, :CHANNELS].T
            known = torch.cat([ahead[window, lead, node] for lead in range(HORIZON)])
            expected = LITERAL[name](model, series, known)
            torch.testing.assert_close(result[window, :, node].T, expected, rtol=1e-9, atol=1e-9)


def test_the_complete_past_is_used() -> None:
    for name in NAMES:
        model = made(name, 30)
        assert model.time_spec.past == 30
        values = some_inputs(model).past.clone().requires_grad_()
        inputs = some_inputs(model)
        result = model.forecast_nodes(Inputs(values, inputs.calendar, CHANNELS, inputs.extra), None,
                                      None)  # fmt: skip
        (slope,) = torch.autograd.grad(result.sum(), values)
        assert (slope[..., :CHANNELS].abs().amax((0, 2, 3)) > 0).all()
        assert made(name, 30, "baseline.past=9").time_spec.past == 9


def test_the_moving_average_of_a_line_is_the_line_inside() -> None:
    line = torch.arange(40.0, dtype=torch.float64).expand(1, 1, 1, -1)
    torch.testing.assert_close(moving_average(line, 25)[..., 12:-12], line[..., 12:-12])
    assert torch.equal(moving_average(line, 1), line)


@pytest.mark.parametrize(("knots", "steps"), [(1, 1), (1, 6), (3, 12), (5, 5), (4, 1)])
def test_the_interpolation_keeps_lines(knots: int, steps: int) -> None:
    matrix = interpolation(knots, steps)
    np.testing.assert_allclose(matrix.sum(1), 1.0)
    line = matrix @ np.arange(knots)
    expected = np.linspace(0, knots - 1, steps) if steps > 1 else np.full(1, (knots - 1) / 2)
    np.testing.assert_allclose(line, expected)


def test_a_change_of_units_of_a_window_changes_patchtst_alike() -> None:
    """The normalisation of the window, up to the lower limit of its spread."""
    model = made("patchtst", 24, "baseline.extras=false")
    inputs = some_inputs(model)
    calendar = torch.zeros_like(inputs.calendar)
    plain = Inputs(100 * inputs.past[..., :CHANNELS], calendar, CHANNELS)
    moved = Inputs(3 * plain.past + 70, calendar, CHANNELS)
    with torch.no_grad():
        one, other = (model.forecast_nodes(each, None, None) for each in (plain, moved))
    torch.testing.assert_close(3 * one + 70, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", [*NAMES, "mign"])
def test_an_untrained_model_on_a_base_is_the_base(name: str) -> None:
    case = Case.of(small_field(), f"model={name}", "baseline.base=ridge", "baseline.hidden=8")
    model, batch = case.fitted.eval(), case.windows.inputs(np.arange(3))
    graphs = model.graphs(case.nodes)
    with torch.no_grad():
        result = model(batch, graphs).forecast
        torch.testing.assert_close(result, model.base(batch, graphs.queries.stencil))
