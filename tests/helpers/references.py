"""The operators as loops over points, edges and times: the formulas of the paper, literally.

They read the parameters of the tested modules and share no code with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from stonet.data.geometry import Points
from stonet.graph.multipole import MultipoleGraph
from stonet.graph.neighbours import Neighbours
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.decoder import (
    DecoderInput,
    LiteralTrunk,
    MergedDecoder,
    OperatorDecoder,
    Trunk,
)
from stonet.operators.decoder_variants import FixedBranch
from stonet.operators.encoder import KernelOperator, MultipoleEncoder, TimeEmbedding
from stonet.operators.graph_kernel import GraphKernel

Ball = list[tuple[int, Tensor]]  # of one target: (source, features of the edge)


def brute_force_pairs(targets: Points, sources: Points, radius: float) -> set[tuple[int, int]]:
    """All (i, j) with d(x_i, y_j) <= radius, up to rounding."""
    distance = targets.geometry.distance
    return {
        (i, j)
        for i, x in enumerate(targets.embedded)
        for j, d in enumerate(distance(x, sources.embedded))
        if d <= radius * (1 + 1e-12)
    }


def balls(neighbours: Neighbours) -> list[Ball]:
    """N(x) of every target, unpacked from the padded blocks entry by entry."""
    result: list[Ball] = [[] for _ in neighbours.count]
    for block in neighbours.blocks:
        for n, row in enumerate(block.rows.tolist()):
            for k, source in enumerate(block.index[n].tolist()):
                if source < neighbours.num_sources:
                    result[row].append((source, block.features[n, k]))
    return result


def mlp(network: nn.Module, x: Tensor) -> Tensor:
    """W2 gelu(W1 x + b1) + b2."""
    first, _, last = network
    return last.weight @ gelu(first.weight @ x + first.bias) + last.bias


def time_embedding(embedding: TimeEmbedding, time: Tensor) -> Tensor:
    """[sin(w_1 t), ..., cos(w_1 t), ...] of one time t, a vector."""
    if embedding.frequencies is None:
        return time
    angles = [(w * time).sum() for w in embedding.frequencies.T]
    return torch.stack([a.sin() for a in angles] + [a.cos() for a in angles])


def kappa(kernel: GraphKernel, here: Tensor, there: Tensor, edge: Tensor) -> Tensor:
    """kappa(a(x), a(x_j), x, x_j): the full d x d matrix of one edge."""
    first = torch.cat([kernel.target.weight, kernel.source.weight, kernel.edge.T], dim=1)
    features = torch.cat([here, there, edge[: len(kernel.edge)]])
    hidden = gelu(first @ features + kernel.target.bias)
    if kernel.kind == "diag":
        return torch.diag(kernel.weight.T @ hidden + kernel.bias)
    latent, width = kernel.bias.shape[0], len(hidden)
    last = kernel.weight.T.reshape(latent, latent, width)  # row, column, hidden
    return torch.stack(
        [
            torch.stack([last[p, q] @ hidden + kernel.bias[q, p] for q in range(latent)])
            for p in range(latent)
        ]
    )


def graph_kernel(
    kernel: GraphKernel,
    values: Tensor,
    target: Tensor,
    source: Tensor,
    neighbours: Neighbours,
    present: Tensor | None = None,
) -> Tensor:
    """1/|N(x)| sum over x_j in N(x) of kappa v(x_j), frame by frame."""
    result = []
    for frame, v in enumerate(values):
        a, b = (side[frame if len(side) > 1 else 0] for side in (target, source))
        for i, ball in enumerate(balls(neighbours)):
            messages = [
                kappa(kernel, a[i], b[j], edge) @ v[j]
                for j, edge in ball
                if present is None or present[frame, j]
            ]
            result.append(sum(messages, v.new_zeros(v.shape[-1])) / max(len(messages), 1))
    return torch.stack(result).view(len(values), -1, values.shape[-1])


def kernel_operator(
    operator: KernelOperator,
    values: Tensor,
    sources: Tensor,
    target: Tensor,
    source: Tensor,
    neighbours: Neighbours,
    present: Tensor | None,
) -> Tensor:
    """sigma(W v(x) + the kernel integral); with a linear path also a bias, and v + y + sigma(y)."""
    integral = graph_kernel(operator.kernel, sources, target, source, neighbours, present)
    y = values @ operator.own.weight.T + integral
    y = y if operator.own.bias is None else y + operator.own.bias
    return values + y + gelu(y) if operator.linear_path else gelu(y)


def encoder(
    module: MultipoleEncoder,
    values: Tensor,
    time: Tensor,
    position: Tensor,
    present: Tensor | None,
    graph: MultipoleGraph,
) -> Tensor:
    """Within all levels, then up one after another, then down one after another; layer by layer."""
    members, top = [level.tolist() for level in graph.members], len(graph.members) - 1
    order = [
        *(("within", level, level, level) for level in range(top + 1)),
        *(("up", level, level + 1, level) for level in range(top)),
        *(("down", level, level, level + 1) for level in reversed(range(top))),
    ]
    frames = []
    for frame in range(len(values)):
        a = []
        for x in position:
            embedded = time_embedding(module.parametric.embedding, time[frame])
            parametric = mlp(module.parametric.network, torch.cat([x, embedded]))
            a.append(torch.cat([parametric, x]) if module.sees_place else parametric)
        inputs = [torch.stack([a[n] for n in level])[None] for level in members]
        v = [values[frame : frame + 1, level] for level in members]
        mask = [None if present is None else present[frame : frame + 1, m] for m in members]
        for layer in module.layers:
            for family, number, here, there in order:
                v[here] = kernel_operator(
                    getattr(layer, family)[number],
                    *(v[here], v[there], inputs[here], inputs[there]),
                    getattr(graph, family)[number],
                    mask[there],
                )
        of_node = {n: v[level][0, k] for level, m in enumerate(members) for k, n in enumerate(m)}
        frames.append(torch.stack([of_node[n] for n in range(len(position))]))
    return torch.stack(frames)


def xi(branch: RevisedBranch, edge: Tensor, lag: Tensor, past: int) -> Tensor:
    """xi(x - x_j, t - t_s): the rank x d matrix of one edge and one lag."""
    if branch.time is not None:  # separable: diag(h(x - x_j)) u(t - t_s)
        decay = torch.exp(-lag.clamp(min=0) / 2)
        features = torch.stack([lag / branch.horizon, decay, decay**2])
        latent, rank = branch.time.shape
        u = mlp(branch.time.network, features).view(latent, rank).T / math.sqrt(past * latent)
        return mlp(branch.space, edge)[:, None] * u
    latent, rank = branch.bias.shape
    first = branch.place.weight @ edge + branch.place.bias
    hidden = gelu(first + branch.lag.weight[:, 0] * lag / branch.horizon)
    last = branch.weight.view(latent, len(hidden), rank)
    rows = [
        [last[q, :, r] @ hidden + branch.bias[q, r] for q in range(latent)] for r in range(rank)
    ]
    return torch.stack([torch.stack(row) for row in rows])


def aggregate(
    branch: nn.Module, inputs: DecoderInput, graph: DecoderGraph, b: int, z: int, q: int
) -> Tensor:
    """AGG before its activation, for one sample, one time and one query.

    With missing inputs it is n_t times the mean over the observed pairs (x_j, t_s).
    """
    past, nodes = inputs.latent.shape[1:3]
    lead, lag = (part[b if len(part) > 1 else 0] for part in (inputs.lead, inputs.lag))
    present = torch.ones(past, nodes, dtype=torch.bool)
    if inputs.present is not None:
        present = inputs.present[b]
    if isinstance(branch, FixedBranch):  # xi_j of each node and input, for all queries
        weight = branch.map.weight.unflatten(1, (past, nodes, -1))
        pairs = [(s, j) for s in range(past) for j in range(nodes) if present[s, j]]
        return branch.map.bias + sum(weight[:, s, j] @ inputs.latent[b, s, j] for s, j in pairs)
    ball = balls(graph.neighbours)[q]
    messages = [
        xi(branch, edge, lead[z] - lag[s], past) @ inputs.latent[b, s, j]
        for s in range(past)
        for j, edge in ball
        if present[s, j]
    ]
    total = sum(messages, torch.zeros_like(branch.threshold))
    return past * total / max(len(messages), 1) + branch.threshold


def trunk(module: Trunk | LiteralTrunk, lead: Tensor, calendar: Tensor, x: Tensor) -> Tensor:
    """eta [x, t] + zeta, or MLP([x, e_t]) where the lead is a quarter turn over the horizon."""
    if isinstance(module, LiteralTrunk):
        return _affine(module.network, torch.cat([x, lead[None] / module.horizon, calendar]))
    time = torch.cat([lead[None] / (4 * module.horizon), calendar])
    return mlp(module.network, torch.cat([x, time_embedding(module.embedding, time)]))


def operator_decoder(
    decoder: OperatorDecoder | MergedDecoder, inputs: DecoderInput, graph: DecoderGraph
) -> Tensor:
    """v_dec(x, t), one sample, one time and one query after another."""
    batch, future, queries = len(inputs.latent), inputs.lead.shape[1], len(graph.position)
    result = []
    for b, z, q in np.ndindex(batch, future, queries):
        agg = aggregate(decoder.branch, inputs, graph, b, z, q)
        lead = inputs.lead[b if len(inputs.lead) > 1 else 0, z]
        t = trunk(decoder.trunk, lead, inputs.calendar[b, z], graph.position[q])
        if isinstance(decoder, OperatorDecoder):
            result.append(_literal(decoder, agg, t))
        elif decoder.linear_path:
            result.append(_affine(decoder.map, (agg + gelu(agg)) * (1 + t)))
        else:
            result.append(_affine(decoder.map, gelu(agg) * gelu(t)))
    return torch.stack(result).view(batch, future, queries, -1)


def _literal(decoder: OperatorDecoder, agg: Tensor, t: Tensor) -> Tensor:
    """v_k = sum_i c_i^k sigma(AGG_ik) sigma(trunk_k)."""
    d = len(decoder.combine)
    return torch.stack(
        [
            sum(decoder.combine[i, k] * gelu(agg[i * d + k]) * gelu(t[k]) for i in range(d))
            for k in range(d)
        ]
    )


def _affine(layer: nn.Linear, x: Tensor) -> Tensor:
    product = layer.weight @ x
    return product if layer.bias is None else product + layer.bias


def gradients(output: Tensor, wanted: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a fixed random functional of the output with respect to each of `wanted`."""
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return list(torch.autograd.grad((output * weight).sum(), list(wanted)))


def assert_same(actual: Tensor, expected: Tensor, wanted: Sequence[Tensor]) -> None:
    """Compare values and all gradients, to 1e-10 of the largest entry."""
    results = [actual, *gradients(actual, wanted)]
    truth = [expected, *gradients(expected, wanted)]
    for one, other in zip(results, truth, strict=True):
        scale = float(other.detach().abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10 * max(scale, 1e-3))


def randomise(module: nn.Module) -> nn.Module:
    """The module in float64 with random parameters, so that no zero hides an error."""
    module = module.double()
    generator = torch.Generator().manual_seed(11)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = 0.5 * noise
    return module
