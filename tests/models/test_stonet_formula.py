"""STONet equals its formula, point by point and window by window, in value and gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import Case, small_field
from helpers.references import branch_trunk, mlp, multipole_layer
from torch import Tensor

from stonet.data.batch import Batch
from stonet.models.stonet import STONetwork

F64 = torch.float64
LEADS = torch.tensor([[0.5, 1.0, 2.25, 4.0]], dtype=F64)
CASES = {
    "plane": (("plane", 1), 120, ()),
    "sphere, two channels, daily value": (("sphere", 2), 320, ("data.past=24",)),
}


def past_of(model: STONetwork, batch: Batch, window: int, node: int) -> Tensor | None:
    """E[u | y] = m + C H' (H C H')^-1 (y - H m), newest first; None without any value."""
    rows = batch.past[window].flip(0)
    values, there = batch.frames[rows, node].flatten(), batch.observed[rows, node].flatten()
    if not there.any():
        return None
    mean, covariance = model.history.mean, model.history.covariance
    known = covariance[:, there]
    filled = mean + known @ torch.linalg.solve(known[there], values[there] - mean[there])
    return torch.where(there, values, filled)


def harmonics(phases: Tensor) -> Tensor:
    """sin(2 pi m p) and cos(2 pi m p) for m = 1, 2, 3, 4, one cycle p after another."""
    turns = [2 * math.pi * m * float(p) for p in phases for m in (1, 2, 3, 4)]
    waves = [math.sin(t) for t in turns] + [math.cos(t) for t in turns]
    return torch.tensor(waves, dtype=F64)


def inputs_of(model: STONetwork, batch: Batch, window: int, node: int) -> Tensor:
    """[a(x, t0), sun]; the hour is that of the sun's mean time."""
    axes, x = model.axes, torch.tensor(model.nodes.embedded[node])
    place = (axes.axes @ (x - axes.centre)).clamp(axes.low, axes.high)
    phases = batch.issue_time[window].clone()
    if model.nodes.kind == "sphere":
        phases[-1] += float(torch.atan2(x[1], x[0])) / (2 * math.pi)
    parametric = mlp(model.parametric, torch.cat([place, harmonics(phases)]))
    if batch.sun is None:
        return parametric
    ahead = batch.sun[window, -model.time_spec.horizon - 1 :].to(F64)
    return torch.cat([parametric, (ahead @ x).clamp(min=0)])


def gaps_of(model: STONetwork, batch: Batch, window: int, node: int) -> Tensor:
    """Age of the newest value and share of missing values, over the length of the past."""
    there = batch.observed[batch.past[window], node]
    past = len(there)
    seen = [np.flatnonzero(channel.numpy()) for channel in there.T]
    ages = [(past - 1 - s[-1] if len(s) else past) / past for s in seen]
    return torch.tensor(ages + [1 - len(s) / past for s in seen], dtype=F64)


def anchor_of(model: STONetwork, past: Tensor) -> Tensor:
    """The blend at the leads 0, 1, ..., horizon."""
    steps, rows = past.view(model.time_spec.past, -1), []
    for lead in range(model.time_spec.horizon + 1):
        day = -lead % 24  # age of the value at the same hour
        daily = steps[day] if len(steps) == 24 else torch.zeros_like(steps[0])
        weight = model.blend[lead]
        rows.append(weight[:, 0] * steps[0] + weight[:, 1] * daily + weight[:, 2])
    return torch.stack(rows).flatten()


def kriging(model: STONetwork, node: int, present: Tensor) -> tuple[list[int], Tensor]:
    """The nearest 16 nodes with a past, among the nearest 24, and their weights."""
    spacing, reach, nugget = model.covariance
    nodes, geometry = model.nodes, model.nodes.geometry
    x = nodes.embedded[node]
    order = np.argsort(np.linalg.norm(nodes.embedded - x, axis=1))[:24]
    chosen = [int(j) for j in order if present[j]][:16]
    offset = geometry.offset(np.stack([x] * len(chosen)), nodes.embedded[chosen]) / spacing

    def matern(h: np.ndarray) -> np.ndarray:
        return (1 + h / reach) * np.exp(-h / reach)

    among = matern(np.linalg.norm(offset[:, None] - offset, axis=-1)) + nugget * np.eye(len(chosen))
    simple = np.linalg.solve(among, matern(np.linalg.norm(offset, axis=-1)))
    even = np.linalg.solve(among, np.ones(len(chosen)))
    return chosen, torch.tensor(simple + even * (1 - simple.sum()) / even.sum())


def between(knots: Tensor, lead: float) -> Tensor:
    """Linear interpolation of values at the leads 0, 1, ..., horizon."""
    low = min(int(lead), len(knots) - 2)
    return knots[low] + (lead - low) * (knots[low + 1] - knots[low])


def literal(model: STONetwork, batch: Batch) -> Tensor:
    """The forecast at the nodes."""
    graphs = model.graphs(model.nodes)
    windows, count, channels = len(batch.past), len(model.nodes), model.channels
    present = torch.zeros(count, windows, dtype=torch.bool)
    state, modes, anchor = ([[None] * windows for _ in range(count)] for _ in range(3))
    for n, w in np.ndindex(count, windows):
        past = past_of(model, batch, w, n)
        present[n, w] = past is not None
        z = torch.zeros(model.modes.width, dtype=F64)
        if past is not None:
            limit = model.modes.limit
            z = (model.modes.whitening.T @ (past - model.modes.mean)).clamp(-limit, limit)
        seen = torch.cat([z, inputs_of(model, batch, w, n), gaps_of(model, batch, w, n)])
        state[n][w] = model.lift.weight @ seen + model.lift.bias
        modes[n][w] = z
        anchor[n][w] = anchor_of(model, torch.zeros_like(z) if past is None else past)
    latent = torch.stack([torch.stack(row) for row in state])
    for layer in model.layers:
        latent = multipole_layer(layer, latent, graphs.nodes.multipole, present)
    own, at_leads = [], torch.zeros(count, windows, len(model.blend), channels, dtype=F64)
    for n, w in np.ndindex(count, windows):
        chosen, weight = ([n], torch.ones(1, dtype=F64))
        if not present[n, w]:
            chosen, weight = kriging(model, n, present[:, w])
        v, z, u = (
            sum(a * part[j][w] for a, j in zip(weight, chosen, strict=True))
            for part in (latent, modes, anchor)
        )
        own.append(torch.cat([v, z, inputs_of(model, batch, w, n)]))
        at_leads[n, w] = u.view(-1, channels)
    time = torch.stack([torch.stack([harmonics(t) for t in row]) for row in batch.future_time])
    correction = branch_trunk(
        model.decoder,
        latent,
        torch.stack(own).view(count, windows, -1),
        graphs.queries.neighbours,
        present,
        present,
        batch.lead,
        graphs.queries.sites.place,
        time,
    )
    forecast = torch.zeros(windows, batch.lead.shape[1], count, channels, dtype=F64)
    for w, f, n in np.ndindex(*forecast.shape[:3]):
        lead, scale = float(batch.lead[0, f]), model.scale[0 if present[n, w] else 1]
        value = between(at_leads[n, w], lead) + between(scale, lead) * correction[n, w, f]
        forecast[w, f, n] = value
    return forecast


@pytest.mark.parametrize("name", CASES)
def test_the_forecast_equals_its_formula_in_value_and_gradient(name: str) -> None:
    """With gaps, and two sensors without any value."""
    place, frames, settings = CASES[name]
    case = Case.of(small_field(*place, nodes=18, frames=frames), *settings)
    model, batch = case.model(), replace(case.batch(2), lead=LEADS)
    target, mask = case.windows.targets(np.array([0, len(case.windows) - 1]))
    assert batch.observed is not None and not batch.observed[:, :2].any()
    parameters, found = dict(model.named_parameters()), []
    for forecast in (model(batch, model.graphs(case.nodes)).forecast, literal(model, batch)):
        error = ((forecast - target.double()).abs() * mask).sum() / mask.sum()
        found.append((forecast, torch.autograd.grad(error, list(parameters.values()))))
    (forecast, gradients), (expected, truth) = found
    torch.testing.assert_close(forecast, expected, rtol=1e-8, atol=1e-8)
    for key, one, other in zip(parameters, gradients, truth, strict=True):
        assert other.any(), key
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9, msg=key)
