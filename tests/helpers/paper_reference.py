"""The paper's network as loops over windows, times and points, from its equations.

It reads the parameters of a `PaperNetwork`; graphs, positions and times are found anew, from the
coordinates and the radii.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu

from stonet.data.geometry import Points
from stonet.models.paper import PaperNetwork

TERMS = 3  # decoders, for equal parts of the horizon


@dataclass(frozen=True)
class Past:
    """The inputs of one window: values, and phases of year and day of inputs and targets."""

    values: Tensor  # past node channel
    phases: Tensor  # past feature
    future_phases: Tensor  # future feature


def paper_network(net: PaperNetwork, nodes: Points, past: Past) -> tuple[Tensor, Tensor]:
    """u(x, t) at every lead and node, and the reconstruction of the inputs."""
    steps, horizon = len(past.values), len(past.future_phases)
    encoded, x = [], positions(nodes)
    for s in range(steps):
        v = torch.stack([net.lift.weight @ u + net.lift.bias for u in past.values[s]])
        place_in_window = torch.tensor([(s - (steps - 1)) / horizon], dtype=v.dtype)
        t = torch.cat([past.phases[s], place_in_window])
        encoded.append(encode(net, nodes, x, v, t))
    future = [
        torch.stack([decode(net, nodes, x, encoded, past, lead, q) for q in range(len(nodes))])
        for lead in range(1, horizon + 1)
    ]
    project = net.project
    forecast, reconstruction = (
        torch.stack([torch.stack([project.weight @ v + project.bias for v in f]) for f in frames])
        for frames in (future, encoded)
    )
    return forecast, reconstruction


def positions(points: Points) -> Tensor:
    """Unit vectors, or coordinates in a box from -1 to 1 on its longest side; from float32."""
    x = points.embedded
    if points.kind == "plane":
        low, high = x.min(0), x.max(0)
        x = (x - (low + high) / 2) / ((high - low).max() / 2)
    return torch.from_numpy(x.astype(np.float32)).double()


def difference(nodes: Points, i: int, j: int) -> Tensor:
    """x_i - x_j in the same unit, in float32."""
    x = nodes.embedded
    span = 1.0 if nodes.kind == "sphere" else float(np.ptp(x, axis=0).max()) / 2
    return (torch.from_numpy(x[i] - x[j]).float() / span).double()


def ball(nodes: Points, i: int, sources: list[int], radius: float) -> list[int]:
    """The sources within the radius of node i; the nearest one if there is none."""
    chord = {j: float(np.linalg.norm(nodes.embedded[i] - nodes.embedded[j])) for j in sources}
    arc = chord if nodes.kind == "plane" else {j: 2 * math.asin(c / 2) for j, c in chord.items()}
    near = [j for j in sources if arc[j] <= radius * (1 + 1e-9)]
    return near or [min(arc, key=arc.__getitem__)]


def encode(net: PaperNetwork, nodes: Points, x: Tensor, v: Tensor, t: Tensor) -> Tensor:
    """v_enc of one frame: within all levels, up from fine to coarse, down from coarse to fine."""
    w = net.encoder.parametric.embedding.frequencies
    angles = [(w[:, k] * t).sum() for k in range(w.shape[1])]
    e = torch.stack([a.sin() for a in angles] + [a.cos() for a in angles])
    first, _, last = net.encoder.parametric.network
    a = [last.weight @ gelu(first.weight @ torch.cat([y, e]) + first.bias) + last.bias for y in x]
    inputs = [torch.cat([a[i], x[i]]) for i in range(len(x))]
    levels = [np.flatnonzero(net.levels == n).tolist() for n in range(3)]
    (layer,) = net.encoder.layers
    sweeps = [
        [(layer.within[n], levels[n], levels[n], net.radii.within[n]) for n in range(3)],
        [(layer.up[0], levels[1], levels[0], net.radii.between[0])],
        [(layer.up[1], levels[2], levels[1], net.radii.between[1])],
        [(layer.down[1], levels[1], levels[2], net.radii.between[1])],
        [(layer.down[0], levels[0], levels[1], net.radii.between[0])],
    ]
    current = list(v)
    for sweep in sweeps:
        updated = list(current)
        for operator, targets, sources, radius in sweep:
            for i in targets:
                near = ball(nodes, i, sources, radius)
                messages = [kappa(operator.kernel, inputs[i], inputs[j]) @ current[j] for j in near]
                mean = sum(messages) / len(near)
                updated[i] = gelu(operator.own.weight @ current[i] + mean)
        current = updated
    return torch.stack(current)


def kappa(kernel, here: Tensor, there: Tensor) -> Tensor:
    """kappa(a(x), a(x_j), x, x_j): a d x d matrix, from one hidden layer."""
    d = kernel.bias.shape[0]
    hidden = gelu(kernel.target.weight @ here + kernel.target.bias + kernel.source.weight @ there)
    last = kernel.weight.view(d, len(hidden), d)  # column, hidden, row
    return torch.einsum("qmp,m->pq", last, hidden) + kernel.bias.T


def decode(
    net: PaperNetwork,
    nodes: Points,
    x: Tensor,
    encoded: list[Tensor],
    past: Past,
    lead: int,
    q: int,
) -> Tensor:
    """v_dec at one node and lead: sum_i c_i^k sigma(AGG_ik) sigma(eta_k [x, t] + zeta_k)."""
    horizon, steps = len(past.future_phases), len(encoded)
    decoder = net.decoder.decoders[math.ceil(lead * TERMS / horizon) - 1]
    branch, d = decoder.branch, len(decoder.combine)
    near = ball(nodes, q, list(range(len(nodes))), net.radii.decoder)
    total = torch.zeros(d * d, dtype=x.dtype)
    for j in near:
        for s in range(steps):
            lag = (lead - (s - (steps - 1))) / horizon
            before = branch.place.weight @ difference(nodes, q, j) + branch.place.bias
            hidden = gelu(before + branch.lag.weight[:, 0] * lag)
            v = encoded[s][j]
            last = branch.weight.view(d, len(hidden), d * d)  # column, hidden, (i, k)
            xi = torch.einsum("qmr,m->rq", last, hidden) + branch.bias.T
            total = total + xi @ v
    agg = gelu(total / len(near) + branch.threshold).view(d, d)  # i k
    time = torch.cat([torch.tensor([lead / horizon], dtype=x.dtype), past.future_phases[lead - 1]])
    eta, zeta = decoder.trunk.network.weight, decoder.trunk.network.bias
    trunk = gelu(eta @ torch.cat([x[q], time]) + zeta)
    return torch.stack([(decoder.combine[:, k] * agg[:, k]).sum() * trunk[k] for k in range(d)])
