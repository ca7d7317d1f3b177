"""Peers of the operators, on the same graph and with the same weights as ours.

literal     the paper's formula: a d x d matrix for every edge
nnconv      PyTorch Geometric's NNConv, which is that formula
autograd    our factorised sum, differentiated by autograd instead of by hand
gno         neuraloperator's integral transform, compared with our diagonal kernel
pairs       the decoder's formula, one pair of times after another
lags        the same, with one kernel for all pairs of times with the same lag
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from stonet.graph.neighbours import Neighbours
from stonet.operators.branch import DecoderGraph, RevisedBranch
from stonet.operators.graph_kernel import GraphKernel
from stonet.operators.kernel_sum import KernelSum

Apply = Callable[[Tensor, Tensor], Tensor]  # values (frame node latent), inputs (frame node input)
Kernel = tuple[Apply, list[Tensor]]  # a call, and the weights whose gradients are computed


SumKernel = tuple[Callable[[Tensor], Tensor], list[Tensor]]  # values (node window latent)


def trainable(module: nn.Module, exclude: str = "") -> list[Tensor]:
    """The non-empty parameters of a module, without the one named `exclude`."""
    return [p for name, p in module.named_parameters() if p.numel() and name != exclude]


def our_kernel(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
    """The operator as the network uses it."""
    return lambda values, inputs: kernel(values, inputs, inputs, neighbours), trainable(kernel)


def literal_kernel(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
    """kappa_ij for every edge, then the mean of kappa_ij v_j."""
    target, source = neighbours.edges()

    def apply(values: Tensor, inputs: Tensor) -> Tensor:
        frames = []
        for v, a in zip(values, inputs, strict=True):
            hidden = gelu(kernel.target(a)[target] + kernel.source(a)[source])
            kappa = hidden @ _last_layer(kernel) + kernel.bias.flatten()
            kappa = kappa.unflatten(-1, kernel.bias.shape)
            message = torch.einsum("ei,eio->eo", v[source], kappa)
            summed = torch.zeros_like(v).index_add(0, target, message)
            frames.append(summed / neighbours.count.clamp(min=1)[:, None])
        return torch.stack(frames)

    return apply, trainable(kernel)


def nnconv(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
    """torch_geometric.nn.NNConv with our weights."""
    module: Any = importlib.import_module("torch_geometric.nn")
    target, source = neighbours.edges()
    latent, width = kernel.bias.shape[0], kernel.target.weight.shape[1]
    hidden = kernel.target.weight.shape[0]
    first, last = nn.Linear(2 * width, hidden), nn.Linear(hidden, latent**2)
    network = nn.Sequential(first, nn.GELU(), last)
    layer = module.NNConv(latent, latent, network, aggr="mean", root_weight=False, bias=False)
    layer.to(kernel.weight.dtype)
    with torch.no_grad():
        first.weight.copy_(torch.cat([kernel.target.weight, kernel.source.weight], dim=1))
        first.bias.copy_(kernel.target.bias)
        last.weight.copy_(_last_layer(kernel).T)
        last.bias.copy_(kernel.bias.flatten())
    edges = torch.stack([source, target])

    def apply(values: Tensor, inputs: Tensor) -> Tensor:
        return torch.stack(
            [
                layer(v, edges, torch.cat([a[target], a[source]], dim=-1))
                for v, a in zip(values, inputs, strict=True)
            ]
        )

    return apply, trainable(layer)


def autograd_kernel(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
    """Our padded blocks and factorised sum, with all intermediates kept for autograd."""

    def apply(values: Tensor, inputs: Tensor) -> Tensor:
        v = pad(values, (0, 0, 0, 1))
        p, q = kernel.target(inputs), pad(kernel.source(inputs), (0, 0, 0, 1))
        parts = []
        for block in neighbours.blocks:
            gathered = v[:, block.index]  # frame row degree latent
            hidden = gelu(p[:, block.rows][:, :, None] + q[:, block.index])
            outer = gathered.transpose(2, 3) @ hidden
            parts.append(outer.flatten(2) @ kernel.weight + gathered.sum(2) @ kernel.bias)
        rows = torch.cat([block.rows for block in neighbours.blocks])
        summed = torch.cat(parts, dim=1)[:, torch.argsort(rows)]
        return summed / neighbours.count.clamp(min=1)[:, None]

    return apply, trainable(kernel)


def gno(kernel: GraphKernel, neighbours: Neighbours) -> Kernel:
    """Neuraloperator's IntegralTransform, unchanged, with the weights of our diagonal kernel."""
    module: Any = importlib.import_module("neuralop.layers.integral_transform")
    target, source = neighbours.edges()
    splits = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(target).cumsum(0)])
    edges = {"neighbors_index": source, "neighbors_row_splits": splits}
    width = kernel.target.weight.shape[1]
    hidden, latent = kernel.weight.shape
    layer = module.IntegralTransform(
        channel_mlp_layers=[2 * width, hidden, latent], reduction="mean", use_torch_scatter=False
    )
    layer.to(kernel.weight.dtype)
    first, last = layer.channel_mlp.fcs
    with torch.no_grad():  # its first inputs are those of the source
        first.weight.copy_(torch.cat([kernel.source.weight, kernel.target.weight], dim=1))
        first.bias.copy_(kernel.target.bias)
        last.weight.copy_(kernel.weight.T)
        last.bias.copy_(kernel.bias)

    def apply(values: Tensor, inputs: Tensor) -> Tensor:
        return torch.stack(
            [layer(y=a, neighbors=edges, x=a, f_y=v) for v, a in zip(values, inputs, strict=True)]
        )

    return apply, trainable(layer)


def _last_layer(kernel: GraphKernel) -> Tensor:
    """Weights from the hidden layer of kappa to its d x d entries."""
    latent = kernel.bias.shape[0]
    return kernel.weight.unflatten(0, (latent, -1)).permute(1, 0, 2).flatten(1)


def our_sum(kernel: KernelSum, neighbours: Neighbours) -> SumKernel:
    """The kernel sum as the network uses it."""
    return lambda values: kernel(values, neighbours), trainable(kernel)


def literal_sum(kernel: KernelSum, neighbours: Neighbours) -> SumKernel:
    """The matrix sum_k h_k A_k of every edge, then the mean of its products with v_j."""
    target, source = neighbours.edges()
    features = _edge_features(neighbours)
    count = neighbours.count.clamp(min=1)[:, None, None]

    def apply(values: Tensor) -> Tensor:
        kappa = torch.einsum("ek,koi->eoi", kernel.weights(features), _matrices(kernel))
        message = torch.einsum("ebi,eoi->ebo", values[source], kappa)
        shape = len(neighbours.count), *message.shape[1:]
        return message.new_zeros(shape).index_add(0, target, message) / count

    return apply, trainable(kernel)


def autograd_sum(kernel: KernelSum, neighbours: Neighbours) -> SumKernel:
    """Our sums over neighbours before the matrices, with all intermediates kept for autograd."""
    target, source = neighbours.edges()
    features = _edge_features(neighbours)
    count = neighbours.count.clamp(min=1)[:, None, None]

    def apply(values: Tensor) -> Tensor:
        weighted = kernel.weights(features)[:, None, :, None] * values[source][:, :, None]
        flat = weighted.flatten(2)
        sums = flat.new_zeros(len(neighbours.count), *flat.shape[1:]).index_add(0, target, flat)
        return kernel.map(sums / count)

    return apply, trainable(kernel)


def nnconv_sum(kernel: KernelSum, neighbours: Neighbours) -> SumKernel:
    """torch_geometric.nn.NNConv with our weights: its edge network ends in the matrices A_k."""
    module: Any = importlib.import_module("torch_geometric.nn")
    target, source = neighbours.edges()
    features, edges = _edge_features(neighbours), torch.stack([source, target])
    matrices = _matrices(kernel)  # kernel output input
    kernels, outputs, inputs = matrices.shape
    last = nn.Linear(kernels, inputs * outputs, bias=False)
    hidden = copy.deepcopy(kernel.weights)
    network = nn.Sequential(hidden, last)
    layer = module.NNConv(inputs, outputs, network, aggr="mean", root_weight=False, bias=False)
    layer.to(kernel.map.weight.dtype)
    with torch.no_grad():  # the layer has drawn its network's weights anew
        hidden.load_state_dict(kernel.weights.state_dict())
        last.weight.copy_(matrices.permute(2, 1, 0).flatten(0, 1))

    def apply(values: Tensor) -> Tensor:
        windows = values.unbind(1)
        return torch.stack([layer(v, edges, features) for v in windows], dim=1)

    return apply, trainable(layer)


def _matrices(kernel: KernelSum) -> Tensor:
    """The matrices A_k: (kernel, output, input)."""
    weight = kernel.map.weight
    return weight.unflatten(1, (kernel.kernels, -1)).transpose(0, 1)


class LiteralBranch:
    """A matrix xi for every edge and pair of times, or (`shared`) for every edge and distinct lag.

    The pairs of times that share one xi form a group. Groups are summed one after another, each
    with its own backward pass, since all of them together do not fit into memory.
    """

    def __init__(
        self, branch: RevisedBranch, links: DecoderGraph, lags: Tensor, shared: bool
    ) -> None:
        self.branch, self.links = branch, links
        self.target, self.source = links.neighbours.edges()
        self.features = _edge_features(links.neighbours)
        self.future, self.past = torch.nonzero(torch.ones_like(lags[0])).T
        self.lags = lags.flatten()
        keys = self.lags if shared else torch.arange(len(self.lags))
        self.groups = [torch.nonzero(keys == key)[:, 0] for key in torch.unique(keys)]
        self.shape = lags.shape[1], len(links.own), branch.rank

    def part(self, latent: Tensor, group: Tensor) -> Tensor:
        """The contribution of one group to the sum: (batch, future, query, rank)."""
        branch = self.branch
        size = branch.bias.shape
        last = branch.weight.unflatten(0, (size[0], -1)).permute(1, 0, 2).flatten(1)
        lag = self.lags[group[:1], None] / branch.horizon
        xi = gelu(branch.place(self.features) + branch.lag(lag)) @ last + branch.bias.flatten()
        past = latent[:, self.past[group]][:, :, self.source]  # batch pair edge latent
        message = torch.einsum("bpei,eio->bpeo", past, xi.unflatten(-1, size))
        zeros = latent.new_zeros(len(latent), *self.shape)
        by_pair = zeros[:, : len(group)].index_add(2, self.target, message)
        count = self.links.neighbours.count.clamp(min=1)[:, None]
        return zeros.index_add(1, self.future[group], by_pair) / count

    def sample(self, max_groups: int) -> list[Tensor]:
        """At most `max_groups` groups, evenly spread."""
        if len(self.groups) <= max_groups:
            return self.groups
        chosen = torch.linspace(0, len(self.groups) - 1, max_groups).round().long().tolist()
        return [self.groups[number] for number in chosen]


def _edge_features(neighbours: Neighbours) -> Tensor:
    """Features of every edge, in the order of `neighbours.edges()`."""
    edges = [(block, block.index < neighbours.num_sources) for block in neighbours.blocks]
    target = [block.rows[:, None].expand_as(mask)[mask] for block, mask in edges]
    features = [block.features[mask] for block, mask in edges]
    return torch.cat(features)[torch.argsort(torch.cat(target), stable=True)]
